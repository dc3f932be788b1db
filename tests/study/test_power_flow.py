"""Tables of a power flow beside an independent Newton, pandapower's voltages, published optima and hand-made limits."""

from __future__ import annotations

import builtins
import dataclasses
import json
import sys
import types

import numpy as np
import pytest

import powerzoo_jax as pz
from powerzoo_jax.base.errors import BaseLoadError, CaseError, DataMissing
from powerzoo_jax.cases import load_case, load_feeder, read_grid, to_matpower
from powerzoo_jax.cases.topology import branch_positions
from powerzoo_jax.cli import main
from tests.references.meshed import branch_flows, build_meshed, solve_base_state
from tests.references.recorded_nets import SMALL, converter, voltages

MW = 1e-6
LOADED = ("case14", "case24_ieee_rts", "case118", "case33bw")  # taps, shifts, several units a bus, a feeder


@pytest.mark.reference
@pytest.mark.parametrize("name", LOADED)
def test_tables_are_those_of_an_independent_newton(name):
    case = load_case(name)
    study = pz.run_power_flow(name)
    net = build_meshed(case)
    v = solve_base_state(case, net)
    flows = branch_flows(net, v[None])
    np.testing.assert_allclose(study.bus["v_pu"], np.abs(v), atol=1e-9)
    np.testing.assert_allclose(study.bus["angle_deg"], np.rad2deg(np.angle(v)), atol=1e-7)
    for column, known in (("p_from_mw", flows.s_from.real), ("q_from_mvar", flows.s_from.imag)):
        np.testing.assert_allclose(study.branch[column], case.base_mva * known[0], atol=MW)
    for column, known in (("p_to_mw", flows.s_to.real), ("q_to_mvar", flows.s_to.imag)):
        np.testing.assert_allclose(study.branch[column], case.base_mva * known[0], atol=MW)
    np.testing.assert_allclose(study.p_loss_mw, case.base_mva * flows.loss[0].real, atol=MW)


@pytest.mark.reference
@pytest.mark.parametrize("name", ["example_multivoltage", "create_cigre_network_mv", "ucte"])
def test_voltages_of_a_pandapower_net_are_those_it_has_there(name, monkeypatch):
    study = pz.run_power_flow(converter(monkeypatch)(name))
    known = voltages(name)
    live = ~np.isnan(known) & (study.v != 0)
    assert live.any()
    np.testing.assert_allclose(study.v[live], known[live], atol=1e-8)


@pytest.mark.reference
@pytest.mark.parametrize("name", ["ext_grid several", "ext_grid islands", "gen slack"])
def test_every_reference_keeps_its_voltage_and_angle(name, monkeypatch):
    """Three in one island; two in islands of their own, 180 degrees apart; a generator beside an external grid."""
    study = pz.run_power_flow(converter(monkeypatch)(name))
    at = study.case.slack_bus
    assert len(at) == {"ext_grid several": 3, "ext_grid islands": 2, "gen slack": 3}[name]
    np.testing.assert_allclose(np.rad2deg(np.angle(study.v[at])), study.case.bus.angle_init_deg[at], atol=1e-9)
    np.testing.assert_allclose(study.v, voltages(name), atol=1e-9)


@pytest.mark.reference
@pytest.mark.parametrize("name", [name for name, parts in SMALL["nets"].items() if "results" in parts["seen"]])
def test_elements_of_a_net_have_the_results_that_pandapower_gives_them(name, monkeypatch):
    """By index of the element; powers to 1e-6 MVA, where pandapower stops at 1e-9 MVA of mismatch."""
    study = converter(monkeypatch, pz.run_power_flow)(name)
    known = SMALL["nets"][name]["seen"]["results"]
    assert known.keys() == study.elements.keys()
    for table, columns in known.items():
        ours = study.elements[table]
        for column, values in columns.items():
            mine = {"vm_pu": "v_pu", "va_degree": "angle_deg"}.get(column, column)
            expected = np.array(values, float)
            if column.startswith(("p_", "q_")):  # what takes no part has no power there, and no number here
                expected = np.where(np.isnan(ours[mine]) & (expected == 0), np.nan, expected)
            np.testing.assert_allclose(ours[mine], expected, atol=MW, err_msg=f"{table} {column}")
    assert study.elements["res_line"]["line"].tolist() == SMALL["nets"][name]["seen"]["tables"]["line"]["index"]


@pytest.mark.parametrize("name", LOADED)
def test_units_deliver_what_their_bus_sends_and_uses(name):
    """Energy balance of every bus: output of its units = injection into the branches + load."""
    study = pz.run_power_flow(name)
    case, at = study.case, study.case.positions(study.case.unit.bus_id)
    held = np.unique(at[case.unit.in_service & np.isin(case.bus.kind[at], (2, 3))])
    for unit, injected, load in (("p_mw", "p_mw", "p_load_mw"), ("q_mvar", "q_mvar", "q_load_mvar")):
        delivered = np.bincount(at, study.unit[unit], case.n_bus)
        np.testing.assert_allclose(delivered[held], (study.bus[injected] + study.bus[load])[held], atol=MW)


def test_units_of_one_bus_share_its_reactive_power_by_range():
    """MATPOWER's rule: each stands at the same fraction of its range."""
    study = pz.run_power_flow("case24_ieee_rts")
    unit, shared = study.case.unit, 0
    for bus in np.unique(unit.bus_id):
        mine = unit.bus_id == bus
        width = unit.q_max_mvar[mine] - unit.q_min_mvar[mine]
        if mine.sum() > 1 and width.min() > 0:
            fraction = (study.unit["q_mvar"][mine] - unit.q_min_mvar[mine]) / width
            np.testing.assert_allclose(fraction, fraction[0], atol=1e-9)
            shared += 1
    assert shared >= 5


@pytest.mark.full
@pytest.mark.reference
def test_the_optimum_of_case9_is_the_published_one():
    """5,296.69 USD/h: MATPOWER's manual, runopf of case9."""
    study = pz.run_power_flow("case9", opf=True)
    assert study.cost_usd_per_h == pytest.approx(5296.69, abs=0.005)
    assert not study.violations and np.ptp(study.bus["lmp"]) > 0.1
    assert study.unit["p_mw"].sum() == pytest.approx(315.0 + study.p_loss_mw, abs=1e-3)


@pytest.mark.reference
def test_an_outage_is_the_network_without_its_branch():
    case = load_case("case14")
    rated = dataclasses.replace(case, branch=dataclasses.replace(case.branch, rate_a_mva=np.full(case.n_branch, 90.0)))
    told: list[tuple[int, int]] = []
    study = pz.run_power_flow(rated, n_minus_1=True, progress=lambda done, total: told.append((done, total)))
    assert told == [(k + 1, case.n_branch) for k in range(case.n_branch)]
    outage = study.outage
    assert outage is not None and len(outage) == case.n_branch
    for k in (0, 6, 12):
        on = np.ones(case.n_branch, bool)
        on[k] = False
        left = dataclasses.replace(rated, branch=dataclasses.replace(rated.branch, in_service=on))
        net = build_meshed(left)
        v = solve_base_state(left, net)
        flows = branch_flows(net, v[None])
        size = np.maximum(np.abs(flows.s_from), np.abs(flows.s_to))[0] * case.base_mva
        assert outage["v_min_pu"][k] == pytest.approx(np.abs(v).min(), abs=1e-9)
        assert outage["at_bus"][k] == case.bus.id[np.abs(v).argmin()]
        assert outage["loading"][k] == pytest.approx(100 * size.max() / 90, abs=1e-6)
        ends = branch_positions(case)
        worst = size.argmax()
        assert outage["on_branch"][k] == f"{case.bus.id[ends[0][worst]]}-{case.bus.id[ends[1][worst]]}"
        assert ("overloaded" in outage.violation[k]) == (size.max() > 90)


@pytest.mark.full
def test_an_opened_line_in_the_ranking_is_the_outage_of_the_branch():
    """Newton's method on another network, of another solver."""
    study = pz.run_power_flow("pz_case118", n_minus_1=True, actions=True)
    action, outage = study.action, study.outage
    assert action is not None and outage is not None
    row = {str(name): k for k, name in enumerate(action["action"])}
    opened = [k for name, k in row.items() if name.startswith("open line")]
    assert len(opened) == study.case.n_branch == len(outage)
    seen = dict.fromkeys(range(len(outage)), 0)
    for k in sorted(opened, key=lambda k: str(action["action"][k])):
        pair, _, number = str(action["action"][k]).removeprefix("open line ").partition(" #")
        ends = [int(end) for end in pair.split("-")]
        either = [np.flatnonzero((outage["from"] == a) & (outage["to"] == b)) for a, b in (ends, ends[::-1])]
        at = np.sort(np.concatenate(either) if ends[0] != ends[1] else either[0])[int(number or 1) - 1]
        seen[int(at)] += 1
        if outage["cut_off_mw"][at] > 0 or action.violation[k] == "cuts the grid":
            assert action.violation[k] == "cuts the grid"
            continue
        assert action["loading"][k] == pytest.approx(outage["loading"][at], rel=1e-6)
        assert str(action["on_branch"][k]).partition(" #")[0] == outage["on_branch"][at]
        assert ("overloaded" in outage.violation[at]) == (action.violation[k] == "overloaded")
    assert set(seen.values()) == {1}
    assert action["action"][0] == "nothing" and action["p_loss_mw"][0] == pytest.approx(study.p_loss_mw, rel=1e-7)
    assert action["loading"][0] == pytest.approx(np.nanmax(study.branch["loading"]), rel=1e-7)
    ranked = action["loading"][1:]
    solved = ~np.isnan(ranked)
    assert np.all(np.diff(ranked[solved]) >= 0) and np.all(~solved[np.argmin(solved) :])
    assert not any(word.startswith("action") for word in study.violations)


def test_splits_have_their_golden_losses():
    action = pz.run_power_flow("case14", actions=True).action
    assert action is not None
    loss = dict(zip(action["action"], action["p_loss_mw"], strict=True))
    # branches 2, 10 and the load moved away: of two mirror images the one with the first branch on busbar 1
    assert loss["split bus 5: lines 2-5, 4-5 on busbar 2"] == pytest.approx(14.0795, abs=5e-5)
    assert loss["split bus 4: lines 3-4, 4-9 on busbar 2"] == pytest.approx(13.7294, abs=5e-5)


def test_the_outage_of_a_feeder_cuts_off_what_lies_behind():
    """Buses 19 to 22 of the feeder of Baran and Wu hang on branch 2-19: four loads of 90 kW."""
    outage = pz.run_power_flow("case33bw", n_minus_1=True).outage
    assert outage is not None
    k = int(np.flatnonzero((outage["from"] == 2) & (outage["to"] == 19))[0])
    assert outage["cut_off_mw"][k] == pytest.approx(0.36) and "load cut off" in outage.violation[k]
    assert outage["cut_off_mw"][0] == pytest.approx(3.715)  # the first branch feeds everything


def test_every_broken_limit_is_marked():
    case = load_case("case14")
    bus = dataclasses.replace(case.bus, v_max_pu=np.full(14, 1.08), v_min_pu=np.full(14, 1.0105))
    branch = dataclasses.replace(case.branch, rate_a_mva=np.where(np.arange(20) == 0, 150.0, 200.0))
    study = pz.run_power_flow(dataclasses.replace(case, bus=bus, branch=branch))
    assert set(study.violations) == {
        "bus 3: below v_min",
        "bus 8: above v_max",
        "branch 1 - 2: overloaded",
        "unit 1: below q_min",
    }
    assert study.branch["loading"][0] == pytest.approx(100 * np.hypot(156.883, 20.404) / 150, abs=0.01)


def test_a_load_beyond_collapse_names_the_load_that_can_be_carried():
    case = load_case("case33bw")
    heavy = dataclasses.replace(case, load=dataclasses.replace(case.load, p_mw=5 * case.load.p_mw))
    with pytest.raises(BaseLoadError, match=r"(?s)Likely causes:.*scaled to 0\.\d+ of the given injections"):
        pz.run_power_flow(heavy)


def test_what_cannot_be_studied_is_refused_by_name(tmp_path):
    with pytest.raises(CaseError, match=r"unbalanced feeder.*prepare_threephase"):
        pz.run_power_flow(load_feeder("ieee13"))
    with pytest.raises(CaseError, match=r"not dict"):
        pz.run_power_flow({})
    with pytest.raises(DataMissing):
        pz.run_power_flow(tmp_path / "missing.m")
    with pytest.raises(CaseError, match=r"neither a \.m, a \.dss"):
        (tmp_path / "grid.xls").write_text("1")
        read_grid(tmp_path / "grid.xls")
    with pytest.raises(ValueError, match=r"no table 'buses'; this study has bus, branch, unit"):
        pz.run_power_flow("case9").to_frame("buses")


def test_a_file_gives_the_tables_of_its_case(tmp_path, capsys):
    path = tmp_path / "mine.m"
    to_matpower(load_case("case14"), path)
    assert main(["pf", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    study = pz.run_power_flow("case14")
    assert [row["v_pu"] for row in told["bus"]] == pytest.approx(study.bus["v_pu"].tolist(), abs=1e-9)
    assert told["branch"][0]["loading"] is None and told["cost_usd_per_h"] is None
    assert main(["pf", str(path)]) == 0
    out = capsys.readouterr().out
    assert "v_pu [pu]" in out and "losses 13.393 MW" in out and "above v_max" in out


@pytest.mark.tiers(full=["opf"])
@pytest.mark.parametrize("options", [(), ("--opf",)], ids=["pf", "opf"])
def test_what_a_file_holds_beyond_its_case_is_told_with_the_results(options, tmp_path, capsys):
    """The line of direct current of RTS-GMLC, here beside the nine buses."""
    path = tmp_path / "linked.m"
    to_matpower(load_case("case9"), path)
    path.write_text(path.read_text() + "\nmpc.dcline = [\n4 6 1 10 9 0 0 1 1 0 20 -5 5 -5 5 0 0;\n];\n")
    study = pz.run_power_flow(path, opf=bool(options))
    told = ("dcline of the source file is not represented",)
    assert study.notes == study.case.notes == told
    for text in (str(study), study.summary(), str(study.case)):
        assert f"note: {told[0]}" in text.splitlines()
    assert main(["pf", str(path), *options]) == 0
    assert f"note: {told[0]}" in capsys.readouterr().out.splitlines()
    assert main(["pf", str(path), *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == list(told)


def test_a_frame_has_the_columns_and_the_violations(monkeypatch):
    study = pz.run_power_flow("case14")
    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=dict))
    frame = study.to_frame("branch")
    assert list(frame) == [*study.branch.columns, "violation"] and len(frame["violation"]) == 20


def test_without_pandas_the_extra_is_named(monkeypatch):
    found = builtins.__import__

    def no_pandas(name, *rest):
        if name == "pandas":
            raise ImportError(name)
        return found(name, *rest)

    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    monkeypatch.setattr(builtins, "__import__", no_pandas)
    with pytest.raises(ImportError, match=r"powerzoo-jax\[frames\]"):
        pz.run_power_flow("case9").to_frame()


def test_a_case_shows_itself_in_five_lines():
    lines = repr(load_case("case118")).splitlines()
    assert len(lines) == 5 and lines[0] == "case118: 118 buses at 345, 161, 138 kV, base 100 MVA"
