"""Plans of the data-centre microgrid at prices of its cost channels: misses, and work dropped, have a price."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base.numerics import FLOAT
from powerzoo_jax.base.tree import take
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.microgrid.names import DROPPED
from powerzoo_jax.families.microgrid.plan.policies import (
    HABITS,
    SAFE_PRICE_USD,
    SAFE_RULE,
    PlantDispatch,
    PlayedRule,
    dispatched,
    finalists,
    job_loss,
    on_host,
    play_habits,
    play_starts,
    relaxed_return,
)
from powerzoo_jax.families.microgrid.plan.problem import MicrogridProblem, build_microgrid_problem
from powerzoo_jax.oracle.datacenter.program import idle_it_mw, infer_mw_per_gpu, list_starts
from powerzoo_jax.oracle.datacenter.search import (
    Found,
    PlantCuts,
    Variety,
    common_sizes,
    read_work,
    search,
    simple_plans,
)
from powerzoo_jax.oracle.datacenter.whole_jobs import fewest_misses
from powerzoo_jax.oracle.lagrangian import PricedPlan

MISSES, OVERTEMP, DEFICIT = "sla", "overtemp", "power_deficit"
DROPPED_USD_PER_GPU_H = 20.0  # more than the energy of any work, at the price of load that is not served
HOT_USD_PER_C = 1.0  # in bounds; with a higher one they fall by less than the budget of heat is then worth
LANES = 256  # of a search: 60 rounds take a second
LEARNT, LEARNT_ROUNDS = 6, 20  # searches that learn what the plant costs near good plans, and their rounds
APART, APART_ROUNDS = 4, 80  # searches that begin anew once that is known: they end at different ways to run the jobs
JOINED_ROUNDS = 80  # of the search that begins at what those have found
PLAYED = 4  # plans of a search that are dispatched
CUTS = 48  # of the plant, at most; more than the habits and all searches that learn give
NO_CUT = -1e6  # [reward] of the places that are free
VARIETY = Variety(alike=(0.03, 0.001), longest=100, short=True)
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
        self.known: dict[tuple[int, bytes], PlantDispatch] = {}
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
        """The plan of an episode, and others that were looked at, dearer at these prices but less of a limit broken."""
        problem, priced = self.problems[episode], self._priced(episode, price)
        known = finalists(problem, self.trails[episode], priced.missed_usd, priced.dropped_usd_per_gpu_h)
        searched = self._searched(episode, priced)
        found = []
        for trail in (*known, *searched):
            plan = self._dispatched(episode, trail)
            value = plan.earned - job_loss(problem, trail, problem.missed_usd)
            jobs = {MISSES: float(np.sum(trail.missed)), DROPPED: float(trail.dropped_gpu_h)}
            broken = jobs | {DEFICIT: plan.unserved_mw}
            cost = np.array([broken.get(channel, 0.0) for channel in self.channels])
            found.append(PricedPlan(plan.action, value, cost, np.inf))
        best, *others = _undominated(sorted(found, key=lambda plan: float(price @ plan.cost) - plan.value))
        fewest = self._fewest_misses(episode, [*self.trails[episode], *searched])
        return [best._replace(bound=relaxed_return(priced, fewest_misses=fewest)), *others]

    def _searched(self, episode: int, problem: MicrogridProblem) -> list[PlayedRule]:
        """Trails of job starts that are cheap with the plant dispatched beside them.

        The cost of the plant is convex in the power of servers, so every dispatch bounds it from below for all plans
        (Kelley's cuts): a search sees the largest of these bounds, and what it finds is dispatched in its turn.
        """
        work = read_work(problem, np.zeros(problem.horizon), self.sizes)  # power has its cost from the cuts
        first = simple_plans(np.full(problem.horizon, problem.usd_per_mwh), WORTH_PER_MWH)
        trails: dict[bytes, PlayedRule] = {}
        habits = self.trails[episode]
        dispatches = {trail.it_mw.tobytes(): (trail, self._dispatched(episode, trail)) for trail in habits}

        def look(first: np.ndarray, rounds: int, seed: int) -> Found:
            """Search from plans (K, T, 2), and dispatch the best."""
            plant = _cuts(problem, [*dispatches.values()])
            found = search(
                work, self.sizes, first, days=1, rounds=rounds, lanes=LANES, variety=VARIETY, plant=plant, seed=seed
            )
            for gpus in found.gpus[:PLAYED]:
                trail = self._played(episode, gpus)
                key = trail.it_mw.tobytes()
                trails[key] = trail
                dispatches.setdefault(key, (trail, self._dispatched(episode, trail)))
            return found

        known = first
        for number in range(LEARNT):
            known = np.concatenate([look(known, LEARNT_ROUNDS, number).plans, first])
        ends = [look(first, APART_ROUNDS, LEARNT + number).plans for number in range(APART)]
        look(np.concatenate(ends), JOINED_ROUNDS, LEARNT + APART)
        return [*trails.values()]

    def _played(self, episode: int, gpus: np.ndarray) -> PlayedRule:
        """Trail of an episode with these starts (T, 2)."""
        drawn = take(self.draws, episode)
        return on_host(play_starts(self.sim, drawn, jnp.asarray(gpus, self.sim.params.voll.dtype)))

    def _dispatched(self, episode: int, trail: PlayedRule) -> PlantDispatch:
        """Dispatch of a trail, which prices of channels do not change."""
        key = episode, np.asarray(trail.action).tobytes()
        if key not in self.known:
            self.known[key] = dispatched(self.problems[episode], trail)
        return self.known[key]


def _undominated(plans: list[PricedPlan]) -> list[PricedPlan]:
    """Plans of which no earlier one earns as much at costs as low in every channel."""
    kept: list[PricedPlan] = []
    for plan in plans:
        if not any(other.value >= plan.value and (other.cost <= plan.cost).all() for other in kept):
            kept.append(plan)
    return kept


def _cuts(problem: MicrogridProblem, known: list[tuple[PlayedRule, PlantDispatch]]) -> PlantCuts:
    """Bounds of the cost of the plant beside the power of jobs, from the last dispatches known."""
    base, slope = np.full(CUTS, NO_CUT), np.zeros((CUTS, problem.horizon))
    idle = idle_it_mw(problem)
    for k, (trail, found) in enumerate(known[-CUTS:]):
        slope[k] = found.power_price
        base[k] = found.power_price @ (idle - trail.it_mw) - found.earned
    mw = np.array([*problem.job_mw_per_gpu, infer_mw_per_gpu(problem)])
    return PlantCuts(*(x.astype(FLOAT) for x in (base, slope, mw)))
