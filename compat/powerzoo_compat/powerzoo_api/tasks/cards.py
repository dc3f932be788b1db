"""Task cards: summary of a task before it is run, as plain values that JSON takes."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_compat._host import Host
from powerzoo_compat.powerzoo_api.envs.constraint import ConstraintSpec
from powerzoo_compat.powerzoo_api.tasks.catalog import DROP_IN, GYM_NAMES, MULTI, PUBLIC_TASKS, gym_id
from powerzoo_compat.powerzoo_api.tasks.observation import FLATTENED
from powerzoo_compat.powerzoo_api.tasks.splits import primary_set, split_dates, splits_of
from powerzoo_jax.base.types import TaskSpec
from powerzoo_jax.data import get_info
from powerzoo_jax.envs.constraint import UNITS
from powerzoo_jax.envs.family import get_family
from powerzoo_jax.oracle import get_baselines, get_reference, list_baselines
from powerzoo_jax.tasks import get_spec
from powerzoo_jax.tasks.registry import observation_modes
from powerzoo_jax.tasks.score import SEED

FACTS = Path(__file__).with_name("facts.json")  # written by `python -m tools.tasks.card_facts`
CARDS = 256
EVALUATED = "test"  # split of the evaluation protocol
EPISODES, FEWER = 100, 50  # of the evaluation protocol; the second for large or long tasks
LARGE_STEPS, LARGE_AGENTS = 336, 54
NO_GRID = "none"
FAMILIES = {"feeder": "distribution"}  # names of the contract
GRID_TYPES = FAMILIES | {"market": "transmission", "microgrid": NO_GRID}
DOLLAR_NOTE = "All money is $."
ANCHORS = ("random", "trivial", "rule", "causal", "best", "bound")
COST_CONTRACT = (
    "Costs are non-negative, in the units given, apart from the reward; the budget of a channel is the mean over "
    "episodes of its sum over an episode. Channels without a budget are reported and not constrained."
)


@dataclass(frozen=True)
class Facts:
    """Entries of a card that come from the simulation, so that a shipped task need not be built for its card.

    spec:       after the task's keywords
    minutes:    length of a step
    seen, done: entries of the observation and of the action of each agent
    low, high:  least and most that an action holds
    """

    spec: TaskSpec
    minutes: int
    seen: tuple[int, ...]
    done: tuple[int, ...]
    low: float
    high: float


def card_of(cls: Any) -> dict[str, Any]:
    """Card of a task class with its default keywords; a fresh copy that `json.dumps` takes."""
    return copy.deepcopy(_card(cls))


@functools.lru_cache(maxsize=CARDS)  # bounded: configs make a class at every call
def _card(cls: Any) -> dict[str, Any]:
    facts = shipped_facts(cls)
    return card_from(cls, built_facts(cls) if facts is None else facts)


def built_facts(cls: Any) -> Facts:
    """Facts of a task class from its simulation."""
    host = Host(cls()._built)
    agents = range(len(host.boxes))
    return Facts(
        spec=host.sim.spec,
        minutes=host.minutes,
        seen=tuple(host.observation_box(a).low.size for a in agents),
        done=tuple(box.low.size for box in host.boxes),
        low=min((float(np.min(box.low)) for box in host.boxes if box.low.size), default=0.0),
        high=max((float(np.max(box.high)) for box in host.boxes if box.high.size), default=0.0),
    )


def shipped_facts(cls: Any) -> Facts | None:
    """Facts of a task class from the table; None for a class that builds a simulation of its own."""
    base, told = getattr(cls, "name", None), _shipped_table()
    if base not in told or cls.build.__qualname__ != "Task.build":
        return None
    row = dict(told[base])
    spec = get_spec(base)
    if row.pop("version") != spec.version:
        return None
    spec = dataclasses.replace(spec, **_as_tuple(row.pop("spec")))
    return Facts(spec=spec, **{name: _as_tuple(value) for name, value in row.items()})


def facts_row(facts: Facts) -> dict[str, Any]:
    """Facts as a row of the table: of the spec, what the builder changes."""
    base, told = get_spec(facts.spec.id), dict(vars(facts))
    told["spec"] = {key: value for key, value in vars(facts.spec).items() if value != getattr(base, key)}
    return {"version": base.version, **told}


@functools.cache
def _shipped_table() -> dict[str, Any]:
    return dict(json.loads(FACTS.read_text(encoding="utf-8")))


def _as_tuple(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_tuple(inner) for key, inner in value.items()}
    return tuple(_as_tuple(inner) for inner in value) if isinstance(value, list) else value


def card_from(cls: Any, facts: Facts) -> dict[str, Any]:
    """Card of a task class out of facts."""
    spec, chosen = facts.spec, budgets_of(facts.spec)
    multi = cls.agent_mode == MULTI
    modes = observation_modes(spec) if multi else (FLATTENED,)
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
        "delta_t_minutes": facts.minutes,
        "default_episode_horizon_steps": spec.horizon,
        "default_observation_mode": dict(spec.overrides).get("obs_mode", FLATTENED) if multi else FLATTENED,
        "supported_observation_modes": list(modes),
        **_shapes(facts, multi),
        "has_splits": True,
        "splits": list(splits_of(spec)),
        "split_dates": split_dates(spec),
        "eval_protocol": eval_protocol(spec),
        "constraint_names": list(spec.cost_names),
        "constraint_units": _units(spec),
        "cost_thresholds": dict(zip(chosen.selected_names, chosen.thresholds, strict=True)),
        "cost_threshold": float(sum(chosen.thresholds)),
        "fallback_weights": list(chosen.fallback_weights),
        **_contracts(facts),
        "training_contract": cls.training_contract,
        "benchmark_family": FAMILIES.get(spec.family, spec.family),
        "data_sources": _sources(spec),
        "currency_note": _currency(spec),
        "baselines": _baselines(spec),
        "gymnasium_id": gym_id(DROP_IN, cls.name) if cls.name in GYM_NAMES else None,
    }


def _shapes(facts: Facts, multi: bool) -> dict[str, Any]:
    agents = facts.spec.agents
    seen, done = ({name: [n] for name, n in zip(agents, sizes, strict=True)} for sizes in (facts.seen, facts.done))
    if not multi:
        return {"observation_shape": seen[agents[0]], "action_shape": done[agents[0]]}
    return {"observation_shape": seen, "action_shape": done}


def _contracts(facts: Facts) -> dict[str, Any]:
    spec = facts.spec
    scale = float(spec.term_weights[0])
    terms = ", ".join(f"{w:g} x {n}" for n, w in zip(spec.term_names, spec.term_weights, strict=True))
    return {
        "reward_scale": scale,
        "reward_unit": "$" if scale == 1 else f"{scale:g} $",
        "reward_contract": f"Sum of terms: {terms}.",
        "cost_contract": COST_CONTRACT,
        "action_contract": f"Boxes within [{facts.low:g}, {facts.high:g}], clipped; NaN and wrong shapes are refused.",
    }


def budgets_of(spec: TaskSpec) -> ConstraintSpec:
    """Channels with a budget."""
    chosen = [(n, float(b)) for n, b in zip(spec.cost_names, spec.cost_budget, strict=True)]
    finite = [(name, budget) for name, budget in chosen if math.isfinite(budget)]
    names, budgets = (tuple(x) for x in zip(*finite, strict=True)) if finite else ((), ())
    return ConstraintSpec(names, budgets, fallback_weights(spec, names))


def eval_protocol(spec: TaskSpec) -> dict[str, Any]:
    """Split, first seed and number of episodes of a comparable evaluation."""
    large = spec.horizon >= LARGE_STEPS or len(spec.agents) >= LARGE_AGENTS
    return {"split": EVALUATED, "seed_start": SEED, "n_episodes": FEWER if large else EPISODES}


def fallback_weights(spec: TaskSpec, names: Sequence[str]) -> tuple[float, ...]:
    """Prices of the selected channels in a reward without constraints."""
    dear = "voltage_violation" if spec.id == "marl_ders_benchmark" else None
    return tuple(4.0 if name == dear else 1.0 for name in names)


def _units(spec: TaskSpec) -> dict[str, str]:
    in_dc = {"thermal_overload": "MW"} if get_family(spec.family).dc_flow(spec) else {}
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
