"""Every public task of many agents before checkers of RLlib, MOMAland, TorchRL and SuperSuit; warnings are errors."""

from __future__ import annotations

import warnings

import numpy as np
import powerzoo
import pytest
import supersuit
from momaland.test.api_test import api_test
from momaland.utils.conversions import mo_aec_to_parallel, mo_parallel_to_aec
from powerzoo_compat import momaland_view as mo
from powerzoo_compat import rllib_view
from powerzoo_compat.pettingzoo_view import parallel_env
from powerzoo_compat.torchrl_view import make_torchrl_env
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.rllib.utils.pre_checks.env import check_multiagent_environments
from torchrl.envs.utils import check_env_specs

from tests.compat.vectortoy import LeavingAgents

TASKS = [task for task in powerzoo.list_tasks(agent_mode="multi") if task in powerzoo.list_public_tasks()]


@pytest.fixture(scope="module", params=TASKS)
def task(request):
    return request.param


def test_rllibs_own_check_passes_and_flags_speak_for_all(task):
    env = rllib_view.parallel_env(task, split="test")
    assert isinstance(env, MultiAgentEnv) and env.possible_agents == env.agents == list(env.observation_spaces)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_multiagent_environments(env)
    env.reset(seed=0)
    for _ in range(2):
        *_, terminateds, truncateds, _ = env.step({a: env.get_action_space(a).sample() for a in env.agents})
        # their check does not notice when it is missing
        assert terminateds["__all__"] is False and truncateds["__all__"] is False


def test_momalands_checker_finds_nothing(task):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="Observation numpy array is all zeros")
        api_test(mo.env(task, split="test"), num_cycles=20)


def test_torchrls_checker_finds_nothing_and_groups_agents_by_kind(task):
    env = make_torchrl_env(task, split="test")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env_specs(env)
    assert [a for agents in env.group_map.values() for a in agents] == env._env.possible_agents
    assert all(agent.startswith(group) for group, agents in env.group_map.items() for agent in agents)


def test_supersuit_stacks_the_agents_of_two_copies(task):
    alone = parallel_env(task, split="test", pad=True)
    envs = supersuit.pettingzoo_env_to_vec_env_v1(parallel_env(task, split="test", pad=True))
    envs = supersuit.concat_vec_envs_v1(envs, 2, num_cpus=0, base_class="gymnasium")
    names = alone.possible_agents
    obs, _ = envs.reset(seed=0)
    first, _ = alone.reset(seed=0)
    for _ in range(3):
        actions = np.stack([envs.action_space.sample() for _ in range(envs.num_envs)])
        np.testing.assert_array_equal(obs[: len(names)], np.stack(list(first.values())))
        obs, rewards, *_ = envs.step(actions)
        first, told, *_ = alone.step(dict(zip(names, actions, strict=False)))
        np.testing.assert_allclose(rewards[: len(names)], np.float32(list(told.values())), rtol=1e-6, atol=1e-6)
    assert envs.num_envs == 2 * len(names)


def test_agents_that_leave_early_pass_momalands_checker():
    api_test(mo_parallel_to_aec(LeavingAgents()), num_cycles=30)


def test_conversion_there_and_back_gives_the_same_object():
    parallel = mo.parallel_env("marl_opf", split="test")
    assert mo_aec_to_parallel(mo_parallel_to_aec(parallel)) is parallel


def test_supersuits_frame_skip_repeats_actions_and_adds_rewards():
    """It draws from the generator of the environment, which had none."""
    skipped, single = (parallel_env("marl_der_arbitrage", split="test", max_steps=8) for _ in range(2))
    env = supersuit.frame_skip_v0(skipped, 4)
    env.reset(seed=0), single.reset(seed=0)
    actions = {agent: np.full(1, 0.1, np.float32) for agent in single.agents}
    rewards = [single.step(actions)[1] for _ in range(8)]
    for k in (0, 4):
        _, told, _, truncated, _ = env.step(actions)
        assert told == {agent: pytest.approx(sum(r[agent] for r in rewards[k : k + 4])) for agent in actions}
    assert all(truncated.values()) and not env.agents
    drawn = supersuit.frame_skip_v0(skipped, (1, 3))
    steps = []
    for _ in range(2):
        drawn.reset(seed=5)
        drawn.step(actions), drawn.step(actions)
        steps.append(skipped._env.time_step)
    assert steps[0] == steps[1] > 2
