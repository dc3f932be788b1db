"""TorchRL's GymEnv by id: it tries keywords out, and a TypeError's text says which one an environment does not take."""

from __future__ import annotations

import gymnasium
import numpy as np
import powerzoo_compat.gymnasium_view  # noqa: F401  registers PowerZooJax/...
import pytest
from torchrl.envs import GymEnv
from torchrl.envs.utils import check_env_specs

STEPS, SEED = 4, 3


@pytest.mark.parametrize("env_id", ["PowerZooJax/BatteryArbitrage-v0", "PowerZooJax/DSO-v0"])
def test_an_id_passes_torchrls_checker_and_plays_gymnasiums_episode(env_id):
    env, plain = GymEnv(env_id), gymnasium.make(env_id)
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
    env = GymEnv("PowerZooJax/BatteryArbitrage-v0", frame_skip=2)
    env.step(env.rand_action(env.reset()))
    assert env._env.unwrapped.time_step == 2
