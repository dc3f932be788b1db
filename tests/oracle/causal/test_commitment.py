"""The causal planner of a few units: feasible, better than its rule, and refused where it does not hold."""

from __future__ import annotations

import pytest
from powerzoo_jax.oracle.ladder import over_budget

import powerzoo_jax
from powerzoo_jax.oracle import evaluate_baseline
from powerzoo_jax.oracle.causal.commitment import plan_units
from powerzoo_jax.tasks.score import episode_keys, seeded_starts

EPISODES = 12


@pytest.mark.parametrize("split", ["val", "test"])
def test_the_planner_keeps_the_budgets_and_earns_more_than_the_rule(split):
    sim = powerzoo_jax.make("marl_uc", split=split)
    draws = seeded_starts(sim, EPISODES)
    causal, rule = (evaluate_baseline(sim, name, draws=draws) for name in ("causal", "rule"))
    assert over_budget(causal) == "" and causal.mean_reward > rule.mean_reward


def test_units_with_minimum_times_are_refused():
    sim = powerzoo_jax.make("comparison_tso_centralized", split="val")
    draws = seeded_starts(sim, 1)
    with pytest.raises(ValueError, match="units with minimum times or ramps"):
        plan_units(sim, draws, episode_keys(0, 1))
