"""Six values a step: costs non-negative, equal to the info's, summed or by channel."""

from __future__ import annotations

import numpy as np
import pytest
from powerzoo_compat.safety_view import make_safe_env


@pytest.mark.parametrize("vector_cost", [False, True])
def test_the_cost_is_what_the_info_says(vector_cost):
    env = make_safe_env("dc_microgrid_safe", split="test", vector_cost=vector_cost, max_steps=24)
    obs, info = env.reset(seed=0)
    env.action_space.seed(0)
    truncated, total, steps = False, 0.0, 0
    while not truncated:
        obs, reward, cost, terminated, truncated, info = env.step(env.action_space.sample())
        assert isinstance(reward, float) and not terminated and env.observation_space.contains(obs)
        assert np.shape(cost) == ((len(env.cost_names),) if vector_cost else ())
        assert np.all(np.asarray(cost) >= 0) and np.sum(cost) == pytest.approx(info["cost"])
        total, steps = total + float(np.sum(cost)), steps + 1
    costs = info["episode_summary"]["costs"]
    assert steps == 24 and total == pytest.approx(sum(costs[name] for name in env.cost_names))


def test_thresholds_follow_the_names():
    env = make_safe_env("dc_microgrid_safe")
    assert env.cost_names == ("sla", "overtemp", "power_deficit", "dropped_gpu_h") and len(env.cost_thresholds) == 4
    assert env.cost_threshold == pytest.approx(sum(env.cost_thresholds))
