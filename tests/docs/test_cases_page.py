"""What docs/cases.md says about the shipped cases is so, and its snippet runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from powerzoo_jax.cases import list_cases, load_case

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "cases.md").read_text(encoding="utf-8")
ROWS = {
    row[0]: row[1:] for row in re.findall(r"^\| `(\w+)` \| (\d+) \| (\d+) \| (\d+) \| (\S+) \|", PAGE, re.MULTILINE)
}


def test_every_shipped_case_has_a_row():
    assert list(ROWS) == list(list_cases())


@pytest.mark.parametrize("name", ROWS)
def test_a_row_gives_the_size_and_the_load_of_its_case(name):
    case = load_case(name)
    buses, units, branches, load = ROWS[name]
    assert (int(buses), int(units), int(branches)) == (case.n_bus, case.n_unit, case.n_branch)
    assert float(load) == pytest.approx(case.load.p_mw.sum(), rel=5e-6)


def test_the_snippet_runs(run_snippet, snippets_of):
    (body,) = snippets_of(PAGE)
    assert run_snippet(body).startswith("30 189.2 []")
