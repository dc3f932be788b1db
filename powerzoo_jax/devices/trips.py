"""Trips of vehicles: absences that repeat with a period, as arrays over vehicles and trips."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.random import integers
from powerzoo_jax.base.ranges import Count, Finite, Positive, checks_ranges, fitted, stored

DAY_MIN = 1440
UNROLLED = 8  # trips of a vehicle that are combined one after the other


class CommuteTrip(NamedTuple):
    """One trip of a day: clock hours and the energy driven. An arrival after midnight has arrive_h < depart_h."""

    depart_h: float = 8.0
    arrive_h: float = 18.0
    energy_kwh: float = 15.0


class Session(NamedTuple):
    """One stay at the charger, hours since the start of the episode, and the energy driven before it."""

    plug_in_h: float
    plug_out_h: float
    energy_kwh: float


@struct.dataclass(kw_only=True)
class Trips:
    """Schedules of a fleet; K trips each, in order, unused ones masked.

    depart_min:                       (G, K)  int32  [min]  in [0, period)
    duration_min:                     (G, K)  int32  [min]  a trip may end past the period
    energy_mwh:                       (G, K)  [MWh]  driven on the trip
    room_before_min, room_after_min:  (G, K)  int32  [min]  half the stay on that side: how far a trip may shift
    mask:                             (G, K)  bool
    period_min:                       ()      int32  [min]  after which everything repeats
    """

    depart_min: Array
    duration_min: Array
    energy_mwh: Array
    room_before_min: Array
    room_after_min: Array
    mask: Array
    period_min: Array


class Events(NamedTuple):
    """Events of a window, (G,) each: an arrival, with the energy it drove [MWh], then a departure."""

    arrives: Array
    energy_mwh: Array
    departs: Array


@checks_ranges("daily_trips")
def daily_trips(schedules: Sequence[Sequence[CommuteTrip]], dt_minutes: Count, dtype: Any) -> Trips:
    """Trips that repeat every day, one schedule per vehicle.

    Raises ValueError for a trip shorter than a step, or one that starts before the last has ended.
    """
    table = []
    for vehicle, schedule in enumerate(schedules):
        rows = []
        trips = [CommuteTrip(*t) for t in schedule]
        for trip in trips:
            _finite(f"vehicle {vehicle} {trip}", *trip)
        for trip in sorted(trips):
            depart, arrive = round(trip.depart_h * 60), round(trip.arrive_h * 60)
            if not (0 <= depart < DAY_MIN and 0 <= arrive <= DAY_MIN):
                raise ValueError(f"vehicle {vehicle}: {trip} must lie within the 24 hours of the clock.")
            rows.append((depart, arrive if arrive > depart else arrive + DAY_MIN, trip.energy_kwh / 1000))
        table.append(rows)
    return _trips(table, DAY_MIN, dt_minutes, dtype)


@checks_ranges("session_trips")
def session_trips(
    sessions: Sequence[Sequence[Session]], horizon_hours: Positive, dt_minutes: Count, dtype: Any
) -> Trips:
    """Trips outside the recorded sessions of an episode, one list per vehicle, at least one session each.

    The period is longer than the episode, so that the trip after the last session is the one before the first.
    Raises ValueError for sessions out of order, or a gap between them shorter than a step.
    """
    period = round(horizon_hours * 60) + DAY_MIN
    table = []
    for vehicle, stays in enumerate(sessions):
        if not stays:
            raise ValueError(f"vehicle {vehicle} has no session. Give at least one, or drop the vehicle.")
        stays = [Session(*s) for s in stays]
        for stay in stays:
            _finite(f"vehicle {vehicle} {stay}", *stay)
        ends = [round(s.plug_out_h * 60) for s in stays]
        starts = [round(s.plug_in_h * 60) for s in stays]
        if min(starts) < 0 or max(ends) > period - DAY_MIN or any(a >= b for a, b in zip(starts, ends, strict=True)):
            raise ValueError(f"vehicle {vehicle}: every session must end after it starts and lie inside the episode.")
        following = [*starts[1:], starts[0] + period]
        energy = [s.energy_kwh / 1000 for s in (*stays[1:], stays[0])]
        table.append(list(zip(ends, following, energy, strict=True)))
    return _trips(table, period, dt_minutes, dtype)


def _finite(label: str, *numbers: float) -> None:
    for number in numbers:
        fitted(f"{label}: entry", number, Finite)


def _trips(table: list[list[tuple[int, int, float]]], period: int, dt_minutes: int, dtype: Any) -> Trips:
    """(depart, arrive, energy) rows of each vehicle -> padded arrays, after the checks of both builders."""
    size = max(1, *(len(rows) for rows in table))
    whole = {name: np.zeros((len(table), size), np.int32) for name in ("depart", "duration", "before", "after")}
    energy, mask = np.zeros((len(table), size)), np.zeros((len(table), size), bool)
    for vehicle, rows in enumerate(table):
        for k, (depart, arrive, mwh) in enumerate(rows):
            until = rows[k + 1][0] if k + 1 < len(rows) else rows[0][0] + period
            if arrive - depart < dt_minutes:
                raise ValueError(f"vehicle {vehicle}: trip {k} lasts {arrive - depart} min, a step {dt_minutes} min.")
            if until < arrive:
                raise ValueError(f"vehicle {vehicle}: trip {k} ends at minute {arrive}, the next departs at {until}.")
            if mwh < 0:
                raise ValueError(f"vehicle {vehicle}: trip {k} drives {mwh * 1000} kWh; it must not be negative.")
            whole["depart"][vehicle, k], whole["duration"][vehicle, k] = depart, arrive - depart
            whole["after"][vehicle, k] = whole["before"][vehicle, (k + 1) % len(rows)] = (until - arrive) // 2
            energy[vehicle, k], mask[vehicle, k] = mwh, True
    return Trips(
        depart_min=jnp.asarray(whole["depart"]),
        duration_min=jnp.asarray(whole["duration"]),
        energy_mwh=stored("energy_mwh", energy, dtype),
        room_before_min=jnp.asarray(whole["before"]),
        room_after_min=jnp.asarray(whole["after"]),
        mask=jnp.asarray(mask),
        period_min=jnp.asarray(period, jnp.int32),
    )


def jittered(key: Array, trips: Trips, steps: int, dt_minutes: int, factor: Array) -> Trips:
    """Shift every trip by a whole number of steps, uniform in [-steps, steps], and scale its energy.

    factor:  (G, K)  of the energy driven
    A trip moves as a whole, so its duration stays, and by half of the stay to its neighbours at most, so order stays.
    """
    moved = integers(key, trips.depart_min.shape, -steps, steps + 1)
    before, after = trips.room_before_min // dt_minutes, trips.room_after_min // dt_minutes
    shift = jnp.clip(moved, -before, after) * dt_minutes
    depart = jnp.mod(trips.depart_min + shift, trips.period_min)
    return replace(trips, depart_min=depart, energy_mwh=trips.energy_mwh * factor)


def rotated(key: Array, trips: Trips, days: int) -> Trips:
    """Let the episode begin on another day of the period, uniform among the first `days`; all units alike."""
    later = integers(key, (), 0, days) * DAY_MIN
    return replace(trips, depart_min=jnp.mod(trips.depart_min - later, trips.period_min))


def events(trips: Trips, minute: Array, dt_minutes: int) -> Events:
    """Arrivals and departures in [minute, minute + dt), minute () int32 of the period.

    No trip is shorter than a step, so a window holds at most one arrival and then one departure.
    """
    arriving = trips.mask & (_until(trips.depart_min + trips.duration_min, minute, trips) < dt_minutes)
    departing = trips.mask & (_until(trips.depart_min, minute, trips) < dt_minutes)
    energy = _over_trips(jnp.add, jnp.where(arriving, trips.energy_mwh, 0))
    return Events(_any(arriving), energy, _any(departing))


def at_home(trips: Trips, minute: Array, dt_minutes: int) -> Array:
    """Mask of the vehicles plugged in during [minute, minute + dt), that is after the window's events; (G,) bool."""
    since = _wrapped(_of_period(minute + dt_minutes - 1, trips) - trips.depart_min, trips)
    return ~_any(trips.mask & (since < trips.duration_min))


def hours_to_events(trips: Trips, minute: Array, dt_minutes: int, dtype: Any) -> tuple[Array, Array]:
    """Hours to the next departure of a vehicle at home, and to the arrival of one away, (G,) each; else 0.

    `minute` is the start of the coming window; where a vehicle is, the window before has decided.
    """
    home = at_home(trips, minute - dt_minutes, dt_minutes)
    arrive_min = trips.depart_min + trips.duration_min

    def hours(event_min: Array, applies: Array) -> Array:
        nearest = _over_trips(jnp.minimum, jnp.where(trips.mask, _until(event_min, minute, trips), trips.period_min))
        return jnp.where(applies, nearest.astype(dtype) / 60, 0)

    return hours(trips.depart_min, home & _any(trips.mask)), hours(arrive_min, ~home)


def _any(flags: Array) -> Array:
    return _over_trips(jnp.logical_or, flags)


def _over_trips(combine: Any, values: Array) -> Array:
    """Combine (G, K) over the trips of each vehicle by a ufunc: (G,).

    A few trips one after the other, which fuses with what follows; XLA reduces an innermost axis that short by a loop
    of its own for every vehicle of every lane.
    """
    if values.shape[1] > UNROLLED:
        whole: Array = combine.reduce(values, axis=1)
        return whole
    return functools.reduce(combine, [values[:, k] for k in range(values.shape[1])])


def _until(event_min: Array, minute: Array, trips: Trips) -> Array:
    return _wrapped(event_min - _of_period(minute, trips), trips)


def _of_period(minute: Array, trips: Trips) -> Array:
    """A minute of any day as one in [0, period): the one division of a step."""
    return jnp.mod(minute, trips.period_min)


def _wrapped(minutes: Array, trips: Trips) -> Array:
    """A difference in (-period, 2 period) as one in [0, period), by comparisons: integers divide slowly."""
    minutes = minutes + jnp.where(minutes < 0, trips.period_min, 0)
    return minutes - jnp.where(minutes >= trips.period_min, trips.period_min, 0)
