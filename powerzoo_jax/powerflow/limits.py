"""Operating limits: how far a solved state lies outside them, never negative, 0 when satisfied."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

COLLAPSE_PU = 0.5  # a solved voltage below this is a collapse of the task, not of the solver


def voltage_excess(v_pu: Array, v_min_pu: Array, v_max_pu: Array) -> Array:
    """Distance of each voltage outside its band: (N,) [pu] -> (N,) [pu]."""
    return jnp.maximum(v_min_pu - v_pu, 0) + jnp.maximum(v_pu - v_max_pu, 0)


def loading_excess(s_pu: Array, rate_pu: Array) -> Array:
    """Apparent power beyond the rating: (L,) (L,) [pu] -> (L,) [pu]; a rating of 0 means no limit."""
    return jnp.where(rate_pu > 0, jnp.maximum(s_pu - rate_pu, 0), 0)
