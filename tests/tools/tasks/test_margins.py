"""The margins of rules below budgets: all policies play the same days."""

from __future__ import annotations

import pytest

import powerzoo_jax
from powerzoo_jax.tasks.score import all_starts
from tools.tasks.margins import examine, some_starts


@pytest.mark.full
def test_the_rule_and_the_violating_policy_play_the_same_days():
    sim = powerzoo_jax.make("marl_der_arbitrage", split="val")
    draws = some_starts(sim, 3)
    every = all_starts(sim).load_row
    assert [int(x) for x in draws.load_row] == [int(every[k]) for k in (0, 24, 47)]
    rows = list(examine(sim, ("rule", "no_control"), 3))
    assert [(row.policy, row.channel) for row in rows] == [
        (name, channel) for name in ("rule", "no_control") for channel in ("voltage_violation", "resource")
    ]
    assert {row.n for row in rows} == {3} and rows[0].cost <= rows[2].cost and rows[3].cost == 0
