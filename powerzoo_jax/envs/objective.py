"""Named reward terms: money of one step in $, positive when earned. No term is a penalty in disguise."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array


def energy_sales(price_per_mwh: Array, p_mw: Array, dt_hours: float) -> Array:
    """price * P * dt: what injected energy earns and consumed energy costs; () (G,) -> (G,) [$]."""
    return price_per_mwh * p_mw * dt_hours


def settlement(
    soc: Array, soc_start: Array, capacity_mwh: Array, price_per_mwh: Array, eta_charge: Array, eta_discharge: Array
) -> Array:
    """Value of the energy left in store against the start, (G,) [$].

    d = (soc - soc_0) C;  price * d * eta_d for d > 0,  price * d / eta_c for d < 0,
    so that emptying the battery at the horizon earns nothing at the mean price.
    """
    change = (soc - soc_start) * capacity_mwh
    return price_per_mwh * change * jnp.where(change > 0, eta_discharge, 1 / eta_charge)


def unserved(voll_per_mwh: Array, energy_mwh: Array) -> Array:
    """-VOLL * energy not served, () [$]."""
    return -voll_per_mwh * energy_mwh


def replacement(soc: Array, soc_start: Array, capacity_mwh: Array, price_per_mwh: Array, eta_discharge: Array) -> Array:
    """Value of the energy left in store against the start at the price of making it anew, (G,) [$].

    price * (soc - soc_0) C / eta_d, the same for a rise and a fall.
    """
    return price_per_mwh * (soc - soc_start) * capacity_mwh / eta_discharge
