"""Causal planner of vehicles that sell to the grid: the departure in sight is exact, later trips are the usual ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.tree_util import Partial

from powerzoo_jax.base import struct
from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.devices.trips import DAY_MIN, at_home, events
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.feeder.causal.storage import (
    known_periods,
    price_fields,
    price_forecast,
    seen_fields,
    signal_scale,
)
from powerzoo_jax.oracle.forecast import DailyForecast
from powerzoo_jax.oracle.registry import Policy
from powerzoo_jax.oracle.storage_value import (
    Outlook,
    TradedStore,
    cell_energy,
    command_mw,
    earlier_slope,
    settled_slope,
    shifted,
)

CELLS = 200  # of the energy band, 26 of which one hour charges
SHORT_PER_MWH = 3000.0  # [$/MWh] of what a driver misses on departure: no price that is shown comes near
AHEAD_H = 48
RESERVE = 0.005  # of the capacity, above what a driver expects


class VehicleMemory(NamedTuple):
    """Memory of an episode. t: ();  price: (P,) signals seen;  start_mwh: (V,)"""

    t: Array
    price: Array
    start_mwh: Array


class UsualDay(NamedTuple):
    """Usual day of each vehicle, (V, S) by step: plugged in, energy driven by an arrival [MWh], departure."""

    home: Array
    driven_mwh: Array
    departs: Array


@struct.dataclass(kw_only=True)
class VehicleModel:
    """Model of parked vehicles (V,) that a causal planner uses: batteries, energy needs [MWh], usual day, prices."""

    store: TradedStore
    discharge_share: Array
    capacity_mwh: Array
    need_mwh: Array
    day: UsualDay
    price: DailyForecast
    low: Array
    span: Array


@dataclass(frozen=True)
class VehicleSight:
    """Columns of an observation; static. next_home: whether a vehicle is plugged in during the coming step."""

    soc: int
    is_home: int
    until_departure: int
    next_home: int
    price: tuple[tuple[int, int], ...]
    price_steps: int
    horizon: int
    per_day: int
    dt_hours: float


def plan_vehicles(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Rolling plan of every vehicle by `storage_value`: trade between trips, and the expected level at each departure.

    Raises SolverError for trips that do not repeat daily, which no observation tells in time.
    """
    del keys
    model, sight = _model(sim)
    count, dtype = draws.load_row.shape[0], model.low.dtype
    memory = VehicleMemory(
        jnp.zeros(count, jnp.int32),
        jnp.zeros((count, sight.horizon // sight.price_steps), dtype),
        jnp.zeros((count, *model.capacity_mwh.shape), dtype),
    )
    return Policy(Partial(partial(_act, sight), model), memory)


def _act(
    sight: VehicleSight, model: VehicleModel, memory: VehicleMemory, obs: Array, key: Array
) -> tuple[VehicleMemory, Array]:
    del key
    t, energy = memory.t, obs[:, sight.soc] * model.capacity_mwh
    start = jnp.where(t == 0, energy, memory.start_mwh)
    seen = seen_fields(memory.price, t, obs, sight.price, sight.price_steps)
    signal = model.price.path(seen, known_periods(t, sight.price, sight.price_steps))
    price = jnp.repeat(model.low + model.span * signal, sight.price_steps)
    width = min(sight.horizon, round(AHEAD_H / sight.dt_hours))
    ahead = lax.dynamic_slice(jnp.pad(price[: sight.horizon], (0, width)), (t,), (width,))
    alive = jnp.arange(width, dtype=jnp.int32) < sight.horizon - t

    def one(
        store: TradedStore, share: Array, need: Array, day: UsualDay, energy: Array, start: Array, shown: Array
    ) -> Array:
        home, driven, departs = _coming(sight, day, t, shown, width)
        open_ = (home & alive).astype(price.dtype)
        steps = Outlook(ahead, open_, share * open_, jnp.zeros_like(ahead))
        levels = cell_energy(store, CELLS)
        per_cell = CELLS / (store.high_mwh - store.low_mwh)

        def earlier(slope: Array, step: tuple[Outlook, Array, Array]) -> tuple[Array, None]:
            trade, energy, leaves = step
            before = earlier_slope(store, slope, trade, sight.dt_hours, SHORT_PER_MWH)
            before = before + jnp.where(leaves & (levels < need), SHORT_PER_MWH, 0)
            return shifted(before, -energy * per_cell, SHORT_PER_MWH), None

        last = settled_slope(store, start, jnp.mean(price), CELLS)
        later = jax.tree.map(lambda x: x[1:], (steps, jnp.where(alive, driven, 0), departs & alive))
        after, _ = lax.scan(earlier, last, later, reverse=True)
        now = jax.tree.map(lambda x: x[0], steps)
        return command_mw(store, energy - driven[0], after, now, sight.dt_hours)

    shown = obs[:, jnp.asarray([sight.is_home, sight.until_departure, sight.next_home])]
    power = jax.vmap(one)(model.store, model.discharge_share, model.need_mwh, model.day, energy, start, shown)
    rating = model.store.power_mw * jnp.where(power > 0, model.discharge_share, 1)
    return VehicleMemory(t + 1, seen, start), jnp.clip(power / rating, -1, 1)[:, None]


def _coming(sight: VehicleSight, day: UsualDay, t: Array, shown: Array, width: int) -> tuple[Array, Array, Array]:
    """Presence, energy driven by an arrival, and departure in each of the coming steps, (W,) each, of one vehicle.

    Trips are those of the usual day. The next one moves to when it is shown to leave.
    """
    is_home, until, next_home = shown
    step = jnp.arange(width, dtype=jnp.int32)
    leaves_in = jnp.floor(until * (24 / sight.dt_hours) + 1e-3).astype(jnp.int32)
    around = jnp.asarray([0, -1, 1], jnp.int32)  # steps by which a trip is earlier or later than usual
    fits = day.departs[(t + leaves_in - around) % sight.per_day]
    moved = jnp.where((is_home > 0.5) & jnp.any(fits), around[jnp.argmax(fits)], 0)
    at = (t + step - jnp.where(step <= leaves_in + 2, moved, 0)) % sight.per_day
    home = jnp.where(step == 0, next_home > 0.5, day.home[at])
    return home, day.driven_mwh[at], day.departs[at]


def _model(sim: Sim) -> tuple[VehicleModel, VehicleSight]:
    fleet, names, per_day = sim.params.vehicle, sim.env.fields.names, round(24 / sim.spec.dt_hours)
    dtype = fleet.capacity_mwh.dtype
    if int(fleet.trips.period_min) != DAY_MIN:
        raise SolverError(f"the trips of task {sim.spec.id!r} do not repeat daily; this planner knows daily trips.")
    price, steps = price_forecast(sim)
    low, span = signal_scale(sim)
    model = VehicleModel(
        store=TradedStore(
            low_mwh=fleet.soc_min * fleet.capacity_mwh,
            high_mwh=fleet.soc_max * fleet.capacity_mwh,
            power_mw=fleet.charge_mw,
            eta_charge=fleet.eta_charge,
            eta_discharge=fleet.eta_discharge,
            wear_per_mwh=fleet.degradation_per_mwh,
        ),
        discharge_share=fleet.discharge_mw / fleet.charge_mw,
        capacity_mwh=fleet.capacity_mwh,
        need_mwh=(fleet.soc_departure_min + RESERVE) * fleet.capacity_mwh,
        day=_usual_day(sim, per_day),
        price=price,
        low=jnp.asarray(low, dtype),
        span=jnp.asarray(span, dtype),
    )
    sight = VehicleSight(
        soc=names.index("soc"),
        is_home=names.index("is_home"),
        until_departure=names.index("time_to_departure"),
        next_home=names.index("home_forecast_t+1"),
        price=price_fields(sim),
        price_steps=steps,
        horizon=sim.spec.horizon,
        per_day=per_day,
        dt_hours=sim.spec.dt_hours,
    )
    return model, sight


def _usual_day(sim: Sim, per_day: int) -> UsualDay:
    """Trips as the task lists them, with the energy that a factor of training gives them on average."""
    trips, minutes = sim.params.vehicle.trips, round(sim.spec.dt_hours * 60)
    clock = jnp.arange(per_day, dtype=jnp.int32) * minutes
    happening = jax.vmap(lambda minute: events(trips, minute, minutes))(clock)
    home = jax.vmap(lambda minute: at_home(trips, minute, minutes))(clock)
    usual = float(np.mean(np.asarray(sim.params.trip_factor)))
    driven = jnp.where(happening.arrives, happening.energy_mwh * usual, 0)
    return UsualDay(home.T, driven.T, happening.departs.T)
