"""An independent float64 power flow of meshed networks for the tests: polar Newton on Ybus with SciPy's sparse LU.

It shares no formula with the package, which iterates on deviations from a base voltage with a constant inverse.

Textbook symbols: S = V conj(Y V), x = (theta, |V|) where they are unknown, J = dS/dx.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from powerzoo_jax.cases import Case

SPAN, WINDOW = (0.5, 1.5), 0.02  # multiples of each load; set-points off those of the case [pu]
BLOCK = 4096  # buses factored as one block-diagonal matrix: SciPy's call overhead is spread over them
TOL = 1e-10  # [pu] power mismatch; quadratic convergence leaves far less than this behind
ROUNDING = 8 * np.finfo(float).eps  # times |Y_kk|: what Y V of a branch of 1e-4 pu cannot resolve
MAX_STEPS = 30


@dataclass(frozen=True)
class MeshedNetwork:
    """Admittances of the branches in service and what each bus holds.

    ybus:        (N, N) sparse, shunts included
    from_rows, to_rows: (L, N) sparse, current into each branch at its ends; empty rows out of service
    f, t:        (L,) bus positions, all branches
    angle, mag:  (N,) bool, where the angle, the magnitude is unknown
    slack:       position             shunt: (N,) complex [pu]
    """

    ybus: sp.csr_matrix
    from_rows: sp.csr_matrix
    to_rows: sp.csr_matrix
    f: np.ndarray
    t: np.ndarray
    angle: np.ndarray
    mag: np.ndarray
    slack: int
    shunt: np.ndarray


class MeshedStates(NamedTuple):
    """s (B, N) complex [pu] net injections, v_set (B, N) [pu] of the buses that hold their magnitude."""

    s: np.ndarray
    v_set: np.ndarray


class MeshedSolution(NamedTuple):
    """v (B, N) complex [pu], converged (B,) bool, steps (B,) int."""

    v: np.ndarray
    converged: np.ndarray
    steps: np.ndarray


class MeshedFlows(NamedTuple):
    """s_from, s_to (B, L), loss, slack, shunt (B,), injection (B, N), all complex [pu]."""

    s_from: np.ndarray
    s_to: np.ndarray
    loss: np.ndarray
    slack: np.ndarray
    shunt: np.ndarray
    injection: np.ndarray


def build_meshed(case: Case) -> MeshedNetwork:
    """Build the admittances of a case from its tables, branch by branch as two-ports."""
    position = {int(bus): k for k, bus in enumerate(case.bus.id)}
    b, n, m = case.branch, case.n_bus, case.n_branch
    f = np.array([position[int(i)] for i in b.from_id])
    t = np.array([position[int(i)] for i in b.to_id])
    rows = np.arange(m)
    to = sp.csr_matrix((b.in_service.astype(complex), (rows, t)), (m, n))
    # behind the ideal transformer: its voltage is V / a, its current conj(a) times that of the bus
    a = b.tap * np.exp(1j * np.pi / 180 * b.shift_deg)
    behind = sp.csr_matrix((b.in_service / a, (rows, f)), (m, n))
    y, half = sp.diags(1 / (b.r_pu + 1j * b.x_pu)), sp.diags(0.5j * b.b_pu)
    inner = y @ (behind - to)
    from_rows = sp.diags(1 / np.conj(a)) @ (inner + half @ behind)
    to_rows = half @ to - inner
    leaves = sp.csr_matrix((np.ones(m), (rows, f)), (m, n)).T @ from_rows + abs(to).T @ to_rows
    shunt = (case.bus.gs_mw + 1j * case.bus.bs_mvar) / case.base_mva
    ybus = sp.csr_matrix(leaves + sp.diags(shunt))
    ybus.sum_duplicates()
    slack = int(np.flatnonzero(case.bus.kind == 3)[0])
    angle = case.bus.kind != 4
    angle[slack] = False
    mag = angle & ~((case.bus.kind == 2) & np.isin(case.bus.id, case.unit.bus_id[case.unit.in_service]))
    return MeshedNetwork(ybus, from_rows.tocsr(), to_rows.tocsr(), f, t, angle, mag, slack, shunt)


def base_state(case: Case) -> MeshedStates:
    """The case as its file gives it, one row."""
    s = -(case.p_load_mw + 1j * case.q_load_mvar)
    v_set = case.bus.v_init_pu.copy()
    position = {int(bus): k for k, bus in enumerate(case.bus.id)}
    u = case.unit
    for k in np.flatnonzero(u.in_service)[::-1]:  # the first unit of a bus has the last word
        at = position[int(u.bus_id[k])]
        s[at] += u.p_mw[k] + 1j * u.q_mvar[k]
        v_set[at] = u.v_set_pu[k]
    return MeshedStates(s[None] / case.base_mva, v_set[None])


def draw_states(case: Case, count: int, seed: int = 20_240_602) -> MeshedStates:
    """`count` states off the base: every load scaled on its own, every set-point moved on its own."""
    rng = np.random.default_rng(seed)
    nominal = base_state(case)
    load = (case.p_load_mw + 1j * case.q_load_mvar) / case.base_mva
    factor = rng.uniform(*SPAN, (count, case.n_bus))
    return MeshedStates(nominal.s - (factor - 1) * load, nominal.v_set + rng.uniform(-WINDOW, WINDOW, factor.shape))


def solve_base_state(case: Case, net: MeshedNetwork) -> np.ndarray:
    """Voltages (N,) of the case as its file gives it, from a flat start or else from the file's voltages."""
    state = base_state(case)
    angle = np.pi / 180 * case.bus.angle_init_deg
    flat = np.exp(1j * angle[net.slack]) * np.ones((1, case.n_bus))
    for start in (flat, (case.bus.v_init_pu * np.exp(1j * angle))[None]):
        found = solve_states(net, state, start)
        if found.converged[0]:
            return found.v[0]
    raise RuntimeError(f"{case.name}: no base state")


def mismatch(net: MeshedNetwork, v: np.ndarray, s: np.ndarray) -> np.ndarray:
    """S(V) - s, (B, N) complex; 0 where the injection follows from the voltage."""
    error = v * np.conj((net.ybus @ v.T).T) - s
    return error.real * net.angle + 1j * error.imag * net.mag


def jacobian_values(net: MeshedNetwork, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """dS/dtheta and dS/d|V| on the pattern of Ybus, (B, nnz) complex each."""
    y = net.ybus.tocoo()
    row, col = y.row, y.col
    current = (net.ybus @ v.T).T
    unit = v / np.abs(v)
    d_theta = -1j * v[:, row] * np.conj(y.data * v[:, col])
    d_mag = v[:, row] * np.conj(y.data * unit[:, col])
    at = np.flatnonzero(row == col)
    bus = row[at]
    d_theta[:, at] += 1j * v[:, bus] * np.conj(current[:, bus])
    d_mag[:, at] += np.conj(current[:, bus]) * unit[:, bus]
    return d_theta, d_mag


def solve_states(net: MeshedNetwork, states: MeshedStates, start: np.ndarray, tol: float = TOL) -> MeshedSolution:
    """Solve many states by undamped Newton from `start` (N,) or (B, N), held magnitudes at their set-points."""
    s, n = states.s, net.ybus.shape[0]
    start = np.broadcast_to(start, s.shape)
    v = np.where(net.mag, start, states.v_set * start / np.abs(start))
    converged, steps = np.zeros(len(s), bool), np.zeros(len(s), int)
    pattern = _pattern(net)
    allowed = tol + ROUNDING * np.abs(net.ybus.diagonal())
    block = max(BLOCK // n, 1)
    for first in range(0, len(s), block):
        lanes = np.arange(first, min(first + block, len(s)))
        for _ in range(MAX_STEPS):
            error = mismatch(net, v[lanes], s[lanes])
            size = np.max(np.abs(error) / allowed, 1)
            converged[lanes[size < 1]] = True
            going = np.isfinite(size) & (size >= 1) & (size < 1e16)
            lanes, error = lanes[going], error[going]
            if lanes.size == 0:
                break
            steps[lanes] += 1
            angle, mag = _newton_move(net, pattern, v[lanes], error)
            v[lanes] = (np.abs(v[lanes]) - mag) * np.exp(1j * (np.angle(v[lanes]) - angle))
    return MeshedSolution(v, converged, steps)


class _Pattern(NamedTuple):
    unknown: np.ndarray  # positions among (theta, |V|) of all buses, bus by bus
    kept: np.ndarray  # entries of the stacked values (dP/dth, dP/dm, dQ/dth, dQ/dm) in column-major order
    indices: np.ndarray
    indptr: np.ndarray


def _pattern(net: MeshedNetwork) -> _Pattern:
    y = net.ybus.tocoo()
    free = np.stack([net.angle, net.mag], 1).ravel()
    unknown = np.flatnonzero(free)
    place = np.where(free, np.cumsum(free) - 1, -1)
    rows = place[np.r_[2 * y.row, 2 * y.row, 2 * y.row + 1, 2 * y.row + 1]]
    cols = place[np.r_[2 * y.col, 2 * y.col + 1, 2 * y.col, 2 * y.col + 1]]
    kept = np.flatnonzero((rows >= 0) & (cols >= 0))
    kept = kept[np.lexsort((rows[kept], cols[kept]))]
    return _Pattern(unknown, kept, rows[kept], np.searchsorted(cols[kept], np.arange(unknown.size + 1)))


def _newton_move(
    net: MeshedNetwork, pattern: _Pattern, v: np.ndarray, error: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """J^-1 error of every lane: changes of angle and magnitude, (B, N) each."""
    lanes, n, size = *v.shape, pattern.unknown.size
    d_theta, d_mag = jacobian_values(net, v)
    data = np.concatenate([d_theta.real, d_mag.real, d_theta.imag, d_mag.imag], 1)[:, pattern.kept]
    nnz = data.shape[1]
    indices = (pattern.indices[None] + size * np.arange(lanes)[:, None]).ravel()
    indptr = np.r_[(pattern.indptr[None, :-1] + nnz * np.arange(lanes)[:, None]).ravel(), lanes * nnz]
    matrix = sp.csc_matrix((data.ravel(), indices, indptr), (lanes * size, lanes * size))
    right = np.stack([error.real, error.imag], -1).reshape(lanes, 2 * n)[:, pattern.unknown]
    move = np.zeros((lanes, 2 * n))
    try:
        move[:, pattern.unknown] = spl.splu(matrix).solve(right.ravel()).reshape(lanes, size)
    except RuntimeError:  # one lane ran into an exactly singular matrix: give them all up rather than any wrongly
        move[:] = np.nan
    return move[:, 0::2], move[:, 1::2]


def branch_flows(net: MeshedNetwork, v: np.ndarray) -> MeshedFlows:
    """Flows, losses (charging counted as a source), slack injection and shunt consumption of voltages (B, N)."""
    s_from = v[:, net.f] * np.conj((net.from_rows @ v.T).T)
    s_to = v[:, net.t] * np.conj((net.to_rows @ v.T).T)
    injection = v * np.conj((net.ybus @ v.T).T)
    shunt = np.abs(v) ** 2 @ np.conj(net.shunt)
    return MeshedFlows(s_from, s_to, np.sum(s_from + s_to, 1), injection[:, net.slack], shunt, injection)
