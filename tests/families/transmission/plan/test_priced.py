"""Dispatch at a price of overload: its bound holds for any dispatch, and its plans keep a budget of the mean."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.families.transmission.plan import priced
from powerzoo_jax.families.transmission.plan.dispatch import (
    LEAST,
    MOST,
    free_floor,
    host_system,
    rated_floor,
    reachable,
    reached_floor,
)
from powerzoo_jax.oracle import OraclePlan, evaluate_baseline, foresight, get_baselines, get_priced, reference
from powerzoo_jax.oracle.lagrangian import PlanPool, choose_plans, dual_value, search_prices
from powerzoo_jax.tasks.score import SEED, episode_keys, keeps, seeded_starts

LOADS = 9
CLOSE = 2e-3  # relative: costs of units in 16 straight pieces, and a grid of nine loads
REFINED = 1e-6  # relative: the pieces of the last refinement
ROUNDED = 1e-9  # relative, of sums in float64
FLOAT32 = 1e-5  # relative, of returns


@pytest.fixture(scope="module")
def sim():
    return powerzoo_jax.make("marl_opf", split="val")


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


@pytest.mark.full
@pytest.mark.parametrize("scores", [False, True])
def test_where_costs_rise_more_loads_make_plans_cheaper_and_close_to_their_floor(scores):
    """Plans at the corners of few wide pieces cost less where two of them are mixed: a coarser grid then wins."""
    # the ratings of the case: at those of the task nothing serves the highest of these loads
    system = host_system(powerzoo_jax.make("opf_118", split="val", rating_scale=1.0))
    on, finer = np.ones(len(system.high_mw), bool), np.linspace(0.5, 0.8, LOADS) * system.high_mw.sum()
    load = np.linspace(finer[0], finer[-1], 200)
    plans = [reachable(system, on, grid, scores=scores).at(load)[0] for grid in (finer, finer[::2])]
    fine, coarse = (system.cost(on, p, load) for p in plans)
    assert system.costs.slope.any() and (fine <= coarse * (1 + REFINED)).all() and fine.sum() < coarse.sum()
    if not scores:
        p = reachable(system, on, finer, scores=False).p_mw
        np.testing.assert_allclose(system.cost(on, p, finer), rated_floor(system, on, finer).at(finer), rtol=REFINED)


def test_scores_reach_nothing_below_their_own_floor_which_lies_above_that_of_free_dispatch(narrow):
    system, grid = narrow
    on, price, rng = np.ones(len(system.high_mw), bool), 10.0, np.random.default_rng(1)
    floor = reached_floor(system, on, grid, price)
    weight = np.exp(rng.uniform(np.log(LEAST), np.log(MOST), (4000, len(on))))
    level = np.exp(rng.uniform(0.0, 7.0, (4000, 1)))
    p = system.low_mw + np.minimum(system.high_mw - system.low_mw, level * weight)
    load = p.sum(axis=1)
    inside = (grid[0] <= load) & (load <= grid[-1])
    p, load = p[inside], load[inside]
    paid = system.cost(on, p, load) + price * system.overload(p, load)
    assert len(load) > 400 and (floor.at(load) <= paid * (1 + ROUNDED)).all()
    curve = reachable(system, on, grid, scores=True, overload_usd=price).p_mw
    planned = system.cost(on, curve, grid) + price * system.overload(curve, grid)
    free = rated_floor(system, on, grid, price).at(grid)
    assert (free <= floor.at(grid) * (1 + ROUNDED)).all() and (floor.at(grid) <= planned * (1 + ROUNDED)).all()
    # of what the scores cost beyond free dispatch, the floor explains most
    assert (planned - floor.at(grid)).sum() < 0.5 * (planned - free).sum()


@pytest.mark.full
def test_executed_the_plans_keep_the_budget_below_a_bound_that_holds_at_other_prices(sim, monkeypatch):
    monkeypatch.setattr(priced, "GRID", LOADS)
    draws, n = seeded_starts(sim, 3), 3
    planner, pool, budget = get_priced("marl_opf")(sim, draws, episode_keys(SEED, n)), PlanPool(), sim.spec.cost_budget
    budget = np.asarray(budget)
    rule = evaluate_baseline(sim, "rule", draws=draws)
    found = search_prices(planner, n, budget, pool=pool, anchor=rule.mean_reward)
    played = reference.execute(sim, draws, SEED, choose_plans(pool, n, budget))
    assert keeps(np.array(list(played.mean_costs_by_constraint.values())), budget).all() and found.price[0] > 0
    assert rule.feasible and rule.mean_reward < played.mean_reward < found.bound
    reached = [planner.reached_bound(day, found.price) for day in range(n)]
    assert played.mean_reward <= dual_value(found.price, np.array(reached), budget) <= found.bound
    for scale in (0.5, 2.0):
        bounds = np.array([planner.plan(day, scale * found.price).bound for day in range(n)])
        assert dual_value(scale * found.price, bounds, budget) >= played.mean_reward


@pytest.mark.full
def test_where_plans_break_a_budget_of_the_mean_the_rule_stands_in(sim, monkeypatch):
    """Merit order, blind to the network, in the part of the oracle."""
    draws, n = seeded_starts(sim, 3), 3
    keys, baselines = episode_keys(SEED, n), get_baselines("marl_opf")
    blind = OraclePlan(baselines.rules["merit"](sim, draws, keys), *np.full((3, n), np.inf))
    toy = dataclasses.replace(baselines, oracle=lambda *_: blind)
    monkeypatch.setattr(foresight, "get_baselines", lambda task: toy)
    planner, pool, budget = foresight.OraclePlans(sim, draws, keys), PlanPool(), np.asarray(sim.spec.cost_budget)
    merit, rule = planner.played
    assert merit.cost[:, 0].mean() > budget[0] > rule.cost[:, 0].mean() and planner.most_price[0] > 0
    search_prices(planner, n, budget, pool=pool)
    played = reference.play_best(sim, draws, SEED, pool)
    assert played.feasible and rule.value.mean() <= played.mean_reward * (1 - FLOAT32) < merit.value.mean()
