"""Vector rewards: the task's terms, and wrappers that weigh, scale, count and centralise, also when agents leave."""

from __future__ import annotations

import numpy as np
import powerzoo
import pytest
from powerzoo_compat import momaland_view as mo

from tests.compat.vectortoy import LeavingAgents

TASK = "marl_der_arbitrage"


@pytest.fixture(scope="module")
def env():
    return mo.parallel_env(TASK, split="test")


def sample(env):
    return {a: env.action_space(a).sample() for a in env.agents}


@pytest.mark.full
def test_reward_spaces_hold_the_vectors(env):
    assert isinstance(env, mo.MOParallelEnv) and env.objectives[0] == "energy_sales"
    assert env.reward_space("bat_0") is env.reward_space("bat_0") is env.reward_spaces["bat_0"]
    assert env.unwrapped.reward_space("bat_1").shape == (4,)
    env.reset(seed=0)
    _, first, *_ = env.step(sample(env))
    _, second, *_ = env.step(sample(env))
    for agent, vector in first.items():
        assert vector.dtype == np.float32 and env.reward_space(agent).contains(vector)
        assert not np.shares_memory(vector, second[agent]) and np.isfinite(vector).all()


@pytest.mark.full
def test_a_channel_may_be_an_objective_of_weight_zero():
    env = mo.parallel_env(TASK, split="test", objectives=("energy_sales", "cost_resource"))
    env.reset(seed=0)
    # more than the battery may take within its limits
    _, rewards, *_, infos = env.step({a: env.action_space(a).high for a in env.agents})
    assert env.reward_weights.tolist() == [1.0, 0.0]
    assert rewards["bat_0"][1] == np.float32(-infos["bat_0"]["cost_resource"])
    with pytest.raises(ValueError, match="cost_resource"):
        mo.parallel_env(TASK, objectives=("cost_resources",))
    with pytest.raises(ValueError, match="at least one"):
        mo.parallel_env(TASK, objectives=())


@pytest.mark.full
def test_linear_reward_is_a_float64_and_keeps_the_vector(env):
    linear = mo.LinearReward(env, weight=np.array([0.5, 2.0, 0.0, 1.0]))
    linear.reset(seed=0)
    _, rewards, *_, infos = linear.step(sample(linear))
    for agent, reward in rewards.items():
        assert type(reward) is np.float64
        assert reward == pytest.approx(float(infos[agent]["vector_reward"] @ np.array([0.5, 2.0, 0.0, 1.0])), rel=1e-6)
    linear.set_weight(np.zeros(4))
    assert set(linear.step(sample(linear))[1].values()) == {0.0}
    with pytest.raises(ValueError, match=r"\(3,\).*\(4,\)"):
        mo.LinearReward(env, weight=np.ones(3))
    with pytest.raises(KeyError, match="bat_7"):
        mo.LinearizeReward(env, {"bat_7": np.ones(4)})


def test_agents_without_weights_keep_their_vector(env):
    some = mo.LinearizeReward(env, {"bat_1": np.ones(4)})
    some.reset(seed=0)
    _, rewards, *_, infos = some.step(sample(some))
    assert type(rewards["bat_1"]) is np.float64 and rewards["bat_0"].shape == (4,)
    assert "vector_reward" in infos["bat_1"] and "vector_reward" not in infos["bat_0"]


def test_the_loop_of_the_document_reaches_the_end():
    parallel_env = mo.parallel_env(TASK, split="test")
    weight = np.full(parallel_env.reward_space(parallel_env.possible_agents[0]).shape, 0.5)
    parallel_env = mo.LinearReward(parallel_env, weight=weight)
    observations, infos = parallel_env.reset(seed=42)
    steps = 0
    while parallel_env.agents:
        actions = {agent: parallel_env.action_space(agent).sample() for agent in parallel_env.agents}
        observations, vec_rewards, terminations, truncations, infos = parallel_env.step(actions)
        steps += 1
    assert steps == 48 and all(truncations.values()) and not any(terminations.values())
    assert set(observations) == set(vec_rewards) == set(infos)


def test_normalising_divides_by_the_deviation_of_the_discounted_return():
    plain, gamma, epsilon = LeavingAgents(), 0.9, 1e-8
    scaled = mo.NormalizeReward(LeavingAgents(), "toy_1", 0, gamma=gamma, epsilon=epsilon)
    plain.reset(), scaled.reset()
    returns, total = [], 0.0
    for action in ([1, 2, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]):
        actions = dict(zip(plain.possible_agents, action, strict=True))
        (_, raw, ended, *_), (_, got, *_) = plain.step(actions), scaled.step(actions)
        assert set(got) == set(raw)
        if "toy_1" not in raw:  # it left a step earlier
            continue
        total = gamma * total * (1 - ended["toy_1"]) + float(raw["toy_1"][0])
        returns.append(total)
        # an observer of weight 1e-4 that expects mean 0 and variance 1 stands before the first return
        weight = len(returns) + 1e-4
        mean = sum(returns) / weight
        second = (1e-4 + sum(x * x for x in returns)) / weight
        expected = raw["toy_1"][0] / np.sqrt(second - mean**2 + epsilon)
        np.testing.assert_allclose(got["toy_1"], [expected, -1.0], rtol=1e-6)
        np.testing.assert_array_equal(got["toy_2"], raw["toy_2"])
    assert len(returns) == 3


def test_statistics_are_each_agents_own_when_they_leave_one_by_one():
    env = mo.RecordEpisodeStatistics(LeavingAgents(), team=True)
    for _ in range(2):  # the second episode starts from nothing
        env.reset()
        left = {}
        while env.agents:
            *_, infos = env.step({a: 1 for a in env.agents})
            left |= {a: info["episode"] for a, info in infos.items() if a != "episode" and "episode" in info}
    assert {a: s["l"] for a, s in left.items()} == {"toy_0": 2, "toy_1": 3, "toy_2": 4}
    assert {a: s["r"].tolist() for a, s in left.items()} == {"toy_0": [2, 0], "toy_1": [3, -3], "toy_2": [4, -8]}
    assert infos["episode"]["l"] == {"toy_0": 2, "toy_1": 3, "toy_2": 4}


def test_statistics_stand_beside_the_tasks_own_summary(env):
    told = mo.RecordEpisodeStatistics(env)
    told.reset(seed=0)
    total = 0.0
    while told.agents:
        _, rewards, *_, infos = told.step(sample(told))
        total = total + rewards["bat_2"]
    assert set(infos) == set(told.possible_agents) and infos["bat_2"]["episode"].keys() == {"r", "l", "t"}
    assert infos["bat_2"]["episode_summary"]["costs"].keys()
    np.testing.assert_allclose(infos["bat_2"]["episode"]["r"], total)
    assert infos["bat_2"]["episode"]["l"] == 48


def test_the_central_agent_sees_the_state_and_the_sum(env):
    before = {name: env.observation_space(name) for name in env.possible_agents}
    one = mo.CentraliseAgent(env)
    obs, _ = one.reset(seed=0)
    assert one.observation_space.contains(obs) and one.observation_space is env.state_space
    action = one.action_space.sample()
    obs, reward, terminated, truncated, infos = one.step(action)
    assert one.observation_space.contains(obs) and (terminated, truncated) == (False, False)
    env.reset(seed=0)
    _, rewards, *_ = env.step({f"bat_{k}": action[k : k + 1] for k in range(3)})
    np.testing.assert_allclose(reward, sum(rewards.values()), rtol=1e-6)
    assert reward.shape == one.reward_space.shape and set(infos) == set(env.possible_agents)
    assert {name: env.observation_space(name) for name in env.possible_agents} == before
    mean = mo.CentraliseAgent(env, reward_type="mean")
    mean.reset(seed=0)
    np.testing.assert_allclose(mean.step(action)[1], reward / 3, rtol=1e-6)
    with pytest.raises(ValueError, match="average"):
        mo.CentraliseAgent(env, reward_type="averages")
    with pytest.raises(ValueError, match="discrete"):
        mo.CentraliseAgent(env, action_mapping=True)


def test_one_number_stands_for_all_discrete_actions():
    one = mo.CentraliseAgent(LeavingAgents(), action_mapping=True)
    assert one.action_space.n == 27
    obs, _ = one.reset()
    assert obs.tolist() == [0, 0, 1, 0, 2, 0] and one.observation_space.contains(obs)
    # 1 * 9 + 2 * 3 + 0: actions 1, 2 and 0
    assert one.step(15)[1].tolist() == [3.0, -3.0]
    many = mo.CentraliseAgent(LeavingAgents(), reward_type="average")
    many.reset()
    assert many.action_space.nvec.tolist() == [3, 3, 3] and many.step(np.array([1, 2, 0]))[1].tolist() == [1.0, -1.0]
    assert [one.step(0)[2], one.step(0)[0].tolist()] == [True, [0, 2, 1, 3, 2, 3]]


def test_a_single_agent_task_has_a_reward_space_and_a_vector():
    env = mo.single_env("battery_arbitrage", split="test")
    scalar = powerzoo.make_task_env("battery_arbitrage", split="test")
    for each in (env, scalar):
        each.reset(seed=0)
    action = np.full(env.action_space.shape, 0.1, np.float32)
    obs, vector, terminated, truncated, info = env.step(action)
    assert env.reward_space.contains(vector) and not (terminated or truncated)
    assert env.reward_weights @ vector == pytest.approx(scalar.step(action)[1], rel=1e-5, abs=1e-5)
    assert env.observation_space.contains(obs) and info["pf_converged"]
    with pytest.raises(ValueError, match="agents"):
        mo.single_env(TASK)
    with pytest.raises(ValueError, match="one agent"):
        mo.parallel_env("battery_arbitrage")
