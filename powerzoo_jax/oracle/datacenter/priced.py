"""Plans of the data centre on a feeder at prices of its cost channels: a missed job has a price."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
from jax import Array

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.oracle.datacenter.policies import (
    FeederSiteProblem,
    PlayedJobs,
    build_site_problems,
    cooled_plan,
    execute_starts,
    read_episodes,
    relaxed_plant,
    search_starts,
)
from powerzoo_jax.oracle.datacenter.program import JobStarts, list_starts, server_prices, solve_site, write_starts
from powerzoo_jax.oracle.datacenter.search import common_sizes
from powerzoo_jax.oracle.datacenter.whole_jobs import plan_whole_jobs, plant_bound
from powerzoo_jax.oracle.lagrangian import PricedPlan
from powerzoo_jax.oracle.linear_program import dual_bound

MISSES = "sla"
MISS_USD = 500.0  # highest price of a miss: as much again as the task itself charges
JOB_MWH = 0.5  # of a long job; where its energy at the dearest hour costs more than that, it is the highest price
SECONDS = 300.0  # of a search over all whole starts of a day; one day in ten takes more than a minute


class SitePlans:
    """Priced planner of drawn episodes of a data centre on a feeder, see `lagrangian.PricedPlanner`.

    Starts come from the evolutionary search of the oracle and, for a day, from constraint programming at the prices of
    power that the relaxation finds; the better, with set-points from a linear program, is the plan. The bound is that
    of plant and whole jobs apart. Plans keep the room below its critical limit, so that only a miss has a price.
    """

    def __init__(self, sim: Sim, draws: Draw, keys: Array) -> None:
        self.channels = sim.spec.cost_names
        self.sim = sim
        self.episodes = read_episodes(sim, keys, draws.load_row, draws.price_row)
        self.problems = build_site_problems(sim, self.episodes)
        self.sizes = common_sizes(self.problems)
        self.days = max(1, round(sim.spec.horizon * sim.spec.dt_hours / 24))
        dearest = max(float(problem.usd_per_mwh.max()) for problem in self.problems)
        most = self.problems[0].weight * max(MISS_USD, JOB_MWH * dearest)
        self.most_price = np.array([most if name == MISSES else 0.0 for name in self.channels])

    def plan(self, episode: int, price: np.ndarray) -> PricedPlan:
        """Plan of an episode at prices (C,) [reward per unit of the channel]."""
        problem, at = self.problems[episode], self.channels.index(MISSES)
        priced = replace(problem, missed_usd=problem.missed_usd + float(price[at]) / problem.weight)
        searched = search_starts(priced, self.sizes, self.days)
        starts = list_starts(priced, priced.slots)
        bound, power_price = relaxed_bound(priced, starts)
        found = [searched]
        if self.days == 1:
            try:
                whole = plan_whole_jobs(priced, starts, power_price, searched, SECONDS)
            except SolverError:  # no starts in that time: those of the search, and the bound of the relaxation, stand
                pass
            else:
                apart = plant_bound(*relaxed_plant(priced), priced, power_price) + whole.bound
                bound = min(bound, problem.initial_heat - apart)
                found.append(whole.gpus)
        best, worth = None, -np.inf
        for gpus in found:
            trail = self._played(episode, gpus)
            action, value = cooled_plan(problem, trail)
            cost = np.where(np.arange(len(price)) == at, float(trail.missed), 0.0)
            if value - float(price @ cost) > worth:
                worth, best = value - float(price @ cost), (action, value, cost)
        assert best is not None
        return PricedPlan(*best, bound=bound)

    def _played(self, episode: int, gpus: np.ndarray) -> PlayedJobs:
        """Trail of an episode with these starts (T, 2)."""
        one = jax.tree.map(lambda x: x[episode : episode + 1], self.episodes)
        return jax.tree.map(lambda x: np.asarray(x)[0], execute_starts(self.sim, one, [gpus]))  # type: ignore[no-any-return]


def relaxed_bound(problem: FeederSiteProblem, starts: JobStarts) -> tuple[float, np.ndarray]:
    """Upper bound of any return by the relaxation of plant and jobs together, and its prices of power (T,)."""
    writer, rows = relaxed_plant(problem)
    write_starts(writer, problem, starts, rows)
    program = writer.program()
    dual = solve_site(program).dual
    return problem.initial_heat - dual_bound(program, dual), server_prices(problem, rows, dual)
