"""Builder of the feeder task with storage that one agent commands."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from powerzoo_jax.base import Dims, TaskSpec
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.cases import Case
from powerzoo_jax.devices import StorageParams, storage_params
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.feeder.fields import flattened_table
from powerzoo_jax.envs.observe import FieldTable
from powerzoo_jax.tasks.feeder.build import MINUTES_PER_HOUR as MINUTES_PER_HOUR
from powerzoo_jax.tasks.feeder.build import Blueprint, Fleet, build_sim, feeder_case, with_shaping
from powerzoo_jax.tasks.feeder.catalog import VARIANTS
from powerzoo_jax.tasks.feeder.settings import FeederSettings, chosen_tightness, hashable, merge_settings
from powerzoo_jax.tasks.variants import Shift, Variants

FORECAST_HOURS = 24


@dataclass(frozen=True, kw_only=True)
class StorageKeywords:
    """Keywords of every task with batteries, all alike.

    battery_bus_ids:        external bus ids, one battery each
    battery_capacity_mwh, battery_power_mw, eta_roundtrip, soc_min, soc_max, degradation_per_mwh
    initial_soc:            a value, or (low, high) to draw from
    """

    battery_bus_ids: tuple[int, ...] = (6,)
    battery_capacity_mwh: float = 0.5
    battery_power_mw: float = 0.2
    eta_roundtrip: float = 0.95
    soc_min: float = 0.1
    soc_max: float = 0.9
    initial_soc: float | tuple[float, float] = 0.5
    degradation_per_mwh: float = 5.0


@dataclass(frozen=True, kw_only=True)
class FeederStorageSettings(StorageKeywords, FeederSettings):
    """Keywords of the feeder-with-storage tasks; the catalog and the caller override them.

    arbitrage_weight:     scales every term of the spec
    soc_penalty_weight:   [$] per unit of |soc - target_soc| and step, as a reward term soc_shaping; 0 = none
    constraint_tightness: loose, standard or strict budgets
    """

    arbitrage_weight: float = 1.0
    soc_penalty_weight: float = 0.0
    target_soc: float = 0.5
    constraint_tightness: str = "standard"


def resolve_settings(spec: TaskSpec, overrides: dict[str, Any]) -> FeederStorageSettings:
    """Merge defaults, catalog and caller; TypeError for an unknown keyword, naming the nearest."""
    settings = merge_settings(FeederStorageSettings, spec, {}, _listed(overrides))
    if not settings.battery_bus_ids:
        raise ValueError(f"{spec.id}: battery_bus_ids is empty. Name at least one bus.")
    if not 0 < settings.arbitrage_weight < math.inf:
        raise ValueError(f"{spec.id}: arbitrage_weight = {settings.arbitrage_weight} must be positive and finite.")
    if settings.arbitrage_weight != 1 and settings.reward_scale is not None:
        raise ValueError(f"{spec.id}: arbitrage_weight and reward_scale both scale the reward. Give one of them.")
    return settings


def _listed(overrides: dict[str, Any]) -> dict[str, Any]:
    if isinstance(overrides.get("battery_bus_ids"), int):
        return overrides | {"battery_bus_ids": (overrides["battery_bus_ids"],)}
    return overrides


def storage_stack(settings: StorageKeywords, count: int, dtype: Any, s_mva: float | None = None) -> StorageParams:
    """Batteries as the keywords describe them."""
    return storage_params(
        count,
        dtype,
        capacity_mwh=settings.battery_capacity_mwh,
        power_mw=settings.battery_power_mw,
        s_mva=s_mva,
        eta_roundtrip=settings.eta_roundtrip,
        soc_min=settings.soc_min,
        soc_max=settings.soc_max,
        initial_soc=settings.initial_soc,
        degradation_per_mwh=settings.degradation_per_mwh,
    )


def build_feeder_storage(
    spec: TaskSpec, *, split: str, dims: Dims | None = None, dtype: Any = None, **overrides: Any
) -> Sim:
    """Build a feeder with batteries at chosen buses, prices and loads from the data bank."""
    dtype = resolve_dtype(dtype)
    overrides = hashable(overrides)
    settings = resolve_settings(spec, overrides)
    tight = chosen_tightness(spec, VARIANTS.get(spec.id, Variants()), overrides)
    count = len(settings.battery_bus_ids)
    fleet = Fleet(
        kinds=("storage",) * count,
        bus_ids=settings.battery_bus_ids,
        stacks={"storage": storage_stack(settings, count, dtype)},
        leaves={"target_soc": jnp.asarray(settings.target_soc, dtype)} if settings.soc_penalty_weight else {},
    )
    weights = tuple(settings.arbitrage_weight * weight for weight in spec.term_weights)
    spec = dataclasses.replace(spec, cost_budget=tight.cost_budget, term_weights=weights)
    case = feeder_case(spec, settings)

    def fields(case: Case) -> FieldTable:
        shown = FORECAST_HOURS if settings.price_forecast else None
        ids = [f"battery_{k}" for k in range(count)]
        return flattened_table(case.bus.id.tolist(), case.n_branch, "storage", ids, shown)

    plan = Blueprint(
        spec=with_shaping(spec, "soc_shaping", settings.soc_penalty_weight / settings.arbitrage_weight),
        settings=settings,
        overrides=overrides,
        split=split,
        shift=Shift(base=split),
        fleet=fleet,
        fields=fields,
    )
    return build_sim(plan, case, dims, dtype)
