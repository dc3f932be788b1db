"""The operator's filter between a policy and 54 units: who it looks at, what it mends, and budgets it keeps."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

import powerzoo_jax
from powerzoo_jax.envs.episode import run_episodes
from powerzoo_jax.families.transmission.commitment.secure_step import (
    operate_step,
    secure_model,
    units_at_first,
    without_surplus,
)
from powerzoo_jax.opf.commit import CommitmentState, legal_commitment, output_window
from powerzoo_jax.oracle.registry import get_safety_filter
from powerzoo_jax.tasks.score import episode_keys, seeded_starts

TASK = "comparison_tso_centralized"


@pytest.fixture(autouse=True, scope="module")
def optimised(plain_programs):
    """Loops in loops run a hundred times longer as they compile elsewhere in this folder."""
    del plain_programs
    with pytest.MonkeyPatch.context() as patch:
        before = jax.config.read("jax_disable_most_optimizations")
        patch.delenv("JAX_DISABLE_MOST_OPTIMIZATIONS", raising=False)
        jax.config.update("jax_disable_most_optimizations", False)
        yield
        jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="module")
def sim():
    return powerzoo_jax.make(TASK, split="val")


@pytest.fixture(scope="module")
def security(sim):
    return get_safety_filter(TASK, "security").of(sim)


@pytest.fixture(scope="module")
def model(sim):
    return secure_model(sim)[0]


def test_it_remembers_zeros_before_an_episode_and_looks_at_the_slow_units_alone(sim, security):
    memory, _, seen = security
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(memory))
    slow = np.asarray(sim.params.rules.min_up) > 2  # an hour, of the units for peaks
    np.testing.assert_array_equal(seen, np.concatenate([slow, np.zeros(54, bool)])[None])
    assert slow.sum() == 19


def by_load(correct, threshold, carry, obs, key, *, memory):
    """Wish for a unit when the load over the peak exceeds a threshold (G,); scores of nothing."""
    del key, memory
    requested = jnp.where(obs[0, 0] >= threshold, 1.0, -1.0)
    return correct(carry, obs, jnp.concatenate([requested, -jnp.ones_like(requested)])[None])


@pytest.mark.full
def test_crude_wishes_keep_reserve_and_load_where_they_alone_would_not(sim, security):
    memory, correct, _ = security
    capacity = np.asarray(sim.params.rules.p_max_mw, np.float64)
    threshold = jnp.asarray(0.8 * np.cumsum(capacity) / float(sim.params.peak_load_mw), jnp.float32)
    draws, keys = seeded_starts(sim, 1, 42), episode_keys(42, 1)
    costs = {}
    for name, mend in (("mended", correct), ("as requested", lambda memory, obs, action: (memory, action))):
        act = Partial(partial(by_load, mend), threshold, memory=memory)
        totals = run_episodes(sim, act, keys, draws)
        costs[name] = dict(zip(sim.spec.cost_names, np.asarray(totals.cost, np.float64).T, strict=True))
    assert (costs["mended"]["reserve_shortfall"] == 0).all() and (costs["mended"]["unserved_energy"] == 0).all()
    assert (costs["as requested"]["reserve_shortfall"] > 5).all()


@pytest.mark.full
def test_scores_and_wishes_for_quick_units_count_for_nothing(sim, security):
    memory, correct, seen = security
    correct = jax.jit(correct)
    obs = sim.init(jax.random.key(1))[1]
    requested = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (1, 108)), obs.dtype)
    other = jnp.where(seen, requested, -requested)
    np.testing.assert_array_equal(correct(memory, obs, requested)[1], correct(memory, obs, other)[1])
    turned = jnp.where(seen, -requested, requested)
    assert not np.array_equal(correct(memory, obs, requested)[1], correct(memory, obs, turned)[1])


def units(model, on: np.ndarray, p_mw: np.ndarray) -> CommitmentState:
    return CommitmentState(on=jnp.asarray(on), steps=jnp.full(54, 99), p_mw=jnp.asarray(p_mw, jnp.float32))


@pytest.mark.full
def test_wishes_beyond_the_load_are_dropped_from_the_last_of_the_list_on(model):
    rules, slow = model.params.rules, np.asarray(model.slow)
    now = units(model, slow, np.where(slow, np.asarray(rules.p_min_mw), 0.0))
    low = np.asarray(output_window(rules, now, jnp.asarray(slow))[0], np.float64)
    kept = np.asarray(without_surplus(model, now, jnp.asarray(slow), jnp.asarray(0.5 * low.sum(), jnp.float32)))
    assert low[kept].sum() <= 0.5 * low.sum() < low[slow].sum()
    order = [g for g in np.asarray(model.order) if slow[g]]
    ranked = kept[order]
    assert not ranked[np.argmin(ranked) :].any()  # the cheapest stay
    dropped = order[int(np.argmin(ranked))]
    assert low[kept].sum() + low[dropped] > 0.5 * low.sum()  # and no more go than must
    every = without_surplus(model, now, jnp.asarray(slow), jnp.asarray(low.sum() + 1, jnp.float32))
    np.testing.assert_array_equal(every, slow)


@pytest.mark.full
@pytest.mark.parametrize("share", [0.35, 0.6, 0.9])
def test_a_step_is_legal_serves_the_load_and_starts_nobody_that_lines_do_not_need(model, share):
    params, rules = model.params, model.params.rules
    first = units_at_first(rules)
    now = units(model, np.asarray(model.slow), 0.5 * np.asarray(rules.p_max_mw) * np.asarray(model.slow))
    load = share * float(params.peak_load_mw)
    for state in (first, now):
        requested = model.slow & (jnp.arange(54) % 2 == 0)
        on, score, p = (np.asarray(x) for x in operate_step(model, state, requested, jnp.asarray(load, jnp.float32)))
        legal = np.asarray(legal_commitment(rules, state))
        assert legal[np.arange(54), on.astype(int)].all() and (np.abs(score) <= 1).all()
        low, high = (np.asarray(x) for x in output_window(rules, state, jnp.asarray(on)))
        assert (p >= low - 1e-3).all() and (p <= high + 1e-3).all()
        if low.sum() <= load <= high.sum():
            assert p.sum() == pytest.approx(load, abs=0.5)
