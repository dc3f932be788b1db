"""Operating limits: how far a solved state lies outside them, never negative, 0 when satisfied."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

COLLAPSE_PU = 0.5  # a solved voltage below this is a collapse of the task, not of the solver


def range_excess(x: Array, low: Array, high: Array) -> Array:
    """Distance of each value outside its range, in the unit of the values; an infinite limit is none."""
    return jnp.maximum(low - x, 0) + jnp.maximum(x - high, 0)


def voltage_excess(v_pu: Array, v_min_pu: Array, v_max_pu: Array) -> Array:
    """Distance of each voltage outside its band: (N,) [pu] -> (N,) [pu]."""
    return range_excess(v_pu, v_min_pu, v_max_pu)


def loading_excess(s_pu: Array, rate_pu: Array) -> Array:
    """Apparent power beyond the rating: (L,) (L,) [pu] -> (L,) [pu]; a rating of 0 means no limit."""
    return jnp.where(rate_pu > 0, jnp.maximum(s_pu - rate_pu, 0), 0)
