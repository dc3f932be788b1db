"""Branch and unit outages under the DC approximation, exactly: line outage and power transfer distribution factors.

Losing branch k moves its flow onto the others: f_l' = f_l + LODF_lk f_k, with
LODF_lk = h_lk / (1 - h_kk), h_lk = PTDF_l,from(k) - PTDF_l,to(k), and LODF_kk = -1.
A branch whose loss splits its island has 1 - h_kk = 0: it is flagged, and its column moves nothing.
Losing unit u at bus b moves its output p_u to the others: f_l' = f_l + (sum_i PTDF_li a_ui - PTDF_lb) p_u, with a_ui
the share of bus i; what the shares do not cover is left to the slack, whose PTDF is 0. `unit_roles` tells which
units hold a voltage, and which ones make up for the power that is lost.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.base.host import on_host
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.ranges import BUDGET, FINITE, axes, checks_ranges, unchecked
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.case import PV
from powerzoo_jax.cases.topology import branch_positions, islands
from powerzoo_jax.powerflow.dc.network import DcNetwork, build_dc_network
from powerzoo_jax.powerflow.dc.solve import DcConvention


class UnitRoles(NamedTuple):
    """Roles of the G units of a case.

    bus:      (G,)    int    position of the bus
    frees:    (G,)    bool   the last one in service at a PV bus: without it nothing holds the magnitude there
    balances: (G,)    bool   the last one in service at a slack bus: without it nothing balances the network
    response: (G, N)  [-]    what every bus adds per unit of lost power; the slack adds the rest
    """

    bus: np.ndarray
    frees: np.ndarray
    balances: np.ndarray
    response: np.ndarray


def unit_roles(case: Case, participation: np.ndarray | None) -> UnitRoles:
    """Roles of all units; `participation` (G,) weights share the lost power among the units that remain in service
    in the same island.

    Raises SolverError for weights of another shape, negative or not finite.
    """
    unit, count = case.unit, len(case.unit.bus_id)
    bus, on = case.positions(unit.bus_id), unit.in_service
    last = on & (np.bincount(bus[on], minlength=case.n_bus)[bus] == 1)
    weight = np.zeros(count) if participation is None else np.asarray(participation, float)
    if weight.shape != (count,) or not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise SolverError(
            f"{case.name}: participation must be {count} weights of 0 or more, one for each unit; it has shape "
            f"{weight.shape} and sums to {weight.sum()}."
        )
    label = islands(case.n_bus, *branch_positions(case), case.branch.in_service)[bus]
    others = (weight * on)[None] * (~np.eye(count, dtype=bool) & (label[:, None] == label[None]))
    total = others.sum(1, keepdims=True)
    at_bus = np.zeros((count, case.n_bus))
    at_bus[np.arange(count), bus] = 1.0
    response = others @ at_bus / np.where(total > 0, total, 1.0)
    balances = np.isin(bus, case.slack_bus)
    return UnitRoles(bus, last & (case.bus.kind[bus] == PV) & ~balances, last & balances, response)


RESONANT = 1e-9  # |1 - h_kk| below this for a branch that is no bridge: negative reactances cancel without it


@struct.dataclass(kw_only=True)
class DcOutages:
    """Single branch and unit outages of one network. Leaves only.

    lodf:       (L, L)  [-]   change of flow l per flow of the lost branch k; -1 on the diagonal
    islanding:  (L,)    bool  losing the branch splits its island: column k holds -1 for itself and zeros
    in_service: (L,)    bool  branches that can be lost at all
    unit_move:  (G, L)  [-]   change of flow l per output of the lost unit; 0 for units out of service
    unit_alone: (G,)    bool  nothing is left to balance without the unit: the last of a slack bus, no participation
    p_unit:     (G,)    [pu]  scheduled output, 0 out of service
    """

    lodf: Array
    islanding: Array
    in_service: Array
    unit_move: Array
    unit_alone: Array
    p_unit: Array

    AXES: ClassVar = {"L": "in_service", "G": "p_unit"}


@on_host
@checks_ranges("prepare_dc_outages")
def prepare_dc_outages(
    case: Case,
    *,
    convention: DcConvention = DcConvention.MATPOWER,
    participation: Annotated[np.ndarray, axes("...")] | None = None,
    dtype: Any = None,
) -> DcOutages:
    """Factor all single outages of branches and units of a network, in float64 on the host.

    participation:  (G,) [-] by which the other units in service make up for a lost one; None leaves it to the slack

    Other arguments and errors as in `dc.prepare_dc`; SolverError for weights that do not fit.
    Source: Wood, Wollenberg, Sheble, Power Generation, Operation, and Control, 3rd ed., section 7.3.
    """
    dtype = resolve_dtype(dtype)
    network = build_dc_network(case, pglib=convention == DcConvention.PGLIB)
    lodf, islanding = outage_factors(case, network)
    roles, on = unit_roles(case, participation), case.unit.in_service
    move = np.where(on[:, None], roles.response @ network.ptdf.T - network.ptdf.T[roles.bus], 0.0)
    return DcOutages(
        lodf=jnp.asarray(lodf, dtype),
        islanding=jnp.asarray(islanding),
        in_service=jnp.asarray(case.branch.in_service),
        unit_move=jnp.asarray(move, dtype),
        unit_alone=jnp.asarray(roles.balances & ~roles.response.any(1)),
        p_unit=jnp.asarray(np.where(on, case.unit.p_mw, 0.0) / case.base_mva, dtype),
    )


def outage_factors(case: Case, network: DcNetwork) -> tuple[np.ndarray, np.ndarray]:
    """LODF (L, L) float64 and which branches split their island (L,) bool."""
    f, t = branch_positions(case)
    on = case.branch.in_service
    h = network.ptdf @ network.incidence.T
    rest = 1.0 - np.diag(h)
    unsafe = on & (bridges(case.n_bus, f, t, on) | (np.abs(rest) < RESONANT))
    lost = on & ~unsafe
    lodf = np.where(lost, h, 0.0) / np.where(lost, rest, 1.0)
    np.fill_diagonal(lodf, -1.0)
    return lodf, unsafe


@checks_ranges("outage_flows")
def outage_flows(outages: DcOutages, flow: Annotated[Array, FINITE, axes("L")]) -> Array:
    """Flows after each single outage: base flows (L,) [pu] -> (L, L) [pu], row k with branch k lost.

    Rows of islanding outages and of branches out of service hold no state of the network: mask them with
    `outages.islanding` and `outages.in_service`.
    """
    return flow[None, :] + outages.lodf.T * flow[:, None]


@checks_ranges("unit_outage_flows")
def unit_outage_flows(
    outages: DcOutages,
    flow: Annotated[Array, FINITE, axes("L")],
    p_unit: Annotated[Array, FINITE, axes("G")] | None = None,
) -> Array:
    """Flows after the loss of each unit: base flows (L,) and outputs (G,) [pu] -> (G, L) [pu].

    p_unit:  output of every unit in the state that `flow` is of; None takes the schedule of the case

    Rows of `outages.unit_alone` hold the state before the outage: mask them.
    """
    lost = outages.p_unit if p_unit is None else p_unit
    return flow[None, :] + outages.unit_move * jnp.where(outages.unit_alone, 0, lost)[:, None]


@checks_ranges("worst_outage_loading")
def worst_outage_loading(
    outages: DcOutages, flow: Annotated[Array, FINITE, axes("L")], rate: Annotated[Array, BUDGET, axes("L")]
) -> tuple[Array, Array]:
    """Largest loading that any surviving branch sees after each outage, (L,) [-], and that branch, (L,) int32.

    flow:  (L,) [pu] base flows
    rate:  (L,) [pu] ratings, 0 = unlimited
    Outages that split an island, and branches out of service, read 0: they are flagged, not screened.
    """
    loading = _loading(outages, unchecked(outage_flows)(outages, flow), rate)
    return _worst(jnp.where((outages.in_service & ~outages.islanding)[:, None], loading, 0))


@checks_ranges("worst_unit_outage_loading")
def worst_unit_outage_loading(
    outages: DcOutages,
    flow: Annotated[Array, FINITE, axes("L")],
    rate: Annotated[Array, BUDGET, axes("L")],
    p_unit: Annotated[Array, FINITE, axes("G")] | None = None,
) -> tuple[Array, Array]:
    """Largest loading after the loss of each unit, (G,) [-] and (G,) int32; `p_unit` as in `unit_outage_flows`."""
    loading = _loading(outages, unchecked(unit_outage_flows)(outages, flow, p_unit), rate)
    return _worst(jnp.where(outages.unit_alone[:, None], 0, loading))


def _worst(loading: Array) -> tuple[Array, Array]:
    """Largest loading of (O, L) after each outage and its branch, (O,) each; 0 and 0 without branches."""
    if loading.shape[1] == 0:
        return jnp.zeros(loading.shape[0], loading.dtype), jnp.zeros(loading.shape[0], jnp.int32)
    return jnp.max(loading, axis=1), jnp.argmax(loading, axis=1).astype(jnp.int32)


def _loading(outages: DcOutages, after: Array, rate: Array) -> Array:
    """Loading (O, L) of the branches in service that have a rating, 0 of the others."""
    rated = rate > 0
    loading = jnp.abs(after) / jnp.where(rated, rate, 1)[None, :]
    return jnp.where((rated & outages.in_service)[None, :], loading, 0)


def bridges(n_bus: int, f: np.ndarray, t: np.ndarray, status: np.ndarray) -> np.ndarray:
    """Branches whose loss splits their island, (L,) bool: those on no loop (Tarjan's low points, without recursion)."""
    neighbours: list[list[tuple[int, int]]] = [[] for _ in range(n_bus)]
    for branch in np.flatnonzero(status).tolist():
        a, b = int(f[branch]), int(t[branch])
        neighbours[a].append((b, branch))
        neighbours[b].append((a, branch))
    found = np.zeros(len(f), bool)
    order, low = np.full(n_bus, -1), np.zeros(n_bus, np.int64)
    count = 0
    for root in range(n_bus):
        if order[root] >= 0:
            continue
        order[root] = low[root] = count
        count += 1
        stack = [(root, -1, iter(neighbours[root]))]
        while stack:
            bus, via, rest = stack[-1]
            step = next(rest, None)
            if step is None:
                stack.pop()
                if stack:
                    parent = stack[-1][0]
                    low[parent] = min(low[parent], low[bus])
                    found[via] = low[bus] > order[parent]
            elif order[step[0]] < 0:
                order[step[0]] = low[step[0]] = count
                count += 1
                stack.append((step[0], step[1], iter(neighbours[step[0]])))
            elif step[1] != via:  # by branch, not by bus: two parallel lines make a loop
                low[bus] = min(low[bus], order[step[0]])
    return found
