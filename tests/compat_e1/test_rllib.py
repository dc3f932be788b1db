"""RLlib: sampling in this process, one training iteration, creators that travel, and the same numbers."""

from __future__ import annotations

import pickle

import cloudpickle
import numpy as np
import powerzoo
import pytest
import ray
from powerzoo_compat import heron_view, rllib_view
from powerzoo_compat.pettingzoo_view import parallel_env
from powerzoo_compat.rllib_view import env_creator
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.tune.registry import register_env

TASK = "marl_opf"


def shared(agent, episode, **kwargs):
    return "shared"


def config(name, **env_config):
    return (
        PPOConfig()
        .environment(name, env_config=env_config)
        .multi_agent(policies={"shared"}, policy_mapping_fn=shared)
        .env_runners(num_env_runners=0)
    )


def test_a_negative_seed_is_refused_in_gymnasiums_words():
    with pytest.raises(ValueError, match="Seed must be greater or equal to zero, actual value: -1"):
        rllib_view.parallel_env(TASK, split="test").reset(seed=-1)


def test_a_runner_samples_whole_episodes_of_every_agent():
    assert f"powerzoo/{TASK}" in rllib_view.register_all()
    runner = MultiAgentEnvRunner(config=config(f"powerzoo/{TASK}", split="test"))
    episodes = runner.sample(num_episodes=2, random_actions=True)
    assert [len(episode) for episode in episodes] == [48, 48]
    for episode in episodes:
        assert set(episode.agent_ids) == {f"unit_{k}" for k in range(5)}
        assert all(
            len(episode.agent_episodes[a]) == 48 and episode.agent_episodes[a].is_truncated for a in episode.agent_ids
        )
        assert np.isfinite(episode.get_return())


def test_the_snippets_register_creators_that_can_be_sent_elsewhere():
    register_env("powerzoo", env_creator)
    heron_view.register_env("grid", lambda context: heron_view.parallel_env(TASK))
    runner = MultiAgentEnvRunner(config=config("powerzoo", task=TASK, split="val"))
    (episode,) = runner.sample(num_episodes=1, random_actions=True)
    assert len(episode) == 48
    made = pickle.loads(cloudpickle.dumps(env_creator))({"task": TASK, "split": "val"})
    assert isinstance(made, rllib_view.RLlibTaskEnv) and made._host.sim.spec.split == "val"
    with pytest.raises(KeyError, match="marl_der_arbitrage"):
        env_creator({"split": "val"})


def test_auto_is_an_rllib_env_here_and_has_pettingzoos_numbers():
    auto = powerzoo.make_task_env(TASK, split="test")
    other = parallel_env(TASK, split="test")
    assert isinstance(auto, rllib_view.RLlibTaskEnv)
    first, second = auto.reset(seed=3)[0], other.reset(seed=3)[0]
    rng = np.random.default_rng(0)
    while other.agents:
        actions = {a: rng.uniform(0, 1, 1).astype(np.float32) for a in auto.agents}
        first, rewards, _, truncateds, infos = auto.step(actions)
        second, same, _, truncations, told = other.step(actions)
        assert rewards == same and all(np.array_equal(first[a], second[a]) for a in first)
        assert infos["unit_0"]["cost_sum"] == told["unit_0"]["cost_sum"]
        assert truncateds.pop("__all__") == (not other.agents) and truncateds == truncations
    assert auto.agents == auto.possible_agents  # RLlib reads it after the last step


def test_ppo_trains_for_an_iteration():
    rllib_view.register_all()
    learner = (
        config(f"powerzoo/{TASK}", split="train")
        .learners(num_learners=0)
        .training(train_batch_size_per_learner=96, minibatch_size=48, num_epochs=1)
    )
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        algo = learner.build_algo()
        before = algo.get_module("shared").get_state()
        result = algo.train()
        after = algo.get_module("shared").get_state()
        algo.stop()
    finally:
        ray.shutdown()
    assert result["env_runners"]["num_env_steps_sampled"] >= 96
    assert any(not np.array_equal(before[k], after[k]) for k in before)


class MyHeronEnv(heron_view.BaseEnv):
    """A user's class after HERON's page: its own constructor, the rest from the task."""

    def __init__(self, config):
        self.inner = heron_view.parallel_env(TASK, **config)
        self.possible_agents, self.agents = self.inner.possible_agents, self.inner.agents
        self.observation_spaces, self.action_spaces = self.inner.observation_spaces, self.inner.action_spaces

    def reset(self, seed=None, options=None, **ignored):
        return self.inner.reset(seed=seed, options=options)

    def step(self, actions):
        return self.inner.step(actions)


@pytest.mark.parametrize("creator", [MyHeronEnv, lambda config: heron_view.parallel_env(TASK, **config)])
def test_the_recipe_of_herons_page_samples(creator):
    def env_creator(config):
        env = creator(config)
        return env

    register_env("my_heron_env", env_creator)
    runner = MultiAgentEnvRunner(config=config("my_heron_env", split="test"))
    (episode,) = runner.sample(num_episodes=1, random_actions=True)
    assert len(episode) == 48 and set(episode.agent_ids) == {f"unit_{k}" for k in range(5)}
    with pytest.raises(TypeError, match="abstract"):
        heron_view.BaseEnv()
