"""The causal planner of both levels: it keeps the budgets, and earns what batteries are worth, at what it has seen."""

from __future__ import annotations

import pytest

import powerzoo_jax
from powerzoo_jax.oracle import evaluate_baseline
from powerzoo_jax.tasks.score import seeded_starts

WORTH = 0.5  # of what foresight earns above the rule


@pytest.mark.full
@pytest.mark.full
def test_the_planner_keeps_the_budgets_and_earns_most_of_what_foresight_does():
    sim = powerzoo_jax.make("joint_trans_dist", split="val")
    draws = seeded_starts(sim, 6)
    causal, rule, oracle = (evaluate_baseline(sim, name, draws=draws) for name in ("causal", "rule", "oracle"))
    assert causal.feasible
    assert causal.mean_reward > rule.mean_reward + WORTH * (oracle.mean_reward - rule.mean_reward)
