"""`--json`: every command has it, prints one document and nothing else, with the keys that its page lists."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from powerzoo_jax import list_tasks, make
from powerzoo_jax.cli import main
from powerzoo_jax.cli.commands import bench, dataset, demo, evaluate, export, leaderboard, selftest, sweep, train
from powerzoo_jax.cli.commands.evaluate import Score
from powerzoo_jax.cli.main import build_parser
from powerzoo_jax.cli.runs import Run, resolve_config
from powerzoo_jax.oracle import idle_act

DOCS = Path(__file__).parents[2] / "docs"
TASK = "battery_arbitrage"
NAMED_FREELY = {"evaluate", "reference", "pf"}  # their first keys are policies, a record's fields, tables


def documented() -> dict[str, list[str]]:
    """Keys that the page lists for each command."""
    page = (DOCS / "howto" / "json.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.+?`) \| (.+) \|$", page, re.MULTILINE)
    return {name: re.findall(r"`(\w+)`", keys) for names, keys in rows for name in re.findall(r"`(\w+)`", names)}


def commands() -> dict[str, argparse.ArgumentParser]:
    (action,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    return dict(action.choices)


def keys_of(content: Any) -> Iterator[str]:
    """Keys at every level."""
    if isinstance(content, dict):
        yield from content
    for value in content.values() if isinstance(content, dict) else content if isinstance(content, list) else ():
        yield from keys_of(value)


def document(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> Any:
    """What a command prints with `--json`, checked against the page."""
    capsys.readouterr()
    assert main([*words, "--json"]) == status
    content = json.loads(capsys.readouterr().out)
    listed = documented()[words[0]]
    assert set(listed) <= set(keys_of(content))
    assert words[0] in NAMED_FREELY or set(content[0] if isinstance(content, list) else content) <= set(listed)
    return content


def record(value: float = 1.5) -> SimpleNamespace:
    costs = dict.fromkeys(make(TASK).spec.cost_names, 0.0)
    return SimpleNamespace(
        mean_reward=value,
        gain=None,
        mean_costs_by_constraint=costs,
        feasible=True,
        n_episodes=2,
        episodes="0" * 16,
        to_dict=lambda: {"mean_reward": value},
    )


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training and playing replaced by what they would return."""

    def done(run: Run, sim: Any, **given: Any) -> train.Trained:
        return train.Trained(None, run.config.updates, 1.0, 2.0, 3.0)

    def score(sim: Any, name: str, acts: Any) -> Score:
        return Score(name, [record() for _ in acts])

    for module in (train, demo, leaderboard):
        monkeypatch.setattr(module, "train", done)
    for module in (train, sweep, demo, leaderboard):
        monkeypatch.setattr(module, "chosen_policies", lambda run, sim, state: [None] * run.rows)
    for module in (train, sweep, demo):
        monkeypatch.setattr(module, "score_policies", score)
    for module in (train, demo):
        monkeypatch.setattr(module, "baseline_scores", lambda *asked: [Score("rule", [record()])])
    monkeypatch.setattr(leaderboard, "score_trained", lambda sim, acts: [record() for _ in acts])


def test_every_command_has_the_option_and_a_line_on_the_page():
    having = {name for name, parser in commands().items() if "--json" in parser.format_help()}
    assert having == set(commands()) - {"completion"} == set(documented())


@pytest.mark.parametrize("words", [["list"], ["show", "marl_uc"], ["reference", "marl_uc"]])
def test_what_is_looked_up_is_a_document(words, capsys):
    content = document(capsys, *words)
    assert words != ["list"] or content["tasks"] == list(list_tasks())


def test_a_problem_of_a_grid_file_is_told_as_json_too(tmp_path, capsys):
    path = tmp_path / "broken.m"
    path.write_text("function mpc = broken\nmpc.version = '2';\nmpc.baseMVA = -1;\n")
    content = document(capsys, "check", str(path), status=1)
    assert not content["usable"] and all(p["message"] and p["remedy"] for p in content["problems"])
    assert main(["check", "case33bw", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"case": "case33bw", "usable": True, "problems": []}


def test_flows_are_rows_by_table(capsys):
    content = document(capsys, "pf", "pz_case5")
    assert len(content["bus"]) == 5 and content["case"] == "pz_case5"


def test_train_prints_its_scores_alone(trained, tmp_path, capsys):
    content = document(capsys, "train", TASK, "--seeds", "2", "--out", str(tmp_path / "run"))
    assert list(content["scores"]) == ["rule", "ppo"] and len(content["scores"]["ppo"]) == 2
    assert content["run"] == str(tmp_path / "run") and content["split"] == "test"


def test_sweep_prints_its_points_in_their_order(trained, tmp_path, capsys):
    content = document(capsys, "sweep", TASK, "--over", "lr=0.1,0.2", "--out", str(tmp_path / "run"))
    assert list(content["scores"]) == ["lr=0.1", "lr=0.2"] and content["split"] == "val"


def test_settings_of_a_training_are_shown_beside_its_document(trained, tmp_path, capsys):
    assert main(["train", TASK, "--json", "--out", str(tmp_path / "run")]) == 0
    assert "algorithm" in capsys.readouterr().err


def test_leaderboard_prints_the_rows_asked_for(trained, tmp_path, capsys):
    page = tmp_path / "board.md"
    other = next(row for row in json.loads((DOCS / "leaderboard.json").read_text()) if row["task"] != TASK)
    page.with_suffix(".json").write_text(json.dumps([other]))
    content = document(capsys, "leaderboard", TASK, "--runs", str(tmp_path / "runs"), "--page", str(page))
    assert [row["run"]["config"]["algorithm"] for row in content["rows"]] == ["ppo"] and content["page"] == str(page)
    kept = [row["task"] for row in json.loads(page.with_suffix(".json").read_text())]
    assert kept == [other["task"], TASK]


def test_demo_prints_the_scores_of_both_tasks(trained, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(demo, "_picture", lambda *asked: tmp_path / "day.png")
    monkeypatch.setattr(demo, "_feeder_task", lambda options: [Score("rule", [record()])])
    content = document(capsys, "demo", "--out", str(tmp_path))
    assert set(content["scores"]) == {TASK, "marl_der_arbitrage"} and "PPO" in content["scores"][TASK]


def test_evaluate_prints_its_records_alone(monkeypatch, capsys):
    monkeypatch.setattr(evaluate, "_play", lambda options: (None, [Score("rule", [record()])]))
    assert document(capsys, "evaluate", "dso") == {"rule": [{"mean_reward": 1.5}]}


def test_view_names_its_page(tmp_path, capsys):
    target = tmp_path / "day.html"
    content = document(capsys, "view", str(DOCS / "episode.npz"), "--policy", "rule", "--out", str(target))
    assert content["file"] == str(target) and target.is_file() and content["policies"] == ["rule"]


def test_plot_names_its_picture(tmp_path, capsys):
    content = document(capsys, "plot", str(DOCS / "leaderboard.json"), "--out", str(tmp_path / "a.png"))
    assert content == {"picture": "gains", "file": str(tmp_path / "a.png")}


def test_dataset_names_its_file(monkeypatch, tmp_path, capsys):
    played = SimpleNamespace(lengths=[2, 2], rewards=[0.0] * 4, returns=np.zeros(2))
    chosen = dataset.Recorded(make(TASK, split="val"), "rule", SimpleNamespace(act=None, carry=()), {})
    monkeypatch.setattr(dataset, "_chosen", lambda options: chosen)
    monkeypatch.setattr(dataset, "record_offline", lambda *asked, **given: played)
    (tmp_path / "rule.npz").write_bytes(b"")
    monkeypatch.setattr(dataset, "save_offline", lambda target, data: target)
    content = document(capsys, "dataset", TASK, "--out", str(tmp_path / "rule.npz"))
    assert (content["episodes"], content["steps"], content["split"]) == (2, 4, "val")


def test_export_prints_the_card(monkeypatch, tmp_path, capsys):
    Run(tmp_path, resolve_config(TASK, "ppo", ())).write()
    monkeypatch.setattr(export, "_policy_of", lambda run, sim, row: ())
    monkeypatch.setattr(export, "_act_of", lambda run, sim, policy: idle_act(sim))
    monkeypatch.setattr(export, "export_policy", lambda sim, act: b"")
    content = document(capsys, "export", str(tmp_path))
    assert content["card"] == json.loads((tmp_path / "policy.json").read_text())


def test_bench_prints_its_rows(monkeypatch, capsys):
    for name in ("_power_flow", "_env_step"):
        monkeypatch.setattr(bench, name, lambda *asked: (1.0, 100.0))
    assert [row["batch"] for row in document(capsys, "bench", "--lanes", "2")] == [1, 1, 2, 2]


def test_a_self_test_that_fails_says_so_in_its_document(monkeypatch, capsys):
    def broken() -> str:
        raise ValueError("a table is broken")

    checks: tuple[tuple[str, Callable[[], str]], ...] = (("names", lambda: "fine"), ("data", broken))
    monkeypatch.setattr(selftest, "CHECKS", checks)
    content = document(capsys, "selftest", status=1)
    assert [each["passed"] for each in content["checks"]] == [True, False] and not content["passed"]
    assert content["checks"][1]["note"] == "a table is broken"


def test_wrong_input_leaves_standard_output_empty(capsys):
    assert main(["show", "nothing_like_it", "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "nothing_like_it" in err
