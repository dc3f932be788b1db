# ruff: noqa: RUF059  the loops stand here as the contract prints them
"""The snippets of the PowerZoo API contract, as they stand there, and its single-agent loop on every such task."""

from __future__ import annotations

import warnings

import numpy as np
import powerzoo
import pytest
from gymnasium.utils.env_checker import check_env
from powerzoo.tasks import PUBLIC_TASKS, list_public_tasks, make_task_env
from powerzoo.tasks.observation import OBSERVATION_MODES

SINGLE = powerzoo.list_tasks(agent_mode="single")


@pytest.mark.parametrize("task", SINGLE)
def test_the_single_agent_loop_reaches_the_end(task):
    env = make_task_env(task, split="train")
    obs, info = env.reset(seed=0)
    terminated = truncated = False
    while not (terminated or truncated):
        obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
    assert truncated and not terminated
    assert info["episode"]["l"] == env.time_step and np.isfinite(obs).all()


@pytest.mark.parametrize("task", SINGLE)
def test_a_single_agent_task_passes_the_checker_without_a_warning(task):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make_task_env(task, split="test"))


def test_the_pettingzoo_loop_reaches_the_end():
    env = make_task_env("marl_opf", framework="pettingzoo")
    obs, info = env.reset(seed=42)
    steps = 0
    while env.agents:
        actions = {a: env.action_space(a).sample() for a in env.agents}
        obs, rewards, terms, truncs, info = env.step(actions)
        steps += 1
    assert steps == 48 and set(obs) == set(env.possible_agents)


def test_the_auto_loop_reaches_the_end():
    env = make_task_env("marl_opf", framework="auto")
    obs, infos = env.reset(seed=42)
    terminated = truncated = False
    while not (terminated or truncated):
        actions = {a: env.action_space[a].sample() for a in env.possible_agents}
        obs, rewards, terms, truncs, infos = env.step(actions)
        terminated = bool(terms.get("__all__", False))
        truncated = bool(truncs.get("__all__", False))
    assert env.time_step == 48 and env.action_space["unit_0"] is env.action_space("unit_0")


def test_a_task_comes_in_three_modes():
    easy = make_task_env("marl_opf", split="train", obs_mode="global")
    medium = make_task_env("marl_opf", split="train", obs_mode="local_plus_forecast")
    hard = make_task_env("marl_opf", split="train", obs_mode="local")
    sizes = [len(env.get_observation_fields()) for env in (easy, medium, hard)]
    assert sizes == [15, 19, 15]


def test_modes_and_public_tasks_have_their_names():
    assert OBSERVATION_MODES == ("global", "local", "local_plus_forecast", "local_plus_voltage", "ders_local")
    assert list(PUBLIC_TASKS) == list_public_tasks() and set(PUBLIC_TASKS) <= set(powerzoo.list_tasks())


def test_the_short_name_of_the_transmission_task_gives_its_env():
    assert make_task_env("tso").action_space.shape == (108,)
