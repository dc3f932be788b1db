"""Play a plan on a feeder with the exact power flow, and price the limits it breaks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from powerzoo_jax.oracle.feeder.network import Solved, solve_steps
from powerzoo_jax.oracle.feeder.problem import FeederProblem, SetPoints, play_devices

PRICES = 20.0  # a broken limit costs this many times the dearest energy that breaking it could move


class Prices(NamedTuple):
    """What broken limits cost the planner: band [$/pu], rating [$/MVA], each a step, and missed energy [$/MWh]."""

    band: float
    rating: float
    need: float


FREE = Prices(0.0, 0.0, 0.0)


class Outcome(NamedTuple):
    """A plan played with the exact power flow; money in $.

    p_pu, q_pu:    (T, M)  consumption of the nodes
    money_usd:     what the task pays
    broken_usd:    broken limits at `limit_prices`
    violation_pu, overload_mva: sums over the episode
    missed_mwh:    energy that drivers missed
    """

    points: SetPoints
    solved: Solved
    p_pu: np.ndarray
    q_pu: np.ndarray
    money_usd: float
    broken_usd: float
    violation_pu: float
    overload_mva: float
    missed_mwh: float


def limit_prices(problem: FeederProblem) -> Prices:
    """Prices at which breaking a limit never pays."""
    dearest = max(100.0, float(np.abs(problem.price_per_mwh).max()), float(np.abs(problem.loss_per_mwh).max()))
    # the weakest lever on a voltage that breaks the band moves it by some 0.01 pu per MW
    return Prices(100 * PRICES * dearest * problem.dt_hours, PRICES * dearest * problem.dt_hours, PRICES * dearest)


def run(problem: FeederProblem, points: SetPoints) -> Outcome:
    """Play a plan with the exact power flow."""
    played = play_devices(problem, points)
    base = problem.network.base_mva
    p, q = (problem.load_p_mw - played.p_mw) / base, (problem.load_q_mvar - played.q_mvar) / base
    solved = solve_steps(problem.network, p, q)
    size = np.abs(solved.v)
    violation = float(np.maximum(problem.v_min - size, 0).sum() + np.maximum(size - problem.v_max, 0).sum())
    overload = float(np.maximum(excess_mva(problem, solved), 0).sum())
    lost = base * problem.dt_hours * float((problem.loss_per_mwh * solved.loss_pu).sum())
    missed = played.shortfall_mwh + played.unmet_mwh
    prices = limit_prices(problem)
    return Outcome(
        points=played.points,
        solved=solved,
        p_pu=p,
        q_pu=q,
        money_usd=played.money_usd - lost,
        broken_usd=prices.band * violation + prices.rating * overload + prices.need * missed,
        violation_pu=violation,
        overload_mva=overload,
        missed_mwh=missed,
    )


def excess_mva(problem: FeederProblem, solved: Solved) -> np.ndarray:
    """Apparent power above the rating, (T, M) [MVA]; negative below it, -inf without a rating."""
    if problem.rate_mva is None:
        return np.full(solved.v.shape, -np.inf)
    power = problem.network.base_mva * np.abs(solved.v_up * np.conj(solved.current))
    return np.where(problem.rate_mva > 0, power - problem.rate_mva, -np.inf)
