"""What the committed benchmarks of transmission grids prove: the price of outages, and 33,000 buses that agree."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.program

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def rows(name: str) -> list[dict[str, str]]:
    """Rows of the latest table by column; its first line says where it was measured."""
    _, head, *lines = sorted(RESULTS.glob(f"*/{name}.tsv"))[-1].read_text().splitlines()
    return [dict(zip(head.split("\t"), line.split("\t"), strict=True)) for line in lines]


def test_screening_all_outages_costs_at_most_five_times_a_step():
    ratios = [float(row["over_dc"]) for row in rows("transgrid") if row["grid"] == "dc, outages"]
    assert ratios and max(ratios) <= 5


def test_a_thousand_feeders_step_in_one_program_and_agree_on_the_exchange():
    (row,) = rows("joint")
    assert (int(row["feeders"]), int(row["buses"])) == (1_000, 33_000)
    assert 0 < float(row["boundary_mismatch_pu"]) <= 1e-6 and float(row["step_per_s"]) > 0


@pytest.mark.parametrize(
    ("task", "asked"),
    [
        ("marl_opf", 1.5e6),
        ("marl_uc", 1.5e6),
        ("comparison_tso_centralized", 0.2e6),
        ("gencos_bidding", 60e3),
        ("opf_118", 60e3),
    ],
)
def test_a_task_makes_the_steps_that_are_asked_of_it(task, asked):
    found = [row for row in rows("env_steps_transmission") if row["task"] == task]
    assert max(float(row["step_per_s"]) for row in found) >= asked
    assert max(float(row["compile_s"]) for row in found) <= 15
