"""Positions of a meshed network inside the solver: order of its buses, tables of neighbours, places of branches (host).

Buses stand by falling number of neighbours, so that neighbours come in a few dense tables.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.topology import branch_positions
from powerzoo_jax.powerflow.meshed.base_case import unknown_rows
from powerzoo_jax.powerflow.meshed.blocks import BlockPlan, dissect, plan_blocks

TABLE_FILL = 0.6  # share of a neighbour table that must be real: fewer tables against wasted places


@struct.dataclass(kw_only=True)
class MeshedLayout:
    """Positions of the network data; they depend on which buses and branches exist, not on parameters.

    inward, outward:    (N,)  int32  case position of each internal bus, and its inverse
    neighbours:         tuple of (n, m) int32 internal positions, one table per run of buses; padding is the bus itself
    from_cell, to_cell: (L,)  int32  place of (from, to) and (to, from) among the C table cells; C = nowhere
    back_cell:          (C,)  int32  cell of the reverse neighbour; C in padding
    f, t:               (L,)  int32  internal bus positions
    plan:               BlockPlan over unknowns; its entries are four per cell, then four per bus
    free:               (N, 2) bool  whether the angle, the magnitude is unknown
    slack:              ()     int32 internal position of the slack bus
    """

    inward: Array
    outward: Array
    neighbours: tuple[Array, ...]
    from_cell: Array
    to_cell: Array
    back_cell: Array
    f: Array
    t: Array
    plan: BlockPlan
    free: Array
    slack: Array


def layout_of(case: Case, *, blocks: bool) -> MeshedLayout:
    """Positions of a case. Branches out of service keep their places, so that they can be switched in."""
    f, t = branch_positions(case)
    n = case.n_bus
    pairs = np.unique(np.stack([np.r_[f, t], np.r_[t, f]]), axis=1)
    pairs = pairs[:, pairs[0] != pairs[1]]
    degree = np.bincount(pairs[0], minlength=n)
    inward = np.argsort(-degree, kind="stable")
    outward = np.argsort(inward)
    f, t, pairs = outward[f], outward[t], outward[pairs]
    pairs = pairs[:, np.lexsort((pairs[1], pairs[0]))]
    tables, cells = _neighbour_tables(pairs, degree[inward])
    count = sum(table.size for table in tables)
    cell_of = {(a, b): c for (a, b), c in zip(pairs.T.tolist(), cells.tolist(), strict=True)}
    ends = list(zip(f.tolist(), t.tolist(), strict=True))
    back = np.full(count, count)
    back[cells] = [cell_of[(b, a)] for a, b in pairs.T.tolist()]
    free = np.zeros((n, 2), bool)
    for column, rows in enumerate(unknown_rows(case)):
        free[outward[rows], column] = True
    positions = dict(
        inward=inward,
        outward=outward,
        from_cell=[cell_of.get((a, b), count) for a, b in ends],
        to_cell=[cell_of.get((b, a), count) for a, b in ends],
        back_cell=back,
        f=f,
        t=t,
        slack=outward[case.slack_bus[0]],
    )
    return MeshedLayout(
        neighbours=tuple(jnp.asarray(table.astype(np.int32)) for table in tables),
        plan=_plan(pairs, cells, count, free) if blocks else None,  # type: ignore[arg-type]
        free=jnp.asarray(free),
        **{key: jnp.asarray(np.asarray(value, np.int32)) for key, value in positions.items()},
    )


def cut_runs(degree: np.ndarray) -> list[tuple[int, int, int]]:
    """Cut buses, sorted by falling degree, into runs (begin, end, columns of their neighbour table)."""
    runs, begin = [], 0
    while begin < len(degree):
        width = int(degree[begin])
        end = begin + int(np.sum(degree[begin:] >= TABLE_FILL * width)) if width else len(degree)
        runs.append((begin, end, max(width, 1)))
        begin = end
    return runs


def _neighbour_tables(pairs: np.ndarray, degree: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Neighbour tables of the runs of buses (sorted by falling degree), and the cell of each pair of neighbours."""
    first = np.r_[0, np.cumsum(degree)]
    tables, cells, offset = [], np.zeros(pairs.shape[1], np.int64), 0
    for begin, end, width in cut_runs(degree):
        table = np.repeat(np.arange(begin, end)[:, None], width, 1)
        for bus in range(begin, end):
            run = slice(first[bus], first[bus + 1])
            table[bus - begin, : degree[bus]] = pairs[1, run]
            cells[run] = offset + (bus - begin) * width + np.arange(degree[bus])
        tables.append(table)
        offset += table.size
    return tables, cells


def _plan(pairs: np.ndarray, cells: np.ndarray, count: int, free: np.ndarray) -> BlockPlan:
    n = len(free)
    weight = free.sum(1)
    cut = dissect(pairs[0], pairs[1], weight.astype(float))
    nowhere = int(np.flatnonzero(weight == 0)[0])  # the slack bus: its entries are dropped
    row, column = np.full(count, nowhere), np.full(count, nowhere)
    row[cells], column[cells] = pairs
    row, column = np.r_[row, np.arange(n)], np.r_[column, np.arange(n)]
    rows = np.concatenate([2 * row, 2 * row + 1, 2 * row, 2 * row + 1])
    columns = np.concatenate([2 * column, 2 * column, 2 * column + 1, 2 * column + 1])

    def unknowns(buses: np.ndarray) -> np.ndarray:
        return np.r_[2 * buses[free[buses, 0]], 2 * buses[free[buses, 1]] + 1].astype(np.int64)

    return plan_blocks([unknowns(p) for p in cut.parts], unknowns(cut.separator), rows, columns, 2 * n)
