"""The bidding task: settings, splits and shifts, and the Sim they make."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base import Dims, TaskSpec, no_padding
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.ranges import Count, NotNegative, Positive, Range
from powerzoo_jax.cases import Case, load_case
from powerzoo_jax.cases.grid import to_grid
from powerzoo_jax.data import Series, list_splits, load_dataset
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.families.market.bidding import HISTORY, MarketBank, MarketEnv, MarketParams, market_fields
from powerzoo_jax.families.market.names import COSTS, TERMS
from powerzoo_jax.families.transmission.tasks.series import LoadSeries, load_series, load_shares
from powerzoo_jax.opf.dc.factors import prepare_dc_opf
from powerzoo_jax.opf.offers import make_cost_segments
from powerzoo_jax.tasks.settings import (
    MINUTES_PER_HOUR,
    STANDARD,
    TIGHTNESS,
    EpisodeSettings,
    agent_names,
    horizon_steps,
    recorded,
    refuse_names,
    refuse_padding,
    step_minutes,
)

DEMAND_MW, WIND_MW = 1300.0, 300.0  # of a demand and a wind at their references
MARGIN_MW = 1.0  # that the load keeps from what all units can and must produce
MARKUPS = (3.0, 2.0, 1.0)
UNSERVED_MWH = (1.0, 0.5, 0.1)
SHIFTS = {"demand_shift": {"load_scale": 1.10}, "renewable_shock": {"wind_scale": 0.3}}
ALIASES = {"iid": "test"}


@dataclass(frozen=True, kw_only=True)
class MarketSettings(EpisodeSettings):
    """Keywords of the bidding task; the catalog and the caller override them.

    case:                 grid as `load_case` takes it (None: the spec's)
    n_segments:           blocks that every unit offers
    ramp_rate_fraction:   largest change in a step over Pmax
    ramp_up_mw_per_step, ramp_down_mw_per_step: the same in MW, for all units (None: by the fraction)
    constraint_tightness: loose, standard or strict: budgets, and max_markup where that is None
    max_markup:           of an offer over the true cost
    price_cap:            [USD/MWh] of offers, and what unserved load is worth
    lmp_scale:            [USD/MWh] that observed prices are relative to
    lmp_history_len:      past prices that are observed
    reward_type:          "individual", there is no other
    load_scale, wind_scale: factors on demand and on wind
    load = load_scale * 1300 MW * D / D_ref - wind_scale * 300 MW * W / W_ref, kept 1 MW inside what units can do
    load_set:             series with demand and wind in MW
    delta_t_hours:        length of a step, as delta_t_minutes; one of the two, or both alike
    """

    case: str | Path | Case | None = None
    n_segments: Count = 3
    ramp_rate_fraction: Positive = 0.5
    ramp_up_mw_per_step: NotNegative | None = None
    ramp_down_mw_per_step: NotNegative | None = None
    constraint_tightness: str = "standard"
    max_markup: NotNegative | None = None
    price_cap: Positive = 1000.0
    lmp_scale: Positive = 100.0
    lmp_history_len: Count = HISTORY
    reward_type: str = "individual"
    load_scale: Positive = 1.0
    wind_scale: NotNegative = 1.0
    load_set: str | Path | Series = "fr_2017_2019"
    delta_t_hours: Annotated[float, Range(0, 24, open_low=True)] | None = None

    def idle(self) -> dict[str, str]:
        both = self.ramp_up_mw_per_step is not None and self.ramp_down_mw_per_step is not None
        return super().idle() | ({"ramp_rate_fraction": "a ramp that is not given in MW"} if both else {})


def build_market(spec: TaskSpec, *, split: str, dims: Dims | None = None, dtype: Any = None, **overrides: Any) -> Sim:
    """Build a market of bidding generators.

    Raises ValueError for an unknown split, and for `dims` other than the task's own.
    """
    dtype = resolve_dtype(dtype)
    settings = resolve_settings(spec, overrides)
    refuse_names(spec, "term_names", TERMS)
    refuse_names(spec, "cost_names", COSTS)
    split = ALIASES.get(split, split)
    data = load_dataset(settings.load_set)
    known = (*list_splits(data), *SHIFTS, *ALIASES)
    if split not in known:
        raise ValueError(unknown("split", split, known))
    scales = {name: getattr(settings, name) * factor for name, factor in SHIFTS.get(split, {}).items()}
    settings = dataclasses.replace(settings, **scales)  # type: ignore[arg-type]
    minutes, horizon = step_minutes(spec, settings), horizon_steps(spec, settings)
    case = load_case(spec.case if settings.case is None else settings.case)
    fields = market_fields(settings.lmp_history_len)
    own = Dims(
        bus=case.n_bus,
        branch=case.n_branch,
        unit=case.n_unit,
        agent=case.n_unit,
        obs=fields.size,
        act=settings.n_segments,
        choice=0,
        cost=len(spec.cost_names),
        term=len(spec.term_names),
    )
    refuse_padding(spec.id, dims, own)
    series = load_series(
        data,
        "test" if split in SHIFTS else split,
        minutes,
        horizon,
        0,
        wind_share=settings.wind_scale * WIND_MW / (settings.load_scale * DEMAND_MW),
        dates=settings.dates,
        bounded=False,
    )
    env = MarketEnv(own, minutes / MINUTES_PER_HOUR, spec.term_weights, fields, solver=settings.solver)
    tight = settings.constraint_tightness
    place = TIGHTNESS.index(tight)
    spec = dataclasses.replace(
        spec,
        case=case.name,
        split=split if series.split != "custom" else series.split,
        horizon=horizon,
        dt_hours=env.dt_hours,
        agents=agent_names(spec, tuple(f"genco_{i}" for i in range(case.n_unit))),
        cost_budget=spec.cost_budget if tight == STANDARD else (0.0, UNSERVED_MWH[place]),
        overrides=recorded(spec, overrides),
    )
    markup = MARKUPS[place] if settings.max_markup is None else settings.max_markup
    return Sim(params=_params(case, settings, series, env, horizon, markup, dtype), env=env, spec=spec)


def resolve_settings(spec: TaskSpec, overrides: dict[str, Any]) -> MarketSettings:
    """Merge defaults, catalog and caller; TypeError for an unknown keyword, naming the nearest."""
    settings = MarketSettings.merged(spec.id, dict(spec.overrides), overrides)
    if settings.delta_t_hours is not None:
        minutes = round(settings.delta_t_hours * MINUTES_PER_HOUR)
        if settings.delta_t_minutes not in (None, minutes):
            raise ValueError(
                f"{spec.id}: delta_t_hours = {settings.delta_t_hours} and delta_t_minutes = {settings.delta_t_minutes} "
                "differ. Give one of them."
            )
        settings = dataclasses.replace(settings, delta_t_minutes=minutes)
    settings.check(spec.id, {"constraint_tightness": TIGHTNESS, "reward_type": ("individual",)})
    return settings


def _bank(series: LoadSeries, scale_mw: float, case: Case, minutes: int, dtype: np.dtype) -> np.ndarray:
    """Columns of `MarketBank`: total load within what the units can do, clock, running sum, whether it was clipped."""
    per_day = 24 * MINUTES_PER_HOUR // minutes
    wanted = series.rows[:, 0] * scale_mw
    load = np.clip(wanted, case.unit.p_min_mw.sum() + MARGIN_MW, case.unit.p_max_mw.sum() - MARGIN_MW)
    ahead = np.concatenate([[0.0], np.cumsum(load[:-1])])
    high = ahead.astype(dtype).astype(np.float64)
    angle = 2 * np.pi * (np.arange(len(load)) % per_day) / per_day
    return np.column_stack([load, np.sin(angle), np.cos(angle), high, ahead - high, wanted != load])


def _ramp(limit: float | None, settings: MarketSettings, case: Case) -> np.ndarray:
    if limit is None:
        return settings.ramp_rate_fraction * case.unit.p_max_mw
    return np.full(case.n_unit, limit)


def _params(
    case: Case,
    settings: MarketSettings,
    series: LoadSeries,
    env: MarketEnv,
    horizon: int,
    markup: float,
    dtype: np.dtype,
) -> MarketParams:
    dims, minutes = env.dims, round(env.dt_hours * MINUTES_PER_HOUR)

    def door(values: Any) -> Any:
        return jnp.asarray(values, dtype)

    return MarketParams(
        grid=to_grid(case, dtype, v_min=0.95, v_max=1.05),
        factors=prepare_dc_opf(case, dtype=dtype),
        masks=no_padding(dims),
        horizon=jnp.asarray(horizon, jnp.int32),
        bank=MarketBank(load_rows=door(_bank(series, settings.load_scale * DEMAND_MW, case, minutes, dtype))),
        load_share=door(load_shares(case, case.p_load_mw)),
        offers=make_cost_segments(case, settings.n_segments, dtype),
        ramp_up_mw=door(_ramp(settings.ramp_up_mw_per_step, settings, case)),
        ramp_down_mw=door(_ramp(settings.ramp_down_mw_per_step, settings, case)),
        max_markup=door(markup),
        price_cap=door(settings.price_cap),
        price_scale=door(settings.lmp_scale),
        starts=series.starts(),
    )
