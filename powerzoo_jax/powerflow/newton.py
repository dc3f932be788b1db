"""Newton-Raphson in float64 for the lanes of a batch that a constant factor does not solve, of every family.

The families bring the step (`zform`, `meshed.newton`); the loop, the damping and the verdict stand here. All of it runs
inside `jax.enable_x64(True)`, also in a float32 program: the lanes that come here stand near collapse, where a rounding
is amplified a hundredfold.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.powerflow.result import Status

MAX_STEPS = 20  # half a percent before the nose it takes 10; every further one is paid by lanes without a solution
TOL = 1e-10  # [pu, rad] move at which Newton stops; quadratic convergence makes the error its square
LEFT = 1e-7  # [pu] mismatch that a solution may leave: a stall on a short step is not one


def newton_raphson(
    step: Callable[[Array], tuple[Array, Array]], start: Array, *, axis: int = -1
) -> tuple[Array, Array, Array]:
    """Newton iterate of T lanes: x, its last move (-1 where x left the finite numbers) and steps, (T,) each.

    step:   x -> (next x, largest move of each lane (T,)), damped by the caller
    start:  float64, with the lanes on `axis`

    A lane is done when its move is at most 1e-10; it keeps its value while others go on.
    """
    across = tuple(k for k in range(start.ndim) if k != axis % start.ndim)
    lanes = start.shape[axis]

    def advance(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        k, x, size, steps = carry
        active = size > TOL
        new, move = step(x)
        ok = jnp.all(jnp.isfinite(new), across)
        x = jnp.where(jnp.expand_dims(active & ok, across), new, x)
        size = jnp.where(active, jnp.where(ok, move, -1.0), size)
        return k + 1, x, size, steps + active.astype(jnp.int32)

    begin = (jnp.int32(0), start, jnp.full(lanes, jnp.inf, start.dtype), jnp.zeros(lanes, jnp.int32))
    end = lax.while_loop(lambda c: (c[0] < MAX_STEPS) & jnp.any(c[2] > TOL), advance, begin)
    return end[1:]


def damping(size: Array, longest: float) -> Array:
    """Factor by which a move of this size is shortened to the longest that is allowed."""
    return jnp.minimum(1.0, longest / jnp.maximum(size, longest))


def verdict(move: Array, left: Array, fine: Array) -> Array:
    """`Status` (T,) of lanes after Newton: from their last move, the mismatch left [pu], whether inputs were finite."""
    status = jnp.where(move < 0, jnp.int32(Status.SINGULAR), jnp.int32(Status.OUT_OF_STEPS))
    solved = (move >= 0) & (move <= TOL) & (left < LEFT)
    status = jnp.where(solved, jnp.int32(Status.CONVERGED), status)
    return jnp.where(fine, status, jnp.int32(Status.BAD_INPUT))
