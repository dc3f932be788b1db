"""What docs/learning.md says about the learners is so, and its snippet runs."""

from __future__ import annotations

from pathlib import Path

from powerzoo_jax.rl.training.config import ALGORITHMS
from tests.references.causal_battery import shares

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "learning.md").read_text(encoding="utf-8")
MEASURED = (DOCS / "measurements" / "learning.md").read_text(encoding="utf-8")


def test_the_snippet_trains_two_rates_side_by_side_and_plays_the_second(run_snippet, snippets_of):
    (body,) = snippets_of(PAGE)
    assert run_snippet(body).split("\n")[:2] == ["(2, 4) [ True  True]", "(4,) (4, 5)"]


def test_the_battery_lacks_a_memory_of_the_mean_price_as_the_page_says():
    """Six days of the split that the page's figures are of; the script that it names plays all."""
    assert "`python tests/references/causal_battery.py`" in MEASURED
    remembering, forgetting = shares(6)
    assert forgetting < 0.9 < 0.98 < remembering <= 1


def test_the_page_names_every_algorithm():
    rows = "".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `"))
    assert all(f"`{name}`" in rows for name in ALGORITHMS)
