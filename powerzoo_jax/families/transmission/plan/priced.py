"""Dispatches at a price of what branches carry beyond their ratings, for the search under mean budgets."""

from __future__ import annotations

import numpy as np
from jax import Array

from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.transmission.plan.dispatch import (
    OVERLOAD_USD,
    DispatchCurve,
    Floor,
    ReachedFloor,
    free_floor,
    host_system,
    rated_floor,
    reachable,
    reached_floor,
)
from powerzoo_jax.families.transmission.plan.policies import GRID, dispatch_actions, each_load, load_grid
from powerzoo_jax.oracle.lagrangian import PricedPlan

OVERLOAD = "thermal_overload"
REACHED_LOADS = 8  # every so many loads of the grid touch the bound of what scores reach, which takes most programs


class DispatchPlans:
    """Priced planner of drawn dispatch episodes, see `lagrangian.PricedPlanner`.

    A dispatch depends on the load of the step alone, so that a price takes two programs for each load of a grid,
    whatever the number of episodes. Plans are what the actions of the task can reach; bounds are of every dispatch
    within the limits of the units, reachable or not, and `reached_bound` is of the reachable ones. No price changes
    how much load is served: the rules of the environment shed only what the units cannot serve.
    """

    def __init__(self, sim: Sim, draws: Draw, keys: Array) -> None:
        del keys
        self.sim, self.system, self.loads = sim, host_system(sim), each_load(sim, draws)
        self.on, self.grid = np.asarray(sim.params.rules.available), load_grid(self.loads, GRID)
        self.money = sim.spec.term_weights[0] * sim.env.dt_hours
        self.channels = sim.spec.cost_names
        self.most_price = np.array([self.money * OVERLOAD_USD if name == OVERLOAD else 0.0 for name in self.channels])
        self.known: dict[float, tuple[DispatchCurve, Floor]] = {}
        self.reached: dict[float, ReachedFloor] = {}

    def reached_bound(self, episode: int, price: np.ndarray) -> float:
        """Bound of an episode at prices (C,), as that of `plan`, of what the actions of the task can reach."""
        overload_usd, load = self._usd(price), self.loads[episode]
        bound = self.plan(episode, price).bound
        if self.sim.env.schedule:
            return bound
        if overload_usd not in self.reached:
            grid = self.grid[::REACHED_LOADS]
            self.reached[overload_usd] = reached_floor(self.system, self.on, grid, overload_usd)
        _, floor = self._solved(overload_usd)
        least = np.maximum(self.reached[overload_usd].at(load), floor.at(load))
        return min(bound, -self.money * float(least.sum()))

    def plan(self, episode: int, price: np.ndarray) -> PricedPlan:
        """Plan of an episode at prices (C,) [reward per unit of the channel]."""
        load = self.loads[episode]
        curve, floor = self._solved(self._usd(price))
        p, level = curve.at(load)
        missing = load - p.sum(-1)
        broken = {
            OVERLOAD: self.system.overload(p, load).sum(),
            "power_balance": np.maximum(-missing, 0).sum(),
            "unserved_energy": self.sim.env.dt_hours * np.maximum(missing, 0).sum(),
        }
        # the lines of the floor are straight between the loads of the grid, and may fall below that without ratings
        least = np.maximum(floor.at(load), free_floor(self.system, self.on[None], load)[0])
        return PricedPlan(
            action=dispatch_actions(self.sim, self.system, level, p),
            value=-self.money * float(self.system.cost(self.on, p, load).sum()),
            cost=np.array([broken.get(channel, 0.0) for channel in self.channels]),
            bound=-self.money * float(least.sum()),
        )

    def _usd(self, price: np.ndarray) -> float:
        """Price of overload [USD/MWh] among prices (C,)."""
        return float(price[self.channels.index(OVERLOAD)]) / self.money

    def _solved(self, overload_usd: float) -> tuple[DispatchCurve, Floor]:
        """Dispatches and bounds over the loads at a price of overload [USD/MWh]."""
        if overload_usd not in self.known:
            scores = not self.sim.env.schedule
            curve = reachable(self.system, self.on, self.grid, scores=scores, overload_usd=overload_usd)
            self.known[overload_usd] = curve, rated_floor(self.system, self.on, self.grid, overload_usd)
        return self.known[overload_usd]
