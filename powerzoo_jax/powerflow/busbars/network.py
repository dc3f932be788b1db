"""Substations with two busbars: which elements there are, where an assignment puts them, and what flows from there.

Node s is busbar 1 of bus s, node S + s its busbar 2. Elements stand in the order of `ElementCounts`; an assignment has
a busbar for each: 1, 2, or 0 for out. Both nodes of a bus have its base voltage Vb, so V = Vb (1 + e), and a current

    i = i_base (1 + e_to) + slope (e_from - e_to)

keeps its digits in float32 wherever the ends of a branch stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base import struct
from powerzoo_jax.base.errors import CaseError, listing
from powerzoo_jax.base.host import on_host
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.ranges import FINITE, WHOLE, Range, axes, checks_ranges
from powerzoo_jax.base.solver_mode import AUTO, NATIVE, check_mode
from powerzoo_jax.cases import Case, assert_valid
from powerzoo_jax.cases.case import PV
from powerzoo_jax.cases.topology import branch_positions, live_buses
from powerzoo_jax.powerflow.busbars.newton import BusbarLanes, prepare_lanes
from powerzoo_jax.powerflow.feeder.factors import nominal_injection
from powerzoo_jax.powerflow.meshed.base_case import refuse_busbars, refuse_references, solve_base, voltage_setpoints
from powerzoo_jax.powerflow.native.busbars import NativeBusbars, prepare_busbars
from powerzoo_jax.powerflow.native.library import library_for

BUSBAR = Range(0, 2)  # 0: out


class ElementCounts(NamedTuple):
    """Numbers of elements, in their order: from ends and to ends of the branches, then the rest."""

    branches: int
    units: int
    plants: int
    loads: int
    storages: int
    shunts: int

    @property
    def total(self) -> int:
        return self.branches + sum(self)


@struct.dataclass(kw_only=True)
class TopologyNetwork:
    """Prepared data of S substations and E elements for `solve_topology`. Share it between lanes.

    bus:       (E,)    int32  position of the bus of each element
    base:      (E,)    int8   assignment of the case: all that is in service on busbar 1
    at_bus:    (S, K)  int32  elements of each bus; padding is E
    injecting: (S, J)  int32  those of them that inject, counted behind the ends of branches; padding E - 2L
    holds:     (G,)    bool   units that hold the magnitude of their busbar: those at PV and reference buses
    refers:    (G,)    bool   units of the reference bus
    v_base:    (S, 2)  [pu]   base voltage            v_set: (S,) [pu] magnitude that units of a bus hold
    i_base, slope: (L, 2) [pu] series current at the base voltage, and y Vb_from / a
    ratio:     (L, 2)  [-]    1 / a
    half_charging, r: (L,) [pu]
    half_conductance: (L,) [pu] shunt conductance of each end, None where no branch has any
    shunt:     (H, 2)  [pu]   g, b
    slack:     ()      int32  position of the reference bus
    counts:    static, numbers of elements of every kind
    native:    operands of the compiled kernel, None where the JAX form solves
    lanes:     data of the JAX form, None where the kernel alone solves
    """

    AXES: ClassVar = {"E": "n_element", "S": "n_bus", "N": "n_node"}
    bus: Array
    base: Array
    at_bus: Array
    injecting: Array
    holds: Array
    refers: Array
    v_base: Array
    v_set: Array
    i_base: Array
    slope: Array
    ratio: Array
    half_charging: Array
    r: Array
    shunt: Array
    slack: Array
    counts: ElementCounts = struct.field(pytree_node=False)
    half_conductance: Array | None = None
    native: NativeBusbars | None = None
    lanes: BusbarLanes | None = None

    @property
    def n_bus(self) -> int:
        return self.v_set.shape[-1]

    @property
    def n_node(self) -> int:
        return 2 * self.n_bus

    @property
    def n_element(self) -> int:
        return self.bus.shape[-1]


@on_host
@checks_ranges("prepare_topology")
def prepare_topology(
    case: Case,
    *,
    plants: Annotated[Sequence[int], axes("...", kind=WHOLE)] = (),
    storages: Annotated[Sequence[int], axes("...", kind=WHOLE)] = (),
    conductance_pu: Annotated[Sequence[float], FINITE, axes("...")] | None = None,
    dtype: Any = None,
    solver: str = AUTO,
) -> TopologyNetwork:
    """Substations of a case for `solve_topology`: every bus may be split into two busbars.

    plants, storages: ids of the buses of further elements, which only inject
    conductance_pu:   (L,) [pu] shunt conductance of the branches, half of it at each end: iron losses
    dtype:            float32 (None) or float64
    solver:           "native" is the compiled kernel alone, "adaptive" and "fixed" the JAX form, "auto" what there is

    A branch or unit out of service in the case, and what stands at a bus without supply, is out in the base assignment.
    Raises CaseError for an invalid case or a bus that it has not, SolverError for several reference buses, for branches
    with |z| below 1e-6 pu (float32) or 1e-7 pu (float64) and for "native" without the kernel, BaseLoadError when the
    base load has no solution.
    """
    dtype = resolve_dtype(dtype)
    check_mode(solver, NATIVE)
    assert_valid(case)
    refuse_busbars(case, dtype)
    refuse_references(case)
    v = solve_base(case, nominal_injection(case), voltage_setpoints(case))
    counts, bus, on = list_elements(case, plants, storages)
    slack, (f, t) = int(case.slack_bus[0]), branch_positions(case)
    of_units = bus[2 * counts.branches :][: counts.units]
    holds = (case.bus.kind[of_units] == PV) | (of_units == slack)
    v_set = np.ones(case.n_bus)
    # the first unit in service of a bus has the last word, then the first of those out of service
    for running in (False, True):
        rows = np.flatnonzero(case.unit.in_service == running)[::-1]
        v_set[of_units[rows]] = case.unit.v_set_pu[rows]
    v_set[slack] = abs(v[slack])
    shunted = np.flatnonzero((case.bus.gs_mw != 0) | (case.bus.bs_mvar != 0))
    shunt = np.stack([case.bus.gs_mw[shunted], case.bus.bs_mvar[shunted]], 1) / case.base_mva
    library = library_for(solver)
    half = None
    if conductance_pu is not None:
        half = 0.5 * np.asarray(conductance_pu, float)
        if half.shape != (case.n_branch,):
            raise CaseError(f"{case.name}: conductance_pu has shape {half.shape}. Give one number a branch.")
    native = None if library is None else prepare_busbars(library, case, bus, holds, shunt, half, v, v_set)
    b = case.branch
    series, ratio = 1 / (b.r_pu + 1j * b.x_pu), np.exp(-1j * np.deg2rad(b.shift_deg)) / b.tap
    real = dict(v_set=v_set, shunt=shunt, half_charging=0.5 * b.b_pu, r=b.r_pu)
    if half is not None:
        real["half_conductance"] = half
    pairs = dict(v_base=v, i_base=series * (ratio * v[f] - v[t]), slope=series * ratio * v[f], ratio=ratio)
    numbers = real | {name: np.stack([x.real, x.imag], 1) for name, x in pairs.items()}
    with jax.enable_x64(True):
        return TopologyNetwork(
            bus=jnp.asarray(bus, jnp.int32),
            base=jnp.asarray(on, jnp.int8),
            at_bus=jnp.asarray(_rows_of(bus, case.n_bus), jnp.int32),
            injecting=jnp.asarray(_rows_of(bus[2 * counts.branches :], case.n_bus), jnp.int32),
            holds=jnp.asarray(holds),
            refers=jnp.asarray(of_units == slack),
            slack=jnp.asarray(slack, jnp.int32),
            counts=counts,
            native=native,
            lanes=None if solver == NATIVE else prepare_lanes(case, v, v_set, half, dtype),
            **{name: jnp.asarray(x, dtype) for name, x in numbers.items()},
        )


def list_elements(
    case: Case, plants: Sequence[int], storages: Sequence[int]
) -> tuple[ElementCounts, np.ndarray, np.ndarray]:
    """Numbers of the elements, the position of the bus of each (E,), and whether it is in service in the case (E,)."""
    extra = []
    for kind, ids in (("plants", plants), ("storages", storages)):
        at = case.positions(np.asarray(ids, np.int64))
        if np.any(at < 0):
            missing = listing(np.asarray(ids)[at < 0])
            raise CaseError(f"{case.name}: {kind} name the unknown buses {missing}. Give ids of its bus table.")
        extra.append(at)
    shunted = np.flatnonzero((case.bus.gs_mw != 0) | (case.bus.bs_mvar != 0))
    of_units, of_loads = case.positions(case.unit.bus_id), case.positions(case.load.bus_id)
    f, t = branch_positions(case)
    parts = (f, t, of_units, extra[0], of_loads, extra[1], shunted)
    counts, bus = ElementCounts(*(len(x) for x in parts[1:])), np.concatenate(parts)
    live = live_buses(case)
    running = case.branch.in_service & live[f] & live[t]
    on = live[bus]
    on[: 2 * counts.branches] = np.concatenate([running, running])
    on[2 * counts.branches :][: counts.units] &= case.unit.in_service
    return counts, bus, on


def element_injection(case: Case, network: TopologyNetwork) -> np.ndarray:
    """Injections (E,) complex [pu] of the elements at the outputs and loads of the tables, 0 for all others.

    network:  from `prepare_topology` of the case
    """
    counts = network.counts
    units, loads = case.unit.p_mw + 1j * case.unit.q_mvar, case.load.p_mw + 1j * case.load.q_mvar
    rest = np.zeros(counts.storages + counts.shunts)
    parts = (np.zeros(2 * counts.branches), units, np.zeros(counts.plants), -loads, rest)
    return np.asarray(np.concatenate(parts) / case.base_mva)


def _rows_of(bus: np.ndarray, n_bus: int) -> np.ndarray:
    """Elements of every bus (S, K), padded with their number."""
    found: list[list[int]] = [[] for _ in range(n_bus)]
    for element, at in enumerate(bus.tolist()):
        found[at].append(element)
    width = max(map(len, found))
    return np.array([x + [len(bus)] * (width - len(x)) for x in found])


class Placed(NamedTuple):
    """Where the elements of one assignment stand.

    f, t:            (L,)   int32  nodes of the ends        on:       (L,) bool  branches in service
    shunt, shunt_on: (H,)   int32 node, bool
    busbar:          (E,)   int8   busbar of each element, 0 also at both ends of a branch with one end out
    in_use, holds:   (2S,)  bool   nodes where something stands, and those that hold their magnitude
    slack:           ()     int32  node of the reference
    connected:       ()     bool   whether every node in use is reached from there
    """

    f: Array
    t: Array
    on: Array
    shunt: Array
    shunt_on: Array
    busbar: Array
    in_use: Array
    holds: Array
    slack: Array
    connected: Array


def place(network: TopologyNetwork, topology: Array) -> Placed:
    """Nodes of the elements of one assignment (E,), and which of them hold together."""
    counts, s = network.counts, network.n_bus
    lines, units = counts.branches, counts.units
    on = (topology[:lines] > 0) & (topology[lines : 2 * lines] > 0)
    busbar = topology.at[: 2 * lines].multiply(jnp.concatenate([on, on]).astype(topology.dtype))
    node = network.bus + jnp.where(busbar == 2, s, 0)
    is_unit = jnp.zeros(network.n_element, bool).at[2 * lines : 2 * lines + units]
    in_use = _any_at(network, busbar, jnp.ones(network.n_element, bool))
    holds = _any_at(network, busbar, is_unit.set(network.holds))
    slack, held = reference(network, busbar)
    own = (jnp.arange(2 * s, dtype=jnp.int32) == slack) & held
    in_use, holds = in_use | own, holds | own
    f, t = node[:lines], node[lines : 2 * lines]
    shunts = slice(network.n_element - counts.shunts, None)
    reached = _reached(network, f, t, on, busbar, own)
    return Placed(
        f=f,
        t=t,
        on=on,
        shunt=node[shunts],
        shunt_on=busbar[shunts] > 0,
        busbar=busbar,
        in_use=in_use,
        holds=holds,
        slack=slack,
        connected=held & ~jnp.any(in_use & ~reached),
    )


def reference(network: TopologyNetwork, busbar: Array) -> tuple[Array, Array]:
    """Node of the first unit in service of the reference bus, busbar 1 where it has no unit, and whether one holds."""
    units = busbar[2 * network.counts.branches :][: network.counts.units]
    running = network.refers & (units > 0)
    first = jnp.argmax(running) if network.counts.units else 0
    there = jnp.any(running)
    second = there & (units[first] == 2) if network.counts.units else there
    slack = network.slack + jnp.where(second, network.n_bus, 0)
    return slack.astype(jnp.int32), there | ~jnp.any(network.refers)


def _any_at(network: TopologyNetwork, busbar: Array, counted: Array) -> Array:
    """Nodes (2S,) where one of the elements `counted` (E,) stands."""
    on = jnp.concatenate([jnp.where(counted, busbar, 0), jnp.zeros(1, busbar.dtype)])[network.at_bus]
    return jnp.concatenate([jnp.any(on == 1, 1), jnp.any(on == 2, 1)])


def _reached(network: TopologyNetwork, f: Array, t: Array, on: Array, busbar: Array, own: Array) -> Array:
    """Nodes (2S,) that branches in service connect with those of `own`: each round goes one branch further."""
    rest = jnp.zeros(network.n_element - 2 * on.shape[0], bool)

    def spread(reached: Array) -> Array:
        either = on & (reached[f] | reached[t])
        return reached | _any_at(network, busbar, jnp.concatenate([either, either, rest]))

    def further(state: tuple[Array, Array]) -> tuple[Array, Array]:
        reached = spread(state[0])
        return reached, jnp.any(reached != state[0])

    def until_done(own: Array) -> Array:
        return lax.while_loop(lambda state: state[1], further, (own, jnp.asarray(True)))[0]

    def every_round(own: Array) -> Array:
        return lax.fori_loop(0, 2 * network.n_bus, lambda _, reached: spread(reached), own)

    return lax.platform_dependent(own, cpu=until_done, default=every_round)


@checks_ranges("node_injection")
def node_injection(
    network: TopologyNetwork,
    topology: Annotated[Array, BUSBAR, axes("E", kind=WHOLE)],
    p_pu: Annotated[Array, FINITE, axes("E", told=True)],
    q_pu: Annotated[Array, FINITE, axes("E", told=True)],
) -> tuple[Array, Array]:
    """Injections by node (2S,) each, of injections by element (E,) [pu] on their busbars; those of branches are 0.

    network:  from `prepare_topology`       topology: (E,) int8 busbar of every element
    """
    first = 2 * network.counts.branches
    found = sum_at(network.injecting, topology[first:], jnp.stack([p_pu[first:], q_pu[first:]], 1))
    return found[:, 0], found[:, 1]


def sum_at(rows: Array, busbar: Array, values: Array) -> Array:
    """Sums (2S, 2) at the nodes of values (N, 2) of N elements on their busbars (N,), those of each bus in `rows`."""
    apart = jnp.concatenate([jnp.where((busbar == k)[:, None], values, 0) for k in (1, 2)], 1)
    found = jnp.sum(jnp.pad(apart, ((0, 1), (0, 0)))[rows], 1)
    return jnp.concatenate([found[:, :2], found[:, 2:]])


class Flows(NamedTuple):
    """Powers entering both ends of every branch and series currents, (L, 2) each [pu]; 0 out of service."""

    s_from: Array
    s_to: Array
    current: Array


def flows(network: TopologyNetwork, placed: Placed, e: Array) -> Flows:
    """Branch flows at deviations e (2S, 2) from the base voltages."""
    lines = network.counts.branches
    a, b = network.bus[:lines], network.bus[lines : 2 * lines]
    e_f, e_t = e[placed.f], e[placed.t]
    w_f, w_t = near_one(e_f), near_one(e_t)
    i = complex_product(network.i_base, w_t) + complex_product(network.slope, e_f - e_t)
    u, v = (
        complex_product(network.ratio, complex_product(network.v_base[a], w_f)),
        complex_product(network.v_base[b], w_t),
    )
    s_f = _times_conj(u, i) - _charging(network, u)
    s_t = -_times_conj(v, i) - _charging(network, v)
    return Flows(*(jnp.where(placed.on[:, None], x, 0) for x in (s_f, s_t, i)))


def injections(network: TopologyNetwork, placed: Placed, e: Array) -> Array:
    """Injections (2S, 2) [pu] that the nodes take at deviations e (2S, 2): what flows into branches and shunts."""
    found, counts = flows(network, placed, e), network.counts
    held = network.v_base[network.bus[network.n_element - counts.shunts :]]
    square = jnp.sum(jnp.square(complex_product(held, near_one(e[placed.shunt]))), 1, keepdims=True)
    consumed = _conj(network.shunt * square)
    others = jnp.zeros((network.n_element - 2 * counts.branches - counts.shunts, 2), e.dtype)
    return sum_at(network.at_bus, placed.busbar, jnp.concatenate([found.s_from, found.s_to, others, consumed]))


def near_one(e: Array) -> Array:
    return jnp.stack([e[..., 0] + 1, e[..., 1]], -1)


def complex_product(x: Array, y: Array) -> Array:
    """Product of complex numbers (.., 2)."""
    a, b, c, d = x[..., 0], x[..., 1], y[..., 0], y[..., 1]
    return jnp.stack([a * c - b * d, a * d + b * c], -1)


def _times_conj(x: Array, y: Array) -> Array:
    """x conj(y) of complex numbers (.., 2)."""
    return complex_product(x, _conj(y))


def _conj(x: Array) -> Array:
    return jnp.stack([x[..., 0], -x[..., 1]], -1)


def _charging(network: TopologyNetwork, v: Array) -> Array:
    """Power (L, 2) that half the charging and conductance of a branch inject at voltage v (L, 2)."""
    square, g = jnp.sum(jnp.square(v), 1), network.half_conductance
    return jnp.stack([jnp.zeros_like(square) if g is None else -g * square, network.half_charging * square], 1)
