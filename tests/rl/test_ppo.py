"""PPO: its arithmetic by hand, one program for many seeds, and that it learns."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.rl.algorithms import ppo
from powerzoo_jax.rl.algorithms.onpolicy import clipped_surrogate, gae, learner_reward
from powerzoo_jax.rl.networks.body import Critic, denormalise, log_prob, normalise, observe_batch, scale_from_bounds
from powerzoo_jax.rl.policies import crew_of, distribution, make_actor, ppo_act
from powerzoo_jax.rl.rollout import evaluate_policy
from powerzoo_jax.rl.training.config import PPOConfig
from tests.rl.programs import primitives
from tests.rl.toy_battery import toy_sim

TINY = PPOConfig(lanes=8, steps=48, total_steps=8 * 48 * 2, epochs=2, minibatches=2, widths=(16,), lr=1e-3)
ROUNDING = 2e-5  # float32 products of 202 terms, summed in another order


@pytest.fixture(scope="module")
def sim():
    return toy_sim()


def advantages(terminated: list[bool], truncated: list[bool]) -> list[float]:
    columns = (jnp.array([1.0, 2.0, 3.0]), jnp.array([0.5, 1.0, 1.5]), jnp.array([1.0, 1.5, 4.0]))
    return gae(*columns, jnp.array(terminated), jnp.array(truncated), 0.5, 0.5).tolist()


def test_advantages_of_an_unbroken_stretch():
    # delta = 1 + 0.5 - 0.5, 2 + 0.75 - 1, 3 + 2 - 1.5
    assert advantages([False] * 3, [False] * 3) == [1.0 + 0.25 * (1.75 + 0.25 * 3.5), 1.75 + 0.25 * 3.5, 3.5]


def test_a_time_limit_keeps_the_value_of_the_last_observation_and_cuts_the_trace():
    assert advantages([False] * 3, [False, True, False]) == [1.0 + 0.25 * 1.75, 1.75, 3.5]


def test_a_termination_has_no_value_behind_it_and_cuts_the_trace():
    assert advantages([False, True, False], [False] * 3) == [1.0 + 0.25 * 1.0, 1.0, 3.5]


def test_a_termination_at_the_time_limit_counts_as_termination():
    both = [False, True, False]
    assert advantages(both, both) == advantages(both, [False] * 3)


def test_the_log_density_is_that_of_independent_gaussians():
    mean, log_std, action = np.array([0.3, -1.0]), np.array([-0.5, 0.2]), np.array([2.0, -1.5])
    std = np.exp(log_std)
    expected = np.log(np.exp(-((action - mean) ** 2) / (2 * std**2)) / (std * np.sqrt(2 * np.pi))).sum()
    assert float(log_prob(jnp.array(mean), jnp.array(log_std), jnp.array(action))) == pytest.approx(expected, rel=1e-5)


def test_a_ratio_beyond_the_clip_earns_no_more_and_loses_all_it_loses():
    """Two samples whose standardised advantages are 1 and -1, clip 0.2, so that min(r A, clip(r) A) is by hand."""
    advantage = jnp.array([3.0, 1.0])
    for ratios, gains in (((1.5, 0.5), (1.2, -0.8)), ((0.5, 1.5), (0.5, -1.5)), ((1.1, 0.9), (1.1, -0.9))):
        loss, _ = clipped_surrogate(jnp.log(jnp.array(ratios)), advantage, 0.2)
        assert float(loss) == pytest.approx(-np.mean(gains), abs=1e-6)


def test_where_nothing_is_to_be_gained_the_loss_is_minus_the_weighted_entropy(sim):
    """A standard normal action, equal advantages and exact values: what is left is -w log(2 pi e) / 2."""
    cfg = dataclasses.replace(TINY, entropy=0.3)
    groups, init = crew_of(cfg, sim), ppo.make_update(cfg, sim)[0]
    shapes = jax.eval_shape(init, jax.random.key(0), sim)
    params = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes.params)
    x, legal = jnp.zeros((5, *groups.view(sim.spaces()[0].low).shape)), jnp.ones((5, 1, 0), bool)
    action, same = jnp.zeros((5, 1, 1)), jnp.ones((5, 1))
    batch = ppo.Samples(x, legal, action, jnp.zeros((5, 1)), same, jnp.zeros((5, 1, 1)))
    actor = make_actor(cfg, groups)
    loss = ppo.make_loss(
        cfg, groups, lambda params, x: (distribution(groups, actor, params["actor"], x), jnp.zeros((5, 1, 1)))
    )
    assert float(loss(params, batch)[0]) == pytest.approx(-0.3 * 0.5 * np.log(2 * np.pi * np.e), rel=1e-5)


def test_the_running_moments_are_those_of_all_samples(sim):
    low, high = (x.reshape(-1) for x in sim.spaces()[0])
    scale = scale_from_bounds(jnp.asarray(low), jnp.asarray(high), 0.05)
    rng = np.random.default_rng(0)
    x = (low + (high - low) * rng.uniform(0.2, 0.4, (4000, low.size))).astype(low.dtype)
    for part in np.split(x, 4):
        scale = observe_batch(scale, jnp.asarray(part))
    np.testing.assert_allclose(scale.mean, x.mean(0), atol=2e-3)  # the bounds weigh one sample in 4,001
    np.testing.assert_allclose(np.sqrt(scale.var), x.std(0), rtol=0.02)
    seen = normalise(scale, jnp.asarray(x))
    np.testing.assert_allclose(denormalise(scale, seen), x, atol=ROUNDING)


@pytest.mark.full
def test_the_ratio_is_one_before_the_first_gradient_step(sim):
    """The stored log-probability is that of the stored action: at exp(1.5) the environment clips most of them."""
    cfg = dataclasses.replace(TINY, log_std=1.5)
    metrics = jax.jit(ppo.make_train(cfg, sim))(jax.random.key(0), sim).metrics
    assert float(metrics["ratio_error"].max()) < ROUNDING


@pytest.mark.tiers("long", full=["False-24-1"])
@pytest.mark.parametrize(("bootstrap", "steps", "valued"), [(True, 48, 1), (False, 48, 0), (False, 24, 1)])
def test_the_value_behind_the_last_step_is_that_of_the_true_last_observation(sim, bootstrap, steps, valued):
    """With gamma = lambda = 1 and rewards lost in rounding each target is V(o_T): replayed here without restarts."""
    cfg = dataclasses.replace(
        TINY, epochs=1, minibatches=1, gamma=1.0, gae_lambda=1.0, reward_scale=1e-20, bootstrap=bootstrap, steps=steps
    )
    init, update = ppo.make_update(cfg, sim)
    state = jax.jit(init)(jax.random.key(0), sim)
    values = np.asarray(jax.jit(values_of_an_episode, static_argnums=0)(cfg, state, sim))
    expected = float(0.5 * np.mean((valued * values[-1] - values[:-1]) ** 2))
    assert float(jax.jit(update)(state, sim)[1]["loss_value"]) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("steps", "horizon"), [(12, 48), (48, 48), (96, 48), (20, 7), (21, 7), (1, 1)])
def test_what_follows_a_time_limit_is_the_value_of_the_observation_there(steps, horizon):
    lanes, rng = 5, np.random.default_rng(steps)
    truncated = np.zeros((steps, lanes), bool)
    for lane, begin in enumerate(rng.integers(0, horizon, lanes)):
        truncated[begin::horizon, lane] = True
    after = rng.normal(size=(steps, lanes, 2, 3))
    following, worth = rng.normal(size=(steps, lanes, 1, 1)), after.sum(axis=(2, 3))[..., None, None]
    width = min(steps, horizon)
    kept = {"obs": jnp.zeros((-(-steps // width), lanes, 2, 3))}
    for t in range(steps):
        row = {"obs": jnp.asarray(after[t])}
        kept = ppo.kept_at_limits(kept, row, jnp.asarray(truncated[t]), jnp.asarray(t // width))
    beyond = jnp.sum(kept["obs"], axis=(2, 3))[..., None, None]
    found = ppo.behind_limits(jnp.asarray(following), beyond, jnp.asarray(truncated), width)
    expected = np.where(truncated[..., None, None], worth, following)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def values_of_an_episode(cfg: PPOConfig, state: ppo.PPOState, sim: Any) -> jax.Array:
    """V(o_0) .. V(o_T) of the episodes that the first update will live: (T + 1, lanes)."""
    actor = make_actor(cfg, crew_of(cfg, sim))
    critic = Critic(cfg.widths, cfg.activation, actor.dtype)
    scale, weights = state.scale["all"], state.params

    def advance(loop: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        env, obs = loop
        mean, log_std = actor.apply(weights["actor"]["all"], normalise(scale, obs))
        action = mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape, mean.dtype)
        out = jax.vmap(sim.step)(env, action)
        return (out.state, out.obs), out.obs

    collect_key = jax.random.split(state.key, 3)[1]
    _, later = jax.lax.scan(advance, (state.env, state.obs), jax.random.split(collect_key, cfg.steps))
    seen = normalise(scale, jnp.concatenate([state.obs[None], later]))
    return critic.apply(weights["critic"]["all"], seen)[..., 0, 0]


@pytest.mark.long
def test_seeds_side_by_side_equal_separate_runs(sim):
    train = ppo.make_train(TINY, sim)
    keys = jax.random.split(jax.random.key(1), 2)
    both = jax.jit(jax.vmap(train, (0, None)))(keys, sim)
    for i in range(2):
        alone = jax.jit(train)(keys[i], sim)
        np.testing.assert_allclose(both.metrics["return"][i], alone.metrics["return"], rtol=1e-3)
        for a, b in zip(jax.tree.leaves(both.state.params), jax.tree.leaves(alone.state.params), strict=True):
            np.testing.assert_allclose(a[i], b, atol=1e-3)  # Adam's first steps have size lr whatever the rounding


def conds(sim, seeds: int) -> int:
    train = ppo.make_train(TINY, sim)
    keys = jax.random.split(jax.random.key(0), seeds)
    over = train if seeds == 1 else jax.vmap(train, (0, None))
    return primitives(jax.make_jaxpr(over)(keys if seeds > 1 else keys[0], sim).jaxpr)["cond"]


@pytest.mark.full
def test_the_restart_stays_a_branch_under_seeds(sim, monkeypatch):
    """A batched predicate would turn `cond` into a select, and `init` would be paid at every step."""
    assert conds(sim, 2) == conds(sim, 1)
    # what happens without the care taken there; the package's `autoreset` is the function, not the module
    monkeypatch.setattr(sys.modules["powerzoo_jax.envs.batch"], "anywhere", jnp.any)
    assert conds(sim, 2) < conds(sim, 1)


@pytest.mark.full
def test_updates_share_one_compile_and_strong_dtypes(sim):
    init, update = ppo.make_update(TINY, sim)
    step = jax.jit(update)
    state = jax.jit(init)(jax.random.key(0), sim)
    for _ in range(3):
        state, _ = step(state, sim)
    assert step._cache_size() == 1
    assert not any(leaf.weak_type for leaf in jax.tree.leaves(state) if hasattr(leaf, "weak_type"))


@pytest.mark.long
def test_episode_totals_are_those_of_whole_episodes(sim):
    """With 24 steps an update, every second update ends the episodes that the one before began."""
    cfg = dataclasses.replace(TINY, steps=24, total_steps=8 * 24 * 4)
    metrics = jax.jit(ppo.make_train(cfg, sim))(jax.random.key(0), sim).metrics
    assert metrics["episodes"].tolist() == [0, 8, 0, 8]
    assert metrics["length"].tolist() == [0, 48, 0, 48]
    np.testing.assert_allclose(metrics["terms"].sum(1), metrics["return"], atol=1e-4)


def test_priced_costs_lower_what_the_learner_sees_and_not_what_is_reported(sim):
    state, obs = jax.jit(sim.init)(jax.random.key(0))
    out = jax.jit(sim.step)(state, jnp.ones((1, 1), obs.dtype))
    out = out._replace(cost=jnp.array([0.0, 0.0, 0.0, 2.0]))
    seen = learner_reward(out, 0.5, (0.0, 0.0, 0.0, 3.0))
    assert float(seen) == pytest.approx(0.5 * (float(out.reward[0]) - 6.0), rel=1e-5)


@pytest.mark.full
def test_ppo_learns_to_trade(sim):
    cfg = PPOConfig(
        lanes=64, total_steps=64 * 48 * 40, epochs=4, minibatches=4, widths=(32, 32), lr=3e-3, gamma=1.0,
        bootstrap=False, reward_scale=0.3,
    )  # fmt: skip
    state, metrics = jax.jit(ppo.make_train(cfg, sim))(jax.random.key(0), sim)
    act = ppo_act(cfg, sim, ppo.policy_of(state))
    totals = evaluate_policy(sim, act, jax.random.split(jax.random.key(1), 64))
    assert float(metrics["return"][0]) < -5.0  # noise pays wear
    assert float(totals.total.mean()) > 6.0  # an idle battery earns 0, this one 7.7
