"""The reader of case files: traps that real files contain, and refusals that name their line."""

from __future__ import annotations

import math

import numpy as np
import pytest

from powerzoo_jax.base.errors import CaseError, DataMissing
from powerzoo_jax.cases import read_matpower, validate
from powerzoo_jax.cases.readers.matpower import ExpressionError, evaluate

EXACT = dict(rtol=1e-14, atol=0.0)  # own arithmetic in float64, a few operations

BUS = """mpc.bus = [ 1 3 0 0 0 0 1 1 0 135/sqrt(3) 1 1.05 0.95; % the first row stands behind the bracket
    2, 1, 100, 60, 0, 0, 1, 1, 0, 10*2 + 1e-3*2, 1, 1.1, 0.9
    3\t1\t90\t40 0 -5 1 1 ...
      0 20 1 1.1 0.9;
];
"""
UNIT = "mpc.gen = [1 0 0 Inf -Inf 1 100 1 10 0 0 0 0 0 0 0 0 0 0 0 0];\n"
BRANCH = """mpc.branch = [
    1 2 0.5 1 0 0 0 0 0 0 1 -360 360;
    2 3 0.5 1 0 7 0 0 0.98 30 0 0 0;
];
"""
COST = "mpc.gencost = [2 0 0 3 0 20 0 99];\n"
BASE = "mpc.baseMVA = 50/3;\n"
HEAD = "function mpc = small\n%SMALL  Three buses\n%   A. Author's paper\n\n%% MATPOWER Case Format : Version 2\n"
SMALL = HEAD + "mpc.version = '2';\n" + BASE + BUS + UNIT + BRANCH + COST
UNITS = """[PQ, PV, REF, NONE, BUS_I, BUS_TYPE, PD, QD, GS, BS, BUS_AREA, VM, ...
    VA, BASE_KV] = idx_bus;
[F_BUS, T_BUS, BR_R, BR_X] = idx_brch;
Vbase = mpc.bus(2, BASE_KV) * 1e3;  %% in Volts
Sbase = mpc.baseMVA * 1e6;
mpc.branch(:, [BR_R BR_X]) = mpc.branch(:, [BR_R BR_X]) / (Vbase^2 / Sbase);
mpc.bus(:, [PD, QD]) = mpc.bus(:, [PD, QD]) / 1e3;
"""


def test_a_row_behind_the_opening_bracket_is_read():
    case = read_matpower(SMALL)
    assert case.bus.id.tolist() == [1, 2, 3]
    assert case.slack_bus.tolist() == [0]


def test_formulas_in_cells_are_computed():
    case = read_matpower(SMALL)
    np.testing.assert_allclose(case.bus.base_kv, [135 / math.sqrt(3), 20.002, 20.0], **EXACT)
    assert case.base_mva == 50 / 3


def test_infinite_limits_are_kept():
    case = read_matpower(SMALL)
    assert case.unit.q_max_mvar[0] == math.inf and case.unit.q_min_mvar[0] == -math.inf
    assert not any(p.component == "unit" for p in validate(case))


def test_zero_tap_becomes_one_and_zero_angle_limits_become_none():
    case = read_matpower(SMALL)
    assert case.branch.tap.tolist() == [1.0, 0.98]
    assert case.branch.angle_min_deg.tolist() == [-360.0, -360.0]
    assert case.branch.in_service.tolist() == [True, False]


def test_loads_are_the_rows_with_demand():
    case = read_matpower(SMALL)
    assert case.load.bus_id.tolist() == [2, 3]
    assert case.p_load_mw.tolist() == [0.0, 100.0, 90.0]
    assert case.q_load_mvar.tolist() == [0.0, 60.0, 40.0]


def test_cost_filler_behind_the_terms_is_dropped():
    case = read_matpower(SMALL)
    assert case.unit.cost.tolist() == [[0.0, 20.0, 0.0]]
    assert case.unit.cost_model.tolist() == [2] and case.unit.cost_terms.tolist() == [3]


def test_citation_is_the_comment_below_the_function_line():
    assert read_matpower(SMALL).citation == "SMALL  Three buses\nA. Author's paper"


def test_trailing_code_converts_ohm_and_kilowatt():
    plain, converted = read_matpower(SMALL), read_matpower(SMALL + UNITS)
    z_base = 20.002e3**2 / (50e6 / 3)
    np.testing.assert_allclose(converted.branch.x_pu, plain.branch.x_pu / z_base, **EXACT)
    np.testing.assert_allclose(converted.load.p_mw, plain.load.p_mw / 1e3, **EXACT)


def test_trailing_code_splits_apparent_power_by_power_factor():
    code = UNITS + "pf = 0.85;\nmpc.bus(:, QD) = mpc.bus(:, PD) * sin(acos(pf));\nmpc.bus(:, PD) = mpc.bus(:, PD) * pf;"
    case = read_matpower(SMALL + code)
    np.testing.assert_allclose(case.load.p_mw, [0.085, 0.0765], **EXACT)
    np.testing.assert_allclose(np.hypot(case.load.p_mw, case.load.q_mvar), [0.1, 0.09], **EXACT)


def test_a_branch_of_code_that_is_not_taken_is_skipped():
    code = "fixed = 0;\nif fixed\n  k = find(isinf(mpc.gen(:, QMIN)));\nend\nmpc.gen(1, 9) = 12;\n"
    assert read_matpower(SMALL + code).unit.p_max_mw.tolist() == [12.0]


def test_records_that_cannot_be_represented_are_noted_and_warned_about():
    case = read_matpower(SMALL + "mpc.dcline = [1 2 1 10 9 0 0 1 1 0 10 0 0 0 0 0 0];")
    assert any("dcline" in note for note in case.notes)
    assert any("dcline" in p.message and p.severity == "warning" for p in validate(case))


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (SMALL + "mpc.bus(:, 3) = scale(mpc.bus(:, 3));", ["line 19", "scale", "not in the subset"]),
        (SMALL + "mpc = convert(mpc);", ["line 19", "convert"]),
        (SMALL + "mpc.feeder = [1 2];", ["line 19", "'feeder' is not known"]),
        (SMALL + "mpc.bus(9, 3) = 1;", ["line 19", "outside 1..3"]),
        (SMALL + "if 0\n mpc.bus(1, 3) = 1;\nelse\n mpc.bus(1, 3) = 2;\nend", ["line 21", "else"]),
        (SMALL + "if 0\n mpc.bus(1, 3) = 1;\n", ["no `end`"]),
        (SMALL.replace("'2'", "'1'"), ["line 6", "version 2"]),
        (SMALL.replace(UNIT, ""), ["mpc.gen is missing", "Add"]),
        (SMALL.replace(BASE, ""), ["mpc.baseMVA is missing"]),
        (SMALL.replace("2 3 0.5 1 0 7", "2 3 0.5 1 7"), ["line 16 has 12", "most have 13"]),
        (SMALL.replace("2 3 0.5 1 0 7", "2 3 abc 1 0 7"), ["line 16", "'abc' is not defined"]),
        (SMALL.replace("];\nmpc.gen", "\nmpc.gen", 1), ["broken has 1 problem", "'bus' is never closed", "];"]),
        (SMALL.replace("    2, 1,", "    2.5, 1,"), ["row 2", "whole numbers", "2.5"]),
        (SMALL.replace("[2 0 0 3 0", "[2 0 0 9 0"), ["gencost", "n 9"]),
        (SMALL.replace("50/3", "50/0"), ["line 7", "cannot be computed"]),
        ("", ["mpc.bus is missing", "mpc.gen is missing", "mpc.branch is missing"]),
        ("\x00\x01 garbage = \n" * 300, ["mpc.bus is missing", "and 9 more"]),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_line_and_remedy(broken, words):
    with pytest.raises(CaseError) as caught:
        read_matpower(broken, "broken")
    for word in words:
        assert word in str(caught.value)
    assert len(str(caught.value)) < 6000


def test_all_problems_of_a_file_come_in_one_error():
    broken = SMALL.replace("0.5 1 0 7", "abc 1 0 7").replace(BASE, "") + "x = unknown_call(1);\n"
    with pytest.raises(CaseError, match="3 problem") as caught:
        read_matpower(broken)
    for word in ("abc", "baseMVA", "unknown_call"):
        assert word in str(caught.value)


def test_a_path_and_its_text_give_the_same_case(tmp_path):
    path = tmp_path / "mine.m"
    path.write_text(SMALL, encoding="utf-8")
    case = read_matpower(path)
    assert case.name == "mine"
    np.testing.assert_array_equal(case.bus.base_kv, read_matpower(SMALL).bus.base_kv)


def test_a_missing_file_is_named():
    with pytest.raises(DataMissing, match=r"nowhere\.m"):
        read_matpower("nowhere.m")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3*2", 2e-3),
        ("-2^2", -4.0),
        ("2^-1", 0.5),
        ("sin(acos(0.85))", math.sqrt(1 - 0.85**2)),
        ("pi/2", math.pi / 2),
        ("-Inf", -math.inf),
        ("1./4", 0.25),
    ],
)
def test_expressions_have_the_value_matlab_gives(text, value):
    assert float(evaluate(text)) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "().__class__",
        "a.b",
        "[1, 2]",
        "1 if 1 else 2",
        "2^3^2",
        "'1'",
        "3j",
        "sqrt(-1)",
        "",
        "1_000",
        "2*1_0",
    ],
)
def test_expressions_outside_the_subset_are_refused(text):
    with pytest.raises(ExpressionError):
        evaluate(text)


def test_spaces_separate_cells_as_matlab_does():
    row = "mpc.bus = [1 3 0 -5 1 - 1 ( 2 + 3 ) 1 1 0 10 * 2 1 1.1 .9];"
    case = read_matpower(HEAD + BASE + row + UNIT + "mpc.branch = [];")
    assert case.load.q_mvar.tolist() == [-5.0]
    assert case.bus.gs_mw.tolist() == [0.0] and case.bus.bs_mvar.tolist() == [5.0]
    assert case.bus.base_kv.tolist() == [20.0]


def test_a_formula_over_a_table_that_comes_later_is_refused_by_its_line():
    text = "mpc.version = '2';\nmpc.baseMVA = 1;\nmpc.bus = [1 3 0 0 0 0 1 1 0 20 1 1.1 0.9];\n"
    with pytest.raises(CaseError, match=r"line 4: .* is not understood: 'gen' is not defined at this point"):
        read_matpower(text + "mpc.bus(:, 3) = mpc.gen(:, 2) * 2;\nmpc.gen = [];\nmpc.branch = [];\n")
