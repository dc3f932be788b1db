"""Named cost channels: non-negative, in physical units, 0 when satisfied. A channel never mixes units."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.powerflow.limits import loading_excess, voltage_excess

UNITS = {
    "voltage_violation": "pu",
    "thermal_overload": "MVA",
    "unserved_energy": "MWh",
    "resource": "MW",
    "power_balance": "MW",
    "reserve_shortfall": "MW",
    "reactive_shortfall": "Mvar",
    "n_minus_1": "MW",
    "departure_shortfall": "MWh",
    "unmet_energy": "MWh",
    "vuf_violation": "percent",
    "sla": "jobs",
    "overtemp": "degC",
    "power_deficit": "MW",
}


def voltage_violation(v_pu: Array, v_min: Array, v_max: Array, failed: Array) -> Array:
    """Sum over buses of the distance outside the band, () [pu]; the sum of v_min after a failed solve."""
    return jnp.where(failed, jnp.sum(v_min), jnp.sum(voltage_excess(v_pu, v_min, v_max)))


def thermal_overload(p_from: Array, q_from: Array, rate: Array, base_mva: Array, failed: Array) -> Array:
    """Sum over branches of apparent power beyond the rating, () [MVA]; 0 after a failed solve."""
    limited = rate > 0
    square = jnp.where(limited, p_from * p_from + q_from * q_from, 1)  # the root of an unused 0 has no gradient
    excess = jnp.sum(loading_excess(jnp.sqrt(square), rate)) * base_mva
    return jnp.where(failed, 0, excess)


def undelivered(undelivered_mw: Array) -> Array:
    """Commanded less delivered device power over the fleet, () [MW]."""
    return jnp.sum(undelivered_mw)
