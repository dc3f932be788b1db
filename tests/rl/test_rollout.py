"""Rollouts: the true last observation, restarts, and totals that stop where an episode stops."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.rl.policies import idle_act, random_act
from powerzoo_jax.rl.rollout import batch_rollout, evaluate_policy, rollout
from tests.rl.toy_battery import SOC_0, STEPS, toy_sim


@pytest.fixture(scope="module")
def sim():
    return toy_sim()


def discharge(carry, obs, key):
    del key
    return carry + 1, jnp.ones((1, 1), obs.dtype)


@pytest.mark.full
def test_the_last_observation_is_the_true_one_and_the_next_episode_starts_fresh(sim):
    count, steps = rollout(sim, discharge, jnp.zeros((), jnp.int32), jax.random.key(0), STEPS + 1)
    soc = np.asarray(steps.obs[:, 0, 0])
    ends = np.flatnonzero(steps.info.truncated)
    assert ends.tolist() == [STEPS - 1] and count == STEPS + 1
    assert soc[STEPS - 1] == pytest.approx(0.1, abs=1e-6)  # emptied; a reset in the kernel would show SOC_0
    assert 0.1 < soc[STEPS] < SOC_0  # one step of discharging after the restart


def test_without_reset_the_lane_runs_on(sim):
    steps = rollout(sim, discharge, jnp.zeros((), jnp.int32), jax.random.key(0), STEPS + 1, reset=False)[1]
    assert steps.info.truncated[-2:].tolist() == [True, True]
    assert float(steps.obs[-1, 0, 0]) == pytest.approx(0.1, abs=1e-6)


@pytest.mark.full
def test_a_batch_equals_its_lanes(sim):
    keys = jax.random.split(jax.random.key(1), 3)
    batch = batch_rollout(sim, random_act(sim), (), keys, 5)[1]
    alone = rollout(sim, random_act(sim), (), keys[2], 5, reset=False)[1]
    np.testing.assert_array_equal(batch.obs[2], alone.obs)


def test_a_trace_adds_the_action_and_changes_no_step(sim):
    key = jax.random.key(5)
    plain = rollout(sim, random_act(sim), (), key, STEPS)[1]
    traced = rollout(sim, random_act(sim), (), key, STEPS, trace=True)[1]
    jax.tree.map(np.testing.assert_array_equal, plain._replace(state=None), traced.steps._replace(state=None))
    np.testing.assert_array_equal(traced.readings["cost"], plain.cost)
    assert traced.readings["action"].shape == (STEPS, 1, 1)


def test_without_a_trace_nothing_of_it_is_computed(sim):
    """The program of a plain rollout is that of the scan of its steps, equation by equation."""
    key = jax.random.key(6)

    def by_hand(sim, key):
        key, start = jax.random.split(key)
        state, obs = sim.init(start)

        def advance(loop, key):
            state, carry, obs = loop
            carry, action = discharge(carry, obs, key)
            out = sim.step(state, action)
            return (out.state, carry, out.obs), out

        (_, carry, _), steps = jax.lax.scan(
            advance, (state, jnp.zeros((), jnp.int32), obs), jax.random.split(key, STEPS)
        )
        return carry, steps

    def plain(sim, key):
        return rollout(sim, discharge, jnp.zeros((), jnp.int32), key, STEPS, reset=False)

    assert str(jax.make_jaxpr(plain)(sim, key)) == str(jax.make_jaxpr(by_hand)(sim, key))


@pytest.mark.full
def test_totals_are_sums_over_the_episode(sim):
    keys = jax.random.split(jax.random.key(2), 4)
    steps = batch_rollout(sim, random_act(sim), (), keys, STEPS)[1]
    totals = evaluate_policy(sim, random_act(sim), keys)
    np.testing.assert_allclose(totals.total, np.asarray(steps.reward).mean(-1).sum(1), rtol=1e-5)
    np.testing.assert_allclose(totals.cost, np.asarray(steps.cost).sum(1), rtol=1e-5)
    np.testing.assert_allclose(totals.terms.sum((1, 2)), totals.total, rtol=1e-4)
    assert totals.length.tolist() == [STEPS] * 4 and not totals.failed.any()


@pytest.mark.full
def test_steps_behind_a_termination_do_not_count():
    sim = toy_sim(fail_below=0.2)
    keys = jax.random.split(jax.random.key(3), 2)
    totals = evaluate_policy(sim, discharge, keys, jnp.zeros((), jnp.int32))
    steps = batch_rollout(sim, discharge, jnp.zeros((), jnp.int32), keys, STEPS)[1]
    # 0.5 to below 0.2 at 0.2 MW / sqrt(0.95) from 0.5 MWh: two half hours
    assert totals.length.tolist() == [2, 2] and totals.failed.all()
    np.testing.assert_allclose(totals.total, np.asarray(steps.reward)[:, :2, 0].sum(1), rtol=1e-6)


@pytest.mark.full
def test_an_idle_battery_earns_nothing(sim):
    totals = evaluate_policy(sim, idle_act(sim), jax.random.split(jax.random.key(4), 2))
    assert totals.total.tolist() == [0.0, 0.0] and not totals.cost.any()
