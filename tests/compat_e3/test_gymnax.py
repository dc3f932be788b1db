"""gymnax: the kernel's numbers, restarts that keep the last observation, one program under jit, vmap and scan."""

from __future__ import annotations

import dataclasses
import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnax.environments import environment, spaces
from powerzoo_compat.gymnax_view import open_lane, step_lane, to_gymnax

import powerzoo_jax
from powerzoo_jax.families.operation import write_world

SHORT = 4
TASKS = ("battery_arbitrage", "marl_der_arbitrage", "marl_opf")


@pytest.fixture(scope="module", params=TASKS)
def sim(request):
    return powerzoo_jax.make(request.param, split="test", max_steps=SHORT)


def test_it_is_a_gymnax_environment_with_genuine_spaces(sim):
    env, params = to_gymnax(sim)
    assert isinstance(env, environment.Environment) and params.max_steps_in_episode == SHORT
    assert isinstance(env.action_space(params), spaces.Box) and isinstance(env.observation_space(params), spaces.Box)
    obs, _ = env.reset(jax.random.key(0), params)
    assert obs.shape == env.observation_space(params).shape
    assert bool(env.observation_space(params).contains(obs).all())


def test_steps_are_those_of_the_kernel_and_the_end_keeps_its_observation(sim):
    env, params = to_gymnax(sim)
    obs, state = env.reset(jax.random.key(3), params)
    kernel, seen = jax.jit(type(sim).init)(sim, jax.random.key(3))
    np.testing.assert_allclose(obs, seen.reshape(-1), atol=1e-5)
    shape = (sim.env.dims.agent, sim.env.dims.act)
    step = jax.jit(type(sim).step)
    for k in range(SHORT):
        action = env.action_space(params).sample(jax.random.key(k))
        obs, state, reward, terminated, truncated, info = env.step(jax.random.key(k), state, action)
        out = step(sim, kernel, action.reshape(shape))
        kernel = out.state
        assert float(reward) == pytest.approx(float(out.reward.mean()), rel=1e-5, abs=1e-5)
        np.testing.assert_allclose(info["final_observation"], out.obs.reshape(-1), atol=1e-5)
        np.testing.assert_allclose(info["cost"], out.cost, atol=1e-5)
        assert bool(truncated) == (k == SHORT - 1) and not bool(terminated)
    assert int(state.time) == 0 and not np.allclose(obs, info["final_observation"])


def test_a_scan_over_lanes_is_one_program_without_weak_types(sim):
    env, params = to_gymnax(sim, api="five")
    traced = []

    def advance(carry, key):
        traced.append(None)
        obs, state = carry
        keys = jax.random.split(key, 3)
        actions = jax.vmap(env.action_space(params).sample)(keys)
        obs, state, reward, done, _ = jax.vmap(env.step, in_axes=(0, 0, 0, None))(keys, state, actions, params)
        return (obs, state), (reward, done)

    def play(keys):
        begin = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(keys[0], 3), params)
        return jax.lax.scan(advance, begin, keys)

    program = jax.jit(play)
    (_, (rewards, done)) = program(jax.random.split(jax.random.key(1), 2 * SHORT))
    program(jax.random.split(jax.random.key(2), 2 * SHORT))
    assert program._cache_size() == 1 and rewards.shape == done.shape == (2 * SHORT, 3)
    np.testing.assert_array_equal(np.flatnonzero(done[:, 0]), [SHORT - 1, 2 * SHORT - 1])
    leaves = jax.tree.leaves(jax.eval_shape(env.reset, jax.random.key(0), params))
    assert not any(getattr(leaf, "weak_type", False) for leaf in leaves)


def test_gradients_flow_through_a_step():
    env, params = to_gymnax(powerzoo_jax.make("battery_arbitrage", max_steps=SHORT))
    _, state = env.reset(jax.random.key(0), params)
    slope = jax.grad(lambda a: env.step(jax.random.key(1), state, a, params)[2])(jnp.full(1, 0.3))
    assert np.isfinite(slope).all() and abs(float(slope[0])) > 0


def test_another_interface_is_named():
    with pytest.raises(ValueError, match="five"):
        to_gymnax(powerzoo_jax.make("battery_arbitrage"), api="six_values")


def test_agents_that_share_a_policy_keep_their_axis():
    sim = powerzoo_jax.make("marl_der_arbitrage", split="test", max_steps=SHORT)
    env, params = to_gymnax(sim, agents="shared")
    flat, _ = to_gymnax(sim)
    (obs, state), (_, other) = (e.reset(jax.random.key(3), params) for e in (env, flat))
    assert obs.shape == env.observation_space(params).shape == (3, 20) and env.num_actions == 1
    action = env.action_space(params).sample(jax.random.key(0))
    one = env.step(jax.random.key(1), state, action, params)
    two = flat.step(jax.random.key(1), other, action.reshape(-1), params)
    np.testing.assert_array_equal(one[0].reshape(-1), two[0])
    assert one[2].shape == one[3].shape == one[4].shape == (3,)
    np.testing.assert_allclose(one[2].mean(), two[2], rtol=1e-6)
    with pytest.raises(ValueError, match="shared"):
        to_gymnax(sim, agents="share")


@pytest.mark.parametrize("api", ["six", "five"])
def test_without_extra_infos_the_step_is_the_same_and_infos_are_gymnaxs(api):
    sim = powerzoo_jax.make("battery_arbitrage", split="test", max_steps=SHORT)
    (full, params), (bare, _) = to_gymnax(sim, api=api), to_gymnax(sim, api=api, extra_infos=False)
    _, state = full.reset(jax.random.key(0), params)
    one, two = (env.step(jax.random.key(1), state, jnp.zeros(1), params) for env in (full, bare))
    np.testing.assert_array_equal(one[0], two[0])
    assert list(two[-1]) == ["discount"] and set(one[-1]) > {"discount", "cost", "final_observation"}
    assert list(bare.step_env(jax.random.key(1), state, jnp.zeros(1), params)[-1]) == ["discount"]


def test_levels_are_values_of_the_box():
    one = powerzoo_jax.make("battery_arbitrage", split="test", max_steps=SHORT)
    (env, params), (real, _) = to_gymnax(one, levels=5), to_gymnax(one)
    assert isinstance(env.action_space(params), spaces.Discrete) and env.num_actions == 5
    for level, value in enumerate((-1.0, -0.5, 0.0, 0.5, 1.0)):
        rewards = []
        for view, action in ((env, jnp.int32(level)), (real, jnp.array([value]))):
            _, state = view.reset(jax.random.key(1), params)
            rewards.append(float(view.step(jax.random.key(2), state, action, params)[2]))
        assert rewards[0] == pytest.approx(rewards[1], rel=1e-6)
    shared, _ = to_gymnax(powerzoo_jax.make("marl_der_arbitrage"), agents="shared", levels=3)
    assert shared.action_space().n == 3
    with pytest.raises(ValueError, match="3 entries"):
        to_gymnax(powerzoo_jax.make("marl_der_arbitrage"), levels=3)
    with pytest.raises(ValueError, match="at least 2"):
        to_gymnax(one, levels=1)


def test_views_of_one_task_share_a_program_and_keep_their_own_data():
    """Each view compiled for itself and kept its program: 5 MB each. Equal settings must not mix up splits."""
    sims = [powerzoo_jax.make("battery_arbitrage", split=split, max_steps=SHORT) for split in ("train", "test")]
    views = [to_gymnax(sim)[0] for sim in (*sims, *sims)]
    key, action = jax.random.key(5), jnp.zeros(1)
    obs = [view.reset(key)[0] for view in views]
    assert not np.allclose(obs[0], obs[1])
    before = step_lane._cache_size()
    for view, seen in zip(views, obs, strict=True):
        _, state = view.reset(key)
        view.step(key, state, action)
        np.testing.assert_array_equal(seen, view.reset(key)[0])
    assert step_lane._cache_size() <= before + 1


def test_gradients_pass_from_step_to_step_where_they_are_asked_for():
    env, params = to_gymnax(powerzoo_jax.make("battery_arbitrage", max_steps=SHORT))

    def later(action, view):
        """Reward of a discharge after an action: what is stored by then limits it."""
        _, state = view.reset(jax.random.key(0), params)
        _, state, *_ = view.step(jax.random.key(1), state, action, params)
        return view.step(jax.random.key(2), state, jnp.zeros(1), params)[1].task.storage.soc.sum()

    kept, cut = (jax.grad(later)(jnp.full(1, -0.5), view) for view in (env.with_transition_gradients(), env))
    assert float(kept[0]) != 0 and float(cut[0]) == 0


def test_a_lane_tells_whether_its_power_flow_has_failed(sim):
    env, params = to_gymnax(sim)
    _, state = env.reset(jax.random.key(0), params)
    assert not bool(env.is_terminated(state, params)) and float(env.discount(state, params)) == 1.0
    failed = state.replace(terminated=jnp.ones((), bool))
    assert bool(env.is_terminated(failed, params)) and float(env.discount(failed, params)) == 0.0


def test_actions_of_other_types_are_taken_and_other_shapes_refused():
    """A float64 action widened the state, so that a scan under x64 refused its carry."""
    env, params = to_gymnax(powerzoo_jax.make("battery_arbitrage", max_steps=SHORT))
    with jax.enable_x64(True):
        begin = env.reset(jax.random.key(0), params)[1]
        keys = jax.random.split(jax.random.key(1), 3)
        last, _ = jax.lax.scan(
            lambda state, key: (env.step(key, state, jnp.full(1, 0.3, jnp.float64), params)[1], None), begin, keys
        )
        assert [x.dtype for x in jax.tree.leaves(last)] == [x.dtype for x in jax.tree.leaves(begin)]
    with pytest.raises(ValueError, match=r"expected \(1,\), got \(2,\)"):
        env.step(jax.random.key(0), begin, jnp.zeros(2), params)
    one, squeezed = (env.step(jax.random.key(0), begin, u, params) for u in (jnp.full(1, 0.3), jnp.float32(0.3)))
    np.testing.assert_array_equal(one[0], squeezed[0])


def test_a_hundred_views_of_one_simulation_compile_and_keep_nothing_more():
    """Equal environment and specification, other data: views must not be mixed up."""
    sim, other = (powerzoo_jax.make("battery_arbitrage", split=split, max_steps=3) for split in ("train", "test"))
    other = dataclasses.replace(other, spec=sim.spec)
    key = jax.random.key(5)

    def started(sim):
        view, params = to_gymnax(sim)
        obs, state = view.reset(key, params)
        view.step(key, state, jnp.zeros(1), params)
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


def test_a_world_of_grid2op_has_discrete_actions_and_ends_with_its_data(tmp_path):
    world = write_world(tmp_path)
    env, params = to_gymnax(powerzoo_jax.from_grid2op(world, episodes="calm", max_steps=2, actions=[]))
    params = params.replace(max_steps_in_episode=9)  # beyond the data, which end the episode all the same
    assert isinstance(env.action_space(params), spaces.Discrete) and env.num_actions == 1
    _, state = env.reset(jax.random.key(0), params)
    ends = []
    for k in range(2):
        _, state, _, terminated, truncated, _ = env.step(jax.random.key(k), state, jnp.int32(0), params)
        ends.append((bool(terminated), bool(truncated)))
    assert ends == [(False, False), (False, True)]
