"""Kinds of number that a current law is written for once: arrays of the device, of the host, and pairs of floats.

With `+ - * /` alone a law also takes `Wide` numbers, which compute in double-single arithmetic (`base.double_single`);
the functions below serve arrays of the device and of the host.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from powerzoo_jax.base import double_single as ds


class Wide:
    """Double-single number or array with operators; the other operand may be a float or an array."""

    __array_ufunc__ = None  # arrays of the host leave the operation to this class

    def __init__(self, pair: ds.Pair) -> None:
        self.pair = pair

    def __add__(self, other: Any) -> Wide:
        return Wide(ds.add(self.pair, self._like(other)))

    def __sub__(self, other: Any) -> Wide:
        return Wide(ds.subtract(self.pair, self._like(other)))

    def __rsub__(self, other: Any) -> Wide:
        return Wide(ds.subtract(self._like(other), self.pair))

    def __neg__(self) -> Wide:
        return Wide(ds.negative(self.pair))

    def __mul__(self, other: Any) -> Wide:
        return Wide(ds.multiply(self.pair, self._like(other)))

    def __rtruediv__(self, other: Any) -> Wide:
        return Wide(ds.divide(self._like(other), self.pair))

    __radd__, __rmul__ = __add__, __mul__

    def _like(self, other: Any) -> ds.Pair:
        if isinstance(other, Wide):
            return other.pair
        return ds.pair(jnp.broadcast_to(jnp.asarray(other, self.pair.high.dtype), self.pair.high.shape))


def where(condition: Any, a: Any, b: Any) -> Any:
    """Elementwise choice, on the host for arrays of the host."""
    return np.where(condition, a, b) if isinstance(condition, np.ndarray) else jnp.where(condition, a, b)


def clip(x: Any, low: Any, high: Any) -> Any:
    """Values of x, or the nearer bound beyond it."""
    return np.clip(x, low, high) if isinstance(x, np.ndarray) else jnp.clip(x, low, high)


def inverse_root(x: Any) -> Any:
    """1 / sqrt(x)."""
    return 1 / np.sqrt(x) if isinstance(x, np.ndarray) else lax.rsqrt(x)
