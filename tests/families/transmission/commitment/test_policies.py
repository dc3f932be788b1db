"""Reference policies of the tasks with commitment and of the market: order, bounds, and other engines beside them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.base.tree import take
from powerzoo_jax.families.market.plan import competition_index
from powerzoo_jax.families.transmission.commitment import secure as operatorplan
from powerzoo_jax.families.transmission.commitment.lagrangian import relax_commitment
from powerzoo_jax.families.transmission.commitment.policies import cheapest_path, combinations, switching_costs
from powerzoo_jax.families.transmission.plan.dispatch import free_floor, host_system, rated_floor, reachable
from powerzoo_jax.families.transmission.plan.episode import commitment_problem
from powerzoo_jax.families.transmission.plan.policies import each_load, load_grid
from powerzoo_jax.opf.commit import RESERVE_SHARE
from powerzoo_jax.oracle import evaluate_baseline, get_baselines, solve_commitment
from powerzoo_jax.tasks.score import episode_keys, evaluate, seeded_starts
from tests.families.transmission.commitment.test_plan import brute_force, small_problem
from tests.families.transmission.dispatch_episode import solve_dispatch

pytestmark = [pytest.mark.reference, pytest.mark.full]

EPISODES = 3


def judge(task: str, names: tuple[str, ...], episodes: int, **keywords):
    """Sim, draws, records by policy, and the oracle's foresight."""
    with jax.enable_x64(True):
        sim = powerzoo_jax.make(task, split="test", dtype="float64", **keywords)
        draws, baselines = seeded_starts(sim, episodes), get_baselines(task)
        records = {name: evaluate_baseline(sim, name, draws=draws) for name in names}
        foresight = baselines.oracle(sim, draws, episode_keys(42, episodes))
        records["oracle"] = evaluate(sim, foresight.policy.act, draws=draws, carry=foresight.policy.carry)
    return sim, draws, records, foresight


@pytest.fixture(scope="module")
def five_units():
    """Units without minimum times and ramps, which are planned exactly."""
    free = {"unit_technologies": (), "reserve_share": RESERVE_SHARE}
    return judge("marl_uc", ("random", "cheapest", "rule"), EPISODES, **free)


@pytest.fixture(scope="module")
def market():
    return judge("gencos_bidding", ("rule", "no_control", "max_markup"), 1)


@pytest.mark.long
def test_five_units_stand_in_order_below_both_bounds(five_units):
    _, _, records, foresight = five_units
    mean = {name: record.mean_reward for name, record in records.items()}
    assert mean["random"] < mean["rule"] < mean["oracle"]
    returns = np.array(records["oracle"].episode_rewards)
    np.testing.assert_allclose(returns, foresight.objective, rtol=1e-8)
    assert (returns <= foresight.kept_bound).all() and (foresight.kept_bound <= foresight.bound).all()
    assert foresight.kept_bound.mean() - returns.mean() < 0.02 * abs(returns.mean())


def test_the_bound_of_five_units_is_highs_optimum_without_a_network(five_units):
    """HiGHS plans units of linear cost exactly: its optimum lies between the executed plan and the bound."""
    sim, draws, records, foresight = five_units
    with jax.enable_x64(True):
        problems = [commitment_problem(sim, take(draws, i)) for i in range(EPISODES)]
    best = -1e-3 * np.array([solve_commitment(p, gap=1e-6).cost_usd for p in problems])
    np.testing.assert_allclose(foresight.bound, best, rtol=1e-5)
    assert (np.array(records["oracle"].episode_rewards) < best).all()


def test_the_cheapest_units_break_what_rule_and_oracle_keep(five_units):
    sim, _, records, _ = five_units
    budget = dict(zip(sim.spec.cost_names, sim.spec.cost_budget, strict=True))
    cost = {name: record.mean_costs_by_constraint for name, record in records.items()}
    assert cost["cheapest"]["reserve_shortfall"] > budget["reserve_shortfall"]
    for name in ("rule", "oracle"):
        assert cost[name]["thermal_overload"] < 0.8 * budget["thermal_overload"]
        assert cost[name]["reserve_shortfall"] == 0 and cost[name]["unserved_energy"] < 1e-9


@pytest.mark.long
def test_the_rated_floor_is_the_optimal_dispatch_of_the_interior_point():
    """Two solvers, two formulations: HiGHS on a grid of loads, and the batched interior point on every step."""
    with jax.enable_x64(True):
        sim = powerzoo_jax.make("marl_opf", split="test", max_load_ratio=1.0, dtype="float64")
        drawn = seeded_starts(sim, 1)
        plan = solve_dispatch(sim, take(drawn, 0))
    system, (load,) = host_system(sim), each_load(sim, drawn)
    on, grid = np.ones(5, bool), load_grid([load], 65)
    floor = rated_floor(system, on, grid).at(load)
    cost = plan.cost_usd / sim.env.dt_hours
    assert (floor <= cost * (1 + 1e-7)).all() and (floor >= 0.998 * cost).all()
    assert (free_floor(system, on[None], load)[0] <= floor + 1e-6).all()
    p, _ = reachable(system, on, grid, scores=False).at(load)
    assert (system.overload(p, load) < 1e-3).all()
    assert (system.cost(on, p, load) >= cost * (1 - 1e-7)).all()
    assert system.cost(on, p, load).sum() < 1.001 * cost.sum()


@pytest.mark.parametrize("seed", range(4))
def test_paths_and_priced_bounds_of_small_systems_agree_with_brute_force(seed):
    problem = small_problem(seed)
    best = brute_force(problem)
    relaxed = relax_commitment(problem).bound_usd
    assert 0.75 * best < relaxed <= best * (1 + 1e-9)
    free = problem.rules.replace(min_up=problem.rules.min_up * 0 + 1, min_down=problem.rules.min_down * 0 + 1)
    loose = replace(problem, rules=free)
    sets = combinations(free)
    first = int(np.flatnonzero((sets == np.asarray(problem.state.on)).all(1))[0])
    system = partial(_stage, loose)
    _, cost = cheapest_path(np.stack([system(on) for on in sets]), switching_costs(free, sets), first)
    assert cost == pytest.approx(brute_force(loose), rel=1e-6)
    assert cost <= best * (1 + 1e-9)


def _stage(problem, on: np.ndarray) -> np.ndarray:
    """Cost [USD] of every step with the units `on` in merit order."""
    low, high = (np.where(on, np.asarray(x, float), 0) for x in (problem.rules.p_min_mw, problem.rules.p_max_mw))
    order, costs = np.argsort(problem.costs.price[:, 0]), []
    for load in problem.load_mw:
        p, left = low.copy(), load - low.sum()
        for g in order:
            give = np.clip(left, 0, high[g] - low[g])
            p[g] += give
            left -= give
        money = problem.costs.price[:, 0] @ p + np.asarray(problem.rules.no_load_usd_per_hour, float) @ on
        costs.append(problem.dt_hours * (money + problem.voll * max(left, 0) + problem.surplus_price * max(-left, 0)))
    return np.array(costs)


@pytest.mark.long
def test_a_market_reports_the_sum_of_its_rivals_and_each_of_them(market):
    _, _, records, foresight = market
    for record in records.values():
        assert record.mean_reward == pytest.approx(sum(record.per_agent.values()), rel=1e-9)
    assert list(records["rule"].per_agent) == [f"genco_{i}" for i in range(5)]
    mean = {name: record.mean_reward for name, record in records.items()}
    assert mean["rule"] < mean["no_control"] < mean["oracle"]
    assert mean["max_markup"] <= mean["oracle"] * (1 + 1e-9) and mean["oracle"] <= foresight.bound.mean()


@pytest.mark.long
def test_competition_is_0_at_the_truth_and_1_at_the_best_joint_markup(market):
    _, _, records, _ = market
    paid = {name: record.metrics["consumer_cost_usd"] for name, record in records.items()}
    index = {name: competition_index(x, paid["rule"], paid["oracle"]) for name, x in paid.items()}
    assert index["rule"] == 0 and index["oracle"] == 1 and 0 < index["no_control"] < 1
    # money is kept: what consumers pay is what generators earn, and a congestion rent that is not negative
    for name, record in records.items():
        revenue = record.metrics["revenue"] * 5
        assert paid[name] >= revenue * (1 - 1e-6)
        assert record.metrics["mean_lmp_per_mwh"] > 0


def test_the_operator_plans_within_reserve_and_ratings_and_beats_the_list(monkeypatch):
    # a search that stops early: less good, not less legal
    monkeypatch.setattr(operatorplan, "GAP", 0.02)
    monkeypatch.setattr(operatorplan, "SECONDS", 300.0)
    sim, draws, records, foresight = judge("comparison_tso_centralized", ("rule", "merit_list"), 1)
    cost = {name: record.mean_costs_by_constraint for name, record in records.items()}
    assert records["rule"].mean_reward < records["oracle"].mean_reward
    np.testing.assert_allclose(records["oracle"].episode_rewards, foresight.objective, rtol=1e-6)
    assert (foresight.objective <= foresight.kept_bound).all() and (foresight.kept_bound <= foresight.bound).all()
    assert cost["oracle"]["reserve_shortfall"] == 0 and cost["oracle"]["thermal_overload"] < 8
    assert cost["rule"]["reserve_shortfall"] == 0 and cost["rule"]["thermal_overload"] < 8
    assert cost["merit_list"]["thermal_overload"] > 10
    with jax.enable_x64(True):
        relaxed = relax_commitment(commitment_problem(sim, take(draws, 0), RESERVE_SHARE)).bound_usd
    # on this day the plan's bound is that of the relaxation, whose loads were rounded to single precision
    rounding = 2 * np.finfo(np.float32).eps
    assert -1e-4 * relaxed >= foresight.kept_bound[0] * (1 + rounding)
