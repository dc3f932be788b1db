"""Rewards and fields of one's own: the spaces follow in every view, and a task stays what it is."""

from __future__ import annotations

import dataclasses
import sys
from types import ModuleType

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.envs import stack, with_fields, with_history, with_reward
from powerzoo_jax.envs.observe import block
from powerzoo_jax.oracle import idle_act
from powerzoo_jax.oracle.registry import shipped_record
from powerzoo_jax.tasks import get_spec, registry
from powerzoo_jax.tasks.contract import ContractError, check_sim
from powerzoo_jax.tasks.score import evaluate

TASK, TEAM, MINE = "battery_arbitrage", "marl_der_arbitrage", "battery_of_hours"


def moved(state, action, out, params):
    return out.reward - jnp.sum(action**2)


def hours_left(scene):
    return (scene.params.horizon - scene.state.t)[None].astype(scene.row.dtype) * scene.dt_hours


HOURS = block("hours_left", "h", 0, 24, hours_left)


def own(task, **how):
    return with_reward(with_fields(powerzoo_jax.make(task, **how), HOURS), moved)


@pytest.mark.full
@pytest.mark.parametrize("task", [TASK, TEAM])
def test_reward_and_fields_are_those_of_the_user_and_all_else_is_the_task(task):
    plain, mine = powerzoo_jax.make(task), own(task)
    wide = plain.spaces()[0].shape[1] + 1
    assert mine.spaces()[0].shape[1] == wide == mine.env.dims.obs and mine.spaces()[0].high[0, -1] == 24
    (before, first), (state, seen) = (jax.jit(sim.init)(jax.random.key(3)) for sim in (plain, mine))
    assert np.array_equal(seen[:, :-1], first) and (seen[:, -1] == 24).all()
    action = jnp.full(plain.spaces()[1].shape, 0.5)
    out, ours = jax.jit(plain.step)(before, action), jax.jit(mine.step)(state, action)
    assert np.allclose(ours.reward, out.reward - 0.25 * action.size, rtol=1e-6)
    assert np.array_equal(ours.cost, out.cost) and np.array_equal(ours.obs[:, :-1], out.obs)
    assert (ours.obs[:, -1] == 24 - plain.spec.dt_hours).all()
    assert with_history(mine, 2).spaces()[0].shape[1] == 2 * wide
    check_sim(with_fields(plain, HOURS))
    # it breaks the one rule that a reward of one's own must break
    with pytest.raises(ContractError, match=r"breaks the contract:\n- reward is the weighted sum: [^\n]*$"):
        check_sim(mine)


def test_no_gain_is_told_of_a_reward_of_ones_own():
    sim = powerzoo_jax.make(TASK, split="test")
    assert shipped_record(sim) is not None and shipped_record(with_reward(sim, moved)) is None
    assert shipped_record(with_history(sim, 2)) is not None


@pytest.mark.full
def test_an_episode_is_paid_by_the_own_reward():
    sim = powerzoo_jax.make(TASK, split="test")
    paid = evaluate(with_reward(sim, lambda state, action, out, params: 1.0), idle_act(sim), n_episodes=1)
    assert paid.mean_reward == sim.spec.horizon and paid.gain is None


def test_what_cannot_have_further_fields_is_told():
    sim = powerzoo_jax.make(TASK)
    for wrong, words in (
        (with_reward(sim, moved), "before a reward or a history"),
        (with_history(sim, 2), "before a reward or a history"),
        (stack([sim, sim]), "a stacked Sim"),
        (with_fields(sim, HOURS), "has a field 'hours_left'"),
    ):
        with pytest.raises(ValueError, match=words):
            with_fields(wrong, HOURS)


def build(spec, **how):
    sim = own(TASK, **how)
    return dataclasses.replace(sim, spec=dataclasses.replace(sim.spec, id=spec.id))


@pytest.mark.full
def test_the_views_show_the_own_field_and_pay_the_own_reward(monkeypatch):
    import powerzoo

    monkeypatch.setattr(registry, "_TASKS", dict(registry._TASKS))
    module = ModuleType("my_tasks")
    module.build = build
    monkeypatch.setitem(sys.modules, "my_tasks", module)
    powerzoo_jax.register(dataclasses.replace(get_spec(TASK), id=MINE), "my_tasks:build")
    plain, mine = (powerzoo.make_task_env(task) for task in (TASK, MINE))
    assert isinstance(mine.observation_space, gymnasium.spaces.Box)
    assert mine.observation_space.shape[0] == plain.observation_space.shape[0] + 1
    (before, _), (seen, _) = (env.reset(seed=1) for env in (plain, mine))
    assert np.allclose(seen[:-1], before) and seen[-1] == 24 and mine.observation_space.contains(seen)
    rewards = [env.step(0.5 * env.action_space.high)[1] for env in (plain, mine)]
    assert rewards[1] == pytest.approx(rewards[0] - 0.25, rel=1e-5)
