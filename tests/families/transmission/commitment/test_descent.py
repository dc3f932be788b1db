"""Unit decommitment: exact stage costs, legal paths that never get dearer, and priced plans of the operator's task."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.families.transmission.commitment.descent import MISSING_USD, dearest_first, descend, running_costs
from powerzoo_jax.families.transmission.commitment.lagrangian import relax_commitment
from powerzoo_jax.families.transmission.commitment.plan import solve_commitment
from powerzoo_jax.families.transmission.commitment.priced import CommitmentPlans
from powerzoo_jax.families.transmission.commitment.problem import play_commitment
from powerzoo_jax.oracle import evaluate_baseline, get_baselines
from powerzoo_jax.oracle.foresight import play_plans
from powerzoo_jax.oracle.registry import follow
from powerzoo_jax.tasks.score import SEED, episode_keys, seeded_starts
from tests.families.transmission.commitment.test_plan import brute_force, small_problem

FREE = np.zeros((4, 3))  # no tolls


def as_before(problem) -> np.ndarray:
    """The commitment that switches nothing, (T, G)."""
    return np.tile(np.asarray(problem.state.on), (4, 1))


@pytest.mark.parametrize("seed", range(4))
def test_the_cost_of_a_step_is_that_of_its_cheapest_dispatch(seed):
    problem = small_problem(seed)
    on = as_before(problem)
    plan = solve_commitment(problem, commitment=on, gap=0.0)
    assert running_costs(problem, on, FREE).sum() == pytest.approx(plan.cost_usd, rel=1e-5)
    # an output tolled everywhere alike costs as much more as is produced, where that stays the same
    tolled = running_costs(problem, on, FREE + 1.0).sum()
    assert tolled <= plan.cost_usd + 0.5 * plan.p_mw.sum() + 1e-6 * plan.cost_usd
    short = replace(problem, reserve_mw=1e3 - problem.load_mw)
    missing = np.maximum(1e3 - on @ np.asarray(problem.rules.p_max_mw, np.float64), 0)
    more = running_costs(short, on, FREE) - running_costs(problem, on, FREE)
    np.testing.assert_allclose(more, MISSING_USD * missing, rtol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_units_replanned_one_by_one_stay_legal_and_get_no_dearer(seed):
    problem = small_problem(seed)
    start = as_before(problem)
    on = descend(problem, start, FREE, dearest_first(problem))
    before, after = (solve_commitment(problem, commitment=plan, gap=0.0) for plan in (start, on))
    assert play_commitment(problem, on, after.p_mw).illegal == 0
    best = brute_force(problem)
    assert best * (1 - 1e-6) <= after.cost_usd <= before.cost_usd * (1 + 1e-6)
    assert after.cost_usd < 1.05 * best
    # nothing is left to mend for any unit alone
    np.testing.assert_array_equal(descend(problem, on, FREE, dearest_first(problem)), on)


@pytest.mark.parametrize("seed", [1, 2])
def test_missing_reserve_at_a_price_is_bounded_from_below(seed):
    problem = small_problem(seed)
    capacity = np.asarray(problem.rules.p_max_mw, np.float64)
    light = replace(problem, load_mw=np.full(4, 0.3 * capacity.sum()))
    needed = replace(light, reserve_mw=0.9 * capacity.sum() - light.load_mw)
    plan = solve_commitment(light, gap=0.0)  # heeds no reserve
    missing = np.maximum(0.9 * capacity.sum() - plan.on @ capacity, 0).sum()
    for price in (0.0, 1.0, 3.0):
        bound = relax_commitment(replace(needed, reserve_usd=price)).bound_usd
        assert bound <= (plan.cost_usd + price * missing) * (1 + 1e-9)
    # a reserve that must be kept costs more than this plan and a dollar a MW
    assert relax_commitment(needed).bound_usd > plan.cost_usd + missing


@pytest.mark.full
@pytest.mark.full
def test_plans_of_the_operator_keep_reserve_and_ratings_and_earn_more_than_the_rule():
    sim = powerzoo_jax.make("comparison_tso_centralized", split="val")
    draws = seeded_starts(sim, 1, SEED)
    planner = CommitmentPlans(sim, draws, episode_keys(SEED, 1))
    rule = evaluate_baseline(sim, "rule", draws=draws).mean_reward
    plan = planner.plan(0, planner.most_price)
    budget = np.asarray(sim.spec.cost_budget)
    assert (plan.cost <= budget).all() and rule < plan.value < plan.bound
    assert plan.value < planner.bound(0, 0 * planner.most_price)


@pytest.mark.full
@pytest.mark.full
def test_few_units_have_plans_close_to_a_bound_that_no_policy_exceeds():
    sim, n = powerzoo_jax.make("marl_uc", split="val"), 2
    draws, keys = seeded_starts(sim, n, SEED), episode_keys(SEED, n)
    planner, rules = CommitmentPlans(sim, draws, keys), get_baselines("marl_uc").rules
    price = 0.8 * planner.most_price
    plans = [planner.plan(day, price) for day in range(n)]
    free = np.array([planner.bound(day, 0 * price) for day in range(n)])
    random = np.random.default_rng(4).uniform(-1, 1, (n, sim.spec.horizon, sim.env.dims.agent, 2))
    policies = [follow(sim, random), *(rules[name](sim, draws, keys) for name in rules)]
    played = [play_plans(sim, draws, keys, policy) for policy in policies]
    worth = np.array([p.value - p.cost @ price for p in played])
    best = np.array([plan.value - plan.cost @ price for plan in plans])
    known = [max(planner.known[day].value - planner.known[day].cost @ price) for day in range(n)]
    bound, rule = np.array([plan.bound for plan in plans]), worth[1 + list(rules).index("rule")]
    assert (
        (worth.max(axis=0) <= bound).all() and (best == known).all() and (best < bound).all() and (bound < free).all()
    )
    # of what lies between rule and bound, the plans reach most
    assert (bound - best).sum() < 0.1 * (bound - rule).sum()
