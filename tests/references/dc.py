"""An independent DC power flow for the tests: sparse, one scenario at a time, no incidence matrix."""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.sparse import lil_matrix
from scipy.sparse.linalg import spsolve

from powerzoo_jax.cases import Case


def solve_reference(case: Case, p: np.ndarray, *, pglib: bool = False) -> tuple[np.ndarray, np.ndarray, float]:
    """Angles [rad], flows [pu] and slack power [pu] of injections p (N,) for a connected case."""
    n, br = case.n_bus, case.branch
    f, t = case.positions(br.from_id), case.positions(br.to_id)
    b, right = lil_matrix((n, n)), p - case.bus.gs_mw / case.base_mva
    y, shift = np.zeros(case.n_branch), np.zeros(case.n_branch)
    for k in np.flatnonzero(br.in_service):
        if pglib:
            y[k] = -(1.0 / complex(br.r_pu[k], br.x_pu[k])).imag
        else:
            y[k], shift[k] = 1.0 / br.x_pu[k] / br.tap[k], br.shift_deg[k] * np.pi / 180
        b[f[k], f[k]] += y[k]
        b[t[k], t[k]] += y[k]
        b[f[k], t[k]] -= y[k]
        b[t[k], f[k]] -= y[k]
        right[f[k]] += y[k] * shift[k]
        right[t[k]] -= y[k] * shift[k]
    slack = int(case.slack_bus[0])
    theta = np.zeros(n)
    theta[slack] = case.bus.angle_init_deg[slack] * np.pi / 180
    rest = np.arange(n) != slack
    b = b.tocsr()
    theta[rest] = spsolve(b[rest][:, rest].tocsc(), right[rest] - b[rest, slack].toarray()[:, 0] * theta[slack])
    flow = y * (theta[f] - theta[t] - shift)
    return theta, flow, float(b[slack].toarray()[0] @ theta - right[slack])


def without_branch(case: Case, k: int) -> Case:
    """The case with branch k out of service."""
    on = case.branch.in_service.copy()
    on[k] = False
    return dataclasses.replace(case, branch=dataclasses.replace(case.branch, in_service=on))


def plausible_injections(case: Case, count: int, seed: int) -> np.ndarray:
    """(count, N) [pu]: loads of 0.5 to 1.5 times nominal, units anywhere below their rating; not balanced."""
    rng = np.random.default_rng(seed)
    p = -case.p_load_mw * rng.uniform(0.5, 1.5, (count, case.n_bus))
    on = case.unit.in_service
    at = case.positions(case.unit.bus_id[on])
    for row in p:
        np.add.at(row, at, case.unit.p_max_mw[on] * rng.uniform(0, 1, at.size))
    return p / case.base_mva
