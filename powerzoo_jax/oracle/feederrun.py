"""Play a plan on a feeder with the exact power flow, and price the limits it breaks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from powerzoo_jax.oracle.feederproblem import FeederProblem, Played, SetPoints, play_devices
from powerzoo_jax.oracle.network import Solved, solve_steps

PRICES = 20.0  # a broken limit costs this many times the dearest energy that breaking it could move


class Outcome(NamedTuple):
    """A plan played with the exact power flow; money in $.

    money_usd: what the task pays;  broken_usd: broken limits at the planner's prices;  violation_pu: sum over buses
    and steps;  missed_mwh: energy that drivers missed
    """

    points: SetPoints
    solved: Solved
    p_pu: np.ndarray
    q_pu: np.ndarray
    money_usd: float
    broken_usd: float
    violation_pu: float
    missed_mwh: float


def limit_price(problem: FeederProblem) -> tuple[float, float]:
    """Prices of a broken band [$/pu] and of missed energy [$/MWh]: breaking either never pays."""
    dearest = max(100.0, float(np.abs(problem.price_per_mwh).max()), float(np.abs(problem.loss_per_mwh).max()))
    # the weakest lever on a voltage that breaks the band moves it by some 0.01 pu per MW
    return 100 * PRICES * dearest * problem.dt_hours, PRICES * dearest


def run(problem: FeederProblem, points: SetPoints) -> Outcome:
    """Play a plan with the exact power flow."""
    played = play_devices(problem, points)
    p, q, solved = _flow(problem, played)
    size = np.abs(solved.v)
    violation = float(np.maximum(problem.v_min - size, 0).sum() + np.maximum(size - problem.v_max, 0).sum())
    lost = problem.network.base_mva * problem.dt_hours * float((problem.loss_per_mwh * solved.loss_pu).sum())
    band, need = limit_price(problem)
    missed = played.shortfall_mwh + played.unmet_mwh
    return Outcome(
        points=played.points,
        solved=solved,
        p_pu=p,
        q_pu=q,
        money_usd=played.money_usd - lost,
        broken_usd=band * violation + need * missed,
        violation_pu=violation,
        missed_mwh=missed,
    )


def _flow(problem: FeederProblem, played: Played) -> tuple[np.ndarray, np.ndarray, Solved]:
    base = problem.network.base_mva
    p, q = (problem.load_p_mw - played.p_mw) / base, (problem.load_q_mvar - played.q_mvar) / base
    return p, q, solve_steps(problem.network, p, q)
