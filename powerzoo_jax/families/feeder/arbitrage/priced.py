"""Plans of storage that trades energy at prices of cost channels, none of which it touches."""

from __future__ import annotations

import numpy as np
from jax import Array

from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.feeder.arbitrage.plan import solve_storage
from powerzoo_jax.families.feeder.arbitrage.policies import plan_actions
from powerzoo_jax.families.feeder.arbitrage.problem import build_problems
from powerzoo_jax.oracle.lagrangian import PricedPlan


class StoragePlans:
    """Priced planner of drawn episodes of a task whose network limits nothing, see `lagrangian.PricedPlanner`.

    Plans ask for what the stores can deliver, so that they break no budget and prices change none of them.
    """

    def __init__(self, sim: Sim, draws: Draw, keys: Array) -> None:
        del keys
        self.sim, self.problems = sim, build_problems(sim, draws)
        self.most_price = np.zeros(len(sim.spec.cost_names))

    def plan(self, episode: int, price: np.ndarray) -> PricedPlan:
        """Plan of an episode, the same at all prices."""
        found = solve_storage(self.problems[episode])
        action = plan_actions(self.sim, found.plan_mw[None])[0]
        return PricedPlan(action, found.objective, np.zeros(len(price)), found.bound)
