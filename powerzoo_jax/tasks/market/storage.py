"""A battery in a wholesale market as a Sim: cleared on true costs, or on offers drawn anew every episode."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base import Dims, TaskSpec, no_padding
from powerzoo_jax.base.errors import listing, unexpected, unknown
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.cases import Case, load_case
from powerzoo_jax.cases.grid import to_grid
from powerzoo_jax.data import Series, list_splits
from powerzoo_jax.devices import storage_params
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.market.storage import COSTS, TERMS, StorageMarketEnv, StorageMarketParams
from powerzoo_jax.envs.observe import FieldBlock, table
from powerzoo_jax.envs.transmission.operator_types import GridBank
from powerzoo_jax.opf.dc.factors import prepare_dc_opf
from powerzoo_jax.opf.offers import case_offers, make_cost_segments
from powerzoo_jax.tasks.transmission.operator import DIFFICULTIES, MINUTES_PER_DAY, MINUTES_PER_HOUR, clock_bank
from powerzoo_jax.tasks.transmission.series import LoadSeries, load_series
from powerzoo_jax.tasks.transmission.units import PEAK_MW, PEAK_SHAPE

KINDS = ("cost", "bid")
BID_ONLY = ("n_segments", "markup_std", "action_smooth_cost")


@dataclass(frozen=True)
class StorageMarketSettings:
    """Keywords of a battery in a market.

    case:                 case name or path
    battery_bus_id:       bus of the battery
    battery_capacity_mwh, battery_power_mw, eta_roundtrip, soc_min, soc_max, degradation_cost_per_mwh
    initial_soc:          a value, or (low, high) to draw from
    n_segments:           blocks that every unit offers ("bid")
    markup_std:           spread of the markups on them, the absolute value of a normal draw ("bid")
    action_smooth_cost:   [USD/MW] of a change of the battery's power ("bid")
    lmp_scale:            [USD/MWh] that observed prices are relative to
    voll:                 [USD/MWh] the price cap
    difficulty:           easy, medium or hard: max_load_ratio and delta_t_minutes where those are None
    load_scale, load_set, start_date, end_date, max_episode_steps: as in `TransGridSettings`
    """

    case: str = "pz_case5"
    battery_bus_id: int | None = 2
    battery_capacity_mwh: float = 200.0
    battery_power_mw: float = 50.0
    eta_roundtrip: float = 0.9025
    soc_min: float = 0.1
    soc_max: float = 0.9
    initial_soc: float | tuple[float, float] = 0.5
    degradation_cost_per_mwh: float = 0.0
    n_segments: int = 5
    markup_std: float = 0.05
    action_smooth_cost: float = 0.0
    lmp_scale: float = 100.0
    voll: float = 1000.0
    difficulty: str | None = None
    delta_t_minutes: int | None = None
    max_load_ratio: float | None = None
    load_scale: float = 1.0
    load_set: str | Series = "fr_2017_2019"
    start_date: str | None = None
    end_date: str | None = None
    max_episode_steps: int | None = None


def make_storage_market(kind: str = "cost", *, split: str = "train", dtype: Any = None, **keywords: Any) -> Sim:
    """Build a battery that trades at the price of its bus; keywords are the fields of `StorageMarketSettings`.

    kind:  "cost" clears the true costs of the units, "bid" blocks with a markup drawn once an episode

    Raises TypeError for an unknown keyword, ValueError for an unknown kind or split, or a bus the case does not have.

    Example:
        sim = make_storage_market("bid", markup_std=0.1, split="test")
        state, obs = sim.init(jax.random.key(0))
        state, obs, reward, cost, info = sim.step(state, jnp.ones((1, 1)))
    """
    dtype = resolve_dtype(dtype)
    settings = _resolved(kind, keywords)
    if split not in list_splits(settings.load_set):
        raise ValueError(unknown("split", split, list_splits(settings.load_set)))
    case = load_case(settings.case)
    if settings.battery_bus_id is None or int(settings.battery_bus_id) not in case.bus_index:
        raise ValueError(f"{case.name}: battery_bus_id = {settings.battery_bus_id}. Valid: {listing(case.bus.id)}.")
    ratio, minutes = DIFFICULTIES[settings.difficulty or "medium"]
    minutes = minutes if settings.delta_t_minutes is None else settings.delta_t_minutes
    horizon = MINUTES_PER_DAY // minutes if settings.max_episode_steps is None else settings.max_episode_steps
    dates = (settings.start_date, settings.end_date)
    series = load_series(settings.load_set, split, minutes, horizon, 0, dates=dates)
    fields = table(
        [
            FieldBlock("soc", ("soc",), 0, 1),
            FieldBlock("price", ("lmp_norm",), -5, 100),
            FieldBlock("clock", ("time_sin", "time_cos"), -1, 1),
            FieldBlock("demand", ("demand_norm",), 0, 5),
            FieldBlock("offer", ("mean_offer_norm",) if kind == "bid" else (), -5, 100),
        ]
    )
    dims = Dims(
        bus=case.n_bus,
        branch=case.n_branch,
        unit=1,
        agent=1,
        obs=fields.size,
        act=1,
        choice=0,
        cost=len(COSTS),
        term=len(TERMS),
    )
    env = StorageMarketEnv(dims, minutes / MINUTES_PER_HOUR, (1.0,) * len(TERMS), fields)
    spec = TaskSpec(
        id=f"{kind}_based_market",
        version=0,
        family="storage_market",
        case=case.name,
        horizon=horizon,
        dt_hours=env.dt_hours,
        split=series.split,
        agents=("battery_0",),
        cost_names=COSTS,
        cost_budget=(math.inf,) * len(COSTS),
        term_names=TERMS,
        term_weights=env.term_weights,
        overrides=tuple(sorted(({"load_set": settings.load_set} | keywords).items())),
    )
    load_ratio = ratio if settings.max_load_ratio is None else settings.max_load_ratio
    return Sim(params=_params(case, kind, settings, load_ratio, series, env, horizon, dtype), env=env, spec=spec)


def _resolved(kind: str, keywords: dict[str, Any]) -> StorageMarketSettings:
    known = {f.name for f in dataclasses.fields(StorageMarketSettings)}
    if kind not in KINDS:
        raise ValueError(unknown("kind of market", kind, KINDS))
    for key in keywords:
        if key not in known:
            raise TypeError(unexpected(f"{kind}_based_market", key, known))
        if kind == "cost" and key in BID_ONLY:
            raise TypeError(f"cost_based_market: {key} belongs to a market with offers. Choose kind 'bid'.")
    settings = StorageMarketSettings(**keywords)
    if settings.difficulty is not None and settings.difficulty not in DIFFICULTIES:
        raise ValueError(unknown("difficulty", settings.difficulty, DIFFICULTIES))
    for name in ("lmp_scale", "voll", "load_scale"):
        if not 0 < getattr(settings, name) < math.inf:
            raise ValueError(f"{kind}_based_market: {name} = {getattr(settings, name)} must be positive and finite.")
    for name in ("markup_std", "action_smooth_cost"):
        if not 0 <= getattr(settings, name) < math.inf:
            raise ValueError(f"{kind}_based_market: {name} = {getattr(settings, name)} must not be negative.")
    return settings


def _params(
    case: Case,
    kind: str,
    settings: StorageMarketSettings,
    load_ratio: float,
    series: LoadSeries,
    env: StorageMarketEnv,
    horizon: int,
    dtype: np.dtype,
) -> StorageMarketParams:
    nominal = np.asarray(PEAK_SHAPE.get(case.name, case.p_load_mw), np.float64)
    peak = PEAK_MW.get(case.name, case.p_load_mw.sum())
    bids = kind == "bid"

    def door(values: Any) -> Any:
        return jnp.asarray(values, dtype)

    return StorageMarketParams(
        grid=to_grid(case, dtype),
        factors=prepare_dc_opf(case, dtype=dtype),
        masks=no_padding(env.dims),
        horizon=jnp.asarray(horizon, jnp.int32),
        bank=GridBank(load_rows=door(clock_bank(series, round(env.dt_hours * MINUTES_PER_HOUR), dtype))),
        storage=storage_params(
            1,
            dtype,
            capacity_mwh=settings.battery_capacity_mwh,
            power_mw=settings.battery_power_mw,
            eta_roundtrip=settings.eta_roundtrip,
            soc_min=settings.soc_min,
            soc_max=settings.soc_max,
            initial_soc=settings.initial_soc,
            degradation_per_mwh=settings.degradation_cost_per_mwh,
        ),
        battery_bus=jnp.asarray(case.bus_index[int(settings.battery_bus_id or 0)], jnp.int32),
        load_share=door(nominal / nominal.sum()),
        offers=make_cost_segments(case, settings.n_segments, dtype) if bids else case_offers(case, dtype),
        markup_std=door(settings.markup_std if bids else 0.0),
        full_load_mw=door(load_ratio * settings.load_scale * peak),
        smoothing_usd_per_mw=door(settings.action_smooth_cost),
        voll=door(settings.voll),
        price_scale=door(settings.lmp_scale),
        starts=series.starts(),
    )
