"""Crossover of a boxed programme: from an interior point to the vertex beside it, and there to the price of more load.

An interior point ends with every variable a little inside its box, and every price as far off: in float32 cents, beside
a kink any number between the two sides. Here the variables that are held by their box are put on it, the others, the
inside, solve their rows exactly:

    q_j x_j + c_j = A_j' lam  for j inside,   A x = y.

Where too few are inside to set all prices, the prices move along what the inside leaves free, towards the rows that are
still short, else towards the change of right sides that the caller asks for, until a variable at a bound breaks even:
it enters the inside. A variable that the rows push out of its box leaves it. Symbols as in `opf.qp`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.opf.interior_point import (
    FLOOR,
    GOAL,
    SHORT,
    BoxedQp,
    QpMeasure,
    QpPoint,
    QpProgress,
    RowSolve,
    from_rows,
    to_rows,
    value_of,
    weighted_rows,
    worth,
)
from powerzoo_jax.powerflow.batching import batched_shell, in_groups

ROUNDS = 24
GROUP = 32  # lanes that go on together
# curvature, scaled cost per unit, of a variable inside that has none of its own: it makes rows a square system
SOFT = 1e-4
# weight that keeps prices where nothing sets them; SOFT / HOLD of what rows lack is left after a pass
HOLD = {"float32": 1.0, "float64": 1e-3}
EXACT = {"float32": 1e-6, "float64": 1e-11}  # rows short of less are rounding
EVEN = {"float32": 3e-7, "float64": 1e-12}  # reduced cost inside that is rounding, of the largest cost
NONE = 1e-2  # share of a direction that counts as nothing left of it


class Towards(NamedTuple):
    """Change of a programme in whose direction its prices are derivatives.

    rows:  (m,)  of the right sides
    hi:    (n,)  of the upper bounds
    room:  (n,)  that upper bounds are given until the vertex is sought, so that a point inside exists
    """

    rows: Array
    hi: Array
    room: Array


class Vertex(NamedTuple):
    """inside: (n + m,) bool;  v, lam: as in `QpPoint`;  moving: () bool, another round may change it."""

    inside: Array
    v: Array
    lam: Array
    moving: Array


class VertexLane(NamedTuple):
    """Programme of one lane whose vertex is sought, without the matrix that all share: (n + m,) each, rows (m,).

    q, c, lo, hi:  as in `BoxedQp`
    top, free:     upper bounds with their room, and what the steps take for free between them
    rising:        bool, variables without width whose upper bound rises in the direction of the prices
    rows:          that direction
    """

    q: Array
    c: Array
    lo: Array
    hi: Array
    top: Array
    free: Array
    rising: Array
    rows: Array

    def box(self, a: Array) -> BoxedQp:
        """The programme as it is."""
        return BoxedQp(a, self.q, self.c, self.lo, self.hi, self.hi > self.lo)

    def roomy(self, a: Array) -> BoxedQp:
        """The programme that the steps solve."""
        return BoxedQp(a, self.q, self.c, self.lo, self.top, self.free)


# the last point with a measure, v and lam: of the vertex where that is no worse
Solved = tuple[QpProgress, Array, Array]
Factor = Callable[[Array], RowSolve]  # of a row system (m, m)


@cache
def vertices(factor: Factor) -> Callable[..., Solved]:
    """Crossover of one programme, a function of ((a, pairs), fields of `VertexLane`, leaves of its last point).

    In a batch most lanes take one round, the others go on in small groups.
    """

    def one_round(shared: Any, lane: VertexLane, vertex: Vertex) -> Vertex:
        return _round(lane.box(shared[0]), vertex, lane.rising, shared[1], lane.rows, factor)

    every = jax.vmap(one_round, in_axes=(None, 0, 0))

    def more(shared: Any, lanes: VertexLane, vertex: Vertex) -> Vertex:
        def turn(carry: tuple[Array, Vertex]) -> tuple[Array, Vertex]:
            return carry[0] + 1, every(shared, lanes, carry[1])

        def left(carry: tuple[Array, Vertex]) -> Array:
            return (carry[0] < ROUNDS) & jnp.any(carry[1].moving)

        return lax.while_loop(left, turn, (jnp.int32(1), vertex))[1]

    def core(shared: Any, *arrays: Array) -> Solved:
        lanes, (step, *ends, length) = VertexLane(*arrays[:8]), arrays[8:]
        loop = QpProgress(step, QpPoint(*ends[:5]), QpMeasure(*ends[5:]), length)
        vertex = every(shared, lanes, jax.vmap(_begin, in_axes=(None, 0, 0))(shared[0], lanes, loop))
        vertex = in_groups(vertex.moving, GROUP, more, shared, lanes, vertex)
        return jax.vmap(_end, in_axes=(None, 0, 0, 0))(shared[0], lanes, loop, vertex)

    return batched_shell(core, wide=False)


def _begin(a: Array, lane: VertexLane, loop: QpProgress) -> Vertex:
    point = loop.point
    near = point.s_l < point.s_u
    inside = (lane.hi > lane.lo) & lane.free
    inside &= jnp.minimum(point.s_l, point.s_u) > jnp.where(near, point.z_l, point.z_u)
    # a row so narrow that the steps took it for an equality is held on the side that its price tells
    low = jnp.where(lane.free, near, jnp.concatenate([jnp.ones(a.shape[1], bool), point.lam >= 0]))
    at = jnp.clip(value_of(lane.roomy(a), point), lane.lo, lane.hi)
    v = jnp.where(inside, at, jnp.where(low, lane.lo, lane.hi))
    return Vertex(inside, v, point.lam, jnp.ones((), bool))


def _end(a: Array, lane: VertexLane, loop: QpProgress, vertex: Vertex) -> Solved:
    box, point, name = lane.box(a), loop.measure, lane.c.dtype.name
    measure = measure_of_vertex(box, vertex.v, vertex.lam)
    gap, primal = (jnp.where(point.infeasible, 0, part) for part in (point.gap, point.primal))
    better = (measure.gap <= jnp.maximum(gap, GOAL[name])) & (measure.primal <= jnp.maximum(primal, SHORT[name]))
    found = (loop._replace(measure=measure), vertex.v, vertex.lam)
    otherwise = (loop, value_of(lane.roomy(a), loop.point), loop.point.lam)
    return jax.tree.map(lambda new, old: jnp.where(better, new, old), found, otherwise)


def _round(
    box: BoxedQp,
    vertex: Vertex,
    rising: Array,
    pairs: Array | None,
    towards: Array,
    factor: Factor,
) -> Vertex:
    name = box.c.dtype.name
    hold = HOLD[name]
    inside, v, lam = vertex.inside, vertex.v, vertex.lam
    weight = jnp.where(inside, 1 / jnp.maximum(box.q, SOFT), 0)
    solve = factor(weighted_rows(box, pairs, weight) + jnp.diag(weight[box.a.shape[1] :] + hold))

    def unset(rows: Array) -> Array:
        """Part of a change of the rows that nothing inside can serve."""
        return hold * solve(rows)

    left = unset(-to_rows(box, v))
    for last in (False, False, True):
        reduced = box.q * v + box.c - from_rows(box, lam)
        d_lam = solve(to_rows(box, weight * reduced - v) - left)
        dv = weight * (from_rows(box, d_lam) - reduced)
        way = jnp.where(inside & ~rising & (dv != 0), jnp.where(dv > 0, box.hi - v, box.lo - v) / dv, jnp.inf)
        most = jnp.min(way)
        # more are inside than the rows can price, and still at odds: they go where that is cheaper, until one is held
        odd = (jnp.max(jnp.abs(jnp.where(inside, reduced, 0))) > EVEN[name]) & (most < jnp.inf)
        length = jnp.where(odd, most, jnp.minimum(most, 1)) if last else jnp.minimum(most, 1)
        lam = lam + d_lam
        v = jnp.clip(v + length * dv, box.lo, box.hi)
    out = inside & ~rising & (way <= length)
    v = jnp.where(out, jnp.where(dv > 0, box.hi, box.lo), v)
    reduced = box.q * v + box.c - from_rows(box, lam)
    lacks = jnp.max(jnp.abs(left)) > EXACT[name]
    ahead = unset(towards)
    opens = jnp.max(jnp.abs(ahead)) > NONE * jnp.max(jnp.abs(towards))
    along = jnp.where(lacks, left, jnp.where(opens, ahead, 0))
    rate = from_rows(box, along)
    high = v - box.lo > box.hi - v
    held = ~inside & ((box.hi > box.lo) | (rising & ~lacks))
    comes = held & jnp.where(high, rate < 0, rate > 0) & (jnp.abs(rate) > EXACT[name] * jnp.max(jnp.abs(along)))
    reach = jnp.where(comes, jnp.maximum(reduced / jnp.where(comes, rate, 1), 0), jnp.inf)
    first = jnp.argmin(reach)
    found = comes[first]
    lam = lam + jnp.where(found, reach[first], 0) * along
    enters = found & (jnp.arange(v.shape[0]) == first)
    new = Vertex((inside & ~out) | enters, v, lam, found | jnp.any(out) | odd)
    return jax.tree.map(lambda new, old: jnp.where(vertex.moving, new, old), new, vertex)


def measure_of_vertex(box: BoxedQp, v: Array, lam: Array) -> QpMeasure:
    """Measure of a vertex: what is stationary by the multipliers of its boxes lacks complementarity alone."""
    reduced = box.q * v + box.c - from_rows(box, lam)
    rounded = EVEN[box.c.dtype.name]
    kept = jnp.where(reduced > rounded, reduced * (v - box.lo), 0) - jnp.where(
        reduced < -rounded, reduced * (box.hi - v), 0
    )
    short = jnp.max(jnp.abs(to_rows(box, v)), initial=0)
    return QpMeasure(jnp.sum(kept) / (worth(box, v) + FLOOR), short, jnp.zeros_like(short), jnp.zeros((), bool))
