"""Builder of the task of a data centre on a feeder: jobs and cooling against the price of energy, one agent."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from powerzoo_jax.base import Dims, TaskSpec
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.ranges import Label, NotNegative
from powerzoo_jax.cases import Case
from powerzoo_jax.data.manifest import TMY_SITES
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.observe import FieldTable
from powerzoo_jax.families.feeder.fields import flattened_table
from powerzoo_jax.families.feeder.tasks.build import FeederFleet, FeederTaskConfig, build_sim, feeder_case, step_minutes
from powerzoo_jax.families.feeder.tasks.catalog import variants_of
from powerzoo_jax.families.feeder.tasks.own_grid import fit_to_grid
from powerzoo_jax.families.feeder.tasks.series import Extra
from powerzoo_jax.families.feeder.tasks.settings import (
    FeederSettings,
    chosen_tightness,
    hashable,
    merge_settings,
    own_series,
)
from powerzoo_jax.families.feeder.tasks.storage import FORECAST_HOURS
from powerzoo_jax.tasks.settings import Celsius, agent_names, scaled_weights
from powerzoo_jax.tasks.site import SiteKeywords, Surroundings, site_sizes, site_stack

HOTTEST_C = 35.0  # critical temperature of a task that no tightness gives one


@dataclass(frozen=True, kw_only=True)
class DataCenterSettings(SiteKeywords, FeederSettings):
    """Keywords of the data centre's task beside those of every feeder and of every data centre.

    bus_id:                 bus of the data centre
    workload_preset:        preset of the synthetic use
    weather_site:           site of the typical year
    warmer_c:               [degC] on top of the weather
    power_weight:           weight of the energy bill
    sla_price:              [$] of a job that misses its deadline; `sla_weight` is an alias
    target_pue:             [-] power usage effectiveness below which there is a bonus
    pue_bonus_weight:       [$] per unit of [target_pue - PUE]+ and step
    constraint_tightness:   loose, standard or strict: budgets and t_critical_c
    """

    bus_id: Label = 6
    workload_preset: str = "hyperscale"
    weather_site: str = TMY_SITES[0]
    warmer_c: Celsius = 0.0
    power_weight: NotNegative = 1.0
    sla_price: NotNegative = 500.0
    pue_bonus_weight: NotNegative = 0.0
    target_pue: NotNegative = 1.3
    constraint_tightness: str = "standard"


def build_datacenter(
    spec: TaskSpec, *, split: str, dims: Dims | None = None, dtype: Any = None, **overrides: Any
) -> Sim:
    """Build a feeder whose one agent runs a data centre at one of its buses."""
    dtype = resolve_dtype(dtype)
    spec, overrides = own_series(spec, fit_to_grid(spec, hashable(_one_name(spec, overrides))))
    variants = variants_of(spec)
    shift = variants.shift(split)
    tight = chosen_tightness(spec, variants, overrides)
    limits = dict(tight.limits)
    hot = float(limits.pop("t_critical_c", HOTTEST_C))
    settings = merge_settings(DataCenterSettings, spec, limits | dict(shift.changes), overrides)
    if settings.weather_site not in TMY_SITES:
        raise ValueError(unknown("weather site", settings.weather_site, TMY_SITES))
    fleet = FeederFleet(
        kinds=("datacenter",),
        bus_ids=(settings.bus_id,),
        stacks={"datacenter": site_stack(settings, hot, dtype)},
        sizes=site_sizes(settings, step_minutes(spec, settings)),
        leaves={
            "miss_usd": jnp.asarray(settings.sla_price, dtype),
            "target_pue": jnp.asarray(settings.target_pue, dtype),
        },
    )

    def fields(case: Case) -> FieldTable:
        shown = FORECAST_HOURS if settings.price_forecast else None
        return flattened_table(case.bus.id.tolist(), case.n_branch, "datacenter", ["datacenter_0"], shown)

    plan = FeederTaskConfig(
        spec=dataclasses.replace(
            spec,
            agents=agent_names(spec, ("datacenter_0",)),
            cost_budget=tight.cost_budget,
            term_weights=_weights(spec, settings),
        ),
        settings=dataclasses.replace(settings, reward_scale=None),  # the weights hold it already
        overrides=overrides,
        split=split,
        shift=shift,
        fleet=fleet,
        fields=fields,
        extra=Extra(site=Surroundings(settings.workload_preset, settings.weather_site, settings.warmer_c)),
    )
    return build_sim(plan, feeder_case(spec, settings), dims, dtype)


def _one_name(spec: TaskSpec, overrides: dict[str, Any]) -> dict[str, Any]:
    """`sla_weight` under the name of what it is."""
    if "sla_weight" not in overrides:
        return overrides
    if "sla_price" in overrides:
        raise ValueError(f"{spec.id}: sla_weight and sla_price name the same thing. Give one of them.")
    rest = {key: value for key, value in overrides.items() if key != "sla_weight"}
    return rest | {"sla_price": overrides["sla_weight"]}


def _weights(spec: TaskSpec, settings: DataCenterSettings) -> tuple[float, ...]:
    """Weights of the terms: the spec's or one scale, times power_weight for energy; the bonus is added in it."""
    weights = scaled_weights(spec.term_weights, settings.reward_scale)
    bonus = settings.pue_bonus_weight * next((weight for weight in weights if weight), 1.0)
    own = {"site_energy": (settings.power_weight, 0.0), "pue_bonus": (1.0, bonus)}
    pairs = (own.get(name, (1.0, 0.0)) for name in spec.term_names)
    return tuple(weight * factor + more for weight, (factor, more) in zip(weights, pairs, strict=True))
