"""TorchRL's GymEnv by id: it tries keywords out, and a TypeError's text says which one an environment does not take."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import powerzoo_compat.gymnasium_view  # noqa: F401  registers PowerZooJax/...
import pytest
from powerzoo.tasks import PUBLIC_TASKS, get_task_class
from powerzoo_compat.powerzoo_api.tasks.catalog import gym_id
from torchrl.envs import GymEnv
from torchrl.envs.utils import check_env_specs

STEPS, SEED = 4, 3
SINGLE = [gym_id("PowerZooJax", task) for task in PUBLIC_TASKS if get_task_class(task).agent_mode == "single"]


@pytest.mark.parametrize("env_id", SINGLE)
def test_an_id_passes_torchrls_checker_and_plays_gymnasiums_episode(env_id):
    env, plain = GymEnv(env_id), gymnasium.make(env_id)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env_specs(env)
    told = env.reset(seed=SEED)
    seen, _ = plain.reset(seed=SEED)
    np.testing.assert_array_equal(told["observation"].numpy(), seen)
    for _ in range(STEPS):
        told = env.step(env.rand_action(told))
        seen, reward, *_ = plain.step(told["action"].numpy())
        told = told["next"]
        np.testing.assert_array_equal(told["observation"].numpy(), seen)
        assert told["reward"].item() == pytest.approx(reward, rel=1e-6)


def test_frames_are_skipped_by_torchrl():
    env = GymEnv("PowerZooJax/BatteryArbitrage-v1", frame_skip=2)
    env.step(env.rand_action(env.reset()))
    assert env._env.unwrapped.time_step == 2
