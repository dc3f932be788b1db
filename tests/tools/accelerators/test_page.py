"""Tables of the page about accelerators: what the results say, and nothing typed."""

from __future__ import annotations

import pytest

from tools.accelerators import page
from tools.accelerators.__main__ import COLUMNS


def row(program: str, platform: str, **cells: str) -> dict[str, str]:
    return dict.fromkeys(COLUMNS, "-") | {"program": program, "platform": platform, "outcome": "ok"} | cells


def test_the_shipped_page_is_that_of_the_shipped_results():
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.written(text, page.tables()) == text


def test_a_program_is_shown_on_both_platforms_with_what_failed():
    counts = {"kernels": "1234", "questions": "2", "rare": "5", "library": "0", "wide": "0"}
    rows = [row("task/dso", "h200", **counts), row("task/dso", "v5e", outcome="UNIMPLEMENTED: LuDecomposition")]
    lines = page.compiled({(r["program"], r["platform"]): r for r in rows}).splitlines()
    assert lines[-1] == "| `dso` | 1,234 | 2 | 5 | 0 | 0 | does not compile |  |  |"
    assert len(lines) == 3 and lines[0].count("|") == lines[1].count("|") == lines[2].count("|")


def test_a_program_that_took_too_long_is_not_one_that_does_not_compile():
    late = row("solve/outages", "h200", outcome="not compiled within 300 s")
    last = page.compiled({("solve/outages", "h200"): late}).splitlines()[-1]
    assert last == "| `solve/outages` | not compiled within 300 s |  |  |  |  | - | - | - |"


def test_lanes_are_what_three_quarters_of_the_memory_hold():
    """By hand: 2 x 100 + 1,000 + 800 = 2,000 bytes a lane, in 105.75 GB and in 12 GB."""
    temp_mb = str((page.LIBRARY_BYTES + 4096 * 800) / 1e6)
    found = row("task/dso", "h200", lanes="4096", state_bytes="100", obs_bytes="1000", temp_mb=temp_mb)
    last = page.memory({("task/dso", "h200"): found}).splitlines()[-1]
    assert last == "| `dso` | 100 B | 1,000 B | 800 B | 53,000,000 | 6,000,000 |"


def test_memory_of_a_learner_is_told_where_it_compiles():
    here = row("train/ppo", "h200", temp_mb="568.2", unpinned="16")
    late = row("train/ppo", "v5e", outcome="not compiled within 300 s")
    last = page.training({(r["program"], r["platform"]): r for r in (here, late)}).splitlines()[-1]
    assert last == "| `train/ppo` | 0.6 GB | - | 16 | - |"


def test_lanes_that_a_fixed_number_of_steps_leaves_are_told():
    told = {"lane_steps": "1003520", "fixed_steps": "16", "taken": "3:0.5 17:0.4 4:0.1", "left": "1234"}
    rows = [{"task": "solve/a", "solver": mode, "out_of_steps": "7", **told} for mode in ("adaptive", "fixed")]
    lines = page.steps(rows).splitlines()
    assert lines[2:] == ["| `solve/a` | 1,003,520 | 16 | 17 | 1,234 | 7 |"]


def test_what_suites_and_checkouts_found_is_told():
    passed = {"suite": "tests/opf/dc", "passed": "40", "failed": "0", "skipped": "0", "seconds": "9"}
    assert page.suites([passed]).splitlines()[2:] == ["| `tests/opf/dc` | 40 | 0 |"]
    times = {"task": "dso", "lanes": "256", "base_ns": "1234", "ns": "617", "ratio": "0.500"}
    found = page.checkouts([times | {"low": "0.490", "high": "0.510"}]).splitlines()[2:]
    assert found == ["| `dso` | 1,234 | 617 | 0.500 | 0.490 | 0.510 |"]


def test_a_page_without_a_place_for_a_table_is_refused():
    with pytest.raises(ValueError, match="no place for table 'compiled'"):
        page.written("# Accelerators\n", {"compiled": ""})
