"""SAC: its density, its store, what it takes for an end; and that it learns to trade."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base import Step
from powerzoo_jax.rl.algorithms import sac
from powerzoo_jax.rl.algorithms.onpolicy import ends_value
from powerzoo_jax.rl.networks.body import Critic
from powerzoo_jax.rl.policies import group_agents, make_squashed, sac_act
from powerzoo_jax.rl.rollout import evaluate_policy
from powerzoo_jax.rl.training.config import SACConfig
from tests.rl.toy_battery import toy_sim

CFG = SACConfig(
    lanes=16, steps=48, gradients=96, batch=128, total_steps=16 * 48 * 40, capacity=16 * 48 * 20, warmup=16 * 48 * 4,
    widths=(32, 32), lr=3e-3, gamma=1.0, bootstrap=False, reward_scale=0.3, target_entropy=-2.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def sim():
    return toy_sim()


@pytest.mark.full
def test_the_density_of_a_squashed_sample_integrates_to_one():
    """log pi(a) = log N(atanh a) - log(1 - a^2), and the mean of 1/pi over samples is the length of (-1, 1)."""
    mean, log_std = jnp.full((20_000, 1), 0.4), jnp.full((20_000, 1), -0.3)
    action, logp = sac.squashed_sample(jax.random.key(0), mean, log_std)
    a = np.asarray(action, np.float64)[:, 0]
    z = (np.arctanh(a) - 0.4) / np.exp(-0.3)
    expected = -0.5 * z**2 + 0.3 - 0.5 * np.log(2 * np.pi) - np.log1p(-(a**2))
    np.testing.assert_allclose(logp, expected, atol=2e-3)
    inner = np.abs(a) < 0.9
    assert np.mean(np.where(inner, np.exp(-np.asarray(logp)), 0.0)) == pytest.approx(1.8, rel=0.03)


@pytest.mark.full
def test_the_density_stays_finite_where_tanh_is_flat():
    action, logp = sac.squashed_sample(jax.random.key(0), jnp.full((4, 1), 40.0), jnp.full((4, 1), -5.0))
    assert action.tolist() == [[1.0]] * 4 and np.isfinite(np.asarray(logp)).all()


def filled(rounds: int) -> sac.Store:
    """Store of four steps of three lanes after rounds of two steps; a reward tells round, step and lane."""

    def round_of(value: int) -> sac.Transition:
        reward = 100.0 * value + 10 * jnp.arange(2.0)[:, None] + jnp.arange(3.0)
        x = reward[..., None, None]
        return sac.Transition(x, x, reward, x, reward > 900)

    rows = jax.tree.map(lambda v: jnp.zeros((3, 4, *v.shape[2:]), v.dtype), round_of(0))
    store = sac.Store(rows=rows, writes=jnp.zeros((), jnp.int32))
    for value in range(1, rounds + 1):
        store = sac.write(store, round_of(value))
    return store


@pytest.mark.full
def test_the_store_forgets_the_oldest_round():
    store = filled(3)
    assert store.rows.reward.tolist() == [[300 + i, 310 + i, 200 + i, 210 + i] for i in range(3)]
    assert int(store.writes) == 18


@pytest.mark.tiers("long", full=["1-1"])
@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("blocks", [1, 3])
def test_batches_are_drawn_evenly_from_what_is_there_and_by_block(rounds, blocks):
    store = filled(rounds)
    rewards = np.asarray(sac.draw(store, jax.random.key(0), 6000, blocks).reward)
    there, counts = np.unique(rewards, return_counts=True)
    assert set(there) == set(np.asarray(store.rows.reward).ravel()) - {0.0}
    # standard deviation of the count of one of n equally likely ones
    assert np.abs(counts - 6000 / there.size).max() < 4.5 * np.sqrt(6000 / there.size)
    if blocks == 3:
        assert ((rewards % 10).reshape(3, 2000) == np.arange(3)[:, None]).all()


def test_blocks_that_do_not_divide_lanes_and_batch_are_refused():
    for lanes, batch in ((6, 32), (8, 30)):
        with pytest.raises(ValueError, match=f"shards = 4 must divide lanes = {lanes} and batch = {batch}"):
            SACConfig(lanes=lanes, batch=batch, shards=4)


@pytest.mark.full
@pytest.mark.parametrize(("terminated", "truncated", "bootstrap", "ends"), [
    (True, False, True, True), (False, True, True, False), (False, True, False, True), (True, True, True, True),
    (False, False, False, False),
])  # fmt: skip
def test_a_time_limit_ends_the_value_only_where_the_settings_say_so(sim, terminated, truncated, bootstrap, ends):
    state, _ = jax.jit(sim.init)(jax.random.key(0))
    out: Step = jax.eval_shape(sim.step, state, jax.ShapeDtypeStruct((1, 1), jnp.float32))
    info = out.info.replace(terminated=jnp.asarray(terminated), truncated=jnp.asarray(truncated))
    assert bool(ends_value(out._replace(info=info), bootstrap)) == ends


@pytest.mark.full
def test_behind_an_end_there_is_nothing_but_the_reward(sim):
    cfg = SACConfig(widths=(8,), gamma=0.9)
    groups = group_agents(sim, joint=True, squash=True)
    actor, critic = make_squashed(cfg, groups), Critic(cfg.widths, cfg.activation, groups.dtype)
    x = jax.random.normal(jax.random.key(1), (5, 1, 4))
    action = jnp.zeros((5, 1, 1))
    pair = jnp.concatenate([x[0], action[0]], -1)
    weights = jax.vmap(critic.init, (0, None))(jax.random.split(jax.random.key(2), 2), pair)
    params = {"actor": actor.init(jax.random.key(3), x[0]), "critic": weights, "log_alpha": jnp.zeros(())}
    reward = jnp.arange(5.0)
    losses = sac.make_losses(cfg, actor, critic, 1)

    def goal(terminated: bool) -> float:
        batch = sac.Transition(x, action, reward, x, jnp.full(5, terminated))
        return float(losses(params, weights, batch, x, x, jax.random.key(4))[1]["value"])

    assert goal(True) == pytest.approx(2.0)
    assert goal(False) != pytest.approx(2.0, abs=1e-2)


@pytest.mark.full
def test_what_lies_ahead_is_worth_its_entropy_times_the_temperature(sim):
    """Haarnoja et al. 2018: V = E[min Q - alpha log pi], so one more unit of alpha adds gamma times the entropy."""
    cfg = SACConfig(widths=(8,), gamma=0.9)
    groups = group_agents(sim, joint=True, squash=True)
    actor, critic = make_squashed(cfg, groups), Critic(cfg.widths, cfg.activation, groups.dtype)
    many = 20_000  # of one observation: the mean of log pi is then known to 1 %
    x, action = jnp.full((many, 1, 4), 0.3), jnp.zeros((many, 1, 1))
    weights = jax.vmap(critic.init, (0, None))(
        jax.random.split(jax.random.key(2), 2), jnp.concatenate([x[0], action[0]], -1)
    )
    policy = actor.init(jax.random.key(3), x[0])
    batch = sac.Transition(x, action, jnp.zeros(many), x, jnp.zeros(many, bool))
    losses = jax.jit(sac.make_losses(cfg, actor, critic, 1))

    def goal(alpha: float) -> float:
        params = {"actor": policy, "critic": weights, "log_alpha": jnp.log(jnp.asarray(alpha))}
        return float(losses(params, weights, batch, x, x, jax.random.key(4))[1]["value"])

    mean, log_std = actor.apply(policy, x[:1])
    u = np.random.default_rng(0).normal(float(mean.sum()), np.exp(float(log_std.sum())), 200_000)
    z = (u - float(mean.sum())) / np.exp(float(log_std.sum()))
    density = -0.5 * z**2 - float(log_std.sum()) - 0.5 * np.log(2 * np.pi) - 2 * np.log(1 / np.cosh(u))
    assert goal(2.0) - goal(1.0) == pytest.approx(-0.9 * density.mean(), abs=0.03)
    assert abs(density.mean()) > 0.1  # or its sign would not show


@pytest.fixture(scope="module")
def trained(sim):
    return jax.jit(sac.make_train(CFG, sim))(jax.random.key(0), sim)


@pytest.mark.long
def test_sac_learns_to_trade(sim, trained):
    act = sac_act(CFG, sim, sac.policy_of(trained.state))
    totals = evaluate_policy(sim, act, jax.random.split(jax.random.key(1), 64))
    assert float(trained.metrics["return"][0]) < -5.0  # random actions pay wear
    assert float(totals.total.mean()) > 3.0  # an idle battery earns 0, the best one 8


@pytest.mark.long
def test_the_temperature_brings_the_entropy_to_its_target(trained):
    assert float(trained.metrics["entropy"][-5:].mean()) == pytest.approx(CFG.target_entropy, abs=0.7)
