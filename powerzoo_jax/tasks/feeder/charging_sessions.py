"""Recorded charging sessions as the schedules of vehicles: plugged in during a station's sessions, else away."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base.errors import DataError
from powerzoo_jax.data import load_dataset
from powerzoo_jax.data.clock import MINUTE_NS, to_local
from powerzoo_jax.data.splits import list_splits, split_days
from powerzoo_jax.devices import Session, session_trips
from powerzoo_jax.devices.trips import DAY_MIN, Trips

SESSIONS, ENERGY = "acn_sessions", "ev.delivered_kwh"
STATION, STAY = "ev.station_code", "ev.stay_min"
PERIOD_DAYS = 35  # of each split's sessions, from its first day on, the last day without any; then they repeat
SLOTS = 64  # stays of a vehicle in a period at most: one size for all splits


def recorded_split(split: str) -> str:
    """The split itself, or the test split where the sessions lack it."""
    return split if split in list_splits(SESSIONS) else "test"


def recorded_trips(split: str, n_vehicle: int, most_kwh: float, dt_minutes: int, dtype: Any) -> Trips:
    """Trips of `n_vehicle` vehicles, the busiest stations first, that repeat after PERIOD_DAYS.

    most_kwh:  what a battery holds; a session that delivered more is taken to have filled it
    A vehicle is whoever stood at its station. Stays that overlap, are shorter than a step or leave less than a step for
    the trip between them are left out.
    """
    data = load_dataset(SESSIONS)
    first = split_days(data, recorded_split(split))[0].astype("datetime64[ns]").astype(np.int64)
    start = (to_local(data.time_utc, data.meta.offset_minutes) - first) / MINUTE_NS
    end, last = start + data.column(STAY), (PERIOD_DAYS - 1) * DAY_MIN
    inside = np.flatnonzero((start >= 0) & (end - start >= dt_minutes) & (end < last))
    energy, station = np.minimum(data.column(ENERGY), most_kwh), data.column(STATION)
    stays: dict[int, list[Session]] = {}
    for row in inside[np.argsort(start[inside], kind="stable")]:
        mine = stays.setdefault(int(station[row]), [])
        if not mine or start[row] - 60 * mine[-1].plug_out_h >= dt_minutes:
            mine.append(Session(start[row] / 60, end[row] / 60, float(energy[row])))
    fitting = sorted((mine for mine in stays.values() if len(mine) <= SLOTS), key=len, reverse=True)
    if len(fitting) < n_vehicle:
        raise DataError(f"{SESSIONS} has sessions at {len(fitting)} stations, {n_vehicle} vehicles are asked for.")
    return _filled_up(session_trips(fitting[:n_vehicle], 24.0 * (PERIOD_DAYS - 1), dt_minutes, dtype))


def _filled_up(trips: Trips) -> Trips:
    """The same with SLOTS slots a vehicle: splits then share one program."""
    room = SLOTS - trips.mask.shape[1]

    def wide(x: Array) -> Array:
        return jnp.pad(x, ((0, 0), (0, room)))

    return Trips(
        depart_min=wide(trips.depart_min),
        duration_min=wide(trips.duration_min),
        energy_mwh=wide(trips.energy_mwh),
        room_before_min=wide(trips.room_before_min),
        room_after_min=wide(trips.room_after_min),
        mask=wide(trips.mask),
        period_min=trips.period_min,
    )
