"""Stable-Baselines3: its checker with warnings as errors, and a learner that runs unmodified."""

from __future__ import annotations

import re
import warnings

import gymnasium
import numpy as np
import powerzoo
import powerzoo_compat.gymnasium_view  # noqa: F401  registers PowerZooJax/...
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env

PHYSICAL, UNIT = "PowerZoo/BatteryArbitrage-v0", "PowerZooJax/BatteryArbitrage-v0"
# the contract's boxes are in MW, so this one recommendation cannot be followed there
RECOMMENDATION = (
    "We recommend you to use a symmetric and normalized Box action space (range=[-1, 1]) "
    "cf. https://stable-baselines3.readthedocs.io/en/master/guide/rl_tips.html"
)


def test_the_physical_box_draws_its_recommendation_and_nothing_else():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", f"^{re.escape(RECOMMENDATION)}$")
        check_env(powerzoo.make_task_env("battery_arbitrage", split="train"))
        check_env(gymnasium.make(PHYSICAL))


def test_the_unit_box_draws_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(UNIT))


@pytest.mark.parametrize("env_id", [PHYSICAL, UNIT])
def test_ppo_learns_for_two_updates(env_id):
    model = PPO("MlpPolicy", env_id, n_steps=96, batch_size=96, n_epochs=1, seed=0, device="cpu")
    model.learn(192)
    assert model.num_timesteps == 192
    assert all(np.isfinite(p.detach().numpy()).all() for p in model.policy.parameters())
