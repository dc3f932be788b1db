"""The analytic policy gradient: that it climbs the return, keeps budgets, and that a run can be cut into parts."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.rl.algorithms import apg
from powerzoo_jax.rl.algorithms.apg import blurred
from powerzoo_jax.rl.networks.body import Scale
from powerzoo_jax.rl.policies import apg_act, apg_crew
from powerzoo_jax.rl.rollout import evaluate_policy
from powerzoo_jax.rl.training.config import APGConfig, APGLagrangianConfig
from powerzoo_jax.tasks import make
from tests.rl.toy_battery import toy_sim
from tests.rl.toy_team import toy_team

CFG = APGConfig(lanes=16, updates=80, widths=(32, 32), lr=1e-2, activation="relu", cost_weights=(0.0, 0.0, 0.0, 0.5))

SPREADS = {"bat": jnp.array([0.5, 2.0]), "pv": jnp.array([1.0, 1.0])}


@pytest.fixture(scope="module")
def sim():
    return toy_sim()


def test_the_gradient_through_the_environment_learns_to_trade(sim):
    state, metrics = jax.jit(apg.make_train(CFG, sim))(jax.random.key(0), sim)
    totals = evaluate_policy(sim, apg_act(CFG, sim, apg.policy_of(state)), jax.random.split(jax.random.key(1), 64))
    assert abs(float(metrics["return"][0])) < 1.0  # the small last layer starts at idle
    assert float(totals.total.mean()) > 6.0  # this one earns 7.6


@pytest.fixture(scope="module")
def small(sim):
    """(settings, first state, compiled update) of a small learner."""
    cfg = APGConfig(lanes=4, updates=3, widths=(8,), lr=1e-4)
    init, update = apg.make_update(cfg, sim)
    return cfg, jax.jit(init)(jax.random.key(0), sim), jax.jit(update)


def test_a_small_step_along_the_gradient_raises_the_return(sim, small):
    """Same episodes before and after one step of 1e-4: the gradient through the environment points uphill."""
    _, state, update = small
    after, first = update(state, sim)
    _, again = update(after.replace(key=state.key, scale=state.scale), sim)
    assert float(again["return"]) > float(first["return"])


def test_updates_one_by_one_equal_one_program(sim, small):
    cfg, state, update = small
    whole = jax.jit(apg.make_train(cfg, sim))(jax.random.key(0), sim)
    for _ in range(3):
        state, metrics = update(state, sim)
    assert update._cache_size() == 1
    np.testing.assert_allclose(metrics["return"], whole.metrics["return"][-1], rtol=1e-4)


def test_kinds_of_agents_learn_to_keep_a_budget_that_binds():
    """Who repeats what is heard spends 1.5 and earns 0; silence above zero spends 0 and earns -1 in the mean."""
    sim = toy_team(0.3)
    cfg = APGLagrangianConfig(lanes=64, updates=150, widths=(16,), lr=1e-2, joint=False, price_rate=0.02)
    state, metrics = jax.jit(apg.make_train(cfg, sim))(jax.random.key(0), sim)
    totals = evaluate_policy(sim, apg_act(cfg, sim, apg.policy_of(state)), jax.random.split(jax.random.key(1), 256))
    assert set(state.actor) == {"bat", "pv"}
    assert 0.15 < float(totals.cost[:, 0].mean()) < 0.3
    assert -1.0 < float(totals.total.mean()) < 0.0
    price = np.diff(np.asarray(metrics["price_loudness"]))
    assert price.max() > 0.0 and price.min() < 0.0


def test_a_held_column_stays_at_its_start_and_the_others_learn(sim):
    """The battery of the toy is the one column: held, it plays its start for ever."""
    cfg = replace(CFG, updates=2, lanes=2, widths=(8,), start=(0.5,), held=(0,))
    init, update = apg.make_update(cfg, sim)
    state, _ = update(init(jax.random.key(0), sim), sim)
    _, action = apg_act(cfg, sim, apg.policy_of(state))((), jax.jit(sim.init)(jax.random.key(1))[1], jax.random.key(2))
    np.testing.assert_allclose(action, 0.5, rtol=1e-6)


def test_noise_on_observations_is_a_share_of_what_each_field_varies_by():
    """Two kinds, whose fields vary by 0.5 and 2 in one, by 1 in the other: 10 % of it, in every agent's place."""
    sim = toy_team()
    crew = apg_crew(replace(CFG, joint=False), sim)
    one = jnp.ones(())
    scale = {k: Scale(mean=v, var=v**2, floor=0 * v, count=one) for k, v in SPREADS.items()}
    echo = blurred(crew, lambda carry, obs, key: (carry, obs), scale, 0.1)
    _, seen = jax.vmap(lambda key: echo((), jnp.zeros((3, 2)), key))(jax.random.split(jax.random.key(0), 4000))
    expected = 0.1 * np.array([SPREADS["bat"], SPREADS["pv"], SPREADS["bat"]])
    np.testing.assert_allclose(seen.std(axis=0), expected, rtol=0.05)


def test_a_task_that_switches_units_is_refused():
    with pytest.raises(ValueError, match="no gradient"):
        apg.make_update(APGConfig(), make("marl_uc"))
