"""Cholesky of the small systems that a batch of programmes meets: unrolled when tiny, the library's otherwise."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

UNROLLED = 6  # rows; LAPACK costs about 1 us a call, the unrolled code runs over the whole batch at once


def cholesky(a: Array) -> Array:
    """Lower factor L of a symmetric positive definite a (m, m)."""
    m = a.shape[0]
    if m > UNROLLED:
        return jnp.linalg.cholesky(a, symmetrize_input=False)
    rows: list[list[Array]] = []
    for i in range(m):
        row: list[Array] = []
        for j in range(i + 1):
            left = a[i, j]
            for k in range(j):
                left = left - row[k] * (row[k] if i == j else rows[j][k])
            row.append(jnp.sqrt(left) if i == j else left / rows[j][j])
        rows.append(row)
    zero = jnp.zeros((), a.dtype)
    return jnp.stack([jnp.stack(row + [zero] * (m - len(row))) for row in rows])


def cholesky_solve(factor: Array, b: Array) -> Array:
    """Solve L L' x = b for b (m,)."""
    m = factor.shape[0]
    if m > UNROLLED:
        y = lax.linalg.triangular_solve(factor, b[:, None], left_side=True, lower=True)
        return lax.linalg.triangular_solve(factor, y, left_side=True, lower=True, transpose_a=True)[:, 0]
    y_: list[Array] = []
    for i in range(m):
        left = b[i]
        for k in range(i):
            left = left - factor[i, k] * y_[k]
        y_.append(left / factor[i, i])
    x: list[Array] = [jnp.zeros((), b.dtype)] * m
    for i in reversed(range(m)):
        left = y_[i]
        for k in range(i + 1, m):
            left = left - factor[k, i] * x[k]
        x[i] = left / factor[i, i]
    return jnp.stack(x)
