"""Host-side preparation of feeders: everything that depends on the network alone, made once in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.errors import BaseLoadError, SolverError, listing
from powerzoo_jax.base.host import on_host
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.ranges import WHOLE, Finite, Positive, axes, checks_ranges
from powerzoo_jax.cases import Case, assert_valid
from powerzoo_jax.cases.case import ISOLATED, PV, REF
from powerzoo_jax.cases.topology import branch_positions, incidence, is_radial, radial_order
from powerzoo_jax.powerflow.meshed.base_case import admittance
from powerzoo_jax.powerflow.rows import ChordCore, ConstantPower, calibrated, chord_factors, slope_matrix, stamp

BASE_STEPS = 200  # plain Z-bus iterations on the host; the base load is far from collapse, so a few dozen suffice
BASE_TOL = 1e-14


@struct.dataclass(kw_only=True)
class FeederFactors:
    """Prepared data of one feeder for `solve_feeder`. Leaves only; map or share them between lanes.

    core:       ChordCore of the active buses (a of them), voltages in [pu]
    active:     (a,)          int32  buses that may inject; padding points at bus N (out of range)
    idle:       (N,)          bool   buses that may not
    m_bus:      (2N, 2a)      [pu]   affine map from r to the voltages of all buses, with w_bus (2N,)
    m_from:     (2L, 2a)      [pu]   the same for the from ends of the branches, behind their ideal transformers, with
                                     w_from (2L,)
    m_flow:     (2L+2, 2a)    [-]    from injected currents to branch currents and, last, the total injected current;
                                     a subtree sum of injections in a radial feeder
    r_pu, x_pu: (L,)          [pu]   series impedance, 0 out of service
    r_bus, x_bus: (a, a)      [pu]   impedance between active buses: losses from injected currents alone
    v_slack:    ()            [pu]
    w_flow:     (2L+2,)       [pu]   currents of `m_flow` without injection; None in a feeder of plain series branches
    half_charging: (L,)       [pu]   half the susceptance of each branch, None likewise
    first:      static        position of the first active bus when they stand in one run, else -1

    Voltages and currents have products of their own so that a program that reads one does not pay for the other.
    """

    core: ChordCore
    active: Array
    idle: Array
    m_bus: Array
    w_bus: Array
    m_from: Array
    w_from: Array
    m_flow: Array
    r_pu: Array
    x_pu: Array
    r_bus: Array
    x_bus: Array
    v_slack: Array
    w_flow: Array | None = None
    half_charging: Array | None = None
    first: int = struct.field(pytree_node=False, default=-1)

    AXES: ClassVar = {"N": "n_bus", "a": "n_active"}

    @property
    def n_bus(self) -> int:
        return self.idle.shape[-1]

    @property
    def n_active(self) -> int:
        return self.active.shape[-1]


@on_host
@checks_ranges("prepare_feeder")
def prepare_feeder(
    case: Case,
    *,
    active_bus_ids: Annotated[Sequence[int], axes("...", kind=WHOLE)] | None = None,
    load_factor: Finite = 1.0,
    v_slack: Positive | None = None,
    dtype: Any = None,
) -> FeederFactors:
    """Factor an all-PQ feeder for `solve_feeder`.

    case:            network; one slack bus, no PV bus; loops, taps, phase shifts, charging and shunts are fine
    active_bus_ids:  external ids of buses that may inject beside those with load (None: only those)
    load_factor:     base point as a multiple of the nominal load; choose the middle of the range you will solve
    v_slack:         [pu] slack voltage; None takes the set-point of the case
    dtype:           float32 (None) or float64

    Raises CaseError for an invalid case, SolverError naming the bus or branch that this solver cannot represent,
    BaseLoadError (a SolverError) when the base load has no solution.
    Source: implicit Z-bus method (Chen et al. 1991, doi:10.1109/61.131105) with a linearised-injection chord.
    """
    dtype = resolve_dtype(dtype)
    assert_valid(case)
    _refuse_unsupported(case)
    slack = int(case.slack_bus[0])
    v0 = float(_slack_voltage(case, slack) if v_slack is None else v_slack)
    s_base = load_factor * nominal_injection(case)
    active = _active_buses(case, s_base, active_bus_ids, slack)
    network = _plain_network(case, slack, v0) if _is_plain(case) else _general_network(case, slack, v0)
    v_base = _base_state(network.z, network.v_idle, s_base)
    return _assemble(case, network, active, s_base, v_base, v0, dtype)


def nominal_injection(case: Case) -> np.ndarray:
    """Nominal net injection of every bus, (N,) complex [pu]: units in service less load; 0 at the slack bus."""
    s = -(case.p_load_mw + 1j * case.q_load_mvar)
    on = case.unit.in_service
    np.add.at(s, case.positions(case.unit.bus_id[on]), case.unit.p_mw[on] + 1j * case.unit.q_mvar[on])
    s[case.slack_bus] = 0.0
    return s / case.base_mva


def _refuse_unsupported(case: Case) -> None:
    references = case.bus.id[case.bus.kind == REF]
    if len(references) != 1:
        ids = listing(references)
        raise SolverError(
            f"{case.name} has the reference buses {ids}; a feeder has one. "
            "Give the others kind 1; powerflow.simplify_feeder(case, reference=...) keeps the power that they deliver."
        )
    for bad, what in ((case.bus.kind == PV, "holds its voltage (PV)"), (case.bus.kind == ISOLATED, "is isolated")):
        if bad.any():
            raise SolverError(
                f"{case.name}: bus {listing(case.bus.id[bad])} {what}, which the feeder solver cannot represent. "
                "It is for connected all-PQ feeders: powerflow.simplify_feeder(case) makes one and says what changes."
            )


def _is_plain(case: Case) -> bool:
    """Whether branches in service are series impedances alone and no bus has a shunt."""
    branch = case.branch
    element = (branch.b_pu != 0) | (branch.tap != 1) | (branch.shift_deg != 0)
    return not (np.any(element & branch.in_service) or np.any(case.bus.gs_mw) or np.any(case.bus.bs_mvar))


def _slack_voltage(case: Case, slack: int) -> float:
    held = case.unit.v_set_pu[case.unit.in_service & (case.unit.bus_id == case.bus.id[slack])]
    return float(held[0]) if held.size else float(case.bus.v_init_pu[slack])


def _active_buses(case: Case, s_base: np.ndarray, extra: Sequence[int] | None, slack: int) -> np.ndarray:
    wanted = s_base != 0
    for bus_id in extra or ():
        if int(bus_id) not in case.bus_index:
            raise SolverError(f"{case.name} has no bus {bus_id}. Valid ids: {listing(case.bus.id)}.")
        wanted[case.bus_index[int(bus_id)]] = True
    wanted[slack] = False
    if not wanted.any():
        raise SolverError(f"{case.name}: no bus but the slack has load. Name buses in active_bus_ids.")
    return np.flatnonzero(wanted)


class _Network(NamedTuple):
    """Linear maps from the injected currents i of a feeder, complex [pu]: v = z i + v_idle, and so on.

    z:      (N, N)    zero in the slack's row and column, with v_idle (N,)
    carried: (L+1, N) currents of the series elements and, last, the current that the slack takes up, with
                      carried_idle (L+1,) or None for 0
    ratio:  (L,)      of the ideal transformers at the from ends, None for 1
    """

    z: np.ndarray
    v_idle: np.ndarray
    carried: np.ndarray
    carried_idle: np.ndarray | None = None
    ratio: np.ndarray | None = None


def _plain_network(case: Case, slack: int, v0: float) -> _Network:
    """A feeder of series impedances alone.

    A radial feeder's Z sums impedances over shared paths, which is exact also for branches of 1e-7 pu;
    with loops Z inverts the load block of Ybus.
    """
    n, n_branch = case.n_bus, case.n_branch
    f, t = branch_positions(case)
    on = case.branch.in_service
    z_branch = case.branch.r_pu + 1j * case.branch.x_pu
    flat, total = np.full(n, v0, complex), np.ones((1, n))
    path = np.zeros((n_branch, n), complex)
    if is_radial(case):
        tree = radial_order(n, f, t, on, slack)
        for bus in tree.order[1:]:
            up, k = tree.parent[bus], tree.via_branch[bus]
            path[:, bus] = path[:, up]
            path[k, bus] = -1.0 if f[k] == up else 1.0
        return _Network((path.T * z_branch) @ path, flat, np.vstack([path, total]))
    ends = incidence(n, f, t, on)
    admittance = np.where(on, 1.0 / np.where(on, z_branch, 1.0), 0.0)[:, None] * ends
    z = _without_slack(ends.T @ admittance, slack)
    return _Network(z, flat, np.vstack([admittance @ z, total]))


def _general_network(case: Case, slack: int, v0: float) -> _Network:
    """A feeder with charging, ratios or shunts: v = Z i - Z y_s v0 with Z the inverse of the load block of Ybus."""
    n, branch, on = case.n_bus, case.branch, case.branch.in_service
    f, t = branch_positions(case)
    row = np.arange(case.n_branch)
    ratio = branch.tap * np.exp(1j * np.deg2rad(branch.shift_deg))
    at_from, at_to = np.zeros((2, case.n_branch, n), complex)
    at_from[row, f], at_to[row, t] = 1 / ratio, 1.0
    series = (on / np.where(on, branch.r_pu + 1j * branch.x_pu, 1.0))[:, None] * (at_from - at_to)
    y = admittance(case).toarray()
    z = _without_slack(y, slack)
    v_idle = -v0 * (z @ y[:, slack])
    v_idle[slack] = v0
    taken = np.vstack([series, -y[slack]])
    return _Network(z, v_idle, taken @ z, taken @ v_idle, ratio)


def _without_slack(y: np.ndarray, slack: int) -> np.ndarray:
    """Inverse of an admittance matrix (N, N) without the slack's row and column, which are 0."""
    rest = np.arange(len(y)) != slack
    z = np.zeros(y.shape, complex)
    z[np.ix_(rest, rest)] = np.linalg.inv(y[np.ix_(rest, rest)])
    return z


def _base_state(z: np.ndarray, v_idle: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Voltages (N,) complex [pu] at the base load: v = v_idle + Z conj(s / v) iterated from those without load.

    Not the Newton method of meshed networks or of three phases: with Z at hand a step is one product, and the base load
    is far from collapse.
    """
    v = v_idle
    for _ in range(BASE_STEPS):
        new = v_idle + z @ np.conj(s / v)
        if np.abs(new - v).max() < BASE_TOL:
            break
        v = new
    if not np.isfinite(v).all() or np.abs(v_idle + z @ np.conj(s / v) - v).max() > 1e-9:
        raise BaseLoadError(
            "The base load has no power-flow solution near the flat start. Lower load_factor, or check the units."
        )
    return v


def _pair(values: np.ndarray) -> np.ndarray:
    """Complex numbers (a,) as their real and imaginary parts, one after the other."""
    return np.r_[values.real, values.imag]


def _linearise(s: np.ndarray, v: np.ndarray) -> np.ndarray:
    """D0 (4, a): derivatives of i = conj(s / v) with respect to re v and im v."""
    e, f, p, q = v.real, v.imag, s.real, s.imag
    d = e * e + f * f
    a, b = (p * e + q * f) / d, (p * f - q * e) / d
    return np.stack([(p - 2 * e * a) / d, (q - 2 * f * a) / d, (-q - 2 * e * b) / d, (p - 2 * f * b) / d])


def _assemble(
    case: Case,
    network: _Network,
    active: np.ndarray,
    s_base: np.ndarray,
    v_base: np.ndarray,
    v0: float,
    dtype: np.dtype,
) -> FeederFactors:
    a, n, z, v_idle = active.size, case.n_bus, network.z, network.v_idle
    s, v = s_base[active], v_base[active]
    i = np.conj(s / v)
    flat = _pair(v_idle[active])
    core = chord_factors(stamp(z[np.ix_(active, active)]), flat, _linearise(s, v), _pair(v), _pair(i))
    d0 = slope_matrix(core["d_base"])
    # The injected current is i = D0 x + r with x = M r + w, and everything else is linear in i.
    i_map, i_flat = d0 @ core["m"] + np.eye(2 * a), d0 @ core["w"]
    z_all, carried = stamp(z[:, active]), stamp(network.carried[:, active])
    m_bus, w_bus = z_all @ i_map, _pair(v_idle) + z_all @ i_flat
    f, _ = branch_positions(case)
    at_from = np.r_[f, n + f]
    m_from, w_from = m_bus[at_from], w_bus[at_from]
    if network.ratio is not None:
        behind = stamp(np.diag(1 / network.ratio))
        m_from, w_from = behind @ m_from, behind @ w_from
    on = case.branch.in_service

    def door(value: Any) -> Array:
        return jnp.asarray(value, dtype)

    idle = np.ones(n, bool)
    idle[active] = False
    idle[case.slack_bus] = False
    return FeederFactors(
        core=calibrated(ConstantPower(), ChordCore(**core, law=()), s, dtype),
        active=jnp.asarray(active, jnp.int32),
        idle=jnp.asarray(idle),
        m_bus=door(m_bus),
        w_bus=door(w_bus),
        m_from=door(m_from),
        w_from=door(w_from),
        m_flow=door(carried),
        r_pu=door(np.where(on, case.branch.r_pu, 0.0)),
        x_pu=door(np.where(on, case.branch.x_pu, 0.0)),
        r_bus=door(z[np.ix_(active, active)].real),
        x_bus=door(z[np.ix_(active, active)].imag),
        v_slack=door(v0),
        w_flow=None if network.carried_idle is None else door(_pair(network.carried_idle)),
        half_charging=None if network.carried_idle is None else door(np.where(on, case.branch.b_pu / 2, 0.0)),
        first=int(active[0]) if np.array_equal(active, active[0] + np.arange(a)) else -1,
    )
