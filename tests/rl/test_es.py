"""Evolution strategies: ranks under budgets, a known optimum, and that a policy learns from scores alone."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from powerzoo_jax.rl.algorithms import es
from powerzoo_jax.rl.policies import ppo_act
from powerzoo_jax.rl.rollout import evaluate_policy
from powerzoo_jax.rl.training.config import ESConfig
from powerzoo_jax.rl.training.warmstart import start_at
from tests.rl.toy_team import toy_team


def test_who_keeps_the_budgets_goes_first_and_who_breaks_them_by_less_before_the_others():
    """Excesses 0, 0, 0.5 and 3 of the worst channel; the third channel has no budget, the first needs no whole one."""
    cost = jnp.array([[0.4, 2.0, 99.0], [0.5, 1.0, 0.0], [0.75, 2.0, 0.0], [0.5, 8.0, 0.0]])
    excess = es.excess_over(cost, jnp.array([0.5, 2.0, jnp.inf]))
    np.testing.assert_allclose(excess, [0.0, 0.0, 0.5, 3.0])
    assert es.ranked(jnp.array([-1.0, 1.0, 5.0, 9.0]), excess).tolist() == [1, 0, 2, 3]


@pytest.mark.full
def test_the_search_finds_the_top_of_a_hill():
    """exp(-|x - c|^2) from two units away: 300 generations of 32, by ranks alone."""
    top = jnp.array([1.0, -1.0, 0.5, 2.0])
    search = es.OpenAI(32, 0.1, optax.adam(0.03))

    def generation(state, key):
        candidates, state = search.ask(key, state)
        height = jnp.exp(-jnp.sum((candidates - top) ** 2, axis=1))
        return search.tell(key, candidates, es.ranked(height, jnp.zeros(32)), state), None

    start = search.init(jax.random.key(0), jnp.zeros(4))
    keys = jax.random.split(jax.random.key(1), 300)
    state, _ = jax.jit(lambda state, keys: jax.lax.scan(generation, state, keys))(start, keys)
    np.testing.assert_allclose(search.mean(state), top, atol=0.1)


@pytest.fixture(scope="module")
def quiet():
    """Settings of a team that must keep a budget of 0.3."""
    return ESConfig(lanes=32, population=32, updates=150, widths=(8,), sigma=0.03, lr=0.05, joint=False), toy_team(0.3)


@pytest.mark.full
def test_a_team_learns_from_scores_and_keeps_a_budget_that_binds(quiet):
    """Who repeats what is heard spends 1.5 and earns 0; silence above zero spends 0 and earns -1 in the mean."""
    cfg, sim = quiet
    state, metrics = jax.jit(es.make_train(cfg, sim))(jax.random.key(0), sim)
    totals = evaluate_policy(sim, ppo_act(cfg, sim, es.policy_of(state)), jax.random.split(jax.random.key(1), 256))
    assert set(state.actor) == {"bat", "pv"}
    assert 0.05 < float(totals.cost[:, 0].mean()) < 0.3
    assert float(metrics["return"][0]) < -1.8  # silence
    assert -1.1 < float(totals.total.mean()) < 0.0


@pytest.mark.full
def test_a_search_goes_on_from_the_policy_that_it_is_given(quiet):
    """A step of Adam moves no weight by more than lr; the weights of two seeds differ by more."""
    cfg, sim = quiet
    init, update = es.make_update(cfg, sim)
    mine, other = (init(jax.random.key(seed), sim) for seed in (0, 1))
    moved, _ = jax.jit(update)(start_at(mine, es.policy_of(other)), sim)
    theirs, found = (ravel_pytree(state.actor)[0] for state in (other, moved))
    np.testing.assert_allclose(found, theirs, atol=1.01 * cfg.lr)
    assert np.abs(ravel_pytree(mine.actor)[0] - theirs).max() > 2 * cfg.lr


def test_a_search_of_evosax_needs_its_extra(quiet, monkeypatch):
    monkeypatch.setitem(sys.modules, "evosax", None)
    with pytest.raises(ImportError, match=r"strategy 'CMA_ES' needs evosax.*powerzoo-jax\[evosax\]"):
        es.make_update(ESConfig(strategy="CMA_ES"), quiet[1])


def test_a_search_that_evosax_lacks_names_the_nearest(quiet, monkeypatch):
    module = ModuleType("evosax.algorithms")
    monkeypatch.setattr(module, "distribution_based_algorithms", {"CMA_ES": SimpleNamespace}, raising=False)
    monkeypatch.setitem(sys.modules, "evosax", ModuleType("evosax"))
    monkeypatch.setitem(sys.modules, "evosax.algorithms", module)
    with pytest.raises(ValueError, match="Did you mean 'CMA_ES'"):
        es.make_update(ESConfig(strategy="CMA_EZ"), quiet[1])


def test_an_odd_population_is_refused():
    with pytest.raises(ValueError, match="population = 5 must be even"):
        ESConfig(population=5)
