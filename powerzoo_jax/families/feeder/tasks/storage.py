"""Builders of feeder tasks with batteries: one agent for all of them, or one agent per battery."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp

from powerzoo_jax.base import Dims, TaskSpec
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.ranges import Count, Label, NotNegative, Positive, Share
from powerzoo_jax.cases import Case
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.observe import FieldTable
from powerzoo_jax.families.feeder.fields import agent_table, flattened_table
from powerzoo_jax.families.feeder.tasks.build import FeederFleet, FeederTaskConfig, build_sim, feeder_case, with_shaping
from powerzoo_jax.families.feeder.tasks.catalog import BATTERY_MODES, variants_of
from powerzoo_jax.families.feeder.tasks.own_grid import fit_to_grid
from powerzoo_jax.families.feeder.tasks.series import Extra
from powerzoo_jax.families.feeder.tasks.settings import (
    AgentSettings,
    FeederSettings,
    chosen_tightness,
    hashable,
    merge_settings,
    own_series,
)
from powerzoo_jax.tasks.settings import MINUTES_PER_HOUR as MINUTES_PER_HOUR
from powerzoo_jax.tasks.settings import BatteryKeywords, agent_names, storage_stack
from powerzoo_jax.tasks.spec import Shift, Tightness

FORECAST_HOURS = 24


@dataclass(frozen=True, kw_only=True)
class StorageKeywords(BatteryKeywords):
    """Keywords of every feeder with batteries.

    battery_bus_ids:      external bus ids, one battery each
    degradation_per_mwh:  [$/MWh] wear; a value for all, or a list of one each
    """

    battery_bus_ids: tuple[Label, ...] = (6,)
    degradation_per_mwh: NotNegative | tuple[NotNegative, ...] = 5.0


@dataclass(frozen=True, kw_only=True)
class FeederStorageSettings(StorageKeywords, FeederSettings):
    """Keywords of the feeder-with-storage tasks; the catalog and the caller override them.

    arbitrage_weight:     scales every term of the spec
    soc_penalty_weight:   [$] per unit of |soc - target_soc| and step, as a reward term soc_shaping; 0 = none
    target_soc:           [-] state of charge that it aims at
    constraint_tightness: loose, standard or strict budgets
    """

    arbitrage_weight: Positive = 1.0
    soc_penalty_weight: NotNegative = 0.0
    target_soc: Share = 0.5
    constraint_tightness: str = "standard"

    def idle(self) -> dict[str, str]:
        return super().idle() | ({} if self.soc_penalty_weight else {"target_soc": "soc_penalty_weight"})


def resolve_settings(spec: TaskSpec, overrides: dict[str, Any]) -> FeederStorageSettings:
    """Merge defaults, catalog and caller; TypeError for an unknown keyword, naming the nearest."""
    settings = merge_settings(FeederStorageSettings, spec, {}, _listed(overrides))
    if not settings.battery_bus_ids:
        raise ValueError(f"{spec.id}: battery_bus_ids is empty. Name at least one bus.")
    if settings.arbitrage_weight != 1 and settings.reward_scale is not None:
        raise ValueError(f"{spec.id}: arbitrage_weight and reward_scale both scale the reward. Give one of them.")
    return settings


def _listed(overrides: dict[str, Any]) -> dict[str, Any]:
    if isinstance(overrides.get("battery_bus_ids"), int):
        return overrides | {"battery_bus_ids": (overrides["battery_bus_ids"],)}
    return overrides


def build_feeder_storage(
    spec: TaskSpec, *, split: str, dims: Dims | None = None, dtype: Any = None, **overrides: Any
) -> Sim:
    """Build a feeder with batteries at chosen buses, prices and loads from the data bank."""
    dtype = resolve_dtype(dtype)
    spec, overrides = own_series(spec, fit_to_grid(spec, hashable(overrides)))
    settings = resolve_settings(spec, overrides)
    tight = chosen_tightness(spec, variants_of(spec), overrides)
    count = len(settings.battery_bus_ids)
    fleet = FeederFleet(
        kinds=("storage",) * count,
        bus_ids=settings.battery_bus_ids,
        stacks={"storage": storage_stack(settings, count, settings.degradation_per_mwh, dtype)},
        leaves={"target_soc": jnp.asarray(settings.target_soc, dtype)} if settings.soc_penalty_weight else {},
    )
    weights = tuple(settings.arbitrage_weight * weight for weight in spec.term_weights)
    agents = agent_names(spec, ("battery_0",))
    spec = dataclasses.replace(spec, agents=agents, cost_budget=tight.cost_budget, term_weights=weights)
    case = feeder_case(spec, settings)

    def fields(case: Case) -> FieldTable:
        shown = FORECAST_HOURS if settings.price_forecast else None
        ids = [f"battery_{k}" for k in range(count)]
        return flattened_table(case.bus.id.tolist(), case.n_branch, "storage", ids, shown)

    plan = FeederTaskConfig(
        spec=with_shaping(spec, "soc_shaping", settings.soc_penalty_weight / settings.arbitrage_weight),
        settings=settings,
        overrides=overrides,
        split=split,
        shift=Shift(base=split),
        fleet=fleet,
        fields=fields,
    )
    return build_sim(plan, case, dims, dtype)


PEAK, OFFPEAK = tuple(range(9, 21)), (23, *range(7))  # clock hours
POOLING = {"shared": "mean", "individual": "individual"}


@dataclass(frozen=True, kw_only=True)
class DerSettings(StorageKeywords, AgentSettings):
    """Keywords of the tasks with one agent per battery.

    num_batteries:  how many of battery_bus_ids are used (None: all)
    reward_type:    "shared" pays every agent the mean, "individual" its own profit
    """

    num_batteries: Count | None = None
    reward_type: str = "shared"


def pooling_of(spec: TaskSpec, reward_type: str) -> str:
    """Pooling of the money of units into that of agents; ValueError for an unknown reward_type."""
    if reward_type not in POOLING:
        raise ValueError(f"{spec.id}: {unknown('reward_type', reward_type, POOLING)}")
    return POOLING[reward_type]


def chosen_buses(spec: TaskSpec, name: str, listed: tuple[int, ...], count: int | None) -> tuple[int, ...]:
    """The first `count` of the buses listed; ValueError where the list is too short."""
    wanted = len(listed) if count is None else count
    if not 1 <= wanted <= len(listed):
        raise ValueError(f"{spec.id}: {wanted} devices at {len(listed)} buses. Give as many in {name}.")
    return listed[:wanted]


class StorageTaskConfig(NamedTuple):
    """Resolved keywords of a builder."""

    spec: TaskSpec
    settings: Any
    overrides: dict[str, Any]
    split: str
    shift: Shift
    tight: Tightness


def plan_of_units(
    given: StorageTaskConfig,
    fleet: FeederFleet,
    prefix: str,
    modes: tuple[str, ...],
    hours: tuple[tuple[int, ...], tuple[int, ...]],
) -> FeederTaskConfig:
    """Blueprint of a task with an agent for every unit of one kind, called prefix_0, prefix_1, ...

    hours:  clock hours of peak, and off peak
    """
    settings = given.settings
    horizon = settings.forecast_horizon_steps

    def fields(case: Case) -> FieldTable:
        return agent_table(settings.obs_mode, fleet.kinds, modes, horizon)

    agents = agent_names(given.spec, tuple(f"{prefix}_{k}" for k in range(len(fleet.bus_ids))))
    return FeederTaskConfig(
        spec=dataclasses.replace(given.spec, agents=agents, cost_budget=given.tight.cost_budget),
        settings=settings,
        overrides=given.overrides,
        split=given.split,
        shift=given.shift,
        fleet=fleet,
        fields=fields,
        per_device=True,
        pooling=pooling_of(given.spec, settings.reward_type),
        extra=Extra(forecast_steps=horizon, peak=hours[0], offpeak=hours[1]),
    )


def build_der(spec: TaskSpec, *, split: str, dims: Dims | None = None, dtype: Any = None, **overrides: Any) -> Sim:
    """Build a feeder with a battery and an agent at each of some buses."""
    dtype = resolve_dtype(dtype)
    spec, overrides = own_series(spec, fit_to_grid(spec, hashable(overrides)))
    variants = variants_of(spec)
    shift = variants.shift(split)
    tight = chosen_tightness(spec, variants, overrides)
    settings = merge_settings(DerSettings, spec, dict(tight.limits) | dict(shift.changes), overrides)
    buses = chosen_buses(spec, "battery_bus_ids", settings.battery_bus_ids, settings.num_batteries)
    fleet = FeederFleet(
        kinds=("storage",) * len(buses),
        bus_ids=buses,
        stacks={"storage": storage_stack(settings, len(buses), settings.degradation_per_mwh, dtype)},
    )
    plan = plan_of_units(
        StorageTaskConfig(spec, settings, overrides, split, shift, tight), fleet, "bat", BATTERY_MODES, (PEAK, OFFPEAK)
    )
    return build_sim(plan, feeder_case(spec, settings), dims, dtype)
