"""The analytic policy gradient: that it climbs the return, keeps budgets, and that a run can be cut into parts."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.errors import SettingsError
from powerzoo_jax.envs.episode import first_carry
from powerzoo_jax.oracle.registry import get_column_rule
from powerzoo_jax.rl.algorithms import apg
from powerzoo_jax.rl.algorithms.apg import blurred, held_to_norm
from powerzoo_jax.rl.networks.body import Scale
from powerzoo_jax.rl.policies import apg_act, apg_groups
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


@pytest.mark.full
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


@pytest.mark.long
def test_a_small_step_along_the_gradient_raises_the_return(sim, small):
    """Same episodes before and after one step of 1e-4: the gradient through the environment points uphill."""
    _, state, update = small
    after, first = update(state, sim)
    _, again = update(after.replace(key=state.key, scale=state.scale), sim)
    assert float(again["return"]) > float(first["return"])


@pytest.mark.full
def test_updates_one_by_one_equal_one_program(sim, small):
    cfg, state, update = small
    whole = jax.jit(apg.make_train(cfg, sim))(jax.random.key(0), sim)
    for _ in range(3):
        state, metrics = update(state, sim)
    assert update._cache_size() == 1
    np.testing.assert_allclose(metrics["return"], whole.metrics["return"][-1], rtol=1e-4)


@pytest.mark.long
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


@pytest.mark.long
def test_a_held_column_stays_at_its_start_and_the_others_learn(sim):
    """The battery of the toy is the one column: held, it plays its start for ever."""
    cfg = replace(CFG, updates=2, lanes=2, widths=(8,), start=(0.5,), held=(0,))
    init, update = apg.make_update(cfg, sim)
    state, _ = update(init(jax.random.key(0), sim), sim)
    _, action = apg_act(cfg, sim, apg.policy_of(state))((), jax.jit(sim.init)(jax.random.key(1))[1], jax.random.key(2))
    np.testing.assert_allclose(action, 0.5, rtol=1e-6)


@pytest.mark.full
@pytest.mark.full
@pytest.mark.parametrize("memory", [0, 4])
def test_columns_of_a_rule_are_its_own_and_the_others_learn_beside_them(memory):
    """Jobs of the microgrid start as its rule says, whatever the policy; nothing of the network leads to them."""
    sim = make("dc_microgrid", split="train", max_steps=4)
    settings = {"updates": 2, "lanes": 2, "widths": (8,), "memory": memory, "cost_weights": ()}
    cfg = replace(CFG, task="dc_microgrid", column_rule="starts", **settings)
    init, update = apg.make_update(cfg, sim)
    begun = init(jax.random.key(0), sim)
    state, metrics = jax.jit(update)(begun, sim)
    assert np.isfinite(metrics["loss"])
    obs = jax.random.uniform(jax.random.key(1), sim.init(jax.random.key(1))[1].shape)
    rule = get_column_rule("dc_microgrid", "starts").of(sim)
    before, after = (policy_action(cfg, sim, apg.policy_of(x), obs) for x in (begun, state))
    for action in (before, after):
        np.testing.assert_array_equal(action[:, :2], rule(obs)[:, :2])
    assert (before[:, 2:] != after[:, 2:]).all()
    with pytest.raises(SettingsError, match="column_rule = 'starts' reads one observation, and history = 2"):
        replace(cfg, history=2)


def policy_action(cfg: APGConfig, sim, policy, obs) -> np.ndarray:
    act = apg_act(cfg, sim, policy)
    return np.asarray(act(first_carry(act, ()), obs, jax.random.key(2))[1])


def test_noise_on_observations_is_a_share_of_what_each_field_varies_by():
    """Two kinds, whose fields vary by 0.5 and 2 in one, by 1 in the other: 10 % of it, in every agent's place."""
    sim = toy_team()
    groups = apg_groups(replace(CFG, joint=False), sim)
    one = jnp.ones(())
    scale = {k: Scale(mean=v, var=v**2, floor=0 * v, count=one) for k, v in SPREADS.items()}
    echo = blurred(groups, lambda carry, obs, key: (carry, obs), scale, 0.1)
    _, seen = jax.vmap(lambda key: echo((), jnp.zeros((3, 2)), key))(jax.random.split(jax.random.key(0), 4000))
    expected = 0.1 * np.array([SPREADS["bat"], SPREADS["pv"], SPREADS["bat"]])
    np.testing.assert_allclose(seen.std(axis=0), expected, rtol=0.05)


def test_gradients_by_lane_are_held_to_a_norm_and_those_that_are_not_finite_left_out():
    """Norms 5, 0.5, infinity, NaN and 1e30, whose square is no float32, at a limit of 1."""
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [np.inf, 0.0], [np.nan, 1.0], [1e30, 0.0]], np.float32)
    held = held_to_norm({"a": jnp.asarray(rows[:, :1]), "b": jnp.asarray(rows[:, 1:])}, 1.0)
    found = np.concatenate([held["a"], held["b"]], axis=1)
    np.testing.assert_allclose(found, [[0.6, 0.8], [0.3, 0.4], [0, 0], [0, 0], [0, 0]], rtol=1e-6)


@pytest.mark.full
def test_with_a_limit_that_none_reaches_the_gradient_is_that_of_the_mean(sim, small):
    cfg, state, update = small
    alone = jax.jit(apg.make_update(replace(cfg, lane_grad_norm=1e6), sim)[1])
    (plain, told), (limited, same) = update(state, sim), alone(state, sim)
    np.testing.assert_allclose(same["grad_norm"], told["grad_norm"], rtol=1e-4)
    np.testing.assert_allclose(same["return"], told["return"], rtol=1e-5)
    for a, b in zip(jax.tree.leaves(plain.actor), jax.tree.leaves(limited.actor), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)  # of steps of 1e-4


@pytest.mark.full
def test_a_step_whose_gradient_is_not_finite_changes_no_weight(sim, small):
    """A reward of NaN dollars: the weights stay, and the next finite gradient moves them."""
    _, state, update = small
    broken = replace(sim, params=sim.params.replace(price=sim.params.price * jnp.nan))
    after, _ = update(state, broken)
    for a, b in zip(jax.tree.leaves(state.actor), jax.tree.leaves(after.actor), strict=True):
        np.testing.assert_array_equal(a, b)
    moved, _ = update(after.replace(scale=state.scale), sim)
    assert any((a != b).any() for a, b in zip(*map(jax.tree.leaves, (moved.actor, state.actor)), strict=True))


def test_a_task_that_switches_units_is_refused():
    with pytest.raises(ValueError, match="no gradient"):
        apg.make_update(APGConfig(), make("marl_uc"))


@pytest.mark.full
@pytest.mark.full
@pytest.mark.parametrize("memory", [0, 4])
def test_a_held_column_of_another_policy_stays_what_it_does_there_while_the_others_learn(memory):
    """Shares of jobs stay those of the policy before, though cooling, battery and diesel learn beside them."""
    sim = make("dc_microgrid", split="train", max_steps=4)
    cfg = replace(
        CFG, task="dc_microgrid", updates=2, lanes=2, widths=(8,), held=(0, 1), memory=memory, lr=0.05, cost_weights=()
    )
    init, update = apg.make_update(replace(cfg, start_from="elsewhere"), sim)
    begun = init(jax.random.key(0), sim)
    state, _ = jax.jit(update)(begun, sim)
    obs = jax.random.uniform(jax.random.key(1), sim.init(jax.random.key(1))[1].shape)
    play = [apg_act(replace(cfg, start_from="elsewhere"), sim, apg.policy_of(x)) for x in (begun, state)]
    before, after = (np.asarray(act(first_carry(act, ()), obs, jax.random.key(2))[1]) for act in play)
    np.testing.assert_array_equal(before[:, :2], after[:, :2])
    assert (before[:, 2:] != after[:, 2:]).all()
