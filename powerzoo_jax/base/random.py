"""Random numbers: one seed, sub-streams keyed by purpose and never by order of use, and draws of one width.

JAX takes other bits of the same key when it draws 64-bit numbers. References are computed in float64 and learners play
in float32, so every draw is made in 32 bits and then cast: a key means the same episode under both float types.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from powerzoo_jax.base.numerics import FLOAT, INT


class Purpose(IntEnum):
    """Purpose of a sub-stream of an episode's key. Values are frozen: changing one changes every trajectory."""

    DAY = 1
    PAIRED_DAY = 2
    SOC = 3
    START_STEP = 4
    NEXT_EPISODE = 5
    POLICY = 6
    FORECAST_NOISE = 7
    TRIPS = 8
    JOBS = 9
    WORKLOAD = 10
    OFFERS = 11
    ATTACKS = 12


def purpose_key(key: Array, purpose: Purpose) -> Array:
    """Return the sub-stream, a PRNG key (), of `key` () for one purpose."""
    return jax.random.fold_in(key, int(purpose))


def uniform(key: Array, shape: tuple[int, ...], dtype: Any = float) -> Array:
    """Return uniform numbers in [0, 1) of a shape; float32 bits, cast to `dtype`."""
    return jax.random.uniform(key, shape, FLOAT).astype(dtype)


def uniform_between(key: Array, shape: tuple[int, ...], low: ArrayLike, high: ArrayLike, dtype: Any = float) -> Array:
    """Return uniform numbers in [low, high), u (high - low) + low in `dtype` for u of `uniform`."""
    least, most = jnp.asarray(low, dtype), jnp.asarray(high, dtype)
    # u < 1, yet the sum may round up to `most`, and down below `least` where the ends are far from zero
    return jnp.maximum(least, uniform(key, shape, dtype) * (most - least) + least)


def normal(key: Array, shape: tuple[int, ...], dtype: Any = float) -> Array:
    """Return standard normal numbers of a shape; float32 bits, cast to `dtype`."""
    return jax.random.normal(key, shape, FLOAT).astype(dtype)


def integers(key: Array, shape: tuple[int, ...], low: ArrayLike, high: ArrayLike) -> Array:
    """Return whole numbers in [low, high), int32; ends of a shape that broadcasts to `shape`."""
    return jax.random.randint(key, shape, low, high, INT)


def bernoulli(key: Array, shape: tuple[int, ...], probability: ArrayLike) -> Array:
    """Return True with a probability, bool of a shape."""
    return jax.random.bernoulli(key, jnp.asarray(probability, FLOAT), shape)


def poisson(key: Array, shape: tuple[int, ...], mean: ArrayLike) -> Array:
    """Return Poisson numbers of a mean that broadcasts to `shape`, int32; float32 bits inside, whatever the type."""
    return jax.random.poisson(key, jnp.asarray(mean, FLOAT), shape, INT)


def one_of(key: Array, logit: Array) -> Array:
    """Position () int32 of one entry, by chances proportional to exp(logit), logit (n,) [-]; drawn in float32."""
    return jax.random.categorical(key, logit.astype(FLOAT)).astype(INT)
