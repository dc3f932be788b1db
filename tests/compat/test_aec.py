"""The native AEC environment, PettingZoo's utility wrappers on it, and their twins for parallel environments."""

from __future__ import annotations

import dataclasses
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from pettingzoo.test import api_test, parallel_api_test
from pettingzoo.utils.env_logger import EnvLogger
from powerzoo_compat import pettingzoo_twins as twins
from powerzoo_compat import pettingzoo_view as pz
from powerzoo_compat.pettingzoo_aec import TaskAECEnv
from powerzoo_compat.powerzoo_api.envs.multi_agent import MultiAgentTaskEnv
from powerzoo_compat.powerzoo_api.envs.parallel import LevelledTask

import powerzoo_jax
from tests.compat.toy_agents import AGENTS, ToyAgents

FULL, LEAVING = (4, 4, 4), (2, 4, 3)
ILLEGAL = -7.0


def native(**toy):
    return pz.OrderEnforcingWrapper(TaskAECEnv(ToyAgents(**toy)))


def logged(run):
    """What a run returns, and what PettingZoo's logger was told."""
    EnvLogger.suppress_output()
    EnvLogger.flush()
    try:
        return run(), list(dict.fromkeys(EnvLogger.mqueue))
    finally:
        EnvLogger.flush()
        EnvLogger.unsuppress_output()


def trajectory(env, actions):
    """Every step of a parallel environment under given actions, as comparable values."""
    env.reset(seed=0)
    rows = []
    for step in actions:
        if not env.agents:
            break
        obs, rewards, terminated, truncated, _ = env.step({a: step[a] for a in env.agents})
        rows.append(({a: x.tolist() for a, x in obs.items()}, dict(rewards), terminated, truncated))
    return rows


@pytest.mark.parametrize("lives", [FULL, LEAVING])
def test_the_checker_finds_nothing_whether_agents_leave_early_or_together(lives):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for discrete in (False, True):
            api_test(native(lives=lives, discrete=discrete), num_cycles=6)
            parallel_api_test(ToyAgents(lives=lives), num_cycles=6)


@pytest.mark.parametrize("lives", [FULL, LEAVING])
def test_stepping_one_at_a_time_equals_pettingzoos_conversion(lives):
    seen = []
    for env in (native(lives=lives), pz.parallel_to_aec(ToyAgents(lives=lives))):
        env.reset(seed=0)
        rng, rows = np.random.default_rng(0), []
        for agent in env.agent_iter():
            obs, reward, terminated, truncated, _ = env.last()
            rows.append((agent, obs.tolist(), reward, terminated, truncated))
            env.step(None if terminated else rng.uniform(-1, 1, 2).astype(np.float32))
        seen.append(rows)
    assert seen[0] == seen[1] and len(seen[0]) == sum(lives) + 3


def test_conversions_give_back_what_they_were_given():
    parallel = ToyAgents()
    assert pz.aec_to_parallel(pz.parallel_to_aec(parallel)) is parallel
    aec = pz.ClipOutOfBoundsWrapper(native())
    converted = pz.aec_to_parallel(aec)
    assert pz.parallel_to_aec(converted) is aec
    actions = [dict.fromkeys(AGENTS, np.full(2, 0.3, np.float32))] * 4
    assert trajectory(converted, actions) == trajectory(parallel, actions)
    unsafe = native()
    unsafe.env.metadata["is_parallelizable"] = False
    with pytest.raises(AssertionError, match="not generally safe"):
        pz.aec_to_parallel(unsafe)


def test_nothing_may_be_read_or_called_before_reset():
    for name in ("rewards", "terminations", "truncations", "infos", "agent_selection", "num_agents", "agents"):
        with pytest.raises(AttributeError, match=f"{name} cannot be accessed before reset"):
            getattr(native(), name)
    for call in ("render", "state", "agent_iter"):
        with pytest.raises(AssertionError, match=r"reset\(\) needs to be called before"):
            getattr(native(), call)()
    for call in ("step", "observe"):
        with pytest.raises(AssertionError, match=r"reset\(\) needs to be called before"):
            getattr(native(), call)("toy_0")
    env = twins.ParallelOrderEnforcing(ToyAgents())
    for name in ("agents", "num_agents"):
        with pytest.raises(AttributeError, match=f"{name} cannot be accessed before reset"):
            getattr(env, name)
    for call in (env.render, env.state, lambda: env.step({})):
        with pytest.raises(AssertionError, match=r"reset\(\) needs to be called before"):
            call()


def test_a_step_without_agents_warns_and_a_loop_without_steps_is_refused():
    env = native()
    env.reset()
    with pytest.raises(AssertionError, match="need to call step"):
        for _ in env.agent_iter():
            pass
    env.reset()
    for agent in env.agent_iter():
        env.step(None if env.terminations[agent] else np.zeros(2, np.float32))
    twin = twins.ParallelOrderEnforcing(ToyAgents())
    trajectory(twin, [dict.fromkeys(AGENTS, np.zeros(2, np.float32))] * 4)
    told = [logged(lambda e=e: e.step(None if e is env else {}))[1] for e in (env, twin)]
    assert told[0] == told[1] and "step() called after all agents are terminated" in told[0][0]


def test_clipping_equals_the_round_trip_in_numbers_and_words():
    rng = np.random.default_rng(1)
    actions = [{a: rng.uniform(-2, 2, 2).astype(np.float32) for a in AGENTS} for _ in range(4)]
    round_trip = pz.aec_to_parallel(pz.ClipOutOfBoundsWrapper(native()))
    there, here = (
        logged(lambda e=e: trajectory(e, actions)) for e in (round_trip, twins.ParallelClipOutOfBounds(ToyAgents()))
    )
    assert there == here and "clipping to space" in here[1][0]
    with pytest.raises(AssertionError, match="Box spaces"):
        twins.ParallelClipOutOfBounds(ToyAgents(discrete=True))
    env = twins.ParallelClipOutOfBounds(ToyAgents())
    env.reset()
    with pytest.raises(AssertionError, match="nan action"):
        env.step(dict.fromkeys(AGENTS, np.full(2, np.nan, np.float32)))
    with pytest.raises(AssertionError, match="shape"):
        env.step(dict.fromkeys(AGENTS, np.zeros(3, np.float32)))


def test_an_action_outside_its_space_is_refused_by_both_wrappers():
    inside, outside = ({a: np.full(2, x, np.float32) for a in AGENTS} for x in (0.5, 1.5))
    for env in (
        pz.aec_to_parallel(pz.AssertOutOfBoundsWrapper(native())),
        twins.ParallelAssertOutOfBounds(ToyAgents()),
    ):
        assert len(trajectory(env, [inside] * 9)) == 4
        env.reset()
        with pytest.raises(AssertionError, match="action is not in action space"):
            env.step(outside)


def test_an_illegal_choice_ends_the_episode_of_everyone():
    legal = [dict.fromkeys(AGENTS, 0)]
    offence = [{"toy_0": 0, "toy_1": 0, "toy_2": 2}]  # choice 2 is forbidden at odd steps
    round_trip = pz.aec_to_parallel(pz.TerminateIllegalWrapper(native(discrete=True), ILLEGAL))
    twin = twins.ParallelTerminateIllegal(ToyAgents(discrete=True), ILLEGAL)
    there, here = (logged(lambda e=e: trajectory(e, legal + offence + legal)) for e in (round_trip, twin))
    assert there == here and "Illegal move" in here[1][0]
    _, rewards, terminated, truncated = here[0][-1]
    assert len(here[0]) == 2 and rewards == {"toy_0": 0, "toy_1": 0, "toy_2": ILLEGAL}
    assert all(terminated.values()) and all(truncated.values()) and twin.agents == []
    twin.reset()
    assert twin.agents == list(AGENTS)
    maskless = twins.ParallelTerminateIllegal(ToyAgents(), ILLEGAL)
    maskless.reset()
    with pytest.raises(AssertionError, match="action_mask"):
        maskless.step(dict.fromkeys(AGENTS, 0))


def test_what_a_human_would_read_is_captured_as_text():
    for env in (
        pz.CaptureStdoutWrapper(native(render_mode="human")),
        twins.ParallelCaptureStdout(ToyAgents(render_mode="human")),
    ):
        env.reset()
        assert env.render_mode == "ansi" and env.render() == "step 0\n"
    with pytest.raises(AssertionError, match="human"):
        twins.ParallelCaptureStdout(ToyAgents(render_mode="ansi"))


@pytest.fixture(scope="module")
def held_units():
    """marl_uc with units that must stay on for three steps after a start, and off for three after a stop."""
    sim = powerzoo_jax.make("marl_uc", split="test")
    three = jnp.full_like(sim.params.rules.min_up, 3)
    rules = dataclasses.replace(sim.params.rules, min_up=three, min_down=three)
    return dataclasses.replace(sim, params=dataclasses.replace(sim.params, rules=rules))


@pytest.mark.full
def test_commitment_in_levels_masks_what_its_rules_forbid(held_units):
    env = LevelledTask(MultiAgentTaskEnv(held_units), levels=2, max_cycles=12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        api_test(pz.OrderEnforcingWrapper(TaskAECEnv(env)), num_cycles=3)
    _, infos = env.reset(seed=0)
    rng, forbidden = np.random.default_rng(0), 0
    while env.agents:
        masks = {a: infos[a]["action_mask"] for a in env.agents}
        choices = {a: int(rng.choice(np.flatnonzero(mask))) for a, mask in masks.items()}
        forbidden += sum(int((mask == 0).any()) for mask in masks.values())
        *_, infos = env.step(choices)
        # what was legal is done: no override
        assert [infos[a]["committed"] for a in choices] == [choice > 0 for choice in choices.values()]
    assert forbidden
    with pytest.raises(ValueError, match="from 0 to 2"):
        env.reset(seed=0)
        env.step({"unit_0": 3})


def test_an_illegal_commitment_ends_the_task_under_pettingzoos_wrapper(held_units):
    aec = TaskAECEnv(LevelledTask(MultiAgentTaskEnv(held_units), levels=2))
    env = pz.TerminateIllegalWrapper(pz.OrderEnforcingWrapper(aec), ILLEGAL)
    env.reset(seed=0)
    rng, got, offender = np.random.default_rng(0), {}, None
    for agent in env.agent_iter():
        _, reward, terminated, truncated, info = env.last()
        if terminated or truncated:
            got[agent] = (reward, terminated, truncated)
            env.step(None)
            continue
        forbidden = np.flatnonzero(info["action_mask"] == 0)
        choice = int(forbidden[0]) if forbidden.size else int(rng.integers(3))
        offender = agent if forbidden.size else offender
        logged(lambda choice=choice: env.step(choice))
    assert len(got) == 5 and {x[1:] for x in got.values()} == {(True, True)}
    assert got[offender][0] == ILLEGAL and aec._env._env.time_step < 48


def test_levels_are_for_commitment_and_padding_makes_spaces_alike():
    with pytest.raises(ValueError, match="commits no units"):
        pz.parallel_env("marl_der_arbitrage", levels=2)
    with pytest.raises(ValueError, match="at least 1"):
        pz.parallel_env("marl_uc", levels=0)
    env = pz.parallel_env("marl_ders_benchmark", pad=True)
    first, *others = env.possible_agents
    for agent in others:
        assert env.action_space(agent) == env.action_space(first)
        assert env.observation_space(agent) == env.observation_space(first)
    assert env.action_space(first).low.tolist() == [-1.0, -1.0]


def test_masks_bind_in_a_version_of_the_task_that_ships():
    """marl_uc in version 1 has minimum times: PettingZoo's wrapper ends it at the first illegal choice."""
    env = pz.TerminateIllegalWrapper(pz.env("marl_uc", levels=2, split="test"), ILLEGAL)
    env.reset(seed=0)
    rng, ends = np.random.default_rng(0), []
    for _ in env.agent_iter():
        *_, terminated, truncated, info = env.last()
        if terminated or truncated:
            ends.append((terminated, truncated))
            env.step(None)
            continue
        forbidden = np.flatnonzero(info["action_mask"] == 0)
        choice = int(forbidden[0]) if forbidden.size else int(rng.integers(3))
        logged(lambda choice=choice: env.step(choice))
    assert ends == [(True, True)] * 5 and env.unwrapped._env._env.time_step < 12
