"""Causal planners of flexible loads and of vehicles: feasible, and better than their rules."""

from __future__ import annotations

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.base.tree import take
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.families.feeder.causal.flexibility import _model, features
from powerzoo_jax.oracle import evaluate_baseline
from powerzoo_jax.tasks.score import all_starts

pytestmark = pytest.mark.full

FITTED_PU = 3e-4  # what a quadratic function of three load factors misses of a voltage


@cache
def sim(task: str, split: str = "val") -> Sim:
    return powerzoo_jax.make(task, split=split)


@pytest.mark.long
@pytest.mark.parametrize("split", ["val", "test"])
@pytest.mark.parametrize("task", ["dso", "marl_ev_v2g_1d", "marl_ders_benchmark"])
def test_a_planner_keeps_the_budgets_and_earns_more_than_the_rule(task, split):
    here = sim(task, split)
    causal, rule = (evaluate_baseline(here, name) for name in ("causal", "rule"))
    assert causal.feasible
    assert causal.mean_reward > rule.mean_reward


def test_fitted_voltages_are_those_of_the_environments_power_flow():
    here = sim("dso")
    model, _ = _model(here, 1.0)
    params, drawn = here.params, take(all_starts(here), 11)
    fitted, exact = [], []
    for t in (4, 20, 38):
        row = int(drawn.load_row) + t
        level = here.env.columns.factors(params.bank.load_rows[row])
        flow = here.env.flow(here.env._net(jnp.int32(row), jnp.zeros(6), jnp.zeros(6), params), params)
        fitted.append(np.sort(np.asarray(features(level) @ model.voltage)))
        exact.append(np.sort(np.asarray(flow.v_pu))[: len(fitted[-1])])
    np.testing.assert_allclose(fitted, exact, atol=FITTED_PU)
