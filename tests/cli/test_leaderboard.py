"""The leaderboard: its interval by hand, its page, and that a task is trained once; nothing is trained here."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from powerzoo_jax.cli import main
from powerzoo_jax.cli.board import gain_on, interquartile_mean
from powerzoo_jax.cli.commands import leaderboard
from powerzoo_jax.cli.commands.evaluate import baseline_scores, score_trained
from powerzoo_jax.cli.runs import resolve_config
from powerzoo_jax.oracle import get_reference
from powerzoo_jax.tasks import get_spec, make
from powerzoo_jax.tasks.score import episode_hash

PAGE = Path(__file__).parents[2] / "docs" / "leaderboard.md"
TASK, ALONE = "battery_arbitrage", "marl_uc"


def record(sim, value):
    shipped = get_reference(sim.spec.id, sim.spec.split)["episodes"] if sim.spec.id == TASK else "0" * 16
    return SimpleNamespace(
        mean_reward=value,
        mean_costs_by_constraint=dict.fromkeys(sim.spec.cost_names, 0.25),
        feasible=sim.spec.split == "val" or value > 2.0,
        episodes=shipped,
    )


def expected_gain(known):
    """Gain of the seeds that keep the budgets: three of five, so that none is left out of their mean."""
    return f"{np.mean([(x - known['rule']) / (known['best'] - known['rule']) for x in (3.0, 4.0, 100.0)]):.3f} ["


@pytest.fixture
def board(tmp_path, monkeypatch):
    """Run the command with training and scoring replaced; gives (page, ids trained so far)."""
    trained: list[str] = []

    def train(run, sim, **arguments):
        trained.append(sim.spec.id)
        return SimpleNamespace(state=None, done=run.config.updates, compile_s=1.0, train_s=2.0)

    def score(sim, acts):
        return [record(sim, value) for value in (1.0, 2.0, 3.0, 4.0, 100.0)]

    monkeypatch.setattr(leaderboard, "train", train)
    monkeypatch.setattr(leaderboard, "chosen_policies", lambda run, sim, state: [None] * run.rows)
    monkeypatch.setattr(leaderboard, "score_trained", score)

    def call(*words: str) -> tuple[str, list[str]]:
        target = tmp_path / "docs" / "board.md"
        assert main(["leaderboard", *words, "--runs", str(tmp_path / "runs"), "--page", str(target)]) == 0
        return target.read_text(), trained

    return call


def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end():
    assert interquartile_mean([100.0, 3.0, 1.0, 2.0, -50.0]).mean == 2.0
    assert interquartile_mean([1.0, 2.0, 3.0, 6.0]).mean == 2.5


def test_the_interval_holds_the_mean_and_one_seed_has_none():
    x = interquartile_mean([1.0, 2.0, 3.0, 4.0, 5.0])
    assert 1.0 <= x.low < x.mean < x.high <= 5.0
    assert interquartile_mean([7.0]) == (7.0, None, None)


def test_the_page_puts_the_learner_between_rule_and_best(board):
    text, _ = board(TASK)
    line = next(line for line in text.splitlines() if line.startswith(f"|`{TASK}-v"))
    cells = line.strip("|").split("|")
    known = get_reference(TASK, "test")
    assert cells[1] == "ppo" and cells[2].startswith(expected_gain(known)) and cells[3].startswith("3 [")
    assert cells[3].endswith(" $") and cells[4] == "3 of 5"
    named = [f"{known[name]:.4g}" for name in ("random", "trivial", "rule", "causal", "best", "bound")]
    assert references(text, "test") == [f"{named[0]}*", *named[1:]]  # random breaks a budget
    line = next(line for line in text.partition("## Training")[2].splitlines() if f"`{TASK}`" in line)
    cells = line.strip("|").split("|")
    assert cells[2].startswith("5 x ") and cells[3:5] == ["1", "2"]


def references(text, split):
    """Returns of the references on a split, as a page has them."""
    body = text.partition("## References")[2]
    return next(line.strip("|").split("|")[1:] for line in body.splitlines() if f"` {split}|" in line)


def shifted(text, split):
    """Cells of the first line that a page has for a named split."""
    body = text.partition("## Named splits")[2].partition("## Costs")[0]
    return next(line.strip("|").split("|") for line in body.splitlines() if f"|{split}|" in line)


def test_a_named_split_has_a_line_and_references_of_its_own(board):
    text, _ = board(TASK)
    cells = shifted(text, "price_stress")
    known = get_reference(TASK, "price_stress")
    assert cells[3].startswith(expected_gain(known)) and cells[4].startswith("3 [") and cells[5] == "3 of 5"
    assert references(text, "price_stress")[2::2] == [f"{known[name]:.4g}" for name in ("rule", "best")]


def test_a_recorded_row_without_a_named_split_waits_for_its_run_to_be_scored_there(board, tmp_path):
    board(TASK)
    for path in (tmp_path / "docs" / "board.json", tmp_path / "runs" / f"{TASK}_ppo" / leaderboard.ROW):
        content = json.loads(path.read_text())
        for row in content if isinstance(content, list) else [content]:
            del row["named"]
        path.write_text(json.dumps(content))
    text, trained = board(TASK)
    cells = shifted(text, "price_stress")
    assert cells[3:] == ["-", "-", "-"]
    assert references(text, "price_stress")[2] == f"{get_reference(TASK, 'price_stress')['rule']:.4g}"
    assert trained == [TASK]
    text, trained = board(TASK, "--split", "price_stress")
    assert shifted(text, "price_stress")[4].startswith("3 [") and trained == [TASK, TASK]


def test_a_wrong_split_is_refused_before_anything_is_trained(board):
    text, trained = board(TASK, "--split", "price_stres")
    assert "price_stress" in text.partition("## Not trained")[2] and trained == []


def test_the_table_for_a_paper_holds_references_learners_and_splits(board, tmp_path):
    board(TASK, f"{TASK}:apg", "--latex", str(tmp_path / "tables" / "board.tex"))
    text = (tmp_path / "tables" / "board.tex").read_text()
    lines = [line.removesuffix(r" \\").split(" & ") for line in text.splitlines() if " & " in line]
    assert {len(line) for line in lines} == {6} and text.count(r"\midrule") == 2
    policies = [["random", "trivial", "rule", "causal", "ppo", "apg", "best"], lines[8:]]
    assert [line[2] for line in lines[:8]] == ["policy", *policies[0]]
    assert {"rule", "ppo", "apg", "best"} <= {line[2] for line in lines[8:]}
    assert (lines[1][:2], lines[8][:2]) == (
        [r"battery\_arbitrage", "test"],
        [r"battery\_arbitrage", r"price\_stress"],
    )
    assert lines[5][3].startswith("3.00 [") and lines[5][5] == "3 of 5"
    assert [lines[k][4] for k in (1, 3, 7)] == ["-", "0.000", "1.000"]


def test_every_channel_with_a_budget_stands_beside_it(board):
    text, _ = board(TASK)
    spec = get_spec(TASK)
    for name, budget in zip(spec.cost_names, spec.cost_budget, strict=True):
        found = [line for line in text.splitlines() if line.startswith(f"|`{TASK}`|{name} {budget:g} ")]
        assert len(found) == math.isfinite(budget)
        assert all(line.endswith(f"|ppo 0.25, {5 * (budget >= 0.25)} of 5|") for line in found)


def test_a_task_without_references_is_listed_without_a_gain(board, monkeypatch):
    monkeypatch.setattr(leaderboard, "_reference", lambda *asked: None)
    text, _ = board(f"{ALONE}:ippo_lagrangian", "--set", "total_steps=1")
    cells = next(line for line in text.splitlines() if line.startswith(f"|`{ALONE}-v")).strip("|").split("|")
    assert cells[2] == "-" and cells[3].startswith("3 [") and references(text, "test") == ["-"] * 6


def test_a_task_is_trained_once_and_again_with_other_settings(board):
    first, trained = board(TASK)
    again, trained = board(TASK)
    assert trained == [TASK] and first == again
    board(TASK, "--set", "lr=0.5")
    assert trained == [TASK, TASK]


def test_a_task_that_cannot_be_trained_does_not_stop_the_others(board, monkeypatch):
    def refuse(run, sim, **arguments):
        raise ValueError("this learner needs a Box.")

    monkeypatch.setattr(leaderboard, "train", refuse)
    text, _ = board(TASK, ALONE)
    assert text.count("this learner needs a Box.") == 2


def test_the_row_keeps_the_resolved_settings(board, tmp_path):
    board(TASK, "--seeds", "5", "--set", "lr=0.25")
    row = json.loads((tmp_path / "runs" / f"{TASK}_ppo" / leaderboard.ROW).read_text())
    assert row["run"]["config"]["lr"] == 0.25 and row["run"]["seeds"] == 5


def test_a_setting_may_be_of_one_learner(board, tmp_path):
    board(TASK, f"{TASK}:apg", "--set", "apg.lr=0.25", "--set", "obs_floor=0.5")
    configs = [
        json.loads((tmp_path / "runs" / f"{TASK}_{name}" / leaderboard.ROW).read_text())["run"]["config"]
        for name in ("ppo", "apg")
    ]
    assert [config["lr"] == 0.25 for config in configs] == [False, True]
    assert [config["obs_floor"] for config in configs] == [0.5, 0.5]
    text, _ = board(TASK, "--set", "ppoo.lr=0.25")
    assert "Did you mean 'ppo'?" in text.partition("## Not trained")[2]


def test_learners_of_an_own_task_share_its_references(board, monkeypatch):
    asked: list[str] = []

    def reference(task, split):
        asked.append(f"{task} {split}")
        ends = {"random": -1.0, "rule": 1.0, "best": 5.0, "bound": 5.0}
        return {"n": 66, "episodes": "0" * 16, **ends, "mean_costs": {}, "feasible": {"rule": True, "best": True}}

    monkeypatch.setattr(leaderboard, "_own_reference", reference)
    monkeypatch.setattr(leaderboard, "_is_own", lambda task: True)
    board(TASK, f"{TASK}:apg", "--split", "price_stress")
    assert asked == [f"{TASK} test", f"{TASK} price_stress"]


def test_a_page_without_a_named_split_has_no_table_of_them(board, monkeypatch):
    monkeypatch.setattr(leaderboard, "_own_reference", lambda task, split: None)
    monkeypatch.setattr(leaderboard, "_is_own", lambda task: True)
    text, _ = board(TASK)
    assert "Named splits" not in re.findall(r"^## (.+)", text, re.MULTILINE)


def test_an_entry_may_name_its_learner(board):
    text, trained = board(TASK, f"{TASK}:apg")
    lines = [line.split("|")[2] for line in text.splitlines() if line.startswith(f"|`{TASK}-v")]
    assert sorted(lines) == ["apg", "ppo"] and trained == [TASK, TASK]


def test_a_page_keeps_its_rows_and_needs_no_folder_of_runs(board, tmp_path):
    first, _ = board(TASK)
    shutil.rmtree(tmp_path / "runs")
    both, trained = board(ALONE)
    again, trained = board(TASK)
    assert trained == [TASK, ALONE] and again == both != first
    assert sum(line.startswith("|`battery_arbitrage-v") for line in both.splitlines()) == 1


def test_the_tasks_by_default_are_those_with_references_and_settings_of_their_own():
    tasks = leaderboard.public_tasks()
    assert {TASK, ALONE, "dso"} < set(tasks) and "marl_der_arbitrage_7d" not in tasks
    assert all(resolve_config(task, None, ()).task == task for task in tasks)


def test_the_shipped_page_is_that_of_its_rows_and_of_todays_tasks_and_settings():
    rows = json.loads(PAGE.with_suffix(leaderboard.DATA).read_text())
    assert PAGE.read_text() == leaderboard.page(rows)
    for row in rows:
        config = leaderboard.completed(row["run"])["config"]
        assert row["version"] == get_spec(row["task"]).version
        if config["algorithm"] == leaderboard.CAUSAL:  # a planner has no settings
            continue
        assert resolve_config(row["task"], config["algorithm"], ()).to_dict() == config


def test_settings_that_quote_the_leaderboard_quote_the_gain_that_stands_there():
    rows = re.findall(r"^\|`(\w+)-v\d+`\|(\w+)\|(-?[\d.]+) \[", PAGE.read_text(), re.MULTILINE)
    gains = {f"{task}_{learner}": float(gain) for task, learner, gain in rows}
    assert len(gains) > 5
    for path in sorted((PAGE.parents[1] / "configs").glob("*.toml")):
        for quoted in re.findall(r"on the leaderboard[^\n]*?gain (-?[\d.]+\d)", path.read_text()):
            assert round(gains[path.stem], len(quoted.partition(".")[2])) == float(quoted)


def test_new_references_move_gains_and_train_nothing(board, monkeypatch):
    known = leaderboard._reference(TASK)
    board(TASK)
    monkeypatch.setattr(leaderboard, "_reference", lambda *asked: {**known, "rule": 0.0, "best": 200.0})
    text, trained = board(TASK)
    cells = next(line for line in text.splitlines() if line.startswith(f"|`{TASK}-v")).strip("|").split("|")
    assert cells[2].startswith(f"{(3 + 4 + 100) / 600:.3f} [") and trained == [TASK]


def test_a_page_is_refreshed_beside_new_references_and_nothing_is_played(board, monkeypatch):
    known = leaderboard._reference(TASK)
    played, _ = board(TASK)
    monkeypatch.setattr(leaderboard, "_fresh", None)  # nothing may call it
    assert board("--refresh")[0] == played
    monkeypatch.setattr(leaderboard, "_reference", lambda *asked: {**known, "rule": 0.0, "best": 200.0})
    text, _ = board("--refresh")
    cells = next(line for line in text.splitlines() if line.startswith(f"|`{TASK}-v")).strip("|").split("|")
    assert cells[2].startswith(f"{(3 + 4 + 100) / 600:.3f} [")


def test_what_can_not_be_refreshed_is_named(tmp_path, capsys):
    nowhere = tmp_path / "none.md"
    assert main(["leaderboard", "--refresh", "--page", str(nowhere)]) == 2
    assert "none.json" in capsys.readouterr().err and not nowhere.exists()
    assert main(["leaderboard", TASK, "--refresh", "--page", str(nowhere)]) == 2
    assert "one of tasks" in capsys.readouterr().err


def test_a_learner_that_breaks_a_budget_and_one_beside_a_rule_that_does_have_no_gain():
    known = {"rule": 1.0, "best": 5.0, "feasible": {"rule": True}}
    assert gain_on(4.0, True, known) == 0.75 and gain_on(4.0, False, known) is None
    assert gain_on(4.0, True, {**known, "feasible": {"rule": False}}) is None
    assert gain_on(4.0, True, {**known, "best": 1.0}) is None and gain_on(4.0, True, None) is None


def test_references_of_other_episodes_have_the_run_played_again(board, monkeypatch):
    known = leaderboard._reference(TASK)
    board(TASK)
    monkeypatch.setattr(leaderboard, "_reference", lambda *asked: {**known, "episodes": "f" * 16})
    _, trained = board(TASK)
    assert trained == [TASK, TASK]


@pytest.mark.parametrize(
    ("task", "split"),
    # every start once, some drawn with a seed, and as many drawn as there are starts
    [("marl_uc", "test"), ("marl_ev_v2g", "test"), ("dc_scheduling_7d", "val")],
)
def test_learners_and_baselines_play_the_episodes_of_the_references(task, split, monkeypatch):
    """Days differ by more than policies do: a score compares returns of the same ones."""
    sim, played, record = make(task, split=split), [], get_reference(task, split)

    def play(sim, policy, **asked):
        played.append(asked)

    monkeypatch.setattr("powerzoo_jax.cli.commands.evaluate.evaluate", play)
    monkeypatch.setattr("powerzoo_jax.cli.commands.evaluate.evaluate_baseline", play)
    score_trained(sim, [None])
    baseline_scores(sim, ("causal",))
    assert len(played) == 2
    for asked in played:
        assert asked["ends"] == (record["rule"], record["best"]) and asked.keys() == {"ends", "draws", "seed"}
        assert episode_hash(asked["draws"], asked["seed"]) == record["episodes"]


def test_a_further_split_of_the_causal_planner_leaves_those_it_has(board, monkeypatch):
    def scores(sim, names):
        return [SimpleNamespace(name=names[0], records=[record(sim, 3.0)])]

    monkeypatch.setattr(leaderboard, "baseline_scores", scores)
    board("marl_opf:causal", "--split", "load_stress")
    text, _ = board("marl_opf:causal", "--split", "line_tightening")
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|`marl_opf`|causal|")]
    returns = {cells[2]: cells[4] for cells in lines}
    assert (returns["load_stress"], returns["line_tightening"]) == ("3", "3")


def test_a_causal_planner_stands_beside_the_learners_and_nothing_is_trained_for_it(board, monkeypatch):
    def scores(sim, names):
        return [SimpleNamespace(name=names[0], records=[record(sim, 3.0)])]

    monkeypatch.setattr(leaderboard, "baseline_scores", scores)
    text, trained = board(f"{TASK}:causal", TASK, "gencos_bidding:causal")
    body = text.partition("## Named splits")[0]
    lines = [line.strip("|").split("|") for line in body.splitlines() if line.startswith(f"|`{TASK}-v")]
    assert sorted(cells[1] for cells in lines) == ["causal", "ppo"] and trained == [TASK]
    planned = next(cells for cells in lines if cells[1] == "causal")
    assert planned[3:] == ["3 $", "1 of 1", "causal"]
    assert f"|`{TASK}`|causal|" not in text.partition("## Training")[2]
    assert "|causal|price_stress|" in text
    assert "no causal planner is known for 'gencos_bidding'" in text.partition("## Not trained")[2]
    assert f"|`{TASK}-v1`|causal|" in board(ALONE)[0]  # the page keeps it
