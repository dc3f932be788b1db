"""Gymnasium's wrappers of episode statistics over our views, to the end of an episode and into the next one."""

from __future__ import annotations

from functools import cache

import gymnasium
import numpy as np
import powerzoo
import powerzoo_compat.gymnasium_view  # noqa: F401  registers PowerZooJax/...
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import RecordEpisodeStatistics
from gymnasium.wrappers.vector import RecordEpisodeStatistics as RecordVectorStatistics
from powerzoo_compat import heron_view
from powerzoo_compat import momaland_view as mo
from powerzoo_compat.powerzoo_api.tasks.central import CentralisedEnv

TASK, CROWD = "battery_arbitrage", "marl_der_arbitrage"
UNIT = "PowerZooJax/BatteryArbitrage-v1"
STEPS, LANES = 3, 2
TOTALS = {"r", "l", "costs", "metrics"}


@cache
def crowd():
    return powerzoo.make_task_env(CROWD, max_steps=STEPS)


SINGLE = {
    "drop-in": lambda: powerzoo.make_task_env(TASK, max_steps=STEPS),
    "unit actions": lambda: gymnasium.make(UNIT, max_steps=STEPS),
    "centralised": lambda: CentralisedEnv(crowd()),
    "one of heron's agents": lambda: heron_view.SingleAgentWrapper(heron_view.HeronTaskEnv(crowd()), "bat_0"),
    "vector rewards": lambda: mo.single_env(TASK, max_steps=STEPS),
}


@pytest.mark.tiers(full=["drop-in", "unit actions"])
@pytest.mark.parametrize("view", SINGLE)
def test_gymnasiums_statistics_are_those_of_the_rewards_returned(view):
    env = RecordEpisodeStatistics(SINGLE[view]())
    env.action_space.seed(0)
    for _ in range(2):
        _, info = env.reset(seed=0)
        assert info["episode_summary"].keys() == TOTALS
        total = 0.0
        for _ in range(STEPS):
            assert "episode" not in info
            *_, reward, terminated, truncated, info = env.step(env.action_space.sample())
            total = total + np.asarray(reward)
        assert truncated and not terminated
        np.testing.assert_allclose(info["episode"]["r"], total, rtol=1e-12)
        assert info["episode"]["l"] == info["episode_summary"]["l"] == STEPS
        assert info["episode_summary"].keys() == TOTALS


@pytest.mark.tiers("full", long=["native-AutoresetMode.NEXT_STEP", "native-AutoresetMode.SAME_STEP"])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("loop", ["native", "sync"])
def test_gymnasiums_statistics_of_a_batch_are_those_of_the_rewards_returned(mode, loop):
    given = {"autoreset_mode": mode} if loop == "native" else {"vector_kwargs": {"autoreset_mode": mode}}
    how = () if loop == "native" else (loop,)
    envs = RecordVectorStatistics(gymnasium.make_vec(UNIT, LANES, *how, max_steps=STEPS, **given))
    envs.reset(seed=0)
    envs.action_space.seed(0)
    pause = mode == AutoresetMode.NEXT_STEP  # the step that restarts belongs to no episode
    for _ in range(2):
        total = np.zeros(LANES)
        for _ in range(STEPS):
            _, rewards, _, truncations, infos = envs.step(envs.action_space.sample())
            total += rewards
        assert truncations.all() and infos["_episode"].all()
        np.testing.assert_allclose(infos["episode"]["r"], total, rtol=1e-6)
        assert infos["episode"]["l"].tolist() == [STEPS] * LANES
        if pause:
            envs.step(envs.action_space.sample())
