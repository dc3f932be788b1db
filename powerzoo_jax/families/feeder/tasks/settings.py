"""Keywords of feeder tasks: their meaning, the order in which they merge, and the checks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.ranges import Count, Label, NotNegative, Positive, Range, declared, fitted
from powerzoo_jax.base.types import TaskSpec
from powerzoo_jax.cases import Case, ThreePhaseCase
from powerzoo_jax.data import Series, list_datasets, load_dataset
from powerzoo_jax.data.augment import AS_RECORDED, BLOCKS, KINDS, NONE, Augmentation, Years
from powerzoo_jax.data.series import is_price
from powerzoo_jax.families.feeder.tasks.own_grid import on_own_grid
from powerzoo_jax.tasks.settings import STANDARD, EpisodeSettings, Voltage, resolve_source
from powerzoo_jax.tasks.spec import Tightness, Variants

FLATTENED = "flattened"  # the one observation mode of tasks with one agent
SOURCES = ("load_set", "price_set")


@dataclass(frozen=True, kw_only=True)
class FeederSettings(EpisodeSettings):
    """Keywords that every feeder task takes; the catalog and the caller override them.

    case:                   grid as `load_case` takes it: a name, a .m or .json file, a Case, a net of pandapower or
                            PyPSA (None: the spec's); on another grid than the spec's, devices, sizes, band and budgets
                            follow it, see `families.feeder.tasks.own_grid`
    reference:              of several reference buses of the case, the id of the one whose part becomes the feeder, by
                            `simplify_feeder`
    load_set, price_set:    name of a bundled set, path of a CSV file (`data.read_csv`), "neso:PATH" and its like
                            (`data.adapters`), or a `data.Series`
    load_column, price_column: signal of it
    data_source:            the caller's file or series in the place of load_set, with its default load unless
                            load_column is given as well, and of price_set where it has a price
    max_load_ratio, load_scale: load = max_load_ratio * load_scale * nominal * D(t) / D_ref
    min_load_ratio:         ratio that the smallest value of all data is mapped to (None: D_min / D_ref of the maximum)
    v_min, v_max:           [pu] band of the voltages
    v_slack:                [pu] voltage of the source (None: the case's)
    rate_mva:               rating of every branch (None: the case's own, 0 = unlimited)
    voll:                   [$/MWh] price of load that is not served
    reward_scale:           weight of the reward terms, in their proportions (None: the weights of the spec)
    price_forecast:         flattened observations show the price and its next 24 hours
    settlement_price:       observations end with the mean of the prices published so far, in the scale of the price
                            signal: on the last day the price at which stored energy settles
    forecast_noise_std:     standard deviation of the error of every forecast shown, in the unit of its field; drawn
                            once for each row and lead
    augment:                "none"; "blocks" of recorded days put together anew, or "synthetic" ones, as further prices
                            of split train, see `data.augment`; refused on every other split
    augment_years:          years of them; a start draws evenly among its recorded days of prices and one of each year
    augment_block_hours:    length of a block
    allow_static_load:      accepted and without effect, see `tasks.settings.WITHOUT_EFFECT`
    obs_mode:               "flattened" for one agent
    """

    case: str | Path | Case | ThreePhaseCase | None = None
    reference: Label | None = None
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

    def idle(self) -> dict[str, str]:
        found = {} if self.augment != NONE else {"augment_years": "augment"}
        return super().idle() | found | ({} if self.augment == BLOCKS else {"augment_block_hours": "augment='blocks'"})

    @property
    def augmentation(self) -> Augmentation:
        """Days added to those of training."""
        return Augmentation(self.augment, self.augment_years, self.augment_block_hours)


@dataclass(frozen=True, kw_only=True)
class AgentSettings(FeederSettings):
    """Further keywords of tasks with one agent per device.

    obs_mode:                observation mode, see `families.feeder.fields`
    forecast_horizon_steps:  steps shown by local_plus_forecast
    constraint_tightness:    loose, standard or strict: budgets and limits of the catalog
    """

    obs_mode: str = "local"
    forecast_horizon_steps: Count = 4
    constraint_tightness: str = "standard"

    def idle(self) -> dict[str, str]:
        return super().idle() | {"price_forecast": "a task with one agent, here obs_mode chooses what is shown"}


Kind = TypeVar("Kind", bound=FeederSettings)


def merge_settings(kind: type[Kind], spec: TaskSpec, limits: dict[str, Any], overrides: dict[str, Any]) -> Kind:
    """Keywords of a task from its defaults, the catalog, the limits of its tightness and the caller; later ones win.

    Raises TypeError for an unknown keyword, naming the nearest, ValueError for a number that no task can run with.
    """
    spec, overrides = own_series(spec, overrides)
    settings = kind.merged(spec.id, dict(spec.overrides), limits, overrides)
    # a file becomes the series itself, read once for all that it gives
    given = dict.fromkeys(getattr(settings, key) for key in SOURCES)
    series = {source: load_dataset(source) for source in given if source not in list_datasets()}
    read: dict[str, Any] = {key: series[getattr(settings, key)] for key in SOURCES if getattr(settings, key) in series}
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


def own_series(spec: TaskSpec, overrides: Mapping[str, Any]) -> tuple[TaskSpec, dict[str, Any]]:
    """Put `data_source` in the place of the sets of loads and prices that it has signals of, see `resolve_source`."""

    def sets(source: Any, beside: Mapping[str, Any]) -> dict[str, Any]:
        fitted(f"{spec.id}: data_source", source, declared(FeederSettings)["data_source"])
        return _sets_of(source, load_dataset(source), beside)

    return resolve_source(spec, overrides, sets)


def _sets_of(source: Any, data: Series, beside: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of a source: its signals that `beside` names, else its default or first load, and its first price."""
    names = [signal.name for signal in data.meta.signals]
    loads = [name for name in names if name.startswith("load.")]
    prices = [name for name in names if is_price(name)]
    if not loads and not is_price(data.meta.default):
        loads = [data.meta.default]
    found: dict[str, Any] = {}
    for kind, some in (("load", loads), ("price", prices)):
        if some:
            first = data.meta.default if data.meta.default in some else some[0]
            column = beside.get(f"{kind}_column")
            found |= {f"{kind}_set": source, f"{kind}_column": column if knows(data, column) else first}
    return found


def knows(data: Series, column: Any) -> bool:
    """Whether a series has a signal of this name."""
    try:
        data.resolve(column)
    except KeyError:
        return False
    return True


def chosen_tightness(spec: TaskSpec, variants: Variants, overrides: dict[str, Any]) -> Tightness:
    """Budgets and limits of the tightness that the caller or the catalog names; those of the spec without any.

    On another grid than the spec's there are no budgets unless the caller names a tightness.
    """
    name = (dict(spec.overrides) | overrides).get("constraint_tightness", STANDARD)
    if not variants.tightness:
        if name != STANDARD:
            raise ValueError(f"{spec.id}: constraint_tightness = {name!r}: the budgets of the spec are all there is.")
        return Tightness(spec.cost_budget)
    tight = variants.tight(name)
    if "constraint_tightness" not in overrides and on_own_grid(spec, overrides):
        return dataclasses.replace(tight, cost_budget=(math.inf,) * len(spec.cost_names))
    return dataclasses.replace(tight, cost_budget=spec.cost_budget) if name == STANDARD else tight
