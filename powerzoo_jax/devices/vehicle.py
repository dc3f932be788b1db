"""Electric vehicles: trips that empty the battery, charging and discharging at home, over a unit axis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import Purpose, purpose_key, struct
from powerzoo_jax.base.random import integers
from powerzoo_jax.base.ranges import checks_ranges
from powerzoo_jax.base.spaces import Field
from powerzoo_jax.devices.protocol import (
    TIME,
    Charge,
    DeviceKind,
    EfficiencyRating,
    EpisodeStart,
    Exogenous,
    PositiveRating,
    SeenUnits,
    ShareRating,
    SignlessRating,
    charge_range,
    columns,
)
from powerzoo_jax.devices.storage import ENERGY_TERMS, charge, degradation_usd, energy_bounds
from powerzoo_jax.devices.trips import (
    CommuteTrip,
    Events,
    Trips,
    at_home,
    daily_trips,
    events,
    hours_to_events,
    jittered,
    rotated,
)

WORK_TRIP = ((8.0, 18.0, 15.0),)  # depart [h], arrive [h], energy [kWh]


@struct.dataclass(kw_only=True)
class VehicleParams:
    """Batteries and chargers of a fleet of vehicles, and their nominal trips.

    capacity_mwh:              (G,)  [MWh]
    charge_mw, discharge_mw:   (G,)  [MW]   ratings of the charger
    eta_charge, eta_discharge: (G,)  [-]
    soc_min, soc_max:          (G,)  [-]    operating band
    soc_low, soc_high:         (G,)  [-]    range the initial state of charge is drawn from
    soc_departure_min:         (G,)  [-]    what a driver expects on departure
    degradation_per_mwh:       (G,)  [$/MWh] of terminal throughput
    unmet_usd_per_mwh:         (G,)  [$/MWh] charging en route what the battery could not drive
    mask:                      (G,)  bool
    trips:                     Trips (G, K)
    """

    capacity_mwh: Array
    charge_mw: Array
    discharge_mw: Array
    eta_charge: Array
    eta_discharge: Array
    soc_min: Array
    soc_max: Array
    soc_low: Array
    soc_high: Array
    soc_departure_min: Array
    degradation_per_mwh: Array
    unmet_usd_per_mwh: Array
    mask: Array
    trips: Trips


@struct.dataclass(kw_only=True)
class VehicleState:
    """State of a fleet of vehicles.

    soc:         (G,)    [-]
    p_mw:        (G,)    [MW]   power delivered in the last step
    depart_min:  (G, K)  int32  trips of this episode: when they start
    trip_mwh:    (G, K)  [MWh]  and what they drive
    """

    soc: Array
    p_mw: Array
    depart_min: Array
    trip_mwh: Array


class VehicleDelivery(NamedTuple):
    """A `protocol.Delivery`, and the energy that drivers missed.

    unmet_mwh:      (G,)  [MWh]  trip energy that was not in the battery
    shortfall_mwh:  (G,)  [MWh]  energy below the required level on departure
    home:           (G,)  bool   plugged in during the step
    """

    p_mw: Array
    undelivered_mw: Array
    q_mvar: Array
    cost_usd: Array
    unmet_mwh: Array
    shortfall_mwh: Array
    home: Array


PADDING = {
    "capacity_mwh": 1.0,
    "charge_mw": 1.0,
    "discharge_mw": 1.0,
    "eta_charge": 1.0,
    "eta_discharge": 1.0,
}  # keeps 0/0 out of padded rows' gradients

ACTIONS = (("power", -1.0, 1.0),)
IDLE = (0.0,)


@checks_ranges("vehicle")
def vehicle_params(
    trips: Trips,
    dtype: Any,
    *,
    capacity_kwh: PositiveRating = 60.0,
    charge_kw: PositiveRating = 7.0,
    discharge_kw: PositiveRating = 7.0,
    eta_charge: EfficiencyRating = 0.95,
    eta_discharge: EfficiencyRating = 0.95,
    soc_min: ShareRating = 0.1,
    soc_max: ShareRating = 0.95,
    initial_soc: Charge = 0.8,
    soc_departure_min: ShareRating = 0.8,
    degradation_per_mwh: SignlessRating = 0.0,
    unmet_usd_per_mwh: SignlessRating = 2000.0,
) -> VehicleParams:
    """Parameters of the vehicles that drive `trips`; each rating is one value for all, or one per vehicle.

    initial_soc:  one value, or (low, high) to draw from at every reset, or such a pair per vehicle
    Raises ValueError for non-positive ratings, reversed limits or efficiencies outside (0, 1].
    """
    low, high = charge_range(initial_soc)
    floor, ceiling = np.asarray(soc_min), np.asarray(soc_max)
    if not ((floor >= 0) & (floor < ceiling) & (ceiling <= 1)).all():
        raise ValueError(f"vehicle soc_min = {soc_min}, soc_max = {soc_max}: need 0 <= soc_min < soc_max <= 1.")
    for name, value in (("initial_soc", low), ("initial_soc", high), ("soc_departure_min", soc_departure_min)):
        if not ((floor <= np.asarray(value)) & (np.asarray(value) <= ceiling)).all():
            raise ValueError(f"vehicle {name} = {value} must lie inside [{soc_min}, {soc_max}].")
    if np.any(np.asarray(low) > np.asarray(high)):
        raise ValueError(f"vehicle initial_soc = {initial_soc} is reversed. Give (low, high).")
    n_unit = trips.mask.shape[0]
    made = columns(
        n_unit,
        dtype,
        capacity_mwh=np.asarray(capacity_kwh) / 1000,
        charge_mw=np.asarray(charge_kw) / 1000,
        discharge_mw=np.asarray(discharge_kw) / 1000,
        eta_charge=eta_charge,
        eta_discharge=eta_discharge,
        soc_min=soc_min,
        soc_max=soc_max,
        soc_low=low,
        soc_high=high,
        soc_departure_min=soc_departure_min,
        degradation_per_mwh=degradation_per_mwh,
        unmet_usd_per_mwh=unmet_usd_per_mwh,
    )
    return VehicleParams(**made, mask=jnp.ones(n_unit, bool), trips=trips)


def init(params: VehicleParams, soc: Array, trips: Trips) -> VehicleState:
    """Fleet at a given state of charge (G,) with the trips of the episode (`trips.jittered`, or params.trips)."""
    soc = jnp.clip(soc, params.soc_min, params.soc_max)
    return VehicleState(soc=soc, p_mw=jnp.zeros_like(soc), depart_min=trips.depart_min, trip_mwh=trips.energy_mwh)


def episode_trips(params: VehicleParams, state: VehicleState) -> Trips:
    """Trips of the episode, as the functions of `trips` take them."""
    return replace(params.trips, depart_min=state.depart_min, energy_mwh=state.trip_mwh)


def command(params: VehicleParams, action: Array) -> Array:
    """Action (G, 1) in [-1, 1] -> power (G,) [MW]: a times the rating of its direction, positive = discharge."""
    a = action[:, 0]
    return a * jnp.where(a > 0, params.discharge_mw, params.charge_mw)


def power_bounds(params: VehicleParams, state: VehicleState, dt_hours: float, minute: Array) -> tuple[Array, Array]:
    """Feasible terminal power of the coming step, (low, high) each (G,) [MW]; 0 where the vehicle will be away.

    minute:  () int32  start of the step within the period of the trips
    """
    trips = episode_trips(params, state)
    soc, _ = _after_arrival(params, state.soc, events(trips, minute, _minutes(dt_hours)))
    return _bounds(params, trips, soc, dt_hours, minute)


def step(
    params: VehicleParams, state: VehicleState, command_mw: Array, dt_hours: float, minute: Array
) -> tuple[VehicleState, VehicleDelivery]:
    """Let vehicles come and go, then deliver what those at home can of `command_mw` (G,).

    On arrival soc' = soc - E / C; what lies below soc_min was charged en route. On departure the driver misses
    [soc_departure_min - soc]+ C. One that arrives in the window may charge in all of it, one that departs in none.
    """
    trips = episode_trips(params, state)
    happening = events(trips, minute, _minutes(dt_hours))
    soc, unmet = _after_arrival(params, state.soc, happening)
    short = jnp.maximum(params.soc_departure_min - soc, 0) * params.capacity_mwh
    short = jnp.where(params.mask & happening.departs, short, 0)
    low, high = _bounds(params, trips, soc, dt_hours, minute)
    p = jnp.clip(command_mw, low, high)
    lost = jnp.where(params.mask, jnp.abs(command_mw - p), 0)
    cost = degradation_usd(params, p, dt_hours) + params.unmet_usd_per_mwh * unmet
    home = params.mask & at_home(trips, minute, _minutes(dt_hours))
    new = replace(state, soc=charge(params, soc, p, dt_hours), p_mw=p)
    return new, VehicleDelivery(p, lost, jnp.zeros_like(p), cost, unmet, short, home)


def _minutes(dt_hours: float) -> int:
    return round(dt_hours * 60)


def _after_arrival(params: VehicleParams, soc: Array, happening: Events) -> tuple[Array, Array]:
    """State of charge (G,) once the trip that ends in the window is paid for, and the energy it missed [MWh]."""
    arrives = params.mask & happening.arrives
    left = soc - happening.energy_mwh / params.capacity_mwh
    unmet = jnp.where(arrives, jnp.maximum(params.soc_min - left, 0) * params.capacity_mwh, 0)
    return jnp.where(arrives, jnp.maximum(left, params.soc_min), soc), unmet


def _bounds(params: VehicleParams, trips: Trips, soc: Array, dt_hours: float, minute: Array) -> tuple[Array, Array]:
    ready = params.mask & at_home(trips, minute, _minutes(dt_hours))
    fill, empty = energy_bounds(params, soc, dt_hours)
    low, high = -jnp.minimum(params.charge_mw, fill), jnp.minimum(params.discharge_mw, empty)
    return jnp.where(ready, low, 0), jnp.where(ready, high, 0)


def _stack(n_unit: int, minutes: int, dtype: Any, ratings: dict[str, Any]) -> VehicleParams:
    """Vehicles of rows that may name daily trips (depart_h, arrive_h, energy_kwh) beside ratings."""
    rest = dict(ratings)
    schedules = rest.pop("trips", [WORK_TRIP] * n_unit)
    plans = [[CommuteTrip(*trip) for trip in trips] for trips in schedules]
    return vehicle_params(daily_trips(plans, minutes, dtype), dtype, **rest)


def _begin(params: VehicleParams, start: EpisodeStart) -> VehicleState:
    """Trips of the episode: another day of them, or shifted by whole steps, their energy times a recorded factor."""
    layout, trips = start.layout, params.trips
    if layout.trip_days > 1:
        return init(params, start.soc, rotated(purpose_key(start.key, Purpose.TRIPS), trips, layout.trip_days))
    shift, energy = jax.random.split(purpose_key(start.key, Purpose.TRIPS))
    factors = start.task.trip_factor
    at = integers(energy, trips.mask.shape, 0, factors.shape[0])
    return init(params, start.soc, jittered(shift, trips, layout.jitter_steps, _minutes(start.dt_hours), factors[at]))


def _advance(
    params: VehicleParams, state: VehicleState, own: Array, exogenous: Exogenous
) -> tuple[VehicleState, VehicleDelivery, Array]:
    p = command(params, own)
    return *step(params, state, p, exogenous.dt_hours, exogenous.minute), p


def rating_mw(params: VehicleParams) -> Array:
    """The larger rating of the charger, (G,) [MW]."""
    return jnp.maximum(params.charge_mw, params.discharge_mw)


def home(units: SeenUnits, ahead: int = 0) -> Array:
    """Mask of the vehicles plugged in `ahead` steps from now, (G,) as numbers."""
    minutes = _minutes(units.scene.dt_hours)
    # where a vehicle is at an instant, the window before it has decided
    there = at_home(episode_trips(units.params, units.state), units.scene.minute + (ahead - 1) * minutes, minutes)
    return there.astype(units.state.soc.dtype)


def ready(units: SeenUnits) -> Array:
    """1 where the battery holds what the driver expects on departure, (G,)."""
    return (units.state.soc >= units.params.soc_departure_min).astype(units.state.soc.dtype)


def event_hours(units: SeenUnits) -> tuple[Array, Array]:
    """Hours until a vehicle departs and until it returns, (G,) each."""
    plan, minutes = episode_trips(units.params, units.state), _minutes(units.scene.dt_hours)
    return hours_to_events(plan, units.scene.minute, minutes, units.state.soc.dtype)


def limits(units: SeenUnits) -> tuple[Array, Array]:
    """Feasible charge and discharge of the coming step over their ratings, (G,) each."""
    low, high = power_bounds(units.params, units.state, units.scene.dt_hours, units.scene.minute)
    return -low / units.params.charge_mw, high / units.params.discharge_mw


KIND = DeviceKind(
    name="vehicle",
    label="vehicle",
    actions=ACTIONS,
    idle=IDLE,
    make=vehicle_params,
    begin=_begin,
    advance=_advance,
    rating_mw=rating_mw,
    grid_fields=(Field("p_norm", "1", -1, 1, lambda units: units.state.p_mw / rating_mw(units.params)),),
    own_fields=(
        Field("departure_ready", "1", -1, 1, ready),
        Field("is_home", "1", -1, 1, lambda units: units.once(home)),
        Field("p_mw_norm", "1", -1, 1, lambda units: units.state.p_mw / rating_mw(units.params)),
        Field("soc", "1", -1, 1, lambda units: units.state.soc),
        Field("soc_departure_min", "1", -1, 1, lambda units: units.params.soc_departure_min),
        *TIME,
        Field("time_to_arrival_norm", "day", -1, 1, lambda units: units.once(event_hours)[1] / 24),
        Field("time_to_departure_norm", "day", -1, 1, lambda units: units.once(event_hours)[0] / 24),
    ),
    terms={**ENERGY_TERMS, "unmet_energy": lambda unit: -unit.params.unmet_usd_per_mwh * unit.out.unmet_mwh},
    costs={
        "departure_shortfall": lambda out: jnp.sum(out.shortfall_mwh),
        "unmet_energy": lambda out: jnp.sum(out.unmet_mwh),
    },
    stack=_stack,
    settle=lambda settings, minutes, dtype: {"leaves": {"trip_factor": jnp.ones(1, dtype)}},
    padding=PADDING,
    stores=True,
)
