"""Our wrappers of vector rewards beside MOMAland's, and their twins for AEC environments."""

from __future__ import annotations

import momaland.utils.parallel_wrappers as theirs
import numpy as np
import pytest
from momaland.utils.conversions import mo_parallel_to_aec
from momaland.utils.env import MOParallelEnv
from powerzoo_compat import momaland_view as mo
from powerzoo_compat.momaland_wrappers import LinearRewardAEC, NormalizeRewardAEC, RecordEpisodeStatisticsAEC

from tests.compat.vectortoy import LeavingAgents

TASK = "marl_der_arbitrage"


@pytest.fixture(scope="module")
def twins():
    """Two equal environments, in the units of the contract."""
    return tuple(mo.parallel_env(TASK, split="test") for _ in range(2))


def play(env, steps, seed=0):
    """Rewards by step of a seeded episode."""
    env.reset(seed=seed)
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(steps):
        actions = {a: rng.uniform(*_bounds(env, a)).astype(np.float32) for a in env.possible_agents}
        out.append(env.step(actions)[1])
    return out


def _bounds(env, agent):
    box = env.action_space(agent)
    return box.low, box.high


def test_the_class_is_momalands(twins):
    assert all(isinstance(env, MOParallelEnv) for env in twins)


def test_normalising_gives_momalands_numbers(twins):
    ours = play(mo.NormalizeReward(twins[0], "bat_1", 0), 20)
    upstream = play(theirs.NormalizeReward(twins[1], "bat_1", 0), 20)
    for one, other in zip(ours, upstream, strict=True):
        for agent, vector in one.items():
            np.testing.assert_allclose(vector, other[agent], rtol=1e-6, atol=1e-6)


def test_weighing_gives_momalands_numbers(twins):
    weights = {"bat_0": np.array([1.0, 2.0, 0.5, 0.0]), "bat_2": np.ones(4)}
    ours = play(mo.LinearizeReward(twins[0], weights), 5)
    upstream = play(theirs.LinearizeReward(twins[1], weights), 5)
    for one, other in zip(ours, upstream, strict=True):
        assert all(np.allclose(one[agent], other[agent], rtol=1e-6, atol=1e-6) for agent in one)
        assert type(one["bat_0"]) is np.float64 and one["bat_1"].shape == (4,)


def test_centralising_gives_momalands_numbers(twins):
    mine, upstream = mo.CentraliseAgent(twins[0]), theirs.CentraliseAgent(mo.parallel_env(TASK, split="test"))
    seen, _ = mine.reset(seed=1)
    np.testing.assert_allclose(seen, upstream.reset(seed=1)[0])
    for _ in range(3):
        action = mine.action_space.sample()
        one, other = mine.step(action), upstream.step(action)
        np.testing.assert_allclose(one[0], other[0], rtol=1e-6)
        np.testing.assert_allclose(one[1], other[1], rtol=1e-6, atol=1e-6)
        assert one[2:4] == tuple(map(bool, other[2:4]))


def turns(env, seed=0):
    """Rewards by agent of a whole AEC episode, by `last`, asked twice a turn."""
    env.reset(seed=seed)
    rng = np.random.default_rng(seed)
    told: dict[str, list] = {a: [] for a in env.possible_agents}
    for agent in env.agent_iter():
        env.last()
        _, reward, terminated, truncated, info = env.last()
        told[agent].append(reward)
        ended = terminated or truncated
        env.step(None if ended else rng.integers(env.action_space(agent).n))
    return told, info


def aec():
    return mo_parallel_to_aec(LeavingAgents())


def test_aec_twins_come_by_the_same_name_and_survive_agents_that_leave():
    for agent in ("toy_0", "toy_1"):
        env = mo.LinearReward(aec(), weight=np.array([1.0, 0.5]))
        assert isinstance(env, LinearRewardAEC)
        told, _ = turns(env)
        assert all(type(reward) is np.float64 for reward in told[agent])
        assert isinstance(mo.NormalizeReward(aec(), agent, 1), NormalizeRewardAEC)
    plain, _ = turns(aec())
    weighted, _ = turns(mo.LinearReward(aec(), weight=np.array([1.0, 0.5])))
    for agent, vectors in plain.items():
        np.testing.assert_allclose(weighted[agent], [v @ np.array([1.0, 0.5]) for v in vectors])


def test_repeated_looks_count_once():
    told, info = turns(mo.RecordEpisodeStatistics(aec()))
    assert isinstance(mo.RecordEpisodeStatistics(aec()), RecordEpisodeStatisticsAEC)
    assert info["episode"]["l"] == 4  # toy_2 leaves last, after four steps
    np.testing.assert_allclose(info["episode"]["r"], np.sum(told["toy_2"], axis=0))
    scaled, _ = turns(mo.NormalizeReward(aec(), "toy_1", 0))
    once = mo.NormalizeReward(LeavingAgents(), "toy_1", 0)
    plain, _ = turns(aec())
    # what the parallel wrapper makes of the same rewards, from the zero that the first turn shows
    expected = [once._scale(vector, k == 3) for k, vector in enumerate(plain["toy_1"])]
    np.testing.assert_allclose(scaled["toy_1"], expected, rtol=1e-6)


def test_the_central_agent_of_turns_earns_what_the_parallel_one_earns():
    one, other = mo.CentraliseAgent(aec()), mo.CentraliseAgent(LeavingAgents())
    assert one.reset()[0].tolist() == other.reset()[0].tolist()
    for action in ([1, 2, 0], [0, 1, 1], [2, 2, 2], [0, 0, 1]):
        left, right = one.step(np.array(action)), other.step(np.array(action))
        np.testing.assert_allclose(left[1], right[1])
        assert left[2:4] == right[2:4]
