"""The shipped cases: sizes, totals, names, and the round trip through npz."""

from __future__ import annotations

import dataclasses
import pickle
import re

import numpy as np
import pytest

from powerzoo_jax.base.errors import CaseError, DataMissing
from powerzoo_jax.base.npz import read_npz, write_npz
from powerzoo_jax.cases import list_cases, load_case, load_feeder, scan_grid, validate
from powerzoo_jax.cases.library import FOLDER, from_arrays, to_arrays
from powerzoo_jax.cases.topology import is_radial
from tools.builder import compare_npz, differences
from tools.cases import build_tables
from tools.pins import digest

# case: buses, units, branches, branches in service
SIZES = {
    "case5": (5, 5, 6, 6),
    "case9": (9, 3, 9, 9),
    "case14": (14, 5, 20, 20),
    "case24_ieee_rts": (24, 33, 38, 38),
    "case30": (30, 6, 41, 41),
    "case39": (39, 10, 46, 46),
    "case57": (57, 7, 80, 80),
    "case118": (118, 54, 186, 186),
    "case300": (300, 69, 411, 411),
    "case1354pegase": (1354, 260, 1991, 1991),
    "case2383wp": (2383, 327, 2896, 2896),
    "case33bw": (33, 1, 37, 32),
    "case69": (69, 1, 68, 68),
    "case118zh": (118, 1, 132, 117),
    "case141": (141, 1, 140, 140),
    "case533mt_hi": (533, 1, 577, 532),
    "case533mt_lo": (533, 1, 577, 532),
    "case_rts_gmlc": (73, 158, 120, 120),
    "case29gb": (29, 66, 99, 99),
    "case793gb": (793, 394, 1039, 1039),
    "case2224gb": (2224, 394, 3207, 3207),
    "pz_case5": (5, 5, 6, 6),
    "pz_case14": (14, 5, 20, 20),
    "pz_case118": (118, 54, 186, 186),
    "pz_case300": (300, 69, 411, 411),
}
# published totals, MW and Mvar, as printed
LOADS = {
    "case33bw": (3.7150, 2.3000),
    "case69": (3.8021, 2.6947),
    "case118zh": (22.7097, 17.0411),
    "case141": (11.9446, 7.4026),
    "case533mt_hi": (14.8735, 0.1487),
    "case533mt_lo": (-1.6127, -0.0161),
}
# totals of the transmission cases: load MW, and capacity MW where a source states it
TOTALS = {
    "case5": (1000.0, 1530.0),
    "case14": (259.0, 772.4),
    "case118": (4242.0, 9966.2),
    "case300": (23525.85, None),
    "case_rts_gmlc": (8550.0, None),
    "case29gb": (56325.86, None),
    "case793gb": (60077.56, None),
    "case2224gb": (60077.56, None),
}
# the only columns in which the variants differ from their base case
VARIANTS = {
    "pz_case5": "unit.p_min_mw",
    "pz_case14": "branch.rate_a_mva",
    "pz_case118": "branch.rate_a_mva",
    "pz_case300": "branch.rate_a_mva",
}
PRINTED = 5e-5  # half a unit in the fourth printed decimal


def test_the_required_cases_are_shipped():
    assert set(list_cases()) == set(SIZES) == set(build_tables.SHIPPED)


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_those_of_the_source(name):
    case = load_case(name)
    assert (case.n_bus, case.n_unit, case.n_branch, int(case.branch.in_service.sum())) == SIZES[name]


@pytest.mark.parametrize("name", LOADS)
def test_total_load_is_the_published_one(name):
    case = load_case(name)
    assert case.load.p_mw.sum() == pytest.approx(LOADS[name][0], abs=PRINTED)
    assert case.q_load_mvar.sum() == pytest.approx(LOADS[name][1], abs=PRINTED)


@pytest.mark.parametrize("name", TOTALS)
def test_totals_are_the_published_ones(name):
    case, (load, capacity) = load_case(name), TOTALS[name]
    assert case.load.p_mw.sum() == pytest.approx(load, rel=1e-12)
    assert capacity is None or case.unit.p_max_mw.sum() == pytest.approx(capacity, rel=1e-12)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_differs_in_one_column_only(name):
    ours, base = to_arrays(load_case(name)), to_arrays(load_case(name.removeprefix("pz_")))
    differing = {key for key in ours if not np.array_equal(ours[key], base[key])}
    assert differing - {"name", "citation"} == {VARIANTS[name]}


def test_the_variant_of_case5_has_the_contract_units():
    unit = load_case("pz_case5").unit
    assert unit.bus_id.tolist() == [1, 1, 3, 4, 5]
    assert unit.p_max_mw.tolist() == [40.0, 170.0, 520.0, 200.0, 600.0]
    assert unit.p_min_mw.tolist() == [5.0, 10.0, 20.0, 10.0, 20.0]
    assert unit.cost[:, 0].tolist() == [14.0, 15.0, 30.0, 40.0, 10.0]
    assert not load_case("case5").unit.p_min_mw.any()


def test_pglib_ratings_stand_at_their_branches():
    """Values as PGLib's own notes below its tables quote them."""
    branch = load_case("pz_case118").branch
    ends = list(zip(branch.from_id.tolist(), branch.to_id.tolist(), strict=True))
    quoted = {(1, 2): 151.0, (4, 5): 176.0, (3, 5): 175.0, (8, 9): 711.0, (8, 5): 1099.0, (9, 10): 710.0}
    assert {pair: branch.rate_a_mva[ends.index(pair)] for pair in quoted} == quoted
    for name in ("pz_case14", "pz_case118", "pz_case300"):
        assert np.all(load_case(name).branch.rate_a_mva > 0)


def test_marginal_costs_of_case118_start_at_20_or_40():
    unit = load_case("case118").unit
    assert set(unit.cost[:, 1]) == {20.0, 40.0} and np.all(unit.cost[:, 0] > 0)


@pytest.mark.parametrize("name", SIZES)
def test_every_shipped_case_is_free_of_errors_and_cites_its_source(name):
    case = load_case(name)
    assert [p for p in validate(case) if p.severity == "error"] == []
    assert case.name == name and len(case.citation) > 100


@pytest.mark.parametrize("name", SIZES)
def test_exactly_the_distribution_cases_are_radial(name):
    assert is_radial(load_case(name)) == (name in LOADS)


@pytest.mark.parametrize("name", SIZES)
def test_provenance_lists_every_table(name):
    assert f"`{name}.npz`" in (FOLDER / "PROVENANCE.md").read_text(encoding="utf-8")


def test_provenance_is_what_the_builder_writes():
    assert (FOLDER / "PROVENANCE.md").read_text(encoding="utf-8") == build_tables.provenance()


def test_builder_reports_a_changed_value_a_missing_and_a_stray_table(tmp_path):
    arrays = to_arrays(load_case("case9"))
    write_npz(tmp_path / "case9.npz", arrays)
    write_npz(tmp_path / "case_old.npz", arrays)
    built = {"case9": {**arrays, "base_mva": np.array(50.0)}, "case14": to_arrays(load_case("case14"))}
    lines = "\n".join(differences(tmp_path, built, ""))
    assert "base_mva differs" in lines and "case14.npz: not committed" in lines and "case_old.npz" in lines


@pytest.mark.parametrize("name", ["case33bw", "33bw", "Case33BW", " CASE33bw "])
def test_names_are_forgiving(name):
    assert load_case(name) is load_case("case33bw")


@pytest.mark.parametrize("name", ["pz_case118", "PZ_Case118"])
def test_variants_are_asked_for_by_their_full_name(name):
    assert load_case(name).name == "pz_case118"


def test_numbers_are_names():
    assert load_case(118) is load_case("118") is load_case("case118")


def test_an_unknown_name_gets_the_nearest_one():
    with pytest.raises(ValueError, match=r"Did you mean 'case33bw'\?"):
        load_case("case33bv")


def test_the_552_bus_case_is_refused_with_its_two_replacements():
    with pytest.raises(CaseError, match=r"case2224gb.*case793gb"):
        load_case("Case552GB")


def test_a_missing_file_is_named_with_a_remedy(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"mine\.m.*shipped name") as caught:
        load_case(tmp_path / "mine.m")
    assert isinstance(caught.value, DataMissing)


def test_a_file_with_errors_is_refused_by_name_of_the_bus(tmp_path):
    text = """mpc.baseMVA = 100;
    mpc.bus = [1 3 0 0 0 0 1 1 0 110 1 1.1 .9; 7 1 5 0 0 0 1 1 0 110 1 1.1 .9];
    mpc.gen = [1 0 0 9 -9 1 100 1 10 0];
    mpc.branch = [1 7 0 .1 0 0 0 0 0 0 0];
    """
    path = tmp_path / "mine.m"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CaseError, match=r"mine has 1 problem[\s\S]*bus 7: .*not connected.*Close a switch"):
        load_case(path)
    path.write_text(text.replace("0 0 0];", "0 0 1];"), encoding="utf-8")
    assert load_case(str(path)).n_branch == 1


def test_a_case_survives_npz_and_pickle(tmp_path):
    case = load_case("case30")
    arrays = to_arrays(case)
    write_npz(tmp_path / "case30.npz", arrays)
    for twin in (from_arrays(read_npz(tmp_path / "case30.npz")), pickle.loads(pickle.dumps(case))):
        again = to_arrays(twin)
        assert again.keys() == arrays.keys()
        for key, value in arrays.items():
            assert again[key].dtype == value.dtype
            np.testing.assert_array_equal(again[key], value)
        assert not twin.bus.id.flags.writeable


def test_tables_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        load_case("case5").branch.x_pu[0] = 1.0


def test_replace_changes_one_column_and_leaves_the_original():
    case = load_case("case5")
    louder = dataclasses.replace(case, load=dataclasses.replace(case.load, p_mw=2 * case.load.p_mw))
    assert louder.p_load_mw.sum() == 2 * case.p_load_mw.sum() == 2000.0


def test_columns_of_unequal_length_are_refused():
    load = load_case("case5").load
    with pytest.raises(CaseError, match="unequal lengths"):
        dataclasses.replace(load, p_mw=load.p_mw[:-1])


def test_npz_bytes_depend_on_content_alone(tmp_path):
    arrays = {"b": np.arange(3.0), "a": np.array("text"), "c": np.array([[1, 2], [3, 4]]).T}
    write_npz(tmp_path / "one.npz", arrays)
    write_npz(tmp_path / "two.npz", dict(reversed(arrays.items())))
    assert digest(tmp_path / "one.npz") == digest(tmp_path / "two.npz")
    assert compare_npz(tmp_path / "one.npz", arrays) == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.arange(3), "dtype"),
        (np.arange(4.0), "shape"),
        (np.array([0.0, 1.0, 5.0]), "1 of 3 values"),
        (np.array([-0.0, 1.0, 2.0]), "signed zeros"),
    ],
)
def test_npz_comparison_sees_dtype_shape_value_and_sign_of_zero(tmp_path, value, words):
    write_npz(tmp_path / "one.npz", {"b": np.arange(3.0)})
    assert words in compare_npz(tmp_path / "one.npz", {"b": value})[0]


def test_npz_refuses_objects(tmp_path):
    with pytest.raises(ValueError, match="Python objects"):
        write_npz(tmp_path / "one.npz", {"a": np.array([{}])})


def test_a_grid_of_another_format_is_told_its_way(tmp_path):
    for name, words in (
        ("a.dss", "three-phase feeder"),
        ("a.xml", "neither a .m nor a pandapower .json"),
    ):
        (tmp_path / name).write_text("New Circuit.a")
        with pytest.raises(CaseError, match=re.escape(words)):
            load_case(tmp_path / name)


def test_the_check_takes_a_case_and_a_feeder():
    case, feeder = load_case("case33bw"), load_feeder("case13")
    assert scan_grid(case) == ("case33bw", case, []) and scan_grid(feeder)[1] is feeder
