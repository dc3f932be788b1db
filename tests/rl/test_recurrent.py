"""Policies with a memory of their own: recurrent PPO and the analytic gradient through a gated recurrent unit."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.rl.algorithms import apg, recurrent
from powerzoo_jax.rl.policies import apg_act, gru_act
from powerzoo_jax.rl.rollout import batch_rollout, evaluate_policy, rollout
from powerzoo_jax.rl.training import checkpoint
from powerzoo_jax.rl.training.config import APGConfig, PPOGRUConfig
from tests.rl.test_checkpoint import words
from tests.rl.toy_cue import STEPS, keys, toy_cue

# an update of one episode and a half, so that an end lies within it and the next one begins amid an episode
CUT = PPOGRUConfig(lanes=4, steps=6, minibatches=2, epochs=1, widths=(8,), memory=5, log_std=-1.0)
PPO = replace(
    CUT, lanes=128, steps=4, total_steps=128 * 4 * 60, minibatches=4, epochs=4, lr=1e-2, gamma=1.0, bootstrap=False
)
APG = APGConfig(lanes=64, updates=60, widths=(8,), memory=8, lr=3e-2)


@pytest.fixture(scope="module")
def sim():
    return toy_cue()


@pytest.fixture(scope="module")
def small(sim):
    """(first state, compiled update) of a few lanes."""
    init, update = recurrent.make_update(CUT, sim)
    return jax.jit(init)(jax.random.key(0), sim), jax.jit(update)


@pytest.mark.full
def test_learning_sees_the_memories_that_acting_had_also_behind_an_end(sim, small):
    """Else the ratio of probabilities would not be 1 before the first gradient step."""
    state, update = small
    for _ in range(2):
        state, metrics = update(state, sim)
        assert float(metrics["ratio_error"]) < 1e-4


@pytest.mark.full
def test_a_fresh_episode_begins_without_a_memory_of_the_one_before(sim, small):
    """After six steps of episodes of four, a lane remembers the two observations of its second one, and no more."""
    state, update = small
    after = update(state, sim)[0]
    act = gru_act(CUT, sim, recurrent.policy_of(state))

    def two_steps(cue):
        memory = act.keywords["memory"]
        for seen in (jnp.stack([cue, 2.0]), jnp.asarray([0.0, 2.5])):
            memory, _ = act(memory, seen[None], jax.random.key(0))
        return memory

    assert after.env.t.tolist() == [2] * CUT.lanes
    np.testing.assert_allclose(after.memory, jax.vmap(two_steps)(after.env.cue), atol=1e-6)
    assert np.abs(after.memory).max() > 1e-2


@pytest.mark.full
def test_a_resumed_run_ends_bit_for_bit_as_if_it_had_not_stopped(sim, small, tmp_path):
    state, update = small
    first = update(state, sim)[0]
    checkpoint.save(tmp_path / "run", first, CUT, updates=1)
    resumed = checkpoint.restore(tmp_path / "run", jax.eval_shape(lambda: first))
    for a, b in zip(words(update(resumed, sim)[0]), words(update(first, sim)[0]), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.tiers("full", long=["ppo_gru"])
@pytest.mark.parametrize(
    ("module", "make_act", "cfg"), [(recurrent, gru_act, PPO), (apg, apg_act, APG)], ids=["ppo_gru", "apg"]
)
def test_a_cue_is_recalled_that_is_no_longer_seen(sim, module, make_act, cfg):
    """Paid 1 for recalling it; without a memory no policy is paid more than 0 in the mean, see test_history.py."""
    state, _ = jax.jit(module.make_train(cfg, sim))(jax.random.key(0), sim)
    totals = evaluate_policy(sim, make_act(cfg, sim, module.policy_of(state)), keys(256))
    assert 0.9 < float(totals.total.mean()) <= 1.0


@pytest.mark.full
def test_one_lane_and_many_carry_the_same_memory(sim, small):
    act = gru_act(CUT, sim, recurrent.policy_of(small[0]))
    memory, alone = rollout(sim, act, (), keys(3)[1], STEPS, reset=False)
    many, steps = batch_rollout(sim, act, (), keys(3), STEPS)
    np.testing.assert_allclose(memory, many[1], atol=1e-6)
    np.testing.assert_allclose(alone.reward, steps.reward[1], atol=1e-6)


def test_settings_that_cut_sequences_apart_are_refused():
    for name in ("shared_torso", "by_lanes"):
        with pytest.raises(ValueError, match=f"{name} = false, but a policy that remembers"):
            PPOGRUConfig(**{name: False})
    with pytest.raises(ValueError, match="stagger = true"):
        PPOGRUConfig(stagger=True)
    with pytest.raises(ValueError, match="Leave rescale_values out"):
        PPOGRUConfig(rescale_values=True, normalise_reward=True)
