"""HERON: the abstract BaseEnv, flags for all, the registry, and one agent's side before Gymnasium's checker."""

from __future__ import annotations

import pickle
import threading
import warnings

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from powerzoo_compat import heron_view

from tests.compat.vectortoy import LeavingAgents

TASK = "marl_opf"


@pytest.fixture(scope="module")
def env():
    return heron_view.parallel_env(TASK, split="test")


def test_the_base_is_abstract_in_reset_and_step():
    class OnlyReset(heron_view.BaseEnv):
        def reset(self, seed=None, options=None, **ignored):
            return {}, {}

    for kind in (heron_view.BaseEnv, OnlyReset):
        with pytest.raises(TypeError, match="abstract"):
            kind()


def test_attributes_are_lists_and_dicts_and_unknown_agents_are_none(env):
    assert isinstance(env, heron_view.BaseEnv) and isinstance(env.agents, list)
    assert set(env.observation_spaces) == set(env.action_spaces) == set(env.possible_agents)
    assert env.action_space("unit_0") is env.action_space["unit_0"] is env.action_spaces["unit_0"]
    assert env.get_agent("unit_9") is None and env.get_agent("unit_1").agent_id == "unit_1"


def test_flags_speak_for_all_and_the_agents_stay(env):
    obs, infos = env.reset(seed=0, jitter_seed=4, level=2)
    assert set(obs) == set(infos) == set(env.possible_agents)
    for k in range(48):
        _, _, terminated, truncated, _ = env.step({})
        assert truncated["__all__"] is (k == 47) and terminated["__all__"] is False
    assert env.agents == env.possible_agents
    with pytest.raises(ValueError, match="any"):
        heron_view.parallel_env(TASK, all_semantics="each")


def test_one_agents_side_passes_gymnasiums_checker(env):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # without a spec it cannot build other modes and says so
        check_env(heron_view.SingleAgentWrapper(env, "unit_0"), skip_render_check=True)


def test_a_seed_also_fixes_what_the_others_sample(env):
    one = heron_view.SingleAgentWrapper(env, "unit_2")
    action = np.full(one.action_space.shape, 0.5, np.float32)
    runs = []
    for _ in range(2):
        one.reset(seed=7)
        runs.append([one.step(action)[1] for _ in range(3)])
    assert runs[0] == runs[1] and len(set(runs[0])) > 1


def test_policies_of_others_are_asked_with_what_those_see(env):
    asked = []

    def lowest(obs):
        asked.append(obs)
        return np.zeros(1, np.float32)

    policies = {name: lowest for name in env.possible_agents if name != "unit_0"}
    one = heron_view.SingleAgentWrapper(env, "unit_0", other_policies=policies)
    one.reset(seed=0)
    _, reward, *_ = one.step(np.ones(1, np.float32))
    assert len(asked) == 4 and env.observation_space("unit_1").contains(asked[0])
    env.reset(seed=0)
    actions = {name: np.zeros(1, np.float32) for name in policies} | {"unit_0": np.ones(1, np.float32)}
    assert env.step(actions)[1]["unit_0"] == reward
    with pytest.raises(KeyError, match="unit_9"):
        heron_view.SingleAgentWrapper(env, "unit_9")


class Scalar(LeavingAgents):
    """The toy with the first entry of its rewards."""

    def step(self, actions):
        obs, rewards, *rest = super().step(actions)
        return obs, {a: float(r[0]) for a, r in rewards.items()}, *rest


def test_an_agent_that_has_left_sees_its_last_observation_again():
    one = heron_view.SingleAgentWrapper(Scalar(), "toy_0")
    one.reset(seed=0)
    one.step(1)
    last, reward, terminated, truncated, _ = one.step(2)
    assert terminated and not truncated and reward == 2.0
    obs, reward, terminated, truncated, info = one.step(2)
    assert (reward, terminated, truncated, info) == (0.0, False, True, {}) and obs is last


# the wrapper of HERON's document, as printed there
class SingleAgentWrapper(gym.Env):
    """Wrap multi-agent env as single-agent."""

    def __init__(self, multi_env, agent_id: str):
        self.env = multi_env
        self.agent_id = agent_id
        self.observation_space = multi_env.observation_space(agent_id)
        self.action_space = multi_env.action_space(agent_id)

    def reset(self, seed=None, options=None):
        obs, info = self.env.reset(seed=seed, options=options)
        return obs[self.agent_id], info.get(self.agent_id, {})

    def step(self, action):
        actions = {self.agent_id: action}
        # Use fixed policy for other agents
        for other in self.env.agents:
            if other != self.agent_id:
                actions[other] = self.env.action_space(other).sample()
        obs, rewards, terms, truncs, infos = self.env.step(actions)
        return (
            obs[self.agent_id],
            rewards[self.agent_id],
            terms.get(self.agent_id, terms["__all__"]),
            truncs.get(self.agent_id, truncs["__all__"]),
            infos.get(self.agent_id, {}),
        )


def test_the_documents_wrapper_runs_to_the_end(env):
    one, steps, truncated = SingleAgentWrapper(env, "unit_0"), 0, False
    one.reset(seed=0)
    while not truncated:
        _, reward, terminated, truncated, info = one.step(one.action_space.sample())
        steps += 1
    assert steps == 48 and np.isfinite(reward) and not terminated and info["pf_converged"]


def test_a_registered_name_builds_lazily_from_its_context():
    asked = []

    def creator(context):
        asked.append(dict(context))
        return heron_view.parallel_env(TASK, split=context.get("split"))

    heron_view.register_env("grid", creator)
    try:
        assert "grid" in heron_view.list_envs() and not asked
        made = heron_view.make("grid", {"split": "val"})
        assert isinstance(made, heron_view.HeronTaskEnv) and asked == [{"split": "val"}]
        with pytest.raises(ValueError, match="grid"):
            heron_view.register_env("grid", creator)
    finally:
        heron_view.unregister("grid")
    with pytest.raises(KeyError, match="grid"):
        heron_view.make("grid")
    lock = threading.Lock()
    with pytest.raises(TypeError, match="pickled"):
        heron_view.register_env("stuck", lambda context: lock)
    lazy = pickle.loads(cloudpickle.dumps(lambda context: heron_view.parallel_env(TASK)))
    assert lazy({}).possible_agents[0] == "unit_0"
