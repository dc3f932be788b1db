"""Recorded episodes: what the environment gives when it is stepped with the recorded actions."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax import make
from powerzoo_jax.base.errors import DataError
from powerzoo_jax.base.npz import write_npz
from powerzoo_jax.oracle import random_act
from powerzoo_jax.rl import load_offline, offline, record_offline, save_offline, to_minari

SEED, EPISODES = 5, 3
ULPS = 1e-5  # eight roundings of a voltage in float32, of which an observation shows ten times the deviation from 1 pu


@pytest.fixture(scope="module")
def sim():
    return make("battery_arbitrage", split="train")


@pytest.fixture(scope="module")
def data(sim):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            offline, "SIDE_BY_SIDE", 2
        )  # the second call holds one episode that counts, and one that does not
        return record_offline(sim, random_act(sim), n_episodes=EPISODES, seed=SEED, policy="random")


@pytest.mark.full
def test_stepping_with_the_recorded_actions_gives_the_recorded_steps(sim, data):
    step, following = jax.jit(sim.step), data.next_observations
    for k, rows in enumerate(data.episodes):
        state, obs = sim.init(jax.random.key(SEED + k))
        for row in range(rows.start, rows.stop):
            assert np.allclose(obs, data.observations[row], atol=ULPS)
            state, obs, reward, cost, info = step(state, jnp.asarray(data.actions[row]))
            assert np.allclose(obs, following[row], atol=ULPS)
            assert np.allclose(reward, data.rewards[row], rtol=1e-5, atol=1e-6)
            assert np.allclose(cost, data.costs[row], rtol=1e-4, atol=1e-6)
            assert np.allclose(info.terms, data.terms[row], rtol=1e-5, atol=1e-6)
            assert (bool(info.terminated), bool(info.truncated)) == (data.terminated[row], data.truncated[row])
    assert data.truncated[data.ends - 1].all() and data.truncated.sum() == EPISODES


@pytest.mark.full
def test_names_and_units_are_those_of_the_task(sim, data):
    told = data.about
    assert told["observation_names"] == list(sim.env.fields.names)
    assert len(told["observation_units"]) == data.observations.shape[2]
    assert told["cost_names"] == list(sim.spec.cost_names) and len(told["cost_units"]) == data.costs.shape[1]
    assert (told["task"], told["split"], told["policy"], told["drawn"]) == (
        "battery_arbitrage",
        "train",
        "random",
        True,
    )
    assert np.all(data.low <= data.observations) and np.all(data.observations <= data.high)
    assert "3 episodes, 144 steps" in repr(data)


@pytest.mark.full
def test_a_file_holds_all_of_it(data, tmp_path):
    found = load_offline(save_offline(tmp_path / "new" / "day.npz", data))
    for name in offline.ARRAYS:
        assert (
            np.array_equal(getattr(found, name), getattr(data, name))
            and getattr(found, name).dtype == getattr(data, name).dtype
        )
    assert found.about == data.about
    assert found.returns == pytest.approx([data.rewards[rows].sum() for rows in data.episodes], rel=1e-5)


@pytest.fixture(scope="module")
def cut(sim):
    """Two made-up episodes of 48 steps, of which the first ended in its seventh."""
    numbers = np.random.default_rng(0)
    obs, actions, reward = (numbers.normal(size=(48, 1, n)).astype(np.float32) for n in (4, 2, 1))
    rest = (obs, actions, reward[:, :, 0], reward, reward[:, :, 0])
    failed = np.arange(48) >= 6  # the kernel goes on after a failed solve, and keeps saying so
    broken, whole = (*rest, failed, np.zeros(48, bool)), (*rest, np.zeros(48, bool), np.arange(48) == 47)
    return obs, offline._joined(sim, [(broken, obs[0]), (whole, obs[1])], {"policy": "made up"})


def test_an_episode_that_ends_early_is_cut_behind_its_end(cut):
    obs, found = cut
    assert found.lengths.tolist() == [7, 48] and found.terminated.sum() == 1
    assert np.array_equal(found.final_observations, np.stack([obs[7], obs[1]]))
    assert np.array_equal(found.next_observations[:7], obs[1:8])
    assert np.abs(found.actions).max() == 1


def test_another_file_is_refused(tmp_path):
    write_npz(tmp_path / "a.npz", {"x": np.zeros(3)})
    with pytest.raises(DataError, match=r"holds no recorded episodes: observations is missing.*powerzoo-jax dataset"):
        load_offline(tmp_path / "a.npz")


def test_without_minari_the_extra_is_named(cut, monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(ImportError, match=r"powerzoo-jax\[minari\]"):
        to_minari(cut[1], "powerzoo/day/random-v0")
