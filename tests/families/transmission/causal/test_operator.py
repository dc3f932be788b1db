"""The causal planner of one operator: cheapest legal paths, bounds of a step, minimum times and budgets kept."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.base.tree import take
from powerzoo_jax.families.transmission.causal.dispatch import train_loads
from powerzoo_jax.families.transmission.causal.operator import best_path, energy_prices, forecast_spread, plan_operator
from powerzoo_jax.families.transmission.commitment.descent import running_costs
from powerzoo_jax.families.transmission.plan.episode import commitment_problem
from powerzoo_jax.opf.commit import CommitmentState, commitment_rules
from powerzoo_jax.oracle import evaluate_baseline
from powerzoo_jax.oracle.forecast import fit_forecast, train_sim
from powerzoo_jax.tasks.score import all_starts, episode_keys, seeded_starts

TASK = "comparison_tso_centralized"
STEPS, UP, DOWN, START, STOP = 8, 3, 2, 7.0, 1.0
GRID = 0.01  # relative: prices of a table instead of all


def cheapest(cost: np.ndarray, on: bool, held: int, t: int) -> float:
    """Least cost from step t on of a unit that has been as it is for `held` steps, all legal paths tried."""
    best = np.inf
    for path in itertools.product([False, True], repeat=STEPS - t):
        was, since, total, switches = on, held, 0.0, 0
        for now, run in zip(path, cost[t:], strict=True):
            if now != was and since < (UP if was else DOWN):
                total = np.inf
                break
            total += (now != was) * (STOP if was else START) + now * run
            switches += now != was
            was, since = now, since + 1 if now == was else 1
        best = min(best, total) if switches <= 2 else best
    return best


@pytest.mark.parametrize("t", [0, 3])
@pytest.mark.parametrize(("on", "held"), [(True, 1), (True, 3), (False, 1), (False, 2)])
def test_the_path_of_a_unit_is_the_cheapest_legal_one_of_two_switches(on, held, t):
    rules = commitment_rules([1.0], [4.0], min_up=UP, min_down=DOWN, startup_usd=START, shutdown_usd=STOP)
    units = CommitmentState(on=jnp.array([on]), steps=jnp.array([held]), p_mw=jnp.zeros(1))
    for seed in range(6):
        cost = np.random.default_rng(seed).uniform(-8, 8, STEPS)
        cost[:t] = 0
        path = np.asarray(best_path(rules, units, jnp.int32(0), jnp.asarray(cost), jnp.int32(t)))[t:]
        was, since = on, held
        for now in path:
            assert now == was or since >= (UP if was else DOWN)
            was, since = now, since + 1 if now == was else 1
        before = np.concatenate([[on], path[:-1]])
        paid = cost[t:] @ path + START * (path & ~before).sum() + STOP * (before & ~path).sum()
        assert paid == pytest.approx(cheapest(cost, on, held, t), abs=1e-4)


def test_prices_of_the_table_bound_what_a_step_of_slow_units_costs():
    sim = powerzoo_jax.make(TASK, split="val")
    problem = commitment_problem(sim, take(all_starts(sim), 3))
    rules = problem.rules
    slow = np.asarray(rules.min_up) > int(np.asarray(rules.min_up).min())
    price, worth, quick = energy_prices(sim, slow, np.full(len(slow), 43.0))
    random, steps = np.random.default_rng(0), len(problem.load_mw)
    on = (random.uniform(size=(steps, len(slow))) < 0.8) & slow
    low, high = (on @ np.asarray(x, np.float64) for x in (rules.p_min_mw, rules.p_max_mw))
    problem.load_mw[:] = low + random.uniform(0.05, 0.95, steps) * (high - low)
    problem.reserve_mw[:] = -np.inf
    exact = running_costs(problem, on, np.zeros(on.shape)) / problem.dt_hours
    bound = (problem.load_mw[:, None] * price + on @ worth).max(axis=1)
    assert (bound <= exact * (1 + 1e-5)).all()
    np.testing.assert_allclose(bound, exact, rtol=GRID)
    # more units can only help, and those that may be divided too
    assert ((problem.load_mw[:, None] * price + on @ worth + quick).max(axis=1) <= bound + 1e-6).all()


def test_the_spread_is_that_of_the_errors_of_the_forecast():
    days, joined = train_loads(train_sim(powerzoo_jax.make(TASK, split="val")))
    few = days[:40]
    forecast = fit_forecast(few, joined[:40], 0, 0, np.dtype("float32"))
    spread = forecast_spread(forecast, few)
    for known in (1, 20, 47):
        paths = jax.vmap(lambda day, known=known: forecast.path(day, jnp.int32(known)))(jnp.asarray(few, jnp.float32))
        errors = np.asarray(paths, np.float64) - few
        np.testing.assert_allclose(spread[known], np.sqrt(np.square(errors).mean(axis=0)), atol=1e-5)
        assert (spread[known, :known] == 0).all()


@pytest.mark.full
@pytest.mark.parametrize("split", ["val", "test"])
def test_the_planner_keeps_minimum_times_and_budgets_and_earns_more_than_the_rule(split):
    sim = powerzoo_jax.make(TASK, split=split)
    draws = seeded_starts(sim, 4)
    causal, rule = (evaluate_baseline(sim, name, draws=draws) for name in ("causal", "rule"))
    assert causal.feasible and causal.mean_reward > rule.mean_reward
    policy = plan_operator(sim, draws, episode_keys(0, 4))
    key = jax.random.key(0)

    def step(loop, _):
        state, obs, memory = loop
        memory, action = policy.act(memory, obs, key)
        out = sim.step(state, action)
        return (out.state, out.obs, memory), (out.info.uc_overrides, memory.units, out.state.units)

    state, obs = sim.env.begin(key, take(draws, 0), sim.params)
    start = state, obs, take(policy.carry, 0)
    _, (overrides, told, true) = jax.jit(lambda loop: jax.lax.scan(step, loop, length=sim.spec.horizon))(start)
    assert not np.asarray(overrides).any()
    # units that run on take the output that was planned for them
    np.testing.assert_allclose(np.asarray(told.p_mw), np.asarray(true.p_mw), atol=0.1)


def test_several_agents_are_refused():
    sim = powerzoo_jax.make("marl_uc", split="val")
    with pytest.raises(ValueError, match=r"'marl_uc' is no task of one operator"):
        plan_operator(sim, seeded_starts(sim, 1), episode_keys(0, 1))
