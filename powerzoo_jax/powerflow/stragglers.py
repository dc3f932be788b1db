"""Full Newton in float64 for the few lanes that a constant factor does not solve."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.powerflow.batching import in_groups
from powerzoo_jax.powerflow.result import Status

TILE = 8  # lanes factored together: enough to keep LAPACK busy, few enough to bound the memory
MAX_STEPS = 20  # half a percent before the nose it takes 10; every further one is paid by lanes without a solution
LONGEST = 0.15  # [pu] largest voltage move per step: keeps the iterate on the upper branch of the PV curve
TOL = 1e-10  # [pu] voltage move at which Newton stops; quadratic convergence makes the error its square

Solved = tuple[Array, Array, Array, Array]  # r (B, 2a), residual (B,), steps (B,), status (B,)


class Equations(Protocol):
    """What Newton needs to know about one scenario of a solver whose fixed point is x = M r(x) + w, r bus-local."""

    def start(self, core: Any) -> Array:
        """x (2a,) to begin from."""
        ...

    def error(self, core: Any, x: Array, p: Array, q: Array) -> Array:
        """x - M r(x) - w (2a,)."""
        ...

    def slope(self, core: Any, x: Array, p: Array, q: Array) -> Array:
        """(4, a) derivative of r."""
        ...

    def settle(self, core: Any, x: Array, p: Array, q: Array) -> tuple[Array, Array]:
        """One chord step: r (2a,) at the next iterate, always finite, and its exact power mismatch ()."""
        ...


def newton_stragglers(eqs: Equations, core: Any, p: Array, q: Array, found: Solved) -> Solved:
    """Solve the lanes of a batch that have not converged, tile by tile; the others pass through untouched.

    eqs:    the solver's equations
    core:   factors, shared by the batch
    p, q:   (B, a) injections as the user gave them; a lane with one that is not finite is told apart here
    found:  (r (B, 2a), residual (B,), steps (B,), status (B,)) of the chord

    Every arithmetic runs in float64 also inside a float32 program and the result returns in the program's dtype.
    """
    return in_groups(
        found[3] != Status.CONVERGED,
        TILE,
        lambda core, given, values: _newton(eqs, core, given[0], given[1], values[2], p.dtype),
        core,
        (p, q),
        found,
    )


def _newton(eqs: Equations, core: Any, p: Array, q: Array, spent: Array, dtype: Any) -> Solved:
    """Newton from the base state on a tile (T, a): (r, residual, steps, status) in `dtype`."""
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), core)
        fine = jnp.isfinite(p) & jnp.isfinite(q)
        p, q = (jnp.where(fine, x, 0).astype(jnp.float64) for x in (p, q))
        begin = eqs.start(wide)
        x = jnp.broadcast_to(begin[None], (p.shape[0], begin.shape[0]))
        lane = jax.vmap(lambda x, p, q: _step(eqs, wide, x, p, q))

        def advance(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
            k, x, move, steps = carry
            active = move > TOL
            new = lane(x, p, q)
            new = jnp.where(jnp.isfinite(new).all(-1, keepdims=True), new, x)
            size = jnp.where(active, jnp.max(jnp.abs(new - x), -1), move)
            stuck = active & (size == 0)
            x = jnp.where(active[:, None], new, x)
            return k + 1, x, jnp.where(stuck, -1.0, size), steps + active.astype(jnp.int32)

        start = (jnp.zeros((), jnp.int32), x, jnp.full(p.shape[:1], jnp.inf, jnp.float64), spent)
        _, x, move, steps = lax.while_loop(lambda c: (c[0] < MAX_STEPS) & jnp.any(c[2] > TOL), advance, start)
        left = jnp.max(jnp.abs(jax.vmap(eqs.error, in_axes=(None, 0, 0, 0))(wide, x, p, q)), -1)
        r, residual = jax.vmap(eqs.settle, in_axes=(None, 0, 0, 0))(wide, x, p, q)
        solved = (move >= 0) & (move <= TOL) & (left < 1e3 * TOL)
        status = jnp.where(solved, int(Status.CONVERGED), int(Status.OUT_OF_STEPS))
        status = jnp.where(move < 0, int(Status.SINGULAR), status)
        status = jnp.where(jnp.all(fine, -1), status, int(Status.BAD_INPUT))
        out = r.astype(dtype), residual.astype(dtype), steps, status.astype(jnp.int32)
    return out


def _step(eqs: Equations, core: Any, x: Array, p: Array, q: Array) -> Array:
    left, slope = eqs.error(core, x, p, q), eqs.slope(core, x, p, q)
    a = p.shape[-1]
    m = core.m
    rows = slope[:, None]
    columns = [m[:, :a] * rows[0] + m[:, a:] * rows[2], m[:, :a] * rows[1] + m[:, a:] * rows[3]]
    diagonal = jnp.arange(2 * a)
    # not eye - ...: XLA would build that constant in every solve, also when no lane needs Newton
    system = (-jnp.concatenate(columns, 1)).at[diagonal, diagonal].add(1)
    move = -jnp.linalg.solve(system, left)
    return x + move * jnp.minimum(1.0, LONGEST / jnp.maximum(jnp.max(jnp.abs(move)), LONGEST))
