"""Rules for cases: each is a vectorised comparison that returns its findings, so that all are fixed in one round.

Errors are what no solver can use. Warnings are magnitudes that are possible and nearly always a unit mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields

import numpy as np

from powerzoo_jax.base.errors import CaseError, Problem, listing, render_problems
from powerzoo_jax.cases.case import ISOLATED, Case
from powerzoo_jax.cases.topology import reachable_from_slack

MAY_BE_INFINITE = frozenset({"p_max_mw", "p_min_mw", "q_max_mvar", "q_min_mvar", "angle_min_deg", "angle_max_deg"})

LARGE_IMPEDANCE_PU = 10.0
LARGE_TAP = 2.0
LARGE_VOLTAGE_PU = 2.0
LOAD_PER_BASE = 100.0  # one bus drawing 100 power bases
LOAD_PER_CAPACITY = 50.0  # kW read as MW give 1000; a short supply gives less than 2


def validate(case: Case) -> list[Problem]:
    """Return every problem of a case, errors and warnings; empty = nothing found."""
    return [problem for rule in RULES for problem in rule(case)]


def assert_valid(case: Case) -> None:
    """Raise one CaseError that lists all errors of a case; warnings pass."""
    errors = [p for p in validate(case) if p.severity == "error"]
    if errors:
        raise CaseError(render_problems(case.name, errors))


Findings = Iterator[Problem]


def _rows(at: np.ndarray) -> tuple[object, ...]:
    return tuple(int(i) + 1 for i in at)


def _ends(case: Case, at: np.ndarray) -> str:
    b = case.branch
    return listing(f"{i + 1} (bus {b.from_id[i]} -> {b.to_id[i]})" for i in at)


def finite(case: Case) -> Findings:
    """Every number is finite, but limits may be infinite."""
    for component in ("bus", "branch", "unit", "load"):
        table = getattr(case, component)
        for column in fields(table):
            values = getattr(table, column.name)
            bad = np.isnan(values) if column.name in MAY_BE_INFINITE else ~np.isfinite(values)
            at = np.flatnonzero(bad.reshape(len(table), -1).any(axis=1))
            if at.size:
                message = f"{column.name} is not a finite number in {at.size} row(s)."
                yield Problem(component, column.name, _rows(at), message, "Give numbers.")


def base_power(case: Case) -> Findings:
    """The power base is positive."""
    if not (np.isfinite(case.base_mva) and case.base_mva > 0):
        yield Problem("case", "base_mva", (), f"base_mva = {case.base_mva} MVA.", "Give a positive base, such as 100.")


def bus_ids(case: Case) -> Findings:
    """Bus ids are unique."""
    ids, count = np.unique(case.bus.id, return_counts=True)
    twice = ids[count > 1]
    if twice.size:
        yield Problem("bus", "id", tuple(map(int, twice)), "the id occurs more than once.", "Renumber or remove rows.")


def bus_kinds(case: Case) -> Findings:
    """Kinds are 1 to 4 and there is a reference bus."""
    bad = ~np.isin(case.bus.kind, (1, 2, 3, 4))
    if bad.any():
        message = f"the kind is {listing(case.bus.kind[bad])}."
        yield Problem("bus", "kind", tuple(map(int, case.bus.id[bad])), message, "Use 1 PQ, 2 PV, 3 REF, 4 isolated.")
    slack = case.slack_bus
    if slack.size == 0:
        remedy = "Set kind 3 for the bus that balances the system, usually the one of the largest unit."
        yield Problem("bus", "kind", (), "no bus is the reference.", remedy)
    elif slack.size > 1:
        ids = tuple(int(i) for i in case.bus.id[slack])
        remedy = "Keep one reference per island; make the others PV (kind 2)."
        yield Problem("bus", "kind", ids, "several buses are references.", remedy, "warning")


def unknown_buses(case: Case) -> Findings:
    """Branches, units and loads name buses that exist."""
    ends = (
        ("branch", "from_id", case.branch.from_id),
        ("branch", "to_id", case.branch.to_id),
        ("unit", "bus_id", case.unit.bus_id),
        ("load", "bus_id", case.load.bus_id),
    )
    for component, column, ids in ends:
        at = np.flatnonzero(case.positions(ids) < 0)
        if at.size:
            message = f"{column} names unknown bus {listing(ids[at])}."
            yield Problem(component, column, _rows(at), message, "Correct the id or add the bus.")


def connected(case: Case) -> Findings:
    """Every bus but an isolated one is connected with a reference bus."""
    if case.slack_bus.size == 0:
        return  # already reported, and every bus would be repeated here
    lost = ~reachable_from_slack(case) & (case.bus.kind != ISOLATED)
    if lost.any():
        message = f"{int(lost.sum())} bus(es) are not connected with the reference bus by in-service branches."
        remedy = "Close a switch, add a branch, or mark the buses isolated (kind 4)."
        yield Problem("bus", "id", tuple(map(int, case.bus.id[lost])), message, remedy)


def isolated_in_use(case: Case) -> Findings:
    """No in-service branch ends at an isolated bus."""
    isolated = case.bus.id[case.bus.kind == ISOLATED]
    b = case.branch
    at = np.flatnonzero(b.in_service & (np.isin(b.from_id, isolated) | np.isin(b.to_id, isolated)))
    if at.size:
        message = f"in service at an isolated bus: {_ends(case, at)}."
        remedy = "Take the branch out of service, or change the bus kind."
        yield Problem("branch", "in_service", _rows(at), message, remedy)


def impedances(case: Case) -> Findings:
    """No branch has zero impedance or joins a bus with itself; large impedances are suspicious."""
    b = case.branch
    zero = np.flatnonzero((b.r_pu == 0) & (b.x_pu == 0))
    if zero.size:
        message = f"r = x = 0 pu: {_ends(case, zero)}."
        remedy = "Give a small reactance such as 1e-4 pu, or merge the two buses."
        yield Problem("branch", "x_pu", _rows(zero), message, remedy)
    loop = np.flatnonzero(b.from_id == b.to_id)
    if loop.size:
        message = f"both ends are one bus: {_ends(case, loop)}."
        yield Problem("branch", "to_id", _rows(loop), message, "Remove the branch or correct an end.")
    large = np.flatnonzero(np.hypot(b.r_pu, b.x_pu) > LARGE_IMPEDANCE_PU)
    if large.size:
        message = f"|z| above {LARGE_IMPEDANCE_PU:g} pu: {_ends(case, large)}."
        remedy = "Check that impedances are in per unit, not in ohm."
        yield Problem("branch", "x_pu", _rows(large), message, remedy, "warning")


def taps_and_ratings(case: Case) -> Findings:
    """Taps are positive and near 1, ratings are not negative."""
    b = case.branch
    low = np.flatnonzero(b.tap <= 0)
    if low.size:
        message = f"tap = {listing(b.tap[low])}: {_ends(case, low)}."
        yield Problem("branch", "tap", _rows(low), message, "Give a positive ratio; 1 = nominal.")
    odd = np.flatnonzero((b.tap > LARGE_TAP) | ((b.tap > 0) & (b.tap < 1 / LARGE_TAP)))
    if odd.size:
        message = f"tap = {listing(b.tap[odd])}: {_ends(case, odd)}."
        yield Problem("branch", "tap", _rows(odd), message, "Check that taps are per-unit ratios.", "warning")
    negative = np.flatnonzero(b.rate_a_mva < 0)
    if negative.size:
        message = f"rate_a = {listing(b.rate_a_mva[negative])} MVA."
        yield Problem("branch", "rate_a_mva", _rows(negative), message, "Give a rating, or 0 for no limit.")


def ordered_limits(case: Case) -> Findings:
    """No lower limit lies above its upper limit."""
    bus, branch, unit = case.bus, case.branch, case.unit
    pairs = (
        ("bus", "v_min_pu", "v_max_pu", bus.v_min_pu, bus.v_max_pu),
        ("branch", "angle_min_deg", "angle_max_deg", branch.angle_min_deg, branch.angle_max_deg),
        ("unit", "p_min_mw", "p_max_mw", unit.p_min_mw, unit.p_max_mw),
        ("unit", "q_min_mvar", "q_max_mvar", unit.q_min_mvar, unit.q_max_mvar),
    )
    for component, low_name, high_name, low, high in pairs:
        at = np.flatnonzero(low > high)
        if at.size:
            found = listing(f"{low[i]:g} > {high[i]:g}" for i in at)
            ids = tuple(map(int, bus.id[at])) if component == "bus" else _rows(at)
            yield Problem(component, low_name, ids, f"{low_name} > {high_name}: {found}.", "Exchange the two limits.")


def voltages(case: Case) -> Findings:
    """Voltage limits and set-points are positive and near 1 pu; base voltages are positive."""
    bus, unit = case.bus, case.unit
    at = np.flatnonzero(bus.base_kv <= 0)
    if at.size:
        message = f"base_kv = {listing(bus.base_kv[at])} kV."
        remedy = "Give the base voltage; conversions to kA or ohm need it."
        yield Problem("bus", "base_kv", tuple(map(int, bus.id[at])), message, remedy, "warning")
    at = np.flatnonzero((bus.v_max_pu > LARGE_VOLTAGE_PU) | (bus.v_max_pu <= 0))
    if at.size:
        message = f"v_max = {listing(bus.v_max_pu[at])} pu."
        yield Problem("bus", "v_max_pu", tuple(map(int, bus.id[at])), message, "Check the units.", "warning")
    at = np.flatnonzero(unit.in_service & ((unit.v_set_pu <= 0) | (unit.v_set_pu > LARGE_VOLTAGE_PU)))
    if at.size:
        message = f"v_set = {listing(unit.v_set_pu[at])} pu."
        yield Problem("unit", "v_set_pu", _rows(at), message, "Give a set-point near 1 pu.")


def load_magnitudes(case: Case) -> Findings:
    """Loads are plausible beside the power base and beside the units."""
    p_mw = case.load.p_mw
    large = np.flatnonzero(np.abs(p_mw) > LOAD_PER_BASE * abs(case.base_mva))
    if large.size:
        message = f"load of {listing(f'{p:g} MW' for p in p_mw[large])} on a base of {case.base_mva:g} MVA."
        ids = tuple(map(int, case.load.bus_id[large]))
        yield Problem("load", "p_mw", ids, message, "Check that loads are in MW, not in kW.", "warning")
    capacity = float(np.sum(case.unit.p_max_mw[case.unit.in_service]))
    total = float(np.sum(p_mw))
    if capacity > 0 and total > LOAD_PER_CAPACITY * capacity:
        message = f"the total load is {total:g} MW, the units have {capacity:g} MW."
        remedy = "Check that loads are in MW, not in kW: the file may convert them in code below its tables."
        yield Problem("case", "load", (), message, remedy, "warning")


def not_represented(case: Case) -> Findings:
    """Records of the source that the tables cannot express."""
    for note in case.notes:
        yield Problem("case", "notes", (), f"{note}.", "Model it as a load or a unit if it matters.", "warning")


Rule = Callable[[Case], Findings]
RULES: tuple[Rule, ...] = (
    finite,
    base_power,
    bus_ids,
    bus_kinds,
    unknown_buses,
    connected,
    isolated_in_use,
    impedances,
    taps_and_ratings,
    ordered_limits,
    voltages,
    load_magnitudes,
    not_represented,
)
