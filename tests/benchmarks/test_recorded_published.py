"""What the committed rows on published grids prove: all scenarios solved to the gate, and a page that tells them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
GATE_PU = 1e-8


def rows(name: str) -> list[dict[str, str]]:
    lines = (RESULTS / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader((line for line in lines if not line.startswith("#")), delimiter="\t"))


KERNEL = [row for row in rows("published.tsv") if row["engine"] == "kernel"]


@pytest.mark.parametrize("row", KERNEL, ids=lambda row: f"{row['grid']}-{row['dtype']}-{row['read']}")
def test_the_kernel_solves_every_scenario(row):
    assert int(row["scenarios"]) == 12_000 and int(row["missed"]) == 0
    assert row["dtype"] == "float32" or float(row["kcl_pu"]) <= GATE_PU


def test_grids_are_those_that_were_published_and_the_page_tells_their_rows():
    assert {row["grid"] for row in KERNEL} <= {row["case"] for row in rows("published_figures.tsv")}
    page = (ROOT / "docs" / "measurements" / "published.md").read_text(encoding="utf-8")
    for row in rows("published.tsv"):
        said = " | ".join(row[name] for name in ("steps", "kcl_pu", "scenarios", "unsolved"))
        assert any(
            line.startswith(f"| {row['grid']} | {row['engine']} | {row['dtype']} | {row['read']} |") and said in line
            for line in page.splitlines()
        )
