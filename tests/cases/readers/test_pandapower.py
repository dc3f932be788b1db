"""MATPOWER files written and read back, and pandapower nets against pandapower's own recorded results."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import numpy as np
import pytest

from powerzoo_jax.base.errors import CaseError, DataMissing
from powerzoo_jax.cases import (
    Case,
    from_matpower,
    from_pandapower,
    list_cases,
    load_case,
    to_matpower,
    to_pandapower,
    validate,
)
from powerzoo_jax.cases.library import from_arrays, to_arrays
from powerzoo_jax.cases.readers.pandapower.convert import WINDINGS, convert_with_rows
from powerzoo_jax.cases.readers.pandapower.dispatch import take_out
from powerzoo_jax.cases.readers.pandapower.tables import make_ready
from powerzoo_jax.opf import prepare_ac_opf
from powerzoo_jax.study import run_power_flow
from powerzoo_jax.study.elements import ENDS
from tests.references.recorded_nets import SMALL, WRITTEN, Frame, PandapowerWriter, converter, voltages

NETS = (
    "case14",
    "case39",
    "example_multivoltage",
    "create_cigre_network_mv",
    "create_kerber_vorstadtnetz_kabel_1",
    "create_kerber_landnetz_kabel_1",
    "example_simple",
    "create_synthetic_voltage_control_lv_network",
    "ucte",
)
DEVICES = ("svc", "ssc", "tcsc", "vsc", "vsc_stacked", "vsc_bipolar")
REFUSED = (*DEVICES, "impedance by direction")
# tables that change nothing in a balanced power flow of the alternating-current side
NOTED = ("measurement", "controller", "group", "bus_dc", "line_dc", "source_dc", "load_dc", "tcsc out of service")
TWINS = ("case14", "case39")
POWER_MVA = 1e-7  # the recorded flows stop at 1e-9 MVA, and products with admittances of 1e5 pu round
TWIN_PU = 1e-12  # relative to the largest admittance: per unit to ohm and back


@pytest.fixture
def convert(monkeypatch):
    return converter(monkeypatch)


@pytest.fixture
def writer(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandapower", PandapowerWriter())


def admittances(case: Case) -> np.ndarray:
    """Bus admittance matrix, (N, N) complex [pu], written out branch by branch."""
    branch, n = case.branch, case.n_bus
    y = np.zeros((n, n), complex)
    rows = zip(case.positions(branch.from_id), case.positions(branch.to_id), range(case.n_branch), strict=True)
    for f, t, k in rows:
        if branch.in_service[k]:
            series = 1 / complex(branch.r_pu[k], branch.x_pu[k])
            ratio = branch.tap[k] * np.exp(1j * np.deg2rad(branch.shift_deg[k]))
            own = series + 0.5j * branch.b_pu[k]
            y[f, f] += own / abs(ratio) ** 2
            y[t, t] += own
            y[f, t] -= series / np.conj(ratio)
            y[t, f] -= series / ratio
    return y + np.diag((case.bus.gs_mw + 1j * case.bus.bs_mvar) / case.base_mva)


def mismatch_mva(case: Case, v: np.ndarray) -> tuple[float, float]:
    """Largest violation of the power balance: active at all buses but the reference, reactive at load buses."""
    s = v * np.conj(admittances(case) @ v) * case.base_mva
    given = np.bincount(case.positions(case.unit.bus_id), case.unit.p_mw, minlength=case.n_bus) - case.p_load_mw
    kind = case.bus.kind
    return np.abs(s.real - given)[kind != 3].max(), np.abs(s.imag + case.q_load_mvar)[kind == 1].max()


@pytest.mark.parametrize("name", list_cases())
def test_every_shipped_case_survives_a_matpower_file(name, tmp_path):
    case = load_case(name)
    path = tmp_path / f"{name}.m"
    to_matpower(case, path)
    ours, back = to_arrays(case), to_arrays(from_matpower(path))
    assert ours.keys() == back.keys()
    for key, value in ours.items():
        assert back[key].dtype == value.dtype and np.array_equal(back[key], value), key


def test_awkward_values_survive_a_matpower_file(tmp_path):
    case = load_case("case5")
    unit = dataclasses.replace(case.unit, q_max_mvar=[np.inf, 0.1 + 0.2, 1e-17, 1e22, 5], p_mw=[-0.0, 1 / 3, 2, 3, 4])
    case = dataclasses.replace(case, name="odd", base_mva=50 / 3, unit=unit, citation="")
    to_matpower(case, tmp_path / "odd.m")
    back = from_matpower(tmp_path / "odd.m")
    assert back.base_mva == case.base_mva and back.citation == ""
    np.testing.assert_array_equal(back.unit.q_max_mvar, unit.q_max_mvar)
    np.testing.assert_array_equal(np.signbit(back.unit.p_mw), np.signbit(unit.p_mw))


def test_loads_at_one_bus_are_written_as_their_sum(tmp_path):
    case = load_case("case5")
    twice = dataclasses.replace(case.load, bus_id=[2, 2], p_mw=[1.0, 2.0], q_mvar=[0.5, 0.25])
    to_matpower(dataclasses.replace(case, load=twice), tmp_path / "sum.m")
    load = from_matpower(tmp_path / "sum.m").load
    assert (load.bus_id.tolist(), load.p_mw.tolist(), load.q_mvar.tolist()) == ([2], [3.0], [0.75])


def test_a_bus_number_below_one_is_refused_for_writing(tmp_path):
    case = load_case("case5")
    zero = dataclasses.replace(case, bus=dataclasses.replace(case.bus, id=case.bus.id - 1))
    with pytest.raises(CaseError, match=r"bus id 0 cannot be written.*Renumber"):
        to_matpower(zero, tmp_path / "zero.m")


def test_a_missing_file_and_a_bad_case_are_named(tmp_path):
    with pytest.raises(DataMissing, match=r"nowhere\.m.*list_cases"):
        from_matpower(tmp_path / "nowhere.m")
    case = load_case("case5")
    negative = dataclasses.replace(case.branch, rate_a_mva=-case.branch.rate_a_mva - 1)
    to_matpower(dataclasses.replace(case, branch=negative), tmp_path / "bad.m")
    with pytest.raises(CaseError, match=r"bad has 1 problem[\s\S]*rate_a = -401"):
        from_matpower(tmp_path / "bad.m")


@pytest.mark.parametrize("name", NETS)
def test_a_converted_net_balances_at_the_voltages_pandapower_found(name, convert):
    """Lines, switches, transformers of two and three windings, iron losses, impedances, wards and shunts."""
    case = convert(name)
    assert max(mismatch_mva(case, voltages(name))) < POWER_MVA


@pytest.mark.parametrize("name", TWINS)
def test_a_converted_net_equals_its_matpower_twin(name, convert):
    ours, twin = convert(name), load_case(name)
    y = admittances(twin)
    assert np.abs(admittances(ours) - y).max() < TWIN_PU * np.abs(y).max()
    np.testing.assert_array_equal(ours.bus.id, twin.bus.id)
    np.testing.assert_allclose(ours.p_load_mw, twin.p_load_mw, rtol=1e-12)
    for column in ("v_max_pu", "v_min_pu"):
        np.testing.assert_array_equal(getattr(ours.bus, column), getattr(twin.bus, column))
    rank = [np.argsort(case.unit.bus_id, kind="stable") for case in (ours, twin)]
    for column in ("p_max_mw", "q_max_mvar", "q_min_mvar", "v_set_pu"):
        values = (getattr(case.unit, column)[at] for case, at in zip((ours, twin), rank, strict=True))
        np.testing.assert_array_equal(*values)


def test_losses_without_load_become_shunts_behind_the_tap(convert):
    """Half of the conductance of a branch stands at either end, seen through the ideal transformer of the from end."""
    plain, g = convert("case39"), np.linspace(0.01, 0.5, 46)
    lossy = convert("case39", branch_g=g, branch_g_asym=0.2 * g, branch_b_asym=0.1 * g)
    added = np.diag(admittances(lossy) - admittances(plain))
    expected = np.zeros(plain.n_bus, complex)
    ends = zip(plain.positions(plain.branch.from_id), plain.positions(plain.branch.to_id), strict=True)
    for k, (f, t) in enumerate(ends):
        expected[f] += g[k] / 2 / plain.branch.tap[k] ** 2
        expected[t] += (1.2 * g[k] + 0.1j * g[k]) / 2
    assert np.abs(plain.branch.tap - 1).max() > 0.05
    np.testing.assert_allclose(added, expected, rtol=1e-9, atol=1e-9)


def test_units_without_a_limit_are_unlimited_and_buses_without_a_band_free(convert):
    case = convert("create_cigre_network_mv")
    assert case.unit.p_max_mw.tolist() == [np.inf] and case.unit.p_min_mw.tolist() == [-np.inf]
    assert set(case.bus.v_max_pu) == {2.0} and set(case.bus.v_min_pu) == {0.0}
    assert len(set(case.bus.id)) == case.n_bus and case.bus.id.min() == 1


def test_every_element_table_of_pandapower_is_tried():
    """An empty net of pandapower 3.5.6 has 33 of them; the name of a small net begins with its table."""
    tried = {name.split()[0] for name in SMALL["nets"]}
    assert len(SMALL["tables"]) == 33 and tried == set(SMALL["tables"])


def test_every_element_table_is_represented_noted_or_refused(convert):
    outcome = {}
    for name, parts in SMALL["nets"].items():
        table = name.split()[0]
        if name in REFUSED:
            with pytest.raises(CaseError, match=r"in service: " + name if name in DEVICES else r"bus 3 -> 5"):
                convert(name)
            outcome[name] = "refused"
            continue
        case = convert(name)
        if name in NOTED:
            assert any(table in note for note in case.notes), name
            outcome[name] = "noted"
        if "v" in parts:
            assert max(mismatch_mva(case, voltages(name))) < POWER_MVA, name
            outcome.setdefault(name, "represented")
    assert outcome.keys() == SMALL["nets"].keys()


def test_what_a_case_holds_only_in_part_is_noted(convert):
    for name, words in {
        "load": "voltage dependence of loads",
        "storage": "how much energy they hold",
        "asymmetric_load": "sum of their phases",
        "dcline": "two units of fixed power",
        "bus dead island": "bus 7, 8 (index + 1), which no reference supplies",
        "poly_cost": "cost of dcline 0",
    }.items():
        case = convert(name)
        assert any(words in note for note in case.notes), name
        assert any(words in problem.message for problem in validate(case)), name
    assert "cost of sgen 0" in " ".join(convert("poly_cost").notes)


def test_an_unknown_table_of_a_net_is_noted(convert):
    mine = Frame({"index": [0, 1], "bus": [1, 2]})
    assert convert("case14", net={"heat_pump": mine}).notes == ("heat_pump of the net is not represented (rows: 2)",)


@pytest.mark.parametrize(
    ("name", "at_to", "at_from"), [("dcline", 0.988 - 0.01, -1.0), ("dcline back", -0.8, 0.8 * 0.988 - 0.01)]
)
def test_a_dc_line_sends_what_is_scheduled_and_delivers_it_less_its_losses(name, at_to, at_from, convert):
    """1.2 % and 0.01 MW: of 1 MW to the to end, and of 0.8 MW back from it."""
    case = convert(name)
    assert case.unit.p_mw[-2:].tolist() == pytest.approx([at_to, at_from])
    np.testing.assert_array_equal(case.unit.p_min_mw[-2:], case.unit.p_max_mw[-2:])
    assert case.bus.kind[case.positions(case.unit.bus_id[-2:])].tolist() == [2, 2]


def test_ratings_are_those_by_which_pandapower_measures_a_loading(monkeypatch):
    """Of lines and transformers of two and three windings, in parallel, derated, with and without a limit of loading.

    pandapower's loading is the current at the more loaded end; its limit scales our rating and not that loading.
    """
    for name in ("line", "line rated", "trafo3w"):
        study, rows = converter(monkeypatch, lambda net: (run_power_flow(net), convert_with_rows(net, opf=False)[1]))(
            name
        )
        rate, v = study.case.branch.rate_a_mva, study.elements["res_bus"]["v_pu"]
        for table, known in SMALL["nets"][name]["seen"]["loading"].items():
            given, flows = SMALL["nets"][name]["seen"]["tables"][table], study.elements[f"res_{table}"]
            kinds = WINDINGS if table == "trafo3w" else (table,) * 2
            percent = []
            for kind, end in zip(kinds, ENDS[table], strict=True):
                size = np.hypot(flows[f"p_{end}_mw"], flows[f"q_{end}_mvar"]) / v[given[f"{end}_bus"]]
                percent.append(100 * size / rate[rows.branch[kind][1]])
            limit = np.array(given.get("max_loading_percent", [np.nan] * len(known)), float) / 100
            ours = np.nan_to_num(np.max(percent, axis=0)) * np.where(np.isnan(limit), 1.0, limit)
            np.testing.assert_allclose(ours, known, atol=1e-6, err_msg=f"{name}: {table}")


def test_a_rating_that_the_net_does_not_give_is_none(convert):
    """99999 kA is what pandapower writes for none, and 100 MVA what it fills in."""
    written = convert("written_case14", net={"powerzoo_case": None})
    assert set(written.branch.rate_a_mva) == {0.0}
    assert convert("case39").branch.rate_a_mva.min() > 0


def test_an_external_grid_has_the_limits_that_the_net_gives_and_no_others(convert):
    """`to_ppc` gives it reactive limits of [0, 0] in a power flow."""
    for name in ("line", "create_cigre_network_mv", "example_multivoltage"):
        unit = convert(name).unit
        for column, none in (("q_min_mvar", -np.inf), ("q_max_mvar", np.inf), ("p_min_mw", -np.inf)):
            assert getattr(unit, column)[0] == none, (name, column)
    unit = convert("ext_grid costs").unit
    assert unit.q_max_mvar[:2].tolist() == [50.0, np.inf] and unit.p_max_mw[:2].tolist() == [60.0, np.inf]
    assert unit.q_min_mvar[:2].tolist() == [-50.0, -50.0] and unit.p_min_mw[:2].tolist() == [-60.0, -60.0]


def test_what_an_optimum_moves_is_a_unit_of_its_power_fed_in(convert):
    """A load of P MW and 7 - 40 P + P^2 is a unit of -P and [1, 40, 7]; so is a storage."""
    case = convert("poly_cost moved")
    unit, cost = case.unit, case.unit.cost
    assert cost[:, :3].tolist() == [[0.1, 30, 2], [0.9, 31, 1], [0.5, 33, 5], [1, 40, 7], [2, 33, 3]]
    assert unit.p_mw[2:].tolist() == [0.6, -1.5, -0.4] and unit.bus_id[2:].tolist() == [3, 6, 5]
    for column, values in (
        *(("p_min_mw", [0.0, -2.5, -2.5]), ("p_max_mw", [1.1, 0.5, 0.5])),
        *(("q_min_mvar", [-0.3, -0.6, -0.6]), ("q_max_mvar", [0.3, 0.2, 0.2])),
    ):
        assert getattr(unit, column)[2:].tolist() == values, column
    assert case.p_load_mw.sum() == pytest.approx(3.0 + 1.2 * 0.5 - 0.5)  # and what is not moved stays a load
    whole = convert("poly_cost moved", opf=False)
    assert whole.n_unit == 2, "a power flow has no use for it"


def test_segments_of_a_cost_are_mirrored_with_their_load(convert):
    """The load costs -45 a MW to 1 MW, -31 to 1.7, -20 to 2.5; 0 costs nothing along the first segment."""
    unit = convert("pwl_cost moved").unit
    assert unit.cost_model.tolist() == [2, 1, 1, 1, 1] and unit.cost_terms.tolist() == [2, 4, 3, 4, 4]
    np.testing.assert_allclose(unit.cost[3], [-2.5, -82.7, -1.7, -66.7, -1.0, -45.0, 0.5, 22.5])
    np.testing.assert_allclose(unit.cost[2, :6], [0.0, 0.0, 0.7, 20.3, 1.1, 36.3])


@pytest.mark.full
@pytest.mark.parametrize("name", ["ext_grid costs", "gen held", "poly_cost moved", "pwl_cost moved"])
def test_an_optimum_is_that_of_runopp(name, monkeypatch):
    """Cost to 1e-5 of it, which is where `runopp` stops; voltages that it holds, and outputs, to 0.01 MW.

    Constants of mirrored segments differ, so their cost is not compared.
    """
    known = SMALL["nets"][name]["seen"]["optimum"]
    study = converter(monkeypatch, lambda net: run_power_flow(net, opf=True))(name)
    if name != "pwl_cost moved":
        assert study.cost_usd_per_h == pytest.approx(known["cost"], rel=1e-5)
    for table in ("ext_grid", "gen"):
        np.testing.assert_allclose(study.elements[f"res_{table}"]["p_mw"], known[table], atol=0.01, err_msg=table)
    held = {"ext_grid costs": [0, 2], "gen held": [0, 4]}.get(name, [])
    assert [bus - 1 for bus in study.case.held] == held
    v = study.elements["res_bus"]["v_pu"]
    np.testing.assert_allclose(v[held], np.array(known["v"])[held], atol=1e-7)
    assert study.violations == ()


def test_an_ac_opf_holds_the_voltages_that_its_case_holds(convert):
    """External grid 0 at 1.02 pu, generator 0 at 1.01 pu; the band of generator 1, which is moved, is the bus's."""
    case = convert("gen held")
    assert case.held == (1, 5) and from_arrays(to_arrays(case)).held == case.held
    factors = prepare_ac_opf(case)
    order = np.asarray(factors.layout.plan.bus_at)
    low, high = (np.exp(np.asarray(w)[np.argsort(order)]) for w in (factors.main.w_min, factors.main.w_max))
    np.testing.assert_allclose(low, [1.02, 0.94, 0.94, 0.94, 1.01, 0.94], rtol=1e-6)
    np.testing.assert_allclose(high, [1.02, 1.06, 1.06, 1.06, 1.01, 1.06], rtol=1e-6)
    assert case.unit.p_min_mw.tolist() == [-60.0, 1.5, 0.0] and case.unit.p_max_mw.tolist() == [60.0, 1.5, 3.0]


def test_what_a_case_holds_is_written_to_a_net(convert, writer):
    case = dataclasses.replace(load_case("case14"), held=(1,))
    assert to_pandapower(case)["ext_grid"]["controllable"].tolist() == [False]
    assert from_pandapower(to_pandapower(case)).held == (1,)
    assert to_pandapower(load_case("case14"))["ext_grid"]["controllable"].tolist() == [True]


def test_costs_change_nothing_in_a_power_flow(monkeypatch):
    """Two external grids in one island hold both angles, whatever an optimum would do with the second."""
    study = converter(monkeypatch, run_power_flow)("ext_grid costs")
    known = SMALL["nets"]["ext_grid costs"]["seen"]["results"]["res_ext_grid"]["p_mw"]
    np.testing.assert_allclose(study.elements["res_ext_grid"]["p_mw"], known, atol=1e-6)
    case = converter(monkeypatch)("ext_grid costs")
    assert case.slack_bus.tolist() == [0, 2] and case.unit.cost[:, 0].tolist() == [30.0, 30.5, 0.0]


def test_what_an_optimum_does_in_its_own_way_is_noted(convert):
    told = " | ".join(convert("ext_grid costs", opf=True).notes)
    assert "frees the angle of bus 3" in told and "units at bus 3 lack a limit of active power" in told
    told = " | ".join(convert("line", opf=True).notes)
    assert "no costs: the optimum is the least output" in told and "bus 1, 2, 3, 4, 5 and 1 more lacks" in told
    assert "line 0, line 1, line 2, line 3, line 4 and 2 more without max_loading_percent" in told
    assert convert("line").notes == ()


def test_costs_without_a_unit_and_repeated_ones_are_said(convert):
    poly = SMALL["nets"]["gen held"]["seen"]["tables"]["poly_cost"]
    points = {"index": [0], "et": ["gen"], "element": [7], "power_type": ["q"], "points": [[[0, 1, 2]]]}

    def read(key: str, columns: dict[str, Any], **changes: Any) -> str:
        return " | ".join(convert("gen held", net={key: Frame(columns | changes)}).notes)

    assert read("poly_cost", poly, cq2_eur_per_mvar2=[0.01, 0.0, 0.0]) == ""
    for power in "pq":
        told = read("pwl_cost", points, power_type=[power])
        assert told == "the cost of gen 7, which the case does not dispatch, is not represented"
    with pytest.raises(CaseError, match=r"gen 1 of the net has several costs"):
        read("poly_cost", poly, element=[0, 1, 1])
    with pytest.raises(CaseError, match=r"cost of gen 0 has segments that do not follow"):
        gap = Frame(points | {"power_type": ["p"], "element": [0], "points": [[[0, 1, 2], [2.5, 3, 4]]]})
        convert("pwl_cost", net={"pwl_cost": gap})


def test_reactive_costs_have_the_sign_of_their_element(convert):
    """The load pays 3 - 5 Q + 2 Q^2 for Q Mvar drawn, which is [2, 5, 3] of -Q; a cost in segments stands beside it."""
    poly = SMALL["nets"]["poly_cost moved"]["seen"]["tables"]["poly_cost"]
    rows = range(len(poly["et"]))
    k = next(row for row in rows if poly["et"][row] == "load")
    given = {"cq0_eur": 3.0, "cq1_eur_per_mvar": -5.0, "cq2_eur_per_mvar2": 2.0}
    changed = poly | {name: [value * (row == k) for row in rows] for name, value in given.items()}
    segments = {
        "index": [0],
        "et": ["storage"],
        "element": [0],
        "power_type": ["q"],
        "points": [[[0, 1, 7], [1, 2, 9]]],
    }
    unit = convert("poly_cost moved", net={"poly_cost": Frame(changed), "pwl_cost": Frame(segments)}).unit
    assert unit.q_cost[3, :3].tolist() == [2.0, 5.0, 3.0] and unit.q_cost_model[3:].tolist() == [2, 1]
    assert unit.q_cost[4, :6].tolist() == [-2.0, 16.0, -1.0, 7.0, 0.0, 0.0]
    assert unit.cost[3, :3].tolist() == [1.0, 40.0, 7.0] and not unit.q_cost[:3].any()


def test_what_to_ppc_would_change_is_made_ready_for_it():
    """`to_ppc` clips sgens at limits that a power flow does not enforce; those that an optimum moves keep theirs."""
    table = SMALL["nets"]["poly_cost"]["seen"]["tables"]["sgen"]
    net = {"sgen": Frame(table)}
    assert take_out(net) == {}
    make_ready(net)
    assert np.isnan(net["sgen"]["min_q_mvar"]).all() and np.isnan(net["sgen"]["max_q_mvar"]).all()
    moved = {"sgen": Frame(table | {"controllable": [True]})}
    assert take_out(moved)["sgen"].tolist() == [0]
    make_ready(moved)
    assert moved["sgen"]["max_q_mvar"].tolist() == [0.1] and not moved["sgen"]["in_service"].any()


def test_a_net_that_pandapower_refuses_is_a_case_error(convert, monkeypatch):
    convert("case14")

    def refuse(*_: Any, **__: Any) -> None:
        raise KeyError("controllable")

    monkeypatch.setattr(sys.modules["pandapower.converter.pypower.to_ppc"], "to_ppc", refuse)
    with pytest.raises(CaseError, match=r"cannot convert 'mine'.*controllable.*diagnostic"):
        from_pandapower({"name": "mine"})


def test_without_pandapower_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandapower", None)
    with pytest.raises(ImportError, match=r"powerzoo-jax\[pandapower\]"):
        from_pandapower({})


@pytest.mark.parametrize("name", ["case29gb", "case2224gb"])
def test_the_british_cases_balance_at_the_voltages_pandapower_found(name):
    case = load_case(name)
    lines = {"case29gb": 86, "case2224gb": 1557}[name]
    idle = case.branch.b_pu.copy()
    idle[lines:] = 0.0  # recorded without the no-load currents of transformers
    case = dataclasses.replace(case, branch=dataclasses.replace(case.branch, b_pu=idle))
    assert max(mismatch_mva(case, voltages(name))) < POWER_MVA


@pytest.mark.parametrize("name", WRITTEN)
def test_a_written_net_has_the_tables_that_pandapower_was_recorded_with(name, writer):
    net = to_pandapower(load_case(name))
    for table, columns in WRITTEN[name].items():
        for column, values in columns.items():
            ours = net[table].index if column == "index" else net[table][column]
            expected = np.array([np.nan if value is None else value for value in values])
            np.testing.assert_array_equal(ours, expected, err_msg=f"{table} {column}")
    assert set(WRITTEN[name]) == {key for key, table in net.items() if isinstance(table, Frame)}


@pytest.mark.reference
@pytest.mark.parametrize("name", WRITTEN)
def test_a_written_net_is_the_network_that_it_was_made_from(name, convert):
    """As pandapower converts and solves it, which goes through ohm and percent."""
    case, back = load_case(name), convert(f"written_{name}")
    y = admittances(case)
    assert np.abs(admittances(back) - y).max() < TWIN_PU * np.abs(y).max()
    assert max(mismatch_mva(case, voltages(f"written_{name}"))) < POWER_MVA
    for part, columns in {
        "bus": ("id", "kind", "base_kv", "v_max_pu", "v_min_pu"),
        "load": ("bus_id", "p_mw", "q_mvar"),
    }.items():
        for column in columns:
            ours, theirs = (getattr(getattr(c, part), column) for c in (case, back))
            if column != "base_kv" or ours.all():
                # pandapower adds loads up over all buses and takes differences
                np.testing.assert_allclose(ours, theirs, rtol=1e-12, err_msg=column)
    rank = [np.lexsort((c.unit.cost[:, 0], c.unit.p_max_mw, c.unit.bus_id)) for c in (case, back)]
    for column in ("bus_id", "p_max_mw", "p_min_mw", "q_max_mvar", "q_min_mvar", "v_set_pu", "cost"):
        ours, theirs = (getattr(c.unit, column)[at] for c, at in zip((case, back), rank, strict=True))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, err_msg=column)


@pytest.mark.parametrize("name", ["case5", "case14", "case24_ieee_rts", "case33bw", "case300", "case_rts_gmlc"])
def test_a_net_that_nobody_has_changed_gives_its_case_back_number_by_number(name, writer):
    case = load_case(name)
    net = to_pandapower(case)
    ours, back = to_arrays(case), to_arrays(from_pandapower(net))
    assert ours.keys() == back.keys()
    for key, value in ours.items():
        assert back[key].dtype == value.dtype and np.array_equal(back[key], value), key
    assert from_pandapower(net, "mine").name == "mine"


@pytest.mark.parametrize("change", ["load", "line", "base", "table"])
def test_a_net_that_was_changed_is_converted_anew(change, writer):
    net = to_pandapower(load_case("case14"))
    if change == "load":
        net["load"]["p_mw"][0] += 1e-9
    elif change == "line":
        net["line"]["in_service"][3] = False
    elif change == "base":
        net["sn_mva"] = 1.0
    else:
        net["storage"] = Frame({"index": [0], "bus": [2]})
    with pytest.raises(ModuleNotFoundError, match="pandapower"):  # it is asked for its conversion
        try:
            from_pandapower(net)
        except ImportError as err:
            raise err.__cause__ from None


def test_what_a_net_cannot_hold_is_refused_by_name(writer):
    case = load_case("case5")
    zero = dataclasses.replace(case, bus=dataclasses.replace(case.bus, id=case.bus.id - 1))
    low = {
        table: dataclasses.replace(getattr(case, table), **{c: getattr(getattr(case, table), c) - 1 for c in columns})
        for table, columns in (("branch", ("from_id", "to_id")), ("unit", ("bus_id",)), ("load", ("bus_id",)))
    }
    with pytest.raises(CaseError, match=r"bus id 0 cannot be written: pandapower's index is the id less 1"):
        to_pandapower(dataclasses.replace(zero, **low))
    cubic = np.zeros((5, 4))
    cubic[1, 0] = 1e-3
    unit = dataclasses.replace(case.unit, cost=cubic, cost_model=np.full(5, 2), cost_terms=np.full(5, 4))
    with pytest.raises(CaseError, match=r"unit 2 has a cost of more than 3 terms"):
        to_pandapower(dataclasses.replace(case, unit=unit))


def test_writing_without_pandapower_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandapower", None)
    with pytest.raises(ImportError, match=r"to_pandapower.*powerzoo-jax\[pandapower\]"):
        to_pandapower(load_case("case5"))
