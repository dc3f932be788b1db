"""Pictures from the command line: what is read from runs and leaderboards, and what is refused; nothing is trained."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from powerzoo_jax.cli import main
from powerzoo_jax.cli.commands import plot
from powerzoo_jax.cli.runs import Run, resolve_config
from powerzoo_jax.oracle import get_reference

BOARD = Path(__file__).parents[2] / "docs" / "leaderboard.json"
TASK = "battery_arbitrage"


def stored(
    folder: Path, task: str = TASK, algorithm: str = "ppo", grid=(), header="return\treturn_sd", keywords=()
) -> Path:
    """A run of two seeds with three updates, of which the first ended no episode."""
    Run(folder, resolve_config(task, algorithm, ()), seeds=2, grid=grid, keywords=keywords).write()
    rows = ["nan\tnan\tnan\tnan", "1\t2\t0\t2", "3\t0\t3\t3"]
    columns = "\t".join(("update", "env_steps", header))
    (folder / "log.tsv").write_text(
        "\n".join([columns, *(f"{k + 1}\t{200 * (k + 1)}\t{r}" for k, r in enumerate(rows))])
    )
    return folder


@pytest.fixture
def drawn(monkeypatch):
    """What the last picture was asked to show."""
    seen = {}

    def curves(curves, steps, **asked):
        seen.update(curves=curves, steps=steps, **asked)
        return real(curves, steps, **asked)

    real = plot.plot_learning_curves
    monkeypatch.setattr(plot, "plot_learning_curves", curves)
    return seen


def test_a_curve_has_every_seed_its_own_steps_and_the_references_of_its_run(drawn, tmp_path):
    run = stored(tmp_path / "run", header="return\treturn_sd\treturn.0\treturn.1")
    target = tmp_path / "figures" / "curves.svg"
    assert main(["plot", str(run), "--out", str(target)]) == 0
    assert drawn["curves"]["ppo"].tolist() == [[0, 3], [2, 3]] and drawn["steps"]["ppo"].tolist() == [200, 300]
    val = get_reference(TASK, "val")
    shown = {f"{name} on val": val[name] for name in ("random", "rule", "causal", "best")}
    assert drawn["references"] == shown and drawn["label"] == "return of an episode, in training [$]"
    assert target.read_text().startswith("<?xml")


def test_runs_that_have_looked_at_val_are_drawn_there(drawn, tmp_path):
    header = "return\treturn_sd\treturn.0\treturn.1"
    looked, blind = (stored(tmp_path / name, header=header) for name in ("looked", "blind"))
    (looked / "val.tsv").write_text(f"update\tenv_steps\t{header}\n2\t400\t5\t0\t4\t6\n")
    assert main(["plot", str(looked), "--out", str(tmp_path / "a.png")]) == 0
    assert drawn["curves"]["ppo"].tolist() == [[4], [6]] and drawn["steps"]["ppo"].tolist() == [200]
    assert drawn["references"]["rule"] == get_reference(TASK, "val")["rule"]
    assert drawn["label"] == "return of an episode, val [$]"
    assert main(["plot", str(looked), str(blind), "--out", str(tmp_path / "a.png")]) == 0
    assert drawn["curves"]["looked"].tolist() == [[0, 3], [2, 3]] and "in training" in drawn["label"]


def test_references_of_a_changed_task_are_played_on_val(drawn, tmp_path, monkeypatch):
    header = "return\treturn_sd\treturn.0\treturn.1"
    run = stored(tmp_path / "run", header=header, keywords=("battery_capacity_mwh=4.0",))
    capacity = {"random": 1.0, "rule": 2.0}

    def played(sim, name):
        assert sim.spec.split == "val" and float(sim.params.storage.capacity_mwh[0]) == 4.0
        return SimpleNamespace(mean_reward=capacity[name])

    monkeypatch.setattr(plot, "evaluate_baseline", played)
    assert main(["plot", str(run), "--out", str(tmp_path / "a.png")]) == 0
    assert drawn["references"] == {"random on val": 1.0, "rule on val": 2.0}


def test_an_update_without_the_end_of_an_episode_has_no_return(drawn, tmp_path):
    run = stored(tmp_path / "run", header="return\tepisodes")
    rows = ["1\t100\t0\t0", "2\t200\t-8\t16", "3\t300\t0\t16"]
    (run / "log.tsv").write_text("\n".join(["update\tenv_steps\treturn\tepisodes", *rows]))
    assert main(["plot", str(run), "--out", str(tmp_path / "a.png")]) == 0
    assert drawn["curves"]["ppo"].tolist() == [[-8, 0]] and drawn["steps"]["ppo"].tolist() == [100, 150]


def test_learners_stand_under_their_names_and_two_of_a_kind_under_their_folders(drawn, tmp_path):
    header = "return\treturn_sd\treturn.0\treturn.1"
    first, second = (stored(tmp_path / name, algorithm=name, header=header) for name in ("ppo", "apg"))
    third = stored(tmp_path / "again", header=header)
    assert main(["plot", str(first), str(second), "--out", str(tmp_path / "a.png")]) == 0
    assert list(drawn["curves"]) == ["ppo", "apg"]
    assert main(["plot", str(first), str(third), "--out", str(tmp_path / "a.png")]) == 0
    assert list(drawn["curves"]) == ["ppo", "again"]


def test_points_of_a_sweep_are_curves_of_their_own(drawn, tmp_path):
    grid = (("lr", (1e-3, 3e-3)),)
    run = stored(tmp_path / "sweep", grid=grid, header="lr=0.001 return\tx\tlr=0.003 return\ty")
    assert main(["plot", str(run), "--out", str(tmp_path / "a.png")]) == 0
    assert list(drawn["curves"]) == ["ppo lr=0.001", "ppo lr=0.003"]
    assert drawn["curves"]["ppo lr=0.001"].tolist() == [[1, 3]]  # an older log holds the mean alone
    assert drawn["steps"]["ppo lr=0.001"].tolist() == [100, 150]


def recorded(task: str, algorithm: str) -> dict:
    """Row of one of a task's learners on the leaderboard."""
    rows = json.loads(BOARD.read_text())
    return next(row for row in rows if (row["task"], row["run"]["config"]["algorithm"]) == (task, algorithm))


def test_gains_lie_between_the_rule_and_the_best_known_and_are_of_the_seeds_within_budgets(tmp_path, monkeypatch):
    seen = {}
    monkeypatch.setattr(plot, "plot_gains", lambda gains, **asked: seen.update(gains))
    monkeypatch.setattr(plot, "save_figure", lambda figure, target: target)
    row = recorded("dso", "apg_lagrangian")
    row["seeds"] = [{**row["seeds"][0], "return": x, "kept": [True, x < -8]} for x in (-9.0, -10.0, -7.0)]
    board = tmp_path / "board.json"
    board.write_text(json.dumps([row]))
    assert main(["plot", str(board)]) == 0
    known = get_reference("dso", "test")
    best, rule = known["best"], known["rule"]
    assert seen == {"apg_lagrangian, 2 of 3 seeds": pytest.approx([(x - rule) / (best - rule) for x in (-9.0, -10.0)])}


def test_a_learner_over_its_budgets_has_no_gain_and_a_rule_over_them_no_scale(tmp_path, monkeypatch, capsys):
    seen = {}
    monkeypatch.setattr(plot, "plot_gains", lambda gains, **asked: seen.update(gains))
    monkeypatch.setattr(plot, "save_figure", lambda figure, target: target)
    over, lawless = recorded("dso", "apg_lagrangian"), recorded("battery_arbitrage", "ppo")
    lawless["known"]["feasible"]["rule"] = False
    over["seeds"] = [{**seed, "kept": [True, False]} for seed in over["seeds"]]
    board = tmp_path / "board.json"
    board.write_text(json.dumps([over, lawless]))
    assert main(["plot", str(board)]) == 0 and seen == {"dso (apg_lagrangian)": None}
    board.write_text(json.dumps([lawless]))
    assert main(["plot", str(board)]) == 2
    err = capsys.readouterr().err
    assert "whose rule breaks a budget on the split 'test'" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere holds no run"),
        (["nowhere.json"], "`powerzoo-jax leaderboard` writes it"),
        ([str(BOARD), "nowhere"], "one leaderboard, or runs"),
        ([str(BOARD), "--split", "storm"], "holds no gain on the split 'storm'"),
        (["{run}", "--split", "val"], "Leave it out"),
        (["{run}", "{other}"], "battery_arbitrage and dso: their returns do not compare"),
        (["{untrained}"], "stopped before its first update"),
        (["{broken}"], "is not the log of a run"),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_its_remedy(words, message, tmp_path, capsys):
    for name, task in (("run", TASK), ("other", "dso"), ("untrained", TASK), ("broken", TASK)):
        stored(tmp_path / name, task)
    (tmp_path / "untrained" / "log.tsv").unlink()
    (tmp_path / "broken" / "log.tsv").write_text("update\tenv_steps\treturn\n1\t2\n")
    paths = {name: str(tmp_path / name) for name in ("run", "other", "untrained", "broken")}
    assert main(["plot", *(word.format(**paths) for word in words), "--out", str(tmp_path / "a.svg")]) == 2
    assert message in capsys.readouterr().err
