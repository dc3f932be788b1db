"""Spaces as plain data (NumPy bounds), so that the core needs no Gymnasium."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base.random import integers, uniform_between


class Box(NamedTuple):
    """Continuous values between two bounds of the same shape and dtype.

    low, high:  (A, O) of observations, (A, U) of actions; in the units of the field table, actions in [-1, 1]
    """

    low: np.ndarray
    high: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.low.shape


class Discrete(NamedTuple):
    """One integer in [0, n)."""

    n: int


class MultiDiscrete(NamedTuple):
    """Integers in [0, nvec) element by element.

    nvec:  (A, U) int32
    """

    nvec: np.ndarray


Space = Box | Discrete | MultiDiscrete


def sample(space: Space, key: Array) -> Array:
    """Draw uniformly from a space."""
    if isinstance(space, Box):
        return uniform_between(key, space.shape, space.low, space.high, space.low.dtype)
    if isinstance(space, Discrete):
        return integers(key, (), 0, space.n)
    return integers(key, space.nvec.shape, 0, jnp.asarray(space.nvec))


def contains(space: Space, x: np.ndarray) -> bool:
    """Membership test of a host value in a space (shape, bounds, no NaN)."""
    x = np.asarray(x)
    if isinstance(space, Box):
        return x.shape == space.shape and bool(np.all((x >= space.low) & (x <= space.high)))
    if isinstance(space, Discrete):
        return x.shape == () and x.dtype.kind in "iu" and bool(0 <= x < space.n)
    return x.shape == space.nvec.shape and x.dtype.kind in "iu" and bool(np.all((x >= 0) & (x < space.nvec)))
