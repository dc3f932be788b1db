"""Baselines of a battery that trades: idle, cheap and dear hours of a known day, and the oracle's plan."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import Array

from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.feeder.arbitrage.plan import Solution, solve_storage
from powerzoo_jax.families.feeder.arbitrage.problem import StorageEpisode, build_problems, play
from powerzoo_jax.oracle.baselines import action_box
from powerzoo_jax.oracle.registry import Baselines, OraclePlan, PlanCarry, Policy, follow, plan_act
from powerzoo_jax.tasks.score import Evaluation, evaluate

HOURS_PER_DAY = 24
CHEAP, DEAR = 25, 75  # percentiles of the day's hourly prices


def plan_carry(sim: Sim, plans_mw: np.ndarray) -> PlanCarry:
    """Carry of `plan_act` for plans (B, T, G) [MW]: power over rating as actions, leading axis B."""
    carry: PlanCarry = follow(sim, plan_actions(sim, plans_mw)).carry
    return carry


def plan_actions(sim: Sim, plans_mw: np.ndarray) -> np.ndarray:
    """Kernel actions (B, T, A, U) of plans (B, T, G) [MW]."""
    action = plans_mw / np.asarray(sim.params.storage.power_mw, np.float64)
    return action.reshape(*plans_mw.shape[:2], *action_box(sim).shape)


def rule_plan(problem: StorageEpisode) -> np.ndarray:
    """Charge in the cheap hours of a day and discharge in the dear ones, as far as the store allows: (T, G) [MW].

    cheap = at or below the 25th percentile of that day's hourly prices, dear = at or above the 75th
    (linear interpolation); a day with one price stays idle. Days count from the start of the episode.
    """
    signal = quantile_signal(problem.price_per_mwh, problem.dt_hours)
    return play(problem, signal[:, None] * problem.power_mw).p_mw


def quantile_signal(price: np.ndarray, dt_hours: float) -> np.ndarray:
    """+1 in the dear steps of each day, -1 in the cheap ones, 0 between; price and result (T,)."""
    per_hour = max(1, round(1 / dt_hours))
    per_day = max(1, round(HOURS_PER_DAY / dt_hours))
    signal = np.zeros(len(price))
    for first in range(0, len(price), per_day):
        day = price[first : first + per_day]
        cuts = range(0, len(day), per_hour)
        hourly = np.array([day[k : k + per_hour].mean() for k in cuts])
        low, high = np.percentile(hourly, [CHEAP, DEAR])
        spread = np.repeat(hourly, per_hour)[: len(day)]
        signal[first : first + per_day] = np.where(low == high, 0, (spread >= high) * 1.0 - (spread <= low) * 1.0)
    return signal


def solve_starts(sim: Sim, draws: Draw) -> list[Solution]:
    """The oracle's solution of every drawn episode."""
    return [solve_storage(problem) for problem in build_problems(sim, draws)]


def evaluate_plans(sim: Sim, plans_mw: np.ndarray, draws: Draw, **arguments: Any) -> Evaluation:
    """Execute plans (B, T, G) [MW] in the environment, one for each drawn episode; see `evaluate`."""
    return evaluate(sim, plan_act, draws=draws, carry=plan_carry(sim, plans_mw), **arguments)


def _idle_plans(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Idle as a plan: one program then runs all baselines that look at no observation."""
    del keys
    return Policy(plan_act, plan_carry(sim, np.zeros((draws.load_row.shape[0], sim.spec.horizon, sim.env.dims.unit))))


def _rule(sim: Sim, draws: Draw, keys: Array) -> Policy:
    del keys
    return Policy(plan_act, plan_carry(sim, np.stack([rule_plan(problem) for problem in build_problems(sim, draws)])))


def _oracle(sim: Sim, draws: Draw, keys: Array) -> OraclePlan:
    del keys
    solutions = solve_starts(sim, draws)
    bound = np.array([s.bound for s in solutions])
    return OraclePlan(
        policy=Policy(plan_act, plan_carry(sim, np.stack([s.plan_mw for s in solutions]))),
        objective=np.array([s.objective for s in solutions]),
        bound=bound,
        kept_bound=bound,
    )


BATTERY = Baselines(
    rules={"no_control": _idle_plans, "rule": _rule},
    oracle=_oracle,
    splits=("train", "val", "test", "price_stress"),
)
