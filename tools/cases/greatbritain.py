"""Ratings of the 2224-bus model of Great Britain, and its 275/400 kV part, for the developers' builder."""

from __future__ import annotations

import heapq
from dataclasses import fields, replace
from typing import Any

import numpy as np

from powerzoo_jax.cases.case import PQ, PV, Case, LoadTable
from powerzoo_jax.cases.topology import branch_positions

TRANSMISSION_KV = 275.0

# The file says 9900 MVA everywhere, which means "not known". Round values in use on the British system: a line by its
# voltage (400 kV as most lines of the 29-bus model, 2780 MVA), a transformer by both of its voltages.
LINE_MVA = {400.0: 2780.0, 275.0: 1000.0, 132.0: 400.0, 66.0: 120.0, 33.0: 200.0, 22.0: 250.0}
TRANSFORMER_MVA = {
    (400.0, 400.0): 1000.0,
    (400.0, 275.0): 1000.0,
    (400.0, 132.0): 300.0,
    (400.0, 66.0): 180.0,
    (400.0, 33.0): 120.0,
    (275.0, 275.0): 1000.0,
    (275.0, 132.0): 300.0,
    (275.0, 66.0): 180.0,
    (275.0, 33.0): 120.0,
    (275.0, 22.0): 120.0,
    (275.0, 11.0): 60.0,
    (132.0, 132.0): 650.0,
    (132.0, 66.0): 120.0,
    (132.0, 33.0): 150.0,
    (132.0, 22.0): 180.0,
    (132.0, 11.0): 60.0,
    (132.0, 6.6): 30.0,
    (33.0, 33.0): 180.0,
    (33.0, 11.0): 30.0,
}


def rate_by_voltage(case: Case, n_line: int) -> Case:
    """The case with the ratings above; the first `n_line` branches are lines, the others transformers."""
    f, t = branch_positions(case)
    ends = np.stack([case.bus.base_kv[f], case.bus.base_kv[t]])
    high, low = ends.max(axis=0).tolist(), ends.min(axis=0).tolist()
    rate = [LINE_MVA[kv] for kv in high[:n_line]]
    rate += [TRANSFORMER_MVA[pair] for pair in zip(high[n_line:], low[n_line:], strict=True)]
    return replace(case, branch=replace(case.branch, rate_a_mva=np.array(rate)))


def transmission_part(case: Case, name: str, note: str) -> Case:
    """The buses at 275 kV and above, with what hangs below moved up.

    Loads, units, shunts and the charging of the branches below go to the transmission bus that is nearest by the sum
    of |z| [pu] along the way. Lower networks do not join transmission buses any more, and their losses are gone.
    """
    f, t = branch_positions(case)
    top = case.bus.base_kv >= TRANSMISSION_KV
    own = top[f] & top[t]
    z = np.hypot(case.branch.r_pu, case.branch.x_pu)
    home = nearest_bus(case.n_bus, f[~own], t[~own], z[~own], np.flatnonzero(top))
    charging = case.bus.bs_mvar.copy()
    for end in (f, t):
        np.add.at(charging, end[~own], case.branch.b_pu[~own] / 2 * case.base_mva)

    def moved(values: np.ndarray) -> np.ndarray:
        return np.bincount(home, values, minlength=case.n_bus)[top]

    p_mw, q_mvar = moved(case.p_load_mw), moved(case.q_load_mvar)
    at = home[case.positions(case.unit.bus_id)]
    unit = replace(case.unit, bus_id=case.bus.id[at], v_set_pu=_of_largest(at, case.unit.p_max_mw, case.unit.v_set_pu))
    bus = replace(_rows(case.bus, top), gs_mw=moved(case.bus.gs_mw), bs_mvar=moved(charging))
    fed = np.isin(bus.id, unit.bus_id) & (bus.kind == PQ)
    has_load = (p_mw != 0) | (q_mvar != 0)
    return replace(
        case,
        name=name,
        citation=f"{case.citation}\n{note}",
        bus=replace(bus, kind=np.where(fed, PV, bus.kind)),
        branch=_rows(case.branch, own),
        unit=unit,
        load=LoadTable(bus.id[has_load], p_mw[has_load], q_mvar[has_load]),
    )


def nearest_bus(n_bus: int, f: np.ndarray, t: np.ndarray, length: np.ndarray, goals: np.ndarray) -> np.ndarray:
    """The goal at the shortest distance of every bus, (N,) int64, and -1 out of reach; of equals the first goal."""
    neighbours: list[list[tuple[int, float]]] = [[] for _ in range(n_bus)]
    for a, b, d in zip(f.tolist(), t.tolist(), length.tolist(), strict=True):
        neighbours[a].append((b, d))
        neighbours[b].append((a, d))
    home = np.full(n_bus, -1, np.int64)
    queue = [(0.0, goal, goal) for goal in goals.tolist()]
    while queue:
        distance, goal, bus = heapq.heappop(queue)
        if home[bus] >= 0:
            continue
        home[bus] = goal
        for other, d in neighbours[bus]:
            if home[other] < 0:
                heapq.heappush(queue, (distance + d, goal, other))
    return home


def _of_largest(at: np.ndarray, size: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The value of the largest unit at the same bus, (G,): one bus holds one voltage."""
    order = np.argsort(size, kind="stable")
    chosen = dict(zip(at[order].tolist(), values[order].tolist(), strict=True))
    return np.array([chosen[i] for i in at.tolist()])


def _rows(table: Any, at: np.ndarray) -> Any:
    return replace(table, **{column.name: getattr(table, column.name)[at] for column in fields(table)})
