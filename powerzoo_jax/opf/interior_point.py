"""Interior point steps of one boxed programme: weights, row system, predictor and corrector, measure of a point.

Textbook symbols as in `opf.qp`: v = (x, y), slacks s_l = v - lo and s_u = hi - v, multipliers z_l and z_u, row
multipliers lam. The form for one programme stops by itself; `opf.lanes` has the one that takes fixed steps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.base.numerics import matmul

RowSolve = Callable[[Array], Array]  # (m,) -> (m,)

UNROLLED = 6  # rows; LAPACK costs about 1 us a call, the unrolled code runs over the whole batch at once


def cholesky(a: Array) -> Array:
    """Lower factor L of a symmetric positive definite a (m, m)."""
    return jnp.linalg.cholesky(a, symmetrize_input=False) if a.shape[0] > UNROLLED else unrolled_cholesky(a)


def cholesky_solve(factor: Array, b: Array) -> Array:
    """Solve L L' x = b for b (m,)."""
    if factor.shape[0] <= UNROLLED:
        return unrolled_solve(factor, b)
    y = lax.linalg.triangular_solve(factor, b[:, None], left_side=True, lower=True)
    return lax.linalg.triangular_solve(factor, y, left_side=True, lower=True, transpose_a=True)[:, 0]


def unrolled_cholesky(a: Array) -> Array:
    """Lower factor L of a symmetric positive definite a (m, m, ...), entry by entry, for a few rows."""
    m = a.shape[0]
    rows: list[list[Array]] = []
    for i in range(m):
        row: list[Array] = []
        for j in range(i + 1):
            left = a[i, j]
            for k in range(j):
                left = left - row[k] * (row[k] if i == j else rows[j][k])
            row.append(jnp.sqrt(left) if i == j else left / rows[j][j])
        rows.append(row)
    zero = jnp.zeros(a.shape[2:], a.dtype)
    return jnp.stack([jnp.stack(row + [zero] * (m - len(row))) for row in rows])


def unrolled_solve(factor: Array, b: Array) -> Array:
    """Solve L L' x = b for b (m, ...), entry by entry."""
    m = factor.shape[0]
    y: list[Array] = []
    for i in range(m):
        left = b[i]
        for k in range(i):
            left = left - factor[i, k] * y[k]
        y.append(left / factor[i, i])
    x: list[Array] = [jnp.zeros((), b.dtype)] * m
    for i in reversed(range(m)):
        left = y[i]
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


class BoxedQp(NamedTuple):
    """The programme over v = (x, y), (n + m,), with costs divided by their scale."""

    a: Array
    q: Array
    c: Array
    lo: Array
    hi: Array
    free: Array  # bool: not fixed by its box


class QpPoint(NamedTuple):
    s_l: Array
    s_u: Array
    z_l: Array
    z_u: Array
    lam: Array


class QpMeasure(NamedTuple):
    """Optimality residuals of a point: all () and scaled as in QpResult."""

    gap: Array
    primal: Array
    dual: Array
    infeasible: Array  # bool: lam proves it


class QpProgress(NamedTuple):
    step: Array
    point: QpPoint
    measure: QpMeasure
    length: Array


def value_of(box: BoxedQp, point: QpPoint) -> Array:
    """v, measured from its nearer bound."""
    near = jnp.where(point.s_l < point.s_u, box.lo + point.s_l, box.hi - point.s_u)
    return jnp.where(box.free, near, box.lo)


def to_rows(box: BoxedQp, v: Array) -> Array:
    """A x - y."""
    n = box.a.shape[1]
    return matmul(box.a, v[:n]) - v[n:]


def from_rows(box: BoxedQp, lam: Array) -> Array:
    """(A' lam, -lam)."""
    return jnp.concatenate([matmul(box.a.T, lam), -lam])


def start_point(box: BoxedQp) -> QpPoint:
    """The middle of the box, with multipliers that satisfy stationarity there."""
    half = jnp.where(box.free, 0.5 * (box.hi - box.lo), 1)
    slope = box.q * (0.5 * (box.lo + box.hi)) + box.c
    level = jnp.asarray(0.1, box.c.dtype)
    z_l = jnp.where(box.free, level + jnp.maximum(slope, 0), 0)
    z_u = jnp.where(box.free, level + jnp.maximum(-slope, 0), 0)
    return QpPoint(half, half, z_l, z_u, jnp.zeros(box.a.shape[:1] + box.lo.shape[1:], box.c.dtype))


def curvature_weights(box: BoxedQp, point: QpPoint) -> Array:
    """S, 0 where the box fixes the variable."""
    curvature = jnp.maximum(box.q + point.z_l / point.s_l + point.z_u / point.s_u, 1 / CAP[box.c.dtype.name])
    return jnp.where(box.free, 1 / jnp.where(box.free, curvature, 1), 0)


def weighted_rows(box: BoxedQp, pairs: Array | None, weight: Array) -> Array:
    """A S A', (m, m)."""
    m, n = box.a.shape
    weighted = box.a * weight[None, :n]
    return matmul(weighted, box.a.T) if pairs is None else matmul(pairs, weight[:n]).reshape(m, m)


def row_system(box: BoxedQp, pairs: Array | None, weight: Array) -> Array:
    """A S A' + S_row with a ridge, (m, m)."""
    system, rows = weighted_rows(box, pairs, weight), weight[box.a.shape[1] :]
    diagonal = jnp.diagonal(system) + rows
    ridge = RIDGE[weight.dtype.name] * jnp.maximum(diagonal, jnp.max(diagonal) * 1e-6) + 1e-30
    return system + jnp.diag(rows + ridge)


def factored(system: Array) -> RowSolve:
    """Solution of a row system for right sides (m,), by its Cholesky factor."""
    return partial(cholesky_solve, cholesky(system))


def row_pairs(box: BoxedQp, shared_rows: bool) -> Array | None:
    m, n = box.a.shape
    if m > PAIRED_ROWS or not shared_rows:
        return None
    return (box.a[:, None, :] * box.a[None, :, :]).reshape(m * m, n)


def direction(
    box: BoxedQp, weight: Array, solve: RowSolve, force: Array, short: Array, refined: int
) -> tuple[Array, Array]:
    """Solve dv = S (A' dlam + force), A dv = short."""
    d_lam = solve(short - to_rows(box, weight * force))
    for _ in range(refined):
        left = short - to_rows(box, weight * (from_rows(box, d_lam) + force))
        d_lam = d_lam + solve(left)
    return weight * (from_rows(box, d_lam) + force), d_lam


def at_goal(measure: QpMeasure, dtype: str) -> Array:
    """Whether a point is at its goal."""
    return (measure.gap <= GOAL[dtype]) & (measure.primal <= SHORT[dtype]) & (measure.dual <= GOAL[dtype])


def pending(measure: QpMeasure, step: Array, length: Array, max_steps: int) -> Array:
    """Lanes that have a step to take: not at their goal, not proven infeasible, not stuck."""
    return (step < max_steps) & ~at_goal(measure, length.dtype.name) & ~measure.infeasible & (length > SHORTEST)


def iterate(box: BoxedQp, max_steps: int, shared_rows: bool) -> QpProgress:
    """Last point of a programme, with as many steps as it takes."""
    pairs = row_pairs(box, shared_rows)

    def advance(loop: QpProgress) -> QpProgress:
        point, length = _advance(box, pairs, loop.point)
        return QpProgress(loop.step + 1, point, measure_of(box, point), length)

    start = start_point(box)
    one = jnp.ones((), box.c.dtype)
    begin = QpProgress(jnp.int32(0), start, measure_of(box, start), one)
    return lax.while_loop(lambda loop: pending(loop.measure, loop.step, loop.length, max_steps), advance, begin)


def _advance(box: BoxedQp, pairs: Array | None, point: QpPoint) -> tuple[QpPoint, Array]:
    """One predictor-corrector step and the shorter of its two lengths."""
    weight = curvature_weights(box, point)
    solve = factored(row_system(box, pairs, weight))
    v = value_of(box, point)
    short = -to_rows(box, v)
    slope = box.q * v + box.c - from_rows(box, point.lam)
    count = 2 * jnp.maximum(jnp.sum(box.free.astype(v.dtype)), 1)

    def move(target_l: Array, target_u: Array, refined: int) -> QpPoint:
        """Direction towards s_l z_l = target_l, s_u z_u = target_u."""
        force = target_l / point.s_l - target_u / point.s_u - slope
        dv, d_lam = direction(box, weight, solve, force, short, refined)
        d_zl = (target_l - point.z_l * dv) / point.s_l - point.z_l
        d_zu = (target_u + point.z_u * dv) / point.s_u - point.z_u
        keep = box.free.astype(v.dtype)
        return QpPoint(dv, -dv, keep * d_zl, keep * d_zu, d_lam)

    mu = jnp.sum(point.s_l * point.z_l + point.s_u * point.z_u) / count
    zero = jnp.zeros_like(v)
    aim = move(zero, zero, 0)  # it only tells how far to aim: rounding does no harm
    ahead = moved_by(point, aim, *step_lengths(point, aim, 1.0))
    mu_ahead = jnp.sum(ahead.s_l * ahead.z_l + ahead.s_u * ahead.z_u) / count
    # not below what the goal asks for: the row system would lose its digits while residuals still fall
    least = 0.1 * GOAL[v.dtype.name] * (worth(box, v) + FLOOR) / count
    centre = jnp.maximum(mu * (jnp.clip(mu_ahead / mu, 0, 1) ** 3), least)
    step = move(centre - aim.s_l * aim.z_l, centre - aim.s_u * aim.z_u, REFINED[v.dtype.name])
    primal, dual = step_lengths(point, step, 0.995)
    new = moved_by(point, step, primal, dual)
    good = jnp.all(jnp.stack([jnp.isfinite(leaf).all() for leaf in new]))
    kept = jax.tree.map(lambda a, b: jnp.where(good, a, b), new, point)
    return kept, jnp.where(good, jnp.minimum(primal, dual), 0)


def step_lengths(point: QpPoint, step: QpPoint, share: float) -> tuple[Array, Array]:
    """Step lengths that keep slacks and multipliers positive."""

    def reach(value: Array, change: Array) -> Array:
        shrinks = change < 0
        return jnp.min(jnp.where(shrinks, -value / jnp.where(shrinks, change, -1), jnp.inf))

    primal = jnp.minimum(reach(point.s_l, step.s_l), reach(point.s_u, step.s_u))
    dual = jnp.minimum(reach(point.z_l, step.z_l), reach(point.z_u, step.z_u))
    return jnp.minimum(share * primal, 1), jnp.minimum(share * dual, 1)


def moved_by(point: QpPoint, step: QpPoint, primal: Array, dual: Array) -> QpPoint:
    return QpPoint(
        point.s_l + primal * step.s_l,
        point.s_u + primal * step.s_u,
        point.z_l + dual * step.z_l,
        point.z_u + dual * step.z_u,
        point.lam + dual * step.lam,
    )


def worth(box: BoxedQp, v: Array) -> Array:
    """|objective|, scaled."""
    return jnp.abs(jnp.sum((0.5 * box.q * v + box.c) * v))


def measure_of(box: BoxedQp, point: QpPoint) -> QpMeasure:
    v = value_of(box, point)
    pull = from_rows(box, point.lam)
    rest = jnp.where(box.free, box.q * v + box.c - pull - point.z_l + point.z_u, 0)
    # what is missing in stationarity moves the cost by as much as the variable is away from its bounds
    gap = jnp.sum(point.s_l * point.z_l + point.s_u * point.z_u + jnp.abs(rest) * jnp.minimum(point.s_l, point.s_u))
    short = jnp.max(jnp.abs(to_rows(box, v)), initial=0)
    # for any lam, pull' v = 0 on the rows' surface, and this is the most that the boxes allow
    most = jnp.maximum(pull * box.lo, pull * box.hi)
    proof = -jnp.sum(most) > ROUNDING[v.dtype.name] * jnp.sum(
        jnp.abs(pull) * jnp.maximum(jnp.abs(box.lo), jnp.abs(box.hi))
    )
    return QpMeasure(gap / (worth(box, v) + FLOOR), short, jnp.max(jnp.abs(rest)), proof)
