"""Battery storage: energy balance, power limits, reactive power and throughput cost over a unit axis."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.ranges import Count, checks_ranges
from powerzoo_jax.base.spaces import Field
from powerzoo_jax.devices.protocol import (
    TIME,
    Charge,
    Delivery,
    DeviceKind,
    EfficiencyRating,
    EpisodeStart,
    Exogenous,
    PositiveRating,
    Rating,
    SeenUnits,
    ShareRating,
    SignlessRating,
    UnitAccount,
    charge_range,
    columns,
    inverter,
    reactive,
)


class Cell(Protocol):
    """Columns of the energy balance and the wear of a battery, stationary or in a vehicle."""

    @property
    def capacity_mwh(self) -> Array: ...

    @property
    def eta_charge(self) -> Array: ...

    @property
    def eta_discharge(self) -> Array: ...

    @property
    def soc_min(self) -> Array: ...

    @property
    def soc_max(self) -> Array: ...

    @property
    def degradation_per_mwh(self) -> Array: ...


@struct.dataclass(kw_only=True)
class StorageParams:
    """Ratings of a storage fleet. Padded rows have mask False, capacity and efficiencies 1.

    capacity_mwh:            (G,)  [MWh]
    power_mw:                (G,)  [MW]    rating in both directions
    s_mva:                   (G,)  [MVA]   inverter rating
    eta_charge, eta_discharge: (G,) [-]    one-way efficiencies
    soc_min, soc_max:        (G,)  [-]     operating band
    soc_low, soc_high:       (G,)  [-]     range the initial state of charge is drawn from (equal: fixed)
    degradation_per_mwh:     (G,)  [$/MWh] cost of terminal throughput
    mask:                    (G,)  bool
    """

    capacity_mwh: Array
    power_mw: Array
    s_mva: Array
    eta_charge: Array
    eta_discharge: Array
    soc_min: Array
    soc_max: Array
    soc_low: Array
    soc_high: Array
    degradation_per_mwh: Array
    mask: Array


@struct.dataclass(kw_only=True)
class StorageState:
    """State of a storage fleet.

    soc:             (G,)  [-]     stored energy over capacity
    p_mw:            (G,)  [MW]    power delivered in the last step
    q_mvar:          (G,)  [MVAr]  reactive power delivered in the last step
    throughput_mwh:  (G,)  [MWh]   terminal energy since reset, both directions
    """

    soc: Array
    p_mw: Array
    q_mvar: Array
    throughput_mwh: Array


PADDING = {
    "capacity_mwh": 1.0,
    "power_mw": 1.0,
    "s_mva": 1.0,
    "eta_charge": 1.0,
    "eta_discharge": 1.0,
}  # keeps 0/0 out of padded rows' gradients

ACTIONS = (("power", -1.0, 1.0), ("q_control", -1.0, 1.0))  # of the ratings, positive = discharge
IDLE = (0.0, 0.0)


@checks_ranges("battery")
def storage_params(
    n_unit: Count,
    dtype: Any,
    *,
    capacity_mwh: PositiveRating = 50.0,
    power_mw: PositiveRating = 20.0,
    s_mva: PositiveRating | None = None,
    eta_roundtrip: EfficiencyRating = 0.9025,
    soc_min: ShareRating = 0.1,
    soc_max: ShareRating = 0.9,
    initial_soc: Charge = 0.5,
    degradation_per_mwh: SignlessRating = 0.0,
) -> StorageParams:
    """Parameters of `n_unit` batteries; the round trip splits evenly, eta = sqrt(eta_roundtrip) each way.

    s_mva:        inverter rating, power_mw where none is given
    initial_soc:  one value, or (low, high) to draw from at every reset, or such a pair per unit
    Every other rating is one value for all, or one per unit.
    Raises ValueError for non-positive ratings, reversed limits or efficiencies outside (0, 1].
    """
    low, high = charge_range(initial_soc)
    s_mva = power_mw if s_mva is None else s_mva
    inverter("battery", s_mva, power_mw, "power_mw")
    if not _ordered(0, soc_min, soc_max, 1) or not np.all(np.asarray(soc_min) < np.asarray(soc_max)):
        raise ValueError(f"battery soc_min = {soc_min}, soc_max = {soc_max}: need 0 <= soc_min < soc_max <= 1.")
    if not _ordered(soc_min, low, high, soc_max):
        raise ValueError(f"battery initial_soc = {initial_soc} must lie inside [{soc_min}, {soc_max}].")
    eta = np.sqrt(np.asarray(eta_roundtrip, np.float64))
    made = columns(
        n_unit,
        dtype,
        capacity_mwh=capacity_mwh,
        power_mw=power_mw,
        s_mva=s_mva,
        eta_charge=eta,
        eta_discharge=eta,
        soc_min=soc_min,
        soc_max=soc_max,
        soc_low=low,
        soc_high=high,
        degradation_per_mwh=degradation_per_mwh,
    )
    return StorageParams(**made, mask=jnp.ones(n_unit, bool))


def _ordered(*values: Rating) -> bool:
    """Test that each value is at most the next, unit by unit."""
    return all(np.all(np.asarray(a) <= np.asarray(b)) for a, b in pairwise(values))


def init(params: StorageParams, soc: Array) -> StorageState:
    """Idle fleet at a given state of charge (G,), kept inside the operating band."""
    soc = jnp.clip(soc, params.soc_min, params.soc_max)
    nothing = jnp.zeros_like(soc)
    return StorageState(soc=soc, p_mw=nothing, q_mvar=nothing, throughput_mwh=nothing)


def command(params: StorageParams, action: Array) -> tuple[Array, Array | None]:
    """Normalised action (G, 1 or 2) -> (active [MW], reactive [MVAr] or None), (G,) each."""
    return action[:, 0] * params.power_mw, action[:, 1] * params.s_mva if action.shape[1] > 1 else None


def energy_bounds(cell: Cell, soc: Array, dt_hours: float) -> tuple[Array, Array]:
    """Terminal power that fills or empties the band in one step, (charge (G,), discharge (G,)) [MW], both >= 0.

    charge = (soc_max - soc) C / (eta_c dt),  discharge = (soc - soc_min) C eta_d / dt
    """
    stored = jnp.maximum(soc - cell.soc_min, 0) * cell.capacity_mwh
    room = jnp.maximum(cell.soc_max - soc, 0) * cell.capacity_mwh
    return room / (cell.eta_charge * dt_hours), stored * cell.eta_discharge / dt_hours


def power_bounds(params: StorageParams, state: StorageState, dt_hours: float) -> tuple[Array, Array]:
    """Feasible terminal power of the coming step, (low, high) each (G,) [MW]: the rating or the energy, if less."""
    charge, discharge = energy_bounds(params, state.soc, dt_hours)
    low, high = -jnp.minimum(params.power_mw, charge), jnp.minimum(params.power_mw, discharge)
    return jnp.where(params.mask, low, 0), jnp.where(params.mask, high, 0)


def charge(cell: Cell, soc: Array, p_mw: Array, dt_hours: float) -> Array:
    """State of charge after one step of terminal power, (G,).

    soc' = soc - P dt / (eta_d C) for P > 0,  soc - P dt eta_c / C for P < 0.
    The band is clipped once more, which only removes rounding; limits are applied before, never here.
    """
    per_mw = jnp.where(p_mw > 0, 1 / cell.eta_discharge, cell.eta_charge)
    return jnp.clip(soc - p_mw * per_mw * dt_hours / cell.capacity_mwh, cell.soc_min, cell.soc_max)


def step(
    params: StorageParams,
    state: StorageState,
    command_mw: Array,
    dt_hours: float,
    command_mvar: Array | None = None,
) -> tuple[StorageState, Delivery]:
    """Deliver what limits allow of `command_mw` (G,) and then of `command_mvar` (G,) for one step.

    P = clip(command, low, high);  |Q| <= sqrt(S^2 - P^2). Without a reactive command Q = 0.
    """
    low, high = power_bounds(params, state, dt_hours)
    p = jnp.clip(command_mw, low, high)
    q = jnp.zeros_like(p)
    if command_mvar is not None:
        q = jnp.where(params.mask, reactive(params.s_mva, p, command_mvar), 0)
    new = StorageState(
        soc=charge(params, state.soc, p, dt_hours),
        p_mw=p,
        q_mvar=q,
        throughput_mwh=state.throughput_mwh + jnp.abs(p) * dt_hours,
    )
    lost = jnp.where(params.mask, jnp.abs(command_mw - p), 0)
    return new, Delivery(p, lost, q, degradation_usd(params, p, dt_hours))


def degradation_usd(params: Cell, p_mw: Array, dt_hours: float) -> Array:
    """Cost of terminal throughput, (G,) [$]: c |P| dt."""
    return params.degradation_per_mwh * jnp.abs(p_mw) * dt_hours


def settlement(
    soc: Array, soc_start: Array, capacity_mwh: Array, price_per_mwh: Array, eta_charge: Array, eta_discharge: Array
) -> Array:
    """Value of the energy left in store against the start, (G,) [$].

    d = (soc - soc_0) C;  price * d * eta_d for d > 0,  price * d / eta_c for d < 0,
    so that emptying the battery at the horizon earns nothing at the mean price.
    """
    change = (soc - soc_start) * capacity_mwh
    return price_per_mwh * change * jnp.where(change > 0, eta_discharge, 1 / eta_charge)


def _settled(unit: UnitAccount) -> Array:
    """Settlement at the mean price of the episode, due in its last step; 0 for padded rows."""
    cell = unit.params
    left = settlement(
        unit.after.soc, unit.soc_start, cell.capacity_mwh, unit.mean_per_mwh, cell.eta_charge, cell.eta_discharge
    )
    return jnp.where(unit.last, jnp.where(cell.mask, left, 0), 0)


ENERGY_TERMS = {
    "energy_sales": lambda unit: unit.price_per_mwh * unit.out.p_mw * unit.dt_hours,
    "degradation": lambda unit: -degradation_usd(unit.params, unit.out.p_mw, unit.dt_hours),
    "settlement": _settled,
    "soc_shaping": lambda unit: -jnp.abs(unit.after.soc - unit.task.target_soc),  # the weight of the term makes it $
}
"""Reward terms of every kind that stores energy."""


def _begin(params: StorageParams, start: EpisodeStart) -> StorageState:
    return init(params, start.soc)


def _advance(
    params: StorageParams, state: StorageState, own: Array, exogenous: Exogenous
) -> tuple[StorageState, Delivery, Array]:
    p, q = command(params, own)
    return *step(params, state, p, exogenous.dt_hours, q), p


def _limits(units: SeenUnits) -> tuple[Array, Array]:
    """Feasible charge and discharge of the coming step over the rating, (G,) each."""
    low, high = power_bounds(units.params, units.state, units.scene.dt_hours)
    return -low / units.params.power_mw, high / units.params.power_mw


def _unit_state(units: SeenUnits) -> Array:
    cell, state = units.params, units.state
    parts = [state.soc, state.p_mw / cell.power_mw, state.q_mvar / cell.s_mva]
    return jnp.stack([*parts, cell.soc_max - state.soc, state.soc - cell.soc_min], -1)


KIND = DeviceKind(
    name="storage",
    label="battery",
    actions=ACTIONS,
    idle=IDLE,
    make=storage_params,
    begin=_begin,
    advance=_advance,
    rating_mw=lambda params: params.power_mw,
    grid_fields=(
        Field("soc", "1", -1, 1, lambda units: units.state.soc),
        Field("p_dis_max", "1", -1, 1, lambda units: units.once(_limits)[1]),
        Field("p_chg_max", "1", -1, 1, lambda units: units.once(_limits)[0]),
        Field("p_norm", "1", -1, 1, lambda units: units.state.p_mw / units.params.power_mw),
    ),
    own_fields=(
        Field("p_charge_max_norm", "1", -1, 1, lambda units: units.once(_limits)[0]),
        Field("p_discharge_max_norm", "1", -1, 1, lambda units: units.once(_limits)[1]),
        Field("p_mw_norm", "1", -1, 1, lambda units: units.state.p_mw / units.params.power_mw),
        Field("soc", "1", -1, 1, lambda units: units.state.soc),
        *TIME,
    ),
    unit_state=_unit_state,
    terms=ENERGY_TERMS,
    padding=PADDING,
    stores=True,
    q_optional=True,
)
