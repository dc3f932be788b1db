"""Newton-Raphson of the lanes that a chord does not solve: the driver of all families, and the steps on rows.

Such lanes stand near collapse, where a rounding is amplified a hundredfold, so a float32 program needs more digits for
them. On a CPU that is float64 and the factorisation of LAPACK. Accelerators lack one or both, so there the iterate and
its mismatch are pairs of floats (`base.double_single`) while the Jacobian stays a matrix of floats: as in iterative
refinement, an inexact move costs an iteration at most, and the mismatch alone decides what is found.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.base import double_single as ds
from powerzoo_jax.base import elimination
from powerzoo_jax.powerflow.result import Status
from powerzoo_jax.powerflow.rows import (
    ChordCore,
    Law,
    affine,
    local_slope,
    newton_matrix,
    residual_current,
    residual_parts,
)
from powerzoo_jax.powerflow.wide import Wide

# Newton-Raphson runs inside `jax.enable_x64(True)`, also in a float32 program: the lanes that come to it stand near
# collapse, where a rounding is amplified a hundredfold. Families bring the step (below, and `meshed.newton`).
NEWTON_STEPS = 20  # half a percent before the nose it takes 10; every further one is paid by lanes without a solution
NEWTON_TOL = 1e-10  # [pu, rad] move at which Newton stops; quadratic convergence makes the error its square
NEWTON_LEFT = 1e-7  # [pu] mismatch that a solution may leave: a stall on a short step is not one


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
        active = size > NEWTON_TOL
        new, move = step(x)
        ok = jnp.all(jnp.isfinite(new), across)
        x = jnp.where(jnp.expand_dims(active & ok, across), new, x)
        size = jnp.where(active, jnp.where(ok, move, -1.0), size)
        return k + 1, x, size, steps + active.astype(jnp.int32)

    begin = (jnp.int32(0), start, jnp.full(lanes, jnp.inf, start.dtype), jnp.zeros(lanes, jnp.int32))
    end = lax.while_loop(lambda c: (c[0] < NEWTON_STEPS) & jnp.any(c[2] > NEWTON_TOL), advance, begin)
    return end[1:]


def damping(size: Array, longest: float) -> Array:
    """Factor by which a move of this size is shortened to the longest that is allowed."""
    return jnp.minimum(1.0, longest / jnp.maximum(size, longest))


def verdict(move: Array, left: Array, fine: Array) -> Array:
    """`Status` (T,) of lanes after Newton: from their last move, the mismatch left [pu], whether inputs were finite."""
    status = jnp.where(move < 0, jnp.int32(Status.SINGULAR), jnp.int32(Status.OUT_OF_STEPS))
    solved = (move >= 0) & (move <= NEWTON_TOL) & (left < NEWTON_LEFT)
    status = jnp.where(solved, jnp.int32(Status.CONVERGED), status)
    return jnp.where(fine, status, jnp.int32(Status.BAD_INPUT))


LONGEST = 0.15  # [pu] largest voltage move of a Newton step: keeps the iterate on the upper branch of the PV curve

Solved = tuple[Array, Array, Array, Array]  # r (B, 2a), residual (B,), steps (B,), status (B,)


def newton_of_floats(law: Law, core: ChordCore, given: tuple[Array, Array], found: Solved) -> Solved:
    """Full Newton from the base state on a tile of lanes (T, a), in float64 also inside a float32 program."""
    dtype = given[0].dtype
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), core)
        fine = jnp.isfinite(given[0]) & jnp.isfinite(given[1])
        p, q = (jnp.where(fine, x, 0).astype(jnp.float64) for x in given)
        start = jnp.broadcast_to(wide.x_base[None], (p.shape[0], wide.x_base.shape[0]))
        lane = jax.vmap(lambda x, p, q: _newton_step(law, wide, x, p, q))

        def step(x: Array) -> tuple[Array, Array]:
            new = lane(x, p, q)
            return new, jnp.max(jnp.abs(new - x), -1)

        x, move, steps = newton_raphson(step, start, axis=0)
        left = jnp.max(jnp.abs(jax.vmap(lambda x, p, q: _error(law, wide, x, p, q))(x, p, q)), -1)
        r, residual = jax.vmap(lambda x, p, q: _settled(law, wide, x, p, q))(x, p, q)
        status = verdict(move, left, jnp.all(fine, -1))
        out = r.astype(dtype), residual.astype(dtype), found[2] + steps, status
    return out


def _error(law: Law, core: ChordCore, x: Array, p: Array, q: Array) -> Array:
    """x - M r(x) - w (2a,) of one scenario."""
    return x - affine(core.m, core.w, residual_current(law, core, x, p, q))


def _newton_step(law: Law, core: ChordCore, x: Array, p: Array, q: Array) -> Array:
    """Next iterate (2a,) of one scenario: the derivative of `_error` is I - M S with S local to each row."""
    left, slope = _error(law, core, x, p, q), local_slope(law, core, x, p, q)
    move = -jnp.linalg.solve(newton_matrix(core.m, slope), left)
    return x + move * damping(jnp.max(jnp.abs(move)), LONGEST)


def _settled(law: Law, core: ChordCore, x: Array, p: Array, q: Array) -> tuple[Array, Array]:
    """One chord step of one scenario: r (2a,) at the next iterate, always finite, and its exact power mismatch ()."""
    before = residual_current(law, core, x, p, q)
    r = residual_current(law, core, affine(core.m, core.w, before), p, q)
    fine = jnp.all(jnp.isfinite(r))
    # so much power that r itself overflows: report the base state, the status says what happened
    size = law.power_per_current * jnp.sqrt(jnp.sum((r - before) * (r - before), axis=-1))
    return jnp.where(fine, r, core.r_base), jnp.where(fine, size, jnp.max(jnp.abs(p)))


def no_newton(law: Law, core: ChordCore, given: tuple[Array, Array], found: Solved) -> Solved:
    """Verdict on lanes of a law that has no Newton-Raphson without float64: OUT_OF_STEPS, or BAD_INPUT; all finite."""
    del law
    r, size, steps, _ = found
    p, q = (jnp.where(jnp.isfinite(x), x, 0) for x in given)
    fine = jnp.all(jnp.isfinite(given[0]) & jnp.isfinite(given[1]), -1)
    sound = jnp.all(jnp.isfinite(r), -1) & jnp.isfinite(size)
    status = jnp.where(fine, jnp.int32(Status.OUT_OF_STEPS), jnp.int32(Status.BAD_INPUT))
    largest = jnp.maximum(jnp.max(jnp.abs(p), -1), jnp.max(jnp.abs(q), -1))
    return jnp.where(sound[:, None], r, core.r_base[None]), jnp.where(sound, size, largest), steps, status


@functools.partial(jax.jit, static_argnums=0)  # traced once for all programs with tiles of this size
def newton_of_pairs(law: Law, core: ChordCore, given: tuple[Array, Array], found: Solved) -> Solved:
    """`newton_of_floats` without float64 and without a library: pairs of floats, and elimination in array operations.

    The step of x = high + low is (I - M S)^-1 (x - M r(x) - w), its right side in pairs, all else in floats.
    """
    p_given, q_given = given
    fine = jnp.isfinite(p_given) & jnp.isfinite(q_given)
    p, q = (jnp.where(fine, x, 0) for x in given)
    a = p.shape[-1]
    m, w = ds.pair(core.m), ds.pair(core.w[None])
    slopes = jax.vmap(lambda x, p, q: newton_matrix(core.m, local_slope(law, core, x, p, q)))

    def residual(x: ds.Pair) -> ds.Pair:
        e, f = (Wide(ds.Pair(*(part[:, half] for part in x))) for half in (slice(None, a), slice(a, None)))
        parts = residual_parts(law, core, e, f, p, q)
        return ds.Pair(*(jnp.concatenate(part, axis=-1) for part in zip(*(z.pair for z in parts), strict=True)))

    def mismatch(x: ds.Pair, r: ds.Pair) -> ds.Pair:
        return ds.subtract(ds.subtract(x, ds.matvec(m, r)), w)

    def step(x: Array) -> tuple[Array, Array]:
        at = ds.Pair(*x)
        left = mismatch(at, residual(at))
        move = -elimination.solve(slopes(at.high, p, q), ds.value(left))
        size = jnp.max(jnp.abs(move), -1)
        new = ds.add(at, ds.pair(move * damping(size, LONGEST)[:, None]))
        return jnp.stack(new), jnp.minimum(size, LONGEST)

    start = jnp.broadcast_to(core.x_base, (p.shape[0], 2 * a))
    x, move, steps = newton_raphson(step, jnp.stack([start, jnp.zeros_like(start)]), axis=1)
    at = ds.Pair(*x)
    before = residual(at)
    left = mismatch(at, before)
    # one more chord step, as after the float64 iteration: what it changes bounds the power mismatch
    after = residual(ds.subtract(at, left))
    change = ds.value(ds.subtract(after, before))
    size = law.power_per_current * jnp.sqrt(jnp.sum(change * change, axis=-1))
    r = ds.value(after)
    sound = jnp.all(jnp.isfinite(r), -1) & jnp.isfinite(size)
    r = jnp.where(sound[:, None], r, core.r_base[None])
    size = jnp.where(sound, size, jnp.max(jnp.abs(p), -1))
    status = verdict(move, jnp.max(jnp.abs(ds.value(left)), -1), jnp.all(fine, -1))
    return r, size, found[2] + steps, status
