"""Graph topology of a network, worked out once on the host; buses are positions, not ids."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.base.struct import brief
from powerzoo_jax.cases.case import ISOLATED, Case
from powerzoo_jax.cases.case import islands as islands


@dataclass(frozen=True)
class RadialOrder:
    """A feeder as a tree, seen from its root.

    order:       (R,)  int64   reached buses, every parent before its children, subtrees contiguous
    parent:      (N,)  int64   parent of each bus, -1 for the root and for buses out of reach
    via_branch:  (N,)  int64   branch to the parent, -1 likewise
    depth:       (N,)  int64   branches between root and bus, -1 for buses out of reach
    """

    order: np.ndarray
    parent: np.ndarray
    via_branch: np.ndarray
    depth: np.ndarray

    __repr__ = brief


def branch_positions(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Positions of both ends of every branch, (L,) int64 each; -1 for an unknown bus."""
    return case.positions(case.branch.from_id), case.positions(case.branch.to_id)


def reachable_from_slack(case: Case) -> np.ndarray:
    """Mask of buses that in-service branches connect with a reference bus, (N,) bool."""
    f, t = branch_positions(case)
    known = (f >= 0) & (t >= 0)
    label = islands(case.n_bus, f[known], t[known], case.branch.in_service[known])
    return np.isin(label, label[case.slack_bus])


def shared_references(case: Case) -> np.ndarray:
    """Positions of reference buses that stand in one island with another, (K,) int64."""
    f, t = branch_positions(case)
    known = (f >= 0) & (t >= 0)
    label = islands(case.n_bus, f[known], t[known], case.branch.in_service[known])[case.slack_bus]
    island, count = np.unique(label, return_counts=True)
    return case.slack_bus[np.isin(label, island[count > 1])]


def live_buses(case: Case) -> np.ndarray:
    """Buses that are supplied, (N,) bool: connected with a reference bus and not isolated (kind 4)."""
    return reachable_from_slack(case) & (case.bus.kind != ISOLATED)


def isolate_unsupplied(case: Case) -> Case:
    """Case without the islands that no reference bus supplies.

    Their buses become isolated (kind 4), their branches and units go out of service; loads and shunts there keep their
    rows and take no part. The same case where every bus is supplied or isolated already.
    """
    live = live_buses(case)
    if np.all(live | (case.bus.kind == ISOLATED)):
        return case
    f, t = branch_positions(case)
    unit_on = case.unit.in_service & live[case.positions(case.unit.bus_id)]
    return replace(
        case,
        bus=replace(case.bus, kind=np.where(live, case.bus.kind, ISOLATED)),
        branch=replace(case.branch, in_service=case.branch.in_service & live[f] & live[t]),
        unit=replace(case.unit, in_service=unit_on),
    )


def radial_order(n_bus: int, f: np.ndarray, t: np.ndarray, status: np.ndarray, root: int) -> RadialOrder:
    """Depth-first preorder of the tree that in-service branches form around `root`.

    f, t, status as in `islands`, (L,) int and bool; root is the position of a bus.
    Raises CaseError when a branch closes a loop; buses out of reach are left out of `order`.
    """
    neighbours: list[list[tuple[int, int]]] = [[] for _ in range(n_bus)]
    for branch in np.flatnonzero(status).tolist():
        a, b = int(f[branch]), int(t[branch])
        neighbours[a].append((b, branch))
        neighbours[b].append((a, branch))
    parent, via, depth = (np.full(n_bus, -1, np.int64) for _ in range(3))
    depth[root] = 0
    order: list[int] = []
    stack = [root]
    while stack:
        bus = stack.pop()
        order.append(bus)
        for other, branch in reversed(neighbours[bus]):  # reversed: the first branch is walked first
            if branch == via[bus]:
                continue
            if depth[other] >= 0:
                raise CaseError(
                    f"branch {branch + 1} (positions {bus} -> {other}) closes a loop, so the network is not radial. "
                    "Open a switch of the loop, or use a meshed power flow."
                )
            parent[other], via[other], depth[other] = bus, branch, depth[bus] + 1
            stack.append(other)
    return RadialOrder(np.array(order, np.int64), parent, via, depth)


def is_radial(case: Case) -> bool:
    """Radiality test: in-service branches form one tree that holds every bus but the isolated ones."""
    reached = reachable_from_slack(case)
    if len(case.slack_bus) != 1 or not np.all(reached | (case.bus.kind == ISOLATED)):
        return False
    f, _ = branch_positions(case)
    return int(np.sum(case.branch.in_service & reached[f])) == int(reached.sum()) - 1


def incidence(n_bus: int, f: np.ndarray, t: np.ndarray, status: np.ndarray) -> np.ndarray:
    """Branch-bus incidence, (L, N) float64: +1 at the from bus, -1 at the to bus, 0 in rows out of service."""
    matrix = np.zeros((len(f), n_bus))
    on = np.flatnonzero(status)
    # added, not set: a branch from a bus to itself carries nothing and must give a zero row
    np.add.at(matrix, (on, np.asarray(f)[on]), 1.0)
    np.add.at(matrix, (on, np.asarray(t)[on]), -1.0)
    return matrix
