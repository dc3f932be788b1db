"""Pages and traces from the command line."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from powerzoo_jax.cases import load_case, to_matpower
from powerzoo_jax.cli import main
from powerzoo_jax.cli.commands import view
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


DSS = """Clear
New Circuit.two basekv=12.47 pu=1.0 phases=3 bus1=sourcebus
New Line.one bus1=sourcebus bus2=b1 length=1 units=km r1=0.3 x1=0.6 r0=0.9 x0=1.8 c1=0 c0=0
New Load.a bus1=b1.1 phases=1 kv=7.2 kw=300 kvar=100
Set voltagebases=[12.47]
Calcvoltagebases
"""


def test_grids_are_drawn_by_name_and_by_file(tmp_path, monkeypatch, capsys):
    """Voltages of the picture: 0.913 pu of Baran and Wu's feeder, 0.961 to 1.056 pu of IEEE's (OpenDSS)."""
    shown = {}
    real = {name: getattr(view, name) for name in ("plot_network", "plot_feeder")}

    def drawn(name):
        def draw(grid, **values):
            shown.update(values, grid=grid)
            return real[name](grid, **values)

        return draw

    for name in real:
        monkeypatch.setattr(view, name, drawn(name))
    to_matpower(load_case("case33bw"), tmp_path / "own.m")
    (tmp_path / "two.dss").write_text(DSS)
    for what, low, high in (
        ("33bw", 0.9131, 1.0),
        (tmp_path / "own.m", 0.9131, 1.0),
        ("ieee13", 0.9608, 1.056),
        (tmp_path / "two.dss", 0.9, 1.05),
    ):
        assert main(["view", str(what), "--out", str(tmp_path / "grid.svg")]) == 0
        assert (tmp_path / "grid.svg").read_text().startswith("<?xml") and str(tmp_path) in capsys.readouterr().out
        volts = shown["v_pu"]
        exact = what == "ieee13" or str(what).endswith(("33bw", ".m"))
        assert not exact or (volts.min(), volts.max()) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-3))
        assert low - 1e-3 < volts.min() < volts.max() < high + 1e-3


def test_a_grid_without_a_power_flow_is_drawn_bare_with_the_reason(tmp_path, capsys):
    case = load_case("case33bw")
    heavy = dataclasses.replace(case, load=dataclasses.replace(case.load, p_mw=20 * case.load.p_mw))
    to_matpower(heavy, tmp_path / "heavy.m")
    assert main(["view", str(tmp_path / "heavy.m"), "--out", str(tmp_path / "grid.png")]) == 0
    assert "without voltages: " in capsys.readouterr().out and (tmp_path / "grid.png").stat().st_size > 5000


def test_a_grid_takes_no_policy(capsys):
    assert main(["view", "case33bw", "--policy", "rule"]) == 2
    assert "a grid is drawn at the loads of its tables" in capsys.readouterr().err


@pytest.mark.long
def test_several_episodes_are_numbered(tmp_path):
    path = tmp_path / "two.npz"
    assert main(["evaluate", TASK, "--policy", "rule", "--episodes", "2", "--trace", str(path)]) == 0
    found = load_traces(path)
    assert list(found) == ["rule_1", "rule_2"] and [t.episode for t in found.values()] == [0, 1]
    assert not np.array_equal(found["rule_1"]["bus_voltage_pu"].values, found["rule_2"]["bus_voltage_pu"].values)
