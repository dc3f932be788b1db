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

import functools
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base.numerics import FLOAT

HALF = {"float32": 12, "float64": 27}  # digits that the low half of a float gets
TERMS = 9  # of a power series up to an eighth of a turn: the first one left out is below 2^-52


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


def matmul(a: Pair, b: Pair) -> Pair:
    """Product of matrices (..., m, n) and (..., n, p), a rank-one update after the other."""

    def grow(k: Array, total: Pair) -> Pair:
        column = Pair(*(lax.dynamic_slice_in_dim(x, k, 1, axis=-1) for x in a))
        row = Pair(*(lax.dynamic_slice_in_dim(x, k, 1, axis=-2) for x in b))
        return add(total, multiply(column, row))

    return lax.fori_loop(0, a.high.shape[-1], grow, pair(jnp.zeros_like(a.high[..., :1] * b.high[..., :1, :])))


def total_at(place: Array, x: Pair, size: int) -> Pair:
    """Sums (size, ...) of the entries of x (n, ...) with the same place (n,); a place past the end is dropped.

    Entries are cut into parts of so few digits that floats hold the sum of any n exactly (Rump, Ogita and Oishi 2008,
    doi:10.1137/050645671), so the order in which a device adds them does not matter. Digits count from the largest
    entry of each sum.
    """
    spare = math.ceil(math.log2(max(len(place), 1))) + 1  # digits that a sum needs beyond those of its entries
    digits, info = jnp.finfo(x.high.dtype).nmant + 1, jnp.finfo(x.high.dtype)
    largest = jnp.zeros((size, *x.high.shape[1:]), x.high.dtype).at[place].max(jnp.abs(x.high), mode="drop")
    # a power of two, read off the exponent: sums with it round to a whole number of its last digits
    exponent = ((1 << (info.bits - 1 - info.nmant)) - 1) << info.nmant
    whole = np.dtype(f"int{info.bits}")
    unit = lax.bitcast_convert_type(lax.bitcast_convert_type(largest, whole) & whole.type(exponent), x.high.dtype)
    unit = (unit * 2.0 ** (spare + 1))[place]

    def cut(rest: tuple[Array, Array, Array], _: None) -> tuple[tuple[Array, Array, Array], Array]:
        high, low, unit = rest
        part = (unit + high) - unit
        return (*two_sum(high - part, low), unit * 2.0 ** (spare - digits)), part

    _, parts = lax.scan(cut, (*x, unit), length=-(-2 * digits // (digits - spare)))
    sums = jnp.zeros((len(parts), *largest.shape), largest.dtype).at[:, place].add(parts, mode="drop")
    return functools.reduce(add, map(pair, sums[::-1]))


def cosine_sine(angle: Array) -> Pair:
    """Cosine and sine (..., 2) of angles (...) [rad], floats of a few full turns at most, which are taken as exact."""
    quarters = jnp.round(angle * (2 / math.pi))
    half_pi = Pair(*(jnp.full_like(angle, part) for part in split_constant(np.asarray(math.pi / 2), angle.dtype)))
    rest = subtract(pair(angle), multiply(pair(quarters), half_pi))
    # both power series side by side, cos x and sin x / x, highest power first
    series = [[(-1) ** k / math.factorial(2 * k + odd) for odd in (0, 1)] for k in reversed(range(TERMS))]
    shape = (TERMS, *(1 for _ in angle.shape), 2)
    parts = split_constant(np.asarray(series), angle.dtype)
    coefficients = Pair(*(jnp.asarray(x.reshape(shape)) for x in parts))
    square = Pair(*(x[..., None] for x in multiply(rest, rest)))

    def grow(found: Pair, c: Pair) -> tuple[Pair, None]:
        return add(multiply(found, square), c), None

    none = pair(jnp.zeros((*angle.shape, 2), angle.dtype))
    found, _ = lax.scan(grow, none, coefficients)
    found = multiply(found, Pair(*(jnp.stack([jnp.full_like(x, k), x], -1) for k, x in zip((1, 0), rest, strict=True))))
    turned = (quarters.astype(jnp.int32) & 3)[..., None]
    # a quarter turn makes (cos, sin) of (-sin, cos)
    found = Pair(*(jnp.where(turned % 2 == 1, x[..., ::-1], x) for x in found))
    minus = jnp.concatenate([(turned == 1) | (turned == 2), turned >= 2], -1)
    return Pair(*(jnp.where(minus, -x, x) for x in found))


def value(a: Pair) -> Array:
    """The nearest float."""
    return a.high + a.low
