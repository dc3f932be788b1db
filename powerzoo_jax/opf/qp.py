"""Separable convex quadratic and linear programmes: a batched primal-dual interior point with predictor and corrector.

    minimise 1/2 x' Q x + c' x   subject to   row_lo <= A x <= row_hi,   lo <= x <= hi,   Q diagonal, q >= 0

Every variable is boxed, and a row has an activity y = A x with a box of its own; a box of zero width is an equality.
Textbook symbols: v = (x, y), slacks s_l = v - lo and s_u = hi - v, their multipliers z_l and z_u, row multipliers
lam with q x + c - A' lam = z_l - z_u and lam = z_l - z_u on the rows. The slacks are the state, not v: near a bound a
difference v - lo would have lost its digits in float32.

A step solves (A S A' + S_row) dlam = rhs, of the size of the rows, with S = 1 / (q + z_l / s_l + z_u / s_u). A is
shared by the lanes of a batch, so the system of every lane comes out of one constant product.

The systems are solved by Cholesky factorisation, unrolled when they are tiny; accelerators take another form of the
same steps (`opf.lanes`). Optimality and infeasibility are rechecked on the host in float64 from the multipliers of the
rows alone (`dual_bound`, `infeasibility`): weak duality holds for any multipliers lam, so a small gap is a proof
whatever the solver did.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base import struct
from powerzoo_jax.base.numerics import matmul
from powerzoo_jax.base.ranges import FINITE, LOWER, NOT_NEGATIVE, UPPER, Count, axes, checks_ranges
from powerzoo_jax.base.solver_mode import AUTO, by_mode, check_mode
from powerzoo_jax.opf.crossover import Factor, Solved, Towards, VertexLane, vertices
from powerzoo_jax.opf.interior_point import (
    ACCEPT,
    CAP_DERIVATIVE,
    FIXED,
    MAX_STEPS,
    REFINED,
    BoxedQp,
    QpPoint,
    QpProgress,
    curvature_weights,
    direction,
    factored,
    from_rows,
    iterate,
    row_pairs,
    row_system,
    to_rows,
    value_of,
)
from powerzoo_jax.opf.lanes import inverted, iterate_lanes
from powerzoo_jax.opf.result import OpfStatus


@struct.dataclass(kw_only=True)
class Qp:
    """One programme; share `a` between the lanes of a batch, map what differs. Units are the caller's: [$/h], [MW].

    a:              (m, n)
    q, c:           (n,)   cost 1/2 q x^2 + c x, q >= 0
    lo, hi:         (n,)   finite
    row_lo, row_hi: (m,)   infinite = no limit
    """

    a: Annotated[Array, FINITE, axes("m", "n")]
    q: Annotated[Array, NOT_NEGATIVE, axes("n")]
    c: Annotated[Array, FINITE, axes("n")]
    lo: Annotated[Array, FINITE, axes("n")]
    hi: Annotated[Array, FINITE, axes("n")]
    row_lo: Annotated[Array, LOWER, axes("m")]
    row_hi: Annotated[Array, UPPER, axes("m")]


@struct.dataclass(kw_only=True)
class QpResult:
    """Solution with its proof.

    x:               (n,)  inside its box, always
    row_price:       (m,)  d(objective) / d(row limit that binds); of an equality, d(objective) / d(right side)
    bound_price:     (n,)  reduced cost: positive at a lower bound, negative at an upper one
    objective:       ()    at x, and of OPTIMAL with what the rows still lack at their prices
    gap:             ()    objective less dual objective, relative
    primal_residual: ()    largest violation of a row, absolute
    dual_residual:   ()    largest violation of stationarity, relative to the largest cost
    iterations:      ()    int32
    status:          ()    int32 `OpfStatus`; of INFEASIBLE, row_price is a certificate that `infeasibility` checks
    """

    x: Array
    row_price: Array
    bound_price: Array
    objective: Array
    gap: Array
    primal_residual: Array
    dual_residual: Array
    iterations: Array
    status: Array


@checks_ranges("solve_qp")
def solve_qp(qp: Qp, *, max_steps: Count = MAX_STEPS, shared_rows: bool = True, solver: str = AUTO) -> QpResult:
    """Solve one programme; vmap it for many.

    max_steps:    interior point steps at most
    shared_rows:  False when `qp.a` differs between the lanes: its row pairs are then not kept
    solver:       "adaptive" stops as soon as all lanes are done, as suits a CPU core; "fixed" takes `lanes.STEPS` steps
                  and asks once whether lanes are left, as suits accelerators; "auto" chooses by the device

    In float32 about one lane in five thousand next to the load that can just be served loses its digits: two rows then
    hang on one variable, and the least residual it reaches is some 1e-4 pu. It says OUT_OF_STEPS; float64 solves it.

    Returns a QpResult; compiled, nothing raises or is NaN. Differentiable once, forward and reverse, in every field of
    `qp` (implicit function theorem at the optimum). At a degenerate optimum the derivative is that of the central path.
    Source: Mehrotra 1992, doi:10.1137/0802028.
    """
    return solve_towards(qp, None, max_steps, shared_rows, solver)


def solve_towards(
    qp: Qp, towards: Towards | None, max_steps: int = MAX_STEPS, shared_rows: bool = True, solver: str = AUTO
) -> QpResult:
    """Solution of a programme at a vertex, whose prices are derivatives in one direction where it is degenerate.

    towards:  that direction; None stays at the point that the steps reach
    """
    check_mode(solver)
    fine, qp = _cleaned(qp)
    scale = jnp.maximum(jnp.max(jnp.abs(qp.c) + qp.q * jnp.maximum(jnp.abs(qp.lo), jnp.abs(qp.hi))), 1e-6)
    box = _boxed(qp, lax.stop_gradient(scale))
    forms = (partial(form, max_steps=max_steps, shared_rows=shared_rows) for form in (_adaptive, _fixed))
    loop, v, lam = by_mode(solver, *forms, box, towards)
    ray_lam = loop.point.lam
    n = qp.c.shape[0]
    x = v[:n]
    # rounding is cut off without a derivative: a clip would hand that of the solution to the bound it touches
    x = x + lax.stop_gradient(jnp.clip(x, qp.lo, qp.hi) - x)
    reduced = (box.q[:n] * x + box.c[:n] - matmul(box.a.T, lam)) * scale
    status = _status(loop, qp.c.dtype.name)
    ray = status == OpfStatus.INFEASIBLE
    return QpResult(
        x=x,
        row_price=jnp.where(ray, ray_lam / jnp.max(jnp.abs(ray_lam) + 1e-30), lam * scale),
        bound_price=reduced,
        objective=_objective(qp, box, v, lam, scale, x, status == OpfStatus.OPTIMAL),
        gap=loop.measure.gap,
        primal_residual=_row_excess(qp, x),
        dual_residual=loop.measure.dual,
        iterations=loop.step,
        status=jnp.where(fine, status, jnp.int32(OpfStatus.BAD_INPUT)),
    )


def _cleaned(qp: Qp) -> tuple[Array, Qp]:
    """Flag that all inputs are usable, and the programme with harmless numbers in place of the others."""
    # leaf by leaf: a flag of the whole lane would give every lane of a batch its own copy of the shared matrix
    good = Qp(
        **{name: jnp.isfinite(getattr(qp, name)) for name in ("a", "q", "c", "lo", "hi")},
        row_lo=~jnp.isnan(qp.row_lo),
        row_hi=~jnp.isnan(qp.row_hi),
    )
    fine = jnp.all(jnp.stack([jnp.all(part) for part in jax.tree.leaves(good)]))
    return fine, jax.tree.map(lambda ok, leaf: jnp.where(ok, leaf, 0), good, qp)


def _boxed(qp: Qp, scale: Array) -> BoxedQp:
    """Scale costs, and close open rows at what the boxes of the variables allow anyway."""
    reach = matmul(jnp.abs(qp.a), jnp.maximum(jnp.abs(qp.lo), jnp.abs(qp.hi))) + 1
    m = qp.row_lo.shape[0]
    zero = jnp.zeros(m, qp.c.dtype)
    lo = jnp.concatenate([qp.lo, jnp.where(jnp.isfinite(qp.row_lo), qp.row_lo, -reach)])
    hi = jnp.concatenate([qp.hi, jnp.where(jnp.isfinite(qp.row_hi), qp.row_hi, reach)])
    q, c = (jnp.concatenate([part / scale, zero]) for part in (qp.q, qp.c))
    return BoxedQp(qp.a, q, c, lo, hi, _is_free(lo, hi))


def _objective(qp: Qp, box: BoxedQp, v: Array, lam: Array, scale: Array, x: Array, optimal: Array) -> Array:
    """Objective at x; its derivative is that of the Lagrangian at the optimum, which needs no derivative of x."""
    still, v, lam, scale, x = lax.stop_gradient((box, v, lam, scale, x))
    # by the reduced costs, also of a variable without width: its bound may move away from the other
    reduced = still.q * v + still.c - from_rows(still, lam)
    moves = jnp.maximum(reduced, 0) * (box.lo - still.lo) + jnp.minimum(reduced, 0) * (box.hi - still.hi)
    # what the rows still lack is worth their prices: at a price of VOLL even float32's last digit of a MW counts
    short = v[qp.c.shape[0] :] - matmul(still.a, x)
    lacking = jnp.where(optimal, matmul(lam, short), 0)
    value = jnp.sum((0.5 * qp.q * x + qp.c) * x) + scale * lacking
    return value + scale * (jnp.sum(moves) - matmul(lam, matmul(box.a - still.a, x)))


def _row_excess(qp: Qp, x: Array) -> Array:
    activity = matmul(qp.a, x)
    return jnp.max(jnp.maximum(jnp.maximum(qp.row_lo - activity, activity - qp.row_hi), 0), initial=0)


def _status(loop: QpProgress, dtype: str) -> Array:
    measure, limit = loop.measure, ACCEPT[dtype]
    done = (measure.gap <= limit) & (measure.primal <= limit) & (measure.dual <= limit)
    status = jnp.where(done, int(OpfStatus.OPTIMAL), int(OpfStatus.OUT_OF_STEPS))
    return jnp.where(measure.infeasible, int(OpfStatus.INFEASIBLE), status).astype(jnp.int32)


# traced once for each shape: a program clears many markets of one shape; `inline` leaves the compiled program as it was
_traced_once = partial(jax.jit, static_argnames=("max_steps", "shared_rows"), inline=True)


@_traced_once
def _adaptive(box: BoxedQp, towards: Towards | None, *, max_steps: int, shared_rows: bool) -> Solved:
    """Last point with its measure, and v and lam with their dependence on the programme."""
    return _solved(box, towards, partial(iterate, max_steps=max_steps, shared_rows=shared_rows), shared_rows, factored)


@_traced_once
def _fixed(box: BoxedQp, towards: Towards | None, *, max_steps: int, shared_rows: bool) -> Solved:
    """The same from a fixed number of steps, and without calls of a library."""
    return _solved(box, towards, partial(iterate_lanes, max_steps=max_steps), shared_rows, inverted)


def _solved(
    box: BoxedQp, towards: Towards | None, steps: Callable[[BoxedQp], QpProgress], shared_rows: bool, factor: Factor
) -> Solved:
    roomy = _roomy(box, towards)
    still = jax.tree.map(lax.stop_gradient, roomy)
    loop = steps(still)
    found = loop, value_of(still, loop.point), loop.point.lam
    if towards is not None:
        found = vertices(factor)(*_lane(box, roomy, towards, shared_rows), *jax.tree.leaves(loop))
    return _differentiable(roomy, *found, shared_rows, factor)


def _lane(box: BoxedQp, roomy: BoxedQp, towards: Towards, shared_rows: bool) -> tuple[Any, ...]:
    """Arguments of a crossover: what lanes share, and the fields of `VertexLane`."""
    n, m = towards.hi.size, towards.rows.size
    rising = jnp.pad((towards.hi > 0) & (box.hi[:n] == box.lo[:n]), (0, m))
    lane = VertexLane(box.q, box.c, box.lo, box.hi, roomy.hi, roomy.free, rising, towards.rows)
    return lax.stop_gradient(((box.a, row_pairs(box, shared_rows)), *lane))


def _roomy(box: BoxedQp, towards: Towards | None) -> BoxedQp:
    """The programme with the room that upper bounds are given."""
    if towards is None:
        return box
    hi = box.hi + jnp.pad(towards.room, (0, box.hi.size - towards.room.size))
    return box._replace(hi=hi, free=_is_free(box.lo, hi))


def _is_free(lo: Array, hi: Array) -> Array:
    width = hi - lo
    return width > FIXED[lo.dtype.name] * jnp.maximum(jnp.max(width), 1)


def _differentiable(box: BoxedQp, loop: QpProgress, v: Array, lam: Array, shared_rows: bool, factor: Factor) -> Solved:
    """A solution as a function of the programme."""

    # only a derivative pays for the system behind it
    @jax.custom_jvp
    def solution(box: BoxedQp, point: QpPoint, v: Array, lam: Array) -> tuple[Array, Array]:
        del box, point
        return v, lam

    @solution.defjvp
    def _(primals: tuple[BoxedQp, QpPoint, Array, Array], tangents: Any) -> Any:
        box, point, v, lam = primals
        at = partial(_stepped, point=point, v=v, lam=lam, shared_rows=shared_rows, factor=factor)
        return (v, lam), jax.jvp(at, (box,), tangents[:1])[1]

    return loop, *solution(box, loop.point, v, lam)


def _stepped(
    box: BoxedQp, point: QpPoint, v: Array, lam: Array, shared_rows: bool, factor: Factor
) -> tuple[Array, Array]:
    """v and lam with their dependence on the programme, by the implicit function theorem.

    The derivative is that of one more Newton step at the interior point, whose matrix is held constant, with
    complementarity s z = const differentiated through the bounds. The value stays: in float32 the step would add
    rounding.
    """
    still = jax.tree.map(lax.stop_gradient, box)
    weight = jnp.minimum(curvature_weights(still, point), CAP_DERIVATIVE[box.c.dtype.name])
    solve = factor(row_system(still, row_pairs(still, shared_rows), weight))
    pushed = (point.z_l / point.s_l) * (box.lo - still.lo) + (point.z_u / point.s_u) * (box.hi - still.hi)
    pushed = jnp.where(box.free, pushed, 0)
    moved = jnp.where(box.free, 0, box.lo - still.lo)  # a variable that its box fixes goes with the box
    v = v + moved
    force = pushed - (box.q * v + box.c - from_rows(box, lam) - point.z_l + point.z_u)
    dv, d_lam = direction(still, weight, solve, force, -to_rows(box, v), REFINED[v.dtype.name])
    # an iterate that got stuck can leave a matrix without a factor: it has no derivative then
    good = jnp.isfinite(dv).all() & jnp.isfinite(d_lam).all()
    dv, d_lam = (jnp.where(good, x, 0) for x in (dv, d_lam))
    return v + (dv - lax.stop_gradient(dv)), lam + (d_lam - lax.stop_gradient(d_lam))


@checks_ranges("dual_bound")
def dual_bound(qp: Qp, row_price: Annotated[np.ndarray, FINITE, axes("m")]) -> float:
    """Lower bound on the cost of every feasible point (weak duality), in its objective's unit, [$/h] of an OPF.

    g(lam) = sum_j min over the box of 1/2 q x^2 + (c - A' lam) x   +   sum_i min over the row's limits of lam y

    row_price: (m,) of QpResult; a price on an open side of a row counts as 0
    """
    a, q, c, lo, hi, row_lo, row_hi, lam = _wide(qp, row_price)
    lam = np.where((lam > 0) & ~np.isfinite(row_lo) | (lam < 0) & ~np.isfinite(row_hi), 0.0, lam)
    reduced = c - a.T @ lam
    turning = np.where(q > 0, -reduced / np.where(q > 0, q, 1.0), np.where(reduced > 0, lo, hi))
    x = np.clip(turning, lo, hi)
    at = np.where(lam > 0, row_lo, np.where(lam < 0, row_hi, 0.0))
    return float(np.sum((0.5 * q * x + reduced) * x) + lam @ at)


def cost_at(qp: Qp, x: np.ndarray) -> float:
    """1/2 x' Q x + c' x."""
    x = np.asarray(x, np.float64)
    return float(np.sum((0.5 * np.asarray(qp.q, np.float64) * x + np.asarray(qp.c, np.float64)) * x))


def violation(qp: Qp, x: np.ndarray) -> float:
    """Largest violation of a box or row."""
    a, _, _, lo, hi, row_lo, row_hi, x = _wide(qp, x)
    y = a @ x
    return float(max(0.0, *(np.max(part, initial=0.0) for part in (lo - x, x - hi, row_lo - y, y - row_hi))))


@checks_ranges("infeasibility")
def infeasibility(qp: Qp, ray: Annotated[np.ndarray, FINITE, axes("m")]) -> float:
    """Excess of the rows, weighted with `ray` (m,) [-], over what the boxes can give: above 0 proves infeasible.

    max over the box of ray' A x  <  min over the row limits of ray' y
    """
    a, _, _, lo, hi, row_lo, row_hi, ray = _wide(qp, ray)
    ray = np.where((ray > 0) & ~np.isfinite(row_lo) | (ray < 0) & ~np.isfinite(row_hi), 0.0, ray)
    pull = a.T @ ray
    at = np.where(ray > 0, row_lo, np.where(ray < 0, row_hi, 0.0))
    return float(ray @ at - np.sum(np.maximum(pull * lo, pull * hi)))


def _wide(qp: Qp, multipliers: np.ndarray) -> tuple[np.ndarray, ...]:
    parts = (qp.a, qp.q, qp.c, qp.lo, qp.hi, qp.row_lo, qp.row_hi, multipliers)
    return tuple(np.asarray(part, np.float64) for part in parts)
