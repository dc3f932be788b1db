"""Oracles of tasks as planners that prices of cost channels hardly change, for the search under mean budgets.

Such an oracle keeps the budgets day by day where it can. Its plans and its bound on every policy whatsoever hold at all
prices, since costs are not negative: where a budget of the mean would let better plans pass, the gap to the bound shows
it. Where its plans break a budget of the mean, the rule of the task stands in on days on which that pays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array, lax
from jax.tree_util import Partial

from powerzoo_jax.base import Purpose, purpose_key
from powerzoo_jax.envs.constraint import budget_scales
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import first_carry, run_episodes
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.oracle.lagrangian import PlanPool, PricedPlan
from powerzoo_jax.oracle.registry import PlanCarry, Policy, follow, get_baselines
from powerzoo_jax.tasks.score import keeps

DEAR = 10.0  # times what the oracle earns beyond the rule, that a budget costs once more at the highest price


class PlayedPlans(NamedTuple):
    """Plans played: actions (B, T, A, U) [-], returns (B,), costs (B, C)."""

    action: np.ndarray
    value: np.ndarray
    cost: np.ndarray


class OraclePlans:
    """Priced planner of drawn episodes that plays the oracle of the task, see `lagrangian.PricedPlanner`."""

    def __init__(self, sim: Sim, draws: Draw, keys: Array) -> None:
        baselines = get_baselines(sim.spec.id)
        plan = baselines.oracle(sim, draws, keys)
        self.bounds = plan.bound
        self.played = [play_plans(sim, draws, keys, plan.policy)]
        budget = np.asarray(sim.spec.cost_budget)
        limited, earned = np.isfinite(budget), self.played[0].value
        self.most_price = np.zeros(len(budget))
        if keeps(self.played[0].cost.mean(axis=0)[limited], budget[limited]).all():
            return
        rule = baselines.rules["rule"](sim, draws, keys)
        if isinstance(rule.carry, PlanCarry):
            self.played.append(play_plans(sim, draws, keys, rule))
            worth = DEAR * float(np.abs(earned - self.played[1].value).mean())
            self.most_price = np.where(limited, worth / budget_scales(sim.spec.cost_names, budget), 0.0)

    def plan(self, episode: int, price: np.ndarray) -> PricedPlan:
        """The better plan of an episode at prices (C,) [reward per unit of the channel]."""
        worth = [float(plans.value[episode] - price @ plans.cost[episode]) for plans in self.played]
        best = self.played[int(np.argmax(worth))]
        bound = float(self.bounds[episode])
        return PricedPlan(best.action[episode], float(best.value[episode]), best.cost[episode], bound)


def play_plans(sim: Sim, draws: Draw, keys: Array, policy: Policy) -> PlayedPlans:
    totals = run_episodes(sim, policy.act, keys, draws, policy.carry)
    value, cost = (np.asarray(x, np.float64) for x in (totals.total, totals.cost))
    return PlayedPlans(np.asarray(policy.carry.action), value, cost)


def learn_plans(pool: PlanPool, sim: Sim, draws: Draw, keys: Array, policy: Policy) -> None:
    """Add to a pool what a policy plays on each episode, as plans; they have no bound, and take no part in one."""
    act = policy.act if isinstance(policy.act, Partial) else Partial(policy.act)
    carry = first_carry(act, policy.carry, keys.shape[0])
    played = play_plans(sim, draws, keys, follow(sim, np.asarray(_watch(sim, act, carry, keys, draws))))
    for episode, (action, value, cost) in enumerate(zip(*played, strict=True)):
        pool.add(episode, [PricedPlan(action, float(value), cost, np.inf)])


@jax.jit
def _watch(sim: Sim, act: Partial, carry: Any, keys: Array, draws: Draw) -> Array:
    """Actions (B, T, A, U) of a policy, which sees what it does."""

    def one(carry: Any, key: Array, drawn: Draw) -> Array:
        state, obs = sim.env.begin(key, drawn, sim.params)

        def advance(loop: tuple[Any, ...], key: Array) -> tuple[tuple[Any, ...], Array]:
            state, obs, carry = loop
            carry, action = act(carry, obs, key)
            out = sim.step(state, action)
            return (out.state, out.obs, carry), action

        steps = jax.random.split(purpose_key(key, Purpose.POLICY), sim.spec.horizon)
        actions: Array = lax.scan(advance, (state, obs, carry), steps)[1]
        return actions

    return jax.vmap(one)(carry, keys, draws)
