"""What the committed rows of split substations prove: what is solved to the gate, and a page that tells the rates."""

from __future__ import annotations

import pytest

from tests.benchmarks.test_recorded_published import GATE_PU, ROOT, rows

ROWS = rows("operation.tsv")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['case']}-{row['engine']}-{row['dtype']}-{row['read']}")
def test_every_engine_solves_the_same_lanes_to_the_gate(row):
    assert row["lanes"] == "1024" and row["missed"] == "0"
    assert {other["unsolved"] for other in ROWS if other["case"] == row["case"]} == {row["unsolved"]}
    assert row["dtype"] == "float32" or float(row["kcl_pu"]) <= GATE_PU


def test_the_page_tells_the_rates_and_what_was_reached():
    page = (ROOT / "docs" / "measurements" / "contingency.md").read_text(encoding="utf-8")
    for row in ROWS:
        said = (row["case"], row["engine"], row["dtype"], row["read"], f"{float(row['per_cpu_s']) / 1e3:.3g} k")
        assert "| " + " | ".join((*said, row["steps"], row["unsolved"])) + " |" in page
        if row["reached"] != "-":
            assert f"{row['case']} {row['reached']}" in page
