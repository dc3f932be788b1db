"""Plans of feeder episodes at prices of their cost channels, for the search under mean budgets."""

from __future__ import annotations

import numpy as np
from jax import Array

from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.feeder.plan.episode import build_feeder_problems, feeder_actions
from powerzoo_jax.families.feeder.plan.plan import EXACT, FeederSearch
from powerzoo_jax.families.feeder.plan.problem import ViolationPrices, limit_prices
from powerzoo_jax.oracle.lagrangian import PricedPlan

PRICE_OF = {
    "voltage_violation": "band",
    "thermal_overload": "rating",
    "departure_shortfall": "shortfall",
    "unmet_energy": "unmet",
}
"""channel -> price of the planner; plans break no other channel: they ask for what devices can deliver"""


class FeederPlans:
    """Priced planner of drawn feeder episodes, see `lagrangian.PricedPlanner`.

    The tangents that an episode's search has found serve all later prices.
    """

    def __init__(self, sim: Sim, draws: Draw, keys: Array) -> None:
        # trips, prices and loads as the environment has them, the rest in float64
        self.sim, self.problems = sim, build_feeder_problems(sim, draws, keys)
        self.channels = sim.spec.cost_names
        self.searches: dict[int, FeederSearch] = {}
        most = [limit_prices(problem) for problem in self.problems]
        highest = {name: max(getattr(price, name) for price in most) for name in ViolationPrices._fields}
        scale = self.problems[0].scale
        self.most_price = np.array([scale * highest[PRICE_OF[c]] if c in PRICE_OF else 0.0 for c in self.channels])

    def plan(self, episode: int, price: np.ndarray) -> PricedPlan:
        """Plan of an episode at prices (C,) [reward per unit of the channel]."""
        problem = self.problems[episode]
        if episode not in self.searches:
            self.searches[episode] = FeederSearch(problem, EXACT)
        named = {PRICE_OF[c]: x / problem.scale for c, x in zip(self.channels, price, strict=True) if c in PRICE_OF}
        found = self.searches[episode].improve(ViolationPrices(**(ViolationPrices(0, 0, 0, 0)._asdict() | named)))
        out = found.best
        broken = {
            "voltage_violation": out.violation_pu,
            "thermal_overload": out.overload_mva,
            "departure_shortfall": out.shortfall_mwh,
            "unmet_energy": out.unmet_mwh,
        }
        return PricedPlan(
            action=feeder_actions(self.sim, problem, out.points),
            value=problem.scale * out.money_usd,
            cost=np.array([broken.get(channel, 0.0) for channel in self.channels]),
            bound=problem.scale * found.bound_usd,
        )
