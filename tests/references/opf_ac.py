"""Optimality conditions of an AC-OPF in NumPy, from complex admittance matrices: nothing of the solver enters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_matrix, csr_matrix, diags

from powerzoo_jax.cases import Case
from powerzoo_jax.opf import AcOpfResult


class Audit(NamedTuple):
    """Largest violations: of balance, ratings, voltages and outputs [pu]; of stationarity and signs, relative."""

    balance: float
    limits: float
    stationarity: float
    signs: float


def admittances(case: Case) -> tuple[csr_matrix, csr_matrix, csr_matrix]:
    """Bus, from and to admittance matrices [pu]."""
    b, n = case.branch, case.n_bus
    f, t = case.positions(b.from_id), case.positions(b.to_id)
    y = b.in_service / (b.r_pu + 1j * b.x_pu)
    a = b.tap * np.exp(1j * np.deg2rad(b.shift_deg))
    to = y + 0.5j * b.b_pu * b.in_service
    row = np.arange(case.n_branch)

    def rows(at_f: np.ndarray, at_t: np.ndarray) -> csr_matrix:
        return coo_matrix((np.r_[at_f, at_t], (np.r_[row, row], np.r_[f, t])), (case.n_branch, n)).tocsr()

    y_from, y_to = rows(to / (a * a.conj()), -y / a.conj()), rows(-y / a, to)
    ends_f, ends_t = rows(b.in_service * 1.0, 0 * row), rows(0 * row, b.in_service * 1.0)
    shunt = (case.bus.gs_mw + 1j * case.bus.bs_mvar) / case.base_mva
    return (ends_f.T @ y_from + ends_t.T @ y_to + diags(shunt)).tocsr(), y_from, y_to


def slopes(at: csr_matrix, y: csr_matrix, v: np.ndarray) -> tuple[np.ndarray, csr_matrix, csr_matrix]:
    """S = (at v) conj(y v), and its derivatives over angles and magnitudes."""
    here, current = at @ v, y @ v
    by_angle = 1j * (diags(current.conj()) @ at @ diags(v) - diags(here) @ (y @ diags(v)).conj())
    unit = diags(v / np.abs(v))
    by_size = diags(here) @ (y @ unit).conj() + diags(current.conj()) @ at @ unit
    return here * current.conj(), by_angle, by_size


def audit(case: Case, p_load: np.ndarray, q_load: np.ndarray, rate: np.ndarray, result: AcOpfResult) -> Audit:
    """Check one result without shedding; `result` unbatched, as NumPy arrays."""
    base, n, u = case.base_mva, case.n_bus, case.unit
    f, t = case.positions(case.branch.from_id), case.positions(case.branch.to_id)
    at_unit = case.positions(u.bus_id)
    v = result.v_pu * np.exp(1j * result.angle_rad)
    y_bus, y_from, y_to = admittances(case)
    identity = csr_matrix(np.eye(n))
    s, s_angle, s_size = slopes(identity, y_bus, v)
    given = np.zeros(n, complex)
    np.add.at(given, at_unit, result.unit_power_mw + 1j * result.unit_reactive_mvar)
    left = s + (p_load - result.shed_mw + 1j * (q_load - result.shed_mvar) - given) / base
    price = (result.lmp - 1j * result.lmp_reactive) * base
    by_angle, by_size = (price @ s_angle).real, (price @ s_size).real
    rows = np.arange(case.n_branch)
    excess, idle = 0.0, 0.0
    for end, y, mu in ((f, y_from, result.line_price_from), (t, y_to, result.line_price_to)):
        at = coo_matrix((np.ones(len(end)), (rows, end)), (case.n_branch, n)).tocsr()
        power, angle, size = slopes(at, y, v)
        rated = rate > 0
        room = np.where(rated, rate / base - np.abs(power), np.inf)
        excess = max(excess, -room.min())
        idle = max(idle, float(np.max(np.where(rated, mu * np.minimum(room, 1), np.abs(mu)))), float(-mu.min()))
        weight = base * mu * power.conj() / np.where(rated, rate / base, 1)
        by_angle, by_size = by_angle + (weight @ angle).real, by_size + (weight @ size).real
    scale = np.abs(result.lmp).max()
    free = np.ones(n, bool)
    free[case.slack_bus] = False
    terms = zip(u.cost, u.cost_terms.tolist(), result.unit_power_mw, strict=True)
    marginal = np.array([np.polyval(np.polyder(cost[:count]), p) for cost, count, p in terms])
    boxes = (
        (by_size / base, result.v_pu, case.bus.v_min_pu, case.bus.v_max_pu),
        *(
            (np.where(u.in_service, reduced, 0), value / base, low / base, high / base)
            for reduced, value, low, high in (
                (marginal - result.lmp[at_unit], result.unit_power_mw, u.p_min_mw, u.p_max_mw),
                (-result.lmp_reactive[at_unit], result.unit_reactive_mvar, u.q_min_mvar, u.q_max_mvar),
            )
        ),
    )
    outside, wrong = excess, idle / scale
    for reduced, value, low, high in boxes:
        on = u.in_service if len(value) == len(u.in_service) and value is not result.v_pu else slice(None)
        outside = max(outside, np.max((low - value)[on]), np.max((value - high)[on]))
        # a gradient may stand where a bound holds it: above 0 at a lower one, below 0 at an upper one
        room = np.where(reduced > 0, value - low, high - value)
        wrong = max(wrong, float(np.max((np.abs(reduced) * np.minimum(np.abs(room), 1))[on]) / scale))
    return Audit(
        balance=float(np.abs(np.r_[left.real, left.imag]).max()),
        limits=float(outside),
        stationarity=float(np.abs(by_angle[free]).max() / (base * scale)),
        signs=float(wrong),
    )
