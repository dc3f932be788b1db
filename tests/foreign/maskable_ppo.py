"""sb3-contrib's MaskablePPO on levels of power, with the masks of what the charge allows."""

from __future__ import annotations

import numpy as np
from powerzoo_compat.discrete_view import make_discrete_env  # ours
from sb3_contrib import MaskablePPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from tests.foreign.scoring import BATTERY, Days, final_ends, run

LEVELS, LANES, GAMMA = 5, 4, 0.999


def train(days: Days, seed: int) -> tuple[float, float]:
    """Returns of the likeliest levels before and after."""

    def lane():
        return final_ends(make_discrete_env("battery_arbitrage", levels=LEVELS))  # ours

    env = VecNormalize(make_vec_env(lane, LANES, seed=seed), gamma=GAMMA)
    model = MaskablePPO(
        "MlpPolicy", env, learning_rate=1e-3, n_steps=96, batch_size=96, n_epochs=8, gamma=GAMMA, seed=seed,
        device="cpu",
    )  # fmt: skip
    values = np.linspace(-1, 1, LEVELS)

    def act(obs):
        # an infeasible level is clipped by the environment: masks are for learning
        return values[model.predict(env.normalize_obs(obs), deterministic=True)[0]][:, None]

    before = days.mean_return(act)
    model.learn(30 * LANES * 96)
    return before, days.mean_return(act)


if __name__ == "__main__":
    run("sb3-contrib", train, BATTERY)
