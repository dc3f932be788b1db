"""Block elimination of a network, planned once on the host and run over lanes in array operations.

Every substation is a block row of A x = b, whatever the topology of a lane. With D_k the block on the diagonal when its
turn comes, elimination of k changes what is left by

    A_ij <- A_ij - A_ik D_k^-1 A_kj,    b_i <- b_i - A_ik D_k^-1 b_k,   at last   x_k = D_k^-1 (b_k - sum_j A_kj x_j)

The order is that of least degree. Substations that do not wait for each other are eliminated side by side, in rounds of
as many pivots and changes each, so that one loop runs them all: a compiler sees a round once. No two changes of a round
meet in one block, so the sums do not depend on a device's order. No pivoting: diagonal blocks of a power flow are
regular wherever it is far from collapse. Lanes stand last.

Source: George and Liu 1981, Computer Solution of Large Sparse Positive Definite Systems, ch. 5.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base import struct
from powerzoo_jax.base.host import on_host

SIDE = -1  # in place of the column of a change: it is one of b
ROUNDS = 1.4  # times the height of the elimination tree: fewer are wider, and more of their places stay empty

Change = tuple[int, int, int]  # row, column and pivot of A_ij -= A_ik D_k^-1 A_kj
Round = tuple[list[int], list[Change]]  # pivots and changes


class Changes(NamedTuple):
    """Changes in each round (R, w): target -= left right; positions in the arrays that the user names."""

    target: Array
    left: Array
    right: Array


class Stage(NamedTuple):
    """Rounds of p pivots each, with c later neighbours at most.

    row:    (R, p, c)  blocks A_kj of each pivot            column: (R, p, c) the place of j
    blocks: changes of blocks, by A_ik and D_k^-1 A_kj at its place among all entries of `row`
    sides:  changes of b, by A_ik and D_k^-1 b_k at the place of k
    """

    row: Array
    column: Array
    blocks: Changes
    sides: Changes


@struct.dataclass(kw_only=True)
class Elimination:
    """Plan of an elimination of S substations; int32. The first rounds are wide, the last ones narrow: two stages.

    Blocks are numbered: E places on the diagonal, by round, some of which stay empty; then those beside it, both
    directions, fill included; last one that is zero. An empty place in a table holds this last number, or E.

    slot:     (S,)     place of every substation            order: (E,) the substation at each, S where none is
    first:    (M + 1,) branch end whose coupling a block beside the diagonal has, 2 L for none
    further:  (X,)     ends of parallel branches            shared: (X,) their block, counted from the first beside
    mirror:   (M + 1,) block of the opposite direction, counted likewise
    """

    slot: Array
    order: Array
    first: Array
    further: Array
    shared: Array
    mirror: Array
    stages: tuple[Stage, ...]


@on_host
def plan_elimination(n: int, f: np.ndarray, t: np.ndarray) -> Elimination:
    """Plan the elimination of n substations joined by branches from f to t, (L,) positions (host)."""
    here, there = np.concatenate([f, t]).tolist(), np.concatenate([t, f]).tolist()
    order, later, height = _least_degree(n, here, there)
    parts = _stages(_schedule(order, later, max(int(ROUNDS * height), 1)), later)
    slot: dict[int, int] = {}
    scaled: dict[tuple[int, int], int] = {}
    empty = entries = 0
    for rounds in parts:
        p, c = _widths(rounds, later)
        for pivots, _ in rounds:
            slot |= {k: empty + at for at, k in enumerate(pivots)}
            scaled |= {(k, j): entries + at * c + m for at, k in enumerate(pivots) for m, j in enumerate(later[k])}
            empty, entries = empty + p, entries + p * c
    number = {pair: at for at, pair in enumerate((a, b) for k in order for i in later[k] for a, b in ((k, i), (i, k)))}
    block = {pair: empty + at for pair, at in number.items()} | {(k, k): at for k, at in slot.items()}
    nothing, stages = empty + len(number), []
    for rounds in parts:
        p, c = _widths(rounds, later)
        # pivots of each round, with rows of nothing in the empty places
        rows = [[[(block[k, j], slot[j]) for j in later[k]] for k in r[0]] + [[]] * (p - len(r[0])) for r in rounds]
        row, column = _filled([row for r in rows for row in r], (nothing, empty), c)
        blocks = [[(block[i, j], block[i, k], scaled[k, j]) for i, j, k in r[1] if j != SIDE] for r in rounds]
        sides = [[(slot[i], block[i, k], slot[k]) for i, j, k in r[1] if j == SIDE] for r in rounds]
        stages.append(
            Stage(
                row=row.reshape(-1, p, c),
                column=column.reshape(-1, p, c),
                blocks=Changes(*_filled(blocks, (nothing, nothing, 0))),
                sides=Changes(*_filled(sides, (empty, nothing, 0))),
            )
        )
    first, further = np.full(len(number) + 1, len(here)), []
    for end, pair in enumerate(zip(here, there, strict=True)):
        if first[number[pair]] < len(here):
            further.append((end, number[pair]))
        else:
            first[number[pair]] = end
    at = np.full(empty, n)
    at[[slot[k] for k in range(n)]] = np.arange(n)
    return Elimination(
        slot=_int([slot[k] for k in range(n)]),
        order=_int(at),
        first=_int(first),
        further=_int([end for end, _ in further]),
        shared=_int([pair for _, pair in further]),
        mirror=_int([*(number[b, a] for a, b in number), len(number)]),
        stages=tuple(stages),
    )


def _widths(rounds: list[Round], later: dict[int, list[int]]) -> tuple[int, int]:
    """Pivots of a round and later neighbours of one, at most."""
    pivots = [k for r in rounds for k in r[0]]
    return max(len(r[0]) for r in rounds), max((len(later[k]) for k in pivots), default=0)


def _stages(rounds: list[Round], later: dict[int, list[int]]) -> list[list[Round]]:
    """Rounds in two stages, cut where both together leave the fewest places empty."""

    def size(rounds: list[Round]) -> int:
        if not rounds:
            return 0
        p, c = _widths(rounds, later)
        return len(rounds) * (p * (1 + c) + max(len(r[1]) for r in rounds))

    cut = min(range(len(rounds)), key=lambda k: size(rounds[:k]) + size(rounds[k:]))
    return [part for part in (rounds[:cut], rounds[cut:]) if part]


def _int(values: Any) -> Array:
    return jnp.asarray(np.asarray(values, np.int32))


def _filled(rows: Sequence[Sequence[tuple[int, ...]]], none: tuple[int, ...], width: int | None = None) -> list[Array]:
    """Rows of tuples as one table (R, width) for each part of the tuples, filled up with `none`."""
    width = max(map(len, rows)) if width is None else width
    table = np.array([[*row, *[none] * (width - len(row))] for row in rows], int).reshape(len(rows), width, len(none))
    return [_int(table[..., part]) for part in range(len(none))]


def _least_degree(n: int, here: list[int], there: list[int]) -> tuple[list[int], dict[int, list[int]], int]:
    """Order of elimination, neighbours of each substation left then, height of the tree; ties go to its foot."""
    near: list[set[int]] = [set() for _ in range(n)]
    for a, b in zip(here, there, strict=True):
        near[a].add(b)
    later: dict[int, list[int]] = {}
    level, left = [0] * n, set(range(n))
    while left:
        k = min(left, key=lambda v: (len(near[v]), level[v], v))
        for i in near[k]:
            near[i] |= near[k]
            near[i] -= {i, k}
            level[i] = max(level[i], level[k] + 1)
        later[k] = sorted(near[k])
        left.remove(k)
    return list(later), later, max(level, default=0) + 1


def _schedule(order: list[int], later: dict[int, list[int]], rounds: int) -> list[Round]:
    """Pivots and changes, round by round: each as soon as it may, those with the longest way to go first."""
    rank = {k: r for r, k in enumerate(order)}
    to_go: dict[int, int] = {}
    for k in reversed(order):
        to_go[k] = 1 + max((to_go[i] for i in later[k]), default=0)
    changes = {k: [(i, j, k) for i in later[k] for j in [SIDE, *later[k]]] for k in order}

    def owner(change: Change) -> int:
        """The substation whose turn waits for it."""
        i, j, _ = change
        return i if j == SIDE else min(i, j, key=rank.__getitem__)

    awaited = Counter(owner(change) for k in order for change in changes[k])
    sides = sum(map(len, later.values()))
    room = {True: -(-sides // rounds), False: -(-sum(len(x) ** 2 for x in later.values()) // rounds)}
    left, pending, out = list(order), list[Change](), []
    while left or pending:
        ready = sorted((k for k in left if not awaited[k]), key=lambda k: -to_go[k])[: -(-len(order) // rounds)]
        left = [k for k in left if k not in ready]
        pending += [change for k in ready for change in changes[k]]
        pending.sort(key=lambda change: -to_go[owner(change)])
        taken, spare = dict[tuple[int, int], Change](), dict(room)
        for change in pending:
            i, j, _ = change
            if (i, j) not in taken and spare[j == SIDE]:
                taken[i, j] = change
                spare[j == SIDE] -= 1
        pending = [change for change in pending if taken.get(change[:2]) != change]
        awaited.subtract(map(owner, taken.values()))
        out.append((ready, list(taken.values())))
    return out


def product(a: Array, b: Array) -> Array:
    """Products of blocks (n, k, k, B) with blocks (n, k, m, B), written out: with lanes last no library is of use."""
    total = a[:, :, 0, None] * b[:, None, 0]
    for c in range(1, a.shape[2]):
        total = total + a[:, :, c, None] * b[:, None, c]
    return total


def inverse(a: Array) -> Array:
    """Inverses of blocks (n, k, k, B) by Gauss-Jordan elimination in place, without pivoting."""
    row, column = (lax.broadcasted_iota(jnp.int32, (1, *a.shape[1:3], 1), axis) for axis in (1, 2))

    def clear(c: Array, a: Array) -> Array:
        here, beside = (lax.dynamic_slice_in_dim(a, c, 1, axis) for axis in (1, 2))
        across = jnp.where(column == c, 1, here) / lax.dynamic_slice_in_dim(here, c, 1, 2)
        return jnp.where(row == c, across, jnp.where(column == c, 0, a) - beside * across)

    # a loop, as a step fused with the next would be computed again for every entry that reads it
    return lax.fori_loop(0, a.shape[1], clear, a)


def _rows(x: Array, index: Array) -> Array:
    return jnp.take(x, index, axis=0, mode="clip")


def solve(plan: Elimination, own: Array, ends: Array, right: Array, *, transpose: bool = False) -> Array:
    """Solution x (S, k, B) of A x = right, or of A' x = right; not finite where a pivot is singular.

    own:  (S, k, k, B)   blocks on the diagonal
    ends: (2L, k, k, B)  blocks beside it by branch end, from ends first: row of its own substation, column opposite
    """
    k, lanes = right.shape[1:]
    beside = jnp.take(ends, plan.first, axis=0, mode="fill", fill_value=0)
    if plan.further.size:
        beside = beside.at[plan.shared].add(_rows(ends, plan.further))
    if transpose:
        own, beside = own.swapaxes(1, 2), _rows(beside, plan.mirror).swapaxes(1, 2)
    unit = jnp.broadcast_to(jnp.eye(k, dtype=own.dtype)[None, :, :, None], (1, k, k, lanes))
    blocks = jnp.concatenate([_rows(jnp.concatenate([own, unit]), plan.order), beside])
    # the last place takes what no substation is given
    b = jnp.concatenate([jnp.take(right, plan.order, axis=0, mode="fill", fill_value=0), jnp.zeros_like(right[:1])])

    begins = [(0, 0)]
    for stage in plan.stages:
        (count, p, c), (at, entries) = stage.row.shape, begins[-1]
        begins.append((at + count * p, entries + count * p * c))
    pivots, scaled = (jnp.zeros((length, k, k, lanes), blocks.dtype) for length in begins[-1])
    whole = blocks, pivots, scaled
    for stage, begin in zip(plan.stages, begins, strict=False):
        whole = lax.fori_loop(0, stage.row.shape[0], functools.partial(_eliminate, stage, begin), whole)
    for stage, begin in zip(plan.stages, begins, strict=False):
        b = lax.fori_loop(0, stage.row.shape[0], functools.partial(_forward, stage, begin, whole), b)
    for stage, begin in zip(plan.stages[::-1], begins[-2::-1], strict=True):
        b = lax.fori_loop(0, stage.row.shape[0], functools.partial(_backward, stage, begin, whole), b)
    return _rows(b, plan.slot)


Whole = tuple[Array, Array, Array]  # blocks, D_k^-1 (E, k, k, B) and D_k^-1 A_kj of all entries of all rows


def _slice(x: Array, at: Array, length: int) -> Array:
    return lax.dynamic_slice_in_dim(x, at, length)


def _put(x: Array, here: Array, at: Array) -> Array:
    return lax.dynamic_update_slice_in_dim(x, here, at, 0)


def _eliminate(stage: Stage, begin: tuple[int, int], r: Array, whole: Whole) -> Whole:
    """One round of pivots, and of changes that earlier pivots bring about too."""
    blocks, pivots, scaled = whole
    (_, p, c), size = stage.row.shape, blocks.shape[1:]
    here = inverse(_slice(blocks, begin[0] + r * p, p))
    rows = _rows(blocks, stage.row[r].reshape(-1)).reshape(p, c, *size)
    across = jnp.stack([product(here, rows[:, j]) for j in range(c)], 1) if c else rows
    scaled = _put(scaled, across.reshape(p * c, *size), begin[1] + r * p * c)
    own = Changes(*(x[r] for x in stage.blocks))
    change = product(_rows(blocks, own.left), _rows(scaled, own.right)) if own.left.size else blocks[:0]
    return blocks.at[own.target].add(-change), _put(pivots, here, begin[0] + r * p), scaled


def _forward(stage: Stage, begin: tuple[int, int], whole: Whole, r: Array, b: Array) -> Array:
    """The same round on b (E + 1, k, B), whose last row takes what no substation is given."""
    p, at = stage.row.shape[1], begin[0] + r * stage.row.shape[1]
    b = _put(b, product(_slice(whole[1], at, p), _slice(b, at, p)[:, :, None])[:, :, 0], at)
    side = Changes(*(x[r] for x in stage.sides))
    return b.at[side.target].add(-product(_rows(whole[0], side.left), _rows(b, side.right)[:, :, None])[:, :, 0])


def _backward(stage: Stage, begin: tuple[int, int], whole: Whole, turn: Array, x: Array) -> Array:
    """The rounds of a stage in reverse."""
    count, p, c = stage.row.shape
    r = count - 1 - turn
    rows = _slice(whole[2], begin[1] + r * p * c, p * c).reshape(p, c, *whole[2].shape[1:])
    here = _slice(x, begin[0] + r * p, p)
    for j in range(c):
        here = here - product(rows[:, j], _rows(x, stage.column[r, :, j])[:, :, None])[:, :, 0]
    return _put(x, here, begin[0] + r * p)
