"""A battery in a wholesale market as a Sim: cleared on true costs, or on offers drawn anew every episode."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base import Dims, TaskSpec, no_padding
from powerzoo_jax.base.errors import listing, unknown
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.ranges import Count, Label, NotNegative, Positive, PositiveShare
from powerzoo_jax.cases import Case, load_case
from powerzoo_jax.cases.grid import to_grid
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.families.market.names import BATTERY_COSTS, BATTERY_TERMS
from powerzoo_jax.families.market.storage import FIELDS, FIELDS_WITH_OFFER, StorageMarketEnv, StorageMarketParams
from powerzoo_jax.families.transmission.operator_types import GridBank
from powerzoo_jax.families.transmission.tasks.operator import DIFFICULTIES, GridDaySettings, clock_bank
from powerzoo_jax.families.transmission.tasks.series import LoadSeries, load_shares
from powerzoo_jax.families.transmission.tasks.units import PEAK_MW, PEAK_SHAPE
from powerzoo_jax.opf.dc.factors import prepare_dc_opf
from powerzoo_jax.opf.offers import case_offers, make_cost_segments
from powerzoo_jax.tasks.settings import MINUTES_PER_HOUR, BatteryKeywords, storage_stack

KINDS = ("cost", "bid")
BID_ONLY = ("n_segments", "markup_std", "action_smooth_cost")


@dataclass(frozen=True, kw_only=True)
class StorageMarketSettings(BatteryKeywords, GridDaySettings):
    """Keywords of a battery in a market.

    case:                 grid as `load_case` takes it
    battery_bus_id:       bus of the battery
    degradation_cost_per_mwh: [$/MWh] its wear
    n_segments:           blocks that every unit offers ("bid")
    markup_std:           spread of the markups on them, the absolute value of a normal draw ("bid")
    action_smooth_cost:   [USD/MW] of a change of the battery's power ("bid")
    lmp_scale:            [USD/MWh] that observed prices are relative to
    voll:                 [USD/MWh] the price cap
    """

    case: str | Path | Case = "pz_case5"
    battery_bus_id: Label | None = 2
    battery_capacity_mwh: Positive = 200.0
    battery_power_mw: Positive = 50.0
    eta_roundtrip: PositiveShare = 0.9025
    degradation_cost_per_mwh: NotNegative = 0.0
    n_segments: Count = 5
    markup_std: NotNegative = 0.05
    action_smooth_cost: NotNegative = 0.0
    lmp_scale: Positive = 100.0
    voll: Positive = 1000.0


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
    series = settings.series(split)
    case = load_case(settings.case)
    if settings.battery_bus_id is None or int(settings.battery_bus_id) not in case.bus_index:
        raise ValueError(f"{case.name}: battery_bus_id = {settings.battery_bus_id}. Valid: {listing(case.bus.id)}.")
    fields = FIELDS_WITH_OFFER if kind == "bid" else FIELDS
    dims = Dims(
        bus=case.n_bus,
        branch=case.n_branch,
        unit=1,
        agent=1,
        obs=fields.size,
        act=1,
        choice=0,
        cost=len(BATTERY_COSTS),
        term=len(BATTERY_TERMS),
    )
    hours = settings.minutes / MINUTES_PER_HOUR
    env = StorageMarketEnv(dims, hours, (1.0,) * len(BATTERY_TERMS), fields, solver=settings.solver)
    spec = TaskSpec(
        id=f"{kind}_based_market",
        version=0,
        family="market",
        case=case.name,
        horizon=settings.horizon,
        dt_hours=env.dt_hours,
        split=series.split,
        agents=("battery_0",),
        cost_names=BATTERY_COSTS,
        cost_budget=(math.inf,) * len(BATTERY_COSTS),
        term_names=BATTERY_TERMS,
        term_weights=env.term_weights,
        overrides=tuple(sorted(({"load_set": settings.load_set} | keywords).items())),
    )
    return Sim(params=_params(case, kind, settings, series, env, dtype), env=env, spec=spec)


def _resolved(kind: str, keywords: dict[str, Any]) -> StorageMarketSettings:
    if kind not in KINDS:
        raise ValueError(unknown("kind of market", kind, KINDS))
    owner = f"{kind}_based_market"
    settings = StorageMarketSettings.merged(owner, keywords)
    for key in BID_ONLY:
        if kind == "cost" and key in keywords:
            raise TypeError(f"{owner}: {key} belongs to a market with offers. Choose kind 'bid'.")
    settings.check(owner, {"difficulty": (None, *DIFFICULTIES)})
    return settings


def _params(
    case: Case,
    kind: str,
    settings: StorageMarketSettings,
    series: LoadSeries,
    env: StorageMarketEnv,
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
        horizon=jnp.asarray(settings.horizon, jnp.int32),
        bank=GridBank(load_rows=door(clock_bank(series, settings.minutes, dtype))),
        storage=storage_stack(settings, 1, settings.degradation_cost_per_mwh, dtype),
        battery_bus=jnp.asarray(case.bus_index[int(settings.battery_bus_id or 0)], jnp.int32),
        load_share=door(load_shares(case, nominal)),
        offers=make_cost_segments(case, settings.n_segments, dtype) if bids else case_offers(case, dtype),
        markup_std=door(settings.markup_std if bids else 0.0),
        full_load_mw=door(settings.load_ratio * settings.load_scale * peak),
        smoothing_usd_per_mw=door(settings.action_smooth_cost),
        voll=door(settings.voll),
        price_scale=door(settings.lmp_scale),
        starts=series.starts(),
    )
