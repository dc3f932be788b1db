"""The linear programme of one battery over one episode, as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from powerzoo_jax.oracle.storage.problem import Problem

Branch = Literal["free", "rise", "fall"]
"""Which way the stored energy may end: a settlement that is not concave is solved once for each."""


@dataclass(frozen=True, eq=False)
class Program:
    """minimise cost @ x  subject to  equal @ x = right,  low <= x <= high; every bound is finite.

    x = [charge (T,) MW, discharge (T,) MW, energy after each step (T,) MWh, rise MWh, fall MWh]

    cost, low, high: (3 T + 2,)    equal: (T + 1, 3 T + 2) sparse    right: (T + 1,)
    """

    cost: np.ndarray
    equal: Any
    right: np.ndarray
    low: np.ndarray
    high: np.ndarray


def branches(problem: Problem) -> tuple[Branch, ...]:
    """The branches whose best is the optimum.

    rise is paid mean * eta_d and fall costs mean / eta_c: concave for mean >= 0, since eta_d <= 1 / eta_c.
    Below zero a single programme would book rise and fall at once, so each is fixed to zero in turn.
    """
    return ("free",) if problem.weight_settlement * problem.mean_price_per_mwh >= 0 else ("rise", "fall")


def storage_program(problem: Problem, unit: int, branch: Branch) -> Program:
    """Minus the profit of one battery.

    energy_t = energy_(t-1) + dt (eta_c charge_t - discharge_t / eta_d),   energy_T - energy_0 = rise - fall
    """
    from scipy import sparse

    dt, horizon = problem.dt_hours, len(problem.price_per_mwh)
    eta_c, eta_d = problem.eta_charge[unit], problem.eta_discharge[unit]
    capacity, power = problem.capacity_mwh[unit], problem.power_mw[unit]
    start, least, most = (capacity * x[unit] for x in (problem.soc_start, problem.soc_min, problem.soc_max))
    price = problem.weight_sales * problem.price_per_mwh
    wear = problem.weight_degradation * problem.degradation_per_mwh[unit]
    settle = problem.weight_settlement * problem.mean_price_per_mwh
    may_charge = np.ones(horizon) if problem.may_charge is None else problem.may_charge
    eye = sparse.eye(horizon)
    balance = [-dt * eta_c * eye, dt / eta_d * eye, eye - sparse.eye(horizon, k=-1), sparse.csr_matrix((horizon, 2))]
    final = np.zeros((1, 3 * horizon + 2))
    final[0, -3:] = 1.0, -1.0, 1.0
    right = np.zeros(horizon + 1)
    right[0] = right[-1] = start
    return Program(
        cost=np.concatenate(
            [dt * (price + wear), dt * (wear - price), np.zeros(horizon), [-settle * eta_d, settle / eta_c]]
        ),
        equal=sparse.vstack([sparse.hstack(balance), sparse.csr_matrix(final)]).tocsc(),
        right=right,
        low=np.concatenate([np.zeros(2 * horizon), np.full(horizon, least), np.zeros(2)]),
        high=np.concatenate(
            [
                power * may_charge,
                np.full(horizon, power),
                np.full(horizon, most),
                [0.0 if branch == "fall" else most - start, 0.0 if branch == "rise" else start - least],
            ]
        ),
    )
