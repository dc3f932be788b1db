"""Task cards: summary of a task before it is run, as plain values that JSON takes."""

from __future__ import annotations

import copy
import functools
from typing import Any

import numpy as np

from powerzoo_compat._host import Host
from powerzoo_compat.powerzoo_api.tasks.catalog import DROP_IN, GYM_NAMES, MULTI, PUBLIC_TASKS, gym_id
from powerzoo_compat.powerzoo_api.tasks.observation import FLATTENED
from powerzoo_compat.powerzoo_api.tasks.splits import primary_set, split_dates, splits_of
from powerzoo_jax.base.types import TaskSpec
from powerzoo_jax.data import get_info
from powerzoo_jax.envs.constraint import UNITS
from powerzoo_jax.oracle import get_baselines, get_reference, list_baselines
from powerzoo_jax.tasks.feeder import ders as build_ders
from powerzoo_jax.tasks.feeder import storage as build_der
from powerzoo_jax.tasks.feeder import vehicles as build_vehicles
from powerzoo_jax.tasks.transmission import units as build_transmission

CARDS = 256
NO_GRID = "none"
DC_FAMILIES = ("market", "transmission")
GRID_TYPES = {"market": "transmission", "microgrid": NO_GRID}
DOLLAR_NOTE = "All money is $."
ANCHORS = ("random", "rule", "oracle", "bound")
MODES_OF_TASK = {
    "marl_der_arbitrage": build_der.MODES,
    "marl_ders_benchmark": build_ders.MODES,
    "marl_ev_v2g": build_vehicles.MODES,
    "marl_opf": build_transmission.OBS_MODES[:-1],
    "marl_uc": build_transmission.OBS_MODES[:-1],
    "opf_118": build_transmission.OBS_MODES[:-1],
}
COST_CONTRACT = (
    "Costs are non-negative, in the units given, apart from the reward; the budget of a channel is the mean over "
    "episodes of its sum over an episode. Channels without a budget are reported and not constrained."
)


def card_of(cls: Any) -> dict[str, Any]:
    """Card of a task class with its default keywords; a fresh copy that `json.dumps` takes."""
    return copy.deepcopy(_card(cls))


@functools.lru_cache(maxsize=CARDS)  # bounded: configs make a class at every call
def _card(cls: Any) -> dict[str, Any]:
    task = cls()
    spec, host, chosen = task.spec, Host(task._built), task.constraint_spec()
    multi = cls.agent_mode == MULTI
    modes = _modes(spec) if multi else (FLATTENED,)
    return {
        "task_id": cls.name,
        "name": cls.name,
        "description": cls.description,
        "public": cls.name in PUBLIC_TASKS,
        "version": spec.version,
        "difficulty": cls.difficulty,
        "agent_mode": cls.agent_mode,
        "agents": list(spec.agents),
        "route": f"{cls.__module__}:{cls.__name__}",
        "frameworks": ["auto", "pettingzoo", "rllib"] if multi else ["auto", "gymnasium"],
        "grid_type": GRID_TYPES.get(spec.family, spec.family),
        "grid_case": spec.case,
        "delta_t_minutes": host.minutes,
        "default_episode_horizon_steps": spec.horizon,
        "default_observation_mode": dict(spec.overrides).get("obs_mode", FLATTENED) if multi else FLATTENED,
        "supported_observation_modes": list(modes),
        **_shapes(host, multi),
        "has_splits": True,
        "splits": list(splits_of(spec)),
        "split_dates": split_dates(spec),
        "eval_protocol": task.eval_protocol,
        "constraint_names": list(spec.cost_names),
        "constraint_units": _units(spec),
        "cost_thresholds": dict(zip(chosen.selected_names, chosen.thresholds, strict=True)),
        "cost_threshold": task.effective_cost_threshold,
        "fallback_weights": list(chosen.fallback_weights),
        **_contracts(spec, host),
        "training_contract": cls.training_contract,
        "benchmark_family": spec.family,
        "data_sources": _sources(spec),
        "currency_note": _currency(spec),
        "baselines": _baselines(spec),
        "gymnasium_id": gym_id(DROP_IN, cls.name) if cls.name in GYM_NAMES else None,
    }


def _modes(spec: TaskSpec) -> tuple[str, ...]:
    variants = (modes for base, modes in MODES_OF_TASK.items() if spec.id.startswith(base))
    return next(variants, (dict(spec.overrides).get("obs_mode", FLATTENED),))


def _shapes(host: Host, multi: bool) -> dict[str, Any]:
    agents = host.sim.spec.agents
    seen = {name: list(host.observation_box(a).shape) for a, name in enumerate(agents)}
    done = {name: list(host.boxes[a].shape) for a, name in enumerate(agents)}
    if not multi:
        return {"observation_shape": seen[agents[0]], "action_shape": done[agents[0]]}
    return {"observation_shape": seen, "action_shape": done}


def _contracts(spec: TaskSpec, host: Host) -> dict[str, Any]:
    scale = float(spec.term_weights[0])
    terms = ", ".join(f"{w:g} x {n}" for n, w in zip(spec.term_names, spec.term_weights, strict=True))
    low = [float(np.min(box.low)) for box in host.boxes]
    high = [float(np.max(box.high)) for box in host.boxes]
    return {
        "reward_scale": scale,
        "reward_unit": "$" if scale == 1 else f"{scale:g} $",
        "reward_contract": f"Sum of terms: {terms}.",
        "cost_contract": COST_CONTRACT,
        "action_contract": f"Boxes within [{min(low):g}, {max(high):g}], clipped; NaN and wrong shapes are refused.",
    }


def _units(spec: TaskSpec) -> dict[str, str]:
    in_dc = {"thermal_overload": "MW"} if spec.family in DC_FAMILIES else {}
    return {name: in_dc.get(name, UNITS[name]) for name in spec.cost_names}


def _currency(spec: TaskSpec) -> str:
    source = dict(spec.overrides).get("price_set")
    return (get_info(source).currency_note if source else "") or DOLLAR_NOTE


def _sources(spec: TaskSpec) -> list[dict[str, str]]:
    given = dict(spec.overrides)
    names = dict.fromkeys((primary_set(spec), *(given[key] for key in ("price_set",) if key in given)))
    infos = [get_info(name) for name in names]
    return [{"name": info.name, "title": info.title, "licence": info.licence} for info in infos]


def _baselines(spec: TaskSpec) -> dict[str, Any]:
    """Names of the reference policies, and their shipped mean returns by split."""
    known = spec.id in list_baselines()
    scores = {}
    for split in splits_of(spec):
        try:
            record = get_reference(spec.id, split)
        except KeyError:
            continue
        scores[split] = {name: record[name] for name in ANCHORS if name in record}
    return {"policies": list(get_baselines(spec.id).names) if known else ["random"], "scores": scores}
