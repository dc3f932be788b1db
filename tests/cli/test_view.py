"""Pages and traces from the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest

from powerzoo_jax.cli import main
from powerzoo_jax.envs import load_traces

pytestmark = pytest.mark.full

TASK = "battery_arbitrage"


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """The steps of one seeded test day under the rule, written beside its score."""
    path = tmp_path_factory.mktemp("traces") / "day.npz"
    assert main(["evaluate", TASK, "--policy", "rule", "--episodes", "1", "--trace", str(path)]) == 0
    return path


@pytest.mark.long
def test_the_traced_episode_is_the_scored_one(traced, tmp_path):
    trace = load_traces(traced)["rule"]
    assert main(["evaluate", TASK, "--policy", "rule", "--episodes", "1", "--json", str(tmp_path / "r.json")]) == 0
    (record,) = json.loads((tmp_path / "r.json").read_text())["rule"]
    assert trace["reward"].values.sum() == pytest.approx(record["mean_reward"], rel=1e-5)
    assert trace["bus_voltage_pu"].values.shape == (48, 33)


def test_policies_stand_side_by_side_on_a_day_of_their_own(tmp_path, capsys):
    target = tmp_path / "new" / "day.html"
    command = ["view", TASK, "--policy", "no_control", "--policy", "rule", "--episode", "3", "--out", str(target)]
    assert main(command) == 0
    page = target.read_text(encoding="utf-8")
    assert '"name":"no_control"' in page and '"name":"rule"' in page and "episode 3" in page
    assert str(target) in capsys.readouterr().out


def test_a_file_of_traces_is_shown_without_playing(traced, tmp_path):
    assert main(["view", str(traced), "--out", str(tmp_path / "day.html")]) == 0
    assert (tmp_path / "day.html").stat().st_size > 50_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([TASK, "--episode", "9999"], "Choose 1 to 66"),
        ([TASK, "--episode", "0"], "--episode"),
        ([TASK, "--policy", "rules"], "'rule'"),
        (["nowhere/run"], "does not exist"),
        (["nowhere.npz"], "nowhere.npz"),
    ],
)
def test_wrong_input_names_the_remedy(arguments, words, capsys):
    assert main(["view", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_policy_that_a_file_lacks_is_named(traced, capsys):
    assert main(["view", str(traced), "--policy", "oracle"]) == 2
    assert "It has rule." in capsys.readouterr().err


@pytest.mark.long
def test_several_episodes_are_numbered(tmp_path):
    path = tmp_path / "two.npz"
    assert main(["evaluate", TASK, "--policy", "rule", "--episodes", "2", "--trace", str(path)]) == 0
    found = load_traces(path)
    assert list(found) == ["rule_1", "rule_2"] and [t.episode for t in found.values()] == [0, 1]
    assert not np.array_equal(found["rule_1"]["bus_voltage_pu"].values, found["rule_2"]["bus_voltage_pu"].values)
