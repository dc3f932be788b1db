"""Observations in two parts: whole again they are those of the task, for all agents of all tasks, bit for bit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax as pz
from powerzoo_jax.envs import SharedObs, split_observations
from powerzoo_jax.envs.observe import divide
from powerzoo_jax.tasks.registry import get_spec

RUNS = ((False, 1), (True, 2), (False, 1), (True, 1))


def several() -> list[str]:
    """Public tasks with more than one agent."""
    return [name for name in pz.list_tasks() if len(get_spec(name).agents) > 1]


def both(sim, key):
    """Observations of the first and the second moment of an episode, whole and in two parts; one solve serves both."""
    split = split_observations(sim)
    (state, first), (same, first_split) = sim.init(key), split.init(key)
    action = jax.random.uniform(key, (sim.env.dims.agent, sim.env.dims.act), first.dtype, -1.0, 1.0)
    return (first, first_split), (sim.step(state, action).obs, split.step(same, action).obs)


@pytest.mark.tiers("long", quick=["marl_opf", "opf_118"])
@pytest.mark.parametrize("name", several())
def test_both_parts_together_are_the_observation_bit_for_bit(name):
    sim = pz.make(name)
    for whole, split in jax.jit(both)(sim, jax.random.key(0)):
        assert isinstance(split, SharedObs) and split.shared.ndim == 1
        np.testing.assert_array_equal(split.expand(), whole)
        again = divide(whole, split.runs)
        np.testing.assert_array_equal(again.shared, split.shared)
        np.testing.assert_array_equal(again.own, split.own)


def test_columns_return_to_their_places():
    parts = SharedObs(jnp.array([1.0, 2.0, 4.0]), jnp.array([[0.0, 3.0], [10.0, 13.0]]), RUNS)
    assert parts.expand().tolist() == [[0, 1, 2, 3, 4], [10, 1, 2, 13, 4]]
    back = divide(parts.expand(), RUNS)
    assert back.shared.tolist() == parts.shared.tolist() and back.own.tolist() == parts.own.tolist()


def test_one_agent_shares_with_nobody():
    sim = pz.make("battery_arbitrage")
    assert split_observations(sim) is sim


def test_many_buses_are_seen_once_a_lane():
    """The 42 kB of `opf_118`: flows of 186 lines, repeated for 54 units."""
    split = split_observations(pz.make("opf_118"))
    obs = jax.eval_shape(split.init, jax.random.key(0))[1]
    assert (obs.shared.size, obs.own.shape) == (189, (54, 6))
    assert 4 * (obs.shared.size + obs.own.size) == 2052


@pytest.mark.full
def test_a_batch_restarts_with_both_parts():
    sim = split_observations(pz.make("marl_opf"))
    states, _ = jax.jit(jax.vmap(sim.init))(jax.random.split(jax.random.key(0), 3))
    ended = states.replace(t=jnp.array([0, sim.spec.horizon - 1, 0], jnp.int32))
    out, states, obs = jax.jit(pz.vstep)(sim, ended, jnp.zeros((3, sim.env.dims.agent, sim.env.dims.act)))
    assert states.t.tolist() == [1, 0, 1]
    assert obs.shared.shape[0] == obs.own.shape[0] == 3
    np.testing.assert_array_equal(obs.own[0], out.obs.own[0])
    assert not np.array_equal(obs.shared[1], out.obs.shared[1])
