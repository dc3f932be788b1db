"""Two of the three ways to begin run as docs/howto/paths.md prints them; tests/compat_e3 has the first, for gymnax."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.docs.scripts import blocks

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]
CENT = 0.01  # [$] by which a return of float32 may exceed a bound of float64
PAGE = (ROOT / "docs" / "howto" / "paths.md").read_text(encoding="utf-8")
PATHS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


@pytest.fixture
def play(run_snippet):
    """Run the script of a section in an empty folder; returns what it prints."""

    def run(section: str) -> str:
        script = [tuple(block) for block in blocks(PATHS[section])]
        assert script
        return run_snippet(f"from tests.docs.scripts import play\nplay({script!r})\n")

    return run


def test_a_grid_file_becomes_flows_dispatch_and_outages(play, tmp_path):
    printed = play("Flows, dispatch and outages of a grid file")
    assert "overloaded" in printed.partition("limits broken:")[2]
    prices = re.search(r"prices \[USD/MWh\] \[([^\]]+)\]", printed)[1].split()
    assert len(prices) == 4 and all(20 < float(price) < 60 for price in prices)
    assert (tmp_path / "my_grid.m").is_file()


def test_an_own_task_goes_to_a_row_of_a_leaderboard_and_a_page(play, tmp_path, monkeypatch):
    monkeypatch.setenv("STEPS", "6144")
    play("A task of your own, on a leaderboard and in a browser")
    (row,) = json.loads((tmp_path / "results" / "board.json").read_text())
    known, config = row["known"], row["run"]["config"]
    assert (
        config["cost_weights"] == [0.0, 0.0, 0.0, 2.0] and config["gamma"] == 1.0
    )  # the rest as the shipped task has it
    assert row["task"] == "far_battery" and known["random"] < known["rule"] < known["best"] <= known["bound"] + CENT
    assert known["random"] < row["seeds"][0]["return"] <= known["bound"] + CENT
    page = (tmp_path / "results" / "far_battery.html").read_text(encoding="utf-8")
    assert '"name":"rule"' in page and '"name":"ppo"' in page and len(page) < 1_000_000
    assert (tmp_path / "results" / "gains.svg").read_text().startswith("<?xml")


@pytest.mark.long
def test_the_printed_sizes_end_with_a_gain_on_two_of_three_seeds(play, tmp_path):
    play("A task of your own, on a leaderboard and in a browser")
    (row,) = json.loads((tmp_path / "results" / "board.json").read_text())
    assert sum((seed["gain"] or 0) > 0 for seed in row["seeds"]) >= 2
