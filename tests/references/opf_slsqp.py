"""AC optimal power flow of a small case by SciPy's SLSQP in polar voltages: nothing of the package's solvers enters."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from powerzoo_jax.cases import Case
from tests.references.opf_ac import admittances


def least_cost(case: Case) -> float:
    """Cost [USD/h] of quadratic units within their limits, the voltage bands and the ratings; no load is shed.

    The angle of the first bus is 0: which bus is the reference changes no flow.
    """
    n, base = case.n_bus, case.base_mva
    on = np.flatnonzero(case.unit.in_service)
    at = case.positions(case.unit.bus_id[on])
    bus, y_from, y_to = (y.toarray() for y in admittances(case))
    f, t = case.positions(case.branch.from_id), case.positions(case.branch.to_id)
    rated = case.branch.in_service & (case.branch.rate_a_mva > 0)
    load = (case.p_load_mw + 1j * case.q_load_mvar) / base

    def parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        size, angle, p, q = np.split(x, np.cumsum([n, n, len(on)]))
        return size * np.exp(1j * angle), p, q

    def balance(x: np.ndarray) -> np.ndarray:
        v, p, q = parts(x)
        given = np.zeros(n, complex)
        np.add.at(given, at, p + 1j * q)
        left = v * np.conj(bus @ v) + load - given
        return np.r_[left.real, left.imag]

    def room(x: np.ndarray) -> np.ndarray:
        v, *_ = parts(x)
        ends = np.stack([v[f] * np.conj(y_from @ v), v[t] * np.conj(y_to @ v)])[:, rated]
        return np.asarray(((case.branch.rate_a_mva[rated] / base) ** 2 - np.abs(ends) ** 2).ravel())

    def cost(x: np.ndarray) -> float:
        terms = zip(case.unit.cost[on], case.unit.cost_terms[on], base * parts(x)[1], strict=True)
        return float(sum(np.polyval(c[:k], p) for c, k, p in terms)) / 1e3

    band = list(zip(case.bus.v_min_pu, case.bus.v_max_pu, strict=True))
    turns = [(0.0, 0.0), *[(-np.pi, np.pi)] * (n - 1)]
    limits = [
        *zip(case.unit.p_min_mw[on] / base, case.unit.p_max_mw[on] / base, strict=True),
        *zip(case.unit.q_min_mvar[on] / base, case.unit.q_max_mvar[on] / base, strict=True),
    ]
    start = np.r_[np.ones(n), np.zeros(n), np.full(len(on), load.real.sum() / len(on)), np.zeros(len(on))]
    found = minimize(
        cost,
        start,
        method="SLSQP",
        bounds=[*band, *turns, *limits],
        constraints=[{"type": "eq", "fun": balance}, {"type": "ineq", "fun": room}],
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert found.success and np.abs(balance(found.x)).max() < 1e-9, found.message
    return 1e3 * float(found.fun)
