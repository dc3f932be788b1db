"""battery_arbitrage, every step of random and adversarial episodes against physics and money in NumPy float64."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from powerzoo_jax.base import Step
from powerzoo_jax.cases.case import without_idle_branches
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.families.feeder.env import PRICE
from powerzoo_jax.families.feeder.names import COSTS, TERMS
from powerzoo_jax.powerflow import nominal_injection
from powerzoo_jax.powerflow.result import COLLAPSE_PU
from tests.families.feeder.storage_episodes import (
    CAPACITY_MWH,
    DT_HOURS,
    ETA,
    HORIZON,
    POWER_MW,
    Episodes,
    load_mw,
    rows_of,
    run,
)
from tests.references.newton import branch_flows, build_network, solve_states
from tests.tolerances import tolerance

pytestmark = pytest.mark.property

BATTERY_BUS = 6
DTYPES = ("float32", "float64")


def played(dtype: str) -> Episodes:
    with jax.enable_x64(dtype == "float64"):
        return run((("dtype", dtype),))


def info(episodes: Episodes, name: str) -> np.ndarray:
    return np.asarray(getattr(episodes.steps.info, name), np.float64)


def stored_before(episodes: Episodes) -> np.ndarray:
    """State of charge before each step, (B, T)."""
    return np.concatenate([episodes.state.storage.soc, info(episodes, "soc")[:, :-1, 0]], axis=1).astype(np.float64)


@pytest.mark.tiers(long=["float64"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_feeder_head_delivers_load_plus_losses_less_battery_power(dtype):
    episodes = played(dtype)
    load, p = load_mw(episodes), info(episodes, "p_mw")[..., 0]
    gap = info(episodes, "p_slack_mw") - (load + info(episodes, "p_loss_mw") - p)
    left = info(episodes, "pf_residual") * float(episodes.sim.params.grid.base_mva)
    assert np.all(np.abs(gap) <= tolerance("balance_relative", dtype) * (load + np.abs(p)) + left)


@pytest.mark.tiers(long=["float64"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_stored_energy_changes_by_terminal_energy_times_efficiency(dtype):
    episodes = played(dtype)
    p, before = info(episodes, "p_mw")[..., 0], stored_before(episodes)
    drawn = DT_HOURS * np.where(p > 0, p / ETA, p * ETA) / CAPACITY_MWH
    np.testing.assert_allclose(info(episodes, "soc")[..., 0], before - drawn, atol=tolerance("soc", dtype))


def test_the_state_of_charge_reaches_both_ends_of_its_band_and_stays_inside():
    soc = info(played("float32"), "soc")
    assert soc.min() == pytest.approx(0.1) and soc.max() == pytest.approx(0.9)
    assert (soc >= np.float32(0.1)).all() and (soc <= np.float32(0.9)).all()


@pytest.mark.tiers(full=["float64"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_resource_channel_is_what_was_commanded_and_not_delivered(dtype):
    episodes = played(dtype)
    command = np.clip(episodes.actions[..., 0, 0], -1, 1) * POWER_MW
    missing = np.abs(command - info(episodes, "p_mw")[..., 0])
    assert missing.max() > 0.9 * POWER_MW
    np.testing.assert_allclose(episodes.steps.cost[..., COSTS.index("resource")], missing, atol=tolerance("soc", dtype))


@pytest.mark.tiers(full=["float64"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_reward_is_the_money_of_prices_and_delivered_power(dtype):
    episodes = played(dtype)
    p, price = info(episodes, "p_mw")[..., 0], rows_of(episodes, "price_rows")[..., PRICE]
    money = DT_HOURS * (price * p - 5 * np.abs(p))
    rise = (info(episodes, "soc")[:, -1, 0] - episodes.state.storage.soc[:, 0].astype(float)) * CAPACITY_MWH
    left = price.mean(axis=1) * np.where(rise > 0, rise * ETA, rise / ETA)
    money[:, -1] += left
    reward = episodes.steps.reward[..., 0]
    assert np.max(np.abs(reward - money) / np.maximum(np.abs(money), 1)) <= tolerance("money_relative", dtype)


def test_the_settlement_is_paid_at_the_last_step_only():
    settled = played("float32").steps.info.terms[..., 0, TERMS.index("settlement")]
    assert not settled[:, :-1].any()
    assert np.abs(settled[:6, -1]).min() > 0


def test_an_idle_battery_earns_and_costs_nothing():
    steps = played("float32").steps
    assert not steps.reward[7].any() and not steps.cost[7].any()


def test_no_cost_is_negative():
    assert (played("float32").steps.cost >= 0).all()


def test_an_episode_is_truncated_at_its_horizon_and_not_terminated():
    steps: Step = played("float32").steps
    assert steps.info.truncated.sum(axis=1).tolist() == [1] * 8 and steps.info.truncated[:, -1].all()
    assert not steps.info.terminated.any()


def test_the_price_reported_is_that_of_the_executed_step():
    episodes = played("float32")
    np.testing.assert_array_equal(info(episodes, "price_per_mwh"), rows_of(episodes, "price_rows")[..., PRICE])


@pytest.fixture(scope="module")
def reference() -> tuple[np.ndarray, np.ndarray, np.ndarray, list[tuple[int, int]]]:
    """Voltages, flows and losses of some steps by an independent Newton method, with (lane, step) of each."""
    episodes = played("float32")
    chosen = [(lane, step) for lane in (0, 4, 5, 6) for step in (0, 1, 24, HORIZON - 1)]
    case = without_idle_branches(load_case("case33bw"))
    factor = rows_of(episodes, "load_rows")[..., 0] * float(episodes.sim.params.load_ratio)
    s = np.stack([factor[at] * nominal_injection(case) for at in chosen])
    s[:, case.bus_index[BATTERY_BUS]] += [info(episodes, "p_mw")[at][0] / case.base_mva for at in chosen]
    net = build_network(case)
    solution = solve_states(net, s)
    assert solution.converged.all()
    flows = branch_flows(net, solution.v)
    return solution.v, flows.s_from, flows.loss * case.base_mva, chosen


def test_observed_voltages_equal_an_independent_power_flow(reference):
    v, _, _, chosen = reference
    obs = np.stack([played("float32").steps.obs[at][0] for at in chosen]).astype(float)
    assert np.max(np.abs(1 + obs[:, :33] / 10 - np.abs(v))) <= tolerance("v_pu", "float32")
    assert np.abs(v).min() > COLLAPSE_PU


def test_observed_flows_equal_an_independent_power_flow(reference):
    _, s_from, _, chosen = reference
    obs = np.stack([played("float32").steps.obs[at][0] for at in chosen]).astype(float)
    gap = np.abs(obs[:, 33:65] + 1j * obs[:, 65:97] - s_from)
    assert np.max(gap / np.maximum(np.abs(s_from), 0.01)) <= tolerance("flow_relative", "float32")


def test_reported_losses_equal_an_independent_power_flow(reference):
    _, _, loss, chosen = reference
    reported = np.array([info(played("float32"), "p_loss_mw")[at] for at in chosen])
    np.testing.assert_allclose(reported, loss.real, rtol=tolerance("loss_relative", "float32"))
