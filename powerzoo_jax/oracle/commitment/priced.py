"""Commitments of many units at a price of missing reserve, for the search under mean budgets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jax import Array

from powerzoo_jax.base.tree import take
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.envs.transmission.units import RESERVE, reserve_share
from powerzoo_jax.oracle.commitment.descent import dearest_first, descend
from powerzoo_jax.oracle.commitment.lagrangian import relax_commitment
from powerzoo_jax.oracle.commitment.policies import MARGIN, join, secure_output
from powerzoo_jax.oracle.commitment.problem import CommitmentDay
from powerzoo_jax.oracle.commitment.secure import operate
from powerzoo_jax.oracle.foresight import PlayedPlans, play_plans
from powerzoo_jax.oracle.lagrangian import PricedPlan
from powerzoo_jax.oracle.registry import follow
from powerzoo_jax.oracle.transmission.dispatch import host_system
from powerzoo_jax.oracle.transmission.economic import STEPS
from powerzoo_jax.oracle.transmission.episode import commitment_problem

MOST_RESERVE_USD = 200.0  # [USD/MW] of missing reserve in a step: a unit for peaks runs for half of that


class CommitmentPlans:
    """Priced planner of drawn episodes with commitment, see `lagrangian.PricedPlanner`.

    An episode has a handful of plans, which are executed once: unit decommitment from all units and from the list of
    the rule, with a reserve and without, each operated within ramps and ratings, and the rule. A price chooses among
    them. Bounds are of the priced relaxation, in which ramps and ratings are left out: overloads have no price.
    """

    def __init__(self, sim: Sim, draws: Draw, keys: Array) -> None:
        self.sim, self.draws, self.keys = sim, draws, keys
        self.system, self.wanted = host_system(sim), secure_output(sim, STEPS["rule"])
        self.money = sim.spec.term_weights[0]
        self.reserve = sim.spec.cost_names.index(RESERVE)
        self.most_price = np.zeros(len(sim.spec.cost_names))
        self.most_price[self.reserve] = self.money * MOST_RESERVE_USD
        self.known: dict[int, PlayedPlans] = {}

    def plan(self, episode: int, price: np.ndarray) -> PricedPlan:
        """Plan of an episode at prices (C,) [reward per unit of the channel]."""
        if episode not in self.known:
            self.known[episode] = self._played(episode)
        plans = self.known[episode]
        best = int(np.argmax(plans.value - plans.cost @ price))
        return PricedPlan(plans.action[best], float(plans.value[best]), plans.cost[best], self.bound(episode, price))

    def bound(self, episode: int, price: np.ndarray) -> float:
        """Bound of an episode at prices (C,), as that of a plan."""
        worth = float(price[self.reserve]) / self.money
        day = self._day(episode, float(reserve_share(self.sim.params)))
        return -self.money * relax_commitment(replace(day, reserve_usd=worth)).bound_usd

    def _day(self, episode: int, share: float | None) -> CommitmentDay:
        day = commitment_problem(self.sim, take(self.draws, episode), share)
        # the environment asks for a reserve beyond the load without shunts
        return day if share is None else replace(day, reserve_mw=day.reserve_mw - (1 + share) * self.system.shunt_mw)

    def _played(self, episode: int) -> PlayedPlans:
        share, bare = float(reserve_share(self.sim.params)), self._day(episode, None)
        path, scores = operate(bare, MARGIN, self.wanted, self.system)
        actions, free = [join(self.sim, scores, path)], np.zeros(path.shape)
        for reserve in (None, share):
            day = self._day(episode, reserve)
            dear = dearest_first(day)
            for start, order in ((np.ones_like(path), dear), (path, dear[::-1])):
                plan = descend(day, start, free, order)
                on, scores = operate(bare, 0.0, self.wanted, self.system, plan)
                actions.append(join(self.sim, scores, on))
        again = np.full(len(actions), episode)
        policy = follow(self.sim, np.stack(actions))
        return play_plans(self.sim, take(self.draws, again), self.keys[again], policy)
