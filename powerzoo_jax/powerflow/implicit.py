"""Derivatives of a converged solve by the implicit function theorem."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.base.numerics import anywhere, matmul, matvec

MAX_SWEEPS = 40
TOL = {"float32": 1e-6, "float64": 1e-13}  # relative change at which the sweeps stop


def solve_tangent(m: Array, slope: Array, forcing: Array) -> Array:
    """Solve (I - M S) dx = forcing, with S the bus-local slope of r at the solution.

    m:       (2a, 2a)  chord matrix
    slope:   (4, a)    D(x) - D0
    forcing: (2a,)     right-hand side

    Neumann sweeps dx <- forcing + M S dx contract as fast as the chord itself; lanes on which they do not
    settle (near collapse) make the batch fall back to a dense LU. Linear, so `transpose_solve` gives reverse mode.
    """
    a = slope.shape[-1]

    def local(v: Array) -> Array:
        u, w = v[:a], v[a:]
        return jnp.concatenate([slope[0] * u + slope[1] * w, slope[2] * u + slope[3] * w])

    def local_transposed(v: Array) -> Array:
        u, w = v[:a], v[a:]
        return jnp.concatenate([slope[0] * u + slope[2] * w, slope[1] * u + slope[3] * w])

    def dense() -> Array:
        blocks = jnp.block([[jnp.diag(slope[0]), jnp.diag(slope[1])], [jnp.diag(slope[2]), jnp.diag(slope[3])]])
        return jnp.eye(2 * a, dtype=m.dtype) - matmul(m, blocks)

    return lax.custom_linear_solve(
        lambda v: v - matvec(m, local(v)),
        forcing,
        solve=lambda _, b: _sweep(lambda v: matvec(m, local(v)), b, lambda b: jnp.linalg.solve(dense(), b)),
        transpose_solve=lambda _, b: _sweep(
            lambda v: local_transposed(matmul(v, m)), b, lambda b: jnp.linalg.solve(dense().T, b)
        ),
    )


def _sweep(apply: Callable[[Array], Array], b: Array, direct: Callable[[Array], Array]) -> Array:
    tol = TOL[b.dtype.name]

    def advance(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        k, v, _ = carry
        new = b + apply(v)
        settled = jnp.max(jnp.abs(new - v)) <= tol * jnp.max(jnp.abs(new))
        return k + 1, new, settled

    start = (jnp.int32(0), b, jnp.asarray(False))
    _, v, settled = lax.while_loop(lambda c: (c[0] < MAX_SWEEPS) & ~c[2], advance, start)
    return lax.cond(anywhere(~settled), lambda: jnp.where(settled, v, direct(b)), lambda: v)
