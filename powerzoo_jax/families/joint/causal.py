"""Causal planner of a transmission grid with feeders: batteries by the marginal value of energy at forecast prices of
the boundary, units by the least-cost dispatch of the load that results.

Prices, voltages and losses follow from the load, so that the load seen so far and its forecast are all there is to
know. Dispatches stand in a table over the load as scheduled and what the feeders draw beyond it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.tree_util import Partial

from powerzoo_jax.base import struct
from powerzoo_jax.base.tree import take
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.feeder.causal.storage import AHEAD_DAYS, NEED_PER_MWH
from powerzoo_jax.families.joint.plan.policies import (
    DEEP_PU,
    boundary_demand,
    boundary_prices,
    charging_share,
    units_alone,
    voltage_room,
    where_drawn,
)
from powerzoo_jax.families.transmission.causal.dispatch import BEYOND, LOAD, scores_at, train_loads
from powerzoo_jax.families.transmission.plan.dispatch import host_system, reachable
from powerzoo_jax.families.transmission.plan.episode import episode_load
from powerzoo_jax.oracle.forecast import DailyForecast, fit_forecast, remember, train_sim
from powerzoo_jax.oracle.registry import Policy
from powerzoo_jax.oracle.storage_value import Outlook, TradedStore, command_mw, settled_slope, value_slope
from powerzoo_jax.tasks.score import all_starts

LOADS, DRAWS = 49, 9  # of the table: loads as scheduled, and draws of the feeders beyond them
PLAYED_DAYS = 12  # of training, from which voltages and losses are read


class BoundaryMemory(NamedTuple):
    """Memory of an episode.

    t: ();  load: (T,) load factors seen;  start_mwh: (A,) of each battery
    """

    t: Array
    load: Array
    start_mwh: Array


@struct.dataclass(kw_only=True)
class BoundaryModel:
    """Constants of a planner; A batteries, K loads, D draws, G units.

    store, capacity_mwh: (A,)
    load:           DailyForecast of the load factor
    factor:         (K,)  load factors of the tables, rising
    price:          (K, B)  [USD/MWh]  of one more MW at each boundary bus
    may_charge:     (K,)  [-]  share of the rating at which charging leaves the voltages in the band
    must_discharge: (K,)  [-]  share of the rating that lifts them into it
    lost_mw:        (K,)  drawn beyond the schedule while batteries are idle
    beyond_mw:      (D,)  draws of the table, rising
    p_mw, level_mw: (D, K, G), (D, K)  dispatches, as in `DispatchCurve`
    low_mw, high_mw: (G,)  limits
    per_load:       ()    load factor of an observed load of 1
    stored_per_mwh: () [USD/MWh]  at which stored energy settles
    scale:          ()    alike feeders that each stands for
    """

    store: TradedStore
    capacity_mwh: Array
    load: DailyForecast
    factor: Array
    price: Array
    may_charge: Array
    must_discharge: Array
    lost_mw: Array
    beyond_mw: Array
    p_mw: Array
    level_mw: Array
    low_mw: Array
    high_mw: Array
    per_load: Array
    stored_per_mwh: Array
    scale: Array


@dataclass(frozen=True)
class BoundarySight:
    """Fields of an observation, and the boundary bus of each battery; static."""

    load: int
    soc: int
    n_unit: int
    bus: tuple[int, ...]
    schedule: bool
    horizon: int
    width: int
    dt_hours: float


def plan_joint(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Rolling plan of the batteries, and the table's dispatch of the units; forecasts from the days of training.

    Every agent observes the whole load, whatever lines it is shown.
    """
    del keys
    model, sight = _model(sim)
    count, dtype = draws.load_row.shape[0], sim.params.voll.dtype
    memory = BoundaryMemory(
        jnp.zeros(count, jnp.int32),
        jnp.zeros((count, sight.horizon), dtype),
        jnp.zeros((count, len(sight.bus)), dtype),
    )
    return Policy(Partial(partial(_act, sight), model), memory)


def _act(
    sight: BoundarySight, model: BoundaryModel, memory: BoundaryMemory, obs: Array, key: Array
) -> tuple[BoundaryMemory, Array]:
    del key
    t = memory.t
    energy = obs[sight.n_unit :, sight.soc] * model.capacity_mwh
    start = jnp.where(t == 0, energy, memory.start_mwh)
    now = obs[0, sight.load] * model.per_load
    seen = remember(memory.load, t, now[None], (0,), 1)
    coming = model.load.path(seen, t + 1)
    ahead = jnp.arange(sight.width, dtype=jnp.int32) < sight.horizon - t

    def window(series: Array) -> Array:
        part = lax.dynamic_slice_in_dim(jnp.pad(series, ((0, sight.width), (0, 0))), t, sight.width)
        return jnp.where(ahead[:, None], part, 0)

    price = jax.vmap(lambda column: jnp.interp(coming, model.factor, column), 1, 1)(model.price)
    shares = jnp.stack([jnp.interp(coming, model.factor, x) for x in (model.may_charge, model.must_discharge)], axis=1)
    may_charge, must_discharge = window(shares).T
    alive = ahead.astype(now.dtype)
    # energy settles at its own price at the end of the episode, and is worth the mean of the prices before that
    after_window = jnp.where(t + sight.width >= sight.horizon, model.stored_per_mwh, jnp.mean(price, axis=0))

    def one(store: TradedStore, energy: Array, start: Array, price: Array, last: Array) -> Array:
        outlook = Outlook(price, may_charge, alive, must_discharge)
        settled = settled_slope(store, start, last)
        later, first = (jax.tree.map(lambda x, part=part: x[part], outlook) for part in (slice(1, None), 0))
        after = value_slope(store, settled, later, sight.dt_hours, NEED_PER_MWH)
        return command_mw(store, energy, after, first, sight.dt_hours)

    bus = jnp.asarray(sight.bus, jnp.int32)
    power = jax.vmap(one)(model.store, energy, start, window(price).T[bus], after_window[bus])
    drawn = jnp.interp(now, model.factor, model.lost_mw) - model.scale * jnp.sum(power)
    units = _units(sight, model, now, drawn)
    return BoundaryMemory(t + 1, seen, start), jnp.concatenate([units, power / model.store.power_mw])[:, None]


def _units(sight: BoundarySight, model: BoundaryModel, factor: Array, beyond_mw: Array) -> Array:
    """Scores (G,) at a load factor () and a draw () [MW] beyond it: convex combinations of two rows of the table."""
    last = model.beyond_mw.shape[0] - 2
    row = jnp.clip(jnp.searchsorted(model.beyond_mw, beyond_mw).astype(jnp.int32) - 1, 0, last)
    below, above = model.beyond_mw[row], model.beyond_mw[row + 1]
    share = jnp.clip((beyond_mw - below) / (above - below), 0, 1)
    p, level = ((1 - share) * table[row] + share * table[row + 1] for table in (model.p_mw, model.level_mw))
    return scores_at(factor, model.factor, p, level, model.low_mw, model.high_mw, schedule=sight.schedule)


def _model(sim: Sim) -> tuple[BoundaryModel, BoundarySight]:
    """Read what does not depend on the episode, and tabulate prices and dispatches."""
    params, train, upper = sim.params, train_sim(sim), units_alone(sim)
    dtype, per_day = params.voll.dtype, round(24 / sim.spec.dt_hours)
    system, on = host_system(upper), np.asarray(upper.params.rules.available)
    full, shunt = float(params.transmission.full_load_mw), float(params.transmission.shunt_mw)
    days, joined = train_loads(train)
    margin, back = BEYOND * days.max(), int(sim.spec.horizon > per_day)
    factor = np.linspace(max(days.min() - margin, 0.0), days.max() + margin, LOADS)
    grid = full * factor + shunt
    room, lost = _feeders_at(train, grid)
    price = boundary_prices(sim, system, grid).reached.T
    hung = np.bincount(np.asarray(params.feeder_bus), minlength=len(np.asarray(params.boundary_bus)))
    fleet = params.feeder.storage
    most = float(params.feeder_scale) * float(np.sum(fleet.power_mw)) * hung.sum()
    beyond = np.linspace(min(lost.min(), 0.0) - most, lost.max() + most, DRAWS)
    of_bus, scores = np.asarray(params.factors.of_bus, np.float64), not sim.env.transmission.schedule
    curves = [
        reachable(where_drawn(system, of_bus, drawn * hung / hung.sum()), on, grid + drawn, scores=scores)
        for drawn in beyond
    ]

    def real(values: Any) -> Array:
        return jnp.asarray(np.asarray(values, np.float64), dtype)

    def each(values: Array) -> Array:
        return jnp.tile(values, sim.env.n_feeder)

    store = TradedStore(
        low_mwh=each(fleet.soc_min * fleet.capacity_mwh),
        high_mwh=each(fleet.soc_max * fleet.capacity_mwh),
        power_mw=each(fleet.power_mw),
        eta_charge=each(fleet.eta_charge),
        eta_discharge=each(fleet.eta_discharge),
        wear_per_mwh=each(fleet.degradation_per_mwh),
    )
    model = BoundaryModel(
        store=store,
        capacity_mwh=each(fleet.capacity_mwh),
        load=fit_forecast(days, joined, back, back, dtype),
        factor=real(factor),
        price=real(price),
        may_charge=real(charging_share(room)),
        must_discharge=real(np.clip(-room / DEEP_PU, 0, 1)),
        lost_mw=real(lost),
        beyond_mw=real(beyond),
        p_mw=real(np.stack([curve.p_mw for curve in curves])),
        level_mw=real(np.stack([curve.level_mw for curve in curves])),
        low_mw=real(system.low_mw),
        high_mw=real(system.high_mw),
        per_load=real(params.transmission.peak_load_mw / params.transmission.full_load_mw),
        stored_per_mwh=real(0.0 if params.stored_per_mwh is None else params.stored_per_mwh),
        scale=real(params.feeder_scale),
    )
    names, per_feeder = sim.env.fields.names, len(np.asarray(fleet.power_mw))
    sight = BoundarySight(
        load=names.index(LOAD),
        soc=names.index("soc"),
        n_unit=sim.env.transmission.dims.agent,
        bus=tuple(int(k) for k in np.asarray(params.feeder_bus) for _ in range(per_feeder)),
        schedule=sim.env.transmission.schedule,
        horizon=sim.spec.horizon,
        width=min(sim.spec.horizon, AHEAD_DAYS * per_day),
        dt_hours=sim.spec.dt_hours,
    )
    return model, sight


def _feeders_at(train: Sim, grid_mw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Margin (K,) [pu] of the lowest voltage above its limit, and draw (K,) [MW] of all feeders beyond the schedule, of
    idle batteries at loads (K,) [MW]: both follow from the load, and are read from days of training.
    """
    starts = all_starts(train)
    total = starts.load_row.shape[0]
    draws = take(starts, np.unique(np.linspace(0, total - 1, min(PLAYED_DAYS, total)).round().astype(int)))
    upper, count = units_alone(train), draws.load_row.shape[0]
    loads = [episode_load(upper, take(draws, i)) for i in range(count)]
    n_battery = train.env.dims.agent - train.env.transmission.dims.agent
    idle = boundary_demand(train, draws, np.zeros((count, train.spec.horizon, n_battery)), loads)
    load, order = np.unique(np.concatenate(loads), return_index=True)
    room = np.concatenate(voltage_room(train, draws, loads))[order]
    lost = np.concatenate([demand.beyond_mw.sum(1) for demand in idle])[order]
    return np.interp(grid_mw, load, room), np.interp(grid_mw, load, lost)
