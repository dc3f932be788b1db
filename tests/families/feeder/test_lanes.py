"""Lanes of battery_arbitrage: independent bit by bit, equal to their stand-alone runs, restarted in time."""

from __future__ import annotations

import dataclasses
from collections import Counter
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr

import powerzoo_jax
from powerzoo_jax.base import Purpose, Step
from powerzoo_jax.base.tree import stack_leaves
from powerzoo_jax.envs import Sim, autoreset, vstep
from tests.families.feeder.storage_episodes import (
    HORIZON,
    episode_keys,
    make,
    play,
    play_one,
    run,
    test_actions,
    with_load,
)
from tests.tolerances import tolerance

pytestmark = pytest.mark.property

BATCH = 8
DIVERGING, POISONED = 2, 6  # lanes: one with ten times the load, one whose actions are NaN

batch_step = jax.jit(vstep)


def stacked(loads: list[float]) -> Sim:
    return powerzoo_jax.stack([with_load(make(), load) for load in loads])


def lane_actions() -> np.ndarray:
    """(B, T, 1, 1) with one lane of NaN."""
    actions = test_actions().astype(np.float32)
    actions[POISONED] = np.nan
    return actions


def advance(loads: list[float], keys: Any, actions: np.ndarray) -> tuple[list[Any], Any, np.ndarray]:
    """One day through vstep: every Step, and what follows the last one."""
    sims = stacked(loads)
    states, _, _ = play(make(), keys, jnp.asarray(actions))  # what an episode begins with does not depend on the load
    outs = []
    for t in range(HORIZON):
        out, states, obs = batch_step(sims, states, jnp.asarray(actions[:, t]))
        outs.append(host(out))
    return outs, host(states), np.asarray(obs)


def host(tree: Any) -> Any:
    """NumPy leaves, keys as their numbers."""

    def leaf(x: Any) -> np.ndarray:
        return np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)

    return jax.tree.map(leaf, tree)


LOADS = [0.85] * BATCH
LOADS[DIVERGING] = 10.0


@cache
def day() -> tuple[list[Step], Any, np.ndarray]:
    return advance(LOADS, episode_keys(BATCH), lane_actions())


def assert_same_lanes(found: Any, of: list[int], expected: Any, to: list[int]) -> None:
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a[of].tobytes() == b[to].tobytes()


@pytest.mark.long
def test_the_day_holds_a_diverging_and_a_poisoned_lane():
    ended = np.stack([out.info.terminated for out in day()[0]])
    assert ended.any(axis=0).tolist() == [k == DIVERGING for k in range(BATCH)]
    assert not np.stack([out.info.p_mw[POISONED] for out in day()[0]]).any()


@pytest.mark.tiers("full", long=["1"])
@pytest.mark.parametrize("shift", [1, 5])
def test_a_lane_is_bitwise_equal_in_any_position(shift):
    order = np.roll(np.arange(BATCH), shift)
    moved = advance([LOADS[k] for k in order], episode_keys(BATCH)[order], lane_actions()[order])
    for found, expected in zip(moved[0], day()[0], strict=True):
        assert_same_lanes(found, list(range(BATCH)), expected, list(order))
    assert_same_lanes(moved[1:], list(range(BATCH)), day()[1:], list(order))


@pytest.mark.full
def test_a_lane_is_bitwise_equal_beside_any_neighbours():
    kept = [0, 3, POISONED]
    loads = [LOADS[k] if k in kept else 0.5 for k in range(BATCH)]
    keys = jnp.where(np.isin(np.arange(BATCH), kept), episode_keys(BATCH), episode_keys(BATCH, seed=77))
    actions = lane_actions()[::-1].copy()
    actions[kept] = lane_actions()[kept]
    for found, expected in zip(advance(loads, keys, actions)[0], day()[0], strict=True):
        assert_same_lanes(found, kept, expected, kept)


@pytest.mark.full
def test_the_step_that_ends_an_episode_keeps_its_true_last_observation():
    last, alone = day()[0][-1], run()
    lanes = [k for k in range(BATCH) if k not in (DIVERGING, POISONED)]
    np.testing.assert_allclose(last.obs[lanes], alone.steps.obs[lanes, -1], atol=tolerance("lane", "float32"))
    assert last.info.truncated[lanes].all()


@pytest.mark.full
def test_a_restarted_lane_begins_the_episode_of_its_folded_key():
    states, obs = day()[1:]
    lanes = [k for k in range(BATCH) if k != DIVERGING]
    fold = jax.vmap(lambda key: jax.random.fold_in(key, int(Purpose.NEXT_EPISODE)))
    keys = fold(episode_keys(BATCH))
    fresh, fresh_obs, _ = play(make(), keys, jnp.asarray(test_actions().astype(np.float32)))
    assert not states.t[lanes].any()
    np.testing.assert_array_equal(states.key[lanes], np.asarray(jax.random.key_data(keys))[lanes])
    np.testing.assert_array_equal(states.load_row[lanes], np.asarray(fresh.load_row)[lanes])
    np.testing.assert_allclose(obs[lanes], np.asarray(fresh_obs)[lanes], atol=tolerance("lane", "float32"))


@pytest.mark.full
def test_a_lane_that_fails_restarts_alone():
    steps = np.stack([out.state.t for out in day()[0]], axis=1)
    at = int(np.argmax(np.stack([out.info.terminated[DIVERGING] for out in day()[0]])))
    assert 0 < at < HORIZON - 1
    assert steps[DIVERGING, at : at + 2].tolist() == [at + 1, 1]
    others = [k for k in range(BATCH) if k != DIVERGING]
    assert (steps[others] == np.arange(1, HORIZON + 1)).all()


@pytest.mark.full
def test_autoreset_restarts_an_ended_lane_like_vstep():
    sim, keys = make(), episode_keys(BATCH)
    _, _, steps = play(sim, keys, jnp.asarray(test_actions().astype(np.float32)))
    last = jax.tree.map(lambda x: x[:, -1], steps)
    states, obs = jax.jit(jax.vmap(autoreset, in_axes=(None, 0)))(sim, last)
    lanes = [k for k in range(BATCH) if k not in (DIVERGING, POISONED)]
    np.testing.assert_array_equal(host(states).key[lanes], day()[1].key[lanes])
    np.testing.assert_allclose(np.asarray(obs)[lanes], day()[2][lanes], atol=tolerance("lane", "float32"))


def primitives(jaxpr: Any) -> Counter[str]:
    """How often each primitive occurs in a jaxpr and everything inside it but the solver."""
    found: Counter[str] = Counter()
    for eqn in jaxpr.eqns:
        found[eqn.primitive.name] += 1
        if eqn.primitive.name == "custom_jvp_call":  # the solver, whose inside is its own matter
            continue
        for value in jax.tree.leaves(eqn.params, is_leaf=lambda v: isinstance(v, Jaxpr | ClosedJaxpr)):
            if isinstance(value, Jaxpr | ClosedJaxpr):
                found += primitives(getattr(value, "jaxpr", value))
    return found


@pytest.mark.tiers("full", long=["adaptive"])
@pytest.mark.parametrize("solver", ["adaptive", "fixed"])  # "auto" holds both, as branches of its own
def test_a_restart_stays_a_branch_under_a_vmap_over_seeds(solver):
    sim = make(solver=solver)
    states, _ = jax.eval_shape(jax.vmap(sim.init), episode_keys(BATCH))
    seeds = jax.eval_shape(lambda states: stack_leaves([states, states]), states)
    actions = jnp.zeros((2, BATCH, 1, 1))
    one = primitives(jax.make_jaxpr(vstep)(sim, states, actions[0]).jaxpr)
    two = primitives(jax.make_jaxpr(jax.vmap(vstep, in_axes=(None, 0, 0)))(sim, seeds, actions).jaxpr)
    assert one["cond"] == two["cond"] == 3  # blackout, last valid state, restart


CASE69 = {"case": "case69", "battery_bus_ids": (6, 50)}


@jax.jit
def play_lanes(sims: Sim, keys: Any, actions: Any) -> tuple[Any, Any, Step]:
    return jax.vmap(play_one, in_axes=(powerzoo_jax.lanes(sims), 0, 0))(sims, keys, actions)


@cache
def three_grids(padded: bool = False) -> tuple[Sim, Step]:
    """case69, case33bw and case33bw at storm prices side by side; optionally the small ones padded by `make` first."""
    large = make(**CASE69)
    dims = {"dims": large.env.dims} if padded else {}
    sims = powerzoo_jax.stack([large, make(**dims), make(split="price_stress", **dims)])
    actions = jnp.asarray(test_actions(2)[:3].astype(np.float32))
    return sims, host(play_lanes(sims, episode_keys(3), actions)[2])


def alone(lane: int) -> Step:
    """The same lane played by itself, without padding."""
    keywords: dict[str, Any] = (CASE69, {}, {"split": "price_stress"})[lane]
    sim = make(**keywords)
    units = sim.env.dims.unit
    keys = jnp.repeat(episode_keys(3)[lane : lane + 1], BATCH)
    actions = np.repeat(test_actions(2)[lane : lane + 1, ..., :units], BATCH, axis=0).astype(np.float32)
    return jax.tree.map(lambda x: x[0], host(play(sim, keys, jnp.asarray(actions))[2]))


@pytest.mark.tiers(
    "full",
    long=[
        "case69-obs",
        "case69-reward",
        "case69-cost",
        "case69-p_loss_mw",
        "case69-p_slack_mw",
        "case69-v_min_pu",
        "case69-v_max_pu",
    ],
)
@pytest.mark.parametrize("name", ["obs", "reward", "cost", "p_loss_mw", "p_slack_mw", "v_min_pu", "v_max_pu"])
@pytest.mark.parametrize("lane", [0, 1, 2], ids=["case69", "case33bw", "price_stress"])
def test_a_stacked_lane_equals_its_stand_alone_run(lane, name):
    sims, steps = three_grids()
    pick = (lambda s: getattr(s, name)) if hasattr(steps, name) else (lambda s: getattr(s.info, name))
    found, expected = pick(steps)[lane].astype(float), pick(alone(lane)).astype(float)
    if name == "obs":  # voltages are shown as ten times their distance from one
        n_bus = (69, 33, 33)[lane]
        found = found[..., np.asarray(sims.params.masks.obs)[lane, 0]]
        found[..., :n_bus], expected[..., :n_bus] = found[..., :n_bus] / 10, expected[..., :n_bus] / 10
    assert np.max(np.abs(found - expected) / np.maximum(np.abs(expected), 1)) <= tolerance("lane", "float32")


@pytest.mark.full
def test_padded_observation_fields_read_zero():
    sims, steps = three_grids()
    padding = ~np.asarray(sims.params.masks.obs)[1, 0]
    assert padding.any() and not steps.obs[1][..., padding].any()


@pytest.mark.long
def test_padding_to_given_sizes_changes_no_result():
    found, expected = three_grids(padded=True)[1], three_grids()[1]
    pairs = [(found.reward, expected.reward), (found.cost, expected.cost), (found.obs / 10, expected.obs / 10)]
    for a, b in pairs:  # a voltage is shown as ten times its distance from one
        assert np.max(np.abs(a - b) / np.maximum(np.abs(b), 1)) <= tolerance("lane", "float32")


@pytest.mark.full
def test_make_pads_to_the_given_sizes():
    dims = make(**CASE69).env.dims
    sim = powerzoo_jax.make("battery_arbitrage", dims=dataclasses.replace(dims, bus=80))
    out = jax.eval_shape(sim.step, jax.eval_shape(sim.init, jax.random.key(0))[0], jnp.zeros((1, 2)))
    assert (sim.env.dims.bus, sim.env.dims.branch, sim.env.dims.unit) == (80, dims.branch, 2)
    assert out.obs.shape == (1, sim.env.dims.obs)


def test_equal_sims_share_factors_and_bank():
    sims = powerzoo_jax.stack([make(), make(), with_load(make(), 0.5)])
    axes = powerzoo_jax.lanes(sims).params
    assert axes.factors is None and axes.bank is None and axes.horizon == 0
    assert sims.params.bank.load_rows.shape == make().params.bank.load_rows.shape
    assert sims.params.factors.m_bus.shape == make().params.factors.m_bus.shape


def test_lanes_of_two_price_sets_keep_one_load_table():
    sims = powerzoo_jax.stack([make(), make(split="price_stress")])
    rows = make().params.bank
    assert sims.params.bank.load_rows.shape == rows.load_rows.shape
    assert len(sims.params.bank.price_rows) == 2 * len(rows.price_rows)
