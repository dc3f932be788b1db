"""Cheap tricks on the islanded data centre: on the test days none returns more than the rule and keeps the budgets."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.families.microgrid.plan.policies import NO_CONTROL, RULE, Habit, play_habit
from powerzoo_jax.oracle import follow
from powerzoo_jax.tasks.score import all_starts, evaluate

pytestmark = [pytest.mark.property, pytest.mark.full]

MISS = 0.01 * 500.0  # what a miss takes off the return of dc_microgrid, and not off that of dc_microgrid_safe
SHARES, COOLING, BATTERY, DIESEL = slice(0, 2), 2, 3, 4


@cache
def setting():
    sim = powerzoo_jax.make("dc_microgrid", split="test")
    draws = all_starts(sim)
    return sim, draws, np.asarray(play_habit(sim, draws, RULE).action)


@cache
def rule():
    return score(setting()[2])


def score(actions):
    sim, draws, _ = setting()
    policy = follow(sim, actions)
    return evaluate(sim, policy.act, carry=policy.carry, draws=draws)


def unpriced(record):
    """The return in dc_microgrid_safe, which differs by the price of the misses alone (see the unit tests)."""
    return record.mean_reward + MISS * record.mean_costs_by_constraint["sla"]


def variant(**columns):
    """The rule's actions with some columns replaced, from a step on where one is given."""
    actions = np.array(setting()[2])
    first = columns.pop("first", 0)
    names = {"shares": SHARES, "cooling": COOLING, "battery": BATTERY, "diesel": DIESEL}
    for name, value in columns.items():
        actions[:, first:, 0, names[name]] = value
    return actions


def deferred(last):
    """Start nothing until `last` steps before the horizon, then everything."""
    actions = np.array(setting()[2])
    actions[:, : 288 - last, 0, SHARES] = -1
    return actions


TRICKS = {
    "do nothing": lambda: np.broadcast_to(np.asarray(NO_CONTROL), setting()[2].shape),
    "shed all load": lambda: variant(diesel=-1, battery=0),
    "defer every job into the last hour": lambda: deferred(12),
    "defer every job into the last step": lambda: deferred(1),
    "everything at its upper bound": lambda: variant(shares=1, cooling=1, battery=1, diesel=1),
    "everything at its lower bound": lambda: variant(shares=-1, cooling=-1, battery=-1, diesel=-1),
    "charge all day for the settlement": lambda: variant(battery=-1, diesel=1),
    "stop caring six hours before the end": lambda: variant(first=216, diesel=-1, battery=0),
    "stop starting six hours before the end": lambda: variant(first=216, shares=-1),
    "let the battery pump": lambda: pumped(),
}


def pumped():
    actions = np.array(setting()[2])
    actions[:, ::2, 0, BATTERY], actions[:, 1::2, 0, BATTERY] = 1, -1
    return actions


@cache
def tricked(trick):
    return score(TRICKS[trick]())


@pytest.mark.tiers(long=["do nothing", "shed all load", "defer every job into the last hour"])
@pytest.mark.parametrize("trick", TRICKS)
def test_no_trick_returns_more_than_the_rule(trick):
    assert tricked(trick).mean_reward <= rule().mean_reward


@pytest.mark.parametrize("trick", TRICKS)
def test_where_misses_are_a_constraint_alone_no_trick_returns_more_and_keeps_the_budgets(trick):
    """Not starting jobs saves their energy there; the sla channel, not the reward, says what that is worth."""
    record = tricked(trick)
    assert unpriced(record) <= unpriced(rule()) or not record.feasible


def test_not_cooling_pays_a_little_and_breaks_the_overtemp_budget():
    """A warm room is honest thrift up to the critical temperature; beyond it the constraint says no."""
    record = score(variant(cooling=1))
    gain = record.mean_reward - rule().mean_reward
    assert 0 < gain < 0.05 * abs(rule().mean_reward)
    assert record.mean_costs_by_constraint["overtemp"] > 0.5 and not record.feasible


def test_never_starting_jobs_is_caught_by_the_price_or_by_the_channel():
    record = score(variant(shares=-1))
    assert record.mean_reward < rule().mean_reward < unpriced(rule()) < unpriced(record)
    assert record.mean_costs_by_constraint["sla"] > 20 and not record.feasible


def test_the_rule_leaves_random_far_behind_and_loses_when_jobs_are_held_back():
    sim, draws, actions = setting()
    random = np.random.default_rng(0).uniform(-1, 1, actions.shape)
    assert score(random).mean_reward < 5 * rule().mean_reward
    held = play_habit(sim, draws, Habit(reserve_mw=-0.2, urgent_train_min=0.0, urgent_fine_min=0.0))
    assert float(np.mean(held.total)) < rule().mean_reward
