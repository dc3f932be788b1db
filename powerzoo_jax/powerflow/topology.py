"""Legal switch positions from the islands and loops of a switched network, exactly, inside a compiled step.

With all switches closed a network of N connected buses and L branches has m = L - N + 1 independent loops. Opening some
switches keeps it connected if and only if their columns of the loop matrix B (m, S) are independent, and leaves
it radial if and only if there are m of them. B is totally unimodular, so elimination meets only -1, 0 and 1: the answer
has no rounding. After elimination on the open switches, row k is the loop that closing switch k would make.

Source: Seshu and Reed 1961, Linear Graphs and Electrical Networks, ch. 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base import struct
from powerzoo_jax.base.errors import SolverError, listing
from powerzoo_jax.base.host import on_host
from powerzoo_jax.base.numerics import FLOAT
from powerzoo_jax.base.ranges import FLAG, WHOLE, Count, Range, axes, checks_ranges, unchecked
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.case import ISOLATED
from powerzoo_jax.cases.topology import branch_positions, islands


@struct.dataclass(kw_only=True)
class SwitchLoops:
    """Loops of a network with all switches closed.

    loop:    (m, S)  [-]    -1, 0 or 1: how each loop runs through each switch
    branch:  (S,)    int32  position of each switch among the branches
    """

    loop: Array
    branch: Array

    AXES: ClassVar = {"S": "n_switch"}

    @property
    def n_loop(self) -> int:
        return self.loop.shape[-2]

    @property
    def n_switch(self) -> int:
        return self.loop.shape[-1]


class Legality(NamedTuple):
    """Legal changes of the switches.

    connected:  ()      bool  every bus is reached from the slack bus
    may_open:   (S,)    bool  switches that may open next without cutting a bus off
    exchange:   (K, S)  bool  row k: switches that may open once open switch k has closed; all False where it is none
    """

    connected: Array
    may_open: Array
    exchange: Array


def switch_positions(case: Case, switches: Sequence[int] | None) -> np.ndarray:
    """Positions of the switches (S,), all branches for None; raises SolverError naming what is no branch."""
    if switches is None:
        return np.arange(case.n_branch)
    chosen = np.asarray(switches, np.int64)
    wrong = (chosen < 0) | (chosen >= case.n_branch)
    if wrong.any() or len(np.unique(chosen)) < len(chosen):
        which = listing(chosen[wrong]) if wrong.any() else "twice the same"
        raise SolverError(
            f"{case.name} has no switch {which}. Give different branch positions from 0 to {case.n_branch - 1}."
        )
    return chosen


def closed_status(case: Case, switches: np.ndarray) -> np.ndarray:
    """(L,) bool: branches in service with all switches closed; raises SolverError when that leaves buses cut off."""
    on = case.branch.in_service.copy()
    on[switches] = True
    f, t = branch_positions(case)
    live = case.bus.kind != ISOLATED
    label = islands(case.n_bus, f, t, on)
    alone = live & (label != label[case.slack_bus[0]])
    if alone.any():
        raise SolverError(
            f"{case.name}: bus {listing(case.bus.id[alone])} is cut off from the slack bus with all switches closed. "
            "Name the branches that connect it as switches, or give it kind 4."
        )
    return on


@on_host
@checks_ranges("prepare_loops")
def prepare_loops(
    case: Case, *, switches: Annotated[Sequence[int], axes("...", kind=WHOLE)] | None = None
) -> SwitchLoops:
    """Find the loops of a network with all its switches closed (host).

    switches:  positions of the branches that can open and close; None takes every branch of the tables

    Raises SolverError naming switches that are no branch, and buses that no switch connects.
    """
    chosen = switch_positions(case, switches)
    on = closed_status(case, chosen)
    loops = _loop_matrix(case, on)
    return SwitchLoops(loop=jnp.asarray(loops[:, chosen], FLOAT), branch=jnp.asarray(chosen, jnp.int32))


def _loop_matrix(case: Case, on: np.ndarray) -> np.ndarray:
    """(m, L): one row per branch that a breadth-first tree leaves out, positive along that branch."""
    f, t = branch_positions(case)
    neighbours: list[list[tuple[int, int, float]]] = [[] for _ in range(case.n_bus)]
    for k in np.flatnonzero(on & (f != t)).tolist():
        neighbours[f[k]].append((int(t[k]), k, 1.0))
        neighbours[t[k]].append((int(f[k]), k, -1.0))
    root = int(case.slack_bus[0])
    path = np.zeros((case.n_bus, len(f)))  # from the root to each bus
    seen, queue, rest = {root}, [root], on & (f != t)
    for bus in queue:
        for other, k, sign in neighbours[bus]:
            if other not in seen:
                seen.add(other)
                queue.append(other)
                path[other] = path[bus]
                path[other, k] += sign
                rest[k] = False
    closing = np.flatnonzero(rest)
    loops = path[f[closing]] - path[t[closing]]
    loops[np.arange(len(closing)), closing] += 1.0
    return np.asarray(loops)


@checks_ranges("legality")
def legality(loops: SwitchLoops, opened: Annotated[Array, Range(-1), axes("K", kind=WHOLE, below="S")]) -> Legality:
    """Judge a set of open switches and what may follow.

    opened:  (K,) int32 open switches (positions in `loops.branch`); -1 is none, a switch named twice counts once

    For a radial feeder give K = m switches: `exchange` then holds every branch exchange that keeps it radial.
    """
    opened = single(opened)
    if loops.loop.size == 0:  # a tree, or no switches: nothing may open
        never = jnp.zeros((opened.shape[0], loops.n_switch), bool)
        return Legality(jnp.all(opened < 0), jnp.zeros(loops.n_switch, bool), never)
    start = (loops.loop, jnp.zeros(loops.n_loop, bool), jnp.full(opened.shape, -1, jnp.int32))

    def eliminate(k: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        matrix, used, row_of = carry
        column = jnp.take(matrix, jnp.maximum(opened[k], 0), axis=1)
        eligible = (column != 0) & ~used & (opened[k] >= 0)
        found = jnp.any(eligible)
        row = jnp.argmax(eligible).astype(jnp.int32)
        pivot = matrix[row] * column[row]  # the pivot is 1 or -1, its own inverse
        own = jnp.arange(loops.n_loop) == row
        reduced = jnp.where(own[:, None], pivot[None], matrix - column[:, None] * pivot[None])
        matrix = jnp.where(found, reduced, matrix)
        return matrix, used | (own & found), row_of.at[k].set(jnp.where(found, row, -1))

    matrix, used, row_of = lax.fori_loop(0, opened.shape[0], eliminate, start)
    is_open = jnp.any(opened[:, None] == jnp.arange(loops.n_switch, dtype=jnp.int32)[None], 0)
    inside = matrix != 0
    exchange = jnp.where((row_of >= 0)[:, None], inside[jnp.maximum(row_of, 0)], False)
    return Legality(
        connected=jnp.all((row_of >= 0) | (opened < 0)),
        may_open=jnp.any(inside & ~used[:, None], 0) & ~is_open,
        exchange=exchange & ~is_open[None],
    )


@checks_ranges("stays_connected")
def stays_connected(loops: SwitchLoops, opened: Annotated[Array, Range(-1), axes("K", kind=WHOLE, below="S")]) -> Array:
    """Connectivity test with some switches open: `legality` without what may follow, () bool; faster.

    With K = m switches, all different, this is whether the network is radial.
    """
    opened = single(opened)
    if loops.loop.size == 0:
        return jnp.all(opened < 0)
    columns = jnp.where(opened < 0, 0, jnp.take(loops.loop, jnp.maximum(opened, 0), axis=1))
    alright, used = jnp.bool_(True), jnp.zeros(loops.n_loop, bool)
    for k in range(opened.shape[0]):
        eligible = (columns[:, k] != 0) & ~used
        first = eligible & (jnp.cumsum(eligible) == 1)
        pivot = jnp.sum(jnp.where(first[:, None], columns * columns[:, k, None], 0), 0)
        columns = jnp.where(first[:, None], columns, columns - columns[:, k, None] * pivot[None])
        alright, used = alright & (jnp.any(eligible) | (opened[k] < 0)), used | first
    return alright


@checks_ranges("is_radial")
def is_radial(loops: SwitchLoops, opened: Annotated[Array, Range(-1), axes("K", kind=WHOLE, below="S")]) -> Array:
    """Radiality test: True where some open switches (K,) leave a tree that reaches every bus, () bool."""
    return unchecked(stays_connected)(loops, opened) & (jnp.sum(single(opened) >= 0) == loops.n_loop)


def single(opened: Array) -> Array:
    """Open switches (K,) with every repetition replaced by -1, as is anything below."""
    count = opened.shape[0]
    before = jnp.arange(count)[:, None] > jnp.arange(count)[None]
    again = jnp.any(before & (opened[:, None] == opened[None]), 1)
    return jnp.where(again | (opened < 0), -1, opened).astype(jnp.int32)


@checks_ranges("open_switches")
def open_switches(closed: Annotated[Array, axes("S", kind=FLAG)], count: Count) -> Array:
    """The first `count` open switches (K,) int32 of a status (S,), filled up with -1."""
    found = jnp.nonzero(closed == 0, size=count, fill_value=-1)[0]
    return found.astype(jnp.int32)
