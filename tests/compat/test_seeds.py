"""Seeds: every view refuses a negative one in Gymnasium's words, and takes any integer type."""

from __future__ import annotations

from functools import cache

import gymnasium
import numpy as np
import powerzoo
import pytest
from gymnasium.utils import seeding
from powerzoo_compat import heron_view, pettingzoo_aec, pettingzoo_view, safety_view, smartgrid_view, vector_view
from powerzoo_compat import momaland_view as mo
from powerzoo_compat.gymnasium_view import make_env
from powerzoo_compat.powerzoo_api.tasks.central import CentralisedEnv
from powerzoo_compat.torchrl_view import NumericInfos

TASK, CROWD = "battery_arbitrage", "marl_der_arbitrage"
STEPS = 3


@cache
def crowd():
    return powerzoo.make_task_env(CROWD, max_steps=STEPS)


@cache
def battery():
    return powerzoo.make_task_env(TASK, max_steps=STEPS)


VIEWS = {
    "gymnasium": battery,
    "unit actions": lambda: make_env(TASK, max_steps=STEPS),
    "safety": lambda: safety_view.SafeEnv(battery()),
    "flattened grid": lambda: gymnasium.make("PowerZoo/DistGrid-easy-v0"),
    "auto": crowd,
    "pettingzoo": lambda: pettingzoo_view.TaskPettingZooWrapper(crowd()),
    "aec": lambda: pettingzoo_aec.TaskAECEnv(pettingzoo_view.TaskPettingZooWrapper(crowd())),
    "levels": lambda: pettingzoo_view.parallel_env("marl_uc", levels=2),
    "torchrl": lambda: NumericInfos(pettingzoo_view.TaskPettingZooWrapper(crowd())),
    "centralised": lambda: CentralisedEnv(crowd()),
    "heron": lambda: heron_view.HeronTaskEnv(crowd()),
    "one of heron's agents": lambda: heron_view.SingleAgentWrapper(heron_view.HeronTaskEnv(crowd()), "bat_0"),
    "momaland": lambda: mo.TaskMOEnv(crowd()),
    "momaland, central": lambda: mo.CentraliseAgent(mo.TaskMOEnv(crowd())),
    "momaland, single": lambda: mo.MOTaskEnv(battery()),
    "smartgrid": lambda: smartgrid_view.SmartGrid(crowd()),
    "vector": lambda: vector_view.make_vec_env(TASK, 2, max_steps=STEPS),
}


def wording(seed):
    """What Gymnasium says of a seed."""
    with pytest.raises(gymnasium.error.Error) as refused:
        seeding.np_random(seed)
    return str(refused.value)


@pytest.mark.parametrize("view", VIEWS)
def test_a_negative_seed_is_refused_in_gymnasiums_words(view):
    env = VIEWS[view]()
    for seed in (-1, np.int64(-(2**40))):
        with pytest.raises(ValueError) as refused:
            env.reset(seed=seed)
        assert str(refused.value) == wording(int(seed))
    with pytest.raises(TypeError) as refused:
        env.reset(seed=1.5)
    assert str(refused.value) == wording(1.5)


def test_a_batch_refuses_a_list_with_a_negative_seed():
    with pytest.raises(ValueError, match="actual value: -3"):
        VIEWS["vector"]().reset(seed=[1, -3])


def test_a_refused_seed_leaves_the_running_episode_as_it_was():
    env = battery()
    env.reset(seed=0)
    env.step(env.action_space.low)
    before = env.obs()
    with pytest.raises(ValueError, match="actual value: -1"):
        env.reset(seed=-1)
    assert env.time_step == 1
    np.testing.assert_array_equal(env.obs(), before)


def test_a_seed_of_numpy_is_the_same_seed():
    env = battery()
    first, _ = env.reset(seed=7)
    again, _ = env.reset(seed=np.int32(7))
    np.testing.assert_array_equal(first, again)
