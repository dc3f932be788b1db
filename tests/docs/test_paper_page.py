"""The study of docs/howto/paper.md runs as it is printed, in small sizes, and leaves the files that it names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.scripts import blocks, spoken

CENT = 0.01  # [$] by which a return of float32 may exceed a bound of float64
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "paper.md").read_text(encoding="utf-8")
SMALL = {"SEEDS": "2", "PPO_STEPS": "768", "APG_UPDATES": "2", "SAC_STEPS": "1024"}
LEARNERS = ("ppo", "apg", "sac")


@pytest.mark.full
def test_the_study_runs_in_small_sizes(run_snippet, tmp_path, monkeypatch):
    assert " ".join(f"{name}={size}" for name, size in SMALL.items()) in PAGE  # a reader can do the same
    for name, value in SMALL.items():
        monkeypatch.setenv(name, value)
    run_snippet(f"from tests.docs.scripts import play\nplay({[tuple(block) for block in blocks(PAGE)]!r})\n")
    rows = json.loads((tmp_path / "village.json").read_text())
    assert sorted(row["run"]["config"]["algorithm"] for row in rows) == sorted(LEARNERS)
    for row in rows:
        known = row["known"]
        assert len(row["seeds"]) == 2 and known["random"] < known["rule"] < known["best"] <= known["bound"] + CENT
        assert all(seed["return"] <= known["bound"] for seed in row["seeds"])
    table = (tmp_path / "table.tex").read_text()
    assert all(f"& {name} &" in table for name in ("random", "rule", *LEARNERS, "best")) and r"\toprule" in table
    for name in ("curves", "gains", "feeder"):
        assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        assert (tmp_path / f"{name}.svg").read_text().startswith("<?xml")
    page = (tmp_path / "day.html").read_text(encoding="utf-8")
    assert all(f'"name":"{name}"' in page for name in ("rule", "apg"))


@pytest.mark.long
def test_ppo_and_the_analytic_gradient_end_with_a_gain_on_two_of_three_seeds(run_snippet, tmp_path, monkeypatch):
    monkeypatch.setenv("SEEDS", "3")
    monkeypatch.setenv("SAC_STEPS", SMALL["SAC_STEPS"])
    run_snippet(f"from tests.docs.scripts import play\nplay({[tuple(block) for block in blocks(PAGE)]!r})\n")
    for row in json.loads((tmp_path / "village.json").read_text()):
        gained = sum((seed["gain"] or 0) > 0 for seed in row["seeds"])
        assert gained >= 2 or row["run"]["config"]["algorithm"] == "sac"


def test_sizes_are_those_of_a_paper_where_nobody_sets_smaller_ones(monkeypatch):
    for name in SMALL:
        monkeypatch.delenv(name, raising=False)
    commands = spoken("".join(block.body for block in blocks(PAGE) if block.language == "bash"))
    (board,) = (words for words in commands if words[0] == "leaderboard")
    assert board[board.index("--seeds") + 1] == "5" and "sac.total_steps=100000" in board
