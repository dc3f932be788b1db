"""The apparent-power circle of an inverter; active power has priority."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array


def reactive_limit(s_mva: Array, p_mw: Array) -> Array:
    """Largest |Q| beside a fixed P, (G,) [MVAr]: sqrt(S^2 - P^2), 0 where P uses the whole rating."""
    room = (s_mva - p_mw) * (s_mva + p_mw)
    inside = room > 0
    # the slope of a root at 0 is infinite, and 0 * inf would put NaN into a gradient
    return jnp.where(inside, jnp.sqrt(jnp.where(inside, room, 1)), 0)


def reactive(s_mva: Array, p_mw: Array, command_mvar: Array) -> Array:
    """What an inverter delivers of a reactive command beside a fixed P, (G,) [MVAr]."""
    limit = reactive_limit(s_mva, p_mw)
    return jnp.clip(command_mvar, -limit, limit)
