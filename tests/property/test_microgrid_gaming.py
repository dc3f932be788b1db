"""Cheap tricks on the islanded data centre: on the test days none returns more than the rule and keeps the budgets."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.oracle import follow
from powerzoo_jax.oracle.microgrid import NO_CONTROL
from powerzoo_jax.oracle.microgridrule import RULE, Habit, play_habit
from powerzoo_jax.tasks.score import all_starts, evaluate

TASKS = ("dc_microgrid", "dc_microgrid_safe")
SHARES, COOLING, BATTERY, DIESEL = slice(0, 2), 2, 3, 4


@cache
def setting(task):
    sim = powerzoo_jax.make(task, split="test")
    draws = all_starts(sim)
    return sim, draws, np.asarray(play_habit(sim, draws, RULE).action)


@cache
def rule(task):
    return score(task, setting(task)[2])


def score(task, actions):
    sim, draws, _ = setting(task)
    policy = follow(sim, actions)
    return evaluate(sim, policy.act, carry=policy.carry, draws=draws)


def variant(task, **columns):
    """The rule's actions with some columns replaced, from a step on where one is given."""
    actions = np.array(setting(task)[2])
    first = columns.pop("first", 0)
    names = {"shares": SHARES, "cooling": COOLING, "battery": BATTERY, "diesel": DIESEL}
    for name, value in columns.items():
        actions[:, first:, 0, names[name]] = value
    return actions


def deferred(task, last):
    """Start nothing until `last` steps before the horizon, then everything."""
    actions = np.array(setting(task)[2])
    actions[:, : 288 - last, 0, SHARES] = -1
    return actions


TRICKS = {
    "do nothing": lambda task: np.broadcast_to(np.asarray(NO_CONTROL), setting(task)[2].shape),
    "shed all load": lambda task: variant(task, diesel=-1, battery=0),
    "defer every job into the last hour": lambda task: deferred(task, 12),
    "defer every job into the last step": lambda task: deferred(task, 1),
    "everything at its upper bound": lambda task: variant(task, shares=1, cooling=1, battery=1, diesel=1),
    "everything at its lower bound": lambda task: variant(task, shares=-1, cooling=-1, battery=-1, diesel=-1),
    "charge all day for the settlement": lambda task: variant(task, battery=-1, diesel=1),
    "stop caring six hours before the end": lambda task: variant(task, first=216, diesel=-1, battery=0),
    "stop starting six hours before the end": lambda task: variant(task, first=216, shares=-1),
    "let the battery pump": lambda task: pumped(task),
}


def pumped(task):
    actions = np.array(setting(task)[2])
    actions[:, ::2, 0, BATTERY], actions[:, 1::2, 0, BATTERY] = 1, -1
    return actions


@pytest.mark.parametrize("trick", TRICKS)
def test_no_trick_returns_more_than_the_rule(trick):
    assert score(TASKS[0], TRICKS[trick](TASKS[0])).mean_reward <= rule(TASKS[0]).mean_reward


@pytest.mark.parametrize("trick", TRICKS)
def test_where_misses_are_a_constraint_alone_no_trick_returns_more_and_keeps_the_budgets(trick):
    """Not starting jobs saves their energy there; the sla channel, not the reward, says what that is worth."""
    record = score(TASKS[1], TRICKS[trick](TASKS[1]))
    assert record.mean_reward <= rule(TASKS[1]).mean_reward or not record.feasible


def test_not_cooling_pays_a_little_and_breaks_the_overtemp_budget():
    """A warm room is honest thrift up to the critical temperature; beyond it the constraint says no."""
    record = score(TASKS[0], variant(TASKS[0], cooling=1))
    gain = record.mean_reward - rule(TASKS[0]).mean_reward
    assert 0 < gain < 0.05 * abs(rule(TASKS[0]).mean_reward)
    assert record.mean_costs_by_constraint["overtemp"] > 0.5 and not record.feasible


def test_never_starting_jobs_is_caught_by_the_price_or_by_the_channel():
    priced, constrained = (score(task, variant(task, shares=-1)) for task in TASKS)
    assert priced.mean_reward < rule(TASKS[0]).mean_reward
    assert constrained.mean_costs_by_constraint["sla"] > 20 and not constrained.feasible


def test_the_rule_leaves_random_far_behind_and_loses_when_jobs_are_held_back():
    sim, draws, actions = setting(TASKS[0])
    random = np.random.default_rng(0).uniform(-1, 1, actions.shape)
    assert score(TASKS[0], random).mean_reward < 5 * rule(TASKS[0]).mean_reward
    held = play_habit(sim, draws, Habit(reserve_mw=-0.2, urgent_train_min=0.0, urgent_fine_min=0.0))
    assert float(np.mean(held.total)) < rule(TASKS[0]).mean_reward
