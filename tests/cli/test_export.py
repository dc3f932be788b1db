"""`export`: the forms that a trained policy leaves in, and the zoo's policies beside the rules of their task."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import powerzoo_jax as pz
from powerzoo_jax.cli import main
from powerzoo_jax.rl.zoo import card_text, read_card
from powerzoo_jax.tasks.score import evaluate

SETTINGS = {"lanes": 4, "minibatches": 2, "epochs": 1, "widths": "8,4", "total_steps": 4 * 48 * 2, "stagger": "true"}
TRAIN = ["train", "battery_arbitrage", *(w for k, v in SETTINGS.items() for w in ("--set", f"{k}={v}"))]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "finished"
    assert main([*TRAIN, "--seeds", "2", "--seed", "5", "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def entry(finished) -> Path:
    target = finished / "entry.npz"
    words = ["--row", "1", "--format", "zoo", "--out", str(target), "--note", "Made by a test."]
    assert main(["export", str(finished), *words]) == 0
    return target


@pytest.mark.full
def test_an_entry_earns_what_its_card_says(entry):
    about = read_card(entry)
    for split in ("val", "test"):
        sim = pz.make("battery_arbitrage", split=split)
        record = evaluate(sim, pz.load_policy(entry, sim))
        assert record.mean_reward == pytest.approx(about["scores"][split]["return"], rel=1e-6)
        assert record.n_episodes == about["scores"][split]["episodes"]
    first = evaluate(sim, pz.load_policy(entry), n_episodes=len(about["first"]["returns"]))
    np.testing.assert_allclose(first.episode_rewards, about["first"]["returns"], rtol=1e-6)


@pytest.mark.full
def test_a_card_says_what_was_trained_and_how(entry, tmp_path):
    about = read_card(entry)
    assert (about["seed"], about["steps"], about["planner"]) == (6, SETTINGS["total_steps"], "")
    train, export = about["commands"]
    assert train == "powerzoo-jax train SETTINGS.toml --seed 6 --out RUN"
    assert export.endswith("--out configs/zoo/battery_arbitrage.npz")
    text = entry.with_suffix(".md").read_text(encoding="utf-8")
    assert text == card_text(about, entry.stat().st_size)
    assert "Made by a test." in text and "|val|" in text and "|test|" in text and train in text
    for line in ("lanes = 4", "widths = [8, 4]", "stagger = true"):
        assert line in text.splitlines()


@pytest.mark.full
def test_an_entry_has_the_ending_of_its_form(finished, capsys):
    assert main(["export", str(finished), "--format", "zoo", "--out", "policy.onnx"]) == 2
    assert "ends in .npz" in capsys.readouterr().err


@pytest.mark.full
def test_a_run_is_exported_as_a_graph_with_a_card(finished, capsys):
    assert main(["export", str(finished), "--format", "onnx", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    session = onnxruntime.InferenceSession(told["file"], providers=["CPUExecutionProvider"])
    lanes, *observation = told["card"]["observation"]
    assert lanes == "lanes" and Path(told["file"]) == finished / "policy.onnx"
    (action,) = session.run(None, {"obs": np.zeros((3, *observation), told["card"]["dtype"])})
    assert action.shape == (3, *told["card"]["action"][1:])


@pytest.mark.full
def test_the_zoo_is_evaluated_recorded_and_shown(tmp_path, capsys):
    files = [str(tmp_path / name) for name in ("steps.npz", "page.html", "data.npz")]
    alone = ["dc_microgrid", "--policy", "zoo"]
    assert main(["evaluate", *alone, "--episodes", "2", "--trace", files[0], "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)["zoo"]
    first = read_card("dc_microgrid")["first"]["returns"]
    np.testing.assert_allclose(record["episode_rewards"], first[:2], rtol=1e-3)
    assert main(["view", *alone, "--out", files[1], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["policies"] == ["zoo"]
    assert main(["dataset", *alone, "--split", "test", "--episodes", "2", "--out", files[2], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mean_return"] == pytest.approx(np.mean(first[:2]), rel=1e-3)


def test_a_task_that_the_zoo_lacks_is_refused(capsys):
    assert main(["evaluate", "marl_der_arbitrage_7d", "--policy", "zoo"]) == 2
    assert "the zoo has no policy for 'marl_der_arbitrage_7d'" in capsys.readouterr().err
