"""The storage oracle against hand-made optima, a dynamic programme and the environment itself."""

from __future__ import annotations

import dataclasses
from functools import cache

import jax
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.base.tree import take
from powerzoo_jax.families.feeder.arbitrage.problem import branches, storage_program
from powerzoo_jax.oracle import (
    StorageEpisode,
    build_problems,
    certify,
    evaluate_baseline,
    evaluate_plans,
    get_baselines,
    play,
    rule_plan,
    solve_starts,
    solve_storage,
)
from powerzoo_jax.oracle.linear_program import dual_bound
from powerzoo_jax.tasks.score import all_starts, episode_keys

pytestmark = pytest.mark.reference

HAND = 1e-9  # float64 arithmetic on tens of dollars, and the 1e-10 feasibility that HiGHS is asked for
EXACT = 1e-6  # a plan stored in float64 and executed in float64, over 48 steps
SINGLE = 1e-4  # the same in float32: 48 roundings of tens of dollars
SINGLE_MW = 1e-5  # a state of charge resolved to 6e-8 clips about 1e-7 MW a step
GRID = 0.01  # share of the optimum that a grid of 401 states of charge may lose to rounding of the power


def problem(price, *, mean=None, dt_hours=1.0, eta=1.0, wear=0.0, capacity=1.0, power=0.5, band=(0.0, 1.0), **fields):
    """One battery at half charge with a made-up price."""
    price = np.asarray(price, float)
    one = {
        "soc_start": 0.5,
        "soc_min": band[0],
        "soc_max": band[1],
        "capacity_mwh": capacity,
        "power_mw": power,
        "eta_charge": eta,
        "eta_discharge": eta,
        "degradation_per_mwh": wear,
    }
    return StorageEpisode(
        price_per_mwh=price,
        mean_price_per_mwh=float(price.mean() if mean is None else mean),
        dt_hours=dt_hours,
        mask=np.ones(1, bool),
        **{name: np.array([value]) for name, value in one.items()},
        **fields,
    )


def day(price, **keywords):
    """The battery of the task with a made-up half-hourly price."""
    settings = {"dt_hours": 0.5, "eta": np.sqrt(0.95), "wear": 5.0, "capacity": 0.5, "power": 0.2, "band": (0.1, 0.9)}
    return problem(price, **settings | keywords)


def price_curve(seed, *, level=40.0, dip=0.0):
    """A plausible day: two peaks, a noon dip of chosen depth and noise, 48 half hours."""
    hour = np.repeat(np.arange(24), 2)
    peaks = 25 * np.exp(-((hour - 8) ** 2) / 6) + 35 * np.exp(-((hour - 19) ** 2) / 8)
    noise = np.repeat(np.random.default_rng(seed).normal(0, 5, 24), 2)
    return level + peaks - dip * np.exp(-((hour - 13) ** 2) / 4) + noise


def best_on_grid(case, n_state):
    """Dynamic programme over a grid of stored energies: a feasible plan, so never above the optimum."""
    capacity, eta_c, eta_d = case.capacity_mwh[0], case.eta_charge[0], case.eta_discharge[0]
    energy = np.linspace(case.soc_min[0], case.soc_max[0], n_state) * capacity
    start = case.soc_start[0] * capacity
    first = int(np.argmin(np.abs(energy - start)))
    assert abs(energy[first] - start) < HAND
    rise = energy[None] - energy[:, None]
    p_mw = -np.where(rise > 0, rise / eta_c, rise * eta_d) / case.dt_hours
    usable = np.abs(p_mw) <= case.power_mw[0] + HAND
    change = energy - start
    value = case.mean_price_per_mwh * np.where(change > 0, change * eta_d, change / eta_c)
    for price in case.price_per_mwh[::-1]:
        earned = case.dt_hours * (price * p_mw - case.degradation_per_mwh[0] * np.abs(p_mw))
        value = np.where(usable, earned + value[None], -np.inf).max(axis=1)
    return float(value[first])


@cache
def solved_split():
    sim = powerzoo_jax.make("battery_arbitrage", split="test")
    draws = all_starts(sim)
    return sim, draws, solve_starts(sim, draws)


def test_two_lossless_steps_buy_low_and_sell_high():
    solution = solve_storage(problem([10.0, 50.0]))
    np.testing.assert_allclose(solution.plan_mw[:, 0], [-0.5, 0.5], atol=HAND)
    assert solution.objective == pytest.approx(20.0, abs=HAND)
    assert solution.bound == pytest.approx(20.0, abs=HAND)


def test_losses_wear_and_settlement_enter_the_optimum_as_by_hand():
    # buys 0.5 MWh (0.45 stored), sells 0.5 MWh (0.5 / 0.9 drawn), settles the fall at 30 / 0.9, wears 1 MWh at 5
    by_hand = 25 - 5 - 30 / 0.9 * (0.5 / 0.9 - 0.45) - 5
    solution = solve_storage(problem([10.0, 50.0], eta=0.9, wear=5.0))
    np.testing.assert_allclose(solution.plan_mw[:, 0], [-0.5, 0.5], atol=HAND)
    assert solution.objective == pytest.approx(by_hand, abs=HAND)


@pytest.mark.parametrize(
    ("price", "by_hand"),
    [
        # buys 0.5 MWh (0.4 stored), sells 0.5 MWh (0.5 / 0.9 drawn): the fall is settled at 30 / 0.8
        ([10.0, 50.0], 25 - 5 - 30 / 0.8 * (0.5 / 0.9 - 0.4)),
        # fills up: 0.5 MWh at 10 store 0.4, 0.125 MWh at 20 the last 0.1; the rise is settled at 30 * 0.9
        ([10.0, 20.0], 30 * 0.9 * 0.5 - 5 - 2.5),
    ],
)
def test_each_direction_has_its_own_efficiency(price, by_hand):
    case = dataclasses.replace(problem(price, mean=30.0), eta_charge=np.array([0.8]), eta_discharge=np.array([0.9]))
    solution = solve_storage(case)
    assert solution.objective == pytest.approx(by_hand, abs=HAND)
    assert solution.bound == pytest.approx(by_hand, abs=HAND)


def test_a_flat_price_pays_for_nothing():
    solution = solve_storage(day(np.full(48, 40.0)))
    np.testing.assert_allclose(solution.plan_mw, 0.0, atol=HAND)
    assert solution.objective == pytest.approx(0.0, abs=HAND)


def test_emptying_the_battery_at_the_mean_price_earns_nothing():
    # one step at the mean price: selling x earns 40 x and costs 40 x / (eta_d eta_c) in settlement
    assert solve_storage(problem([40.0], eta=0.9)).objective == pytest.approx(0.0, abs=HAND)


@pytest.mark.parametrize("dip", [0.0, 60.0, 120.0])
def test_the_linear_programme_is_the_limit_of_the_dynamic_one(dip):
    case = day(price_curve(3, dip=dip))
    solution = solve_storage(case)
    coarse, fine = best_on_grid(case, 101), best_on_grid(case, 401)
    assert coarse <= solution.objective + HAND and fine <= solution.objective + HAND
    assert solution.objective - fine <= GRID * solution.objective
    assert solution.objective - fine < solution.objective - coarse


@pytest.mark.parametrize("index", [0, 20, 40, 65])
def test_real_days_agree_with_the_dynamic_programme(index):
    sim, draws, solutions = solved_split()
    case = build_problems(sim, take(draws, slice(index, index + 1)))[0]
    # the store's band in float32 is off the grid by 1e-9: plan for the same battery in round numbers
    case = day(case.price_per_mwh, mean=case.mean_price_per_mwh)
    objective = solve_storage(case).objective
    assert objective == pytest.approx(solutions[index].objective, rel=SINGLE, abs=SINGLE)
    assert -HAND <= objective - best_on_grid(case, 401) <= GRID * objective + HAND


def test_a_price_that_pays_for_wasting_energy_needs_exclusive_steps_and_gets_them():
    case = day(np.where(np.arange(48) < 24, -400.0, 600.0))
    solution = solve_storage(case)
    assert solution.integer
    np.testing.assert_allclose(play(case, solution.plan_mw).p_mw, solution.plan_mw, atol=HAND)
    fine = best_on_grid(case, 401)
    assert -HAND <= solution.objective - fine <= GRID * solution.objective
    # the relaxation could waste energy in every cheap step: its bound holds, and the gap says how far it is off
    assert solution.gap > 1.0


def test_mildly_negative_prices_need_no_binary():
    solution = solve_storage(day(price_curve(5, dip=120.0)))
    assert not solution.integer and abs(solution.gap) <= HAND


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_negative_mean_price_is_solved_on_both_sides_of_the_settlement(seed):
    case = day(price_curve(seed, level=-60.0))
    assert branches(case) == ("rise", "fall")
    solution = solve_storage(case)
    fine = best_on_grid(case, 401)
    assert -HAND <= solution.objective - fine <= GRID * abs(solution.objective)
    assert solution.objective <= solution.bound + HAND


def test_the_bound_holds_for_any_multipliers_and_is_tight_for_those_of_the_solver():
    case = day(price_curve(1))
    solution = solve_storage(case)
    dual, (program, _) = solution.duals[0]["free"], storage_program(case, 0, "free")
    assert -dual_bound(program, dual) == pytest.approx(solution.objective, abs=HAND)
    for scale in (1e-3, 1.0, 100.0):
        wrong = dual + scale * np.random.default_rng(2).normal(size=dual.shape)
        assert -dual_bound(program, wrong) > solution.objective


def test_the_certificate_recomputes_what_the_solution_states():
    case = day(price_curve(4))
    solution = solve_storage(case)
    certificate = certify(case, solution.plan_mw, solution.duals)
    assert certificate.profit_usd == solution.objective and certificate.bound_usd == solution.bound
    assert abs(certificate.bound_usd - certificate.profit_usd) <= HAND
    rule = certify(case, rule_plan(case), solution.duals)
    assert rule.bound_usd - rule.profit_usd > 0.1


def test_a_padded_battery_is_left_idle_and_out_of_the_bound():
    case = day(price_curve(6))
    names = ("soc_start", "soc_min", "soc_max", "capacity_mwh", "power_mw")
    names += ("eta_charge", "eta_discharge", "degradation_per_mwh")
    wide = {name: np.concatenate([getattr(case, name), [1.0]]) for name in names}
    padded = solve_storage(dataclasses.replace(case, mask=np.array([True, False]), **wide))
    alone = solve_storage(case)
    np.testing.assert_allclose(padded.plan_mw, np.column_stack([alone.plan_mw[:, 0], np.zeros(48)]), atol=HAND)
    assert padded.bound == pytest.approx(alone.bound, abs=HAND)


@pytest.mark.full
def test_executed_in_single_precision_the_plan_earns_what_the_programme_says():
    sim, draws, solutions = solved_split()
    record = evaluate_plans(sim, np.stack([s.plan_mw for s in solutions]), draws)
    planned = np.array([s.objective for s in solutions])
    np.testing.assert_allclose(record.episode_rewards, planned, rtol=SINGLE, atol=SINGLE)
    assert record.cost_violation_rate == 0.0
    assert all(abs(x) <= SINGLE_MW for costs in record.episode_costs_by_constraint.values() for x in costs)


@pytest.mark.long
def test_executed_in_double_precision_the_plan_earns_what_the_programme_says():
    with jax.enable_x64(True):
        sim = powerzoo_jax.make("battery_arbitrage", split="test", dtype="float64")
        draws = all_starts(sim)
        solutions = solve_starts(sim, draws)
        record = evaluate_plans(sim, np.stack([s.plan_mw for s in solutions]), draws)
    planned = np.array([s.objective for s in solutions])
    np.testing.assert_allclose(record.episode_rewards, planned, atol=EXACT)
    assert (np.array([s.bound for s in solutions]) >= np.array(record.episode_rewards) - EXACT).all()
    assert all(abs(x) <= EXACT for costs in record.episode_costs_by_constraint.values() for x in costs)


def test_on_every_test_day_no_plan_beats_the_oracle():
    sim, draws, solutions = solved_split()
    rule = np.array([play(p, rule_plan(p)).profit_usd.sum() for p in build_problems(sim, draws)])
    oracle = np.array([s.objective for s in solutions])
    assert (rule <= oracle + HAND).all() and (oracle >= -HAND).all()
    assert max(s.gap for s in solutions) <= HAND and not any(s.integer for s in solutions)


@pytest.mark.full
def test_random_is_below_rule_is_below_oracle_and_the_rule_earns_what_a_rule_should():
    sim, draws, solutions = solved_split()
    random = evaluate_baseline(sim, "random", draws=draws).mean_reward
    rule = evaluate_baseline(sim, "rule", draws=draws).mean_reward
    oracle = np.mean([s.objective for s in solutions])
    assert random < 0 < rule < oracle
    assert rule / oracle == pytest.approx(0.57, abs=0.01)
    assert (rule - random) / (oracle - random) == pytest.approx(0.85, abs=0.03)


@pytest.mark.long
def test_no_policy_beats_the_bound_on_any_test_day():
    """Rules, the oracle and random play of every day, each against the bound of the day itself."""
    with jax.enable_x64(True):
        sim = powerzoo_jax.make("battery_arbitrage", split="test", dtype="float64")
        draws, baselines = all_starts(sim), get_baselines("battery_arbitrage")
        foresight = baselines.oracle(sim, draws, episode_keys(42, draws.load_row.shape[0]))
        returns = {name: evaluate_baseline(sim, name, draws=draws).episode_rewards for name in ("random", "rule")}
    assert all((np.asarray(earned) <= foresight.bound + EXACT).all() for earned in returns.values())
    assert (foresight.objective <= foresight.bound + EXACT).all()
