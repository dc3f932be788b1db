"""Priced plans of a microgrid: what is searched is executed as planned, no worse than the habits, and bounded."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.base.tree import take
from powerzoo_jax.families.microgrid.plan.policies import finalists, job_loss, relaxed_return
from powerzoo_jax.families.microgrid.plan.priced import MicrogridPlans, _cuts
from powerzoo_jax.oracle.datacenter.program import idle_it_mw
from powerzoo_jax.oracle.datacenter.search import MODES, plant_costs, play_plans, read_work
from powerzoo_jax.oracle.reference import execute
from powerzoo_jax.tasks.score import SEED, all_starts, episode_keys, seeded_starts

ROUNDED = 2e-3  # of a return near 80, played in float32 over 288 steps
EPISODE = 5  # of the seeded ones, where jobs compete for power
CROWDED = 13  # of the test days, on which no order of the queues keeps every deadline


@pytest.mark.full
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


@pytest.mark.full
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


@pytest.mark.full
def test_a_dispatch_bounds_what_the_plant_costs_beside_all_other_jobs():
    """Subgradients: the cut of a dispatch meets its own cost and lies below every other, as HiGHS finds them."""
    sim = powerzoo_jax.make("dc_microgrid", split="val")
    planner = MicrogridPlans(sim, take(all_starts(sim), slice(3, 4)), episode_keys(SEED, 1))
    problem, trails = planner.problems[0], planner.trails[0]
    known = [(trail, planner._dispatched(0, trail)) for trail in trails]
    idle, costs = idle_it_mw(problem), np.array([-found.earned for _, found in known])
    for k in range(len(known)):
        cut = _cuts(problem, [known[k]])
        below = np.array([cut.base[0] + cut.slope[0] @ (trail.it_mw - idle) for trail in trails])
        assert below[k] == pytest.approx(costs[k], abs=1e-4) and (below <= costs + 1e-4).all()
    assert np.ptp(costs) > 10  # the habits differ


def test_the_model_of_the_queues_draws_the_power_that_the_environment_does():
    """Random modes, any weights of the steps: power of jobs less the inference that gives way."""
    sim = powerzoo_jax.make("dc_microgrid", split="val")
    planner = MicrogridPlans(sim, take(all_starts(sim), slice(3, 4)), episode_keys(SEED, 1))
    problem, rng = planner.problems[0], np.random.default_rng(3)
    work = read_work(problem, np.zeros(problem.horizon), planner.sizes)
    modes = np.repeat(rng.integers(0, len(MODES), (problem.horizon // 12, 2, 8)), 12, axis=0)
    _, gpus, running = play_plans(work, modes, jnp.zeros((planner.sizes.jobs + 1, 8), "float32"))
    weight = rng.uniform(0, 1, problem.horizon).astype("float32")
    plant = _cuts(problem, [])._replace(base=np.zeros(1, "float32"), slope=weight[None])
    modelled, idle, aside = np.asarray(plant_costs(work, plant, running)), idle_it_mw(problem), 0
    for k in range(8):
        it_mw = planner._played(0, np.asarray(gpus)[..., k]).it_mw
        assert modelled[k] == pytest.approx(weight @ (it_mw - idle), rel=1e-4)
        aside += (np.asarray(running)[..., k].sum(axis=1) > work.beside).sum()
    assert aside > 0 and np.ptp(modelled) > 1
