"""Rejax's PPO on the gymnax view: observations and rewards normalised by Rejax, training in one program."""

from __future__ import annotations

import jax
import numpy as np
import rejax
from powerzoo_compat.gymnax_view import to_gymnax  # ours

import powerzoo_jax  # ours
from tests.foreign.scoring import BATTERY, Days, run

STEPS = 50 * 32 * 48


def train(days: Days, seed: int) -> tuple[float, float]:
    """Returns of the mean action before and after."""
    env, params = to_gymnax(powerzoo_jax.make("battery_arbitrage"), api="five")  # ours
    algo = rejax.PPO.create(
        env=env,
        env_params=params,
        total_timesteps=STEPS,
        eval_freq=STEPS,
        skip_initial_evaluation=True,
        num_envs=32,
        num_steps=48,
        num_minibatches=8,
        num_epochs=4,
        learning_rate=1e-3,
        gamma=0.999,
        ent_coef=0.0,
        normalize_observations=True,
        normalize_rewards=True,
    )

    def score(state):
        def mean_action(obs):
            seen = algo.normalize_obs(state.obs_rms_state, obs)
            return algo.actor.apply(state.actor_ts.params, seen, method="_action_dist").mode()

        played = jax.jit(mean_action)
        return days.mean_return(lambda obs: np.asarray(played(obs)))

    begun = algo.init_state(jax.random.key(seed))
    before = score(begun)
    trained, _ = jax.jit(algo.train)(train_state=begun)
    return before, score(trained)


if __name__ == "__main__":
    run("rejax", train, BATTERY)
