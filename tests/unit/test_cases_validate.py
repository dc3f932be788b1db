"""Rules for cases and graph questions about them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.cases import Case, assert_valid, load_case, validate
from powerzoo_jax.cases.topology import incidence, is_radial, islands, radial_order, reachable_from_slack


def changed(case: Case, table: str, column: str, row: int, value: float) -> Case:
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
]
WARNINGS = [
    ("bus", "kind", 0, 3, "several buses are references"),
    ("bus", "base_kv", 0, 0.0, "base_kv = 0.0 kV"),
    ("bus", "v_max_pu", 0, 110.0, "v_max = 110.0 pu"),
    ("branch", "x_pu", 0, 28.1, "|z| above 10 pu"),
    ("branch", "tap", 0, 110.0, "tap = 110.0"),
    ("load", "p_mw", 0, 3e5, "not in kW"),
]


@pytest.mark.parametrize(("table", "column", "row", "value", "words"), ERRORS)
def test_an_impossible_value_is_refused(table, column, row, value, words):
    case = changed(load_case("case5"), table, column, row, value)
    with pytest.raises(CaseError) as caught:
        assert_valid(case)
    assert words in str(caught.value)


@pytest.mark.parametrize(("table", "column", "row", "value", "words"), WARNINGS)
def test_a_suspicious_value_is_a_warning(table, column, row, value, words):
    case = changed(load_case("case5"), table, column, row, value)
    assert_valid(case)
    assert any(words in p.message + p.remedy and p.severity == "warning" for p in validate(case))


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
