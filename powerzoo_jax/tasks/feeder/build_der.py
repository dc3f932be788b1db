"""Builder of feeder tasks with one agent per battery."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

from powerzoo_jax.base import Dims, TaskSpec
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.cases import Case
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.feeder.fields import agent_table
from powerzoo_jax.envs.observe import FieldTable
from powerzoo_jax.tasks.feeder.build import Blueprint, Fleet, build_sim, feeder_case
from powerzoo_jax.tasks.feeder.catalog import VARIANTS
from powerzoo_jax.tasks.feeder.series import Extra
from powerzoo_jax.tasks.feeder.settings import AgentSettings, chosen_tightness, hashable, merge_settings
from powerzoo_jax.tasks.feeder.storage import StorageKeywords, storage_stack
from powerzoo_jax.tasks.variants import Shift, Tightness, Variants

MODES = ("local_plus_forecast", "local", "local_plus_voltage", "global")
PEAK, OFFPEAK = tuple(range(9, 21)), (23, *range(7))  # clock hours
POOLING = {"shared": "mean", "individual": "individual"}


@dataclass(frozen=True, kw_only=True)
class DerSettings(StorageKeywords, AgentSettings):
    """Keywords of the tasks with one agent per battery.

    num_batteries:  how many of battery_bus_ids are used (None: all)
    reward_type:    "shared" pays every agent the mean, "individual" its own profit
    """

    num_batteries: int | None = None
    reward_type: str = "shared"


def pooling_of(spec: TaskSpec, reward_type: str) -> str:
    """How the money of units becomes that of agents; ValueError for an unknown reward_type."""
    if reward_type not in POOLING:
        raise ValueError(f"{spec.id}: {unknown('reward_type', reward_type, POOLING)}")
    return POOLING[reward_type]


def chosen_buses(spec: TaskSpec, name: str, listed: tuple[int, ...], count: int | None) -> tuple[int, ...]:
    """The first `count` of the buses listed; ValueError where the list is too short."""
    wanted = len(listed) if count is None else count
    if not 1 <= wanted <= len(listed):
        raise ValueError(f"{spec.id}: {wanted} devices at {len(listed)} buses. Give as many in {name}.")
    return listed[:wanted]


class Given(NamedTuple):
    """What a builder was asked for, resolved."""

    spec: TaskSpec
    settings: Any
    overrides: dict[str, Any]
    split: str
    shift: Shift
    tight: Tightness


def plan_of_units(
    given: Given, fleet: Fleet, prefix: str, modes: tuple[str, ...], hours: tuple[tuple[int, ...], tuple[int, ...]]
) -> Blueprint:
    """Blueprint of a task with an agent for every unit of one kind, called prefix_0, prefix_1, ...

    hours:  clock hours of peak, and off peak
    """
    settings = given.settings
    horizon = settings.forecast_horizon_steps

    def fields(case: Case) -> FieldTable:
        return agent_table(settings.obs_mode, fleet.kinds, modes, horizon)

    agents = tuple(f"{prefix}_{k}" for k in range(len(fleet.bus_ids)))
    return Blueprint(
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
    overrides = hashable(overrides)
    variants = VARIANTS.get(spec.id, Variants())
    shift = variants.shift(split)
    tight = chosen_tightness(spec, variants, overrides)
    settings = merge_settings(DerSettings, spec, dict(tight.limits) | dict(shift.changes), overrides)
    buses = chosen_buses(spec, "battery_bus_ids", settings.battery_bus_ids, settings.num_batteries)
    fleet = Fleet(
        kinds=("storage",) * len(buses),
        bus_ids=buses,
        stacks={"storage": storage_stack(settings, len(buses), dtype)},
    )
    plan = plan_of_units(Given(spec, settings, overrides, split, shift, tight), fleet, "bat", MODES, (PEAK, OFFPEAK))
    return build_sim(plan, feeder_case(spec, settings), dims, dtype)
