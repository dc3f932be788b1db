"""IPPO with shared parameters in the shape of JaxMARL's files: its LogWrapper, lanes by vmap, one program."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxmarl.wrappers.baselines import LogWrapper
from powerzoo_compat.jaxmarl_view import parallel_env  # ours

from tests.compat_e3 import ppo
from tests.foreign.scoring import BATTERIES, Days, run

LANES, STEPS, UPDATES, PASSES, GAMMA = 64, 48, 100, 8, 0.999
PER_REWARD = 0.1  # the value's error would leave the policy nothing of the clipped gradient
LEAST_SPREAD = 1e-2  # some observations never change


def normalised(sums, obs):
    """Observations (..., O) by the mean and spread of those before, from sums of 1, of them and of their squares."""
    mean = sums[1] / sums[0]
    spread = jnp.sqrt(jnp.maximum(sums[2] / sums[0] - mean**2, 0.0))
    return (obs - mean) / (spread + LEAST_SPREAD)


def make_train(env):
    """A pure function of a key: the weights and sums of observations before and after."""
    agents = env.agents

    def batchify(by_agent):
        return jnp.concatenate([by_agent[agent] for agent in agents])

    def train(rng):
        rng, key_net, key_env = jax.random.split(rng, 3)
        obs, state = jax.vmap(env.reset)(jax.random.split(key_env, LANES))
        seen, done = env.observation_space(agents[0]).shape[0], env.action_space(agents[0]).shape[0]
        first = ppo.first_weights(key_net, seen, done, width=64, log_std=-1.0)
        first["mean"] *= 0.01  # begins near idle
        no_sums = (jnp.float32(1e-3), jnp.zeros(seen), jnp.full(seen, 1e-3))  # mean 0, spread 1

        def env_step(carry, _):
            weights, moments, sums, state, obs, rng = carry
            rng, key_act, key_step = jax.random.split(rng, 3)
            told = batchify(obs)
            batch = normalised(sums, told)
            action, log_prob, value = ppo.act(weights, batch, key_act)
            split = dict(zip(agents, action.reshape(len(agents), LANES, -1), strict=True))
            obs, state, reward, done, _ = jax.vmap(env.step)(jax.random.split(key_step, LANES), state, split)
            row = (batch, action, log_prob, value, PER_REWARD * batchify(reward), batchify(done))
            return (weights, moments, sums, state, obs, rng), (row, told)

        def update(carry, _):
            carry, (batch, told) = jax.lax.scan(env_step, carry, None, STEPS)
            weights, moments, sums, state, obs, rng = carry
            last = ppo.forward(weights, normalised(sums, batchify(obs)))[1]
            weights, moments = ppo.improve(weights, moments, batch, last, gamma=GAMMA, passes=PASSES)
            sums = (sums[0] + 1, sums[1] + told.mean((0, 1)), sums[2] + (told**2).mean((0, 1)))
            return (weights, moments, sums, state, obs, rng), None

        carry = (first, ppo.OPTIMISER.init(first), no_sums, state, obs, rng)
        weights, _, sums, *_ = jax.lax.scan(update, carry, None, UPDATES)[0]
        return (first, no_sums), (weights, sums)

    return train


def train(days: Days, seed: int) -> tuple[float, float]:
    """Returns of the mean action before and after."""
    env = LogWrapper(parallel_env("marl_der_arbitrage", extra_infos=False, reward_type="individual"))  # ours
    played = jax.jit(lambda policy, obs: ppo.forward(policy[0], normalised(policy[1], obs))[0])
    before, after = jax.jit(make_train(env))(jax.random.key(seed))
    return tuple(days.mean_return(lambda obs, p=policy: np.asarray(played(p, obs))) for policy in (before, after))


if __name__ == "__main__":
    run("jaxmarl", train, BATTERIES)
