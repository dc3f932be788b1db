"""Dispatch at a price of overload: its bound holds for any dispatch, and its plans keep a budget of the mean."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.oracle import best, evaluate_baseline, get_priced
from powerzoo_jax.oracle.lagrangian import PlanPool, choose_plans, dual_value, search_prices
from powerzoo_jax.oracle.transmission import priced
from powerzoo_jax.oracle.transmission.dispatch import free_floor, host_system, rated_floor, reachable
from powerzoo_jax.tasks.score import SEED, episode_keys, keeps, seeded_starts

LOADS = 9
CLOSE = 2e-3  # relative: costs of units in 16 straight pieces, and a grid of nine loads
ROUNDED = 1e-9  # relative, of sums in float64


@pytest.fixture(scope="module")
def sim():
    return powerzoo_jax.make("marl_opf", version=1, split="val")


@pytest.fixture(scope="module")
def narrow(sim):
    """The five units behind branches of less than their rating, and loads that overload some of them."""
    system = host_system(sim)
    system = dataclasses.replace(system, rate_mw=0.9 * system.rate_mw)
    return system, np.linspace(0.6, 0.9, LOADS) * system.high_mw.sum()


@pytest.mark.parametrize("overload_usd", [0.0, 2.0, 10.0, 300.0])
def test_no_dispatch_pays_less_than_the_floor_at_a_price_of_overload(narrow, overload_usd):
    system, grid = narrow
    on = np.ones(len(system.high_mw), bool)
    floor = rated_floor(system, on, grid, overload_usd)
    share = np.random.default_rng(0).random((4000, len(on)))
    p = system.low_mw + (system.high_mw - system.low_mw) * share
    load = p.sum(axis=1)  # also beyond the grid
    paid = system.cost(on, p, load) + overload_usd * system.overload(p, load)
    assert (floor.at(load) <= paid * (1 + ROUNDED)).all()
    # and it is the least that is paid at the loads of the grid
    planned = reachable(system, on, grid, scores=False, overload_usd=overload_usd).p_mw
    least = system.cost(on, planned, grid) + overload_usd * system.overload(planned, grid)
    np.testing.assert_allclose(floor.at(grid), least, rtol=CLOSE)


def test_prices_lead_from_no_ratings_to_kept_ones(narrow):
    system, grid = narrow
    on = np.ones(len(system.high_mw), bool)
    over = []
    for price in (0.0, 20.0, 100.0):
        p = reachable(system, on, grid, scores=False, overload_usd=price).p_mw
        over.append(system.overload(p, grid).sum())
    assert over[0] > over[1] > over[2] and over[2] == pytest.approx(0.0, abs=1e-4)
    np.testing.assert_allclose(rated_floor(system, on, grid, 0.0).at(grid), free_floor(system, on[None], grid)[0])
    kept = rated_floor(system, on, grid).at(grid)
    np.testing.assert_allclose(rated_floor(system, on, grid, 1e4).at(grid), kept, rtol=ROUNDED)


def test_executed_the_plans_keep_the_budget_below_a_bound_that_holds_at_other_prices(sim, monkeypatch):
    monkeypatch.setattr(priced, "GRID", LOADS)
    draws, n = seeded_starts(sim, 3), 3
    planner, pool, budget = get_priced("marl_opf")(sim, draws, episode_keys(SEED, n)), PlanPool(), sim.spec.cost_budget
    budget = np.asarray(budget)
    rule = evaluate_baseline(sim, "rule", draws=draws)
    found = search_prices(planner, n, budget, pool=pool, anchor=rule.mean_reward)
    played = best.execute(sim, draws, SEED, choose_plans(pool, n, budget))
    assert keeps(np.array(list(played.mean_costs_by_constraint.values())), budget).all() and found.price[0] > 0
    assert rule.feasible and rule.mean_reward < played.mean_reward < found.bound
    for scale in (0.5, 2.0):
        bounds = np.array([planner.plan(day, scale * found.price).bound for day in range(n)])
        assert dual_value(scale * found.price, bounds, budget) >= played.mean_reward
