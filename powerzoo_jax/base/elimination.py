"""Linear systems solved by elimination in plain array operations, for devices whose libraries lack a factorisation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax


def solve(matrix: Array, right: Array) -> Array:
    """Solution x of A x = b by Gauss-Jordan elimination with partial pivoting.

    matrix:  (..., n, n)  A
    right:   (..., n)     b

    Returns (..., n). A singular matrix gives values that are not finite. One column after the other, each a rank-one
    update of the whole batch: n steps of known number, n^3 operations a system (Golub and Van Loan, Matrix
    Computations, ch. 3), three times those of a factorisation. For few and small systems that are rarely met.
    """
    n = matrix.shape[-1]
    rows = lax.broadcasted_iota(jnp.int32, right.shape, right.ndim - 1)

    def eliminate(k: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        table, free, order = carry
        column = lax.dynamic_index_in_dim(table, k, axis=-1, keepdims=False)
        # the largest entry among the rows that have been no pivot yet
        pivot = jnp.argmax(jnp.where(free, jnp.abs(column), -1), axis=-1).astype(jnp.int32)
        chosen = rows == pivot[..., None]
        entry = jnp.sum(jnp.where(chosen, column, 0), axis=-1)
        row = jnp.sum(jnp.where(chosen[..., None], table, 0), axis=-2) / entry[..., None]
        # the pivot's own row becomes `row`; its entry is 1 exactly, so the column becomes a unit vector exactly
        table = jnp.where(chosen[..., None], row[..., None, :], table - column[..., None] * row[..., None, :])
        return table, free & ~chosen, jnp.where(rows == k, pivot[..., None], order)

    table = jnp.concatenate([matrix, right[..., None]], axis=-1)
    free = jnp.ones(right.shape, bool)
    order = jnp.zeros(right.shape, jnp.int32)
    table, _, order = lax.fori_loop(0, n, eliminate, (table, free, order))
    return jnp.take_along_axis(table[..., -1], order, axis=-1)


def inverse(matrix: Array) -> Array:
    """Inverse of a matrix (n, n), column by column; an empty one of an empty matrix."""
    if matrix.size == 0:
        return matrix
    unit = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
    return jax.vmap(solve, in_axes=(None, 1), out_axes=1)(matrix, unit)
