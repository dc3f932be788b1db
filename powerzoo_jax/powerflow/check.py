"""Audit of a solved state against the physical laws, in float64 on the host.

Used by tests and the command line, and open to users who want to audit a result or another engine.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from powerzoo_jax.base.ranges import FINITE, axes, checks_ranges
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.case import ISOLATED
from powerzoo_jax.cases.topology import branch_positions
from powerzoo_jax.powerflow.meshed.base_case import held_buses
from powerzoo_jax.powerflow.meshed.solve import MeshedResult
from powerzoo_jax.powerflow.result import PowerFlowResult


class Violation(NamedTuple):
    """Largest violation of each law over the network [pu]: 0 for an exact solution."""

    kcl_pu: float  # current balance of a bus, times its voltage: a power
    kvl_pu: float  # voltage drop of a branch against z i
    balance_pu: float  # generation - load - losses - shunts


@checks_ranges("check_feeder")
def check_feeder(
    case: Case,
    p_pu: Annotated[np.ndarray, FINITE, axes("N")],
    q_pu: Annotated[np.ndarray, FINITE, axes("N")],
    result: PowerFlowResult,
) -> Violation:
    """Check one solved scenario of a feeder of plain series branches.

    KCL: injected current = sum of the currents leaving the bus; KVL: v_from - v_to = z i;
    balance: slack injection + sum of injections = losses.

    p_pu, q_pu: (N,) net injections handed to the solver; the slack entry is ignored
    result:     unbatched PowerFlowResult
    """
    return _violation(case, _injection(case, p_pu, q_pu, result), result)


@checks_ranges("check_meshed")
def check_meshed(
    case: Case,
    p_pu: Annotated[np.ndarray, FINITE, axes("N")],
    q_pu: Annotated[np.ndarray, FINITE, axes("N")],
    result: MeshedResult,
) -> Violation:
    """Check one solved scenario of a meshed network: taps, phase shifts, charging and shunts included.

    KCL: injected current = currents entering the branches and the shunt; KVL: v_from / a - v_to = z i;
    balance: slack injection + sum of injections = losses net of charging + shunts.

    p_pu, q_pu: (N,) net injections handed to the solver; where the solver ignores them, the result's count
    result:     unbatched MeshedResult
    """
    s = _injection(case, p_pu, q_pu, result)
    held = held_buses(case)
    s.imag[held] = np.asarray(result.q_bus, float)[held]
    return _violation(case, s, result)


def _injection(case: Case, p_pu: np.ndarray, q_pu: np.ndarray, result: PowerFlowResult) -> np.ndarray:
    """Injections (N,) complex: those given, and at the slack bus that of the result."""
    s = np.asarray(p_pu, float) + 1j * np.asarray(q_pu, float)
    s[case.slack_bus] = complex(float(result.p_slack), float(result.q_slack))
    s[case.bus.kind == ISOLATED] = 0
    return s


def _violation(case: Case, s: np.ndarray, result: PowerFlowResult) -> Violation:
    """Audit the voltages and series currents of a result against the injections s (N,)."""
    v = np.asarray(result.v_re, float) + 1j * np.asarray(result.v_im, float)
    current = np.asarray(result.i_re, float) + 1j * np.asarray(result.i_im, float)
    f, t = branch_positions(case)
    b, on = case.branch, case.branch.in_service
    a = b.tap * np.exp(1j * np.deg2rad(b.shift_deg))
    half = 0.5j * b.b_pu * on
    inside = v[f] / a
    y_shunt = np.where(case.bus.kind == ISOLATED, 0, case.bus.gs_mw + 1j * case.bus.bs_mvar) / case.base_mva
    leaving = v * y_shunt
    np.add.at(leaving, f, (current + half * inside) / np.conj(a))
    np.add.at(leaving, t, half * v[t] - current)
    kcl = np.abs(v * np.conj(leaving) - s)
    drop = np.abs(inside - v[t] - (b.r_pu + 1j * b.x_pu) * current)[on]
    shunt = np.sum(np.abs(v) ** 2 * np.conj(y_shunt))
    losses = complex(float(result.p_loss), float(result.q_loss))
    return Violation(float(kcl.max()), float(drop.max(initial=0.0)), float(abs(s.sum() - losses - shunt)))
