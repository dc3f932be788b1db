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
from powerzoo_jax.cases.library import to_arrays
from powerzoo_jax.cases.readers.pandapower.tables import make_ready
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


def test_a_rating_that_the_net_does_not_give_is_none(convert):
    """pandapower fills in 100 MVA."""
    assert set(convert("line").branch.rate_a_mva) == {0.0}
    assert convert("case39").branch.rate_a_mva.min() > 0


def test_what_to_ppc_would_change_is_made_ready_for_it():
    """`to_ppc` clips sgens at limits that a power flow does not enforce, and gives costs of DC lines to a generator."""
    tables = SMALL["nets"]["poly_cost"]["seen"]["tables"]
    net = {key: Frame(tables[key]) for key in ("sgen", "poly_cost")}
    make_ready(net)
    assert np.isnan(net["sgen"]["min_q_mvar"]).all() and np.isnan(net["sgen"]["max_q_mvar"]).all()
    assert net["poly_cost"]["et"].tolist() == ["ext_grid", "gen", "sgen"]
    moved = {"sgen": Frame(tables["sgen"] | {"controllable": [True]}), "poly_cost": net["poly_cost"]}
    make_ready(moved)
    assert moved["sgen"]["max_q_mvar"].tolist() == [0.1]


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
