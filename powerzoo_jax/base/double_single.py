"""Double-single arithmetic: a number as the unevaluated sum of two floats, for digits that one float does not have.

A pair (high, low) with |low| at most half a unit in the last place of high carries twice the digits of its float: 48
bits for float32, where float64 has 53. Built from error-free transformations (Dekker 1971, doi:10.1007/BF01397083;
Ogita, Rump and Oishi 2005, doi:10.1137/030601818), in additions and multiplications only, so that it runs at the speed
of float32 on devices without float64. Range and smallest number stay those of the float.

Compilers keep the order of sums, but may contract a product and the sum that reads it to one rounding. So a product is
built from parts whose products are exact, where that changes nothing, and terms of an exact sum must not be products
that round. No barriers: they would end a kernel at every line.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base.numerics import FLOAT

HALF = {"float32": 12, "float64": 27}  # digits that the low half of a float gets


class Pair(NamedTuple):
    """Number high + low; arrays of one shape and float type."""

    high: Array
    low: Array


def pair(value: Array) -> Pair:
    """Pair of a float, with nothing in its low part."""
    return Pair(value, jnp.zeros_like(value))


def split_constant(value: np.ndarray, dtype: np.dtype = FLOAT) -> tuple[np.ndarray, np.ndarray]:
    """Parts high and low of a float64 constant, on the host."""
    wide = np.asarray(value, np.float64)
    high = wide.astype(dtype)
    return high, (wide - high.astype(np.float64)).astype(dtype)


def two_sum(a: Array, b: Array) -> Pair:
    """a + b without error: the rounded sum and what rounding took (Knuth)."""
    total = a + b
    moved = total - a
    return Pair(total, (a - (total - moved)) + (b - moved))


def _quick_sum(a: Array, b: Array) -> Pair:
    """a + b without error where |a| >= |b|."""
    total = a + b
    return Pair(total, b - (total - a))


def _halves(a: Array) -> tuple[Array, Array]:
    """a as a sum of two floats of half the digits, whose products are exact; rounded in its bits, not by a product."""
    whole = np.dtype(f"int{8 * a.dtype.itemsize}")
    digits = HALF[a.dtype.name]
    bits = lax.bitcast_convert_type(a, whole) + whole.type(1 << (digits - 1))
    high = lax.bitcast_convert_type(bits & whole.type(-(1 << digits)), a.dtype)
    return high, a - high


def two_product(a: Array, b: Array) -> Pair:
    """a b without error: the product to within a unit in its last place, and the rest."""
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    # each product fits a float, and so does the sum of the mixed ones
    high, low = two_sum(a_high * b_high, a_high * b_low + a_low * b_high)
    return Pair(high, low + a_low * b_low)


def add(a: Pair, b: Pair) -> Pair:
    """a + b."""
    high, low = two_sum(a.high, b.high)
    carried, rest = two_sum(a.low, b.low)
    high, low = _quick_sum(high, low + carried)
    return _quick_sum(high, low + rest)


def negative(a: Pair) -> Pair:
    """-a."""
    return Pair(-a.high, -a.low)


def subtract(a: Pair, b: Pair) -> Pair:
    """a - b."""
    return add(a, negative(b))


def multiply(a: Pair, b: Pair) -> Pair:
    """a b."""
    high, low = two_product(a.high, b.high)
    return _quick_sum(high, low + (a.high * b.low + a.low * b.high))


def divide(a: Pair, b: Pair) -> Pair:
    """a / b: the quotient of the high parts, corrected once by what it leaves."""
    first = a.high / b.high
    left = subtract(a, multiply(pair(first), b))
    return _quick_sum(first, left.high / b.high)


def total(a: Pair, axis: int = -1) -> Pair:
    """Sum over an axis, by halves: an error grows with the logarithm of the number of terms."""
    parts = Pair(*(jnp.moveaxis(x, axis, 0) for x in a))
    while parts.high.shape[0] > 1:
        count = parts.high.shape[0]
        half = count // 2
        added = add(Pair(*(x[:half] for x in parts)), Pair(*(x[half : 2 * half] for x in parts)))
        parts = Pair(*(jnp.concatenate([x, y[2 * half :]]) for x, y in zip(added, parts, strict=True)))
    return Pair(parts.high[0], parts.low[0])


def matvec(matrix: Pair, x: Pair) -> Pair:
    """Product of a matrix (m, n) with x (n,) or (B, n), (m,) or (B, m): elementwise, for the few lanes that need it."""
    if x.high.ndim == 1:
        return total(multiply(matrix, Pair(x.high[None], x.low[None])))
    rows = Pair(matrix.high[None], matrix.low[None])
    return total(multiply(rows, Pair(x.high[:, None], x.low[:, None])))


def value(a: Pair) -> Array:
    """The nearest float."""
    return a.high + a.low
