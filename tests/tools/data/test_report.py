"""docs/data.md is what the data say."""

from pathlib import Path

from powerzoo_jax.data import list_datasets
from tools.data import report

PAGE = Path(__file__).parents[3] / "docs" / "data.md"


def test_the_committed_page_is_the_generated_one():
    assert PAGE.read_text(encoding="utf-8") == report.render(), f"run {report.COMMAND}"


def test_the_page_proves_that_no_day_is_in_two_splits():
    table = PAGE.read_text(encoding="utf-8").split("## No day is in two splits")[1].split("##")[0]
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("| ")][1:]
    assert {row[0].strip() for row in rows} == set(list_datasets())
    assert [row[3].strip() for row in rows] == ["0"] * len(rows)
