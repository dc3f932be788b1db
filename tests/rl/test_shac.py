"""The short-horizon actor-critic: its gradient against that of whole episodes and differences, and that it learns."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.rl.algorithms import apg, shac
from powerzoo_jax.rl.policies import apg_act
from powerzoo_jax.rl.rollout import evaluate_policy
from powerzoo_jax.rl.training.config import APGLagrangianConfig, SHACConfig, SHACLagrangianConfig
from tests.rl.toy_battery import STEPS, toy_sim
from tests.rl.toy_team import STEPS as TEAM_STEPS
from tests.rl.toy_team import toy_team

SMALL = {"lanes": 4, "updates": 4, "widths": (8,), "lr": 1e-3, "start": (0.3,), "price": 1.0}
WINDOW = SHACConfig(lanes=4, steps=4, widths=(8,), start=(0.3,), stagger=False, gamma=0.9)


@pytest.fixture(scope="module")
def sim():
    return toy_sim()


def test_over_a_whole_episode_without_a_value_the_gradient_is_the_analytic_one(sim):
    """The same weights, episodes and prices: one gradient step of either learner moves them alike."""
    init, update = apg.make_update(APGLagrangianConfig(**SMALL), sim)
    state = jax.jit(init)(jax.random.key(0), sim)
    after, told = jax.jit(update)(state, sim)
    cfg = SHACLagrangianConfig(steps=STEPS, stagger=False, gamma=1.0, bootstrap=False, **SMALL)
    begin, step = shac.make_update(cfg, sim)
    keys = jax.random.split(jax.random.split(state.key)[1], 4)  # as the other one draws its episodes
    env, obs = jax.vmap(lambda key: sim.init(jax.random.split(key)[1]))(keys)
    mine = jax.jit(begin)(jax.random.key(1), sim)
    mine = mine.replace(actor=state.actor, opt=state.opt, scale=state.scale, env=env, obs=obs)
    moved, same = jax.jit(step)(mine, sim)
    for name in ("grad_norm", "loss", "return", "cost"):
        np.testing.assert_allclose(same[name], told[name], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(same["price_resource"], told["price_resource"], rtol=1e-4)
    for a, b in zip(jax.tree.leaves(moved.actor), jax.tree.leaves(after.actor), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)  # of steps of 1e-3


def test_the_gradient_is_that_of_differences_and_goes_through_the_value(sim):
    """Along the gradient itself, over four steps in which no limit of the battery is met."""
    state = jax.jit(shac.make_update(WINDOW, sim)[0])(jax.random.key(0), sim)
    window, keys = shac.make_parts(WINDOW, sim).window, jax.random.split(jax.random.key(1), (4, 4))

    @jax.jit
    def loss(actor, state):
        return window(actor, state, state.lanes, keys, sim)[0]

    def norm(tree):
        return float(jnp.sqrt(sum(jnp.vdot(x, x) for x in jax.tree.leaves(tree))))

    slope = jax.jit(jax.grad(loss))
    grads = slope(state.actor, state)
    ahead, back = (
        loss(jax.tree.map(lambda x, g, s=sign: x + s * 3e-3 * g / norm(grads), state.actor, grads), state)
        for sign in (1.0, -1.0)
    )
    assert float(ahead - back) / 6e-3 == pytest.approx(norm(grads), rel=0.02)
    worthless = slope(state.actor, state.replace(target=jax.tree.map(jnp.zeros_like, state.target)))
    assert norm(jax.tree.map(jnp.subtract, grads, worthless)) > 0.05 * norm(grads)


def test_a_sum_begins_anew_after_the_end_of_an_episode():
    ended = jnp.array([[False, True], [False, False], [True, False], [False, False]])
    expected = [[1, 1], [0.5, 1], [0.25, 0.5], [1, 0.25]]
    np.testing.assert_allclose(shac.discounts(ended, 0.5, jnp.float32), expected)


def test_a_limit_by_lane_that_none_reaches_changes_nothing(sim):
    state = jax.jit(shac.make_update(WINDOW, sim)[0])(jax.random.key(0), sim)
    (plain, told), (limited, same) = (
        jax.jit(shac.make_update(replace(WINDOW, lane_grad_norm=limit), sim)[1])(state, sim) for limit in (0.0, 1e6)
    )
    np.testing.assert_allclose(same["grad_norm"], told["grad_norm"], rtol=1e-4)
    for a, b in zip(jax.tree.leaves(plain.critic), jax.tree.leaves(limited.critic), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_windows_of_a_quarter_of_a_day_learn_to_trade(sim):
    """What is charged at night is sold in the evening, beyond the window: only the value knows.

    An idle battery earns 0, and the gradient of whole days 8.0 from four times as many steps.
    """
    earned = []
    for critic_lr in (3e-3, 1e-9):
        cfg = SHACConfig(
            lanes=32, steps=12, updates=200, widths=(32, 32), lr=5e-3, critic_lr=critic_lr, activation="relu",
            gamma=1.0, bootstrap=False, cost_weights=(0.0, 0.0, 0.0, 0.5),
        )  # fmt: skip
        state, metrics = jax.jit(shac.make_train(cfg, sim))(jax.random.key(0), sim)
        act = apg_act(cfg, sim, shac.policy_of(state))
        earned.append(float(evaluate_policy(sim, act, jax.random.split(jax.random.key(1), 64)).total.mean()))
        assert int(metrics["episodes"].min()) > 0  # lanes are all over the day
    learnt, untaught = earned
    assert learnt > 4.0 and untaught < 0.0


def test_a_budget_that_binds_is_kept():
    """Who repeats what is heard spends 1.5 and earns 0; silence above zero spends 0 and earns -1 in the mean."""
    sim = toy_team(0.3)
    cfg = SHACLagrangianConfig(
        lanes=64, steps=TEAM_STEPS // 2, updates=300, widths=(16,), lr=1e-2, joint=False, price_rate=0.02
    )
    state, metrics = jax.jit(shac.make_train(cfg, sim))(jax.random.key(0), sim)
    totals = evaluate_policy(sim, apg_act(cfg, sim, shac.policy_of(state)), jax.random.split(jax.random.key(1), 256))
    assert set(state.actor) == {"bat", "pv"}
    assert 0.15 < float(totals.cost[:, 0].mean()) < 0.3
    assert -1.0 < float(totals.total.mean()) < 0.0
    assert float(metrics["price_loudness"].max()) > 0.0


def test_fewer_samples_than_minibatches_are_refused():
    with pytest.raises(ValueError, match="minibatches = 9 exceeds the 8 samples of a window"):
        SHACConfig(lanes=2, steps=4, minibatches=9)


def test_a_window_teaches_nothing_to_remember():
    with pytest.raises(ValueError, match="memory = 8, but the gradient of a window"):
        SHACConfig(memory=8)
