"""Battery storage: energy balance, power limits and throughput cost over a unit axis."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from powerzoo_jax.devices.protocol import Delivery


@struct.dataclass(kw_only=True)
class StorageParams:
    """Ratings of a storage fleet. Padded rows have mask False, capacity and efficiencies 1.

    capacity_mwh:            (G,)  [MWh]
    power_mw:                (G,)  [MW]    rating in both directions
    eta_charge, eta_discharge: (G,) [-]    one-way efficiencies
    soc_min, soc_max:        (G,)  [-]     operating band
    soc_low, soc_high:       (G,)  [-]     range the initial state of charge is drawn from (equal: fixed)
    degradation_per_mwh:     (G,)  [$/MWh] cost of terminal throughput
    mask:                    (G,)  bool
    """

    capacity_mwh: Array
    power_mw: Array
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

    soc:   (G,)  [-]   stored energy over capacity
    p_mw:  (G,)  [MW]  power delivered in the last step
    """

    soc: Array
    p_mw: Array


PADDING = {
    "capacity_mwh": 1.0,
    "power_mw": 1.0,
    "eta_charge": 1.0,
    "eta_discharge": 1.0,
}  # keeps 0/0 out of padded rows' gradients


def storage_params(
    n_unit: int,
    dtype: Any,
    *,
    capacity_mwh: float = 50.0,
    power_mw: float = 20.0,
    eta_roundtrip: float = 0.9025,
    soc_min: float = 0.1,
    soc_max: float = 0.9,
    initial_soc: float | tuple[float, float] = 0.5,
    degradation_per_mwh: float = 0.0,
) -> StorageParams:
    """Parameters of `n_unit` equal batteries; the round trip splits evenly, eta = sqrt(eta_roundtrip) each way.

    initial_soc:  one value, or (low, high) to draw from at every reset
    Raises ValueError for non-positive ratings, reversed limits or efficiencies outside (0, 1].
    """
    low, high = initial_soc if isinstance(initial_soc, tuple) else (initial_soc, initial_soc)
    for name, value in (("capacity_mwh", capacity_mwh), ("power_mw", power_mw)):
        if not value > 0:
            raise ValueError(f"battery {name} = {value} must be positive.")
    if not 0 < eta_roundtrip <= 1:
        raise ValueError(f"battery eta_roundtrip = {eta_roundtrip} must lie in (0, 1].")
    if not 0 <= soc_min < soc_max <= 1:
        raise ValueError(f"battery soc_min = {soc_min}, soc_max = {soc_max}: need 0 <= soc_min < soc_max <= 1.")
    if not soc_min <= low <= high <= soc_max:
        raise ValueError(f"battery initial_soc = {initial_soc} must lie inside [{soc_min}, {soc_max}].")
    if not degradation_per_mwh >= 0:
        raise ValueError(f"battery degradation_per_mwh = {degradation_per_mwh} must not be negative.")
    eta = math.sqrt(eta_roundtrip)

    def each(value: float) -> Array:
        return jnp.asarray(np.full(n_unit, value), dtype)

    return StorageParams(
        capacity_mwh=each(capacity_mwh),
        power_mw=each(power_mw),
        eta_charge=each(eta),
        eta_discharge=each(eta),
        soc_min=each(soc_min),
        soc_max=each(soc_max),
        soc_low=each(low),
        soc_high=each(high),
        degradation_per_mwh=each(degradation_per_mwh),
        mask=jnp.ones(n_unit, bool),
    )


def init(params: StorageParams, soc: Array) -> StorageState:
    """Idle fleet at a given state of charge (G,), kept inside the operating band."""
    soc = jnp.clip(soc, params.soc_min, params.soc_max)
    return StorageState(soc=soc, p_mw=jnp.zeros_like(soc))


def power_bounds(params: StorageParams, state: StorageState, dt_hours: float) -> tuple[Array, Array]:
    """Feasible terminal power of the coming step, (low, high) each (G,) [MW].

    high = min(P, (soc - soc_min) C eta_d / dt),  low = -min(P, (soc_max - soc) C / (eta_c dt))
    """
    stored = jnp.maximum(state.soc - params.soc_min, 0) * params.capacity_mwh
    room = jnp.maximum(params.soc_max - state.soc, 0) * params.capacity_mwh
    high = jnp.minimum(params.power_mw, stored * params.eta_discharge / dt_hours)
    low = -jnp.minimum(params.power_mw, room / (params.eta_charge * dt_hours))
    return jnp.where(params.mask, low, 0), jnp.where(params.mask, high, 0)


def step(
    params: StorageParams, state: StorageState, command_mw: Array, dt_hours: float
) -> tuple[StorageState, Delivery]:
    """Deliver what limits allow of `command_mw` (G,) for one step.

    P = clip(command, low, high);  soc' = soc - P dt / (eta_d C) for P > 0,  soc - P dt eta_c / C for P < 0.
    The band is clipped once more, which only removes rounding.
    """
    low, high = power_bounds(params, state, dt_hours)
    p = jnp.clip(command_mw, low, high)
    per_mw = jnp.where(p > 0, 1 / params.eta_discharge, params.eta_charge)
    soc = state.soc - p * per_mw * dt_hours / params.capacity_mwh
    soc = jnp.clip(soc, params.soc_min, params.soc_max)
    lost = jnp.where(params.mask, jnp.abs(command_mw - p), 0)
    return StorageState(soc=soc, p_mw=p), Delivery(p_mw=p, undelivered_mw=lost)


def degradation_usd(params: StorageParams, p_mw: Array, dt_hours: float) -> Array:
    """Cost of terminal throughput, (G,) [$]: c |P| dt."""
    return params.degradation_per_mwh * jnp.abs(p_mw) * dt_hours
