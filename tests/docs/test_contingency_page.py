"""What the page on outages and switches says to type runs, and the functions that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

from powerzoo_jax import powerflow

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "contingency.md").read_text(encoding="utf-8")


def test_the_example_charges_overloads_and_masks_bridges(run_snippet, snippets_of):
    (body,) = snippets_of(PAGE)
    low, high, *shape, legal = run_snippet(body).split()
    assert 0 < float(low) < float(high)
    assert shape == ["(16,", "20)"]
    assert int(legal) == 19  # of 20 branches one is a bridge: bus 8 hangs on it


def test_every_function_of_the_page_exists():
    named = set(re.findall(r"`((?:prepare|solve|with|screen|worst|outage|legality|is_radial|n_minus)\w*)", PAGE))
    assert len(named) > 11
    assert [name for name in sorted(named) if not hasattr(powerflow, name)] == []
