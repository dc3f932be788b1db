"""SmartGrid: named rewards, steps without end, observations as dataclasses, aggregators on the host and in arrays."""

from __future__ import annotations

import dataclasses
import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import powerzoo
import pytest
from pettingzoo.test import parallel_api_test
from powerzoo_compat import aggregation
from powerzoo_compat import smartgrid_view as sg

TASK = "marl_der_arbitrage"
FUNCTIONS = {"energy_sales", "degradation", "settlement", "unserved_energy"}


def grid(**kwargs):
    return sg.parallel_env(TASK, split="test", **kwargs)


def sample(env):
    return {a: env.action_space(a).sample() for a in env.agents}


@pytest.fixture(scope="module")
def endless():
    env = grid()
    for k, agent in enumerate(env.possible_agents):
        env.action_space(agent).seed(k)
    return env


@pytest.mark.full
def test_rewards_are_named_and_the_settlement_appears_in_the_last_step_of_a_day_only(endless):
    endless.reset(seed=0)
    seen = [set(endless.step(sample(endless))[1]["bat_0"]) for _ in range(96)]
    assert [k for k, names in enumerate(seen) if names == FUNCTIONS] == [47, 95]
    assert all(names == FUNCTIONS - {"settlement"} for k, names in enumerate(seen) if k not in (47, 95))
    assert endless.agents == endless.possible_agents and endless.world.current_step == 96


@pytest.mark.full
def test_the_next_day_is_the_one_that_a_reset_without_seed_begins(endless):
    first, _ = endless.reset(seed=3)
    for _ in range(48):
        obs, *_ = endless.step({})
    auto = powerzoo.make_task_env(TASK, split="test")
    seen, _ = auto.reset(seed=3)
    np.testing.assert_array_equal(np.asarray(first["bat_1"], np.float32), seen["bat_1"])
    following, _ = auto.reset()
    np.testing.assert_array_equal(np.asarray(obs["bat_1"], np.float32), following["bat_1"])


def test_infos_hold_the_same_dict_and_nothing_at_reset(endless):
    _, infos = endless.reset(seed=1)
    assert infos == {a: {} for a in endless.possible_agents}
    _, rewards, *_, infos = endless.step(sample(endless))
    assert all(infos[a]["reward"] is rewards[a] for a in rewards)
    _, scalars, *_, infos = sg.MinRewardAggregator(endless).step(sample(endless))
    assert infos["bat_0"]["reward"].keys() == FUNCTIONS - {"settlement"}
    assert scalars["bat_0"] == min(infos["bat_0"]["reward"].values())


def test_truncation_begins_one_step_before_max_step_and_later_steps_warn():
    env = grid(max_step=5, agents_after_done="keep")
    env.reset(seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told = [env.step({})[2:4] for _ in range(5)]
    assert [all(truncated.values()) for _, truncated in told] == [False, False, False, True, True]
    assert not any(any(terminated.values()) for terminated, _ in told)
    with pytest.warns(UserWarning, match="max_step is 5, but step 5"):
        env.step({})
    assert env.agents == env.possible_agents


def test_agents_leave_at_the_end_as_pettingzoo_asks():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(grid(max_step=10), num_cycles=20)
    env = grid(max_step=3)
    env.reset(seed=0)
    env.step({})
    assert env.agents and all(env.step({})[3].values()) and env.agents == []
    assert env.step({}) == ({}, {}, {}, {}, {})
    with pytest.raises(ValueError, match="keep"):
        grid(agents_after_done="kept")


def test_agents_are_found_by_name(endless):
    endless.reset(seed=0)
    agent = endless.get_agent("bat_2")
    assert agent.name == "bat_2" and agent is endless.world.agents[2] is endless.world.agents_by_name["bat_2"]
    with pytest.raises(KeyError, match="bat_3"):
        endless.get_agent("bat_3")
    with pytest.raises(AssertionError, match="Agent bat_3 not found"):
        endless.step({"bat_3": np.zeros(1)})


def test_observations_are_frozen_dataclasses_that_become_arrays(endless):
    obs, _ = endless.reset(seed=0)
    one = obs["bat_0"]
    assert one == endless.reset(seed=0)[0]["bat_0"] != endless.reset(seed=1)[0]["bat_0"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.soc = 0.0
    assert list(one.asdict()) == one.fields() and one.asdict()["soc"] == one.soc == one.get_local_observation().soc
    assert np.asarray(one).dtype == np.float64 and np.asarray(one, np.float32).tolist() == pytest.approx(np.array(one))
    with pytest.raises(ValueError, match="copy"):
        one.__array__(copy=False)


def test_a_seed_fixes_a_hundred_steps_and_touches_no_global_generator(endless):
    np.random.seed(0)  # noqa: NPY002  the global generator is what must stay alone
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    rng = np.random.default_rng(5)
    actions = rng.uniform(-0.2, 0.2, (100, 3, 1)).astype(np.float32)
    runs = []
    for _ in range(2):
        obs, _ = endless.reset(seed=9)
        seen = [obs["bat_0"]]
        for action in actions:
            seen.append(endless.step(dict(zip(endless.agents, action, strict=True)))[0]["bat_0"])
        runs.append(seen)
    assert runs[0] == runs[1]
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_the_world_balances_what_was_fed_in(endless):
    endless.reset(seed=0)
    *_, infos = endless.step({"bat_0": np.array([0.1], np.float32)})
    info = infos["bat_0"]
    # other batteries idle: the feeder head and one discharging battery feed 30 minutes
    fed_in = info["p_slack_MW"] + info["power"]
    assert endless.world.available_energy == pytest.approx(fed_in * 0.5, rel=1e-6) and info["power"] > 0
    assert [r.name for r in endless.reward_calculator.rewards] == list(endless.reward_weights)
    assert endless.observation_manager.shape == endless.observation_shape


def test_a_reward_function_of_ones_own_may_be_inactive():
    calm = sg.RewardFunction("calm", lambda world, agent: 1.0, lambda world, agent: agent.index == 1)
    env = grid(rewards=["energy_sales", calm])
    env.reset(seed=0)
    _, rewards, *_ = env.step(sample(env))
    assert set(rewards["bat_0"]) == {"energy_sales"} and rewards["bat_1"]["calm"] == 1.0
    with pytest.raises(AssertionError, match="at least one"):
        grid(rewards=[])
    with pytest.raises(ValueError, match="energy_sales"):
        grid(rewards=["energy_sale"])


class Loudest(sg.RewardAggregator):
    """The largest reward; a class of a user's own."""

    def reward(self, rewards):
        return {agent: max(own.values()) for agent, own in rewards.items()}


def test_an_aggregator_is_a_smartgrid_that_forwards_everything_public(endless):
    with pytest.raises(TypeError, match="abstract"):
        sg.RewardAggregator(endless)
    env = Loudest(sg.MinRewardAggregator(endless))
    assert isinstance(env, sg.SmartGrid) and str(env) == "Loudest<MinRewardAggregator<SmartGrid>>"
    assert env.unwrapped is endless and env.agents is endless.agents and env.world is endless.world
    assert env.observation_space("bat_0") is endless.observation_space("bat_0") and env.max_num_agents == 3
    with pytest.raises(AttributeError):
        _ = env._task
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(sg.MinRewardAggregator(grid(max_step=6)), num_cycles=8)


def test_the_four_aggregators_by_hand(endless):
    with pytest.warns(UserWarning, match="found 4"):
        first = sg.SingleRewardAggregator(endless)
    with pytest.warns(UserWarning, match="coefficients"):
        weighted = sg.WeightedSumRewardAggregator(endless, {"energy_sales": 2.0, "comfort": 1.0})
    given = {"bat_0": {"energy_sales": -0.5, "degradation": 3.0}, "bat_1": {"degradation": 4.0, "settlement": 0.5}}
    mean = sg.WeightedSumRewardAggregator(endless)
    assert first.reward(given) == {"bat_0": -0.5, "bat_1": 4.0}
    assert weighted.reward(given) == {"bat_0": -1.0, "bat_1": 0.0}
    assert mean.reward(given) == {"bat_0": 0.625, "bat_1": 1.125}
    assert sg.MinRewardAggregator(endless).reward(given) == {"bat_0": -0.5, "bat_1": 0.5}
    assert sg.ProductRewardAggregator(endless).reward(given) == {"bat_0": -1.5, "bat_1": 2.0}
    assert all(type(x) is float for x in mean.reward(given).values())


VALUES = np.random.default_rng(0).uniform(-2, 3, (6, 4)).astype(np.float32)
PRESENT = np.array([[1, 1, 1, 1], [1, 0, 1, 1], [0, 1, 0, 1], [0, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0]], bool)
ON_THE_HOST = {
    aggregation.single: sg.SingleRewardAggregator,
    aggregation.weighted_sum: sg.WeightedSumRewardAggregator,
    aggregation.minimum: sg.MinRewardAggregator,
    aggregation.product: sg.ProductRewardAggregator,
}


@pytest.mark.filterwarnings("ignore:one reward function")
def test_functions_of_arrays_agree_with_the_classes_also_under_vmap(endless):
    names = [r.name for r in endless.reward_calculator.rewards]
    told = {str(a): {n: float(VALUES[a, k]) for k, n in enumerate(names) if PRESENT[a, k]} for a in range(len(VALUES))}
    for function, kind in ON_THE_HOST.items():
        host = list(kind(endless).reward(told).values())
        batched = jax.vmap(function)(np.stack([VALUES, VALUES]), np.stack([PRESENT, PRESENT]))
        np.testing.assert_allclose(batched[1], host, rtol=1e-6, atol=1e-6)
        again = sg.FunctionRewardAggregator(endless, function).reward(told)
        np.testing.assert_allclose(list(again.values()), host, rtol=1e-6, atol=1e-6)


def test_functions_that_have_no_class_by_hand():
    rewards = jnp.array([[1.0, 4.0, 2.0], [1.0, 4.0, -7.0], [5.0, 5.0, 5.0]])
    present = jnp.array([[True, True, True], [True, True, False], [True, True, True]])
    close = {"rtol": 1e-6, "atol": 1e-6}
    np.testing.assert_allclose(aggregation.maximum(rewards, present), [4, 4, 5], **close)
    np.testing.assert_allclose(aggregation.geometric_mean(rewards, present), [2, 2, 5], **close)
    welfare = [math.log(8), math.log(4), math.log(125)]
    np.testing.assert_allclose(aggregation.nash_welfare(rewards, present), welfare, **close)
    # Gini of (1, 2, 4) is 2/7 and its mean 7/3; of (1, 4) it is 3/10 and 5/2
    np.testing.assert_allclose(aggregation.gini_welfare(rewards, present), [7 / 3 * 5 / 7, 2.5 * 0.7, 5], **close)


def test_the_first_objective_decides_lexicographically():
    rewards = jnp.array([[0.5, -2.0, 1.0], [0.4, 2.0, 2.0], [0.5, -2.0, 0.9], [0.5, -1.9, -2.0]])
    order = np.argsort(aggregation.lexicographic(rewards, jnp.ones_like(rewards, bool)))
    assert order.tolist() == [1, 2, 0, 3]


@pytest.mark.full
def test_gradients_of_every_function_are_finite():
    for function in (*ON_THE_HOST, aggregation.maximum, aggregation.geometric_mean, aggregation.gini_welfare):
        slope = jax.grad(lambda x, f=function: jnp.sum(f(x, PRESENT)))(jnp.asarray(VALUES))
        assert np.isfinite(slope).all() and not np.asarray(slope)[~PRESENT].any(), function.__name__


def test_private_names_of_the_documentation_mean_what_it_says(endless):
    env = sg.MinRewardAggregator(sg.WeightedSumRewardAggregator(endless))
    obs, _ = env.reset(seed=4)
    for view in (endless, env):
        assert view._get_obs() == obs and view._np_random is endless._np_random
    obs, _, _, _, infos = endless.step({"bat_0": np.array([0.1], np.float32)})
    rewards = env._get_reward()
    assert env._get_obs() == obs and rewards == {agent: told["reward"] for agent, told in infos.items()}
    assert list(rewards["bat_0"]) == ["energy_sales", "degradation", "unserved_energy"]
    told = env._get_info({"bat_1": {"calm": 2.0}})
    assert list(told) == ["bat_1"] and told["bat_1"]["reward"] == {"calm": 2.0}
    drawn = np.random.default_rng(4).random(3)
    endless.reset(seed=4)
    np.testing.assert_array_equal(env._np_random.random(3), drawn)
