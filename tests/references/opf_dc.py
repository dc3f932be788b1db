"""An independent DC-OPF for the tests: SciPy's HiGHS on bus angles instead of distribution factors, linear costs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_matrix, csr_matrix, hstack, vstack

from powerzoo_jax.cases import Case


class Cleared(NamedTuple):
    """status 0 optimal, 2 infeasible; cost [USD/h] of variables, p [MW], lmp [USD/MWh], flow [MW]."""

    status: int
    cost: float
    p: np.ndarray
    shed: np.ndarray
    lmp: np.ndarray
    flow: np.ndarray


def clear_with_highs(
    case: Case,
    load: np.ndarray,
    price: np.ndarray,
    *,
    low: np.ndarray | None = None,
    high: np.ndarray | None = None,
    rate: np.ndarray | None = None,
    voll: float | None = 10_000.0,
    surplus: float = 500.0,
) -> Cleared:
    """Minimise price p + voll shed + surplus spill over p, shed, spill and angles; voll None = no shedding."""
    n, g = case.n_bus, case.n_unit
    br, base = case.branch, case.base_mva
    rate = br.rate_a_mva if rate is None else rate
    low = case.unit.p_min_mw if low is None else low
    high = case.unit.p_max_mw if high is None else high
    f, t = case.positions(br.from_id), case.positions(br.to_id)
    b = base * br.in_service / (br.x_pu * br.tap)
    rows = np.arange(case.n_branch)
    flow_of = coo_matrix((np.r_[b, -b], (np.r_[rows, rows], np.r_[f, t])), (case.n_branch, n)).tocsr()
    shift = -b * np.deg2rad(br.shift_deg)
    leaving = coo_matrix((np.r_[b * 0 + 1, b * 0 - 1], (np.r_[f, t], np.r_[rows, rows])), (n, case.n_branch)).tocsr()
    at = coo_matrix((np.ones(g), (case.positions(case.unit.bus_id), np.arange(g))), (n, g)).tocsr()
    eye = csr_matrix(np.eye(n))
    # generation + shed - spill - what leaves = load
    balance = hstack([at, eye, -eye, -(leaving @ flow_of)])
    right = load + case.bus.gs_mw + leaving @ shift
    none = csr_matrix((case.n_branch, g + 2 * n))
    limited = rate > 0
    up = hstack([none, flow_of])[limited]
    most = np.where(voll is None, 0.0, 1.0)
    bounds = np.r_[
        np.c_[low, high],
        np.c_[np.zeros(n), most * np.maximum(load, 0)],
        np.c_[np.zeros(n), most * (np.maximum(at @ low, 0) + np.maximum(-load, 0))],
        np.c_[np.full(n, -np.inf), np.full(n, np.inf)],
    ]
    bounds[g + 2 * n + case.slack_bus[0]] = 0.0
    cost = np.r_[price, np.full(n, voll or 0.0), np.full(n, surplus), np.zeros(n)]
    found = linprog(
        cost,
        A_ub=vstack([up, -up]) if limited.any() else None,
        b_ub=np.r_[rate[limited] - shift[limited], rate[limited] + shift[limited]] if limited.any() else None,
        A_eq=balance,
        b_eq=right,
        bounds=bounds,
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if found.status != 0:
        empty = np.zeros(0)
        return Cleared(found.status, np.nan, empty, empty, empty, empty)
    x = found.x
    return Cleared(0, found.fun, x[:g], x[g : g + n], found.eqlin.marginals, flow_of @ x[g + 2 * n :] + shift)
