"""The margins of rules below budgets: what counts as kept, and the file."""

from __future__ import annotations

import pytest

import powerzoo_jax
from powerzoo_jax.tasks.score import all_starts
from tools.tasks.margins import COLUMNS, Margin, examine, replace_rows, some_starts

ROW = Margin("task", 1, "val", "rule", 4, -1.0, "overtemp", 0.5, 0.45, 0.25)


def test_a_budget_is_kept_with_a_tenth_to_spare_and_one_of_zero_up_to_a_rounding():
    assert ROW.kept and not ROW._replace(cost=0.46).kept
    assert ROW._replace(budget=0.0, cost=9e-4).kept
    assert not ROW._replace(budget=0.0, cost=2e-3).kept
    assert ROW.line().split("\t")[-3:] == ["0.250", "0.100", "yes"] and len(ROW.line().split("\t")) == len(COLUMNS)


def test_rows_of_a_split_take_the_place_of_former_ones(tmp_path):
    path = tmp_path / "margins.tsv"
    replace_rows(path, [ROW])
    replace_rows(path, [ROW._replace(split="test")])
    replace_rows(path, [ROW._replace(cost=0.1)])
    lines = path.read_text().splitlines()
    assert lines[0].split("\t") == list(COLUMNS)
    assert [line.split("\t")[2] for line in lines[1:]] == ["test", "val"] and "\t0.1\t" in lines[2]


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
