"""Configurations of substations with two busbars, worked out once on the host, and the single actions that set them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb
from typing import Annotated, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.errors import CaseError, listing
from powerzoo_jax.base.host import on_host
from powerzoo_jax.base.ranges import WHOLE, Count, Label, axes, checks_ranges
from powerzoo_jax.cases.case import Case, islands
from powerzoo_jax.cases.topology import branch_positions, live_buses
from powerzoo_jax.powerflow.busbars.network import ElementCounts, list_elements

NOUNS = ("unit", "plant", "load", "storage", "shunt")  # beside branch ends, in the order of a topology
SHUNT = NOUNS.index("shunt")
MOST_ROWS = 2**20  # of one substation: beyond it nobody looks at every assignment


@struct.dataclass(kw_only=True)
class Configurations:
    """Assignments of the elements of one substation to its busbars, ordered by bus position.

    substation:  (M,)    int32  bus position whose elements the row places
    topology:    (M, E)  int8   busbar of every element, 1 or 2; 1 at other substations, 0 out of service
    bus:         (E,)    int32  bus position of every element
    counts:      static, numbers of elements of every kind
    """

    substation: Array
    topology: Array
    bus: Array
    counts: ElementCounts = struct.field(pytree_node=False)

    AXES: ClassVar = {"A": "n_action", "E": "bus"}

    @property
    def n_action(self) -> int:
        """Single actions: nothing, the toggle of each branch, each configuration."""
        return 1 + self.counts.branches + self.substation.shape[-1]


class _Substation(NamedTuple):
    """Elements of one substation that may move.

    element:  (K,)  int64  positions in a topology
    branch:   (K,)  int64  row of the branch of an end, -1 for all else
    """

    bus: int
    element: np.ndarray
    branch: np.ndarray

    @property
    def end(self) -> np.ndarray:
        """(K,) bool: branch ends."""
        return self.branch >= 0

    @property
    def first(self) -> np.ndarray:
        """(K,) bool: the end of the first branch of the table."""
        ends = np.flatnonzero(self.end)
        return np.arange(len(self.branch)) == (ends[np.argmin(self.branch[ends])] if ends.size else -1)


@on_host
@checks_ranges("configurations")
def configurations(
    case: Case,
    *,
    plants: Annotated[Sequence[int], axes("...", kind=WHOLE)] = (),
    storages: Annotated[Sequence[int], axes("...", kind=WHOLE)] = (),
    most: Count | None = 3,
    least_lines: Count = 2,
    least_elements: Count = 2,
    buses: Annotated[Sequence[int], axes("...", kind=WHOLE)] | None = None,
    given: Sequence[tuple[Label, Sequence[int]]] | None = None,
) -> Configurations:
    """Configurations of the substations of a case: assignments of their elements to two busbars (host).

    plants, storages:  ids of the buses where these stand
    most:            branch ends on the busbar that has fewer of them; None for any number
    least_lines:     branch ends on each busbar        least_elements:  elements on each busbar, branch ends included
    buses:           ids of the substations; None for all
    given:           pairs (bus id, elements on busbar 2), by position in a topology, to check and to take instead of
                     all assignments; `most` does not count then

    Of two mirror images there is the one with the end of the first branch of the table on busbar 1. A shunt stands with
    that end and moves by itself nowhere. What is out of service keeps 0, and assignments that cut the grid with all
    branches in service are left out. A substation with any configuration has its base one too, all on busbar 1, as
    the first; the others follow by the number whose bit k is set where the k-th of its elements stands on busbar 2.

    Without plants, storages and the base ones, case14 has 56, and 98 for `least_lines=1`. case118 has 3,523 assignments
    with at most 3 branch ends (ends, not elements) on the smaller busbar and 10,799 for `most=None`; 8 of them cut the
    grid, so 3,515 and 10,791 remain.

    Raises CaseError naming an id that is no bus, or a bus with more than 2^20 assignments; of `given` the configuration
    and its foreign element, or the busbar with too few branch ends or elements, or that it cuts the grid.
    """
    counts, bus_of, on = list_elements(case, plants, storages)
    movable = np.where(on & (_kinds(counts) < SHUNT), bus_of, -1)
    labels = [bus for bus, _ in given] if given is not None else case.bus.id if buses is None else buses
    at = case.positions(np.asarray(labels, np.int64))
    if np.any(at < 0):
        raise CaseError(f"{case.name} has no bus {listing(np.asarray(labels)[at < 0])}. Give ids of its buses.")
    found = []
    if given is None:
        at = np.unique(at[live_buses(case)[at]])
        for bus in at.tolist():
            station = _substation(movable, bus, case.n_branch)
            found.append((station.element, _every(case, station, most, least_lines, least_elements)))
    else:
        for bus, (_, moved) in zip(at.tolist(), given, strict=True):
            station = _substation(movable, bus, case.n_branch)
            found.append((station.element, _own(case, station, moved, least_lines, least_elements)))
    count = [len(rows) for _, rows in found]
    topology = np.tile(on.astype(np.int8), (sum(count), 1))
    for start, (element, rows) in zip(np.cumsum([0, *count]), found, strict=False):
        topology[start : start + len(rows), element] += rows
    return Configurations(
        substation=jnp.asarray(np.repeat(at, count), jnp.int32),
        topology=jnp.asarray(topology),
        bus=jnp.asarray(bus_of, jnp.int32),
        counts=counts,
    )


def _kinds(counts: ElementCounts) -> np.ndarray:
    """Kind of every element (E,), by position in NOUNS; -1 for branch ends."""
    return np.repeat(np.arange(-1, len(NOUNS)), [2 * counts.branches, *counts[1:]])


def _substation(movable: np.ndarray, bus: int, n_branch: int) -> _Substation:
    element = np.flatnonzero(movable == bus)
    return _Substation(bus, element, np.where(element < 2 * n_branch, element % max(n_branch, 1), -1))


def _joined(case: Case, station: _Substation, rows: np.ndarray) -> np.ndarray:
    """Rows (R, K) whose two busbars are joined outside: a part of the grid without this bus is reached from both."""
    f, t = branch_positions(case)
    outside = case.branch.in_service & (f != station.bus) & (t != station.bus)
    part = islands(case.n_bus, f, t, outside)[np.where(f == station.bus, t, f)[station.branch]]
    joined = np.zeros(len(rows), np.bool_)
    for one in np.unique(part[station.end]):
        leads = station.end & (part == one)
        joined |= rows[:, leads].any(1) & ~rows[:, leads].all(1)
    return joined


def _every(case: Case, station: _Substation, most: int | None, least_lines: int, least_elements: int) -> np.ndarray:
    """Every assignment (R, K) bool of a substation, True on busbar 2, the base one first; none where that is alone."""
    size, n = len(station.element), int(station.end.sum())
    free = np.flatnonzero(station.end & ~station.first).tolist()
    counts = [j for j in range(least_lines, n - least_lines + 1) if most is None or min(j, n - j) <= most]
    number = sum(comb(len(free), j) for j in counts) << (size - n)
    if number > MOST_ROWS:
        raise CaseError(
            f"{case.name}: bus {case.bus.id[station.bus]} has {number} assignments of {size} elements, at most "
            f"{MOST_ROWS} can be listed. Lower `most`, or name the other `buses`."
        )
    if not number:
        return np.zeros((0, size), np.bool_)
    chosen = [list(ends) for j in counts for ends in combinations(free, j)]
    lines = np.zeros((len(chosen), size), np.bool_)
    for row, ends in zip(lines, chosen, strict=True):
        row[ends] = True
    lines = lines[_joined(case, station, lines)]
    others = np.flatnonzero(~station.end)
    bits = (np.arange(1 << len(others))[:, None] >> np.arange(len(others))) & 1
    rows = np.repeat(lines, len(bits), 0)
    rows[:, others] = np.tile(bits, (len(lines), 1))
    second = rows.sum(1)
    rows = rows[(second >= least_elements) & (size - second >= least_elements)]
    return np.r_[np.zeros((min(len(rows), 1), size), np.bool_), rows[np.lexsort(rows.T)]]


def _own(case: Case, station: _Substation, moved: Sequence[int], least_lines: int, least_elements: int) -> np.ndarray:
    """A given assignment (1, K) bool, of two mirror images the one listed; raises CaseError where it is none."""
    words = (
        f"{case.name}: the configuration of bus {case.bus.id[station.bus]} with elements {listing(moved)} on busbar 2"
    )
    foreign = [k for k in moved if k not in station.element]
    if foreign:
        raise CaseError(
            f"{words} moves element {foreign[0]}, which does not stand there, is out of service or is a shunt. "
            f"Choose from its elements {', '.join(map(str, station.element))}."
        )
    rows = np.isin(station.element, np.asarray(moved, np.int64))[None]
    if rows[0, station.first].any():
        rows = ~rows
    for there in (~rows[0], rows[0]):
        lines, size = int((there & station.end).sum()), int(there.sum())
        if lines < least_lines or size < least_elements:
            raise CaseError(
                f"{words} leaves a busbar with {lines} branch end(s) and {size} element(s), at least {least_lines} and "
                f"{least_elements} are needed. Move others, or lower `least_lines`."
            )
    if not _joined(case, station, rows)[0]:
        raise CaseError(f"{words} cuts the grid: no path joins its two busbars. Move other branch ends.")
    return rows


def action_names(case: Case, found: Configurations) -> list[str]:
    """Names of all single actions in their order, such as "split bus 5: lines 2-5, 4-5 and the load on busbar 2"."""
    line, on = line_names(case), case.branch.in_service
    toggles = [f"{'open' if on[k] else 'close'} line {line[k]}" for k in range(case.n_branch)]
    settings = []
    kind, at = _kinds(found.counts), np.asarray(found.bus)
    for bus, row in zip(found.substation.tolist(), np.asarray(found.topology), strict=True):
        moved = _words(kind, at, line, np.flatnonzero(row == 2))
        label = case.bus.id[bus]
        settings.append(f"split bus {label}: {moved} on busbar 2" if moved else f"join bus {label}: all on busbar 1")
    return ["nothing", *toggles, *settings]


def line_names(case: Case) -> list[str]:
    """From and to bus of every branch, numbered where several join the same buses: "42-49 #2"."""
    pairs = [tuple(sorted(pair)) for pair in zip(case.branch.from_id.tolist(), case.branch.to_id.tolist(), strict=True)]
    names, seen = [], dict.fromkeys(pairs, 0)
    for k, pair in enumerate(pairs):
        seen[pair] += 1
        number = f" #{seen[pair]}" if pairs.count(pair) > 1 else ""
        names.append(f"{case.branch.from_id[k]}-{case.branch.to_id[k]}{number}")
    return names


def _words(kind: np.ndarray, bus: np.ndarray, line: Sequence[str], moved: np.ndarray) -> str:
    """Elements in words, branch ends first."""
    kinds = kind[moved]
    ends = [line[k] for k in np.sort(moved[kinds < 0] % max(len(line), 1))]
    parts = [f"line{'s' * (len(ends) > 1)} {', '.join(ends)}"] if ends else []
    for k, noun in enumerate(NOUNS):
        here = moved[kinds == k]
        if len(here):
            there = np.flatnonzero((kind == k) & (bus == bus[here[0]])).tolist()
            numbers = ", ".join(str(there.index(e) + 1) for e in here)
            parts.append(f"the {noun}" if len(there) == 1 else f"{noun} {numbers} of {len(there)}")
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1] if parts else "")))
