"""Recorded episodes in Minari's store, read back by Minari."""

from __future__ import annotations

import dataclasses
import json

import gymnasium
import minari
import numpy as np
import pytest

from powerzoo_jax.cli import main
from powerzoo_jax.rl import OfflineData, to_minari

ID = "powerzoo/battery_arbitrage/rule-v0"
ULPS = 1e-5  # eight roundings of a voltage in float32, of which an observation shows ten times the deviation from 1 pu


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_dataset_recovers_the_environment_that_gave_its_steps(capsys):
    assert main(["dataset", "battery_arbitrage", "--episodes", "2", "--seed", "3", "--minari", ID]) == 0
    assert f"minari.load_dataset({ID!r})" in capsys.readouterr().out
    found = minari.load_dataset(ID)
    assert (found.total_episodes, found.total_steps) == (2, 96)
    env = found.recover_environment()
    assert env.observation_space == found.observation_space and env.action_space == found.action_space
    for k, episode in enumerate(found.iterate_episodes()):
        obs, _ = env.reset(seed=3 + k)
        for t, action in enumerate(episode.actions):
            assert obs == pytest.approx(episode.observations[t], abs=ULPS)
            obs, reward, terminated, truncated, info = env.step(action)
            assert reward == pytest.approx(episode.rewards[t], rel=1e-5, abs=1e-6)
            assert (terminated, truncated) == (episode.terminations[t], episode.truncations[t])
            assert info["cost_resource"] == pytest.approx(episode.infos["cost"]["resource"][t], abs=1e-6)
        assert obs == pytest.approx(episode.observations[-1], abs=ULPS) and truncated


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_agents_are_keys_of_a_dict():
    numbers = np.random.default_rng(0)
    fields = {field.name for field in dataclasses.fields(OfflineData)}
    sizes = {"observations": (5, 2, 3), "actions": (5, 2, 1), "rewards": (5, 2), "terms": (5, 2, 1), "costs": (5, 1)}
    arrays = {name: numbers.uniform(-1, 1, shape).astype(np.float32) for name, shape in sizes.items()}
    ends = np.array([False, True, False, False, True])
    arrays |= {"terminated": np.zeros(5, bool), "truncated": ends, "lengths": np.array([2, 3], np.int32)}
    arrays |= {"final_observations": np.zeros((2, 2, 3), np.float32)}
    arrays |= {"low": -np.ones((2, 3), np.float32), "high": np.ones((2, 3), np.float32)}
    about = {"task": "two", "version": 0, "split": "train", "family": "feeder", "policy": "rule", "seed": 0}
    about |= {"drawn": False, "agents": ["left", "right"], "cost_names": ["overload"]}
    assert fields == {*arrays, "about"}
    data = OfflineData(**arrays, about=about)
    made = to_minari(data, "powerzoo/two/rule-v0", author="nobody")
    assert isinstance(made.observation_space, gymnasium.spaces.Dict) and list(made.action_space) == ["left", "right"]
    first, second = made.iterate_episodes()
    assert np.array_equal(second.observations["right"][:3], data.observations[2:, 1])
    assert np.array_equal(first.actions["left"], data.actions[:2, 0])
    assert first.rewards == pytest.approx(data.rewards[:2].mean(axis=1))
    assert np.array_equal(second.infos["reward"]["right"], data.rewards[2:, 1])
    assert json.loads(made.storage.metadata["powerzoo_jax"])["agents"] == ["left", "right"]
