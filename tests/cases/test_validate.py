"""Rules for cases and graph questions about them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.cases import Case, assert_valid, list_cases, load_case, read_matpower, validate
from powerzoo_jax.cases.topology import incidence, is_radial, islands, radial_order, reachable_from_slack

EXPECTED = {  # what `validate` has to say about shipped cases, beside parallel circuits
    "case14": ["base_kv"],
    "pz_case14": ["base_kv"],
    "case57": ["base_kv"],
    "case118zh": ["load"],
    "case_rts_gmlc": ["notes"],
    "pz_case300": ["rate_a_mva"],
}


def changed(case: Case, table: str, column: str, row: int | slice, value: float) -> Case:
    """The case with one number changed."""
    old = getattr(case, table)
    values = getattr(old, column).copy()
    values[row] = value
    return dataclasses.replace(case, **{table: dataclasses.replace(old, **{column: values})})


ERRORS = [
    ("bus", "id", 1, 1, "more than once"),
    ("bus", "kind", 3, 1, "no bus is the reference"),
    ("bus", "kind", 0, 7, "the kind is 7"),
    ("bus", "v_min_pu", 2, 1.5, "v_min_pu > v_max_pu: 1.5 > 1.1"),
    ("branch", "to_id", 0, 99, "unknown bus 99"),
    ("branch", "x_pu", 0, np.nan, "x_pu is not a finite number"),
    ("branch", "tap", 4, -1.0, "tap = -1.0: 5 (bus 3 -> 4)"),
    ("branch", "rate_a_mva", 0, -3.0, "rate_a = -3.0 MVA"),
    ("branch", "from_id", 0, 2, "both ends are one bus"),
    ("unit", "bus_id", 0, 42, "unknown bus 42"),
    ("unit", "p_min_mw", 0, 900.0, "p_min_mw > p_max_mw"),
    ("unit", "q_min_mvar", 0, 900.0, "q_min_mvar > q_max_mvar"),
    ("unit", "p_max_mw", 0, np.nan, "p_max_mw is not a finite number"),
    ("unit", "v_set_pu", 0, 0.0, "v_set = 0.0 pu"),
    ("load", "bus_id", 0, 77, "unknown bus 77"),
    ("load", "p_mw", 0, np.inf, "p_mw is not a finite number"),
    ("load", "q_mvar", slice(None), np.nan, "q_mvar is not a finite number in 3 row(s)"),
]
WARNINGS = [
    ("bus", "kind", 0, 3, "buses 1, 4 are references of one island"),
    ("bus", "base_kv", 0, 0.0, "base_kv = 0.0 kV"),
    ("bus", "base_kv", 0, 230e3, "not in V"),
    ("bus", "v_max_pu", 0, 110.0, "v_max = 110.0 pu"),
    ("branch", "x_pu", 0, 28.1, "|z| above 10 pu"),
    ("branch", "r_pu", 3, -0.01, "three-winding"),
    ("branch", "b_pu", 0, 712.0, "not in microsiemens"),
    ("branch", "tap", 0, 110.0, "tap = 110.0"),
    ("branch", "shift_deg", 0, 330.0, "between -180 and 180"),
    ("branch", "rate_a_mva", slice(None), 9900.0, "of all branches = 9900.0 MVA looks like a placeholder"),
    ("branch", "rate_a_mva", 1, 99999.0, "rate_a = 99999.0 MVA looks like a placeholder"),
    ("unit", "in_service", 3, False, "the reference bus has no unit in service"),
    ("unit", "in_service", 4, False, "no unit in service holds the voltage of a PV bus"),
    ("unit", "v_set_pu", 1, 1.03, "set-points differ: 1.03 and 1 at bus 1"),
    ("unit", "p_max_mw", 0, 4e5, "p_max = 400000 MW"),
    ("unit", "p_max_mw", slice(None), 100.0, "the units have 500 MW"),
    ("load", "p_mw", 0, 3e5, "not in kW"),
    ("load", "q_mvar", 0, 9e3, "the loads draw 1000 MW"),
]


@pytest.mark.parametrize(("table", "column", "row", "value", "words"), ERRORS)
def test_an_impossible_value_is_refused(table, column, row, value, words):
    case = changed(load_case("case5"), table, column, row, value)
    with pytest.raises(CaseError) as caught:
        assert_valid(case)
    assert words in str(caught.value)


@pytest.mark.parametrize("column", ["p_min_mw", "q_min_mvar"])
def test_limits_of_a_unit_out_of_service_are_not_judged(column):
    """Case 200_activ of PGLib's API has such a unit."""
    case = changed(changed(load_case("case5"), "unit", column, 0, 900.0), "unit", "in_service", 0, False)
    assert_valid(case)


@pytest.mark.parametrize(("table", "column", "row", "value", "words"), WARNINGS)
def test_a_suspicious_value_is_a_warning(table, column, row, value, words):
    case = load_case("case5")
    assert not any(words in p.message + p.remedy for p in validate(case))
    case = changed(case, table, column, row, value)
    assert_valid(case)
    assert any(words in p.message + p.remedy and p.severity == "warning" for p in validate(case))


@pytest.mark.parametrize("name", list_cases())
def test_sound_cases_raise_no_false_alarm(name):
    found = [p.field for p in validate(load_case(name)) if "equal to an earlier branch" not in p.message]
    assert found == EXPECTED.get(name, [])


def test_two_references_are_a_warning_when_they_are_islands_apart():
    case = changed(load_case("case33bw"), "branch", "in_service", 31, False)  # bus 33 alone
    case = changed(case, "bus", "kind", 32, 3)
    assert_valid(case)
    assert any("several islands have a reference each" in p.message for p in validate(case))


def test_a_band_far_from_nominal_is_suspected():
    case = changed(changed(load_case("case5"), "bus", "v_min_pu", 2, 0.5), "bus", "v_max_pu", 2, 0.79)
    (problem,) = validate(case)
    assert problem.ids == (3,) and "the band is 0.5 to 0.79 pu" in problem.message and problem.severity == "warning"


def test_units_that_must_run_above_the_load_are_a_warning():
    case = load_case("case5")
    case = dataclasses.replace(case, unit=dataclasses.replace(case.unit, p_min_mw=case.unit.p_max_mw))
    (problem,) = validate(case)
    assert "cannot go below 1530 MW, the total load is 1000 MW" in problem.message


def test_a_copied_branch_is_named():
    case = load_case("case5")
    branch = case.branch
    columns = {
        f.name: np.append(getattr(branch, f.name), getattr(branch, f.name)[2]) for f in dataclasses.fields(branch)
    }
    columns["from_id"][6], columns["to_id"][6] = branch.to_id[2], branch.from_id[2]  # the other way round
    (problem,) = validate(dataclasses.replace(case, branch=type(branch)(**columns)))
    assert problem.ids == (7,) and "7 (bus 5 -> 1)" in problem.message and problem.severity == "warning"


def test_a_unit_at_an_isolated_bus_is_a_warning():
    case = changed(load_case("case5"), "bus", "kind", 4, 4)
    for row in (2, 5):  # the branches of bus 5
        case = changed(case, "branch", "in_service", row, False)
    assert_valid(case)
    assert any(p.ids == (5,) and "in service at isolated bus 5" in p.message for p in validate(case))


def with_costs(model: int, terms: int, *rows: tuple[float, ...]) -> Case:
    """case9 with other costs; it has three units."""
    case = load_case("case9")
    cost = dict(cost_model=[model] * 3, cost_terms=[terms] * 3, cost=rows)
    return dataclasses.replace(case, unit=dataclasses.replace(case.unit, **cost))


def test_a_cubic_cost_is_a_warning_for_the_units_that_have_one():
    case = with_costs(2, 4, (0.0, 0.1, 5.0, 1.0), (1e-4, 0.1, 5.0, 1.0), (0.0, 0.0, 5.0, 1.0))
    (problem,) = validate(case)
    assert problem.ids == (2,) and "degree 3" in problem.message and problem.severity == "warning"


def test_falling_marginal_costs_are_a_warning():
    quadratic = with_costs(2, 3, (-0.1, 5.0, 0.0), (0.1, 5.0, 0.0), (0.0, 5.0, 0.0))
    bent = (0.0, 0.0, 100.0, 900.0, 200.0, 1000.0)
    convex = (0.0, 0.0, 100.0, 900.0, 200.0, 2000.0)
    for case, ids in ((quadratic, (1,)), (with_costs(1, 3, convex, bent, convex), (2,))):
        (problem,) = validate(case)
        assert problem.ids == ids and "marginal cost falls" in problem.message


def test_piecewise_linear_points_out_of_order_are_refused():
    good, bad = (0.0, 0.0, 100.0, 900.0), (100.0, 900.0, 0.0, 0.0)
    with pytest.raises(CaseError, match=r"unit 3: the points of the piecewise linear cost do not grow.*x1 < x2"):
        assert_valid(with_costs(1, 2, good, good, bad))


def test_ohm_read_as_per_unit_is_suspected_from_the_drop():
    """The 33-bus feeder's published drop is 0.087 pu; the linear estimate leaves the losses out."""
    case = load_case("case33bw")
    ohm = 12.66**2 / case.base_mva
    branch = dataclasses.replace(case.branch, r_pu=ohm * case.branch.r_pu, x_pu=ohm * case.branch.x_pu)
    lines, problem = validate(dataclasses.replace(case, branch=branch))
    assert "half of the lines at 12.66 kV have 12.7 ohm" in lines.message
    assert problem.ids == (18,) and "not in ohm" in problem.remedy
    drop = float(problem.message.split("about ")[1].split(" pu")[0])
    assert 0.7 < drop / ohm / 0.087 < 1.0


def eight_buses_of_cable(per_km: float) -> Case:
    """A chain of 8 buses at 20 kV on 10 MVA, 3 km of NA2XS2Y 240 (0.122 + j0.112 ohm/km) each, 0.2 MW a bus."""
    bus = "".join(f"{i} {3 if i == 1 else 1} {0.2 if i > 1 else 0} 0.05 0 0 1 1 0 20 1 1.1 0.9;" for i in range(1, 9))
    branch = "".join(f"{i} {i + 1} {3 * 0.122 * per_km} {3 * 0.112 * per_km} 0 0 0 0 0 0 1;" for i in range(1, 8))
    head = "function mpc = cables\nmpc.version = '2';\nmpc.baseMVA = 10;\n"
    return read_matpower(f"{head}mpc.bus = [{bus}];\nmpc.gen = [1 0 0 9 -9 1 10 1 9 0];\nmpc.branch = [{branch}];\n")


def test_ohms_of_a_lightly_loaded_cable_net_are_suspected_from_its_lines():
    assert validate(eight_buses_of_cable(10 / 20**2)) == []
    found = [str(p) for p in validate(eight_buses_of_cable(1.0))]
    # 3 km * |0.122 + j0.112| = 0.497 ohm, read as per unit: 0.497 * 20^2 / 10 = 19.9 ohm
    assert any("half of the lines at 20.0 kV have 19.9 ohm or more" in text for text in found)
    assert any("divide ohms by base_kv^2 / base_mva = 40." in text for text in found)


def test_a_power_base_in_volt_ampere_is_suspected():
    case = dataclasses.replace(load_case("case5"), base_mva=1e8)
    assert any("not in VA" in p.remedy for p in validate(case))


@pytest.mark.parametrize(("table", "column", "row", "value", "words"), ERRORS + WARNINGS)
def test_every_finding_ends_in_a_remedy(table, column, row, value, words):
    case = changed(load_case("case5"), table, column, row, value)
    assert all(p.remedy.endswith(".") for p in validate(case))


def test_a_branch_without_impedance_is_named_with_its_buses():
    case = changed(changed(load_case("case5"), "branch", "r_pu", 2, 0.0), "branch", "x_pu", 2, 0.0)
    with pytest.raises(CaseError, match=r"r = x = 0 pu: 3 \(bus 1 -> 5\).*merge"):
        assert_valid(case)


def test_all_errors_come_in_one_exception():
    case = load_case("case5")
    for table, column, row, value in (("branch", "tap", 0, -1), ("unit", "p_min_mw", 1, 999), ("load", "bus_id", 0, 8)):
        case = changed(case, table, column, row, value)
    with pytest.raises(CaseError, match="case5 has 3 problem") as caught:
        assert_valid(case)
    assert all(word in str(caught.value) for word in ("tap", "p_min_mw", "unknown bus 8"))


def test_kilowatt_read_as_megawatt_is_suspected():
    case = load_case("case33bw")
    wrong = dataclasses.replace(case, load=dataclasses.replace(case.load, p_mw=1e3 * case.load.p_mw))
    assert any("the total load is 3715 MW" in p.message for p in validate(wrong))


def test_a_disconnected_bus_is_named_unless_it_is_isolated():
    case = changed(load_case("case33bw"), "branch", "in_service", 31, False)  # bus 33 is the end of a lateral
    with pytest.raises(CaseError, match=r"bus 33: 1 bus\(es\) are not connected.*isolated"):
        assert_valid(case)
    isolated = changed(case, "bus", "kind", 32, 4)
    assert_valid(isolated)
    assert reachable_from_slack(isolated).sum() == 32


def test_a_branch_in_service_at_an_isolated_bus_is_refused():
    case = changed(load_case("case33bw"), "bus", "kind", 32, 4)
    with pytest.raises(CaseError, match=r"isolated bus: 32 \(bus 32 -> 33\)"):
        assert_valid(case)


@pytest.mark.parametrize("seed", range(8))
def test_islands_agree_with_an_independent_search(seed):
    rng = np.random.default_rng(seed)
    n = 200
    f, t = rng.integers(0, n, 180), rng.integers(0, n, 180)
    on = rng.random(180) < 0.8
    _, other = connected_components(coo_array((np.ones(on.sum()), (f[on], t[on])), shape=(n, n)), directed=False)
    ours = islands(n, f, t, on)
    assert len(set(zip(ours.tolist(), other.tolist(), strict=True))) == ours.max() + 1 == other.max() + 1
    firsts = [int(np.flatnonzero(ours == k)[0]) for k in range(ours.max() + 1)]
    assert firsts == sorted(firsts)


def test_a_long_feeder_with_scrambled_numbers_is_one_island():
    order = np.random.default_rng(0).permutation(5000)
    assert islands(5000, order[:-1], order[1:], np.ones(4999, bool)).max() == 0


def feeder(case: Case) -> tuple[int, np.ndarray, np.ndarray, np.ndarray, int]:
    f, t = case.positions(case.branch.from_id), case.positions(case.branch.to_id)
    return case.n_bus, f, t, case.branch.in_service, int(case.slack_bus[0])


@pytest.mark.parametrize("name", ["case33bw", "case118zh", "case533mt_hi"])
def test_radial_order_is_a_preorder_with_contiguous_subtrees(name):
    n, f, t, status, root = feeder(load_case(name))
    tree = radial_order(n, f, t, status, root)
    assert sorted(tree.order.tolist()) == list(range(n)) and tree.order[0] == root
    rank = np.argsort(tree.order)
    child = np.flatnonzero(tree.parent >= 0)
    assert np.all(rank[tree.parent[child]] < rank[child])
    assert np.all(tree.depth[child] == tree.depth[tree.parent[child]] + 1)
    ends = np.sort(np.stack([f[tree.via_branch[child]], t[tree.via_branch[child]]]), axis=0)
    np.testing.assert_array_equal(ends, np.sort(np.stack([child, tree.parent[child]]), axis=0))
    size = np.ones(n, int)
    for bus in tree.order[:0:-1]:
        size[tree.parent[bus]] += size[bus]
    assert np.all(rank[child] < rank[tree.parent[child]] + size[tree.parent[child]])


def test_a_closed_tie_is_reported_as_a_loop():
    n, f, t, _, root = feeder(load_case("case33bw"))
    assert not is_radial(changed(load_case("case33bw"), "branch", "in_service", 36, True))
    with pytest.raises(CaseError, match="closes a loop"):
        radial_order(n, f, t, np.ones(37, bool), root)


def test_parallel_branches_are_a_loop():
    with pytest.raises(CaseError, match="closes a loop"):
        radial_order(2, np.array([0, 0]), np.array([1, 1]), np.ones(2, bool), 0)


def test_buses_out_of_reach_are_left_out_of_the_order():
    tree = radial_order(3, np.array([0, 1]), np.array([1, 2]), np.array([True, False]), 0)
    assert tree.order.tolist() == [0, 1]
    assert tree.depth.tolist() == [0, 1, -1] and tree.parent.tolist() == [-1, 0, -1]


def test_incidence_rows_sum_to_zero_and_open_branches_are_zero():
    n, f, t, status, _ = feeder(load_case("case33bw"))
    a = incidence(n, f, t, status)
    assert np.all(a.sum(axis=1) == 0)
    np.testing.assert_array_equal(np.abs(a).sum(axis=1), 2.0 * status)
    assert np.linalg.matrix_rank(a) == n - 1
