"""What the page on power flow says to type runs, and the functions that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

from powerzoo_jax import powerflow

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "powerflow.md").read_text(encoding="utf-8")


def test_the_example_solves_every_lane(run_snippet, snippets_of):
    (body,) = snippets_of(PAGE)
    printed = run_snippet(body)
    share, v_min, loss_mw = map(float, printed.split("\n")[0].split())
    assert share == 1.0
    assert 0.9 < v_min < 0.95 and 120 < loss_mw < 150  # nominal: 0.943 pu and 132.86 MW


def test_every_function_of_the_page_exists():
    named = set(re.findall(r"`((?:prepare|solve|check|with)_\w+)", PAGE))
    assert len(named) > 8
    assert [name for name in sorted(named) if not hasattr(powerflow, name)] == []
