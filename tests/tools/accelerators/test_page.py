"""Tables of the page about accelerators: what the results say, and nothing typed."""

from __future__ import annotations

from tools.accelerators import page
from tools.accelerators.__main__ import COLUMNS


def row(program: str, platform: str, **cells: str) -> dict[str, str]:
    return dict.fromkeys(COLUMNS, "-") | {"program": program, "platform": platform, "outcome": "ok"} | cells


def test_the_shipped_page_is_that_of_the_shipped_results():
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.written(text, page.tables()) == text


def test_lanes_are_what_three_quarters_of_the_memory_hold():
    """By hand: 2 x 100 + 1,000 + 800 = 2,000 bytes a lane, in 105.75 GB and in 12 GB."""
    temp_mb = str((page.LIBRARY_BYTES + 4096 * 800) / 1e6)
    found = row("task/dso", "h200", lanes="4096", state_bytes="100", obs_bytes="1000", temp_mb=temp_mb)
    last = page.memory({("task/dso", "h200"): found}).splitlines()[-1]
    assert last == "| `dso` | 100 B | 1,000 B | 800 B | 53,000,000 | 6,000,000 |"
