"""Causal planner of batteries: its value function, its forecasts and its money."""

from __future__ import annotations

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.base.tree import take
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.families.feeder.causal.voltage import needed_support
from powerzoo_jax.oracle import build_problem, build_problems, evaluate_baseline, play, solve_storage
from powerzoo_jax.oracle.forecast import RIDGE, fit_forecast
from powerzoo_jax.oracle.storage_value import Outlook, TradedStore, command_mw, settled_slope, value_slope
from powerzoo_jax.tasks.score import all_starts

CELL = 0.005  # relative: a cell of the energy band, rounded once a step
FLOAT32 = 2e-5  # of a forecast with signals of order 1
OF_ORACLE = 0.97


@cache
def sim(task: str = "battery_arbitrage", split: str = "val") -> Sim:
    return powerzoo_jax.make(task, split=split)


def stored(case) -> TradedStore:
    one = {name: jnp.float32(getattr(case, name)[0]) for name in ("power_mw", "eta_charge", "eta_discharge")}
    low, high = (jnp.float32((x * case.capacity_mwh)[0]) for x in (case.soc_min, case.soc_max))
    return TradedStore(low_mwh=low, high_mwh=high, wear_per_mwh=jnp.float32(case.degradation_per_mwh[0]), **one)


@jax.jit
def follow_values(store: TradedStore, price, start, mean):
    """Powers (T,) of the value function with all prices known, played forward."""

    def step(energy, t):
        later = jnp.arange(price.shape[0]) > t
        ahead = Outlook(price, *(later.astype(price.dtype) * x for x in (1.0, 1.0, 0.0)))
        after = value_slope(store, settled_slope(store, start, mean), ahead, 0.5, 2000.0)
        one = jnp.ones_like(mean)
        power = command_mw(store, energy, after, Outlook(price[t], one, one, 0 * one), 0.5)
        change = jnp.where(power > 0, power / store.eta_discharge, power * store.eta_charge) * 0.5
        return energy - change, power

    return jax.lax.scan(step, start, jnp.arange(price.shape[0], dtype=jnp.int32))[1]


@pytest.mark.parametrize("seed", range(4))
def test_the_value_function_earns_what_the_linear_program_earns(seed):
    """HiGHS solves the same problem exactly; prices are random, positive, and unlike those of a market."""
    random = np.random.default_rng(seed)
    case = build_problem(sim(), take(all_starts(sim()), 0))
    price = random.uniform(5, 120, 48)
    eta = np.array([random.uniform(0.8, 0.99)])
    case = dataclasses.replace(
        case, price_per_mwh=price, mean_price_per_mwh=price.mean(), eta_charge=eta, eta_discharge=eta
    )
    exact = solve_storage(case).objective
    start = jnp.float32(case.soc_start[0] * case.capacity_mwh[0])
    plan = follow_values(stored(case), jnp.asarray(price, jnp.float32), start, jnp.float32(price.mean()))
    earned = float(play(case, np.asarray(plan, np.float64)[:, None]).profit_usd.sum())
    assert (1 - CELL) * exact <= earned <= exact + 1e-6


@pytest.mark.tiers("full", long=["test"])
@pytest.mark.parametrize("split", ["val", "test"])
def test_the_planner_earns_nearly_all_of_the_oracles_money(split):
    here = sim(split=split)
    draws = all_starts(here)
    record = evaluate_baseline(here, "causal", draws=draws)
    best = np.mean([solve_storage(problem).objective for problem in build_problems(here, draws)])
    assert record.feasible
    assert OF_ORACLE * best <= record.mean_reward <= best


def test_a_forecast_is_the_ridge_regression_on_what_is_known():
    """Minimum of |x_u - w x_k|^2 + ridge |w|^2 over the train days, from NumPy's least squares."""
    days = np.random.default_rng(0).standard_normal((60, 6)) @ np.random.default_rng(1).standard_normal((6, 6)) + 2.0
    model = fit_forecast(days, np.ones(60, bool), 0, 0, np.dtype("float32"))
    seen = np.random.default_rng(2).standard_normal(6)
    for known in (1, 3, 5):
        centred = days - days.mean(axis=0)
        ridge = RIDGE * np.trace(centred.T @ centred) / 6
        left = np.vstack([centred[:, :known], np.sqrt(ridge) * np.eye(known)])
        right = np.vstack([centred[:, known:], np.zeros((known, 6 - known))])
        weights = np.linalg.lstsq(left, right, rcond=None)[0]
        expected = days.mean(axis=0)[known:] + (seen - days.mean(axis=0))[:known] @ weights
        path = np.asarray(model.path(jnp.asarray(seen, jnp.float32), jnp.int32(known)))
        np.testing.assert_allclose(path[known:], expected, rtol=0, atol=50 * FLOAT32)
        np.testing.assert_allclose(path[:known], seen[:known], atol=FLOAT32)


def test_yesterday_helps_and_what_was_not_seen_does_not_count():
    random = np.random.default_rng(0)
    level = np.cumsum(random.standard_normal(200))[:, None]
    days = level + 0.1 * random.standard_normal((200, 4))
    model = fit_forecast(days, np.r_[False, np.ones(199, bool)], 1, 1, np.dtype("float32"))
    # the second of three days: two periods of it are known
    seen = np.r_[np.full(4, 9.0), np.full(2, 9.2), np.zeros(6)].astype(np.float32)
    path = np.asarray(model.path(jnp.asarray(seen), jnp.int32(6)))
    assert np.abs(path[6:] - 9.2).max() < 1.0 < np.abs(days.mean() - 9.2)
    hidden = np.r_[seen[:6], np.full(6, 1e3)].astype(np.float32)
    np.testing.assert_array_equal(path, np.asarray(model.path(jnp.asarray(hidden), jnp.int32(6))))


@pytest.mark.full
def test_batteries_at_the_needed_share_hold_the_lowest_voltage_at_its_limit():
    """The environment's own power flow, at loads of the bank that need support."""
    here = sim("marl_der_arbitrage")
    levels, least = needed_support(here)
    params, v_min = here.params, float(np.max(np.asarray(here.params.grid.v_min)))
    loads = np.asarray(params.bank.load_rows[:, 0])
    shares = np.interp(loads, levels, least)
    row = int(np.argmin(np.abs(shares - 0.5)))
    share = float(shares[row])
    assert share == pytest.approx(0.5, abs=0.1)
    power = share * params.storage.power_mw
    flow = here.env.flow(here.env._net(jnp.int32(row), power, None, params), params)
    assert float(jnp.min(flow.v_pu)) == pytest.approx(v_min, abs=2e-4)
    idle = here.env.flow(here.env._net(jnp.int32(row), 0 * power, None, params), params)
    assert float(jnp.min(idle.v_pu)) < v_min - 1e-3
