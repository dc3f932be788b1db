"""Power flow of meshed networks in a fixed number of steps, for accelerators: no questions, no factorisation.

The number of chord steps is counted beforehand on states around the base state (`base_case.count_steps`). A few more
polish the solution: their mismatch is computed in double-single arithmetic (`meshed.exact`), and what they add is kept
beside e. Lanes that are not done by then are few and rare: one question asks for any, and an inexact Newton method
takes them on from the base state. Its linear systems are solved by BiCGSTAB (van der Vorst 1992, doi:10.1137/0913035)
with the constant inverse of the chord as a preconditioner, so that it needs products only; its residual in
double-single arithmetic makes up for float32, also next to collapse, where a rounding is amplified a hundredfold.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental.layout import Layout, with_layout_constraint

from powerzoo_jax.base import double_single as ds
from powerzoo_jax.base.double_single import Pair
from powerzoo_jax.base.numerics import matmul
from powerzoo_jax.powerflow.chord import error_ahead, ratio
from powerzoo_jax.powerflow.meshed import chord
from powerzoo_jax.powerflow.meshed import equations as eqs
from powerzoo_jax.powerflow.meshed.base_case import StepCounts
from powerzoo_jax.powerflow.meshed.blocks import transposed
from powerzoo_jax.powerflow.meshed.chord import Shared, System
from powerzoo_jax.powerflow.meshed.exact import both, exact_aim, exact_mismatch, missing_magnitude
from powerzoo_jax.powerflow.meshed.newton import LONGEST, jacobian_product, preconditioner
from powerzoo_jax.powerflow.newton import NEWTON_LEFT, NEWTON_STEPS, damping
from powerzoo_jax.powerflow.result import Status

FARTHEST = 1e3  # [-] deviation beyond which a lane has run off: squares of it still are finite numbers
POLISHED = 2.5e-3  # share of the tolerance: larger last steps of polishing show a lane that contracts too slowly
MOVE = {"float32": 1e-7, "float64": 1e-10}  # [pu, rad] move at which Newton stops; what is left is far less
KRYLOV = 20  # products with the inverse, two for each: near collapse one direction is off, the others are close
KRYLOV_TOL = {"float32": 1e-5, "float64": 1e-9}  # share of the right side that a Newton step may leave


class FixedLanes(NamedTuple):
    """Lanes of a batch: e and what is missing to the solution d, injections left at e + d (N, 2, B); the rest (B,)."""

    e: Array
    d: Array
    left: Array
    power: Array
    residual: Array
    steps: Array
    status: Array
    slow: Array


def constant_inverse(shared: Shared, *, transpose: bool = False) -> Callable[[Array], Array]:
    """Product (N, 2, B) -> (N, 2, B) with the inverse of the Jacobian at the base state, or its transpose."""
    layout, core = shared
    if core.whole is None:
        blocks = transposed(layout.plan, core.blocks) if transpose else core.blocks
        return functools.partial(eqs.correction, layout, blocks)
    matrix = core.whole.T if transpose else core.whole

    def apply(left: Array) -> Array:
        flat = left.reshape(-1, left.shape[2]).astype(matrix.dtype)
        return matmul(matrix, flat).reshape(left.shape).astype(left.dtype)

    return apply


def solve_fixed(shared: Shared, given: tuple[Array, ...], counts: StepCounts, tol: float, *, mix: bool) -> FixedLanes:
    """Lanes (B, N) of one network after a fixed number of steps; status tells who is done."""
    layout, core = shared
    aim, start = chord.mismatch_targets(shared, given)
    rows = _rows(shared, aim.share)
    # a product with the whole inverse reads every row: what is ignored must be a number
    aim = aim._replace(target=lanes_last(jnp.where(rows, aim.target, 0)))
    system = System(functools.partial(eqs.unserved, layout, core.main, aim), constant_inverse(shared))
    e, reached = chord_steps(system, aim.target, start, counts.chord, tol, mix=mix)
    exact = exact_aim(shared, given)
    d = missing_magnitude(shared, exact, e, jnp.zeros_like(e))
    first = found = exact_mismatch(shared, exact, e, d, ds.pair(jnp.zeros_like(e[0, 0])))
    residual = size = eqs.largest(jnp.where(rows, first.left, 0))
    for _ in range(counts.polish):
        zeta = system.correction(jnp.where(rows, found.left, 0))
        d, size = d + rotation(e + d, zeta), eqs.largest(zeta)
        found = exact_mismatch(shared, exact, e, d, found.power)
    near = (eqs.largest(e) < FARTHEST) & (residual < jnp.inf)
    solved = near & reached
    lost = jnp.where(near | _sound(shared, given), jnp.int32(Status.OUT_OF_STEPS), jnp.int32(Status.BAD_INPUT))
    return FixedLanes(
        e=choose(near, e, 0),
        d=choose(solved, d, 0),
        left=choose(near, choose(solved, found.left, first.left), exact.target.high),
        power=choose(near, choose(solved, found.power.high, first.power.high), 0),
        residual=choose(near, residual, jnp.finfo(e.dtype).max),
        steps=jnp.full(size.shape, counts.chord, jnp.int32),
        status=jnp.where(solved, jnp.int32(Status.CONVERGED), lost),
        slow=~(solved & (size <= POLISHED * tol)),
    )


def choose(lanes: Array, new: Any, old: Any) -> Array:
    """New values of some lanes (B,), which stand last, and old ones of the others."""
    return jnp.where(lanes.reshape((1,) * (new.ndim - 1) + lanes.shape), new, old)


def lanes_last(x: Array) -> Array:
    """x with its last axis together in memory. Left to itself a compiler lays arrays out as the user's (B, N) are, and
    turns them round for every product.
    """
    return with_layout_constraint(x, Layout(tuple(range(x.ndim))))


def _rows(shared: Shared, share: Array | None) -> Array:
    return eqs.rows(shared.layout, shared=share is not None)[:, :, None]


def _sound(shared: Shared, given: tuple[Array, ...]) -> Array:
    """Lanes (B,) that were given numbers; what is ignored does not count."""
    aim, start = chord.mismatch_targets(shared, given)
    sound = jnp.all(jnp.isfinite(aim.target) | ~_rows(shared, aim.share), (0, 1))
    if start is not None:
        sound = sound & jnp.all(jnp.isfinite(start), (0, 1))
    return sound if aim.share is None else sound & jnp.all(jnp.isfinite(aim.share), 0)


def chord_steps(
    system: System, target: Array, start: Array | None, count: int, tol: float, *, mix: bool
) -> tuple[Array, Array]:
    """Deviation (N, 2, B) after `count` chord steps, and the lanes (B,) that have reached the tolerance."""
    e = jnp.zeros_like(target) if start is None else start
    left = target if start is None else system.unserved(e)
    step = move = system.correction(left)
    e, sizes = e + rotation(e, move), [step]
    for _ in range(count - 1):
        new = system.correction(system.unserved(e))
        move = chord.mixed(new, step, move) if mix else new
        e, step = lanes_last(e + rotation(e, move)), new
        sizes.append(step)
    last = [eqs.largest(x) for x in sizes[-3:]]
    paces = [ratio(b, a) for a, b in itertools.pairwise(last)]
    # one step tells no pace
    pace = functools.reduce(jnp.maximum, paces) if paces else jnp.full_like(last[-1], jnp.inf)
    ahead = error_ahead(last[-1], pace, chord.PACE_MIXED if mix else chord.PACE)
    return e, (bool(paces) & (ahead <= tol)) | (last[-1] <= chord.FLOOR[e.dtype.name])


def rotation(e: Array, zeta: Array) -> Array:
    """Change of e by a turn, `equations.rotate` less e: exact to its own size."""
    t, grow = 0.5 * zeta[:, 0], zeta[:, 1]
    h = (1 + grow) / (1 + t * t)
    re, im = grow - 2 * t * t * h, 2 * t * h
    a, b = e[:, 0], e[:, 1]
    return both(re + (a * re - b * im), im + (b * re + a * im))


class NewtonIteration(NamedTuple):
    """Lanes that a chord does not solve: a tree with lanes last, and (B,) the size of the last move, -1 where it left
    the numbers, and steps.
    """

    k: Array
    lanes: Any
    size: Array
    steps: Array


def newton_lanes(
    step: Callable[[Any], tuple[Any, Array]], begin: Any, todo: Array, steps: Array, stop: float
) -> NewtonIteration:
    """Newton iterates of the lanes `todo` (B,) until they move by `stop` at most, which the others wait for.

    step:  lanes -> (next lanes, size of their move (B,)), damped by the caller
    steps: (B,) taken before
    """

    def advance(c: NewtonIteration) -> NewtonIteration:
        active = c.size > stop
        new, size = step(c.lanes)
        ok = size < jnp.inf
        return NewtonIteration(
            k=c.k + 1,
            lanes=jax.tree.map(functools.partial(choose, active & ok), new, c.lanes),
            size=jnp.where(active, jnp.where(ok, size, -1), c.size),
            steps=c.steps + active.astype(jnp.int32),
        )

    size = jnp.where(todo, jnp.asarray(jnp.inf, jax.tree.leaves(begin)[0].dtype), 0)
    first = NewtonIteration(jnp.int32(0), begin, size, steps)
    return lax.while_loop(lambda c: (c.k < NEWTON_STEPS) & jnp.any(c.size > stop), advance, first)


class Deviation(NamedTuple):
    """Deviation e + d (N, 2, B) and shared power (B,)."""

    e: Array
    d: Array
    power: Pair


def solve_rest(shared: Shared, given: tuple[Array, ...], lanes: FixedLanes) -> FixedLanes:
    """Lanes with those that are slow solved by an inexact Newton method from the base state; products only."""
    layout, core = shared
    dtype = lanes.e.dtype
    stop = MOVE[dtype.name]
    exact, (aim, start) = exact_aim(shared, given), chord.mismatch_targets(shared, given)
    rows, free = _rows(shared, aim.share), layout.free[:, :, None].astype(dtype)
    precondition = preconditioner(layout, constant_inverse(shared), exact.share)

    def step(at: Deviation) -> tuple[Deviation, Array]:
        left, power = exact_mismatch(shared, exact, *at)
        product = jacobian_product(shared, at.e, eqs.power(layout, core.main, at.e), exact.share)
        zeta = bicgstab(lambda x: jnp.where(rows, product(x), 0), precondition, jnp.where(rows, left, 0))
        more, zeta = zeta[layout.slack, 0], zeta * free
        longest = eqs.largest(zeta)
        short = damping(longest, LONGEST)
        e, d = ds.two_sum(at.e, at.d + rotation(at.e + at.d, zeta * short[None, None]))
        if exact.share is not None:
            power = ds.two_sum(power.high, power.low + more * short)
        return Deviation(e, d + missing_magnitude(shared, exact, e, d), power), longest

    start = jnp.zeros_like(lanes.e) if start is None else eqs.finite(start)
    sound = _sound(shared, given)
    missing = missing_magnitude(shared, exact, start, jnp.zeros_like(start))
    begin = Deviation(start, missing, ds.pair(jnp.zeros_like(lanes.power)))
    end = newton_lanes(step, begin, lanes.slow & sound, lanes.steps, stop)
    at = end.lanes
    left, power = exact_mismatch(shared, exact, *at)
    residual = eqs.largest(jnp.where(rows, left, 0))
    solved = sound & (end.size >= 0) & (end.size <= stop) & (residual < NEWTON_LEFT)
    new = FixedLanes(
        e=at.e,
        d=choose(solved, at.d, 0),
        left=left,
        power=power.high,
        # the state goes out rounded: a smaller mismatch would be a claim that it cannot keep
        residual=jnp.maximum(residual, float(jnp.finfo(dtype).eps)),
        steps=end.steps,
        status=newton_status(end.size, solved, sound),
        slow=~solved,
    )
    taken = lanes.slow & (solved | (lanes.status != Status.CONVERGED))
    return FixedLanes(*(choose(taken, a, b) for a, b in zip(new, lanes, strict=True)))


def newton_status(size: Array, solved: Array, sound: Array) -> Array:
    """`Status` (B,) of lanes after Newton: from their last move, whether they are solved, and were given numbers."""
    failed = jnp.where(size < 0, jnp.int32(Status.SINGULAR), jnp.int32(Status.OUT_OF_STEPS))
    failed = jnp.where(sound, failed, jnp.int32(Status.BAD_INPUT))
    return jnp.where(solved, jnp.int32(Status.CONVERGED), failed)


class KrylovIteration(NamedTuple):
    """State of BiCGSTAB of a batch, textbook names; (N, 2, B), rho (B,)."""

    x: Array
    r: Array
    p: Array
    rho: Array


def bicgstab(
    product: Callable[[Array], Array], inverse: Callable[[Array], Array], right: Array, tol: float | None = None
) -> Array:
    """Solution of A x = right (N, 2, B) from an approximate inverse of A, in a fixed number of iterations.

    A lane that leaves less than `tol` of its right side rests, so that rounding does not lead it away again.
    """
    enough = jnp.square(KRYLOV_TOL[right.dtype.name] if tol is None else tol)

    def dot(a: Array, b: Array) -> Array:
        return jnp.sum(a * b, (0, 1))

    def over(a: Array, b: Array) -> Array:
        return jnp.where(b == 0, 0, a / jnp.where(b == 0, 1, b))

    whole = dot(right, right)

    def advance(_: int, c: KrylovIteration) -> KrylovIteration:
        going = dot(c.r, c.r) > enough * whole
        p = inverse(c.p)
        v = product(p)
        alpha = over(c.rho, dot(right, v))
        r = c.r - alpha[None, None] * v
        z = inverse(r)
        t = product(z)
        omega = over(dot(t, r), dot(t, t))
        x = c.x + alpha[None, None] * p + omega[None, None] * z
        r = r - omega[None, None] * t
        rho = dot(right, r)
        beta = over(rho, c.rho) * over(alpha, omega)
        new = KrylovIteration(x, r, r + beta[None, None] * (c.p - omega[None, None] * v), rho)
        return KrylovIteration(*(choose(going, a, b) for a, b in zip(new, c, strict=True)))

    return lax.fori_loop(0, KRYLOV, advance, KrylovIteration(jnp.zeros_like(right), right, right, whole)).x


def solve_linear_fixed(
    shared: Shared,
    e: Array,
    s: Array,
    right: Array,
    share: Array | None = None,
    *,
    tol: float,
    count: int,
    rest: bool,
    transpose: bool = False,
    own: bool = False,
) -> Array:
    """Solution of J(e) x = right (N, 2, B) on the unknowns, or of its transpose, by `count` sweeps.

    rest:   solve lanes that the sweeps leave unsettled by BiCGSTAB, after one question
    Other arguments as of `derivative.solve_linear`.
    """
    over: Callable[..., Callable[..., Any]] = jax.vmap if own else lambda part: part
    inputs = shared, e, s, share, right
    x, settled = over(functools.partial(_sweeps, tol, count, transpose))(*inputs)
    if not rest:
        return x  # type: ignore[no-any-return]
    krylov = over(functools.partial(_krylov, tol, transpose))
    solved: Array = lax.cond(jnp.all(settled), lambda _, x, __: x, krylov, inputs, x, settled)
    return solved


def _system(
    transpose: bool, shared: Shared, e: Array, s: Array, share: Array | None
) -> tuple[Callable[[Array], Array], Callable[[Array], Array], Array]:
    """Product with J or J', its approximate inverse, and the equations (N, 2, 1)."""
    rows = _rows(shared, share)
    product = jacobian_product(shared, e, s, share, transpose=transpose)
    inverse = preconditioner(shared.layout, constant_inverse(shared, transpose=transpose), share, transpose=transpose)
    return lambda x: jnp.where(rows, product(x), 0), inverse, rows


def _sweeps(
    tol: float, count: int, transpose: bool, shared: Shared, e: Array, s: Array, share: Array | None, right: Array
) -> tuple[Array, Array]:
    """x <- x + (constant inverse)(right - J x), 0 where that led away; and the lanes (B,) brought to `tol` of x."""
    product, inverse, rows = _system(transpose, shared, e, s, share)

    def advance(_: int, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, left, step = carry
        left = left - product(step)
        step = inverse(left)
        return x + step, left, step

    left = jnp.where(rows, right, 0)
    first = inverse(left)
    x, _, last = lax.fori_loop(0, count, advance, (first, left, first))
    size = eqs.largest(last)
    settled = size <= tol * jnp.max(jnp.abs(x), (0, 1))
    return choose(settled | (size < eqs.largest(first)), x, 0), settled


def _krylov(tol: float, transpose: bool, inputs: Any, x: Array, settled: Array) -> Array:
    """x where it is settled, elsewhere the solution by BiCGSTAB, refined once."""
    *system, right = inputs
    product, inverse, rows = _system(transpose, *system)
    right = jnp.where(rows, right, 0)
    found = bicgstab(product, inverse, right, tol)
    found = found + bicgstab(product, inverse, right - product(found), tol)
    return choose(settled, x, found)
