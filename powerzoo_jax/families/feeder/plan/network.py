"""Radial feeders on the host: exact power flow of many steps, and tangents that bound losses and voltages everywhere.

A tangent of the branch-flow equations at a solved state bounds the loss from below, and every voltage from above, at
ALL injections within the reach of the devices, not only near the state: to within `Tangent.error`, which is 0 wherever
the multipliers are not negative and tiny where power flows back from a device through its own branch.
Source: branch-flow model and its cone relaxation, Farivar and Low 2013, doi:10.1109/TPWRS.2013.2255317.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from powerzoo_jax.base.errors import CaseError, SolverError
from powerzoo_jax.cases.topology import radial_order

STEPS = 200
TOL = 1e-13  # change of a voltage [pu]


class FeederFlow(NamedTuple):
    """Power flow of T steps; node k hangs on branch k.

    v:        (T, M)  complex [pu]  node voltages
    v_up:     (T, M)  complex [pu]  voltage at the sending end of each branch
    current:  (T, M)  complex [pu]  branch currents
    loss_pu:  (T,)
    """

    v: np.ndarray
    v_up: np.ndarray
    current: np.ndarray
    loss_pu: np.ndarray


class Tangent(NamedTuple):
    """value + by_p @ (p - p0) + by_q @ (q - q0), p and q the consumption [pu] of D nodes; K rows.

    value, error: (K,)    by_p, by_q: (K, D)
    """

    value: np.ndarray
    by_p: np.ndarray
    by_q: np.ndarray
    error: np.ndarray


class Reach(NamedTuple):
    """Upper bounds under any action, (T, M) [pu]: currents of the branches and voltages at their sending ends."""

    current: np.ndarray
    v_up: np.ndarray


@dataclass(frozen=True, eq=False)
class RadialNetwork:
    """A feeder of plain series branches as a tree, in float64; the slack bus is no node.

    bus:      (M,)     position of each node in the case
    up:       (M,)     node at the sending end of its branch, -1 for the slack bus
    r, x:     (M,)     [pu]
    below:    (M, M)   1 where node (column) is supplied through branch (row)
    v_slack:  [pu]     base_mva: [MVA]
    """

    bus: np.ndarray
    up: np.ndarray
    r: np.ndarray
    x: np.ndarray
    below: np.ndarray
    v_slack: float
    base_mva: float

    @cached_property
    def drop_p(self) -> np.ndarray:
        """Sum of r over shared paths, (M, M)."""
        return (self.below.T * self.r) @ self.below

    @cached_property
    def drop_q(self) -> np.ndarray:
        return (self.below.T * self.x) @ self.below

    @cached_property
    def drop_current(self) -> np.ndarray:
        """Sensitivity of the fall in a node's squared voltage to the squared current of each branch, (M, M), >= 0."""
        product = 2 * (np.outer(self.r, self.r) + np.outer(self.x, self.x)) * self.below
        return self.below.T @ product - self.below.T * (self.r**2 + self.x**2)

    def sending(self, rows: np.ndarray) -> np.ndarray:
        """Rows of the nodes at the sending ends; zero for the slack bus."""
        return np.where((self.up >= 0)[:, None], rows[self.up], 0.0)


def tree_network(
    n_bus: int,
    ends: tuple[np.ndarray, np.ndarray],
    in_service: np.ndarray,
    impedance: tuple[np.ndarray, np.ndarray],
    slack: int,
    v_slack: float,
    base_mva: float,
) -> RadialNetwork:
    """The tree that branches in service form around the slack bus; ends and impedance (r, x) [pu] are (L,) each."""
    try:
        tree = radial_order(n_bus, *ends, in_service, slack)
    except CaseError as err:
        raise SolverError(
            "the feeder is not radial; the planner needs a tree. Open branches that close loops."
        ) from err
    if len(tree.order) != n_bus:
        raise SolverError(f"{n_bus - len(tree.order)} buses are not supplied; the planner needs one tree.")
    bus = np.asarray(tree.order[1:])
    node_of = np.full(n_bus, -1)
    node_of[bus] = np.arange(bus.size)
    up = node_of[tree.parent[bus]]
    below = np.eye(bus.size)
    for node in range(bus.size):
        if up[node] >= 0:
            below[:, node] += below[:, up[node]]
    branch = tree.via_branch[bus]
    r, x = (np.asarray(values, np.float64)[branch] for values in impedance)
    return RadialNetwork(bus=bus, up=up, r=r, x=x, below=below, v_slack=v_slack, base_mva=base_mva)


def solve_steps(network: RadialNetwork, p: np.ndarray, q: np.ndarray) -> FeederFlow:
    """Exact power flow of consumption p, q (T, M) [pu], by the implicit Z-bus iteration.

    Raises SolverError where it does not converge.
    """
    z = network.drop_p + 1j * network.drop_q
    s = p + 1j * q
    v = np.full(s.shape, network.v_slack, complex)
    for _ in range(STEPS):
        new = network.v_slack - np.conj(s / v) @ z
        change = np.abs(new - v).max(initial=0.0)
        v = new
        if change < TOL:
            break
    else:
        raise SolverError("a step of the plan has no power flow: its load lies beyond what the feeder can carry.")
    current = np.conj(s / v) @ network.below.T
    v_up = np.where(network.up >= 0, v[:, network.up], network.v_slack)
    return FeederFlow(v, v_up, current, (np.abs(current) ** 2) @ network.r)


class _Linear(NamedTuple):
    """Branch-flow equations of one state: squared current >= feed + gain @ squared current, feed affine in p, q."""

    gain: np.ndarray  # (T, M, M)
    by_p: np.ndarray  # (T, M, D)
    by_q: np.ndarray  # (T, M, D)
    size: np.ndarray  # (T, M)  |(a, b)|


def _linear(network: RadialNetwork, solved: FeederFlow, at: np.ndarray) -> _Linear:
    """l >= 2 a P + 2 b Q - (a^2 + b^2) w with a = P0 / w0, b = Q0 / w0: a plane below the cone P^2 + Q^2 <= l w.

    P = below (p + r l), Q = below (q + x l), w = w_slack - 2 (drop_p p + drop_q q) - drop_current l.
    """
    ratio = solved.v_up * np.conj(solved.current) / np.abs(solved.v_up) ** 2
    a, b = ratio.real[:, :, None], ratio.imag[:, :, None]
    square, below = a**2 + b**2, network.below
    gain = a * (2 * below * network.r) + b * (2 * below * network.x) + square * network.sending(network.drop_current)
    by_p = a * (2 * below[:, at]) + square * (2 * network.sending(network.drop_p)[:, at])
    by_q = b * (2 * below[:, at]) + square * (2 * network.sending(network.drop_q)[:, at])
    return _Linear(gain, by_p, by_q, np.abs(ratio))


def _error(mu: np.ndarray, linear: _Linear, reach: Reach, row: np.ndarray) -> np.ndarray:
    """Largest error of the planes of negative multipliers mu (K, M), (K,).

    There the plane must not be too low: l - (2 a P + 2 b Q - (a^2 + b^2) w) <= (|I| + |(a, b)| |V|)^2.
    """
    off = (reach.current[row] + linear.size[row] * reach.v_up[row]) ** 2
    return np.where(mu < 0, -mu * np.where(mu < 0, off, 0.0), 0.0).sum(axis=1)


def loss_tangents(network: RadialNetwork, solved: FeederFlow, reach: Reach, at: np.ndarray) -> Tangent:
    """Losses [pu] of the whole feeder, a row a step, to first order in what the nodes `at` consume."""
    linear = _linear(network, solved, at)
    system = np.eye(linear.gain.shape[1]) - np.swapaxes(linear.gain, 1, 2)
    mu = np.linalg.solve(system, np.broadcast_to(network.r, solved.current.shape)[:, :, None])[:, :, 0]
    return Tangent(
        value=solved.loss_pu,
        by_p=np.einsum("tm,tmn->tn", mu, linear.by_p),
        by_q=np.einsum("tm,tmn->tn", mu, linear.by_q),
        error=_error(mu, linear, reach, np.arange(len(mu))),
    )


def voltage_tangents(
    network: RadialNetwork, solved: FeederFlow, reach: Reach, at: np.ndarray, step: np.ndarray, node: np.ndarray
) -> Tangent:
    """Tangents of the voltage magnitudes [pu] of K pairs (step, node)."""
    linear, mu, error = _adjoint(network, solved, reach, at, step, network.drop_current[node])
    magnitude = np.abs(solved.v[step, node])
    scale = -0.5 / magnitude[:, None]  # |v| = sqrt(w), concave; what falls is w
    return Tangent(
        value=magnitude,
        by_p=scale * (2 * network.drop_p[np.ix_(node, at)] + np.einsum("km,kmn->kn", mu, linear.by_p)),
        by_q=scale * (2 * network.drop_q[np.ix_(node, at)] + np.einsum("km,kmn->kn", mu, linear.by_q)),
        error=-scale[:, 0] * error,
    )


def loading_tangents(
    network: RadialNetwork, solved: FeederFlow, reach: Reach, at: np.ndarray, step: np.ndarray, node: np.ndarray
) -> Tangent:
    """Tangents of the apparent power [pu] that K branches, named by step and node, take at their sending ends."""
    power = solved.v_up[step, node] * np.conj(solved.current[step, node])
    size = np.abs(power)
    # |S| >= P cos + Q sin, and both flows grow with the losses further down
    cos, sin = (part[:, None] / np.maximum(size, 1e-12)[:, None] for part in (power.real, power.imag))
    below = network.below[node]
    linear, mu, error = _adjoint(network, solved, reach, at, step, below * (cos * network.r + sin * network.x))
    return Tangent(
        value=size,
        by_p=cos * below[:, at] + np.einsum("km,kmn->kn", mu, linear.by_p),
        by_q=sin * below[:, at] + np.einsum("km,kmn->kn", mu, linear.by_q),
        error=error,
    )


def _adjoint(
    network: RadialNetwork, solved: FeederFlow, reach: Reach, at: np.ndarray, step: np.ndarray, target: np.ndarray
) -> tuple[_Linear, np.ndarray, np.ndarray]:
    """Multipliers (K, M) of targets (K, M) on the squared currents of the steps named, and their errors (K,)."""
    kept, row = np.unique(step, return_inverse=True)
    linear = _linear(network, FeederFlow(*(x[kept] for x in solved)), at)
    mu = np.empty_like(target)
    for k in range(kept.size):
        here = row == k
        mu[here] = np.linalg.solve((np.eye(target.shape[1]) - linear.gain[k]).T, target[here].T).T
    error = _error(mu, linear, Reach(*(x[kept] for x in reach)), row)
    return _Linear(*(x[row] for x in linear)), mu, error


def reach_of(network: RadialNetwork, size_pu: np.ndarray) -> Reach:
    """Currents and voltages under any injections of magnitude size_pu (T, M) [pu] or less.

    |I| <= below (size / |V|) and |V_node| >= |V_up| - |z| |I| hold for every iterate of the sweep from the flat start,
    hence for the solution; inf in a step where these bounds reach no fixed point.
    """
    impedance = np.hypot(network.r, network.x)
    least = np.full(size_pu.shape, network.v_slack)
    for _ in range(STEPS):
        # a voltage that the bounds drive to 0 makes the currents of its step infinite, and they stay so
        current = (size_pu / np.maximum(least, 0.1)) @ network.below.T
        new = network.v_slack - (current * impedance) @ network.below
        change, least = np.abs(new - least).max(initial=0.0), new
        if change < TOL:
            break
    current = (size_pu / np.maximum(least, 0.1)) @ network.below.T
    v_most = network.v_slack + (current * impedance) @ network.below
    v_up = np.where(network.up >= 0, v_most[:, network.up], network.v_slack)
    lost = np.any(least <= 0.1, axis=1, keepdims=True)
    return Reach(np.where(lost, np.inf, current), np.where(lost, np.inf, v_up))
