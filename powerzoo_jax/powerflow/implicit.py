"""Linear systems that the implicit function theorem asks a solved power flow for: A dx = b with A the true Jacobian.

All solves have the constant inverse of the chord as an approximate one of A. Where that contracts as it did in the
chord itself, `sweep` is the cheapest; after an outage it may not contract at all, and `bicgstab` needs no contraction.
Batches of meshed networks stand last in their arrays and gather the few lanes that stall for a factorisation of their
own: a loop of its own, `meshed.derivative`, which shares no line with these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.base.numerics import anywhere

MAX_SWEEPS = 40
SWEEP_TOL = {"float32": 1e-6, "float64": 1e-13}  # share of the solution, or of the right side, that may be left


def sweep(improve: Callable[[Array], Array], begin: Array, direct: Callable[[], Array], tol: float) -> Array:
    """Fixed point x = improve(x) of an affine map, (n,), to the relative change `tol`; linear in its constant part.

    improve:  x -> b + (1 - K A) x, with K the approximate inverse
    direct:   solution by a dense factorisation, for lanes that do not settle in 40 sweeps, near collapse; a batch with
              such a lane computes it for all
    """

    def advance(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        k, x, _ = carry
        new = improve(x)
        settled = jnp.max(jnp.abs(new - x)) <= tol * jnp.max(jnp.abs(new))
        return k + 1, new, settled

    start = (jnp.int32(0), begin, jnp.asarray(False))
    _, x, settled = lax.while_loop(lambda c: (c[0] < MAX_SWEEPS) & ~c[2], advance, start)
    found: Array = lax.cond(anywhere(~settled), lambda: jnp.where(settled, x, direct()), lambda: x)
    return found


def fixed_sweeps(
    improve: Callable[[Array], Array], begin: Array, direct: Callable[[], Array], tol: float, count: int
) -> Array:
    """`sweep` with `count` sweeps for all and one question, whether they were enough; other arguments as there."""
    x = before = begin
    for _ in range(count):
        x, before = improve(x), x
    settled = jnp.max(jnp.abs(x - before)) <= tol * jnp.max(jnp.abs(x))
    # lanes that are settled keep what they have
    found: Array = lax.cond(
        anywhere(~settled), lambda: jnp.where(settled, x, sweep(improve, x, direct, tol)), lambda: x
    )
    return found


class Krylov(NamedTuple):
    """State of BiCGSTAB; textbook names."""

    k: Array
    x: Array
    r: Array
    p: Array
    rho: Array


def bicgstab(product: Callable[[Array], Array], inverse: Callable[[Array], Array], b: Array, tol: float) -> Array:
    """Solution of A x = b from the approximate inverse of A, to |b - A x| <= tol |b| (van der Vorst 1992,
    doi:10.1137/0913035).
    """

    def dot(a: Array, b: Array) -> Array:
        return jnp.sum(a * b)

    def over(a: Array, b: Array) -> Array:
        return jnp.where(b == 0, 0, a / jnp.where(b == 0, 1, b))

    shadow = b
    enough = tol * tol * dot(b, b)

    def advance(c: Krylov) -> Krylov:
        p = inverse(c.p)
        v = product(p)
        alpha = over(c.rho, dot(shadow, v))
        s = c.r - alpha * v
        z = inverse(s)
        t = product(z)
        omega = over(dot(t, s), dot(t, t))
        r = s - omega * t
        rho = dot(shadow, r)
        beta = over(rho, c.rho) * over(alpha, omega)
        return Krylov(c.k + 1, c.x + alpha * p + omega * z, r, r + beta * (c.p - omega * v), rho)

    begin = Krylov(jnp.int32(0), jnp.zeros_like(b), b, b, dot(b, b))
    return lax.while_loop(lambda c: (c.k < MAX_SWEEPS) & (dot(c.r, c.r) > enough), advance, begin).x
