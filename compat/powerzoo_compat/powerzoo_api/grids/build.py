"""Builder of a Sim of the core from a grid, its devices and keywords in the contract's words."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from powerzoo_compat.powerzoo_api.envs.resources import ResourceEnv
from powerzoo_compat.powerzoo_api.grids.cases import core_name
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.types import TaskSpec
from powerzoo_jax.cases import Case
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.observe import FieldTable
from powerzoo_jax.families.feeder.fields import agent_table, fleet_table, grid_blocks
from powerzoo_jax.families.feeder.tasks.build import FeederTaskConfig, build_sim, feeder_case, step_minutes
from powerzoo_jax.families.feeder.tasks.generic import build_unbalanced
from powerzoo_jax.families.feeder.tasks.roster import (
    RosterSettings,
    applicable,
    extra_series,
    make_fleet,
    read_rows,
    unit_names,
)
from powerzoo_jax.families.feeder.tasks.settings import hashable, merge_settings
from powerzoo_jax.families.feeder.tasks.storage import OFFPEAK, PEAK
from powerzoo_jax.families.transmission.tasks.operator import make_transgrid
from powerzoo_jax.tasks import get_spec
from powerzoo_jax.tasks.spec import Variants

DEFAULT_LOAD_RATIO = 0.9
BANDS = {"easy": (0.88, 1.12), "medium": (0.90, 1.10), "hard": (0.93, 1.07)}  # [pu] of a difficulty
FORECAST_STEPS = 4
LOCAL_MODES = ("local", "local_plus_forecast", "local_plus_voltage", "global")
MIXED_MODES = ("ders_local", "local", "local_plus_voltage", "global")
THREE_PHASE = "distribution_3phase"
ALIASES = {"max_episode_steps": "max_steps", "load_columns": "load_column"}


@dataclass(frozen=True)
class Roles:
    """Observation of a task whose devices are agents: mode (None: the kinds' default) and steps of forecasts."""

    mode: str | None = None
    forecast_steps: int = FORECAST_STEPS


def unit_order(devices: Sequence[ResourceEnv]) -> list[int]:
    """Positions of the devices in the order of the core's units, kind after kind."""
    kinds = [device.kind for device in devices]
    return sorted(range(len(devices)), key=lambda k: kinds.index(kinds[k]))


def core_ids(devices: Sequence[ResourceEnv]) -> list[str]:
    """Names of the devices in the core, in the order given."""
    rows: list[tuple[str, Any, dict[str, Any]]] = [(devices[k].kind, None, {}) for k in unit_order(devices)]
    named = [name for _, names in unit_names(rows) for name in names]
    found = dict(zip(unit_order(devices), named, strict=True))
    return [found[k] for k in range(len(devices))]


def feeder_sim(
    devices: Sequence[ResourceEnv],
    *,
    split: str,
    case: Any = "Case33bw",
    name: str = "distribution",
    roles: Roles | None = None,
    difficulty: str | None = None,
    loss_price: float | None = None,
    **keywords: Any,
) -> Sim:
    """A balanced feeder with devices, commanded by one agent or, with `roles`, by one agent a device.

    loss_price:  [$/MWh] of losses and of what devices sell (None: the price series)
    keywords:    those of `FeederSettings`, and max_episode_steps
    Raises TypeError for an unknown keyword, ValueError for values that make no feeder.
    """
    dtype = resolve_dtype(None)
    overrides = hashable(_common(devices, difficulty, keywords) | {"case": core_name(case)})
    spec = dataclasses.replace(_feeder_spec(), id=name)
    settings = merge_settings(RosterSettings, spec, {}, overrides)
    rows = read_rows(spec, settings)
    fleet = make_fleet(spec, settings, rows, step_minutes(spec, settings), dtype)
    extra = dataclasses.replace(extra_series(settings, fleet), price_fixed=loss_price)
    agents = spec.agents
    if roles is not None:
        agents = tuple(unit for _, units in unit_names(rows) for unit in units)
        extra = dataclasses.replace(extra, forecast_steps=roles.forecast_steps, peak=PEAK, offpeak=OFFPEAK)
        fields = _own_fields(roles, fleet.kinds)
    else:

        def fields(network: Case) -> FieldTable:
            return fleet_table(grid_blocks(network.bus.id.tolist(), network.n_branch), unit_names(rows), None)

    plan = FeederTaskConfig(
        spec=dataclasses.replace(_without_absent(spec, fleet.kinds), agents=agents),
        settings=settings,
        overrides=overrides,
        split=split,
        shift=Variants().shift(split),
        fleet=fleet,
        fields=fields,
        per_device=roles is not None,
        extra=extra,
    )
    return build_sim(plan, feeder_case(spec, settings), None, dtype)


def three_phase_sim(
    devices: Sequence[ResourceEnv],
    *,
    split: str,
    case: str | None = None,
    name: str = THREE_PHASE,
    difficulty: str | None = None,
    **keywords: Any,
) -> Sim:
    """A three-phase feeder with devices, commanded by one agent; keywords also `vuf_max`, errors as `feeder_sim`."""
    if difficulty is not None:
        keywords = dict(zip(("v_min", "v_max"), _band(difficulty), strict=True)) | keywords
    given = _common(devices, None, keywords) | {"price_forecast": False}
    rows = [
        (kind, bus, (*ratings, ("phases", device.phase.lower())))
        for (kind, bus, ratings), device in zip(given["devices"], devices, strict=True)
    ]
    spec = dataclasses.replace(get_spec(THREE_PHASE), id=name)
    return build_unbalanced(spec, split=split, **{**given, "devices": rows, "case": case})


def transgrid_sim(*, split: str, case: Any = "Case5", name: str = "transgrid", **keywords: Any) -> Sim:
    """A transmission grid under one operator; keywords are those of `TransGridSettings`, and `data_source`."""
    if "data_source" in keywords:
        keywords["load_set"] = keywords.pop("data_source")
    sim = make_transgrid(core_name(case), split=split, **keywords)
    return dataclasses.replace(sim, spec=dataclasses.replace(sim.spec, id=name))


def _feeder_spec() -> TaskSpec:
    """A feeder that earns money: the three-phase one's terms and channels, without what needs three phases."""
    spec = get_spec(THREE_PHASE)
    names = tuple(name for name in spec.cost_names if name != "vuf_violation")
    given = {**dict(spec.overrides), "devices": (), "price_forecast": False, "max_load_ratio": DEFAULT_LOAD_RATIO}
    given.pop("vuf_max")
    return dataclasses.replace(
        spec,
        cost_names=names,
        cost_budget=spec.cost_budget[: len(names)],
        overrides=tuple(sorted(given.items())),
    )


def _without_absent(spec: TaskSpec, kinds: tuple[str, ...]) -> TaskSpec:
    """Terms and channels whose devices the grid has."""
    terms, costs = applicable(spec.term_names, kinds), applicable(spec.cost_names, kinds)
    return dataclasses.replace(
        spec,
        cost_names=tuple(spec.cost_names[k] for k in costs),
        cost_budget=tuple(spec.cost_budget[k] for k in costs),
        term_names=tuple(spec.term_names[k] for k in terms),
        term_weights=tuple(spec.term_weights[k] for k in terms),
    )


def _common(devices: Sequence[ResourceEnv], difficulty: str | None, keywords: dict[str, Any]) -> dict[str, Any]:
    """Keywords of the core for devices, a difficulty and the contract's keywords."""
    given: dict[str, Any] = {ALIASES.get(key, key): value for key, value in keywords.items()}
    if difficulty is not None:
        given = dict(zip(("v_min", "v_max"), _band(difficulty), strict=True)) | given
    given["devices"] = [device.row() for device in devices]
    plants = [device.ratings["column"] for device in devices if device.kind == "renewable"]
    if plants:
        given["plant_columns"] = plants
    steering = {device.kind: {d.enable_q_control for d in devices if d.kind == device.kind} for device in devices}
    for kind, said in steering.items():
        if len(said) > 1:
            raise ValueError(f"enable_q_control differs among the {kind} units. Give the same for all of them.")
    given["q_control"] = [kind for kind, said in steering.items() if True in said]
    returns = {device.ratings["shift_horizon"] for device in devices if device.kind == "flexload"}
    if len(returns) > 1:
        raise ValueError(f"shift_horizon is {sorted(returns)} among the flexible loads. Give one value.")
    return given | ({"shift_horizon": returns.pop()} if returns else {})


def _band(difficulty: str) -> tuple[float, float]:
    if difficulty not in BANDS:
        raise ValueError(unknown("difficulty", difficulty, BANDS))
    return BANDS[difficulty]


def _own_fields(roles: Roles, kinds: tuple[str, ...]) -> Any:
    """Case -> what an agent sees of its device."""
    alike = set(kinds) in ({"storage"}, {"vehicle"})
    supported = LOCAL_MODES if alike else MIXED_MODES
    mode = supported[0] if roles.mode is None else roles.mode
    if not kinds or not set(kinds) <= {"storage", "vehicle", "renewable", "flexload"}:
        raise ValueError(f"devices {sorted(set(kinds))} as agents: batteries, vehicles, plants and flexible loads can.")
    return lambda case: agent_table(mode, np.unique(kinds).tolist(), supported, roles.forecast_steps)
