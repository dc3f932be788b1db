"""Recorded episodes from the command line: those that a baseline is scored on, and messages that name the remedy."""

from __future__ import annotations

import importlib.util

import pytest

from powerzoo_jax import make
from powerzoo_jax.cli import main
from powerzoo_jax.oracle import evaluate_baseline
from powerzoo_jax.rl import load_offline

TASK = "battery_arbitrage"


@pytest.mark.full
def test_the_episodes_are_those_that_are_scored(tmp_path, capsys):
    drawn = ["--policy", "rule", "--episodes", "2", "--split", "val", "--seed", "7"]
    assert main(["dataset", TASK, *drawn, "--out", str(tmp_path / "rule.npz")]) == 0
    assert "2 episodes, 96 steps" in capsys.readouterr().out
    record = evaluate_baseline(make(TASK, split="val"), "rule", n_episodes=2, seed=7)
    data = load_offline(tmp_path / "rule.npz")
    assert data.returns == pytest.approx(record.episode_rewards, rel=1e-4)
    assert data.about["episodes"] == record.episodes and data.about["dataset_hashes"] == record.dataset_hashes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([TASK, "--policy", "rules"], "'rule'"),
        ([TASK, "--episodes", "0"], "--episodes"),
        (["nowhere/run"], "does not exist"),
        ([TASK, "--minari", "a/b/c-v0", "--out", "x.npz"], "exclude each other"),
    ],
)
def test_wrong_input_names_the_remedy(arguments, words, capsys):
    assert main(["dataset", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_missing_minari_is_told_before_anything_is_played(monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "minari" else find(name, *a))
    assert main(["dataset", TASK, "--minari", "powerzoo/day/rule-v0"]) == 2
    assert "powerzoo-jax[minari]" in capsys.readouterr().err
