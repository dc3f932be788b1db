"""Batteries below a transmission grid decide a share of what the joint task can gain."""

from __future__ import annotations

import jax
import numpy as np

import powerzoo_jax
from powerzoo_jax.oracle import evaluate_baseline
from powerzoo_jax.tasks.score import all_starts

DAYS = 5  # at equal distances in the calendar
LEAST_SHARE = 0.1  # of what plans gain beyond the rule, that they lose where batteries idle


def test_a_tenth_of_the_gain_is_lost_where_batteries_idle():
    sim = powerzoo_jax.make("joint_trans_dist", split="val")
    draws = all_starts(sim)
    chosen = np.linspace(0, draws.load_row.shape[0] - 1, DAYS).round().astype(int)
    draws = jax.tree.map(lambda x: x[chosen], draws)
    names = ("rule", "idle_batteries", "oracle")
    rule, idle, oracle = (evaluate_baseline(sim, name, draws=draws).mean_reward for name in names)
    assert rule < oracle and oracle - idle >= LEAST_SHARE * (oracle - rule)
