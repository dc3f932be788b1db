"""Configurations of substations: the published counts, an enumeration of all subsets, and what is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.cases import Case, load_case
from powerzoo_jax.powerflow import Configurations, action_names
from powerzoo_jax.powerflow import configurations as on_device


def configurations(case: Case, **limits: Any) -> Configurations:
    """The package's, as arrays of the host."""
    return jax.tree.map(np.asarray, on_device(case, **limits))


def ends_of(case: Case) -> np.ndarray:
    """Bus ids of the 2L branch ends."""
    return np.r_[case.branch.from_id, case.branch.to_id]


def is_whole(case: Case, second: frozenset[int]) -> bool:
    """Whether the grid is in one piece with these branch ends of one bus on a busbar of their own."""
    position = {int(bus): k for k, bus in enumerate(case.bus.id)}
    node = np.array([position[int(bus)] for bus in ends_of(case)])
    node[list(second)] = case.n_bus
    f, t = node.reshape(2, -1)[:, case.branch.in_service]
    graph = sp.csr_matrix((np.ones(len(f)), (f, t)), (case.n_bus + 1,) * 2)
    return int(connected_components(graph, directed=False)[0]) == 1


def subsets(case: Case, least_lines: int = 2, least: int = 2) -> Iterator[tuple[int, frozenset[int], frozenset[int]]]:
    """(bus id, branch ends, other elements) on one busbar, of each pair of mirror images one: every subset is tried."""
    m = case.n_branch
    for bus in case.bus.id.tolist():
        ends = np.flatnonzero(ends_of(case) == bus)
        units, loads = (np.flatnonzero(table.bus_id == bus) for table in (case.unit, case.load))
        others = np.r_[2 * m + units, 2 * m + case.n_unit + loads]
        every = np.r_[ends, others]
        for code in range(2 ** (len(every) - 1)):
            there = (code >> np.arange(len(every)) & 1).astype(bool)
            lines = there[: len(ends)].sum()
            if min(lines, len(ends) - lines) >= least_lines and min(there.sum(), (~there).sum()) >= least:
                lines, rest = (frozenset(part.tolist()) for part in np.split(every, [len(ends)]))
                yield bus, lines & set(every[there].tolist()), rest & set(every[there].tolist())


def rows_of(case: Case, found: Configurations) -> list[tuple[int, frozenset[int]]]:
    return [
        (int(case.bus.id[s]), frozenset(np.flatnonzero(row == 2).tolist()))
        for s, row in zip(found.substation, found.topology, strict=True)
        if (row == 2).any()
    ]


def splits(name: str, **limits: int | None) -> int:
    return int((configurations(load_case(name), **limits).topology == 2).any(1).sum())


def test_the_published_counts_of_case14():
    assert splits("case14") == 56
    assert splits("case14", least_lines=1) == 98


@cache
def counts_of_case118() -> tuple[int, ...]:
    """Assignments with at most 3 branch ends on the smaller busbar, those that leave the grid whole; of any number."""
    case, size = load_case("case118"), 0
    degree = dict(zip(*np.unique(ends_of(case), return_counts=True), strict=True))
    whole = cache(is_whole)
    found = np.zeros(4, int)
    for bus, lines, _ in subsets(case):
        size = min(len(lines), degree[bus] - len(lines))
        found += np.array([size <= 3, 0, 1, 0])
        if whole(case, lines):
            found += np.array([0, size <= 3, 0, 1])
    return tuple(found.tolist())


@pytest.mark.full
def test_the_published_counts_of_case118_are_those_before_cut_grids_are_left_out():
    assert counts_of_case118() == (3523, 3515, 10799, 10791)
    assert (splits("case118"), splits("case118", most=None)) == (3515, 10791)


def test_no_assignment_is_missing_doubled_or_illegal():
    case = load_case("case14")
    m, first = case.n_branch, {}
    for e in sorted(range(2 * m), key=lambda e: e % m, reverse=True):
        first[int(ends_of(case)[e])] = e
    expected = set()
    for bus, lines, rest in subsets(case, least_lines=1):
        if is_whole(case, lines):
            here = set(np.flatnonzero(ends_of(case) == bus)) | {
                *(2 * m + np.flatnonzero(case.unit.bus_id == bus)),
                *(2 * m + case.n_unit + np.flatnonzero(case.load.bus_id == bus)),
            }
            moved = lines | rest
            expected.add((bus, frozenset(map(int, here - moved if first[bus] in moved else moved))))
    found = rows_of(case, configurations(case, least_lines=1))
    assert len(found) == len(set(found)) == 98 and set(found) == expected


def test_rows_are_in_order_with_the_base_one_first():
    case = load_case("case118")
    found = configurations(case)
    assert np.all(np.diff(found.substation) >= 0)
    for s in np.unique(found.substation):
        rows = found.topology[found.substation == s][:, found.bus == s] == 2
        number = rows.astype(object) @ np.array([1 << k for k in range(rows.shape[1])], object)
        assert number[0] == 0 and np.all(np.diff(number) > 0)


def test_elements_out_of_service_stay_out_and_shunts_where_they_are():
    case = load_case("case14")
    off = case.branch.in_service.copy()
    off[8] = False  # 4-9
    case = dataclasses.replace(case, branch=dataclasses.replace(case.branch, in_service=off))
    found = configurations(case, plants=(4,), storages=(4, 4), least_lines=1)
    assert np.all(found.topology[:, [8, case.n_branch + 8]] == 0)
    assert np.all(found.topology[:, -1] == 1) and case.bus.id[found.bus[-1]] == 9
    assert not np.any(np.delete(found.topology, [8, case.n_branch + 8], 1) == 0)
    assert found.counts == (20, 5, 1, 11, 2, 1) and found.counts.total == found.topology.shape[1]
    assert not np.any((found.topology == 2) & (found.bus != found.substation[:, None]))


def test_what_is_given_is_found_among_all_and_its_mirror_image_is_the_same():
    case = load_case("case14")
    every = configurations(case)
    rows = [7, 20, 50]
    given = [(case.bus.id[every.substation[k]], np.flatnonzero(every.topology[k] == 2)) for k in rows]
    images = [
        (bus, np.flatnonzero((every.bus == every.substation[k]) & (every.topology[k] == 1))[: None if bus != 9 else -1])
        for k, (bus, _) in zip(rows, given, strict=True)
    ]
    for wanted in (given, images):
        found = configurations(case, given=wanted)
        np.testing.assert_array_equal(found.topology, every.topology[rows])
        np.testing.assert_array_equal(found.substation, every.substation[rows])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((5, [9, 24, 7]), "bus 5 with elements 9, 24, 7 .* moves element 7, which does not stand there"),  # bus 4
        ((9, [15, 16, 56]), "bus 9 .* moves element 56, .* is a shunt"),
        ((5, [9]), r"bus 5 .* leaves a busbar with 1 branch end\(s\) and 1 element"),
        ((5, [24, 26, 9]), r"bus 5 .* leaves a busbar with 1 branch end\(s\)"),
        ((99, [9]), "no bus 99"),
    ],
)
def test_a_configuration_that_is_none_is_refused_by_name(given, words):
    with pytest.raises(CaseError, match=words):
        configurations(load_case("case14"), given=[given])


@pytest.mark.parametrize(("bus", "away"), [(110, (111, 112)), (100, (103, 104, 106))])
def test_a_configuration_that_cuts_the_grid_is_refused_by_name(bus, away):
    """The two of case118: lines to buses that nothing else reaches."""
    case = load_case("case118")
    f, t = case.branch.from_id, case.branch.to_id
    from_ends, to_ends = ((near == bus) & np.isin(far, away) for near, far in ((f, t), (t, f)))
    ends = np.flatnonzero(np.r_[from_ends, to_ends]).tolist()
    assert len(ends) == len(away) and not is_whole(case, frozenset(ends))
    with pytest.raises(CaseError, match=f"bus {bus} with elements .* cuts the grid"):
        configurations(case, given=[(bus, ends)])


def test_plants_storages_and_buses_that_are_none_are_refused_by_name():
    case = load_case("case14")
    with pytest.raises(CaseError, match="plants name the unknown buses 77"):
        configurations(case, plants=(3, 77))
    with pytest.raises(CaseError, match="storages name the unknown buses 78"):
        configurations(case, storages=(78,))
    with pytest.raises(CaseError, match="no bus 79"):
        configurations(case, buses=(4, 79))


def test_every_action_has_a_name_of_its_own():
    case = load_case("case118")
    found = configurations(case, plants=(25,), storages=(49,))
    names = action_names(case, found)
    assert len(names) == len(set(names)) == found.n_action
    assert names[:2] == ["nothing", "open line 1-2"]
    assert "open line 42-49 #2" in names
    assert "split bus 49: lines 49-54 #1, 49-54 #2, the load and the storage on busbar 2" in names


def test_actions_are_named_by_what_they_move():
    case = load_case("case14")
    m = case.n_branch
    load = 2 * m + case.n_unit + int(np.flatnonzero(case.load.bus_id == 5)[0])
    # branches 2 (1-5) and 5 (2-5) and 7 (4-5) end at bus 5, branch 10 (5-6) begins there
    names = action_names(case, configurations(case, given=[(5, [m + 4, m + 6, load])]))
    assert names[-1] == "split bus 5: lines 2-5, 4-5 and the load on busbar 2"
    assert action_names(case, configurations(case, buses=[5]))[m + 1] == "join bus 5: all on busbar 1"
