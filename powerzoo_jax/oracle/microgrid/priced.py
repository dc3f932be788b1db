"""Plans of the data-centre microgrid at prices of its cost channels: misses, and work dropped, have a price."""

from __future__ import annotations

import numpy as np
from jax import Array

from powerzoo_jax.base.tree import take
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.microgrid.env import DROPPED
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.oracle.lagrangian import PricedPlan
from powerzoo_jax.oracle.microgrid.policies import (
    HABITS,
    SAFE_PRICE_USD,
    SAFE_RULE,
    PlayedRule,
    dispatched,
    finalists,
    job_loss,
    play_habits,
    relaxed_return,
)
from powerzoo_jax.oracle.microgrid.problem import build_microgrid_problem

MISSES, DEFICIT = "sla", "power_deficit"
DROPPED_USD_PER_GPU_H = 20.0  # more than the energy of any work, at the price of load that is not served


class MicrogridPlans:
    """Priced planner of drawn microgrid episodes, see `lagrangian.PricedPlanner`.

    The ways to run the jobs are those of the oracle and of the safe rule; which of them is best depends on the prices
    of a miss and of work that is dropped. Plans keep the room below its critical limit, so that only these have one.
    """

    def __init__(self, sim: Sim, draws: Draw, keys: Array) -> None:
        del keys
        self.channels = sim.spec.cost_names
        self.trails = play_habits(sim, draws, (*HABITS, SAFE_RULE))
        self.problems = [build_microgrid_problem(sim, take(draws, i)) for i in range(draws.load_row.shape[0])]
        self.known: dict[tuple[int, bytes], tuple[float, np.ndarray, float]] = {}
        most = {MISSES: SAFE_PRICE_USD, DROPPED: DROPPED_USD_PER_GPU_H}
        self.most_price = self.problems[0].weight * np.array([most.get(channel, 0.0) for channel in self.channels])

    def plan(self, episode: int, price: np.ndarray) -> PricedPlan:
        """Plan of an episode at prices (C,) [reward per unit of the channel]."""
        problem = self.problems[episode]
        usd = dict(zip(self.channels, price / problem.weight, strict=True))
        missed_usd, dropped_usd = problem.missed_usd + float(usd[MISSES]), float(usd.get(DROPPED, 0.0))
        best, worth = None, -np.inf
        for trail in finalists(problem, self.trails[episode], missed_usd, dropped_usd):
            earned, action, unserved_mw = self._dispatched(episode, trail)
            value = earned - job_loss(problem, trail, problem.missed_usd)
            jobs = {MISSES: float(np.sum(trail.missed)), DROPPED: float(trail.dropped_gpu_h)}
            broken = jobs | {DEFICIT: unserved_mw}
            cost = np.array([broken.get(channel, 0.0) for channel in self.channels])
            if value - float(price @ cost) > worth:
                worth, best = value - float(price @ cost), (action, value, cost)
        assert best is not None
        return PricedPlan(*best, bound=relaxed_return(problem, missed_usd, dropped_usd))

    def _dispatched(self, episode: int, trail: PlayedRule) -> tuple[float, np.ndarray, float]:
        """Dispatch of a trail, which prices of channels do not change."""
        key = episode, np.asarray(trail.action).tobytes()
        if key not in self.known:
            self.known[key] = dispatched(self.problems[episode], trail)
        return self.known[key]
