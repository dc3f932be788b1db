"""Builder of feeder tasks with one agent per electric vehicle.

Recorded charging sessions serve as schedules: a vehicle is plugged in during its station's sessions, else away.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import Dims, TaskSpec
from powerzoo_jax.base.errors import DataError, unknown
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.ranges import Count, Label, NotNegative, Positive, Range, Share, Whole
from powerzoo_jax.data import load_dataset
from powerzoo_jax.data.clock import MINUTE_NS, to_local
from powerzoo_jax.data.library import usual_price
from powerzoo_jax.data.splits import list_splits, split_days, split_rows
from powerzoo_jax.devices import CommuteTrip, Session, VehicleParams, daily_trips, session_trips, vehicle_params
from powerzoo_jax.devices.protocol import Charge
from powerzoo_jax.devices.trips import DAY_MIN, Trips
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.observe import with_field
from powerzoo_jax.families.feeder.fields import PRICE_ASINH
from powerzoo_jax.families.feeder.tasks.build import FeederFleet, build_sim, feeder_case, step_minutes
from powerzoo_jax.families.feeder.tasks.catalog import VEHICLE_MODES, variants_of
from powerzoo_jax.families.feeder.tasks.own_grid import fit_to_grid
from powerzoo_jax.families.feeder.tasks.settings import (
    AgentSettings,
    chosen_tightness,
    hashable,
    merge_settings,
    own_series,
)
from powerzoo_jax.families.feeder.tasks.storage import StorageTaskConfig, chosen_buses, plan_of_units
from powerzoo_jax.tasks.settings import one_each

SESSIONS, ENERGY = "acn_sessions", "ev.delivered_kwh"
STATION, STAY = "ev.station_code", "ev.stay_min"
PERIOD_DAYS = 35  # of each split's sessions, from its first day on, the last day without any; then they repeat
SLOTS = 64  # stays of a vehicle in a period at most: one size for all splits


def recorded_split(split: str) -> str:
    """The split itself, or the test split where the sessions lack it."""
    return split if split in list_splits(SESSIONS) else "test"


def recorded_trips(split: str, n_vehicle: int, most_kwh: np.ndarray, dt_minutes: int, dtype: Any) -> Trips:
    """Trips of `n_vehicle` vehicles, the busiest stations first, that repeat after PERIOD_DAYS.

    most_kwh:  what a battery holds, () or one each; a session that delivered more is taken to have filled it
    A vehicle is whoever stood at its station. Stays that overlap, are shorter than a step or leave less than a step for
    the trip between them are left out.
    """
    data = load_dataset(SESSIONS)
    first = split_days(data, recorded_split(split))[0].astype("datetime64[ns]").astype(np.int64)
    start = (to_local(data.time_utc, data.meta.offset_minutes) - first) / MINUTE_NS
    end, last = start + data.column(STAY), (PERIOD_DAYS - 1) * DAY_MIN
    inside = np.flatnonzero((start >= 0) & (end - start >= dt_minutes) & (end < last))
    energy, station = data.column(ENERGY), data.column(STATION)
    stays: dict[int, list[Session]] = {}
    for row in inside[np.argsort(start[inside], kind="stable")]:
        mine = stays.setdefault(int(station[row]), [])
        if not mine or start[row] - 60 * mine[-1].plug_out_h >= dt_minutes:
            mine.append(Session(start[row] / 60, end[row] / 60, float(energy[row])))
    fitting = sorted((mine for mine in stays.values() if len(mine) <= SLOTS), key=len, reverse=True)
    if len(fitting) < n_vehicle:
        raise DataError(f"{SESSIONS} has sessions at {len(fitting)} stations, {n_vehicle} vehicles are asked for.")
    most = np.broadcast_to(most_kwh, n_vehicle).tolist()
    chosen = zip(fitting[:n_vehicle], most, strict=True)
    held = [[stay._replace(energy_kwh=min(stay.energy_kwh, kwh)) for stay in mine] for mine, kwh in chosen]
    return _filled_up(session_trips(held, 24.0 * (PERIOD_DAYS - 1), dt_minutes, dtype))


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


PEAK, OFFPEAK = (9, 10, 11, 17, 18, 19, 20), (23, *range(7), 12, 13, 14)  # clock hours
RECORDED = "acn"
Hour = Annotated[float, Range(0, 24)]
QUANTILES = 256  # of the factor on a trip's energy; one size for all splits
FACTOR_LIMITS = (0.5, 2.0)
TRIPS = (
    ((8, 9, 8), (18, 19, 8)),
    ((7, 8, 10), (17, 18, 10)),
    ((6, 7, 6), (19, 20, 6)),
    ((8, 9, 5), (12, 13, 3), (18, 19, 5)),
    ((10, 11, 4), (16, 17, 4)),
)  # (depart [h], arrive [h], [kWh]) of each vehicle, cycled


VEHICLE_RATINGS = (
    *("ev_capacity_kwh", "ev_charge_kw", "ev_discharge_kw", "soc_min", "soc_max", "initial_soc", "soc_departure_min"),
    *("degradation_per_mwh", "unmet_price"),
)


@dataclass(frozen=True, kw_only=True)
class VehicleSettings(AgentSettings):
    """Keywords of the tasks with vehicles; a rating or a price of one is a value for all, or a list of one each.

    num_evs:            how many of ev_bus_ids are used (None: all)
    ev_bus_ids:         external bus ids, one vehicle each
    ev_capacity_kwh:    [kWh] battery of a vehicle
    ev_charge_kw, ev_discharge_kw: [kW] largest power into a vehicle, and back
    soc_min, soc_max:   [-] band of the state of charge
    soc_departure_min:  [-] state of charge that a departure needs
    degradation_per_mwh: [$/MWh] wear
    initial_soc:        a value, or (low, high) to draw from, or such a pair of each
    unmet_price:        [$/MWh] of energy charged en route
    jitter_steps:       most steps by which a trip moves in an episode
    commute_schedules:  (depart_h, arrive_h, energy_kwh) rows of each vehicle, played as they are; "acn" plays recorded
                        charging sessions of the split, away outside them, from a day drawn for the episode (None:
                        the task's own trips, moved by jitter_steps and scaled by recorded charging sessions)
    reward_type:        "shared" pays every agent the mean, "individual" its own profit
    price_asinh:        observations end with asinh(price / median), the median [$/MWh] that of the training days, or
                        that of the sizes of their prices where it is not positive
    """

    num_evs: Count | None = None
    ev_bus_ids: tuple[Label, ...] = ()
    ev_capacity_kwh: Positive | tuple[Positive, ...] = 60.0
    ev_charge_kw: Positive | tuple[Positive, ...] = 7.0
    ev_discharge_kw: Positive | tuple[Positive, ...] = 7.0
    soc_min: Share | tuple[Share, ...] = 0.1
    soc_max: Share | tuple[Share, ...] = 0.95
    initial_soc: Charge = 0.6
    soc_departure_min: Share | tuple[Share, ...] = 0.8
    degradation_per_mwh: NotNegative | tuple[NotNegative, ...] = 10.0
    unmet_price: NotNegative | tuple[NotNegative, ...] = 2000.0
    jitter_steps: Whole = 1
    commute_schedules: str | tuple[tuple[tuple[Hour, Hour, NotNegative], ...], ...] | None = None
    reward_type: str = "shared"
    price_asinh: bool = False

    def idle(self) -> dict[str, str]:
        fixed = self.commute_schedules is not None
        return super().idle() | ({"jitter_steps": "the task's own trips, not commute_schedules"} if fixed else {})


def build_vehicles(spec: TaskSpec, *, split: str, dims: Dims | None = None, dtype: Any = None, **overrides: Any) -> Sim:
    """Build a feeder with a vehicle and an agent at each of some buses."""
    dtype = resolve_dtype(dtype)
    spec, overrides = own_series(spec, fit_to_grid(spec, hashable(overrides)))
    variants = variants_of(spec)
    shift = variants.shift(split)
    tight = chosen_tightness(spec, variants, overrides)
    settings = merge_settings(VehicleSettings, spec, dict(tight.limits) | dict(shift.changes), overrides)
    buses = chosen_buses(spec, "ev_bus_ids", settings.ev_bus_ids, settings.num_evs)
    one_each(settings, VEHICLE_RATINGS, len(buses), "vehicles")
    fixed, recorded = settings.commute_schedules is not None, settings.commute_schedules == RECORDED
    fleet = FeederFleet(
        kinds=("vehicle",) * len(buses),
        bus_ids=buses,
        stacks={"vehicle": _stack(spec, settings, split, len(buses), dtype)},
        jitter_steps=0 if fixed else settings.jitter_steps,
        trip_days=PERIOD_DAYS if recorded else 1,
        leaves={
            "trip_factor": jnp.asarray(np.ones(QUANTILES) if fixed else trip_factors(split), dtype),
            **_median(settings, dtype),
        },
    )
    plan = plan_of_units(
        StorageTaskConfig(spec, settings, overrides, split, shift, tight), fleet, "ev", VEHICLE_MODES, (PEAK, OFFPEAK)
    )
    if settings.price_asinh:
        plain = plan.fields
        plan = dataclasses.replace(plan, fields=lambda case: with_field(plain(case), PRICE_ASINH))
    return build_sim(plan, feeder_case(spec, settings), dims, dtype)


def _median(settings: VehicleSettings, dtype: Any) -> dict[str, Array]:
    """Usual price of the days of training, the same on every split, as a leaf; none where nothing is shown over it."""
    if not settings.price_asinh:
        return {}
    prices = load_dataset(settings.price_set)
    return {"median_per_mwh": jnp.asarray(usual_price(prices, prices.resolve(settings.price_column)), dtype)}


def trip_factors(split: str) -> np.ndarray:
    """Quantiles (Q,) of delivered session energy over its training mean, of the sessions of a split.

    A split that the sessions lack plays those of the test split.
    """
    data = load_dataset(SESSIONS)
    energy = data.column(ENERGY).astype(np.float64)
    mean = energy[split_rows(data, "train")].mean()
    chosen = energy[split_rows(data, recorded_split(split))]
    middle = (np.arange(QUANTILES) + 0.5) / QUANTILES
    return np.clip(np.quantile(chosen / mean, middle), *FACTOR_LIMITS)


def _trips(spec: TaskSpec, settings: VehicleSettings, split: str, count: int, dtype: Any) -> Trips:
    """The schedules asked for; ValueError for a name that stands for none."""
    minutes, schedules = step_minutes(spec, settings), settings.commute_schedules
    if schedules == RECORDED:
        usable = np.asarray(settings.ev_capacity_kwh) * np.subtract(settings.soc_max, settings.soc_min)
        return recorded_trips(split, count, usable, minutes, dtype)
    if isinstance(schedules, str):
        raise ValueError(f"{spec.id}: {unknown('commute_schedules', schedules, (RECORDED,))}")
    rows = TRIPS if schedules is None else schedules
    plans = [[CommuteTrip(*trip) for trip in rows[k % len(rows)]] for k in range(count)]
    return daily_trips(plans, minutes, dtype)


def _stack(spec: TaskSpec, settings: VehicleSettings, split: str, count: int, dtype: Any) -> VehicleParams:
    return vehicle_params(
        _trips(spec, settings, split, count, dtype),
        dtype,
        capacity_kwh=settings.ev_capacity_kwh,
        charge_kw=settings.ev_charge_kw,
        discharge_kw=settings.ev_discharge_kw,
        soc_min=settings.soc_min,
        soc_max=settings.soc_max,
        initial_soc=settings.initial_soc,
        soc_departure_min=settings.soc_departure_min,
        degradation_per_mwh=settings.degradation_per_mwh,
        unmet_usd_per_mwh=settings.unmet_price,
    )
