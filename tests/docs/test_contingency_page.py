"""What the page on outages and switches says to type runs, and the functions that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

from powerzoo_jax import powerflow

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "contingency.md").read_text(encoding="utf-8")


def test_the_example_charges_overloads_filters_actions_and_masks_bridges(run_snippet, snippets_of):
    (body,) = snippets_of(PAGE)
    low, high, *shape, legal, relieved, burdened = run_snippet(body).split()
    assert 0 < float(low) < float(high)
    assert shape == ["(16,", "25)"]  # 20 branches and 5 units
    assert int(legal) == 19  # of 20 branches one is a bridge: bus 8 hangs on it
    assert (int(relieved), int(burdened)) == (8, 0)


def test_every_function_of_the_page_exists():
    verbs = "prepare|solve|with|screen|worst|outage|unit_outage|legality|is_radial|n_minus"
    named = set(re.findall(rf"`((?:{verbs})\w*)", PAGE))
    assert len(named) > 11
    assert [name for name in sorted(named) if not hasattr(powerflow, name)] == []
