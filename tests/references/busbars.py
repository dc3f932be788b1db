"""An independent float64 power flow of split substations for the tests: the doubled network and SciPy's sparse Newton.

Every bus of a case is a substation with two busbars: node s is busbar 1 of bus position s, node N + s its busbar 2.
Elements stand in this order: from ends, to ends, units, plants, loads, storages, shunts; a topology holds a busbar (0
out, 1, 2) for each. It shares no formula with the package: the nodes of a topology become a network of their own, which
`tests.references.meshed` solves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from powerzoo_jax.cases import Case
from tests.references.meshed import (
    MeshedFlows,
    MeshedNetwork,
    MeshedStates,
    branch_flows,
    build_meshed,
    solve_base_state,
    solve_states,
)

SMALLEST_PART = 1 / 512  # of the way from no injections to those asked for, where continuation gives up
LOAD_FACTOR = (0.8, 1.2)


@dataclass(frozen=True)
class Substations:
    """Elements of a case by substation.

    case:   the network
    bus:    (E,)  bus position of every element
    s:      (E,)  complex [pu], nominal injection of every element; 0 for ends, plants, storages and shunts
    loads, units, shunts:  positions of these elements
    net:    the merged network, with all elements of a substation on one busbar
    v:      (N,)  complex [pu], its solved base state
    conductance: (L,) [pu], of the branches, half at each end
    """

    case: Case
    bus: np.ndarray
    s: np.ndarray
    loads: slice
    units: slice
    shunts: slice
    net: MeshedNetwork
    v: np.ndarray
    conductance: np.ndarray


class SplitNetwork(NamedTuple):
    """Doubled network of a topology: `net` of 2N nodes, in_use (2N,), v_set (2N,) [pu], whether all reach the slack."""

    net: MeshedNetwork
    in_use: np.ndarray
    v_set: np.ndarray
    connected: bool


class SplitSolution(NamedTuple):
    """v (2N,) complex [pu], 0 where not in use, converged, Newton steps, flows (L,) and sums."""

    v: np.ndarray
    converged: bool
    steps: int
    flows: MeshedFlows


def build_substations(case: Case, plants: Sequence[int] = (), storages: Sequence[int] = ()) -> Substations:
    """Elements of a case with plants and storages at the given bus ids."""
    net = build_meshed(case)
    position = {int(bus): k for k, bus in enumerate(case.bus.id)}

    def at(ids: Sequence[int]) -> np.ndarray:
        return np.array([position[int(i)] for i in ids], int)

    parts = [net.f, net.t, at(case.unit.bus_id), at(plants), at(case.load.bus_id), at(storages)]
    parts.append(np.flatnonzero(net.shunt))
    ends = np.cumsum([len(part) for part in parts])
    s = np.zeros(ends[-1], complex)
    units, loads, shunts = (slice(ends[k - 1], ends[k]) for k in (2, 4, 6))
    s[units] = case.unit.p_mw + 1j * case.unit.q_mvar
    s[loads] = -(case.load.p_mw + 1j * case.load.q_mvar)
    bus = np.concatenate(parts)
    v = solve_base_state(case, net)
    return Substations(case, bus, s / case.base_mva, loads, units, shunts, net, v, np.zeros(case.n_branch))


def base_topology(sub: Substations) -> np.ndarray:
    """All elements on busbar 1, (E,) int8; 0 for branches and units out of service."""
    topology = np.ones(len(sub.bus), np.int8)
    topology[: 2 * sub.case.n_branch] = np.tile(sub.case.branch.in_service, 2)
    topology[sub.units] = sub.case.unit.in_service
    return topology


def moved(
    sub: Substations,
    splits: dict[int, tuple[Sequence[int], bool]],
    opened: Sequence[int] = (),
    topology: np.ndarray | None = None,
) -> np.ndarray:
    """Topology in which some elements move to busbar 2, and some branches open; all counted from 1 as in tables.

    splits:  bus id -> rows of the branches whose end there moves, and whether its load moves too
    """
    topology = (base_topology(sub) if topology is None else topology).copy()
    m, case = sub.case.n_branch, sub.case
    for bus, (branches, load) in splits.items():
        for row in branches:
            ends = [
                k
                for k, ids in ((row - 1, case.branch.from_id), (m + row - 1, case.branch.to_id))
                if ids[row - 1] == bus
            ]
            topology[ends] = 2
            assert ends, f"branch {row} does not end at bus {bus}"
        if load:
            topology[sub.loads][case.load.bus_id == bus] = 2
    for row in opened:
        topology[[row - 1, m + row - 1]] = 0
    return shunts_with_first_ends(sub, topology)


def first_ends(sub: Substations) -> np.ndarray:
    """End of the first branch of the table at every bus, (N,) position among the elements."""
    m, n = sub.case.n_branch, sub.case.n_bus
    rank = np.tile(np.arange(m), 2)
    return np.array([min(np.flatnonzero(sub.bus[: 2 * m] == k), key=lambda e: rank[e], default=-1) for k in range(n)])


def shunts_with_first_ends(sub: Substations, topology: np.ndarray) -> np.ndarray:
    """The topology with every shunt on the busbar of the first line end of its substation; not moved if that is out."""
    topology = topology.copy()
    busbar = topology[first_ends(sub)[sub.bus[sub.shunts]]]
    topology[sub.shunts] = np.where(busbar > 0, busbar, topology[sub.shunts])
    return topology


def mirror_image(sub: Substations, topology: np.ndarray, buses: Sequence[int] | None = None) -> np.ndarray:
    """The same grid with busbars 1 and 2 exchanged at some bus positions, at all for None."""
    swapped = np.isin(sub.bus, np.arange(sub.case.n_bus) if buses is None else buses) & (topology > 0)
    return np.where(swapped, 3 - topology, topology).astype(topology.dtype)


def node_sums(sub: Substations, topology: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Sums (2N,) of values by element (E,) at the node where the element stands; those out of service do not count."""
    n, on = sub.case.n_bus, topology > 0
    total = np.zeros(2 * n, values.dtype)
    np.add.at(total, (sub.bus + n * (topology == 2))[on], values[on])
    return total


def build_split(sub: Substations, topology: np.ndarray) -> SplitNetwork:
    """The network of a topology (E,); a branch is in service where both of its ends are."""
    case, n, m = sub.case, sub.case.n_bus, sub.case.n_branch
    topology = topology.copy()
    topology[: 2 * m] *= np.tile((topology[:m] > 0) & (topology[m : 2 * m] > 0), 2)
    node, on = sub.bus + n * (topology == 2), topology > 0
    f, t, in_service = node[:m], node[m : 2 * m], on[:m]
    b, rows = case.branch, np.arange(m)[in_service]
    # currents of the four-terminal branches, one at a time: i_f = (y + jb/2) v_f / |a|^2 - y v_t / conj(a)
    y = 1 / (b.r_pu + 1j * b.x_pu)[in_service]
    a = (b.tap * np.exp(1j * np.deg2rad(b.shift_deg)))[in_service]
    own = y + (0.5j * b.b_pu + 0.5 * sub.conductance)[in_service]
    ends = np.r_[f[in_service], t[in_service]]
    from_rows = sp.csr_matrix((np.r_[own / np.abs(a) ** 2, -y / np.conj(a)], (np.r_[rows, rows], ends)), (m, 2 * n))
    to_rows = sp.csr_matrix((np.r_[-y / a, own], (np.r_[rows, rows], ends)), (m, 2 * n))
    at_f, at_t = (sp.csr_matrix((in_service * 1.0, (np.arange(m), x)), (m, 2 * n)) for x in (f, t))
    shunt = node_sums(sub, np.where(np.arange(len(on)) >= sub.shunts.start, topology, 0), sub.net.shunt[sub.bus])
    ybus = sp.csr_matrix(at_f.T @ from_rows + at_t.T @ to_rows + sp.diags(shunt))
    in_use = np.zeros(2 * n, bool)
    in_use[node[on]] = True
    units = np.arange(sub.units.start, sub.units.stop)[on[sub.units]]
    holding = units[np.isin(case.bus.kind[sub.bus[units]], (2, 3))]
    holds = np.zeros(2 * n, bool)
    holds[node[holding]] = True
    reference = units[sub.bus[units] == sub.net.slack]
    slack = int(node[reference[0]]) if reference.size else -1
    label = connected_components(sp.csr_matrix((np.ones(len(rows)), (f[in_service], t[in_service])), (2 * n, 2 * n)))[1]
    connected = slack >= 0 and bool(np.all(label[in_use] == label[slack]))
    angle = in_use.copy()
    angle[slack] = False
    v_set = np.ones(n)
    for k in np.flatnonzero(case.unit.in_service)[::-1]:  # the first unit of a bus has the last word
        v_set[sub.bus[sub.units.start + k]] = case.unit.v_set_pu[k]
    net = MeshedNetwork(ybus, from_rows, to_rows, f, t, angle, angle & ~holds, slack, shunt)
    return SplitNetwork(net, in_use, np.tile(v_set, 2), connected)


def solve_split(
    sub: Substations, topology: np.ndarray, s: np.ndarray | None = None, start: np.ndarray | None = None
) -> SplitSolution:
    """Undamped Newton on the doubled network from the solved base state of the case.

    s:      (E,) complex [pu] injections of the elements, None for those of the case
    start:  (2N,) complex [pu] voltages, None for the base state at both busbars
    """
    split = build_split(sub, topology)
    if not split.connected:
        nothing = np.zeros((1, 2 * sub.case.n_bus), complex)
        return SplitSolution(nothing[0], False, 0, _single(branch_flows(split.net, nothing)))
    states = MeshedStates(node_sums(sub, topology, sub.s if s is None else s)[None], split.v_set[None])
    with np.errstate(all="ignore"):  # a lane without a solution may run off
        found = solve_states(split.net, states, np.tile(sub.v, 2) if start is None else start)
    v = np.where(split.in_use, found.v[0], 0)
    return SplitSolution(v, bool(found.converged[0]), int(found.steps[0]), _single(branch_flows(split.net, v[None])))


def continue_split(sub: Substations, topology: np.ndarray, s: np.ndarray) -> SplitSolution | None:
    """Solution on the upper branch, by continuation from no injections to s (E,); None where it ends before.

    It tells a lane that has no solution from one that a Newton method missed, or solved on another branch.
    """
    at, part, found = 0.0, 0.25, solve_split(sub, topology, 0 * s)
    if not found.converged:
        return None
    while at < 1:
        new = solve_split(sub, topology, min(at + part, 1) * s, np.where(found.v == 0, 1, found.v))
        if new.converged and np.abs(new.v - found.v).max() < 0.3:  # a jump is another branch
            at, found, part = min(at + part, 1), new, 2 * part
        elif (part := part / 2) < SMALLEST_PART:
            return None
    return found


class Draw(NamedTuple):
    """topology (K, E) int8 and injections s (K, E) complex [pu]."""

    topology: np.ndarray
    s: np.ndarray


def draw_topologies(
    sub: Substations,
    count: int,
    *,
    splits: int = 2,
    opened: int = 2,
    least: int = 2,
    load_factor: tuple[float, float] = LOAD_FACTOR,
    seed: int = 20_261_129,
) -> Draw:
    """`count` topologies with 0 to `splits` split substations and 0 to `opened` open branches, all connected.

    least:        line ends in service on each busbar of a split substation, before branches open
    load_factor:  range of one factor of every load, P and Q alike

    Shunts stand with the first line end of their substation.
    """
    rng = np.random.default_rng(seed)
    base, m = base_topology(sub), sub.case.n_branch
    ends = np.arange(2 * m)[base[: 2 * m] > 0]
    degree = np.bincount(sub.bus[ends], minlength=sub.case.n_bus)
    topologies = []
    while len(topologies) < count:
        topology = base.copy()
        for bus in rng.choice(np.flatnonzero(degree >= 2 * least), rng.integers(splits + 1), replace=False):
            here = np.flatnonzero((sub.bus == bus) & (base > 0))
            while True:
                topology[here] = rng.integers(1, 3, len(here))
                lines = topology[here[here < 2 * m]]
                if min(np.sum(lines == 1), np.sum(lines == 2)) >= least:
                    break
        topology = shunts_with_first_ends(sub, topology)
        out = rng.choice(np.unique(ends % m), rng.integers(opened + 1), replace=False)
        topology[np.r_[out, out + m]] = 0
        if build_split(sub, topology).connected:
            topologies.append(topology)
    s = np.tile(sub.s, (count, 1))
    s[:, sub.loads] *= rng.uniform(*load_factor, (count, len(sub.case.load)))
    return Draw(np.stack(topologies), s)


def _single(flows: MeshedFlows) -> MeshedFlows:
    return MeshedFlows(*(x[0] for x in flows))
