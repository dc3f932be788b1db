"""Physical laws as a tool: what a solved state violates, in float64 on the host.

Used by tests and the command line, and open to users who want to audit a result or another engine.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from powerzoo_jax.cases import Case
from powerzoo_jax.cases.topology import branch_positions, incidence
from powerzoo_jax.powerflow.result import PowerFlowResult


class Violation(NamedTuple):
    """Largest violation of each law over the network [pu]: 0 for an exact solution."""

    kcl_pu: float  # current balance of a bus, times its voltage: a power
    kvl_pu: float  # voltage drop of a branch against z i
    balance_pu: float  # generation - load - losses


def check_feeder(case: Case, p_pu: np.ndarray, q_pu: np.ndarray, result: PowerFlowResult) -> Violation:
    """Check one solved scenario of a feeder of plain series branches.

    KCL: injected current = sum of the currents leaving the bus; KVL: v_from - v_to = z i;
    balance: slack injection + sum of injections = losses.

    p_pu, q_pu: (N,) net injections handed to the solver; the slack entry is ignored
    result:     unbatched PowerFlowResult
    """
    v = np.asarray(result.v_re, float) + 1j * np.asarray(result.v_im, float)
    current = np.asarray(result.i_re, float) + 1j * np.asarray(result.i_im, float)
    s = np.asarray(p_pu, float) + 1j * np.asarray(q_pu, float)
    f, t = branch_positions(case)
    on = case.branch.in_service
    leaving = incidence(case.n_bus, f, t, on).T @ current
    rest = np.ones(case.n_bus, bool)
    rest[case.slack_bus] = False
    kcl = np.abs(v * np.conj(leaving) - s)[rest]
    drop = v[f] - v[t] - (case.branch.r_pu + 1j * case.branch.x_pu) * current
    supply = complex(float(result.p_slack), float(result.q_slack)) + s[rest].sum()
    losses = complex(float(result.p_loss), float(result.q_loss))
    return Violation(float(kcl.max()), float(np.abs(drop[on]).max()), float(abs(supply - losses)))
