"""Committed rows of players of Grid2Op's worlds: the same acts and ends in both simulators, planners that live on."""

from __future__ import annotations

import pytest

from tests.benchmarks.test_recorded_published import rows

ROWS = rows("grid2op_players.tsv")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['world']}-{row['player']}-{row['seed']}")
def test_players_do_the_same_and_end_alike_in_both_simulators(row):
    assert float(row["equal_actions"]) >= 0.99
    assert row["equal_ends"] == row["episodes"]
    assert float(row["rho"]) < 2e-5
    assert float(row["observation"]) < 1e-5


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['world']}-{row['player']}-{row['seed']}")
def test_planners_live_to_the_end_where_doing_nothing_does_not(row):
    to_end, planner = row["to_end"] == row["episodes"], row["player"] in ("recovery", "greedy")
    assert to_end if planner else (row["player"] != "nothing" or not to_end)
