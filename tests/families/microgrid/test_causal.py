"""The causal planner of an islanded data centre: it knows the load of its plant, keeps the budgets, and pays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.base.tree import take
from powerzoo_jax.families.microgrid.causal import IslandTuning, _cooling_mw, _it_mw, _least_place, _model
from powerzoo_jax.families.microgrid.env import OUTDOOR
from powerzoo_jax.oracle import evaluate_baseline
from powerzoo_jax.tasks.score import all_starts

ROUNDED = 1e-5  # relative, of sums in float32


@pytest.fixture(scope="module")
def island():
    sim = powerzoo_jax.make("dc_microgrid", split="val")
    return sim, _model(sim, IslandTuning())[0]


@pytest.mark.full
@pytest.mark.parametrize("place", [0.0, 0.3, 1.0])
def test_the_load_without_jobs_is_that_of_the_environment(island, place):
    sim, model = island
    drawn = take(all_starts(sim), 20)
    state, _ = sim.env.begin(jax.random.key(0), drawn, sim.params)
    out = sim.step(state, jnp.asarray([[-1.0, -1.0, 2 * place - 1, 0.0, 1.0]]))
    outdoor = sim.params.bank.weather_rows[drawn.load_row, OUTDOOR]
    servers = _it_mw(model, out.state.site.infer_gpus[0], jnp.zeros(()))
    cooling = _cooling_mw(model, state.site.t_zone_c[0], jnp.float32(place), outdoor)
    load = (1 + sim.params.site.aux_share[0]) * servers + cooling
    np.testing.assert_allclose(load, out.info.p_load_mw, rtol=ROUNDED)


def test_a_room_that_may_wait_draws_no_more_than_is_left_and_a_hot_one_is_cooled(island):
    _, model = island
    outdoor, left = jnp.float32(30.0), jnp.float32(0.02)
    place = _least_place(model, jnp.float32(24.0), left, outdoor)
    np.testing.assert_allclose(_cooling_mw(model, jnp.float32(24.0), place, outdoor), left, rtol=1e-4)
    assert _least_place(model, model.site.t_critical_c[0] - 0.1, left, outdoor) == 0


@pytest.mark.long
@pytest.mark.parametrize("split", ["val", "test"])
def test_the_planner_keeps_the_budgets_and_earns_more_than_the_rule(split):
    """On a few days of each split."""
    sim = powerzoo_jax.make("dc_microgrid", split=split)
    draws = take(all_starts(sim), slice(1, None, 12))
    causal, rule = (evaluate_baseline(sim, name, draws=draws) for name in ("causal", "rule"))
    assert causal.feasible
    assert causal.mean_reward > rule.mean_reward
