"""`check`: all problems of a user's grid in one list, with remedies, and an exit status."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest

import powerzoo_jax
from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.cases import list_cases, load_case, load_feeder, to_matpower
from powerzoo_jax.cli import main

BROKEN = """function mpc = broken
mpc.version = '2';
mpc.baseMVA = 10;
mpc.bus = [
 1 3 0   0    0 0 1 1 0 12.66 1 1.1 0.9;
 2 1 250 60   0 0 1 1 0 12.66 1 1.1 0.9;
 3 3 90  40   0 0 1 1 0 12.66 1 1.1 0.9;
 4 1 210 NaN  0 0 1 1 0 12.66 1 1.1 0.9;
 5 1 60  30   0 0 1 1 0 12660 1 0.9 1.1;
];
mpc.gen = [ 1 0 0 10 -10 1 100 1 10 0; 3 0 0 10 -10 1 100 1 0 0 ];
mpc.branch = [
 1 2 0      0      0 0  0 0 0 0 1 -360 360;
 2 3 0.4930 0.2511 0 -5 0 0 0 0 1 -360 360;
 3 4 0.3660 12.185 0 0  0 0 0 0 1 -360 360;
 4 5 0.3811 0.1941 0 0  0 0 0 0 0 -360 360;
 4 9 0.3811 0.1941 0 0  0 0 0 0 1 -360 360;
];
mpc.bus(:, 3) = to_megawatt(mpc.bus(:, 3));
"""
ALL = (
    "line 19: 'mpc.bus(:, 3) = to_megawatt(mpc.bus(:, 3))' is not understood",
    "q_mvar is not a finite number",
    "buses 1, 3 are references of one island",
    "to_id names unknown bus 9",
    "bus 5: 1 bus(es) are not connected",
    "r = x = 0 pu: 1 (bus 1 -> 2)",
    "rate_a = -5.0 MVA",
    "v_min_pu > v_max_pu",
    "base_kv = 12660.0 kV",
    "|z| above 10 pu: 3 (bus 3 -> 4)",
    "not in kW",
)


@pytest.fixture
def check(capsys):
    def call(argument: object) -> tuple[int, str, str]:
        status = main(["check", str(argument)])
        return status, *capsys.readouterr()

    return call


def test_mistakes_of_format_and_of_content_come_in_one_list(tmp_path, check):
    path = tmp_path / "broken.m"
    path.write_text(BROKEN)
    status, out, err = check(path)
    assert status == 1 and err == ""
    for words in ALL:
        assert words in out
    assert "7 errors, 4 warnings: broken cannot be used as it is" in out
    listed = [line for line in out.splitlines() if line[:1].isdigit() and ". [" in line]
    assert len(listed) == 11 and all(line.endswith(".") for line in listed)
    assert ["[error]" in line for line in listed] == [True] * 7 + [False] * 4


def test_a_file_of_nonsense_is_a_list_too(tmp_path, check):
    path = tmp_path / "noise.m"
    path.write_text("once = upon(a, time);\n" * 50)
    status, out, _ = check(path)
    assert status == 1 and "mpc.bus is missing" in out and len(out.splitlines()) < 30


def test_warnings_alone_do_not_fail(tmp_path, check):
    path = tmp_path / "mine.m"
    to_matpower(load_case("case118zh"), path)
    status, out, _ = check(path)
    assert status == 0 and "0 errors, 1 warning: mine can be used" in out


@pytest.mark.parametrize("name", list_cases())
def test_every_shipped_case_passes(name, check):
    status, out, _ = check(name)
    assert status == 0 and out.startswith(f"{name}: ")


def test_a_net_without_pandapower_names_the_extra(tmp_path, check, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandapower", None)
    path = tmp_path / "net.json"
    path.write_text("{}")
    status, _, err = check(path)
    assert status == 2 and "powerzoo-jax[pandapower]" in err


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("nowhere.m", "nowhere.m"),
        ("nowhere.json", "nowhere.json"),
        ("case552gb", "case2224gb"),
        ("pz_case117", "pz_case118"),
    ],
)
def test_what_does_not_exist_is_said_in_one_line(name, hint, check, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, err = check(name)
    assert status == 2 and err.count("\n") == 1 and hint in err


def test_another_format_is_refused_with_the_ones_that_are_read(tmp_path, check):
    path = tmp_path / "grid.raw"
    path.write_text("0, 100.0, 33")
    status, _, err = check(path)
    assert status == 2 and ".json" in err and "MATPOWER" in err


def test_three_phase_feeders_are_checked_and_solved_too(capsys):
    """Voltages of OpenDSS at the recorded taps: 0.9608 pu at node 611.3, 1.056 pu behind the regulator."""
    assert main(["check", "ieee13"]) == 0 and "41 nodes" in capsys.readouterr().out
    assert main(["pf", "ieee13"]) == 0
    out = capsys.readouterr().out
    assert "voltages from 0.9608 pu at 611.3 to 1.0560 pu at rg60." in out and "and 1 more rows (--all)" in out
    assert main(["pf", "case13", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["node"]
    assert min(row["v_pu"] for row in rows) == pytest.approx(0.9608, abs=5e-5) and len(rows) == 41
    for option in ("--opf", "--actions"):
        assert main(["pf", "ieee13", option]) == 2 and "are of balanced networks" in capsys.readouterr().err


def test_the_ten_best_actions_stand_below_the_state_as_it_is(capsys):
    """case14 has no ratings, so the flows before take their place, and nothing is a violation."""
    assert main(["pf", "case14", "--actions"]) == 0
    out = capsys.readouterr().out
    table = out[out.index("action  ") :].partition("\n\n")[0].splitlines()
    assert table[2].split() == ["nothing", "100.0", "1-2", "0.000", "13.393"]
    assert len(table) == 2 + 11 + 1 and table[-1] == "... and 66 more rows (--all)"
    assert all(row.startswith(("open line", "split bus")) for row in table[3:-1])
    assert "no branch has a rating" in out and "overloaded" not in out
    assert main(["pf", "case14", "--actions", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert len(content["action"]) == 1 + 20 + 56 and content["action"][0]["action"] == "nothing"
    assert [row["action"] for row in content["action"][1:3]] == [row.rstrip().split("  ")[0] for row in table[3:5]]
    assert {row["violation"] for row in content["action"] if row["loading"] is None} == {
        "cuts the grid",
        "no power flow",
    }


@pytest.mark.parametrize(
    ("task", "what"),
    [
        *(
            ("battery_arbitrage", what)
            for what in ("ieee13", "nowhere.dss", Path("nowhere.DSS"), load_feeder("case13"))
        ),
        ("gencos_bidding", "ieee13"),
        ("marl_opf", "nowhere.dss"),
    ],
)
def test_tasks_of_one_phase_refuse_a_three_phase_feeder_in_a_sentence(task, what):
    with pytest.raises(CaseError, match=r"is a three-phase feeder.*distribution_3phase takes it as case=") as caught:
        powerzoo_jax.make(task, case=what)
    assert len(str(caught.value).splitlines()) == 1


def test_the_three_phase_task_takes_a_feeder_and_says_what_a_balanced_grid_needs():
    mine = dataclasses.replace(load_feeder("case13"), name="mine")
    assert powerzoo_jax.make("distribution_3phase", case=mine).spec.case == "mine"
    with pytest.raises(CaseError, match="to_threephase"):
        powerzoo_jax.make("distribution_3phase", case="own.m")
