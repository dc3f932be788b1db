"""A network under the DC approximation, as float64 matrices on the host; both solver and OPF start from here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from powerzoo_jax.base.errors import CaseError, listing
from powerzoo_jax.cases import Case, assert_valid
from powerzoo_jax.cases.case import ISOLATED
from powerzoo_jax.cases.topology import branch_positions, incidence, islands, shared_references

MAX_RESIDUAL = 1e-8  # [pu] mismatch that injections of up to 1 pu may leave; a well-posed network leaves 1e-11
PROBES = 4


@dataclass(frozen=True, eq=False)
class DcNetwork:
    """Matrices of f = PTDF p + flow_0 and theta = x_bus p + angle_0; columns as in `dc.DcFactors`.

    b_pu:       (L,)    [pu]   branch susceptance, 0 out of service
    shift_rad:  (L,)    [rad]  phase shift, 0 out of service and in the PGLib convention
    """

    b_pu: np.ndarray
    shift_rad: np.ndarray
    incidence: np.ndarray
    shunt: np.ndarray
    share: np.ndarray
    island: np.ndarray
    live: np.ndarray
    ptdf: np.ndarray
    x_bus: np.ndarray
    flow_0: np.ndarray
    angle_0: np.ndarray


def scheduled_injection(case: Case) -> np.ndarray:
    """Active injection of every bus as the case schedules it, (N,) [pu]: units in service less load, slack too."""
    p = -case.p_load_mw
    on = case.unit.in_service
    np.add.at(p, case.positions(case.unit.bus_id[on]), case.unit.p_mw[on])
    return p / case.base_mva


def build_dc_network(case: Case, *, pglib: bool = False, slack_share: np.ndarray | None = None) -> DcNetwork:
    """Build the matrices; arguments and errors as in `dc.prepare_dc`."""
    assert_valid(case)
    b, shift = _susceptance(case, pglib)
    f, t = branch_positions(case)
    ends = incidence(case.n_bus, f, t, case.branch.in_service)
    live = case.bus.kind != ISOLATED
    label, reference = _islands(case, f, t, live)
    island = np.array([(label == k) & live for k in np.unique(label[live])], np.float64)
    share = _shares(case, island, reference, slack_share)
    x_ref, ptdf_ref = _reduced(case.n_bus, f, t, b, np.flatnonzero(live & ~reference))
    # these balance at the reference bus; a distributed slack takes its share of every injection back
    takes_back = (share * island).T
    x_bus, ptdf = (matrix - (matrix @ takes_back) @ island for matrix in (x_ref, ptdf_ref))
    _check_solved(case, ends, ptdf, live, takes_back, island)
    shunt = case.bus.gs_mw / case.base_mva
    pushed = ends.T @ (b * shift) - shunt  # a shift acts like a pair of injections, a shunt like a load
    angle = np.deg2rad(island.T @ (island @ (case.bus.angle_init_deg * reference)))
    return DcNetwork(
        b_pu=b,
        shift_rad=shift,
        incidence=ends,
        shunt=shunt,
        share=share,
        island=island,
        live=live,
        ptdf=ptdf,
        x_bus=x_bus,
        flow_0=ptdf @ pushed - b * shift,
        angle_0=x_bus @ pushed + angle,
    )


def _susceptance(case: Case, pglib: bool) -> tuple[np.ndarray, np.ndarray]:
    """b (L,) and phi (L,), 0 out of service."""
    branch = case.branch
    on = branch.in_service
    zero = np.flatnonzero(on & (branch.x_pu == 0))
    if zero.size:
        rows = listing(f"{k + 1} (bus {branch.from_id[k]} -> {branch.to_id[k]})" for k in zero)
        raise CaseError(
            f"{case.name}: branch {rows} has x = 0 pu, so its DC susceptance is not defined. "
            "Give a small reactance such as 1e-4 pu, or merge the two buses."
        )
    x = np.where(on, branch.x_pu, 1.0)
    if pglib:
        return np.where(on, x / (branch.r_pu**2 + x**2), 0.0), np.zeros(case.n_branch)
    return np.where(on, 1.0 / (x * branch.tap), 0.0), np.where(on, np.deg2rad(branch.shift_deg), 0.0)


def _islands(case: Case, f: np.ndarray, t: np.ndarray, live: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Island number of every bus (N,) and which buses are references (N,); `assert_valid` saw to one at least."""
    label = islands(case.n_bus, f, t, case.branch.in_service)
    reference = np.zeros(case.n_bus, bool)
    reference[case.slack_bus] = True
    several = shared_references(case)
    if several.size:
        ids = listing(case.bus.id[several])
        raise CaseError(
            f"{case.name}: buses {ids} are references of one island. Keep one and make the others PV (kind 2); "
            "to let several buses balance, give slack_share."
        )
    return label, reference


def _shares(case: Case, island: np.ndarray, reference: np.ndarray, given: np.ndarray | None) -> np.ndarray:
    weight = reference.astype(float) if given is None else np.asarray(given, float)
    if weight.shape != (case.n_bus,):
        raise CaseError(f"{case.name}: slack_share has shape {weight.shape}, expected (N={case.n_bus},).")
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise CaseError(f"{case.name}: slack_share holds negative or non-finite weights. Give weights of 0 or more.")
    total = island @ weight
    empty = np.flatnonzero(total == 0)
    if empty.size:
        ids = listing(case.bus.id[island[empty].any(0)])
        raise CaseError(f"{case.name}: no bus of the island {ids} has a slack_share. Give one a positive weight.")
    return weight * (island.T @ (1.0 / total))


def _reduced(n: int, f: np.ndarray, t: np.ndarray, b: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """X (N, N) and PTDF (L, N) with every reference bus balancing its own island."""
    laplacian = np.zeros((n, n))
    for row, column, sign in ((f, f, 1.0), (t, t, 1.0), (f, t, -1.0), (t, f, -1.0)):
        np.add.at(laplacian, (row, column), sign * b)
    x = np.zeros((n, n))
    x[np.ix_(free, free)] = np.linalg.inv(laplacian[np.ix_(free, free)])
    return x, b[:, None] * (x[f] - x[t])


def _check_solved(
    case: Case, ends: np.ndarray, ptdf: np.ndarray, live: np.ndarray, takes_back: np.ndarray, island: np.ndarray
) -> None:
    """Compare what arrives at the buses with a few random injections, in place of a product of three large matrices."""
    p = np.random.default_rng(0).uniform(-1.0, 1.0, (case.n_bus, PROBES)) * live[:, None]
    left = float(np.abs(ends.T @ (ptdf @ p) - (p - takes_back @ (island @ p))).max(initial=0.0))
    if not left < MAX_RESIDUAL:
        raise CaseError(
            f"{case.name}: the DC equations are singular to working precision (residual {left:.1e}). Look for negative "
            "reactances that cancel positive ones, or for reactances many orders of magnitude apart."
        )
