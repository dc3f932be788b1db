"""Baselines, plans and the reference table."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.base.tree import take
from powerzoo_jax.devices import storage, storage_params
from powerzoo_jax.oracle import (
    build_problem,
    build_problems,
    evaluate_baseline,
    get_reference,
    plan_act,
    plan_carry,
    play,
    random_act,
    rule_plan,
    solve_starts,
    solve_storage,
)
from powerzoo_jax.oracle.linear_program import ProgramWriter, solve
from powerzoo_jax.tasks.score import all_starts

SHIPPED = 2e-4  # relative: the table is computed in float64, a fresh evaluation in float32
EXACT = 1e-9  # float64 on the host
SPLITS = ("train", "val", "test", "price_stress")


@cache
def sim():
    return powerzoo_jax.make("battery_arbitrage", split="test")


@cache
def first_problem():
    return build_problem(sim(), take(all_starts(sim()), 0))


def with_price(price):
    return dataclasses.replace(first_problem(), price_per_mwh=np.asarray(price, float))


@pytest.mark.full
def test_a_problem_holds_the_prices_that_the_env_pays():
    drawn, case = take(all_starts(sim()), 0), first_problem()
    state, _ = sim().env.begin(jax.random.key(0), drawn, sim().params)
    step = jax.jit(lambda s, x, a: s.step(x, a))
    for t in range(3):
        out = step(sim(), state, np.zeros((1, 1), np.float32))
        assert float(out.info.price_per_mwh) == case.price_per_mwh[t]
        state = out.state
    assert case.mean_price_per_mwh == pytest.approx(case.price_per_mwh.mean(), rel=1e-6)  # stored in float32
    assert case.price_per_mwh.shape == (48,) and case.price_per_mwh.dtype == np.float64


def test_a_plan_is_played_as_the_storage_kernel_would():
    case = dataclasses.replace(first_problem(), eta_charge=np.array([0.8]), eta_discharge=np.array([0.9]))
    commands = np.random.default_rng(5).uniform(-0.3, 0.3, (48, 1))
    played = play(case, commands)
    with jax.enable_x64(True):
        fleet = storage_params(1, "float64", capacity_mwh=0.5, power_mw=0.2, degradation_per_mwh=5.0)
        fleet = fleet.replace(
            **{f.name: jnp.asarray(getattr(case, f.name)) for f in dataclasses.fields(fleet) if hasattr(case, f.name)}
        )
        state = storage.init(fleet, jnp.asarray(case.soc_start))
        for t, command in enumerate(commands):
            state, delivery = storage.step(fleet, state, jnp.asarray(command), case.dt_hours)
            np.testing.assert_allclose(played.p_mw[t], delivery.p_mw, atol=EXACT)
            np.testing.assert_allclose(played.soc[t + 1], state.soc, atol=EXACT)


def test_a_stacked_sim_has_no_single_problem():
    with pytest.raises(ValueError, match="one by one"):
        build_problem(powerzoo_jax.stack([sim(), sim()]), take(all_starts(sim()), 0))


def test_a_task_with_other_money_is_refused():
    other = sim().replace(spec=dataclasses.replace(sim().spec, term_names=("losses",), term_weights=(1.0,)))
    with pytest.raises(ValueError, match="pays for losses"):
        build_problem(other, take(all_starts(sim()), 0))


def test_the_rule_charges_the_cheapest_and_discharges_the_dearest_quarter():
    price = np.repeat(np.arange(24.0), 2)
    plan = rule_plan(with_price(price))[:, 0]
    hours = plan.reshape(24, 2).mean(axis=1)
    # percentiles 5.75 and 17.25: hours 0..5 are cheap and 18..23 dear; the store fills and empties before they end
    assert (hours[:6] <= 0).all() and hours[0] < 0 and hours[6:18].max() == hours[6:18].min() == 0.0
    assert hours[18] == pytest.approx(0.2, rel=1e-6) and hours[23] == 0.0


def test_the_rule_reads_the_percentiles_of_each_day_alone():
    day = np.repeat(np.arange(24.0), 2)
    twice = rule_plan(with_price(np.concatenate([day, day + 100.0])))[:, 0]
    once = rule_plan(with_price(day))[:, 0]
    np.testing.assert_allclose(twice[:48], once, atol=EXACT)
    assert twice[48:].min() < 0 < twice[48:].max()


def test_the_rule_stays_idle_on_a_flat_day():
    assert not rule_plan(with_price(np.full(48, 40.0))).any()


def test_the_rule_asks_for_nothing_the_store_cannot_do():
    for case in build_problems(sim(), take(all_starts(sim()), slice(0, 5))):
        plan = rule_plan(case)
        np.testing.assert_allclose(play(case, plan).p_mw, plan, atol=EXACT)


def test_a_plan_is_followed_step_by_step():
    plans = np.linspace(-0.2, 0.2, 48)[None, :, None]
    carry = take(plan_carry(sim(), plans), 0)
    for t in range(3):
        carry, action = plan_act(carry, np.zeros(1), jax.random.key(0))
        assert action.shape == (1, 1)
        assert float(action[0, 0]) == pytest.approx(plans[0, t, 0] / 0.2, rel=1e-6)


def test_random_actions_fill_the_action_space():
    act, obs = random_act(sim()), np.zeros((1, 202), np.float32)
    draws = np.asarray(jax.vmap(lambda key: act((), obs, key)[1])(jax.random.split(jax.random.key(1), 200)))
    assert draws.shape == (200, 1, 1)
    assert draws.min() < -0.9 and draws.max() > 0.9 and abs(draws.mean()) < 0.15
    assert (np.abs(draws) <= 1).all()


def test_an_unknown_baseline_gets_the_nearest_name():
    with pytest.raises(ValueError, match="Did you mean 'oracle'"):
        evaluate_baseline(sim(), "orakle")


def test_a_price_that_is_not_finite_is_refused_by_step():
    price = first_problem().price_per_mwh.copy()
    price[[3, 7]] = np.nan
    with pytest.raises(SolverError, match="step 3, 7"):
        solve_storage(with_price(price))


def test_a_start_outside_the_band_is_refused():
    with pytest.raises(SolverError, match="outside the operating band"):
        solve_storage(dataclasses.replace(first_problem(), soc_start=np.array([0.95])))


def test_a_failure_of_the_solver_is_raised_with_its_status():
    writer = ProgramWriter()
    x = writer.columns(1, 1.0, 0.0, 1.0)
    writer.rows(1, 2.0, 2.0, (x, 1.0))
    with pytest.raises(SolverError, match="status 2"):
        solve(writer.program())


@pytest.mark.full
def test_importing_the_oracle_does_not_load_the_optimiser():
    code = "import sys, powerzoo_jax, powerzoo_jax.oracle; print('scipy.optimize' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_shipped_table_is_ordered_and_feasible():
    for split in ("val", "test"):
        record = get_reference("battery_arbitrage", split)
        assert record["random"] < record["trivial"] < record["rule"] < record["causal"] < record["best"]
        assert record["best"] == pytest.approx(record["bound"], rel=1e-5) and abs(record["gap"]) < 1e-5
        assert record["feasible"]["best"] and record["feasible"]["rule"] and not record["feasible"]["random"]


@pytest.mark.full
def test_the_shipped_table_is_what_the_code_computes():
    record = get_reference("battery_arbitrage", "val")
    val = powerzoo_jax.make("battery_arbitrage", split="val")
    draws = all_starts(val)
    solutions = solve_starts(val, draws)
    assert record["n"] == len(solutions)
    # plans of the table are played in float32
    assert np.mean([s.objective for s in solutions]) == pytest.approx(record["best"], rel=SHIPPED)
    assert evaluate_baseline(val, "rule", draws=draws).mean_reward == pytest.approx(record["rule"], rel=SHIPPED)


def test_best_is_played_by_the_oracle():
    best, oracle = (evaluate_baseline(sim(), name, n_episodes=1) for name in ("best", "oracle"))
    assert best == oracle


def test_a_message_lists_the_policies_that_the_task_has():
    with pytest.raises(ValueError, match=r"Valid: best, causal, no_control, oracle, random, rule, trivial\."):
        evaluate_baseline(sim(), "zzz")
    # this market has no causal planner and no stored trivial policy
    with pytest.raises(ValueError, match=r"Valid: best, max_markup, no_control, oracle, random, rule\."):
        evaluate_baseline(powerzoo_jax.make("gencos_bidding"), "zzz")
