"""Linear systems solved by elimination in plain array operations, for devices whose libraries lack a factorisation."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.base.numerics import FLOAT


def solve(matrix: Array, right: Array) -> Array:
    """Solution x of A x = b by Gauss-Jordan elimination with partial pivoting.

    matrix:  (..., n, n)  A
    right:   (..., n)     b

    Returns (..., n). A singular matrix gives values that are not finite. One column after the other, each a rank-one
    update of the whole batch: n steps of known number, n^3 operations a system (Golub and Van Loan, Matrix
    Computations, ch. 3), three times those of a factorisation. For few and small systems that are rarely met.
    """
    return _solved(matrix, right[..., None])[..., 0]


def inverse(matrix: Array) -> Array:
    """Inverse of matrices (..., n, n); of an empty one itself."""
    if matrix.size == 0:
        return matrix
    return _solved(matrix, jnp.broadcast_to(jnp.eye(matrix.shape[-1], dtype=matrix.dtype), matrix.shape))


def _solved(matrix: Array, right: Array) -> Array:
    """Solutions X (..., n, m) of A X = B, one elimination for all columns of B."""
    n = matrix.shape[-1]
    shape = matrix.shape[:-1]
    rows = lax.broadcasted_iota(jnp.int32, shape, len(shape) - 1)

    def eliminate(k: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        table, free, order = carry
        column = lax.dynamic_index_in_dim(table, k, axis=-1, keepdims=False)
        # the largest entry among the rows that have been no pivot yet, in float32: nearly the largest is as good, and
        # the arguments of a float64 maximum cannot be lowered outside of x64 mode
        size = jnp.where(free, jnp.abs(column).astype(FLOAT), -1)
        pivot = lax.argmax(size, size.ndim - 1, jnp.int32)
        chosen = rows == pivot[..., None]
        entry = jnp.sum(jnp.where(chosen, column, 0), axis=-1)
        row = jnp.sum(jnp.where(chosen[..., None], table, 0), axis=-2) / entry[..., None]
        # the pivot's own row becomes `row`; its entry is 1 exactly, so the column becomes a unit vector exactly
        table = jnp.where(chosen[..., None], row[..., None, :], table - column[..., None] * row[..., None, :])
        return table, free & ~chosen, jnp.where(rows == k, pivot[..., None], order)

    table = jnp.concatenate([matrix, right], axis=-1)
    free, order = jnp.ones(shape, bool), jnp.zeros(shape, jnp.int32)
    table, _, order = lax.fori_loop(0, n, eliminate, (table, free, order))
    return jnp.take_along_axis(table[..., n:], order[..., None], axis=-2)
