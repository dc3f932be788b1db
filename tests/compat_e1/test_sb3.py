"""Stable-Baselines3: its checker with warnings as errors, and a learner that runs unmodified."""

from __future__ import annotations

import re
import warnings

import gymnasium
import numpy as np
import powerzoo
import powerzoo.benchmarks
import powerzoo_compat.gymnasium_view  # noqa: F401  registers PowerZooJax/...
import pytest
import torch
from powerzoo_compat.sb3_view import make_sb3_env
from powerzoo_compat.vector_view import make_vec_env
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env

from tests.compat_e1 import cleanrl_loop

PHYSICAL, UNIT = "PowerZoo/BatteryArbitrage-v1", "PowerZooJax/BatteryArbitrage-v1"
DAY, LANES, UPDATES, GYMNASIUM_STEPS = 48, 32, 20, 4800
SINGLE = {"n_steps": 480, "batch_size": 96, "n_epochs": 6}
BATCH = {"n_steps": DAY, "batch_size": 384, "n_epochs": 4}
MARGIN = 3.0  # $ a day; idle play earns nothing, random play loses 13
UNITS = (UNIT, "PowerZooJax/DSO-v1", "PowerZooJax/DCMicrogrid-v1", "PowerZooJax/ComparisonTSOCentralized-v1")
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


def test_a_negative_seed_is_refused_before_the_reset_that_would_use_it():
    with pytest.raises(ValueError, match="Seed must be greater or equal to zero, actual value: -1"):
        make_sb3_env("battery_arbitrage", num_envs=2).seed(-1)


def test_a_restored_batch_does_again_what_it_did():
    envs = make_sb3_env("battery_arbitrage", num_envs=2, max_steps=3)
    envs.seed(4)
    envs.reset()
    kept = envs.snapshot()
    told = [envs.step(np.full((2, 1), 0.3, np.float32)) for _ in range(5)]
    envs.reset()
    envs.restore(kept)
    np.testing.assert_equal([envs.step(np.full((2, 1), 0.3, np.float32)) for _ in range(5)], told)


def test_the_unit_box_draws_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in UNITS:
            check_env(gymnasium.make(name))


def mean_return(act, lanes=32):
    """Mean over the first episodes of `lanes` seeds of the test split."""
    envs = make_vec_env("battery_arbitrage", lanes, split="test")
    obs, _ = envs.reset(seed=1000)
    total, steps = np.zeros(lanes), 0
    while steps < DAY:
        obs, rewards, *_ = envs.step(act(obs))
        total, steps = total + rewards, steps + 1
    return total.mean()


def as_played(model):
    """The policy with its own noise: without it an untrained one idles, which beats random play too."""
    return lambda obs: model.predict(obs)[0]


@pytest.fixture(scope="module")
def by_chance():
    """Random play; its standard error is 0.2 $ with so many lanes, and 0.5 $ in the reference."""
    rng = np.random.default_rng(0)
    return mean_return(lambda obs: rng.uniform(-1, 1, (len(obs), 1)).astype(np.float32), lanes=512)


def test_random_play_returns_what_the_shipped_reference_says(by_chance):
    assert by_chance == pytest.approx(powerzoo.benchmarks.get_baseline("battery_arbitrage")["random"], abs=1.0)


def test_ppo_takes_the_physical_box_for_an_update():
    model = PPO("MlpPolicy", PHYSICAL, n_steps=96, batch_size=96, n_epochs=1, seed=0, device="cpu")
    assert model.learn(96).num_timesteps == 96


def test_ppo_on_the_gymnasium_view_improves_over_random(by_chance):
    model = PPO("MlpPolicy", UNIT, learning_rate=2e-3, **SINGLE, seed=0, device="cpu")
    assert mean_return(as_played(model)) < by_chance
    assert mean_return(as_played(model.learn(GYMNASIUM_STEPS))) > by_chance + MARGIN


def test_ppo_on_lanes_of_one_program_improves_over_random(by_chance):
    envs = make_sb3_env("battery_arbitrage", num_envs=LANES)
    model = PPO("MlpPolicy", envs, learning_rate=1e-3, **BATCH, seed=0, device="cpu").learn(UPDATES * LANES * DAY)
    assert mean_return(as_played(model)) > by_chance + MARGIN


def test_a_loop_in_the_shape_of_cleanrl_improves_over_random(by_chance):
    envs = gymnasium.make_vec(UNIT, LANES)
    before, after = (cleanrl_loop.train(envs, updates, DAY) for updates in (0, UPDATES))
    with torch.no_grad():
        returns = [
            mean_return(lambda obs, a=a: a.act(torch.as_tensor(obs))[0].numpy().clip(-1, 1)) for a in (before, after)
        ]
    assert returns[0] < by_chance and returns[1] > by_chance + MARGIN


def test_the_trainer_trains_saves_and_plays_a_model_of_stable_baselines(tmp_path):
    settings = powerzoo.RLConfig(
        task_name="battery_arbitrage",
        algorithm="PPO",
        total_timesteps=96,
        normalize=True,
        hyperparams={"n_steps": 48, "batch_size": 48, "n_epochs": 1, "device": "cpu"},
        seed=1,
    )
    trainer = powerzoo.Trainer(settings, backend="sb3")
    assert trainer.train().num_timesteps == 96
    trainer.save(tmp_path / "model.zip")
    again = powerzoo.Trainer(settings, backend="sb3")
    again.load(tmp_path / "model.zip")
    records = [each.evaluate(1, split="val")["episode_rewards"] for each in (trainer, again)]
    assert records[0] == records[1] and np.isfinite(records[0]).all()
    with pytest.raises(ValueError, match="jax"):
        trainer.train_il()


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


def test_a_task_of_several_agents_is_refused():
    with pytest.raises(ValueError, match="marl_der_arbitrage has 3 agents"):
        make_sb3_env("marl_der_arbitrage", 2)
