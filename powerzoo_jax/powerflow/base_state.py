"""The base state of a meshed network: sparse Newton in float64 on the host, once per grid."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from powerzoo_jax.base.errors import BaseLoadError
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.case import PV, REF
from powerzoo_jax.cases.topology import branch_positions

STEPS = 30
TOL = 1e-11  # [pu] power mismatch; the state need not be exact: it is what deviations are counted from
PROBE, PROBES = 0.2, 8  # spread and number of load states that show how fast a chord contracts
ENOUGH = 1e-7  # [pu] accepted where rounding of a very stiff branch keeps the mismatch from falling further


def admittance(case: Case) -> sp.csr_matrix:
    """Bus admittance matrix (N, N) complex [pu] of the branches in service, shunts included."""
    f, t = branch_positions(case)
    b, n = case.branch, case.n_bus
    on = b.in_service
    series = np.where(on, 1.0 / np.where(on, b.r_pu + 1j * b.x_pu, 1.0), 0.0)
    charging = series + 0.5j * on * b.b_pu
    a = b.tap * np.exp(1j * np.deg2rad(b.shift_deg))
    shunt = (case.bus.gs_mw + 1j * case.bus.bs_mvar) / case.base_mva
    own = np.arange(n)
    values = np.r_[charging / b.tap**2, -series / np.conj(a), -series / a, charging, shunt]
    at = (np.r_[f, f, t, t, own], np.r_[f, t, f, t, own])
    return sp.csr_matrix((values, at), (n, n))


def voltage_setpoints(case: Case) -> np.ndarray:
    """|V| that each bus is held at by its unit in service, (N,) [pu]; the initial magnitude elsewhere."""
    v = case.bus.v_init_pu.copy()
    on = case.unit.in_service
    # reversed, so that the first unit of a bus has the last word
    v[case.positions(case.unit.bus_id[on])[::-1]] = case.unit.v_set_pu[on][::-1]
    return v


def held_buses(case: Case) -> np.ndarray:
    """Buses that hold their magnitude, (N,) bool: PV buses with a unit in service, and the slack."""
    with_unit = np.zeros(case.n_bus, bool)
    with_unit[case.positions(case.unit.bus_id[case.unit.in_service])] = True
    return ((case.bus.kind == PV) & with_unit) | (case.bus.kind == REF)


def solve_base(case: Case, s: np.ndarray, v_set: np.ndarray) -> np.ndarray:
    """Voltages (N,) complex [pu] at injections s (N,), held buses at v_set.

    Starts flat at the set-points, then from the voltages of the case file.
    Raises BaseLoadError when neither start converges.
    """
    y = admittance(case)
    held, slack = held_buses(case), case.slack_bus
    angle = np.deg2rad(case.bus.angle_init_deg)
    flat = np.where(held, v_set, 1.0) * np.exp(1j * angle[slack[0]])
    given = np.where(held, v_set, case.bus.v_init_pu) * np.exp(1j * angle)
    rest = np.ones(case.n_bus, bool)
    rest[slack] = False
    for start in (flat, given):
        v = _newton(y, s, start, np.flatnonzero(rest), np.flatnonzero(~held))
        if v is not None:
            return v
    raise BaseLoadError(
        f"{case.name}: the base load has no power-flow solution near the flat start or the voltages of the case. "
        "Lower load_factor, or check the units and impedances."
    )


def chord_rate(case: Case, s: np.ndarray, v: np.ndarray) -> float:
    """How much of an error one chord step leaves, typically, with loads up to a fifth away from the base state v."""
    y, held = admittance(case), held_buses(case)
    rest = np.ones(case.n_bus, bool)
    rest[case.slack_bus] = False
    p_rows, q_rows = np.flatnonzero(rest), np.flatnonzero(~held)
    factor = spl.splu(power_slope(y, v, p_rows, q_rows)[0])
    load = (case.p_load_mw + 1j * case.q_load_mvar) / case.base_mva
    rates = []
    for draw in np.random.default_rng(0).uniform(-PROBE, PROBE, (PROBES, case.n_bus)):
        x, sizes = v, []
        for _ in range(4):
            left = s - load * draw - x * np.conj(y @ x)
            x, size = _turn(x, factor.solve(np.r_[left.real[p_rows], left.imag[q_rows]]), p_rows, q_rows)
            sizes.append(size)
        rates.append((sizes[3] / sizes[1]) ** 0.5 if sizes[1] > 0 else 0.0)
    return float(np.median(rates))


def _turn(v: np.ndarray, move: np.ndarray, p_rows: np.ndarray, q_rows: np.ndarray) -> tuple[np.ndarray, float]:
    """Voltages after a step in angles and logarithmic magnitudes, and its largest entry."""
    change = np.zeros(len(v), complex)
    change[p_rows] += 1j * move[: len(p_rows)]
    change[q_rows] += move[len(p_rows) :]
    return v * np.exp(change), float(np.abs(move).max(initial=0.0))


def power_slope(
    y: sp.csr_matrix, v: np.ndarray, p_rows: np.ndarray, q_rows: np.ndarray
) -> tuple[sp.csc_matrix, np.ndarray]:
    """Jacobian of the injections in angles and logarithmic magnitudes, and the injections."""
    a = sp.diags(v) @ np.conj(y) @ sp.diags(np.conj(v))
    power = np.asarray(a.sum(1)).ravel()
    angle, grow = (1j * (sp.diags(power) - a)).tocsr(), (sp.diags(power) + a).tocsr()
    blocks = [
        [angle[p_rows][:, p_rows].real, grow[p_rows][:, q_rows].real],
        [angle[q_rows][:, p_rows].imag, grow[q_rows][:, q_rows].imag],
    ]
    return sp.bmat(blocks, format="csc"), power


def _newton(
    y: sp.csr_matrix, s: np.ndarray, v: np.ndarray, p_rows: np.ndarray, q_rows: np.ndarray
) -> np.ndarray | None:
    """Polar Newton with logarithmic magnitudes; None when it does not converge."""
    best, state = np.inf, v
    for _ in range(STEPS):
        slope, power = power_slope(y, v, p_rows, q_rows)
        left = s - power
        right = np.r_[left.real[p_rows], left.imag[q_rows]]
        size = np.abs(right).max()
        if not np.isfinite(size):
            break
        if size < best:
            best, state = size, v
        if size < TOL or (best < ENOUGH and size > best):
            break
        v = _turn(v, spl.splu(slope).solve(right), p_rows, q_rows)[0]
    return state if best < ENOUGH else None
