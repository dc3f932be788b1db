"""Policies of the last observations: what they see, when they forget it, and that it lets them recall a cue."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.envs import vstep
from powerzoo_jax.envs.history import with_history, without_history
from powerzoo_jax.rl.algorithms import apg, ppo, sac
from powerzoo_jax.rl.export import export_policy
from powerzoo_jax.rl.policies import apg_act, ppo_act, sac_act
from powerzoo_jax.rl.rollout import batch_rollout, evaluate_policy
from powerzoo_jax.rl.training.config import APGConfig, PPOConfig, SACConfig
from tests.rl.toy_cue import HIGH, LOW, STEPS, keys, toy_cue

K = 3
MIDDLE = (LOW + HIGH) / 2
CFG = APGConfig(lanes=64, updates=60, widths=(8,), lr=3e-2, activation="tanh", history=STEPS)
ACTS = {
    "ppo": (ppo, ppo_act, PPOConfig(lanes=4, steps=6, minibatches=2, epochs=1, widths=(8,), history=K, log_std=-1.0)),
    "sac": (sac, sac_act, SACConfig(lanes=2, steps=2, gradients=1, batch=4, capacity=40, widths=(8,), history=K)),
    "apg": (apg, apg_act, APGConfig(lanes=2, widths=(8,), history=K)),
}


@pytest.fixture(scope="module")
def sim():
    return toy_cue()


def test_a_window_holds_the_last_observations_and_the_middle_before_an_episode(sim):
    """Over an end: the lane that restarts sees nothing of the episode before."""
    wide = with_history(sim, K)
    states, obs = jax.vmap(wide.init)(keys(2))
    assert wide.env.dims.obs == obs.shape[-1] == 2 * K and without_history(wide) == sim
    np.testing.assert_array_equal(obs[:, 0, :4], np.tile(MIDDLE, (2, 2)))
    plain = [obs[:, 0, -2:]]
    for _ in range(STEPS):
        out, states, obs = jax.jit(vstep)(wide, states, jnp.zeros((2, 1, 1)))
        plain.append(out.obs[:, 0, -2:])
        np.testing.assert_allclose(out.obs[:, 0], np.concatenate(([[MIDDLE] * 2] * K + plain)[-K:], axis=-1))
    np.testing.assert_array_equal(obs[:, 0, :4], np.tile(MIDDLE, (2, 2)))
    assert (np.abs(obs[:, 0, 4]) == 1).all()  # the cue of the fresh episode


def test_one_observation_is_the_task_itself(sim):
    assert with_history(sim, 1) is sim
    wide = with_history(sim, 2)
    assert with_history(wide, 2) is wide


@pytest.mark.tiers("long", full=["apg"])
@pytest.mark.parametrize("name", ACTS)
def test_a_policy_that_keeps_the_window_acts_as_on_the_task_that_shows_it(sim, name):
    module, make_act, cfg = ACTS[name]
    init, update = module.make_update(cfg, sim)
    policy = module.policy_of(jax.jit(lambda key: update(init(key, sim), sim)[0])(jax.random.key(0)))
    own = batch_rollout(sim, make_act(cfg, sim, policy), (), keys(3), STEPS)[1]
    shown = batch_rollout(with_history(sim, K), make_act(cfg, with_history(sim, K), policy), (), keys(3), STEPS)[1]
    np.testing.assert_allclose(own.reward, shown.reward, rtol=1e-6)
    assert np.ptp(own.reward[:, -1]) > 0  # it tells cues apart


@pytest.mark.full
def test_the_exported_program_takes_and_gives_the_window(sim):
    _, make_act, cfg = ACTS["apg"]
    act = make_act(cfg, sim, apg.policy_of(apg.make_update(cfg, sim)[0](jax.random.key(0), sim)))
    program = jax.export.deserialize(bytearray(export_policy(sim, act)))
    memory, carry = (np.zeros((2, 1, 4), np.float32),), act.keywords["memory"]
    for k in range(3):
        obs = np.float32([[[1, 2 + k]], [[-1, 2 + k]]])
        memory, action = program.call(memory, obs)
        carry, alone = act(carry, obs[1], jax.random.key(0))
        np.testing.assert_allclose(action[1], alone, atol=1e-6)


@pytest.mark.full
def test_a_cue_is_recalled_where_it_is_still_seen(sim):
    """Seeing all steps the policy is paid 1; seeing the present one alone, no more than chance."""
    for history, least, most in ((STEPS, 0.9, 1.0), (1, -0.3, 0.3)):
        cfg = APGConfig(**{**CFG.__dict__, "history": history})
        state, _ = jax.jit(apg.make_train(cfg, sim))(jax.random.key(0), sim)
        paid = float(evaluate_policy(sim, apg_act(cfg, sim, apg.policy_of(state)), keys(256)).total.mean())
        assert least < paid <= most
