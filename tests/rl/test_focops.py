"""The trust region of FOCOPS: its optimum in closed form, states outside of it, and a budget that binds."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from powerzoo_jax.rl.algorithms import ppo
from powerzoo_jax.rl.algorithms.focops import trust_region_surrogate
from powerzoo_jax.rl.networks.heads import Dist, Head
from powerzoo_jax.rl.policies import ppo_act
from powerzoo_jax.rl.rollout import evaluate_policy
from powerzoo_jax.rl.training.config import FOCOPSConfig
from tests.rl.toy_team import STEPS, toy_team

HEAD, ALL = Head((0,)), jnp.ones((1, 0), bool)
MEAN, SIGMA, WEIGHT, WIDE = 0.3, 0.5, 1.6, 1e9
Z = norm.ppf((np.arange(100_000) + 0.5) / 100_000).astype(np.float32)[:, None]  # draws, evenly through the distribution


def gaussian(mean: float, sigma: float) -> Dist:
    """The same policy in every state, (100000, 1)."""
    mean, width = (jnp.broadcast_to(x, Z.shape) for x in (jnp.asarray(mean), jnp.log(sigma)))
    return Dist(mean, width, jnp.zeros((*Z.shape[:-1], 0)))


def loss(mean: jax.Array, sigma: jax.Array) -> jax.Array:
    """Loss of a policy where an action of one more standard deviation is worth one more."""
    acting, new, raw = gaussian(MEAN, SIGMA), gaussian(mean, sigma), MEAN + SIGMA * Z
    log_ratio = HEAD.log_prob(new, raw, ALL) - HEAD.log_prob(acting, raw, ALL)
    return trust_region_surrogate(log_ratio, HEAD.divergence(new, acting, ALL), jnp.asarray(Z[:, 0]), WEIGHT, WIDE)[0]


def test_the_minimum_is_the_acting_policy_times_the_exponential_of_its_advantage():
    """exp(z / lambda) moves a Gaussian by sigma / lambda and leaves its width: no slope there, and more all around."""
    best = jnp.array([MEAN + SIGMA / WEIGHT, SIGMA])
    np.testing.assert_allclose(jax.grad(lambda x: loss(*x))(best), 0.0, atol=0.01)
    assert abs(jax.grad(loss)(MEAN, SIGMA)) > 1.0
    for step in ([0.1, 0.0], [-0.1, 0.0], [0.0, 0.1], [0.0, -0.1]):
        assert loss(*(best + jnp.array(step))) > loss(*best) + 0.01


def test_a_state_that_has_left_the_trust_region_counts_no_more():
    """Divergences of 0.5 (d / 0.5)^2: 0.0002 and 0.08, on either side of 0.02."""
    acting = Dist(jnp.zeros((2, 1)), jnp.full((2, 1), jnp.log(0.5)), jnp.zeros((2, 0)))
    raw, worth = jnp.array([[0.2], [0.4]]), jnp.array([1.0, -1.0])

    def both(mean: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        new = acting._replace(mean=mean[:, None])
        ratio = HEAD.log_prob(new, raw, ALL) - HEAD.log_prob(acting, raw, ALL)
        return trust_region_surrogate(ratio, HEAD.divergence(new, acting, ALL), worth, WEIGHT, 0.02)

    slope, told = jax.grad(both, has_aux=True)(jnp.array([0.01, 0.2]))
    assert slope[0] != 0.0 and slope[1] == 0.0
    assert float(told["clip_fraction"]) == 0.5


def test_the_divergence_is_the_mean_of_the_difference_of_log_probabilities():
    """A column that is free beside one of two options, summed over a grid of values and both options."""
    head, legal = Head((0, 2)), jnp.ones((1, 2), bool)
    new = Dist(jnp.array([[0.2]]), jnp.array([[-0.3]]), jnp.array([[0.1, 1.2]]))
    old = Dist(jnp.array([[-0.4]]), jnp.array([[0.1]]), jnp.array([[0.5, -0.5]]))
    grid = jnp.linspace(-8.0, 8.0, 2001)
    raw = jnp.stack(jnp.meshgrid(grid, jnp.arange(2.0), indexing="ij"), axis=-1).reshape(-1, 1, 2)
    everywhere = (Dist(*(jnp.broadcast_to(x, (len(raw), *x.shape)) for x in dist)) for dist in (new, old))
    logp, before = (head.log_prob(dist, raw, legal) for dist in everywhere)
    expected = jnp.sum(jnp.exp(logp) * (logp - before)) * (grid[1] - grid[0])
    assert float(head.divergence(new, old, legal)[0]) == pytest.approx(float(expected), rel=1e-4)
    assert float(head.divergence(new, new, legal)[0]) == pytest.approx(0.0, abs=1e-6)


def test_a_budget_that_binds_is_kept_and_used():
    """Who repeats what is heard spends 1.5 and earns 0; silence above zero spends 0 and earns -1 in the mean."""
    home = toy_team(0.3)
    cfg = FOCOPSConfig(
        lanes=64, steps=STEPS, total_steps=64 * STEPS * 150, epochs=4, minibatches=2, widths=(16,), lr=1e-2, gamma=0.0,
        gae_lambda=0.0, price_rate=0.1, greedy_episodes=64,
    )  # fmt: skip
    state, metrics = jax.jit(ppo.make_train(cfg, home))(jax.random.key(0), home)
    totals = evaluate_policy(home, ppo_act(cfg, home, ppo.policy_of(state)), jax.random.split(jax.random.key(1), 256))
    assert 0.1 < float(totals.cost[:, 0].mean()) < 0.3
    assert -1.1 < float(totals.total.mean()) < 0.0
    assert float(metrics["kl"].max()) < 10 * cfg.kl_trust
