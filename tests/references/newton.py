"""An independent float64 power flow for the tests: polar Newton on Ybus with SciPy's sparse LU.

It shares no formula with the package: the package iterates on currents and Z, this on power and Y in polar form.

Textbook symbols: S = V conj(Y V), x = (theta, |V|) on the PQ buses, J = dS/dx.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from powerzoo_jax.cases import Case

BLOCK = 64  # states factored as one block-diagonal matrix: SciPy's call overhead is spread over them
TOL = 1e-10  # [pu] power mismatch; quadratic convergence leaves far less than this behind
ROUNDING = 8 * np.finfo(float).eps  # times |Y_kk|: what Y V of a branch of 1e-7 pu cannot resolve (case141)


@dataclass(frozen=True)
class Network:
    """Admittances of the branches in service.

    ybus:   (N, N) sparse   f, t: (L,) bus positions, all branches   y: (L,) series admittance, 0 out of service
    slack:  position        v0:   slack voltage                      z: (L,) series impedance, 0 out of service
    """

    ybus: sp.csr_matrix
    f: np.ndarray
    t: np.ndarray
    y: np.ndarray
    z: np.ndarray
    slack: int
    v0: float


class Solution(NamedTuple):
    """v (B, N) complex [pu], converged (B,) bool, steps (B,) int."""

    v: np.ndarray
    converged: np.ndarray
    steps: np.ndarray


class Flows(NamedTuple):
    """s_from (B, L), loss (B,), slack (B,), all complex [pu]."""

    s_from: np.ndarray
    loss: np.ndarray
    slack: np.ndarray


def build_network(case: Case, v0: float | None = None) -> Network:
    """Build the admittance matrix of a case of plain series branches from its tables."""
    position = {int(bus): k for k, bus in enumerate(case.bus.id)}
    f = np.array([position[int(i)] for i in case.branch.from_id])
    t = np.array([position[int(i)] for i in case.branch.to_id])
    on = case.branch.in_service
    z = np.where(on, case.branch.r_pu + 1j * case.branch.x_pu, 0)
    y = np.where(on, 1 / np.where(on, z, 1), 0)
    n = case.n_bus
    ends = np.r_[f, t, f, t], np.r_[f, t, t, f]
    ybus = sp.csr_matrix((np.r_[y, y, -y, -y], ends), (n, n))
    ybus.sum_duplicates()
    slack = int(np.flatnonzero(case.bus.kind == 3)[0])
    held = case.unit.v_set_pu[case.unit.in_service & (case.unit.bus_id == case.bus.id[slack])]
    return Network(ybus, f, t, y, z, slack, float(held[0]) if v0 is None else v0)


def mismatch(net: Network, v: np.ndarray, s: np.ndarray) -> np.ndarray:
    """S(V) - s at every bus, (B, N) complex, 0 at the slack bus."""
    error = v * np.conj((net.ybus @ v.T).T) - s
    error[:, net.slack] = 0
    return error


def jacobian_values(net: Network, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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


def solve_states(net: Network, s: np.ndarray, start: np.ndarray | None = None, max_steps: int = 30) -> Solution:
    """Solve many scenarios, s (B, N) complex [pu] net injections; the slack entry is ignored."""
    n = net.ybus.shape[0]
    v = np.full(s.shape, net.v0, complex) if start is None else np.broadcast_to(start, s.shape).astype(complex)
    converged, steps = np.zeros(len(s), bool), np.zeros(len(s), int)
    pattern = _pattern(net)
    allowed = TOL + ROUNDING * np.abs(net.ybus.diagonal())
    for first in range(0, len(s), BLOCK):
        lanes = np.arange(first, min(first + BLOCK, len(s)))
        for _ in range(max_steps):
            error = mismatch(net, v[lanes], s[lanes])
            size = np.max(np.abs(error) / allowed, 1)
            converged[lanes[size < 1]] = True
            going = np.isfinite(size) & (size >= 1) & (size < 1e16)
            lanes, error = lanes[going], error[going]
            if lanes.size == 0:
                break
            steps[lanes] += 1
            move = _newton_move(net, pattern, v[lanes], error)
            angle, mag = np.zeros((lanes.size, n)), np.zeros((lanes.size, n))
            angle[:, pattern.buses], mag[:, pattern.buses] = move[:, 0::2], move[:, 1::2]
            v[lanes] = (np.abs(v[lanes]) - mag) * np.exp(1j * (np.angle(v[lanes]) - angle))
    return Solution(v, converged, steps)


class _Pattern(NamedTuple):
    buses: np.ndarray  # PQ buses, (n,)
    entries: np.ndarray  # entries of Ybus between PQ buses
    order: np.ndarray  # from the stacked values (dP/dth, dP/dm, dQ/dth, dQ/dm) to column-major order
    indices: np.ndarray
    indptr: np.ndarray


def _pattern(net: Network) -> _Pattern:
    y = net.ybus.tocoo()
    buses = np.flatnonzero(np.arange(net.ybus.shape[0]) != net.slack)
    place = np.full(net.ybus.shape[0], -1)
    place[buses] = np.arange(buses.size)
    row, col = place[y.row], place[y.col]
    entries = np.flatnonzero((row >= 0) & (col >= 0))
    row, col = row[entries], col[entries]
    rows = np.r_[2 * row, 2 * row, 2 * row + 1, 2 * row + 1]
    cols = np.r_[2 * col, 2 * col + 1, 2 * col, 2 * col + 1]
    order = np.lexsort((rows, cols))
    indptr = np.searchsorted(cols[order], np.arange(2 * buses.size + 1))
    return _Pattern(buses, entries, order, rows[order], indptr)


def _newton_move(net: Network, pattern: _Pattern, v: np.ndarray, error: np.ndarray) -> np.ndarray:
    """J^-1 error of every lane, (B, 2n), angle and magnitude of each bus side by side."""
    lanes, size = len(v), 2 * pattern.buses.size
    d_theta, d_mag = (d[:, pattern.entries] for d in jacobian_values(net, v))
    data = np.concatenate([d_theta.real, d_mag.real, d_theta.imag, d_mag.imag], 1)[:, pattern.order]
    nnz = data.shape[1]
    indices = (pattern.indices[None] + size * np.arange(lanes)[:, None]).ravel()
    indptr = np.r_[(pattern.indptr[None, :-1] + nnz * np.arange(lanes)[:, None]).ravel(), lanes * nnz]
    matrix = sp.csc_matrix((data.ravel(), indices, indptr), (lanes * size, lanes * size))
    rest = error[:, pattern.buses]
    rhs = np.stack([rest.real, rest.imag], -1).reshape(-1)
    return spl.splu(matrix).solve(rhs).reshape(lanes, size)


def branch_flows(net: Network, v: np.ndarray) -> Flows:
    """Flows, losses and slack injection of solved voltages (B, N)."""
    drop = v[:, net.f] - v[:, net.t]
    current = drop * net.y
    loss = np.sum(drop * np.conj(current), 1)
    slack = v[:, net.slack] * np.conj((net.ybus @ v.T).T[:, net.slack])
    return Flows(v[:, net.f] * np.conj(current), loss, slack)


def collapse_factor(net: Network, s: np.ndarray, resolution: float = 1e-4) -> float:
    """Largest common factor on the injections s (N,) with a solution: continuation with step halving."""
    factor, step = 1.0, 0.25
    v = solve_states(net, s[None]).v
    while step > resolution:
        trial = solve_states(net, (factor + step) * s[None], start=v)
        if trial.converged[0] and np.abs(trial.v - v).max() < 0.35:
            factor, v = factor + step, trial.v
        else:
            step /= 2
    return factor
