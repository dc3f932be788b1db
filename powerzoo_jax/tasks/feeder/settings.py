"""Keywords of feeder tasks: their meaning, the order in which they merge, and the checks."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.ranges import Count, NotNegative, Positive, Range, declared, fitted
from powerzoo_jax.base.types import TaskSpec
from powerzoo_jax.data import Series, list_datasets, load_dataset
from powerzoo_jax.data.augment import AS_RECORDED, KINDS, NONE, Augmentation, Years
from powerzoo_jax.tasks.settings import EpisodeSettings, Voltage
from powerzoo_jax.tasks.spec import Tightness, Variants

FLATTENED = "flattened"  # the one observation mode of tasks with one agent
SOURCES = ("load_set", "price_set")


@dataclass(frozen=True, kw_only=True)
class FeederSettings(EpisodeSettings):
    """Keywords that every feeder task takes; the catalog and the caller override them.

    case:                   case name or path of a .m file (None: the spec's)
    load_set, price_set:    name of a bundled set, path of a CSV file (`data.read_csv`), "neso:PATH" and its like
                            (`data.adapters`), or a `data.Series`
    load_column, price_column: signal of it
    data_source:            the caller's load_set, with its default signal unless load_column is given as well
    max_load_ratio, load_scale: load = max_load_ratio * load_scale * nominal * D(t) / D_ref
    min_load_ratio:         ratio that the smallest value of all data is mapped to (None: D_min / D_ref of the maximum)
    v_min, v_max:           [pu] band;  v_slack: None takes the case's set-point
    rate_mva:               rating of every branch (None: the case's own, 0 = unlimited)
    voll:                   [$/MWh]
    reward_scale:           weight of every reward term (None: the spec's)
    price_forecast:         flattened observations show the price and its next 24 hours
    settlement_price:       observations end with the mean of the prices published so far, in the scale of the price
                            signal: on the last day the price at which stored energy settles
    forecast_noise_std:     standard deviation of the error of every forecast shown, in the unit of its field; drawn
                            once for each row and lead
    augment:                "none"; "blocks" of recorded days put together anew, or "synthetic" ones, as further prices
                            of split train, see `data.augment`; refused on every other split
    augment_years:          years of them; a start draws evenly among its recorded days of prices and one of each year
    augment_block_hours:    length of a block
    allow_static_load:      accepted and without effect: every task has a load series
    obs_mode:               "flattened" for one agent
    """

    case: str | None = None
    load_set: str | Path | Series = "simbench_2016"
    load_column: str = "mv_semiurb"
    price_set: str | Path | Series = "de_smard_2018"
    price_column: str = "price.day_ahead_per_mwh"
    data_source: str | Path | Series | None = None
    max_load_ratio: Positive = 0.85
    min_load_ratio: NotNegative | None = None
    load_scale: Positive = 1.0
    v_min: Voltage = 0.90
    v_max: Voltage = 1.10
    v_slack: Voltage | None = None
    rate_mva: NotNegative | None = None
    voll: Positive = 10_000.0
    reward_scale: Positive | None = None
    price_forecast: bool = True
    settlement_price: bool = False
    forecast_noise_std: NotNegative = 0.0
    augment: str = NONE
    augment_years: Years = AS_RECORDED.years
    augment_block_hours: Annotated[int, Range(1, 24)] = AS_RECORDED.block_hours
    allow_static_load: bool = False
    obs_mode: str = FLATTENED

    @property
    def augmentation(self) -> Augmentation:
        """Days added to those of training."""
        return Augmentation(self.augment, self.augment_years, self.augment_block_hours)


@dataclass(frozen=True, kw_only=True)
class AgentSettings(FeederSettings):
    """Further keywords of tasks with one agent per device.

    obs_mode:                observation mode, see `envs.feeder.fields`
    forecast_horizon_steps:  steps shown by local_plus_forecast
    constraint_tightness:    loose, standard or strict: budgets and limits of the catalog
    """

    obs_mode: str = "local"
    forecast_horizon_steps: Count = 4
    constraint_tightness: str = "standard"


Kind = TypeVar("Kind", bound=FeederSettings)


def merge_settings(kind: type[Kind], spec: TaskSpec, limits: dict[str, Any], overrides: dict[str, Any]) -> Kind:
    """Merge defaults, catalog, limits of the tightness and caller, later ones first in rank.

    Raises TypeError for an unknown keyword, naming the nearest, ValueError for a number that no task can run with.
    """
    named = _name_source(spec, overrides)
    settings = kind.merged(spec.id, dict(spec.overrides), limits, named)
    # a file becomes the series itself, so that it is read once
    given = {key: getattr(settings, key) for key in SOURCES}
    read: dict[str, Any] = {key: load_dataset(source) for key, source in given.items() if source not in list_datasets()}
    settings = dataclasses.replace(settings, **read)
    settings.check(spec.id, {"augment": KINDS})
    if not isinstance(settings, AgentSettings) and settings.obs_mode != FLATTENED:
        raise ValueError(f"{spec.id}: {unknown('observation mode', settings.obs_mode, (FLATTENED,))}")
    if not settings.v_min < settings.v_max:
        raise ValueError(f"{spec.id}: v_min = {settings.v_min}, v_max = {settings.v_max}: need v_min < v_max.")
    return settings


def hashable(overrides: dict[str, Any]) -> dict[str, Any]:
    """Keywords as the spec can hold them: it is static in every compiled program, so its values must be hashable."""

    def fixed(value: Any) -> Any:
        if isinstance(value, dict):
            return tuple(sorted(value.items()))
        return tuple(fixed(x) for x in value) if isinstance(value, list | tuple) else value

    return {key: fixed(value) for key, value in overrides.items()}


def _name_source(spec: TaskSpec, overrides: dict[str, Any]) -> dict[str, Any]:
    """Put `data_source` in the place of the load set, with its default signal."""
    source = overrides.get("data_source")
    if source is None:
        return overrides
    if "load_set" in overrides:
        raise ValueError(f"{spec.id}: data_source and load_set name the same thing. Give one of them.")
    fitted(f"{spec.id}: data_source", source, declared(FeederSettings)["data_source"])
    data = load_dataset(source)
    return {"load_column": data.meta.default} | overrides | {"load_set": data}


def chosen_tightness(spec: TaskSpec, variants: Variants, overrides: dict[str, Any]) -> Tightness:
    """Budgets and limits of the tightness that the caller or the catalog names; those of the spec without any."""
    if not variants.tightness:
        return Tightness(spec.cost_budget)
    name = (dict(spec.overrides) | overrides).get("constraint_tightness", "standard")
    return variants.tight(name)
