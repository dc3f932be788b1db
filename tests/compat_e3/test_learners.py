"""Learners on the pure-JAX dialects: Rejax as it is, and loops in the shape of PureJaxRL and of JaxMARL's IPPO."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
import rejax
from jaxmarl.wrappers.baselines import LogWrapper
from powerzoo_compat.gymnax_view import to_gymnax
from powerzoo_compat.jaxmarl_view import parallel_env

import powerzoo_jax
from tests.compat_e3 import ppo

LANES, STEPS, UPDATES = 4, 12, 2
SHORT = 6


def test_rejax_trains_unmodified():
    env, params = to_gymnax(powerzoo_jax.make("battery_arbitrage", max_steps=SHORT), api="five")
    algo = rejax.PPO.create(
        env=env,
        env_params=params,
        total_timesteps=LANES * STEPS * UPDATES,
        eval_freq=LANES * STEPS * UPDATES,
        num_envs=LANES,
        num_steps=STEPS,
        num_minibatches=2,
        num_epochs=1,
        agent_kwargs={"hidden_layer_sizes": (8,)},
    )
    begun = algo.init_state(jax.random.key(0))
    trained, (lengths, returns) = jax.jit(algo.train)(train_state=begun)
    assert int(trained.global_step) == LANES * STEPS * UPDATES
    # every evaluation episode runs to its limit
    assert (np.asarray(lengths) == SHORT).all() and np.isfinite(returns).all()
    pairs = zip(jax.tree.leaves(begun.actor_ts.params), jax.tree.leaves(trained.actor_ts.params), strict=True)
    assert any(not np.array_equal(a, b) for a, b in pairs)


def make_train(env, params):
    """A pure function of a key, as PureJaxRL writes it."""

    def train(rng):
        rng, key_net, key_env = jax.random.split(rng, 3)
        obs, state = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(key_env, LANES), params)
        weights = ppo.first_weights(key_net, obs.shape[-1], env.action_space(params).shape[-1])

        def env_step(carry, _):
            weights, moments, state, obs, rng = carry
            rng, key_act, key_step = jax.random.split(rng, 3)
            action, log_prob, value = ppo.act(weights, obs, key_act)
            keys = jax.random.split(key_step, LANES)
            after, state, reward, done, _ = jax.vmap(env.step, in_axes=(0, 0, 0, None))(keys, state, action, params)
            return (weights, moments, state, after, rng), (obs, action, log_prob, value, reward, done)

        def update(carry, _):
            carry, batch = jax.lax.scan(env_step, carry, None, STEPS)
            weights, moments, state, obs, rng = carry
            weights, moments = ppo.improve(weights, moments, batch, ppo.forward(weights, obs)[1])
            return (weights, moments, state, obs, rng), (batch[4].mean(), batch[5].sum())

        carry = (weights, ppo.OPTIMISER.init(weights), state, obs, rng)
        carry, (rewards, ends) = jax.lax.scan(update, carry, None, UPDATES)
        return weights, carry[0], rewards, ends

    return train


def test_a_loop_in_the_shape_of_purejaxrl_trains_for_two_seeds_at_once():
    env, params = to_gymnax(powerzoo_jax.make("battery_arbitrage", max_steps=SHORT), api="five")
    train = jax.jit(jax.vmap(make_train(env, params)))
    before, after, rewards, ends = train(jax.random.split(jax.random.key(0), 2))
    assert rewards.shape == (2, UPDATES) and np.isfinite(rewards).all()
    # every lane starts anew each SHORT steps
    assert np.asarray(ends).tolist() == [[LANES * STEPS // SHORT] * UPDATES] * 2
    assert not np.allclose(before["mean"], after["mean"])


def batchify(by_agent, agents):
    return jnp.concatenate([by_agent[agent] for agent in agents])


def test_a_loop_in_the_shape_of_jaxmarls_ippo_trains():
    env = LogWrapper(parallel_env("marl_der_arbitrage", split="train", extra_infos=False, max_steps=SHORT))
    agents, actors = env.agents, LANES * env.num_agents

    def train(rng):
        rng, key_net, key_env = jax.random.split(rng, 3)
        obs, state = jax.vmap(env.reset)(jax.random.split(key_env, LANES))
        space = env.observation_space(agents[0])
        weights = ppo.first_weights(key_net, space.shape[0], env.action_space(agents[0]).shape[0])

        def env_step(carry, _):
            weights, moments, state, obs, rng = carry
            rng, key_act, key_step = jax.random.split(rng, 3)
            batch = batchify(obs, agents)
            action, log_prob, value = ppo.act(weights, batch, key_act)
            split = dict(zip(agents, action.reshape(len(agents), LANES, -1), strict=True))
            obs, state, reward, done, info = jax.vmap(env.step)(jax.random.split(key_step, LANES), state, split)
            # JaxMARL's scripts give every info one entry an actor
            info = jax.tree.map(lambda x: x.reshape(actors), info)
            row = (batch, action, log_prob, value, batchify(reward, agents), batchify(done, agents))
            return (weights, moments, state, obs, rng), (row, info)

        def update(carry, _):
            carry, (batch, info) = jax.lax.scan(env_step, carry, None, STEPS)
            weights, moments, state, obs, rng = carry
            last = ppo.forward(weights, batchify(obs, agents))[1]
            weights, moments = ppo.improve(weights, moments, batch, last)
            return (weights, moments, state, obs, rng), info

        carry = (weights, ppo.OPTIMISER.init(weights), state, obs, rng)
        carry, info = jax.lax.scan(update, carry, None, UPDATES)
        return weights, carry[0], info

    before, after, info = jax.jit(train)(jax.random.key(0))
    assert info["returned_episode_returns"].shape == (UPDATES, STEPS, actors)
    ended = np.asarray(info["returned_episode"], bool)
    assert ended.sum() == UPDATES * STEPS // SHORT * actors
    assert (np.asarray(info["returned_episode_lengths"])[ended] == SHORT).all()
    returns = np.asarray(info["returned_episode_returns"])[ended]
    assert np.isfinite(returns).all() and returns.any()
    assert not np.allclose(before["mean"], after["mean"])


def test_no_learner_here_needs_torch():
    assert "torch" not in sys.modules
