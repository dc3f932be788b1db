"""Options of PPO: minibatches of lanes, staggered starts, a limit on the divergence, shared hidden layers."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from powerzoo_jax.rl.algorithms import ppo
from powerzoo_jax.rl.algorithms.onpolicy import next_lanes, round_the_end
from powerzoo_jax.rl.networks.body import Critic
from powerzoo_jax.rl.policies import by_kind, crew_of, distribution, distribution_and_values, make_actor, ppo_act
from powerzoo_jax.rl.rollout import evaluate_policy
from powerzoo_jax.rl.training.config import IPPOConfig, IPPOLagrangianConfig, MAPPOConfig, PPOConfig
from tests.rl.toy_battery import STEPS, toy_sim
from tests.rl.toy_team import toy_team

TINY = PPOConfig(lanes=8, steps=24, total_steps=8 * 24 * 2, epochs=2, minibatches=4, widths=(16,), lr=1e-2)
STEPS_HERE, BLOCKS, LANES, SHARE = 3, 2, 12, 3


@pytest.fixture(scope="module")
def sim():
    return toy_sim()


@pytest.mark.parametrize("start", [0, 5, 11])
def test_a_pass_by_lanes_takes_every_step_of_every_lane_once(start):
    """Wherever it starts; a minibatch holds as many lanes of one block as of the other."""
    step, block, lane = jnp.meshgrid(*map(jnp.arange, (STEPS_HERE, BLOCKS, LANES)), indexing="ij")
    parts = {name: round_the_end(x, SHARE) for name, x in (("step", step), ("block", block), ("lane", lane))}
    seen = []
    for k in range(LANES // SHARE):
        batch = next_lanes(parts, jnp.asarray((start + k * SHARE) % LANES), SHARE)
        assert batch["lane"].shape == (BLOCKS * STEPS_HERE * SHARE,)
        assert np.bincount(batch["block"]).tolist() == [STEPS_HERE * SHARE] * BLOCKS
        seen += zip(*(np.asarray(batch[k]).tolist() for k in ("step", "block", "lane")), strict=True)
    assert sorted(seen) == sorted(np.ndindex(STEPS_HERE, BLOCKS, LANES))


def test_lanes_that_minibatches_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="minibatches = 4 must divide the 6 lanes of a block"):
        dataclasses.replace(TINY, lanes=6, by_lanes=True)


def gradient_steps(cfg: PPOConfig, sim) -> int:
    """Gradient steps that Adam has counted after an update."""
    init, update = ppo.make_update(cfg, sim)
    state, metrics = jax.jit(lambda key, sim: update(init(key, sim), sim))(jax.random.key(0), sim)
    assert np.isfinite(float(metrics["kl"]))
    adam = [x for x in jax.tree.leaves(state.opt, is_leaf=is_adam) if is_adam(x)]
    return int(adam[0].count)


def is_adam(node: object) -> bool:
    """State of Adam's moments in that of the optimiser."""
    return isinstance(node, optax.ScaleByAdamState)


@pytest.mark.full
def test_an_update_stops_learning_where_the_policy_has_moved_too_far(sim):
    """The first minibatch sees the policy that acted; at this rate the second one finds it elsewhere."""
    every = TINY.epochs * TINY.minibatches
    steps = {limit: gradient_steps(dataclasses.replace(TINY, kl_limit=limit), sim) for limit in (0.0, 1e-9, 1e9)}
    assert steps == {0.0: every, 1e-9: 1, 1e9: every}


@pytest.mark.full
def test_staggered_lanes_start_all_over_the_day_in_episodes_that_they_have_played(sim):
    cfg = dataclasses.replace(TINY, lanes=64, stagger=True)
    state = jax.jit(ppo.make_update(cfg, sim)[0])(jax.random.key(0), sim)
    age = np.asarray(state.tally.length)
    np.testing.assert_array_equal(age, state.env.t)
    assert age.min() < STEPS / 8 and age.max() >= 7 * STEPS / 8 and len(np.unique(age)) > STEPS / 2
    assert (np.asarray(state.tally.total)[age > 4] != 0).all()  # noise moves the battery, which costs or earns
    np.testing.assert_array_equal(np.asarray(state.tally.total)[age == 0], 0)


@pytest.mark.long
def test_with_staggered_lanes_every_update_ends_its_share_of_the_episodes(sim):
    cfg = dataclasses.replace(TINY, lanes=64, total_steps=64 * 24 * 2, stagger=True)
    metrics = jax.jit(ppo.make_train(cfg, sim))(jax.random.key(0), sim).metrics
    assert int(metrics["episodes"].sum()) == 64 and (np.asarray(metrics["episodes"]) > 16).all()
    assert metrics["length"].tolist() == [48, 48]


@pytest.mark.long
def test_shared_hidden_layers_learn_to_trade(sim):
    cfg = PPOConfig(
        lanes=64, total_steps=64 * 48 * 40, epochs=4, minibatches=4, widths=(32, 32), lr=3e-3, gamma=1.0,
        bootstrap=False, reward_scale=0.3, shared_torso=True, by_lanes=True, kl_limit=0.1,
    )  # fmt: skip
    state, _ = jax.jit(ppo.make_train(cfg, sim))(jax.random.key(0), sim)
    assert set(state.params) == {"actor"}
    act = ppo_act(cfg, sim, ppo.policy_of(state))
    totals = evaluate_policy(sim, act, jax.random.split(jax.random.key(1), 64))
    assert float(totals.total.mean()) > 6.0  # an idle battery earns 0


SIZED = {"lanes": 4, "steps": 6, "minibatches": 2, "epochs": 1, "widths": (8,), "lr": 0.0, "rescale_values": True}
CHOICES = [
    PPOConfig(normalise_reward=True, shared_torso=True, **SIZED),
    MAPPOConfig(normalise_reward=True, **SIZED),
    IPPOLagrangianConfig(**SIZED),
]


@pytest.mark.tiers("long", full=["ippo_lagrangian"])
@pytest.mark.parametrize("cfg", CHOICES, ids=lambda cfg: cfg.algorithm)
def test_values_in_units_of_the_reward_outlast_a_change_of_their_sizes(cfg):
    """At a learning rate of zero an update moves nothing but the sizes, by more than a tenth here."""
    home = toy_team(0.5)
    init, update = ppo.make_update(cfg, home)
    start, after = jax.jit(lambda key, sim: (state := init(key, sim), update(state, sim)[0]))(jax.random.key(0), home)
    groups, streams = crew_of(cfg, home), 1 + cfg.constrained
    x = jax.random.normal(jax.random.key(1), (5, groups.size, 6 // groups.size))
    sizes = [ppo.sizes(cfg, state.gauge, streams) for state in (start, after)]
    before, now = (values_of(cfg, groups, s.params, x) * size for s, size in zip((start, after), sizes, strict=True))
    moved = sizes[1] / sizes[0]
    assert before.shape[-1] == streams and (abs(np.log(moved[1:] if cfg.constrained else moved)) > 0.1).all()
    np.testing.assert_allclose(now, before, rtol=1e-5)
    for a, b in zip(*(jax.tree.leaves(actions_of(cfg, groups, s.params, x)) for s in (start, after)), strict=True):
        np.testing.assert_array_equal(a, b)


def values_of(cfg, groups, params, x):
    """Values (..., n, S) [-] in sizes of the returns."""
    streams = 1 + cfg.constrained
    if cfg.shared_torso:
        return distribution_and_values(groups, make_actor(cfg, groups, streams), params["actor"], x)[1]
    critic = Critic(cfg.widths, cfg.activation, groups.dtype, streams)
    if cfg.central_critic:
        return critic.apply(params["critic"]["all"], ppo.all_of(x))
    return by_kind(groups, critic.apply, params["critic"], x)


def actions_of(cfg, groups, params, x):
    """Distribution of the actions."""
    return distribution(groups, make_actor(cfg, groups), params["actor"], x)


def test_values_without_sizes_cannot_be_rescaled():
    with pytest.raises(ValueError, match="Set normalise_reward=true too"):
        PPOConfig(rescale_values=True)


def test_a_critic_that_sees_more_than_the_policy_cannot_share_its_layers():
    shared = {"lanes": 8, "steps": 8, "minibatches": 2, "shared_torso": True}
    with pytest.raises(ValueError, match="its critic sees what all"):
        ppo.make_update(MAPPOConfig(**shared), toy_team())
    ppo.make_update(IPPOConfig(**shared), toy_team())
