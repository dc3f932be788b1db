"""Builder of the benchmark of distributed resources: batteries, plants and flexible loads, one agent each."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from powerzoo_jax.base import Dims, TaskSpec
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.ranges import Label, NotNegative, Positive
from powerzoo_jax.cases import Case
from powerzoo_jax.devices import renewable_params
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.observe import FieldTable
from powerzoo_jax.families.feeder.env import VOLTAGE
from powerzoo_jax.families.feeder.fields import agent_table
from powerzoo_jax.families.feeder.tasks.build import FeederFleet, FeederTaskConfig, build_sim, feeder_case, with_shaping
from powerzoo_jax.families.feeder.tasks.catalog import DERS_MODES, variants_of
from powerzoo_jax.families.feeder.tasks.dso import FlexKeywords, flexload_stack
from powerzoo_jax.families.feeder.tasks.own_grid import fit_to_grid
from powerzoo_jax.families.feeder.tasks.series import Extra
from powerzoo_jax.families.feeder.tasks.settings import (
    AgentSettings,
    chosen_tightness,
    hashable,
    merge_settings,
    own_series,
)
from powerzoo_jax.families.feeder.tasks.storage import OFFPEAK, PEAK, StorageKeywords
from powerzoo_jax.tasks.settings import agent_names, one_each, storage_stack


@dataclass(frozen=True, kw_only=True)
class DersSettings(StorageKeywords, FlexKeywords, AgentSettings):
    """Keywords of the benchmark of distributed resources.

    battery_s_mva:                 inverter rating of a battery
    pv_bus_ids, pv_capacity_mw, pv_s_mva: buses and ratings of the plants
    pv_columns:          signals, cycled over the plants
    flexload_bus_ids, curtail_cap_mw, shift_cap_mw: flexible loads
    substation_mva:                rating of the branch at the slack bus
    Ratings and capacities are a value for all devices of a kind, or a list of one each.
    voltage_penalty:               [$] per pu of voltage violation, as a reward term voltage_shaping; 0 = none
    """

    battery_s_mva: Positive | tuple[Positive, ...] = 0.15
    pv_bus_ids: tuple[Label, ...] = ()
    pv_capacity_mw: Positive | tuple[Positive, ...] = 0.20
    pv_s_mva: Positive | tuple[Positive, ...] = 0.22
    pv_columns: tuple[str, ...] = ("solar.pv1_pu",)
    flexload_bus_ids: tuple[Label, ...] = ()
    curtail_cap_mw: Positive | tuple[Positive, ...] = 0.10
    shift_cap_mw: Positive | tuple[Positive, ...] = 0.10
    substation_mva: Positive = 15.0
    voltage_penalty: NotNegative = 0.0


def build_ders(spec: TaskSpec, *, split: str, dims: Dims | None = None, dtype: Any = None, **overrides: Any) -> Sim:
    """Build a feeder with batteries, plants and flexible loads, each with an agent of its own."""
    dtype = resolve_dtype(dtype)
    spec, overrides = own_series(spec, fit_to_grid(spec, hashable(overrides)))
    variants = variants_of(spec)
    shift = variants.shift(split)
    tight = chosen_tightness(spec, variants, overrides)
    settings = merge_settings(DersSettings, spec, dict(tight.limits) | dict(shift.changes), overrides)
    _check(spec, settings)
    fleet = _fleet(spec, settings, shift.plant, dtype)

    def fields(case: Case) -> FieldTable:
        return agent_table(settings.obs_mode, fleet.kinds, DERS_MODES, settings.forecast_horizon_steps)

    names = (("bat", settings.battery_bus_ids), ("pv", settings.pv_bus_ids), ("fl", settings.flexload_bus_ids))
    plan = FeederTaskConfig(
        spec=dataclasses.replace(
            with_shaping(spec, VOLTAGE, settings.voltage_penalty),
            agents=agent_names(spec, tuple(f"{kind}_{k}" for kind, buses in names for k in range(len(buses)))),
            cost_budget=tight.cost_budget,
        ),
        settings=settings,
        overrides=overrides,
        split=split,
        shift=shift,
        fleet=fleet,
        fields=fields,
        per_device=True,
        extra=Extra(
            forecast_steps=settings.forecast_horizon_steps,
            peak=PEAK,
            offpeak=OFFPEAK,
            plants=tuple(np.resize(settings.pv_columns, len(settings.pv_bus_ids)).tolist()),
        ),
        substation_mva=settings.substation_mva,
    )
    return build_sim(plan, feeder_case(spec, settings), dims, dtype)


def _check(spec: TaskSpec, settings: DersSettings) -> None:
    """Refuse a fleet that lacks a kind: agents, terms and observations are those of all three."""
    for name in ("battery_bus_ids", "pv_bus_ids", "flexload_bus_ids", "pv_columns"):
        if not getattr(settings, name):
            raise ValueError(f"{spec.id}: {name} is empty. Name at least one.")
    if settings.rate_mva is not None:
        raise ValueError(f"{spec.id}: rate_mva and substation_mva exclude each other. Give substation_mva alone.")


def _fleet(spec: TaskSpec, settings: DersSettings, plant: float, dtype: Any) -> FeederFleet:
    batteries, plants, loads = settings.battery_bus_ids, settings.pv_bus_ids, settings.flexload_bus_ids
    count = len(loads)
    one_each(settings, ("battery_s_mva",), len(batteries), "batteries")
    one_each(settings, ("pv_capacity_mw", "pv_s_mva"), len(plants), "plants")
    one_each(settings, ("curtail_cap_mw", "shift_cap_mw"), count, "flexible loads")
    curtail, shift = (
        tuple(np.broadcast_to(x, count).tolist()) for x in (settings.curtail_cap_mw, settings.shift_cap_mw)
    )
    flexible = flexload_stack(settings, curtail, shift, dtype)
    return FeederFleet(
        kinds=("storage",) * len(batteries) + ("renewable",) * len(plants) + ("flexload",) * count,
        bus_ids=(*batteries, *plants, *loads),
        stacks={
            "storage": storage_stack(
                settings, len(batteries), settings.degradation_per_mwh, dtype, settings.battery_s_mva
            ),
            "renewable": renewable_params(
                len(plants),
                dtype,
                capacity_mw=np.multiply(settings.pv_capacity_mw, plant),
                s_mva=np.multiply(settings.pv_s_mva, plant),
            ),
            "flexload": flexible,
        },
        q_control=("storage", "renewable"),
        return_steps=settings.shift_horizon,
    )
