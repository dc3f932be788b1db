"""Priced plans of a microgrid: what is searched is executed as planned, no worse than the habits, and bounded."""

from __future__ import annotations

import numpy as np

import powerzoo_jax
from powerzoo_jax.base.tree import take
from powerzoo_jax.oracle.microgrid.policies import finalists, job_loss, relaxed_return
from powerzoo_jax.oracle.microgrid.priced import MicrogridPlans
from powerzoo_jax.oracle.reference import execute
from powerzoo_jax.tasks.score import SEED, all_starts, episode_keys, seeded_starts

ROUNDED = 2e-3  # of a return near 80, played in float32 over 288 steps
EPISODE = 5  # of the seeded ones, where jobs compete for power
CROWDED = 13  # of the test days, on which no order of the queues keeps every deadline


def test_a_searched_plan_returns_what_it_says_and_beats_the_habits():
    sim = powerzoo_jax.make("dc_microgrid", split="val")
    draws = seeded_starts(sim, EPISODE + 1, SEED)
    draws = type(draws)(*(x[EPISODE:] for x in draws))
    planner = MicrogridPlans(sim, draws, episode_keys(SEED, 1))
    plan = planner.plan(0, np.zeros(len(sim.spec.cost_names)))
    played = execute(sim, draws, SEED, [plan])
    assert abs(played.mean_reward - plan.value) < ROUNDED and plan.value <= plan.bound
    # with the order of the queues and a price on heat the bound is closer, and still one
    budget = dict(zip(sim.spec.cost_names, sim.spec.cost_budget, strict=True))["overtemp"]
    closer = planner.bound(0, planner.least_price) + planner.least_price.max() * budget
    assert plan.value <= closer < plan.bound
    problem = planner.problems[0]
    habits = [
        planner._dispatched(0, trail)[0] - job_loss(problem, trail, problem.missed_usd)
        for trail in finalists(problem, planner.trails[0], problem.missed_usd)
    ]
    assert plan.value > max(habits)


def test_a_day_that_keeps_no_deadline_of_all_is_bounded_with_a_miss():
    sim = powerzoo_jax.make("dc_microgrid", split="test")
    planner = MicrogridPlans(sim, take(all_starts(sim), slice(CROWDED, CROWDED + 1)), episode_keys(SEED, 1))
    nothing = np.zeros(len(sim.spec.cost_names))
    without = relaxed_return(planner.problems[0])
    bound = planner.bound(0, nothing)
    assert planner.unavoidable == {0: 1} and bound < without - 1.0
    # no habit does better, though some miss one job only
    played = [trail for trail in planner.trails[0] if round(float(trail.missed.sum())) == 1]
    assert played and max(float(trail.total) for trail in played) < bound
