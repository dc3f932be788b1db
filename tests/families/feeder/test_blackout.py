"""A power flow that fails ends the episode: settled as a blackout, seen as the last valid state, never cheaper."""

from __future__ import annotations

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.envs import constraint
from powerzoo_jax.families.feeder.env import PRICE
from powerzoo_jax.families.feeder.names import COSTS, TERMS
from powerzoo_jax.powerflow import Status
from tests.families.feeder.storage_episodes import DT_HOURS, HORIZON, POWER_MW, Episodes, load_mw, rows_of, run
from tests.tolerances import tolerance

pytestmark = pytest.mark.property

VOLL = 10_000.0
BEYOND, COLLAPSING, ABSURD = 10.0, 4.895, 1e4  # load ratios: no solution by day; solved below 0.5 pu; none at all
ELECTRICAL = slice(0, 97)  # voltages and flows


@cache
def failing(ratio: float = BEYOND) -> Episodes:
    return run((("dtype", "float32"),), ratio)


def first_failure(episodes: Episodes) -> np.ndarray:
    return np.argmax(episodes.steps.info.terminated, axis=1)


def lanes_after(episodes: Episodes) -> np.ndarray:
    """(B, T) True after the step that failed."""
    return np.arange(HORIZON) > first_failure(episodes)[:, None]


def remaining_mwh(episodes: Episodes) -> np.ndarray:
    """Load energy (B, T) of each step and all later ones [MWh]."""
    return np.cumsum(load_mw(episodes)[:, ::-1], axis=1)[:, ::-1] * DT_HOURS


@pytest.mark.full
def test_every_lane_fails_in_the_middle_of_its_day():
    at = first_failure(failing())
    assert (at > 5).all() and (at < HORIZON - 1).all()


@pytest.mark.full
def test_a_failure_terminates_and_the_flag_stays():
    terminated = failing().steps.info.terminated
    np.testing.assert_array_equal(terminated, np.arange(HORIZON) >= first_failure(failing())[:, None])
    assert not failing().steps.info.truncated.any()


@pytest.mark.tiers("full", quick=["10000.0"])
@pytest.mark.parametrize("ratio", [BEYOND, COLLAPSING, ABSURD])
def test_observations_stay_finite_and_inside_their_bounds(ratio):
    episodes = failing(ratio)
    box, _ = episodes.sim.spaces()
    for obs in (episodes.obs0, episodes.steps.obs):
        assert ((obs >= box.low) & (obs <= box.high)).all()


def test_a_failed_step_shows_the_last_valid_electrical_state():
    obs = failing().steps.obs[..., 0, ELECTRICAL]
    for lane, at in enumerate(first_failure(failing())):
        np.testing.assert_allclose(obs[lane, at], obs[lane, at - 1], atol=tolerance("lane", "float32"))


def test_a_failed_first_step_shows_the_state_of_the_reset():
    episodes = failing(ABSURD)
    assert not first_failure(episodes).any()
    np.testing.assert_array_equal(episodes.steps.obs[:, 0, 0, ELECTRICAL], episodes.obs0[:, 0, ELECTRICAL])


def test_a_failed_step_shows_the_true_coming_load():
    episodes = failing()
    coming = rows_of(episodes, "load_rows", ahead=1)[..., 0] * BEYOND * 0.09 / 10
    name = episodes.sim.env.fields.names.index("node_18_p_load_norm")
    np.testing.assert_allclose(episodes.steps.obs[..., 0, name], coming, rtol=1e-6)


def test_a_blackout_costs_the_whole_remaining_load_at_voll():
    episodes = failing()
    lanes, at = np.arange(8), first_failure(episodes)
    money = -VOLL * remaining_mwh(episodes)[lanes, at]
    np.testing.assert_allclose(episodes.steps.reward[lanes, at, 0], money, rtol=tolerance("money_relative", "float32"))


def test_a_blackout_replaces_every_other_reward_term():
    terms = failing().steps.info.terms[..., 0, :]
    for lane, at in enumerate(first_failure(failing())):
        assert np.flatnonzero(terms[lane, at]).tolist() == [TERMS.index("unserved_energy")]


def test_unserved_energy_is_the_remaining_load():
    episodes = failing()
    lanes, at = np.arange(8), first_failure(episodes)
    np.testing.assert_allclose(
        episodes.steps.cost[lanes, at, COSTS.index("unserved_energy")],
        remaining_mwh(episodes)[lanes, at],
        rtol=tolerance("money_relative", "float32"),
    )


def test_a_failed_step_violates_the_voltage_by_the_sum_of_the_lower_limits():
    cost = failing().steps.cost[np.arange(8), first_failure(failing()), COSTS.index("voltage_violation")]
    np.testing.assert_allclose(cost, 33 * 0.9, rtol=1e-6)


def test_a_failed_step_overloads_no_branch():
    flow, rate = jnp.asarray([3.0, 4.0]), jnp.asarray([1.0, 0.0])
    no, yes = jnp.asarray(False), jnp.asarray(True)
    one = jnp.asarray(1.0)
    assert float(constraint.thermal_overload(flow, 0 * flow, rate, one, no)) == pytest.approx(2.0)
    assert float(constraint.thermal_overload(flow, 0 * flow, rate, one, yes)) == 0.0


def test_nothing_is_paid_or_charged_after_a_blackout():
    steps, later = failing().steps, lanes_after(failing())
    assert later.any(axis=1).all()
    assert not steps.reward[later].any() and not steps.cost[later].any() and not steps.info.terms[later].any()


def test_a_solved_voltage_below_half_is_a_blackout_too():
    info = failing(COLLAPSING).steps.info
    collapsed = info.collapsed & (info.pf_status == Status.CONVERGED)
    lane, step = np.argwhere(collapsed)[0]
    assert info.v_min_pu[lane, step] < 0.5
    assert info.terminated[lane, step:].all() and not info.terminated[lane, :step].any()


def test_lanes_without_a_collapse_survive_the_same_load():
    info = failing(COLLAPSING).steps.info
    survivors = ~info.terminated.any(axis=1)
    assert survivors.any() and not survivors.all()
    assert info.truncated[survivors, -1].all()


def test_a_blackout_returns_less_than_any_policy_that_survives():
    episodes = failing()
    price = rows_of(episodes, "price_rows")[..., PRICE]
    worst_step = DT_HOURS * POWER_MW * (np.abs(price) + 5)
    worst = -worst_step.sum(axis=1) - np.abs(price).max(axis=1) * 0.5
    assert (episodes.steps.reward.sum(axis=(1, 2)) < worst).all()
    cheapest = -VOLL * DT_HOURS * load_mw(run((("dtype", "float32"),)))[:, -1]  # ordinary load, last step alone
    assert (cheapest < worst).all()


@pytest.mark.long
@pytest.mark.parametrize("ratio", [BEYOND, COLLAPSING])
def test_the_fixed_form_fails_settles_and_shows_what_the_adaptive_one_does(ratio):
    played = [run((("dtype", "float32"), ("solver", mode)), ratio) for mode in ("adaptive", "fixed")]
    adaptive, fixed = (episodes.steps for episodes in played)
    assert adaptive.info.terminated.any()
    for name in ("terminated", "truncated", "collapsed", "pf_status"):
        np.testing.assert_array_equal(getattr(fixed.info, name), getattr(adaptive.info, name))
    solved = adaptive.info.pf_status == Status.CONVERGED
    # what an iteration without a solution ends at is nobody's number, but it is finite and reaches no observation
    assert np.isfinite(fixed.info.v_min_pu).all()
    lane = tolerance("lane", "float32")
    np.testing.assert_allclose(fixed.info.v_min_pu[solved], adaptive.info.v_min_pu[solved], rtol=0, atol=lane)
    # up to the step that fails: behind it the step before has no solution either; voltages are shown times ten
    shown = ~(adaptive.info.terminated & np.roll(adaptive.info.terminated, 1, axis=1))
    np.testing.assert_allclose(fixed.obs[shown], adaptive.obs[shown], rtol=0, atol=10 * lane)
    for name in ("reward", "cost"):
        a, b = (getattr(steps, name) for steps in (fixed, adaptive))
        np.testing.assert_allclose(a, b, rtol=tolerance("money_relative", "float32"), atol=10 * lane)
