"""Rejax's PQN, Q-learning of parallel lanes without a replay buffer, on levels of power in the gymnax view."""

from __future__ import annotations

import jax
import numpy as np
import rejax
from powerzoo_compat.gymnax_view import to_gymnax  # ours

import powerzoo_jax  # ours
from tests.foreign.scoring import BATTERY, Days, run

LEVELS = 3
STEPS = 100 * 32 * 48


def train(days: Days, seed: int) -> tuple[float, float]:
    """Returns of the levels of the largest value, before and after."""
    env, params = to_gymnax(powerzoo_jax.make("battery_arbitrage"), api="five", levels=LEVELS)  # ours
    algo = rejax.PQN.create(
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
        td_lambda=0.95,
        eps_start=0.5,
        eps_end=0.05,
        exploration_fraction=0.6,
        normalize_rewards=True,
    )

    def score(state):
        level = jax.jit(lambda obs: algo.agent.apply(state.q_ts.params, obs).argmax(-1))
        return days.mean_return(lambda obs: 2 * np.asarray(level(obs))[:, None] / (LEVELS - 1) - 1)

    begun = algo.init_state(jax.random.key(seed))
    before = score(begun)
    trained, _ = jax.jit(algo.train)(train_state=begun)
    return before, score(trained)


if __name__ == "__main__":
    run("rejax", train, BATTERY)
