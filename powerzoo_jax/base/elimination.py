"""Linear systems solved by elimination in plain array operations, for devices whose libraries lack a factorisation."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.base import double_single as ds
from powerzoo_jax.base.double_single import Pair
from powerzoo_jax.base.numerics import FLOAT

Parts = tuple[Array, ...]  # a number as one float, or as the two of a pair


def solve(matrix: Array, right: Array) -> Array:
    """Solution x of A x = b by Gauss-Jordan elimination with partial pivoting.

    matrix:  (..., n, n)  A
    right:   (..., n)     b

    Returns (..., n). A singular matrix gives values that are not finite. One column after the other, each a rank-one
    update of the whole batch: n steps of known number, n^3 operations a system (Golub and Van Loan, Matrix
    Computations, ch. 3), three times those of a factorisation. For few and small systems that are rarely met.
    """
    return _solved((matrix,), (right[..., None],))[0][..., 0]


def inverse(matrix: Array) -> Array:
    """Inverse of matrices (..., n, n); of an empty one itself."""
    return _inverse((matrix,))[0]


def inverse_pairs(matrix: Pair) -> Pair:
    """Inverse of matrices (..., n, n) in pairs of floats, with twice the digits of a float."""
    return Pair(*_inverse(matrix))


def _inverse(matrix: Parts) -> Parts:
    if matrix[0].size == 0:
        return matrix
    unit = jnp.broadcast_to(jnp.eye(matrix[0].shape[-1], dtype=matrix[0].dtype), matrix[0].shape)
    return _solved(matrix, (unit, *(jnp.zeros_like(unit) for _ in matrix[1:])))


def _solved(matrix: Parts, right: Parts) -> Parts:
    """Solutions X (..., n, m) of A X = B, one elimination for all columns of B."""
    n = matrix[0].shape[-1]
    shape = matrix[0].shape[:-1]
    rows = lax.broadcasted_iota(jnp.int32, shape, len(shape) - 1)

    def eliminate(k: Array, carry: tuple[Parts, Array, Array]) -> tuple[Parts, Array, Array]:
        table, free, order = carry
        column = tuple(lax.dynamic_index_in_dim(x, k, axis=-1, keepdims=False) for x in table)
        # the largest entry among the rows that have been no pivot yet, in float32: nearly the largest is as good, and
        # the arguments of a float64 maximum cannot be lowered outside of x64 mode
        size = jnp.where(free, jnp.abs(column[0]).astype(FLOAT), -1)
        pivot = lax.argmax(size, size.ndim - 1, jnp.int32)
        chosen = rows == pivot[..., None]
        entry = tuple(jnp.sum(jnp.where(chosen, x, 0), axis=-1)[..., None] for x in column)
        row = _divided(tuple(jnp.sum(jnp.where(chosen[..., None], x, 0), axis=-2) for x in table), entry)
        rest = _reduced(table, tuple(x[..., None] for x in column), tuple(x[..., None, :] for x in row))
        # the pivot's own row becomes `row`; its entry is 1 exactly, so the column becomes a unit vector exactly
        table = tuple(jnp.where(chosen[..., None], x[..., None, :], y) for x, y in zip(row, rest, strict=True))
        return table, free & ~chosen, jnp.where(rows == k, pivot[..., None], order)

    table = tuple(jnp.concatenate([x, y], axis=-1) for x, y in zip(matrix, right, strict=True))
    free, order = jnp.ones(shape, bool), jnp.zeros(shape, jnp.int32)
    table, _, order = lax.fori_loop(0, n, eliminate, (table, free, order))
    return tuple(jnp.take_along_axis(x[..., n:], order[..., None], axis=-2) for x in table)


def _divided(a: Parts, b: Parts) -> Parts:
    """a / b."""
    return (a[0] / b[0],) if len(a) == 1 else ds.divide(Pair(*a), Pair(*b))


def _reduced(table: Parts, column: Parts, row: Parts) -> Parts:
    """table - column row."""
    if len(table) == 1:
        return (table[0] - column[0] * row[0],)
    return ds.subtract(Pair(*table), ds.multiply(Pair(*column), Pair(*row)))
