"""Spaces as plain data (NumPy bounds), so that the core needs no Gymnasium."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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


class Field(NamedTuple):
    """Observed number: its public name, unit ("1" for a ratio), declared bounds, and its value.

    value:  what is observed -> array; a field of a kind of device has one entry a unit, (G,) or () for all of them
    """

    name: str
    unit: str
    low: float
    high: float
    value: Callable[[Any], Array]


@dataclass(frozen=True, kw_only=True, eq=False)
class Observed:
    """Base of what fields take their values from: a quantity that several of them show is computed once."""

    _found: dict[Callable[[Any], Any], Any] = field(default_factory=dict, init=False, repr=False)

    def once(self, quantity: Callable[[Any], Any]) -> Any:
        """quantity(self), computed by the first field that asks."""
        if quantity not in self._found:
            self._found[quantity] = quantity(self)
        return self._found[quantity]


def sample(space: Space, key: Array) -> Array:
    """Uniform sample (A, U) [-] of a space, from a PRNG key."""
    if isinstance(space, Box):
        return uniform_between(key, space.shape, space.low, space.high, space.low.dtype)
    if isinstance(space, Discrete):
        return integers(key, (), 0, space.n)
    return integers(key, space.nvec.shape, 0, jnp.asarray(space.nvec))


def contains(space: Space, x: np.ndarray) -> bool:
    """Membership test of a host value (A, U) [-] in a space: shape, bounds, no NaN."""
    x = np.asarray(x)
    if isinstance(space, Box):
        return x.shape == space.shape and bool(np.all((x >= space.low) & (x <= space.high)))
    if isinstance(space, Discrete):
        return x.shape == () and x.dtype.kind in "iu" and bool(0 <= x < space.n)
    return x.shape == space.nvec.shape and x.dtype.kind in "iu" and bool(np.all((x >= 0) & (x < space.nvec)))
