"""Commitments of many units at a price of missing reserve, for the search under mean budgets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jax import Array

from powerzoo_jax.base.tree import take
from powerzoo_jax.envs.constraint import budget_scales
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.transmission.commitment.descent import dearest_first, descend
from powerzoo_jax.families.transmission.commitment.fleets import FleetPlan, plan_fleets
from powerzoo_jax.families.transmission.commitment.lagrangian import relax_commitment
from powerzoo_jax.families.transmission.commitment.policies import MARGIN, MOST_UNITS, join, secure_output
from powerzoo_jax.families.transmission.commitment.problem import CommitmentDay
from powerzoo_jax.families.transmission.commitment.secure import operate, plan_day
from powerzoo_jax.families.transmission.names import RESERVE
from powerzoo_jax.families.transmission.plan.dispatch import host_system
from powerzoo_jax.families.transmission.plan.economic import STEPS
from powerzoo_jax.families.transmission.plan.episode import commitment_problem
from powerzoo_jax.families.transmission.plan.priced import OVERLOAD
from powerzoo_jax.families.transmission.units import reserve_share
from powerzoo_jax.oracle.foresight import PlayedPlans, play_plans
from powerzoo_jax.oracle.lagrangian import PricedPlan
from powerzoo_jax.oracle.registry import follow

# that a day's whole budget of missing reserve, and of overload, costs at the highest prices: a bound loses as much, of
# some 1e5 to 1e6 USD
RESERVE_USD, OVERLOAD_USD = 500.0, 1000.0


class CommitmentPlans:
    """Priced planner of drawn episodes with commitment, see `lagrangian.PricedPlanner`.

    An episode has a handful of plans, which are executed once: unit decommitment from all units and from the list of
    the rule, with a reserve and without, and at prices the program with fleets, each operated within ramps and ratings,
    the rule, and of few units the plan of the day that keeps all limits. A price chooses among them. Without prices
    bounds are of the relaxation that prices load and reserve, in which ramps and ratings are left out; with prices
    those of the program as well.

    first_prices:  that the search begins with after none: plans keep the budgets anyway, bounds need a price for that
    """

    def __init__(self, sim: Sim, draws: Draw, keys: Array) -> None:
        self.sim, self.draws, self.keys = sim, draws, keys
        self.system, self.wanted = host_system(sim), secure_output(sim, STEPS["rule"])
        self.money = sim.spec.term_weights[0]
        self.reserve, self.overload = (sim.spec.cost_names.index(name) for name in (RESERVE, OVERLOAD))
        limited, self.most_price = [self.reserve, self.overload], np.zeros(len(sim.spec.cost_names))
        budget = budget_scales(sim.spec.cost_names, sim.spec.cost_budget)
        self.most_price[limited] = self.money * np.array([RESERVE_USD, OVERLOAD_USD]) / budget[limited]
        self.first_prices = (self.most_price,)
        self.known: dict[int, PlayedPlans] = {}
        self.solved: dict[tuple[int, bytes], FleetPlan] = {}
        self.planned: set[tuple[int, bytes]] = set()

    def plan(self, episode: int, price: np.ndarray) -> PricedPlan:
        """Plan of an episode at prices (C,) [reward per unit of the channel]."""
        if episode not in self.known:
            self._learn(episode, self._simple(episode))
        if price.any() and (episode, price.tobytes()) not in self.planned:
            on = self._fleets(episode, price).on
            self._learn(episode, [self._operated(episode, on), self._operated(episode, on, ramp_margin=0.0)])
            self.planned.add((episode, price.tobytes()))
        plans = self.known[episode]
        best = int(np.argmax(plans.value - plans.cost @ price))
        return PricedPlan(plans.action[best], float(plans.value[best]), plans.cost[best], self.bound(episode, price))

    def bound(self, episode: int, price: np.ndarray) -> float:
        """Bound of an episode at prices (C,), as that of a plan."""
        least = relax_commitment(self._priced(episode, price)).bound_usd
        if price.any():
            least = max(least, self._fleets(episode, price).bound_usd)
        return -self.money * least

    def _fleets(self, episode: int, price: np.ndarray) -> FleetPlan:
        at = episode, price.tobytes()
        if at not in self.solved:
            overload_usd = float(price[self.overload]) / self.money
            self.solved[at] = plan_fleets(self.system, self._priced(episode, price), overload_usd)
        return self.solved[at]

    def _priced(self, episode: int, price: np.ndarray) -> CommitmentDay:
        day = self._day(episode, float(reserve_share(self.sim.params)))
        return replace(day, reserve_usd=float(price[self.reserve]) / self.money)

    def _day(self, episode: int, share: float | None) -> CommitmentDay:
        day = commitment_problem(self.sim, take(self.draws, episode), share)
        # the environment asks for a reserve beyond the load without shunts
        return day if share is None else replace(day, reserve_mw=day.reserve_mw - (1 + share) * self.system.shunt_mw)

    def _simple(self, episode: int) -> list[np.ndarray]:
        """Actions (T, A, U) of the rule, of unit decommitment and of the plan of a few units."""
        share, bare = float(reserve_share(self.sim.params)), self._day(episode, None)
        path, scores = operate(bare, MARGIN, self.wanted, self.system)
        actions, free = [join(self.sim, scores, path)], np.zeros(path.shape)
        for reserve in (None, share):
            day = self._day(episode, reserve)
            dear = dearest_first(day)
            for start, order in ((np.ones_like(path), dear), (path, dear[::-1])):
                actions.append(self._operated(episode, descend(day, start, free, order)))
        if path.shape[1] <= MOST_UNITS:
            whole = plan_day(self.system, self._day(episode, share))
            actions.append(join(self.sim, whole.scores, whole.on))
        return actions

    def _operated(self, episode: int, on: np.ndarray, **margins: float) -> np.ndarray:
        """Actions (T, A, U) that run units (T, G) wherever they may."""
        on, scores = operate(self._day(episode, None), 0.0, self.wanted, self.system, on, **margins)
        return join(self.sim, scores, on)

    def _learn(self, episode: int, actions: list[np.ndarray]) -> None:
        """Execute plans, and keep them with those known."""
        again = np.full(len(actions), episode)
        played = play_plans(self.sim, take(self.draws, again), self.keys[again], follow(self.sim, np.stack(actions)))
        if episode in self.known:
            both = zip(self.known[episode], played, strict=True)
            played = PlayedPlans(*(np.concatenate(pair) for pair in both))
        self.known[episode] = played
