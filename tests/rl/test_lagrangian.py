"""Prices of budgets: how they move, by hand; and that a budget which binds is kept."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.rl.algorithms import ppo
from powerzoo_jax.rl.algorithms.lagrangian import LagrangeMultipliers, adjust, budgets_of, start_multipliers
from powerzoo_jax.rl.policies import ppo_act
from powerzoo_jax.rl.rollout import evaluate_policy
from powerzoo_jax.rl.training.config import IPPOLagrangianConfig, PPOLagrangianConfig
from tests.rl.toy_team import STEPS, toy_team

pytestmark = pytest.mark.full

CFG = PPOLagrangianConfig(price_rate=0.1, price_gain=0.5, price_damping=0.2, budget_share=1.0)
BUDGET = jnp.array([2.0])
MANY = jnp.asarray(8, jnp.int32)


def moved(cost: float, price: float, error: float = 0.0, episodes: jax.Array = MANY) -> tuple[float, float]:
    old = LagrangeMultipliers(price=jnp.array([price]), integral=jnp.array([price]), error=jnp.array([error]))
    new = adjust(CFG, old, jnp.array([cost]), BUDGET, episodes)
    return float(new.integral[0]), float(new.price[0])


def test_a_price_rises_above_the_budget():
    assert moved(3.0, 1.0) == pytest.approx((1.05, 1.05 + 0.25 + 0.1))


def test_a_price_falls_below_the_budget():
    assert moved(1.0, 1.0) == pytest.approx((0.95, 0.95 - 0.25 - 0.1))


def test_a_price_is_never_negative():
    assert moved(0.0, 0.02) == (0.0, 0.0)


def test_a_huge_excess_counts_as_twice_the_budget():
    assert moved(1e6, 1.0) == moved(4.0, 1.0) == pytest.approx((1.1, 1.1 + 0.5 + 0.2))


def test_an_excess_that_stays_is_not_damped():
    assert moved(3.0, 1.0, error=0.5)[1] == pytest.approx(1.05 + 0.25)


def test_an_update_that_ends_no_episode_moves_nothing():
    assert moved(0.0, 1.0, episodes=jnp.zeros((), jnp.int32)) == (1.0, 1.0)


def test_budgets_are_those_of_the_task_and_zero_means_nearly_zero():
    assert budgets_of(CFG, toy_team(0.5)).tolist() == [0.5]
    assert budgets_of(CFG, toy_team(0.0)).tolist() == pytest.approx([1e-3])
    assert start_multipliers(CFG, toy_team(0.5)).price.shape == (1,)  # the unlimited channel has none


QUIET = IPPOLagrangianConfig(
    lanes=8, steps=STEPS, total_steps=8 * STEPS, epochs=1, minibatches=1, widths=(8,), price=1.0
)


@pytest.mark.tiers(long=["0"])
@pytest.mark.parametrize("episodes", [0, 4])
def test_prices_follow_the_policy_that_the_settings_name(episodes):
    """A fresh policy is silent but for its noise, which breaks a budget of 0.3 that the greedy policy keeps."""
    home = toy_team(0.3)
    cfg = dataclasses.replace(QUIET, greedy_episodes=episodes)
    init, update = ppo.make_update(cfg, home)
    _, told = jax.jit(lambda key, sim: update(init(key, sim), sim))(jax.random.key(0), home)
    assert float(told["cost"][0]) > 1.0
    seen = told["greedy_cost"] if episodes else told["cost"]
    budget, channels = budgets_of(cfg, home), jnp.arange(1)
    expected = adjust(cfg, start_multipliers(cfg, home), seen[channels], budget, MANY).price
    np.testing.assert_allclose(told["price_loudness"], expected[0], rtol=1e-6)
    assert (float(told["price_loudness"]) < 1.0) == bool(episodes)


@pytest.mark.long
def test_a_policy_priced_by_its_mode_spends_what_the_budget_allows():
    """Priced by its noise, it must be quieter than it need be, and earns less when it is scored without noise."""
    home = toy_team(0.3)
    cfg = dataclasses.replace(QUIET, lanes=64, total_steps=64 * STEPS * 150, epochs=4, minibatches=2, widths=(16,))
    cfg = dataclasses.replace(cfg, lr=1e-2, gamma=0.0, gae_lambda=0.0, price_rate=0.1, budget_share=0.8)
    scores = []
    for episodes in (0, 64):
        mine = dataclasses.replace(cfg, greedy_episodes=episodes)
        state, _ = jax.jit(ppo.make_train(mine, home))(jax.random.key(0), home)
        act = ppo_act(mine, home, ppo.policy_of(state))
        scores.append(evaluate_policy(home, act, jax.random.split(jax.random.key(1), 256)))
    noisy, greedy = scores
    assert float(noisy.cost[:, 0].mean()) < float(greedy.cost[:, 0].mean()) < 0.3
    assert float(greedy.total.mean()) > float(noisy.total.mean())


def test_a_task_without_budgets_is_refused():
    with pytest.raises(ValueError, match="no finite cost budget"):
        ppo.make_update(CFG, toy_team())


@pytest.fixture(scope="module")
def trained():
    """The same program under two budgets: one that binds, one that does not."""
    home = toy_team(0.3)
    cfg = IPPOLagrangianConfig(
        lanes=64, steps=STEPS, total_steps=64 * STEPS * 150, epochs=4, minibatches=2, widths=(16,), lr=1e-2, gamma=0.0,
        gae_lambda=0.0, price_rate=0.1,
    )  # fmt: skip

    def train(budget_share, key, sim):
        return ppo.make_train(dataclasses.replace(cfg, budget_share=budget_share), home)(key, sim)

    shares = jnp.array([0.8, 20.0])
    result = jax.jit(jax.vmap(train, (0, None, None)))(shares, jax.random.key(0), home)
    act = [ppo_act(cfg, home, jax.tree.map(lambda x, i=i: x[i], ppo.policy_of(result.state))) for i in range(2)]
    keys = jax.random.split(jax.random.key(1), 256)
    return result.metrics, [evaluate_policy(home, a, keys) for a in act]


def test_a_budget_that_binds_is_kept_at_a_price(trained):
    metrics, (tight, loose) = trained
    assert float(loose.cost[:, 0].mean()) > 1.0  # who repeats what is heard spends 1.5
    assert float(tight.cost[:, 0].mean()) < 0.3
    assert float(metrics["price_loudness"][0, -1]) > 0.1
    assert float(tight.total.mean()) < float(loose.total.mean())


@pytest.mark.long
def test_a_budget_that_does_not_bind_costs_nothing(trained):
    metrics, _ = trained
    np.testing.assert_array_equal(metrics["price_loudness"][1], 0.0)


def test_the_price_of_a_binding_budget_rises_and_falls(trained):
    price = np.diff(np.asarray(trained[0]["price_loudness"][0]))
    assert price.max() > 0.0 and price.min() < 0.0
