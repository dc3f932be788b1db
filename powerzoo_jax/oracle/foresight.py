"""Oracles of tasks as planners that prices of cost channels do not change, for the search under mean budgets.

Such an oracle keeps the budgets day by day. Its plans and its bound on every policy whatsoever hold at all prices,
since costs are not negative: where a budget of the mean would let better plans pass, the gap to the bound shows it.
"""

from __future__ import annotations

import numpy as np
from jax import Array

from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import run_episodes
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.oracle.lagrangian import PricedPlan
from powerzoo_jax.oracle.registry import get_baselines


class OraclePlans:
    """Priced planner of drawn episodes that plays the oracle of the task, see `lagrangian.PricedPlanner`."""

    def __init__(self, sim: Sim, draws: Draw, keys: Array) -> None:
        plan = get_baselines(sim.spec.id, sim.spec.version).foresee(sim, draws, keys)
        totals = run_episodes(sim, plan.policy.act, keys, draws, plan.policy.carry)
        self.actions, self.bounds = np.asarray(plan.policy.carry.action), plan.bound
        self.values, self.costs = (np.asarray(x, np.float64) for x in (totals.total, totals.cost))
        self.most_price = np.zeros(len(sim.spec.cost_names))

    def plan(self, episode: int, price: np.ndarray) -> PricedPlan:
        """The oracle's plan of an episode, the same at all prices."""
        del price
        value, bound = float(self.values[episode]), float(self.bounds[episode])
        return PricedPlan(self.actions[episode], value, self.costs[episode], bound)
