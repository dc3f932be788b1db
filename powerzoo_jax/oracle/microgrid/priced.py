"""Plans of the data-centre microgrid at prices of its cost channels: misses, and work dropped, have a price."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base.tree import take
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.microgrid.env import DROPPED
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.oracle.datacenter.program import list_starts
from powerzoo_jax.oracle.datacenter.search import common_sizes, read_work, search, simple_plans
from powerzoo_jax.oracle.datacenter.whole_jobs import fewest_misses
from powerzoo_jax.oracle.lagrangian import PricedPlan
from powerzoo_jax.oracle.microgrid.policies import (
    HABITS,
    SAFE_PRICE_USD,
    SAFE_RULE,
    PlayedRule,
    dispatched,
    finalists,
    job_loss,
    on_host,
    play_habits,
    play_starts,
    relaxed_return,
)
from powerzoo_jax.oracle.microgrid.problem import MicrogridProblem, build_microgrid_problem, power_prices

MISSES, OVERTEMP, DEFICIT = "sla", "overtemp", "power_deficit"
DROPPED_USD_PER_GPU_H = 20.0  # more than the energy of any work, at the price of load that is not served
SEARCHES = 4  # for job starts: at the price of diesel, then at what power is worth beside the jobs found before
HOT_USD_PER_C = 1.0  # in bounds; with a higher one they fall by less than the budget of heat is then worth
ROUNDS, LANES = 60, 256  # of a search: a second or two for a day
PROOF_S = 60.0  # of a search for starts without a miss; most days that have none are told in five seconds
WORTH_PER_MWH = (1360.0, 16_300.0)  # of the energy of a job whose miss costs 500 $, see `datacenter.policies`


class MicrogridPlans:
    """Priced planner of drawn microgrid episodes, see `lagrangian.PricedPlanner`.

    The ways to run the jobs are those of the oracle and of the safe rule, and starts that a search finds; which of them
    is best depends on the prices of a miss and of work that is dropped. Plans keep the room below its critical limit;
    bounds need a price to know of it.
    """

    def __init__(self, sim: Sim, draws: Draw, keys: Array) -> None:
        del keys
        self.channels = sim.spec.cost_names
        self.problems = [build_microgrid_problem(sim, take(draws, i)) for i in range(draws.load_row.shape[0])]
        self.sim, self.draws = sim, draws
        self.sizes = common_sizes(self.problems)
        self.known: dict[tuple[int, bytes], tuple[float, np.ndarray, float]] = {}
        self.unavoidable: dict[int, int] = {}
        most = {MISSES: SAFE_PRICE_USD, DROPPED: DROPPED_USD_PER_GPU_H}
        self.most_price = self.problems[0].weight * np.array([most.get(channel, 0.0) for channel in self.channels])
        self.least_price = np.where(
            np.array(self.channels) == OVERTEMP, self.problems[0].weight * HOT_USD_PER_C, np.zeros(len(self.channels))
        )

    @cached_property
    def trails(self) -> list[list[PlayedRule]]:
        """Every habit played on every episode: trails of each."""
        return play_habits(self.sim, self.draws, (*HABITS, SAFE_RULE))

    def bound(self, episode: int, price: np.ndarray) -> float:
        """Bound of an episode at prices (C,) [reward per unit of the channel].

        Raises ImportError without the extra `ortools` on a day on which every habit misses a job.
        """
        fewest = self._fewest_misses(episode, self.trails[episode])
        return relaxed_return(self._priced(episode, price), ordered=True, fewest_misses=fewest)

    def _fewest_misses(self, episode: int, trails: list[PlayedRule]) -> int:
        """Misses of an episode that no plan avoids, asked for once, where all of its trails have some."""
        if episode not in self.unavoidable:
            problem = self.problems[episode]
            known = min(round(float(np.sum(trail.missed))) for trail in trails)
            self.unavoidable[episode] = 0
            if known:
                starts = list_starts(problem, problem.slots)
                self.unavoidable[episode] = fewest_misses(problem, starts, known, PROOF_S)
        return self.unavoidable[episode]

    def _priced(self, episode: int, price: np.ndarray) -> MicrogridProblem:
        """The problem of an episode with the prices of the channels in its costs."""
        problem = self.problems[episode]
        usd = dict(zip(self.channels, (price / problem.weight).tolist(), strict=True))
        return replace(
            problem,
            missed_usd=problem.missed_usd + usd[MISSES],
            dropped_usd_per_gpu_h=usd.get(DROPPED, 0.0),
            hot_usd_per_c=usd[OVERTEMP],
        )

    def plan(self, episode: int, price: np.ndarray) -> PricedPlan:
        """Plan of an episode at prices (C,) [reward per unit of the channel]."""
        return self.plans(episode, price)[0]

    def plans(self, episode: int, price: np.ndarray) -> list[PricedPlan]:
        """The plan of an episode, and others that were looked at, which are dearer at these prices."""
        problem, priced = self.problems[episode], self._priced(episode, price)
        known = finalists(problem, self.trails[episode], priced.missed_usd, priced.dropped_usd_per_gpu_h)
        searched = self._searched(episode, priced)
        found = []
        for trail in (*known, *searched):
            earned, action, unserved_mw = self._dispatched(episode, trail)
            value = earned - job_loss(problem, trail, problem.missed_usd)
            jobs = {MISSES: float(np.sum(trail.missed)), DROPPED: float(trail.dropped_gpu_h)}
            broken = jobs | {DEFICIT: unserved_mw}
            cost = np.array([broken.get(channel, 0.0) for channel in self.channels])
            found.append(PricedPlan(action, value, cost, np.inf))
        best, *others = sorted(found, key=lambda plan: float(price @ plan.cost) - plan.value)
        fewest = self._fewest_misses(episode, [*self.trails[episode], *searched])
        return [best._replace(bound=relaxed_return(priced, fewest_misses=fewest)), *others]

    def _searched(self, episode: int, problem: MicrogridProblem) -> list[PlayedRule]:
        """Trails of job starts that are cheap where power costs its mean beside the jobs found before.

        Beside the last ones alone, what was cheap is dear once jobs have moved there, and they move back.
        """
        drawn = take(self.draws, episode)
        found: list[PlayedRule] = []
        seen: list[np.ndarray] = []
        usd = np.full(problem.horizon, problem.usd_per_mwh)
        for _ in range(SEARCHES):
            work = read_work(problem, usd, self.sizes)
            gpus = search(work, self.sizes, simple_plans(usd, WORTH_PER_MWH), days=1, rounds=ROUNDS, lanes=LANES)
            trail = on_host(play_starts(self.sim, drawn, jnp.asarray(gpus, self.sim.params.voll.dtype)))
            found.append(trail)
            seen.append(power_prices(problem, np.asarray(trail.it_mw)))
            usd = np.mean(seen, axis=0)
        return found

    def _dispatched(self, episode: int, trail: PlayedRule) -> tuple[float, np.ndarray, float]:
        """Dispatch of a trail, which prices of channels do not change."""
        key = episode, np.asarray(trail.action).tobytes()
        if key not in self.known:
            self.known[key] = dispatched(self.problems[episode], trail)
        return self.known[key]
