"""`train`: what a run leaves behind, how it stops and goes on, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from powerzoo_jax.cli import main
from powerzoo_jax.cli.commands.evaluate import Score, budget_advice
from powerzoo_jax.envs import load_traces
from powerzoo_jax.oracle import evaluate_baseline
from powerzoo_jax.rl.training.config import CloneConfig, PPOConfig, PPOLagrangianConfig, SACConfig
from powerzoo_jax.tasks import make

pytestmark = pytest.mark.full

TINY = {"lanes": 4, "minibatches": 2, "epochs": 1, "widths": "8", "total_steps": 4 * 48 * 6}
SETTINGS = [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]
TRAIN = ["train", "battery_arbitrage", *SETTINGS]


def log_of(folder: Path) -> list[str]:
    return (folder / "log.tsv").read_text().splitlines()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "finished"
    assert main([*TRAIN, "--seeds", "2", "--out", str(folder)]) == 0
    return folder


def test_a_run_leaves_settings_log_and_scores(finished):
    assert json.loads((finished / "run.json").read_text())["seeds"] == 2
    header, *rows = log_of(finished)
    assert len(rows) == 6 and "return_sd" in header and "cost.resource" in header
    assert len(json.loads((finished / "scores.json").read_text())["ppo"]) == 2


def test_a_trained_run_can_be_scored_later_with_the_same_result(finished, tmp_path):
    assert main(["evaluate", str(finished), "--json", str(tmp_path / "again.json")]) == 0
    first = json.loads((finished / "scores.json").read_text())["ppo"]
    again = json.loads((tmp_path / "again.json").read_text())["ppo"]
    assert [r["episode_rewards"] for r in first] == [r["episode_rewards"] for r in again]


@pytest.mark.long
def test_a_trained_run_is_exported_with_a_card(finished, tmp_path, capsys):
    target = tmp_path / "deep" / "agent.stablehlo"
    assert main(["export", str(finished), "--row", "1", "--out", str(target)]) == 0
    card = json.loads(target.with_suffix(".json").read_text())
    program = jax.export.deserialize(bytearray(target.read_bytes()))
    lanes, *observation = card["observation"]
    assert lanes == "lanes" and program.call(np.zeros((3, *observation), card["dtype"])).shape == (
        3,
        *card["action"][1:],
    )
    assert str(target) in capsys.readouterr().out
    assert main(["export", str(finished), "--row", "2"]) == 2
    assert "--row 2: the run has rows 0 to 1" in capsys.readouterr().err


def policies_shown(capsys, *words: str) -> list[str]:
    assert main(["evaluate", *words]) == 0
    first = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line]
    return [word for word in first if word in ("random", "no_control", "rule", "oracle", "ppo")]


def test_a_run_is_shown_beside_the_policy_asked_for(finished, capsys):
    assert policies_shown(capsys, str(finished), "--policy", "rule") == ["rule", "ppo"]
    assert policies_shown(capsys, str(finished), "--policy", "ppo") == ["ppo"]


@pytest.mark.long
def test_a_trained_run_is_traced_and_shown(finished, tmp_path):
    """Both show the first seed of the run, on the same episodes as its score."""
    file, page = tmp_path / "run.npz", tmp_path / "run.html"
    assert main(["evaluate", str(finished), "--policy", "ppo", "--episodes", "1", "--trace", str(file)]) == 0
    (trace,) = load_traces(file).values()
    assert (trace.policy, trace["action"].values.shape) == ("ppo", (48, 1))
    assert main(["view", str(finished), "--policy", "ppo", "--out", str(page)]) == 0
    assert '"name":"ppo"' in page.read_text(encoding="utf-8")


def test_a_policy_that_the_task_does_not_have_is_refused_by_name(finished, capsys):
    assert main(["evaluate", str(finished), "--policy", "rul"]) == 2
    told = capsys.readouterr().err
    assert "Unknown policy 'rul'. Did you mean 'rule'?" in told and "ppo" in told and "oracle" in told


def test_a_folder_with_a_run_is_not_overwritten_unasked(finished, capsys):
    assert main([*TRAIN, "--seeds", "2", "--out", str(finished)]) == 2
    assert "--resume" in capsys.readouterr().err


def test_resuming_with_other_settings_names_them(finished, capsys):
    assert main([*TRAIN, "--seeds", "2", "--set", "lr=0.5", "--out", str(finished), "--resume"]) == 2
    assert ": lr." in capsys.readouterr().err


def test_a_run_that_was_never_saved_says_what_to_do(finished, tmp_path, capsys):
    (tmp_path / "run.json").write_text((finished / "run.json").read_text())
    assert main(["evaluate", str(tmp_path)]) == 2
    assert "--resume" in capsys.readouterr().err


@pytest.mark.long
def test_ctrl_c_saves_and_resuming_gives_the_uninterrupted_run(tmp_path):
    """The interrupted process ends its update, saves and says how to go on; nothing is lost or repeated."""
    long = [*TRAIN, "--set", f"total_steps={4 * 48 * 40}"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert main([*long, "--out", str(whole)]) == 0
    command = [sys.executable, "-m", "powerzoo_jax", *long, "--out", str(cut)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
    _wait_for_log(process, cut / "log.tsv")
    _try_to_train_there_as_well(process, long, cut)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    if process.returncode == 130:  # a fast machine may have finished before the signal came
        assert "go on with: powerzoo-jax train" in err and "Traceback" not in err
        assert main([*long, "--out", str(cut), "--resume"]) == 0
    assert log_of(cut) == log_of(whole)
    assert json.loads((cut / "scores.json").read_text()) == json.loads((whole / "scores.json").read_text())


def _try_to_train_there_as_well(process: subprocess.Popen[str], command: list[str], folder: Path) -> None:
    """Another training is refused, whatever it wants there, and the first one does not notice."""
    process.send_signal(signal.SIGSTOP)
    if process.poll() is None:  # a fast machine may have finished before the signal came
        before = (folder / "log.tsv").read_bytes()
        for how in ("--overwrite", "--resume"):
            assert main([*command, "--out", str(folder), how]) == 2
        assert (folder / "log.tsv").read_bytes() == before
    process.send_signal(signal.SIGCONT)


def _wait_for_log(process: subprocess.Popen[str], path: Path) -> None:
    deadline = time.monotonic() + 300
    while not (path.is_file() and path.read_text().count("\n") > 3) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_table_says_what_to_set_for_a_policy_that_breaks_a_budget():
    """Random play asks for 0.6 MW that the battery cannot deliver, where 0.5 are allowed; the rule asks for none."""
    sim = make("battery_arbitrage", split="test")
    random, rule = (Score(name, [evaluate_baseline(sim, name, n_episodes=16)]) for name in ("random", "rule"))
    spent = random.records[0].mean_costs_by_constraint["resource"]
    told = f"random breaks a budget: resource {spent:.3g} of 0.5 MW in an episode. To keep it, "
    advice = {
        PPOConfig(): "price it with --set cost_weights=0,0,0,1, or train with --algorithm ppo_lagrangian.",
        SACConfig(cost_weights=(3.0, 0.0, 0.0, 0.5)): "price it with --set cost_weights=3,0,0,1.",
        PPOLagrangianConfig(): "aim lower with --set budget_share=0.4.",
        CloneConfig(): "give its teacher tighter limits with --set teacher_keywords=NAME=VALUE.",
    }
    for config, remedy in advice.items():
        assert budget_advice(random, config) == told + remedy
        assert budget_advice(rule, config) == ""
