"""Stable-Baselines3: its checker with warnings as errors, and a learner that runs unmodified."""

from __future__ import annotations

import re
import warnings

import gymnasium
import numpy as np
import powerzoo
import powerzoo_compat.gymnasium_view  # noqa: F401  registers PowerZooJax/...
import pytest
from powerzoo_compat.sb3_view import make_sb3_env
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env

PHYSICAL, UNIT = "PowerZoo/BatteryArbitrage-v0", "PowerZooJax/BatteryArbitrage-v0"
UNITS = (UNIT, "PowerZooJax/DSO-v0", "PowerZooJax/DCMicrogrid-v0", "PowerZooJax/ComparisonTSOCentralized-v0")
# the contract's boxes are in MW, so this one recommendation cannot be followed there
RECOMMENDATION = (
    "We recommend you to use a symmetric and normalized Box action space (range=[-1, 1]) "
    "cf. https://stable-baselines3.readthedocs.io/en/master/guide/rl_tips.html"
)


def test_the_physical_box_draws_its_recommendation_and_nothing_else():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", f"^{re.escape(RECOMMENDATION)}$")
        for task in powerzoo.list_tasks(agent_mode="single"):
            check_env(powerzoo.make_task_env(task, split="train"))
        check_env(gymnasium.make(PHYSICAL))


def test_the_unit_box_draws_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in UNITS:
            check_env(gymnasium.make(name))


@pytest.mark.parametrize("env_id", [PHYSICAL, UNIT])
def test_ppo_learns_for_two_updates(env_id):
    model = PPO("MlpPolicy", env_id, n_steps=96, batch_size=96, n_epochs=1, seed=0, device="cpu")
    model.learn(192)
    assert model.num_timesteps == 192
    assert all(np.isfinite(p.detach().numpy()).all() for p in model.policy.parameters())


def test_ppo_learns_on_lanes_of_one_program():
    envs = make_sb3_env("battery_arbitrage", num_envs=8, max_steps=6)
    model = PPO("MlpPolicy", envs, n_steps=12, batch_size=96, n_epochs=1, seed=0, device="cpu")
    model.learn(192)
    assert model.num_timesteps == 192
    assert all(np.isfinite(p.detach().numpy()).all() for p in model.policy.parameters())


def test_the_last_observation_of_an_episode_is_kept():
    envs = make_sb3_env("battery_arbitrage", num_envs=3, max_steps=4)
    envs.seed(5)
    alone = gymnasium.make(UNIT, max_steps=4)
    obs, (first, _) = envs.reset(), alone.reset(seed=5)
    np.testing.assert_allclose(obs[0], first, atol=1e-5)
    idle = np.zeros((3, 1), np.float32)
    for step in range(1, 5):
        obs, rewards, ends, infos = envs.step(idle)
        last = alone.step(idle[0])
        assert bool(ends[0]) == (step == 4) and rewards[0] == pytest.approx(last[1], abs=1e-6)
    np.testing.assert_allclose(infos[0]["terminal_observation"], last[0], atol=1e-5)
    assert infos[0]["TimeLimit.truncated"] is True and not np.allclose(obs[0], last[0])
