"""Interior point steps of many programmes at once, lanes last: few wide operations, and a fixed number of steps.

The same iteration as `opf.interior_point.iterate`, ordered for devices on which every launch costs: all sums over the
variables that a point needs are one reduction, the row systems of a few rows are solved in closed form by arithmetic on
whole rows of lanes, and nothing asks whether it is done before `STEPS` steps are over. Lanes that are done stand still.
Those that are not by then are finished behind one conditional, in a loop that stops by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap

from powerzoo_jax.base.numerics import einsum, matmul
from powerzoo_jax.opf.interior_point import (
    FLOOR,
    GOAL,
    PAIRED_ROWS,
    REFINED,
    RIDGE,
    ROUNDING,
    BoxedQp,
    QpMeasure,
    QpPoint,
    QpProgress,
    RowSolve,
    at_goal,
    curvature_weights,
    pending,
    start_point,
    value_of,
)

STEPS = 15  # of 196,608 random bids of gencos_bidding 20 take more than 10 steps, and none more than 14
SHARE = 0.99  # of the way to the nearest bound
CLOSED = 8  # rows up to which a system is solved by unrolled arithmetic; beyond, by sweeps of blocks
BLOCK = 4  # rows of a sweep
SWEPT = 2  # refinements with an inverse from sweeps, which has fewer digits than a Cholesky factor, in either dtype
LARGEST = 1e30  # a direction beyond it has lost its digits: float32 ends at 3e38


def iterate_lanes(box: BoxedQp, max_steps: int) -> QpProgress:
    """Last point of one programme; every `vmap` around it adds its axis to one batch with the lanes last."""
    return _lanes_last(lambda box: _iterate(box, min(STEPS, max_steps), max_steps))(box)


def _lanes_last(core: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap `core(tree (..., B)) -> tree (..., B)` into a function of one lane; leaves that lanes share are (..., 1)."""

    @custom_vmap
    def flat(tree: Any) -> Any:
        return core(tree)

    @flat.def_vmap
    def _(size: int, batched: list[Any], tree: Any) -> tuple[Any, Any]:
        lanes = max(leaf.shape[-1] for leaf in jax.tree.leaves(tree))

        def merged(x: Array, is_mapped: bool) -> Array:
            if not is_mapped and x.shape[-1] == 1:
                return x
            x = jnp.moveaxis(x, 0, -2) if is_mapped else x[..., None, :]
            return jnp.broadcast_to(x, (*x.shape[:-2], size, lanes)).reshape(*x.shape[:-2], size * lanes)

        def split(x: Array) -> Array:
            return jnp.moveaxis(x.reshape(*x.shape[:-1], size, lanes), -2, 0)

        out = jax.tree.map(split, flat(jax.tree.map(merged, tree, batched[0])))
        return out, jax.tree.map(lambda _: True, out)

    @custom_vmap
    def one(tree: Any) -> Any:
        return jax.tree.map(lambda x: x[..., 0], flat(jax.tree.map(lambda x: x[..., None], tree)))

    @one.def_vmap
    def _(size: int, batched: list[Any], tree: Any) -> tuple[Any, Any]:
        def last(x: Array, is_mapped: bool) -> Array:
            return jnp.moveaxis(x, 0, -1) if is_mapped else x[..., None]

        out = jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), flat(jax.tree.map(last, tree, batched[0])))
        return out, jax.tree.map(lambda _: True, out)

    return one


class _Rows(NamedTuple):
    """Rows over v = (x, y): bars = [A, -I], (m, n + m, B or 1), and the products of their pairs, None if not kept."""

    bars: Array
    pairs: Array | None

    @property
    def few(self) -> bool:
        return self.bars.shape[0] <= CLOSED

    @property
    def shared(self) -> bool:
        return self.bars.shape[-1] == 1


def _rows(box: BoxedQp) -> _Rows:
    m = box.a.shape[0]
    eye = jnp.broadcast_to(jnp.eye(m, dtype=box.a.dtype)[:, :, None], (m, m, box.a.shape[-1]))
    bars = jnp.concatenate([box.a, -eye], axis=1)
    if m <= CLOSED:
        pairs = [bars[i] * bars[j] for i in range(m) for j in range(i + 1)]
        return _Rows(bars, jnp.stack(pairs))
    if m > PAIRED_ROWS or box.a.shape[-1] > 1:
        return _Rows(bars, None)
    return _Rows(bars, (bars[:, None] * bars[None, :]).reshape(m * m, *bars.shape[1:]))


def _pull(rows: _Rows, lam: Array) -> Array:
    """(A' lam, -lam), (n + m, B), of lam (m, B)."""
    if rows.few:
        return _sum_of(rows.bars[i] * lam[i][None] for i in range(lam.shape[0]))
    if rows.shared:
        return matmul(rows.bars[..., 0].T, lam)
    return jnp.sum(rows.bars * lam[:, None], axis=0)


def _sums(rows: _Rows, along: list[Array], plain: list[Array], weight: Array | None = None) -> tuple[Any, Any, Any]:
    """Sums over the variables: rows times each of `along`, each of `plain`, and the row system A S A' + S_row.

    along, plain, weight: (n + m, B);  returns lists of (m, B) and of (B,), and (m, m, B)
    """
    m = rows.bars.shape[0]
    if not rows.few:
        return [_product(rows, v) for v in along], [jnp.sum(v, axis=0) for v in plain], _system(rows, weight)
    # one reduction over all of them: a launch instead of a dozen
    parts = [rows.bars * v[None] for v in along] + ([jnp.stack(plain)] if plain else [])
    if weight is not None and rows.pairs is not None:
        parts.append(rows.pairs * weight[None])
    total = jnp.sum(jnp.concatenate(parts), axis=1)
    cut = len(along) * m
    products = [total[i * m : (i + 1) * m] for i in range(len(along))]
    scalars = [total[cut + i] for i in range(len(plain))]
    if weight is None:
        return products, scalars, None
    return products, scalars, _unpacked(total[cut + len(plain) :], m)


def _unpacked(below: Array, m: int) -> list[list[Array]]:
    """Entries of a symmetric matrix from those on and below its diagonal (m (m + 1) / 2, ...), row by row."""
    return [[below[max(i, j) * (max(i, j) + 1) // 2 + min(i, j)] for j in range(m)] for i in range(m)]


def _product(rows: _Rows, v: Array) -> Array:
    return matmul(rows.bars[..., 0], v) if rows.shared else jnp.sum(rows.bars * v[None], axis=1)


def _system(rows: _Rows, weight: Array | None) -> Array | None:
    if weight is None:
        return None
    m = rows.bars.shape[0]
    if rows.pairs is not None:
        return matmul(rows.pairs[..., 0], weight).reshape(m, m, -1)
    if rows.shared:
        return einsum("inb,jn->ijb", rows.bars * weight[None], rows.bars[..., 0])
    return einsum("inb,jnb->ijb", rows.bars * weight[None], rows.bars)


class _Walk(NamedTuple):
    """Lanes between two steps: how many each has taken, the length of its last one, and where it stands.

    pull is (A' lam, -lam): of the same shape as the slacks, it moves with them in one launch.
    """

    step: Array
    length: Array
    s_l: Array
    s_u: Array
    z_l: Array
    z_u: Array
    pull: Array

    @property
    def point(self) -> QpPoint:
        """Slacks and multipliers, with `pull` in the place of lam."""
        return QpPoint(*self[2:])


class _Seen(NamedTuple):
    """Measure of a point, and the sums over its variables from which the next step starts."""

    measure: QpMeasure
    slope: Array
    short: Array
    right: Array
    mu: Array
    worth: Array
    system: Any


def _iterate(box: BoxedQp, steps: int, max_steps: int) -> QpProgress:
    rows, n = _rows(box), box.a.shape[1]
    lanes = max(leaf.shape[-1] for leaf in box)

    def finish(walk: _Walk, measure: QpMeasure) -> tuple[_Walk, QpMeasure]:
        """Begin again where a lane has not arrived, with the row systems solved to more digits."""
        again = ~(_arrived(measure) | measure.infeasible)
        fresh = _begin(box, lanes)._replace(step=walk.step)
        walk = jax.tree.map(lambda new, old: jnp.where(_like(again, new), new, old), fresh, walk)

        def turn(carry: tuple[_Walk, QpMeasure]) -> tuple[_Walk, QpMeasure]:
            walk = _advance(box, rows, carry[0], max_steps, careful=True)
            return walk, _look(box, rows, walk, None).measure

        return lax.while_loop(lambda c: jnp.any(_left(*c, max_steps)), turn, (walk, measure))

    walk = lax.fori_loop(0, steps, lambda _, walk: _advance(box, rows, walk, max_steps), _begin(box, lanes))
    measure = _look(box, rows, walk, None).measure
    if steps < max_steps:
        rest = jnp.any(~(_arrived(measure) | measure.infeasible))
        walk, measure = lax.cond(rest, finish, lambda *done: done, walk, measure)
    point = QpPoint(walk.s_l, walk.s_u, walk.z_l, walk.z_u, -walk.pull[n:])
    return QpProgress(walk.step, point, measure, walk.length)


def _begin(box: BoxedQp, lanes: int) -> _Walk:
    start = start_point(box)
    s_l, s_u, z_l, z_u = (jnp.broadcast_to(x, (*x.shape[:-1], lanes)) for x in start[:4])
    none = jnp.zeros((box.c.shape[0], lanes), box.c.dtype)
    return _Walk(jnp.zeros(lanes, jnp.int32), jnp.ones(lanes, box.c.dtype), s_l, s_u, z_l, z_u, none)


def _left(walk: _Walk, measure: QpMeasure, max_steps: int) -> Array:
    """Lanes that have a step to take, (B,)."""
    return pending(measure, walk.step, walk.length, max_steps)


def _like(flag: Array, x: Array) -> Array:
    """Flag (B,) with the axes of x (..., B)."""
    return flag.reshape(*(1,) * (x.ndim - 1), -1)


def _arrived(measure: QpMeasure) -> Array:
    return at_goal(measure, measure.gap.dtype.name)


def _look(box: BoxedQp, rows: _Rows, walk: _Walk, weight: Array | None) -> _Seen:
    """Measure of a point as `interior_point.measure_of` gives it; with weights the row system and its right side."""
    v, pull = value_of(box, walk.point), walk.pull
    slope = box.q * v + box.c - pull
    rest = jnp.where(box.free, slope - walk.z_l + walk.z_u, 0)
    plain = [
        walk.s_l * walk.z_l + walk.s_u * walk.z_u,
        jnp.abs(rest) * jnp.minimum(walk.s_l, walk.s_u),
        (0.5 * box.q * v + box.c) * v,
        jnp.maximum(pull * box.lo, pull * box.hi),
        jnp.abs(pull) * jnp.maximum(jnp.abs(box.lo), jnp.abs(box.hi)),
    ]
    along = [v] if weight is None else [v, weight * slope]
    products, (mu, missing, objective, most, reach), system = _sums(rows, along, plain, weight)
    worth, short = jnp.abs(objective), -products[0]
    measure = QpMeasure(
        gap=(mu + missing) / (worth + FLOOR),
        primal=jnp.max(jnp.abs(short), axis=0, initial=0),
        dual=jnp.max(jnp.abs(rest), axis=0),
        infeasible=-most > ROUNDING[v.dtype.name] * reach,
    )
    return _Seen(measure, slope, short, short + products[-1], mu, worth, system)


def _advance(box: BoxedQp, rows: _Rows, walk: _Walk, max_steps: int, *, careful: bool = False) -> _Walk:
    """One predictor-corrector step of the lanes that need one.

    As in `interior_point.iterate`, with one length for both sides of the predictor, by which the correction of second
    order is damped (Colombo and Gondzio 2008, doi:10.1007/s10589-007-9106-0): it saves launches, and the slowest of
    196,608 bids of gencos_bidding takes 14 steps instead of 19.
    """
    name, (s_l, s_u, z_l, z_u) = box.c.dtype.name, walk[2:6]
    # one division each: what follows multiplies, and is cheap enough to be repeated instead of stored
    by_l, by_u = 1 / s_l, 1 / s_u
    by_zl, by_zu = (jnp.where(box.free, 1 / jnp.where(box.free, z, 1), 0) for z in (z_l, z_u))
    weight = curvature_weights(box, walk.point)
    seen = _look(box, rows, walk, weight)
    solve = _factored(rows, seen.system) if careful else _inverted(rows, seen.system)
    keep = box.free.astype(weight.dtype)
    count = 2 * jnp.maximum(jnp.sum(keep, axis=0), 1)

    def multipliers(dv: Array, target_l: Array | float, target_u: Array | float) -> tuple[Array, Array]:
        """Changes of z_l and z_u that lead to s_l z_l = target_l and s_u z_u = target_u."""
        return keep * (target_l * by_l - z_l * (dv * by_l + 1)), keep * (target_u * by_u + z_u * (dv * by_u - 1))

    def length(ratio: Array, share: float) -> Array:
        """Step length that keeps `ratio` (n + m, B), of changes towards zero, below 1; -1 if it has no numbers."""
        most = jnp.max(jnp.where(jnp.abs(ratio) < LARGEST, ratio, LARGEST), axis=0)
        return jnp.where(most < LARGEST, jnp.minimum(share / jnp.maximum(most, share), 1), -1)

    dv = weight * (_pull(rows, solve(seen.right)) - seen.slope)
    d_zl, d_zu = multipliers(dv, 0.0, 0.0)
    # what is left of complementarity after a step of any length is a polynomial of it with these coefficients
    pushed = -dv * (d_zl * by_l + d_zu * by_u)
    (centring, correcting), (linear, square), _ = _sums(
        rows,
        [weight * (by_l - by_u), weight * pushed],
        [dv * (z_l - z_u) + s_l * d_zl + s_u * d_zu, dv * (d_zl - d_zu)],
    )
    shrinks = jnp.maximum(jnp.maximum(-dv * by_l, dv * by_u), jnp.maximum(-d_zl * by_zl, -d_zu * by_zu))
    ahead = length(shrinks, 1.0)
    left = (seen.mu + ahead * (linear + ahead * square)) / seen.mu
    # not below what the goal asks for: the row system would lose its digits while residuals still fall
    least = 0.1 * GOAL[name] * (seen.worth + FLOOR) / count
    centre = jnp.maximum(seen.mu / count * (jnp.clip(left, 0, 1) ** 3), least)

    aim, damped = centre[None], ahead[None]
    force = aim * (by_l - by_u) + damped * pushed - seen.slope
    right = seen.right - aim * centring - damped * correcting
    d_lam = solve(right)
    if rows.few and not careful:
        d_lam = d_lam + solve(right - _product_of(seen.system, d_lam))
    for _ in range(REFINED[name] if careful else SWEPT * (not rows.few)):
        (moved,), _, _ = _sums(rows, [weight * (_pull(rows, d_lam) + force)], [])
        d_lam = d_lam + solve(seen.short - moved)
    d_pull = _pull(rows, d_lam)
    bend = damped * dv
    dv_new = weight * (d_pull + force)
    d_zl, d_zu = multipliers(dv_new, aim - bend * d_zl, aim + bend * d_zu)
    primal = length(jnp.maximum(-dv_new * by_l, dv_new * by_u), SHARE)
    dual = length(jnp.maximum(-d_zl * by_zl, -d_zu * by_zu), SHARE)
    good = (primal >= 0) & (dual >= 0)
    active = _left(walk, seen.measure, max_steps)
    far, wide, moving = primal[None], dual[None], (active & good)[None]
    ways = (far * dv_new, -far * dv_new, wide * d_zl, wide * d_zu, wide * d_pull)
    moved_to = (jnp.where(moving, old + way, old) for old, way in zip(walk[2:], ways, strict=True))
    taken = jnp.where(active, jnp.where(good, jnp.minimum(primal, dual), 0), walk.length)
    return _Walk(walk.step + active.astype(jnp.int32), taken, *moved_to)


def _inverted(rows: _Rows, system: Any) -> RowSolve:
    """Solution of the row system by its inverse: fewest launches, a few digits less than by a factor."""
    ridged = _ridged(rows, system)
    # kept as it is, or its divisions would be repeated for every variable
    inverse = lax.optimization_barrier(_small_inverse(ridged) if rows.few else spd_inverse(ridged))
    return partial(_times, inverse)


def _factored(rows: _Rows, system: Any) -> RowSolve:
    """Solution of the row system by its Cholesky factor, column by column."""
    ridged = _ridged(rows, system)
    return partial(solve_by_columns, cholesky_by_columns(_stacked(ridged) if rows.few else ridged))


def _ridged(rows: _Rows, system: Any) -> Any:
    """The row system with a ridge on its diagonal: entries of a few rows, else (m, m, B)."""
    m = rows.bars.shape[0]
    diagonal = [system[i][i] for i in range(m)]
    least = reduce(jnp.maximum, diagonal) * 1e-6
    ridge = [RIDGE[least.dtype.name] * jnp.maximum(entry, least) + 1e-30 for entry in diagonal]
    if not rows.few:
        return system + jnp.eye(m, dtype=least.dtype)[:, :, None] * jnp.stack(ridge)[None]
    return [[system[i][j] + (ridge[i] if i == j else 0) for j in range(m)] for i in range(m)]


def _product_of(system: list[list[Array]], b: Array) -> Array:
    return jnp.stack([_sum_of(entry * b[j] for j, entry in enumerate(row)) for row in system])


def _times(inverse: Array, b: Array) -> Array:
    """Product of (m, m, B) and (m, B), term by term: it costs no launch of its own."""
    if inverse.shape[0] > CLOSED:
        return jnp.sum(inverse * b[None], axis=1)
    return _sum_of(inverse[:, j] * b[j][None] for j in range(b.shape[0]))


def inverted(system: Array) -> RowSolve:
    """Solution of one row system (m, m) for right sides (m,), without a library."""
    return partial(matmul, spd_inverse(system))


def spd_inverse(a: Array) -> Array:
    """Inverse of a symmetric positive definite a (m, m, ...), by sweeps of blocks of its rows.

    A sweep replaces the pivot block K by -K^-1, what stands beside it by L K^-1, the rest by R - L K^-1 L'. The block
    then goes to the end, so that every sweep finds its pivot in front; after all, -A^-1 is left. Source: Goodnight
    1979, doi:10.1080/00031305.1979.10482685.
    """
    m = a.shape[0]
    size = -(-m // BLOCK) * BLOCK
    eye = jnp.eye(size, dtype=a.dtype).reshape(size, size, *(1,) * (a.ndim - 2))
    full = (
        jnp.pad(a, [(0, size - m)] * 2 + [(0, 0)] * (a.ndim - 2))
        + jnp.where(jnp.arange(size) < m, 0, 1).astype(a.dtype).reshape(size, *(1,) * (a.ndim - 1)) * eye
    )

    def sweep(_: int, a: Array) -> Array:
        pivot, beside, rest = _small_inverse(_entries(a[:BLOCK, :BLOCK])), a[BLOCK:, :BLOCK], a[BLOCK:, BLOCK:]
        scaled = _sum_of(beside[:, k, None] * pivot[None, k] for k in range(BLOCK))
        rest = rest - _sum_of(scaled[:, None, k] * beside[None, :, k] for k in range(BLOCK))
        upper = jnp.concatenate([rest, scaled], axis=1)
        return jnp.concatenate([upper, jnp.concatenate([jnp.swapaxes(scaled, 0, 1), -pivot], axis=1)])

    return -lax.fori_loop(0, size // BLOCK, sweep, full)[:m, :m]


def _entries(a: Array) -> list[list[Array]]:
    return [[a[i, j] for j in range(a.shape[1])] for i in range(a.shape[0])]


def _sum_of(terms: Iterable[Array]) -> Array:
    return reduce(jnp.add, terms)


def _small_inverse(a: list[list[Array]]) -> Array:
    """Inverse (m, m, ...) of a symmetric positive definite matrix of a few rows, by sweeps of its entries."""
    m = len(a)
    at = {(i, j): a[i][j] for i in range(m) for j in range(i + 1)}

    def entry(i: int, j: int) -> Array:
        return at[max(i, j), min(i, j)]

    for k in range(m):
        one = 1 / entry(k, k)
        column = {i: entry(i, k) for i in range(m) if i != k}
        for i in column:
            for j in column:
                if j <= i:
                    at[i, j] = at[i, j] - column[i] * column[j] * one
        for i in column:
            at[max(i, k), min(i, k)] = column[i] * one
        at[k, k] = -one
    return _stacked([[-entry(i, j) for j in range(m)] for i in range(m)])


def _stacked(entries: list[list[Array]]) -> Array:
    return jnp.stack([jnp.stack(row) for row in entries])


def cholesky_by_columns(a: Array) -> Array:
    """Lower factor L of a symmetric positive definite a (m, m, ...), right-looking, one column a turn."""
    m = a.shape[0]
    place = jnp.arange(m).reshape(m, *(1,) * (a.ndim - 2))

    def turn(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        left, factor = carry
        column = lax.dynamic_index_in_dim(left, k, 1, keepdims=False)
        column = jnp.where(place < k, 0, column) / jnp.sqrt(lax.dynamic_index_in_dim(column, k, 0))
        left = left - column[:, None] * column[None, :]
        return left, lax.dynamic_update_index_in_dim(factor, column, k, 1)

    return lax.fori_loop(0, m, turn, (a, jnp.zeros_like(a)))[1]


def solve_by_columns(factor: Array, b: Array) -> Array:
    """Solve L L' x = b for b (m, ...), with L of `cholesky_by_columns`."""
    m = factor.shape[0]
    place = jnp.arange(m).reshape(m, *(1,) * (b.ndim - 1))

    def forward(k: Array, y: Array) -> Array:
        column = lax.dynamic_index_in_dim(factor, k, 1, keepdims=False)
        found = lax.dynamic_index_in_dim(y, k, 0) / lax.dynamic_index_in_dim(column, k, 0)
        return jnp.where(place == k, found, jnp.where(place > k, y - column * found, y))

    def backward(turn: Array, x: Array) -> Array:
        k = m - 1 - turn
        column = lax.dynamic_index_in_dim(factor, k, 1, keepdims=False)
        known = jnp.sum(jnp.where(place > k, column * x, 0), axis=0, keepdims=True)
        found = (lax.dynamic_index_in_dim(x, k, 0) - known) / lax.dynamic_index_in_dim(column, k, 0)
        return jnp.where(place == k, found, x)

    return lax.fori_loop(0, m, backward, lax.fori_loop(0, m, forward, b))
