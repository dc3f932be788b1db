"""Separable convex quadratic and linear programmes: a batched primal-dual interior point with predictor and corrector.

    minimise 1/2 x' Q x + c' x   subject to   row_lo <= A x <= row_hi,   lo <= x <= hi,   Q diagonal, q >= 0

Every variable is boxed, and a row has an activity y = A x with a box of its own; a box of zero width is an equality.
Textbook symbols: v = (x, y), slacks s_l = v - lo and s_u = hi - v, their multipliers z_l and z_u, row multipliers
lam with q x + c - A' lam = z_l - z_u and lam = z_l - z_u on the rows. The slacks are the state, not v: near a bound a
difference v - lo would have lost its digits in float32.

A step solves (A S A' + S_row) dlam = rhs, of the size of the rows, with S = 1 / (q + z_l / s_l + z_u / s_u). A is
shared by the lanes of a batch, so the system of every lane comes out of one constant product.

The systems are solved by Cholesky factorisation, unrolled when they are tiny. Optimality and infeasibility are
rechecked on the host in float64 from the multipliers of the rows alone (`dual_bound`, `infeasibility`): weak duality
holds for any multipliers lam, so a small gap is a proof whatever the solver did.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax

from powerzoo_jax.base.numerics import matmul
from powerzoo_jax.opf.result import OpfStatus

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


MAX_STEPS = 60
GOAL = {"float32": 1e-5, "float64": 1e-10}  # relative gap and dual residual at which a lane stops
SHORT = {"float32": 3e-5, "float64": 1e-9}  # the same for the rows, absolute; float32 resolves 2e-5 of a sum of 250
ACCEPT = {"float32": 1e-4, "float64": 1e-6}  # what counts as optimal when rounding stops it before
ROUNDING = {"float32": 3e-5, "float64": 1e-10}  # a certificate of infeasibility must exceed this share of its terms
FIXED = {"float32": 1e-6, "float64": 1e-10}  # boxes narrower than this share of the largest are equalities
RIDGE = {"float32": 1e-7, "float64": 1e-14}  # share of its diagonal added to the row system
REFINED = {"float32": 2, "float64": 0}  # refinements of each solve of the row system
# Largest S, per unit of scaled cost. Of a linear programme S grows without bound and magnifies the rounding of the
# prices; capped, a flat direction counts as slightly curved, which costs steps or accuracy of derivatives, not truth.
CAP = {"float32": 3e5, "float64": 1e12}
CAP_DERIVATIVE = {"float32": 1e4, "float64": 1e9}
SHORTEST = 1e-5  # a lane whose steps fall below this is stuck
FLOOR = 1e-4  # [-] of the largest cost: what a relative gap is relative to at least
PAIRED_ROWS = 64  # up to this many rows the products of all row pairs are kept: m * m * n numbers


@struct.dataclass(kw_only=True)
class Qp:
    """One programme; share `a` between the lanes of a batch, map what differs. Units are the caller's: [$/h], [MW].

    a:              (m, n)
    q, c:           (n,)   cost 1/2 q x^2 + c x, q >= 0
    lo, hi:         (n,)   finite
    row_lo, row_hi: (m,)   infinite = no limit
    """

    a: Array
    q: Array
    c: Array
    lo: Array
    hi: Array
    row_lo: Array
    row_hi: Array


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
    status:          ()    int32 `OpfStatus`; of INFEASIBLE, row_price is the certificate (see `opf.qp`)
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


class _Box(NamedTuple):
    """The programme over v = (x, y), (n + m,), with costs divided by their scale."""

    a: Array
    q: Array
    c: Array
    lo: Array
    hi: Array
    free: Array  # bool: not fixed by its box


class _QpPoint(NamedTuple):
    s_l: Array
    s_u: Array
    z_l: Array
    z_u: Array
    lam: Array


class _Measure(NamedTuple):
    """Optimality residuals of a point: all () and scaled as in QpResult."""

    gap: Array
    primal: Array
    dual: Array
    infeasible: Array  # bool: lam proves it


class _Loop(NamedTuple):
    step: Array
    point: _QpPoint
    measure: _Measure
    length: Array


def solve_qp(qp: Qp, *, max_steps: int = MAX_STEPS, shared_rows: bool = True) -> QpResult:
    """Solve one programme; vmap it for many.

    max_steps:    interior point steps at most
    shared_rows:  False when `qp.a` differs between the lanes: its row pairs are then not kept

    In float32 about one lane in five thousand next to the load that can just be served loses its digits: two rows then
    hang on one variable, and the least residual it reaches is some 1e-4 pu. It says OUT_OF_STEPS; float64 solves it.

    Returns a QpResult; nothing raises and nothing is NaN. Differentiable once, forward and reverse, in every field of
    `qp` (implicit function theorem at the optimum). At a degenerate optimum the derivative is that of the central path.
    Source: Mehrotra 1992, doi:10.1137/0802028.
    """
    fine, qp = _cleaned(qp)
    scale = jnp.maximum(jnp.max(jnp.abs(qp.c) + qp.q * jnp.maximum(jnp.abs(qp.lo), jnp.abs(qp.hi))), 1e-6)
    box = _boxed(qp, lax.stop_gradient(scale))
    frozen = jax.tree.map(lax.stop_gradient, box)
    loop = _iterate(frozen, max_steps, shared_rows)
    point = loop.point
    v, lam = _differentiable(box, point, shared_rows)
    n = qp.c.shape[0]
    x = v[:n]
    # rounding is cut off without a derivative: a clip would hand that of the solution to the bound it touches
    x = x + lax.stop_gradient(jnp.clip(x, qp.lo, qp.hi) - x)
    reduced = (box.q[:n] * x + box.c[:n] - matmul(box.a.T, lam)) * scale
    status = _status(loop, qp.c.dtype.name)
    ray = status == OpfStatus.INFEASIBLE
    return QpResult(
        x=x,
        row_price=jnp.where(ray, point.lam / jnp.max(jnp.abs(point.lam) + 1e-30), lam * scale),
        bound_price=reduced,
        objective=_objective(qp, box, point, lam, scale, x, status == OpfStatus.OPTIMAL),
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


def _boxed(qp: Qp, scale: Array) -> _Box:
    """Scale costs, and close open rows at what the boxes of the variables allow anyway."""
    reach = matmul(jnp.abs(qp.a), jnp.maximum(jnp.abs(qp.lo), jnp.abs(qp.hi))) + 1
    m = qp.row_lo.shape[0]
    zero = jnp.zeros(m, qp.c.dtype)
    lo = jnp.concatenate([qp.lo, jnp.where(jnp.isfinite(qp.row_lo), qp.row_lo, -reach)])
    hi = jnp.concatenate([qp.hi, jnp.where(jnp.isfinite(qp.row_hi), qp.row_hi, reach)])
    width = hi - lo
    free = width > FIXED[qp.c.dtype.name] * jnp.maximum(jnp.max(width), 1)
    return _Box(qp.a, jnp.concatenate([qp.q / scale, zero]), jnp.concatenate([qp.c / scale, zero]), lo, hi, free)


def _value(box: _Box, point: _QpPoint) -> Array:
    """v, measured from its nearer bound."""
    near = jnp.where(point.s_l < point.s_u, box.lo + point.s_l, box.hi - point.s_u)
    return jnp.where(box.free, near, box.lo)


def _to_rows(box: _Box, v: Array) -> Array:
    """A x - y."""
    n = box.a.shape[1]
    return matmul(box.a, v[:n]) - v[n:]


def _from_rows(box: _Box, lam: Array) -> Array:
    """(A' lam, -lam)."""
    return jnp.concatenate([matmul(box.a.T, lam), -lam])


def _start(box: _Box) -> _QpPoint:
    """The middle of the box, with multipliers that satisfy stationarity there."""
    half = jnp.where(box.free, 0.5 * (box.hi - box.lo), 1)
    slope = box.q * (0.5 * (box.lo + box.hi)) + box.c
    level = jnp.asarray(0.1, box.c.dtype)
    z_l = jnp.where(box.free, level + jnp.maximum(slope, 0), 0)
    z_u = jnp.where(box.free, level + jnp.maximum(-slope, 0), 0)
    return _QpPoint(half, half, z_l, z_u, jnp.zeros(box.a.shape[0], box.c.dtype))


def _weights(box: _Box, point: _QpPoint) -> Array:
    """S, 0 where the box fixes the variable."""
    curvature = jnp.maximum(box.q + point.z_l / point.s_l + point.z_u / point.s_u, 1 / CAP[box.c.dtype.name])
    return jnp.where(box.free, 1 / jnp.where(box.free, curvature, 1), 0)


def _row_factor(box: _Box, pairs: Array | None, weight: Array) -> Array:
    """Cholesky factor of A S A' + S_row."""
    m, n = box.a.shape
    weighted = box.a * weight[None, :n]
    system = matmul(weighted, box.a.T) if pairs is None else matmul(pairs, weight[:n]).reshape(m, m)
    diagonal = jnp.diagonal(system) + weight[n:]
    ridge = RIDGE[weight.dtype.name] * jnp.maximum(diagonal, jnp.max(diagonal) * 1e-6) + 1e-30
    return cholesky(system + jnp.diag(weight[n:] + ridge))


def _pairs(box: _Box, shared_rows: bool) -> Array | None:
    m, n = box.a.shape
    if m > PAIRED_ROWS or not shared_rows:
        return None
    return (box.a[:, None, :] * box.a[None, :, :]).reshape(m * m, n)


def _direction(
    box: _Box, weight: Array, factor: Array, force: Array, short: Array, refined: int
) -> tuple[Array, Array]:
    """Solve dv = S (A' dlam + force), A dv = short."""
    d_lam = cholesky_solve(factor, short - _to_rows(box, weight * force))
    for _ in range(refined):
        left = short - _to_rows(box, weight * (_from_rows(box, d_lam) + force))
        d_lam = d_lam + cholesky_solve(factor, left)
    return weight * (_from_rows(box, d_lam) + force), d_lam


def _iterate(box: _Box, max_steps: int, shared_rows: bool) -> _Loop:
    goal, short = GOAL[box.c.dtype.name], SHORT[box.c.dtype.name]
    pairs = _pairs(box, shared_rows)

    def pending(loop: _Loop) -> Array:
        measure = loop.measure
        done = (measure.gap <= goal) & (measure.primal <= short) & (measure.dual <= goal)
        return (loop.step < max_steps) & ~done & ~measure.infeasible & (loop.length > SHORTEST)

    def advance(loop: _Loop) -> _Loop:
        point, length = _advance(box, pairs, loop.point)
        return _Loop(loop.step + 1, point, _measure(box, point), length)

    start = _start(box)
    one = jnp.ones((), box.c.dtype)
    return lax.while_loop(pending, advance, _Loop(jnp.int32(0), start, _measure(box, start), one))


def _advance(box: _Box, pairs: Array | None, point: _QpPoint) -> tuple[_QpPoint, Array]:
    """One predictor-corrector step and the shorter of its two lengths."""
    weight = _weights(box, point)
    factor = _row_factor(box, pairs, weight)
    v = _value(box, point)
    short = -_to_rows(box, v)
    slope = box.q * v + box.c - _from_rows(box, point.lam)
    count = 2 * jnp.maximum(jnp.sum(box.free.astype(v.dtype)), 1)

    def move(target_l: Array, target_u: Array, refined: int) -> _QpPoint:
        """Direction towards s_l z_l = target_l, s_u z_u = target_u."""
        force = target_l / point.s_l - target_u / point.s_u - slope
        dv, d_lam = _direction(box, weight, factor, force, short, refined)
        d_zl = (target_l - point.z_l * dv) / point.s_l - point.z_l
        d_zu = (target_u + point.z_u * dv) / point.s_u - point.z_u
        keep = box.free.astype(v.dtype)
        return _QpPoint(dv, -dv, keep * d_zl, keep * d_zu, d_lam)

    mu = jnp.sum(point.s_l * point.z_l + point.s_u * point.z_u) / count
    zero = jnp.zeros_like(v)
    aim = move(zero, zero, 0)  # it only tells how far to aim: rounding does no harm
    ahead = _moved(point, aim, *_lengths(point, aim, 1.0))
    mu_ahead = jnp.sum(ahead.s_l * ahead.z_l + ahead.s_u * ahead.z_u) / count
    # not below what the goal asks for: the row system would lose its digits while residuals still fall
    least = 0.1 * GOAL[v.dtype.name] * (_worth(box, v) + FLOOR) / count
    centre = jnp.maximum(mu * (jnp.clip(mu_ahead / mu, 0, 1) ** 3), least)
    step = move(centre - aim.s_l * aim.z_l, centre - aim.s_u * aim.z_u, REFINED[v.dtype.name])
    primal, dual = _lengths(point, step, 0.995)
    new = _moved(point, step, primal, dual)
    good = jnp.all(jnp.stack([jnp.isfinite(leaf).all() for leaf in new]))
    kept = jax.tree.map(lambda a, b: jnp.where(good, a, b), new, point)
    return kept, jnp.where(good, jnp.minimum(primal, dual), 0)


def _lengths(point: _QpPoint, step: _QpPoint, share: float) -> tuple[Array, Array]:
    """Step lengths that keep slacks and multipliers positive."""

    def reach(value: Array, change: Array) -> Array:
        shrinks = change < 0
        return jnp.min(jnp.where(shrinks, -value / jnp.where(shrinks, change, -1), jnp.inf))

    primal = jnp.minimum(reach(point.s_l, step.s_l), reach(point.s_u, step.s_u))
    dual = jnp.minimum(reach(point.z_l, step.z_l), reach(point.z_u, step.z_u))
    return jnp.minimum(share * primal, 1), jnp.minimum(share * dual, 1)


def _moved(point: _QpPoint, step: _QpPoint, primal: Array, dual: Array) -> _QpPoint:
    return _QpPoint(
        point.s_l + primal * step.s_l,
        point.s_u + primal * step.s_u,
        point.z_l + dual * step.z_l,
        point.z_u + dual * step.z_u,
        point.lam + dual * step.lam,
    )


def _worth(box: _Box, v: Array) -> Array:
    """|objective|, scaled."""
    return jnp.abs(jnp.sum((0.5 * box.q * v + box.c) * v))


def _measure(box: _Box, point: _QpPoint) -> _Measure:
    v = _value(box, point)
    pull = _from_rows(box, point.lam)
    rest = jnp.where(box.free, box.q * v + box.c - pull - point.z_l + point.z_u, 0)
    # what is missing in stationarity moves the cost by as much as the variable is away from its bounds
    gap = jnp.sum(point.s_l * point.z_l + point.s_u * point.z_u + jnp.abs(rest) * jnp.minimum(point.s_l, point.s_u))
    short = jnp.max(jnp.abs(_to_rows(box, v)), initial=0)
    # for any lam, pull' v = 0 on the rows' surface, and this is the most that the boxes allow
    most = jnp.maximum(pull * box.lo, pull * box.hi)
    proof = -jnp.sum(most) > ROUNDING[v.dtype.name] * jnp.sum(
        jnp.abs(pull) * jnp.maximum(jnp.abs(box.lo), jnp.abs(box.hi))
    )
    return _Measure(gap / (_worth(box, v) + FLOOR), short, jnp.max(jnp.abs(rest)), proof)


def _objective(qp: Qp, box: _Box, point: _QpPoint, lam: Array, scale: Array, x: Array, optimal: Array) -> Array:
    """Objective at x; its derivative is that of the Lagrangian at the optimum, which needs no derivative of x."""
    still, x, lam, scale = lax.stop_gradient((box, x, lam, scale))
    lower = jnp.where(still.free, point.z_l, still.q * _value(still, point) + still.c - _from_rows(still, lam))
    moves = lower * (box.lo - still.lo) - jnp.where(still.free, point.z_u, 0) * (box.hi - still.hi)
    # what the rows still lack is worth their prices: at a price of VOLL even float32's last digit of a MW counts
    short = _value(still, point)[qp.c.shape[0] :] - matmul(still.a, x)
    lacking = jnp.where(optimal, matmul(lam, short), 0)
    value = jnp.sum((0.5 * qp.q * x + qp.c) * x) + scale * lacking
    return value + scale * (jnp.sum(moves) - matmul(lam, matmul(box.a - still.a, x)))


def _row_excess(qp: Qp, x: Array) -> Array:
    activity = matmul(qp.a, x)
    return jnp.max(jnp.maximum(jnp.maximum(qp.row_lo - activity, activity - qp.row_hi), 0), initial=0)


def _status(loop: _Loop, dtype: str) -> Array:
    measure, limit = loop.measure, ACCEPT[dtype]
    done = (measure.gap <= limit) & (measure.primal <= limit) & (measure.dual <= limit)
    status = jnp.where(done, int(OpfStatus.OPTIMAL), int(OpfStatus.OUT_OF_STEPS))
    return jnp.where(measure.infeasible, int(OpfStatus.INFEASIBLE), status).astype(jnp.int32)


def _differentiable(box: _Box, point: _QpPoint, shared_rows: bool) -> tuple[Array, Array]:
    """v and lam with their dependence on the programme, by the implicit function theorem.

    The derivative is that of one more Newton step whose matrix is held constant, with complementarity s z = const
    differentiated through the bounds. The value stays that of the iterate: in float32 the step would add rounding.
    """
    still = jax.tree.map(lax.stop_gradient, box)
    weight = jnp.minimum(_weights(still, point), CAP_DERIVATIVE[box.c.dtype.name])
    factor = _row_factor(still, _pairs(still, shared_rows), weight)
    v, lam = _value(still, point), point.lam
    pushed = (point.z_l / point.s_l) * (box.lo - still.lo) + (point.z_u / point.s_u) * (box.hi - still.hi)
    pushed = jnp.where(box.free, pushed, 0)
    moved = jnp.where(box.free, 0, box.lo - still.lo)  # a variable that its box fixes goes with the box
    v = v + moved
    force = pushed - (box.q * v + box.c - _from_rows(box, lam) - point.z_l + point.z_u)
    dv, d_lam = _direction(still, weight, factor, force, -_to_rows(box, v), REFINED[v.dtype.name])
    # an iterate that got stuck can leave a matrix without a factor: it has no derivative then
    good = jnp.isfinite(dv).all() & jnp.isfinite(d_lam).all()
    dv, d_lam = (jnp.where(good, x, 0) for x in (dv, d_lam))
    return v + (dv - lax.stop_gradient(dv)), lam + (d_lam - lax.stop_gradient(d_lam))


def dual_bound(qp: Qp, row_price: np.ndarray) -> float:
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


def infeasibility(qp: Qp, ray: np.ndarray) -> float:
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
