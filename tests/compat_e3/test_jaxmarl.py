"""JaxMARL: the kernel's numbers by agent, restarts, one program under jit, vmap and scan."""

from __future__ import annotations

import dataclasses
import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxmarl.environments.multi_agent_env import MultiAgentEnv
from jaxmarl.environments.spaces import Box
from powerzoo_compat.jaxmarl_view import ALL, TaskState, open_lane, parallel_env, step_lane, to_jaxmarl

import powerzoo_jax
from powerzoo_jax.tasks import get_spec, list_tasks

SHORT = 3
MANY = [task for task in list_tasks() if len(get_spec(task).agents) > 1]


@pytest.fixture(scope="module")
def env():
    return parallel_env("marl_der_arbitrage", split="test", max_steps=SHORT)


def sample(env, key):
    keys = jax.random.split(key, env.num_agents)
    return {a: env.action_space(a).sample(k) for a, k in zip(env.agents, keys, strict=True)}


@pytest.mark.parametrize("task", MANY)
def test_every_task_has_the_shapes_that_its_spaces_declare(task):
    """By tracing: nothing is compiled."""
    env = parallel_env(task, split="test")
    assert isinstance(env, MultiAgentEnv) and env.num_agents == len(env.agents)
    key = jax.random.key(0)
    obs, state = jax.eval_shape(env.reset, key)
    actions = {a: jnp.zeros(env.action_space(a).shape) for a in env.agents}
    after, new, rewards, dones, infos = jax.eval_shape(env.step, key, state, actions)
    assert set(obs) == set(after) == set(rewards) == {*env.agents} == set(dones) - {ALL}
    assert all(obs[a].shape == after[a].shape == env.observation_space(a).shape for a in env.agents)
    assert all(x.shape == () and x.dtype == bool for x in dones.values())
    assert all(x.shape == () and x.dtype == jnp.float32 for x in rewards.values())
    same = jax.tree.map(lambda x, y: x.shape == y.shape and x.dtype == y.dtype, state, new)
    assert all(jax.tree.leaves(same))
    assert not any(getattr(leaf, "weak_type", False) for leaf in jax.tree.leaves((obs, state, new, rewards, infos)))
    masks = jax.eval_shape(env.get_avail_actions, state)
    assert all(mask.dtype == bool and mask.ndim == 1 for mask in masks.values())
    assert [a for agents in env.agent_classes.values() for a in agents] == env.agents


def test_steps_are_those_of_the_kernel_and_an_end_keeps_its_observation(env):
    sim = env.sim
    assert isinstance(env.action_space("bat_0"), Box)
    obs, state = env.reset(jax.random.key(3))
    kernel, first = jax.jit(type(sim).init)(sim, jax.random.key(3))
    np.testing.assert_allclose(obs["bat_2"], first[2], atol=1e-6)
    step = jax.jit(type(sim).step)
    for k in range(SHORT):
        actions = sample(env, jax.random.key(k))
        obs, state, rewards, dones, infos = env.step(jax.random.key(k), state, actions)
        out = step(sim, kernel, jnp.stack([actions[a] for a in env.agents]))
        kernel = out.state
        for a, name in enumerate(env.agents):
            np.testing.assert_allclose(rewards[name], out.reward[a], rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(infos["final_observation"][name], out.obs[a], atol=1e-6)
        np.testing.assert_allclose(infos["cost"], out.cost, atol=1e-6)
        ended = k == SHORT - 1
        assert bool(dones[ALL]) == bool(infos["truncated"]) == ended and not bool(infos["terminated"])
    assert int(state.step) == 0 and not np.allclose(obs["bat_0"], infos["final_observation"]["bat_0"])


def test_an_ended_episode_may_go_on_from_a_state_of_ones_own(env):
    _, state = env.reset(jax.random.key(0))
    first, chosen = env.reset(jax.random.key(77))
    for k in range(SHORT):
        obs, state, *_ = env.step(jax.random.key(k), state, sample(env, jax.random.key(k)), chosen)
    np.testing.assert_array_equal(obs["bat_1"], first["bat_1"])
    assert jax.tree.all(jax.tree.map(lambda x, y: bool(jnp.all(x == y)), state, chosen))


def test_a_scan_over_lanes_is_one_program(env):
    def advance(carry, key):
        keys = jax.random.split(key, 3)
        actions = jax.vmap(lambda k: sample(env, k))(keys)
        _, state, rewards, dones, _ = jax.vmap(env.step)(keys, carry, actions)
        return state, (rewards["bat_0"], dones[ALL])

    def play(keys):
        _, state = jax.vmap(env.reset)(jax.random.split(keys[0], 3))
        return jax.lax.scan(advance, state, keys)

    program = jax.jit(play)
    _, (rewards, ends) = program(jax.random.split(jax.random.key(1), 2 * SHORT))
    program(jax.random.split(jax.random.key(2), 2 * SHORT))
    assert program._cache_size() == 1 and np.isfinite(rewards).all()
    np.testing.assert_array_equal(np.flatnonzero(ends[:, 0]), [SHORT - 1, 2 * SHORT - 1])


def test_masks_are_each_agents_own_row_of_the_kernels():
    uc = parallel_env("marl_uc", split="test")
    _, state = jax.eval_shape(uc.reset, jax.random.key(0))
    legal = jnp.ones(state.legal.shape, bool).at[2, 0].set(False)  # unit 2 must not be switched off
    masks = uc.get_avail_actions(TaskState(task=None, obs=None, legal=legal, done=None, step=None))
    assert {a: mask.tolist() for a, mask in masks.items()} == {a: [a != "unit_2", True] for a in uc.agents}


def test_levels_are_values_of_the_box_and_their_masks_keep_every_battery_able():
    sim = powerzoo_jax.make("marl_der_arbitrage", split="test", max_steps=SHORT)
    env, real = to_jaxmarl(sim, levels=3), to_jaxmarl(sim)
    _, state = env.reset(jax.random.key(1))
    assert [env.action_space(a).n for a in env.agents] == [3] * 3
    for level in range(3):
        chosen = {a: jnp.int32(level) for a in env.agents}
        given = {a: jnp.array([level - 1.0]) for a in env.agents}
        one, two = env.step(jax.random.key(2), state, chosen), real.step(jax.random.key(2), state, given)
        np.testing.assert_array_equal(list(one[2].values()), list(two[2].values()))
    rng, masked = np.random.default_rng(0), 0
    place = sim.spec.cost_names.index("resource")
    long = to_jaxmarl(powerzoo_jax.make("marl_der_arbitrage"), levels=3)
    _, state = long.reset(jax.random.key(1))
    for k in range(100):
        allowed = {a: np.asarray(mask) for a, mask in long.get_avail_actions(state).items()}
        masked += sum(int((~mask).sum()) for mask in allowed.values())
        chosen = {a: jnp.int32(rng.choice(np.flatnonzero(mask))) for a, mask in allowed.items()}
        _, state, _, _, infos = long.step(jax.random.key(k), state, chosen)
        assert infos["cost"][place] <= 1e-4
    assert masked > 0


def test_levels_of_units_with_commitment_are_off_and_scores():
    env, real = (parallel_env("marl_uc", split="test", levels=levels) for levels in (2, None))
    assert env.action_space("unit_0").n == 3
    rows = np.stack([env._values(jnp.int32(k)) for k in range(3)])
    np.testing.assert_allclose(rows, [[-1, -1], [0, 1], [1, 1]])
    _, state = jax.eval_shape(env.reset, jax.random.key(0))
    legal = jnp.ones(state.legal.shape, bool).at[2, 0].set(False)
    masks = env.get_avail_actions(TaskState(task=None, obs=None, legal=legal, done=None, step=None))
    assert {a: mask.tolist() for a, mask in masks.items()} == {a: [a != "unit_2", True, True] for a in env.agents}
    assert real.levels is None
    with pytest.raises(ValueError, match="at least 1"):
        parallel_env("marl_uc", levels=0)
    with pytest.raises(ValueError, match="at least 2"):
        parallel_env("marl_der_arbitrage", levels=1)
    with pytest.raises(ValueError, match="entries"):
        parallel_env("marl_ders_benchmark", levels=3)


def test_a_task_with_one_agent_is_sent_to_gymnax():
    with pytest.raises(ValueError, match="to_gymnax"):
        to_jaxmarl(powerzoo_jax.make("battery_arbitrage"))


def test_views_of_one_task_share_a_program_and_keep_their_own_data():
    """Each view compiled for a second and kept 43 MB."""
    sims = [powerzoo_jax.make("marl_der_arbitrage", split=split, max_steps=4) for split in ("train", "test")]
    key, start = jax.random.key(5), []
    before = step_lane._cache_size()
    for sim in (*sims, *sims, *sims):
        view = to_jaxmarl(sim)
        obs, state = view.reset(key)
        view.step(key, state, {agent: jnp.zeros(1) for agent in view.agents})
        start.append(obs[view.agents[0]])
    assert step_lane._cache_size() <= before + 2  # one a split, whose name is part of a task
    assert not np.allclose(start[0], start[1])
    np.testing.assert_array_equal(start[1], start[5])


def test_wrong_agents_and_shapes_are_named(env):
    _, state = env.reset(jax.random.key(0))
    actions = {agent: jnp.zeros(width) for agent, width in zip(env.agents, env.widths, strict=True)}
    with pytest.raises(KeyError, match=env.agents[0]):
        env.step(jax.random.key(1), state, {k: v for k, v in actions.items() if k != env.agents[0]})
    with pytest.raises(ValueError, match="expected"):
        env.step(jax.random.key(1), state, {**actions, env.agents[0]: jnp.zeros(7)})


def test_a_hundred_views_of_one_simulation_compile_and_keep_nothing_more():
    """Equal environment and specification, other data: views must not be mixed up."""
    sim, other = (powerzoo_jax.make("marl_der_arbitrage", split=split, max_steps=SHORT) for split in ("train", "test"))
    other = dataclasses.replace(other, spec=sim.spec)
    key = jax.random.key(5)

    def started(sim):
        view = to_jaxmarl(sim)
        start, state = view.reset(key)
        obs = start[view.agents[0]]
        view.step(key, state, {agent: jnp.zeros(1) for agent in view.agents})
        return view, obs

    views = [started(sim), started(other)]
    counts = open_lane._cache_size(), step_lane._cache_size()
    gc.collect()
    before = len(jax.live_arrays())
    views += [started(each) for each in [sim, other] * 49]
    gc.collect()
    assert (open_lane._cache_size(), step_lane._cache_size()) == counts
    assert len(jax.live_arrays()) - before <= 98  # the observations that are kept here
    for k, (_, obs) in enumerate(views):
        np.testing.assert_array_equal(obs, views[k % 2][1])
    assert (views[0][1] != views[1][1]).any()
