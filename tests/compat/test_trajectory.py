"""Same seed, same actions: Sim, the Gymnasium view and the powerzoo API agree over a whole episode."""

from __future__ import annotations

import gymnasium
import jax
import numpy as np
import powerzoo
import powerzoo_compat.gymnasium_view  # noqa: F401  registers PowerZooJax/...
import pytest
from powerzoo_compat._host import to_unit

import powerzoo_jax
from tests.tolerances import tolerance

TASK = "battery_arbitrage"
SEED = 11


@pytest.fixture(scope="module", params=["train", "price_stress"])
def runs(request):
    """(obs, reward, cost) of every step, from the kernel and from both views."""
    actions = np.random.default_rng(3).uniform(-1, 1, (48, 1)).astype(np.float32)
    return {
        "kernel": _kernel(request.param, actions),
        "gymnasium": _view(gymnasium.make("PowerZooJax/BatteryArbitrage-v1", split=request.param), actions),
        "powerzoo": _view(powerzoo.make_task_env(TASK, split=request.param), actions * np.float32(0.2)),
    }


def _kernel(split, actions):
    sim = powerzoo_jax.make(TASK, split=split)
    step = jax.jit(sim.step)
    state, obs = jax.jit(sim.init)(jax.random.key(SEED))
    rows = [(obs[0], 0.0, np.zeros(4), False)]
    for action in actions:
        out = step(state, action[None])
        state = out.state
        rows.append((out.obs[0], out.reward[0], out.cost, out.info.truncated))
    return [np.stack([np.asarray(row[i], np.float64) for row in rows]) for i in range(4)]


def _view(env, actions):
    obs, info = env.reset(seed=SEED)
    rows = [(obs, 0.0, info["constraint_costs"], False)]
    for action in actions:
        obs, reward, _, truncated, info = env.step(action)
        rows.append((obs, reward, info["constraint_costs"], truncated))
    return [np.stack([np.asarray(row[i], np.float64) for row in rows]) for i in range(4)]


@pytest.mark.tiers(
    "full",
    long=[
        "train-0-observation-gymnasium",
        "train-0-observation-powerzoo",
        "price_stress-0-observation-gymnasium",
        "price_stress-0-observation-powerzoo",
        "price_stress-1-reward-gymnasium",
        "price_stress-1-reward-powerzoo",
        "price_stress-2-cost-gymnasium",
    ],
)
@pytest.mark.parametrize("view", ["gymnasium", "powerzoo"])
@pytest.mark.parametrize(("index", "what"), [(0, "observation"), (1, "reward"), (2, "cost"), (3, "end")])
def test_a_view_repeats_the_kernel(view, index, what, runs):
    kernel, seen = runs["kernel"][index], runs[view][index]
    scale = np.maximum(np.abs(kernel), 1.0)
    assert np.max(np.abs(seen - kernel) / scale) <= tolerance("view", np.float32), what
    assert np.all(seen.shape == kernel.shape)


@pytest.mark.full
def test_the_episode_ends_at_its_horizon_only(runs):
    for _, _, _, end in runs.values():
        assert end.tolist() == [0.0] * 48 + [1.0]


def test_a_box_is_scaled_to_minus_one_to_one_wherever_its_middle_lies():
    """By hand: the ends, the middle, a quarter and what is outside, of 0..10 and of -4..4."""
    box = gymnasium.spaces.Box(np.array([0.0, -4.0], np.float32), np.array([10.0, 4.0], np.float32))
    given = [[0, -4], [10, 4], [5, 0], [2.5, 2], [12, -9]]
    scaled = [to_unit(np.array(row, np.float32), box).tolist() for row in given]
    assert scaled == [[-1, -1], [1, 1], [0, 0], [-0.5, 0.5], [1, -1]]
