"""Stable-Baselines3's PPO on lanes of one program, with its own normalisation of observations and rewards."""

from __future__ import annotations

from powerzoo_compat.sb3_view import make_sb3_env  # ours
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecNormalize

from tests.foreign.scoring import BATTERY, Days, final_ends, run

GAMMA = 0.999


def train(days: Days, seed: int) -> tuple[float, float]:
    """Returns of the mean action before and after."""
    lanes = make_sb3_env("battery_arbitrage", num_envs=16)  # ours
    final_ends(lanes.envs)  # ours
    env = VecNormalize(lanes, gamma=GAMMA)
    model = PPO(
        "MlpPolicy", env, learning_rate=1e-3, n_steps=48, batch_size=192, gamma=GAMMA, seed=seed, device="cpu",
        policy_kwargs={"log_std_init": -1.0},
    )  # fmt: skip

    def act(obs):
        return model.predict(env.normalize_obs(obs), deterministic=True)[0]

    before = days.mean_return(act)
    model.learn(26 * 16 * 48)
    return before, days.mean_return(act)


if __name__ == "__main__":
    run("stable-baselines3", train, BATTERY)
