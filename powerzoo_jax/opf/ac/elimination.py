"""Block elimination of the optimality conditions of a network, for many lanes at once.

Ordered by bus, the Newton system of an AC-OPF has a 4 x 4 block wherever two buses share a branch: two unknowns (angle,
logarithm of the magnitude) and two multipliers (active, reactive balance) a bus. The elimination order and all fill are
fixed on the host; the device runs a few loops over tables of block positions, with the lanes innermost, so that the
program is equally small for every network (Sun et al. 1984, doi:10.1109/TPAS.1984.318284, for one lane).

    A = L D L',   L_ik = A_ik D_k^-1,   A_ij -= L_ik A_jk'
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base import struct

WIDTH = 8  # blocks handled together: fewer loop turns against more padding and longer compilation
SPREAD = 1.5  # degree, as a multiple of the least, up to which buses leave together: fewer levels, little more fill


@struct.dataclass(kw_only=True)
class EliminationPlan:
    """Elimination order of n buses, in levels of buses that do not touch; e blocks below the diagonal, fill included.

    place:         (n,)       int32  position of each bus in the order
    bus_at:        (n,)       int32  its inverse
    row, column:   (e,)       int32  of each block, in the order; row > column
    pivots:        (a, w)     int32  chunks of buses; a chunk is filled up by repeating its first
    blocks:        (b, w)     int32  chunks of blocks, filled up likewise
    pairs:         (c, w, 3)  int32  (slot to change, block, block); filled up with block e, which is zero
    pivot_start, block_start, pair_start: (levels + 1,) int32  first chunk of each level
    """

    place: Array
    bus_at: Array
    row: Array
    column: Array
    pivots: Array
    blocks: Array
    pairs: Array
    pivot_start: Array
    block_start: Array
    pair_start: Array

    @property
    def n_bus(self) -> int:
        return self.place.shape[0]

    @property
    def n_block(self) -> int:
        return self.row.shape[0]


class Factor(NamedTuple):
    """lower: (e + 1, 4, 4, B) blocks of L, the last one zero; inverse: (n, 4, 4, B) of D."""

    lower: Array
    inverse: Array


def plan_elimination(
    n_bus: int, f: np.ndarray, t: np.ndarray, last: np.ndarray
) -> tuple[EliminationPlan, dict[tuple[int, int], int]]:
    """Choose the order of a network (host), and tell where the block of (row, column) is.

    f, t:  (L,) bus positions of the branches
    last:  (S,) buses that leave after all others: the references. With one unknown less than balances, the block of a
           reference whose units are off is singular by itself
    """
    levels, later = _eliminate(n_bus, f, t, set(last.tolist()))
    order = [bus for level in levels for bus in level]
    place = {bus: k for k, bus in enumerate(order)}
    below = {place[bus]: sorted(place[other] for other in later[bus]) for bus in order}
    block_of = {(i, k): e for e, (i, k) in enumerate((i, k) for k in range(n_bus) for i in below[k])}
    block_of = block_of or {(0, 0): 0}  # of a network without branches one of zeros, so that no table is empty
    columns = [[place[bus] for bus in level] for level in levels]
    blocks = [[block_of[i, k] for k in level for i in below[k]] for level in columns]
    pairs = [
        [
            (i if i == j else n_bus + block_of[i, j], block_of[i, k], block_of[j, k])
            for k in level
            for x, i in enumerate(below[k])
            for j in below[k][: x + 1]
        ]
        for level in columns
    ]
    tables: dict[str, np.ndarray | list[int]] = dict(
        place=[place[bus] for bus in range(n_bus)],
        bus_at=order,
        row=[i for i, _ in block_of],
        column=[k for _, k in block_of],
    )
    tables["pivots"], tables["pivot_start"] = _chunks([[(k,) for k in level] for level in columns], None)
    tables["blocks"], tables["block_start"] = _chunks([[(e,) for e in level] for level in blocks], None)
    tables["pairs"], tables["pair_start"] = _chunks(pairs, (0, len(block_of), len(block_of)))
    plan = EliminationPlan(**{name: jnp.asarray(np.asarray(table, np.int32)) for name, table in tables.items()})
    return plan, block_of


def _eliminate(
    n_bus: int, f: np.ndarray, t: np.ndarray, last: set[int]
) -> tuple[list[list[int]], dict[int, list[int]]]:
    """Levels of buses, and for each bus its neighbours when it leaves: multiple minimum degree (Liu 1985)."""
    near: list[set[int]] = [set() for _ in range(n_bus)]
    for a, b in zip(f.tolist(), t.tolist(), strict=True):
        if a != b:
            near[a].add(b)
            near[b].add(a)
    left, levels, later = set(range(n_bus)), [], {}
    while left:
        may_leave = (left - last) or left
        most = SPREAD * min(len(near[bus]) for bus in may_leave) + 1
        level: list[int] = []
        blocked: set[int] = set()
        for bus in sorted(may_leave, key=lambda bus: (len(near[bus]), bus)):
            if len(near[bus]) <= most and bus not in blocked:
                level.append(bus)
                blocked |= near[bus]
        for bus in level:
            later[bus] = sorted(near[bus])
            for other in near[bus]:
                near[other] = (near[other] | near[bus]) - {bus, other}
        left -= set(level)
        levels.append(level)
    return levels, later


def _chunks(
    levels: Sequence[Sequence[tuple[int, ...]]], filling: tuple[int, ...] | None
) -> tuple[np.ndarray, list[int]]:
    """Rows of WIDTH entries that do not cross a level, and the first row of each level."""
    rows, start = [], [0]
    for level in levels:
        for begin in range(0, len(level), WIDTH):
            row = list(level[begin : begin + WIDTH])
            rows.append(row + [row[0] if filling is None else filling] * (WIDTH - len(row)))
        start.append(len(rows))
    size = len(filling) if filling else 1
    # a table without rows cannot be indexed, also in a loop that takes no turn
    table = np.array(rows or np.zeros((WIDTH, size)), np.int32).reshape(-1, WIDTH, size)
    return (table if filling else table[:, :, 0]), start


def factorise(plan: EliminationPlan, matrix: Array) -> Factor:
    """Factor a symmetric matrix (n + e, 4, 4, B): its diagonal blocks, then those below it."""
    n, e = plan.n_bus, plan.n_block
    lanes = matrix.shape[-1]
    zero = jnp.zeros((e + 1, 4, 4, lanes), matrix.dtype)

    def level(step: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        matrix, lower, inverse = carry

        def invert(c: Array, inverse: Array) -> Array:
            return inverse.at[plan.pivots[c]].set(_inverse(matrix[plan.pivots[c]]))

        inverse = _over(plan.pivot_start, step, invert, inverse)

        def scale(c: Array, lower: Array) -> Array:
            at = plan.blocks[c]
            return lower.at[at].set(_product(matrix[n + at], inverse[plan.column[at]]))

        lower = _over(plan.block_start, step, scale, lower)

        def update(c: Array, matrix: Array) -> Array:
            slot, i, j = plan.pairs[c, :, 0], plan.pairs[c, :, 1], plan.pairs[c, :, 2]
            return matrix.at[slot].add(-_product_transposed(lower[i], matrix[jnp.minimum(n + j, n + e - 1)]))

        return _over(plan.pair_start, step, update, matrix), lower, inverse

    begin = (matrix, zero, jnp.zeros((n, 4, 4, lanes), matrix.dtype))
    levels = jnp.int32(plan.block_start.shape[0] - 1)
    _, lower, inverse = lax.fori_loop(jnp.int32(0), levels, level, begin)
    return Factor(lower, inverse)


def solve_factored(plan: EliminationPlan, factor: Factor, y: Array) -> Array:
    """Solve A x = y for y (n, 4, B) in the order of the plan."""
    levels = jnp.int32(plan.block_start.shape[0] - 1)

    def forward(step: Array, y: Array) -> Array:
        def change(c: Array, y: Array) -> Array:
            at, zero = _with_zero(plan, c)
            return y.at[plan.row[at]].add(-_times(factor.lower[zero], y[plan.column[at]]))

        return _over(plan.block_start, step, change, y)

    def backward(step: Array, x: Array) -> Array:
        def change(c: Array, x: Array) -> Array:
            at, zero = _with_zero(plan, c)
            return x.at[plan.column[at]].add(-_transposed_times(factor.lower[zero], x[plan.row[at]]))

        return _over(plan.block_start, levels - 1 - step, change, x)

    y = lax.fori_loop(jnp.int32(0), levels, forward, y)
    return lax.fori_loop(jnp.int32(0), levels, backward, _times(factor.inverse, y))


def _with_zero(plan: EliminationPlan, c: Array) -> tuple[Array, Array]:
    """Blocks of a chunk, and the same with the zero block where the filling repeats one: it must count once."""
    at = plan.blocks[c]
    repeated = (at == at[0]) & (jnp.arange(WIDTH) > 0)
    return at, jnp.where(repeated, jnp.int32(plan.n_block), at)


def _over(start: Array, step: Array, change: object, value: Array) -> Array:
    """Apply `change(chunk, value)` for every chunk of a level."""
    return lax.fori_loop(start[step], start[step + 1], change, value)  # type: ignore[arg-type]


def multiply(plan: EliminationPlan, matrix: Array, x: Array) -> Array:
    """A x, (n, 4, B)."""
    diagonal, below = matrix[: plan.n_bus], matrix[plan.n_bus :]
    y = _times(diagonal, x).at[plan.row].add(_times(below, x[plan.column]))
    return y.at[plan.column].add(_transposed_times(below, x[plan.row]))


def _product_transposed(a: Array, b: Array) -> Array:
    """a b' of blocks (k, 4, 4, B)."""
    return reduce(add, (a[:, :, None, m] * b[:, None, :, m] for m in range(4)))


def _times(a: Array, x: Array) -> Array:
    """a x of blocks (k, 4, 4, B) and vectors (k, 4, B)."""
    return reduce(add, (a[:, :, m] * x[:, m, None] for m in range(4)))


def _transposed_times(a: Array, x: Array) -> Array:
    return reduce(add, (a[:, m, :] * x[:, m, None] for m in range(4)))


def _product(a: Array, b: Array) -> Array:
    """a b of blocks (k, 4, 4, B)."""
    return reduce(add, (a[:, :, m, None] * b[:, m, None, :] for m in range(4)))


def _inverse(a: Array) -> Array:
    """Inverses of blocks (k, 4, 4, B) from their 2 x 2 minors: nothing to compare, so nothing differs between lanes.

    The minors keep their digits because no block is much stiffer in one direction than `ac_interior` allows.
    """
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    top = {(i, j): a[:, 0, i] * a[:, 1, j] - a[:, 1, i] * a[:, 0, j] for i, j in pairs}
    low = {(i, j): a[:, 2, i] * a[:, 3, j] - a[:, 3, i] * a[:, 2, j] for i, j in pairs}

    def signed(pair: tuple[int, int]) -> Array:
        i, j = (k for k in range(4) if k not in pair)
        return top[pair] * low[i, j] * (1.0 if sum(pair) % 2 else -1.0)

    one = 1 / reduce(add, map(signed, pairs))

    def cofactor(i: int, j: int) -> Array:
        """Cofactor of row i and column j, along the other row of its half, by minors of the other half."""
        minors, row = (low, 1 - i) if i < 2 else (top, 5 - i)
        columns = [c for c in range(4) if c != j]
        terms = []
        for x, c in enumerate(columns):
            p, q = (other for other in columns if other != c)
            terms.append((-1.0) ** x * a[:, row, c] * minors[p, q])
        return (-1.0) ** (i + j) * reduce(add, terms)

    return jnp.stack([jnp.stack([cofactor(j, i) * one for j in range(4)], 1) for i in range(4)], 1)
