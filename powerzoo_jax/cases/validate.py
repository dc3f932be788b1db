"""Rules for cases: each is a vectorised comparison that returns its findings, so that all are fixed in one round.

Errors, in this file, make a case unusable for any solver. Warnings are in `plausibility`, and here where they belong to
the rule of an error.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from powerzoo_jax.base.errors import CaseError, Problem, listing, render_problems
from powerzoo_jax.cases.case import ISOLATED, Case
from powerzoo_jax.cases.plausibility import (
    LARGE_VOLTAGE_PU,
    PLAUSIBILITY,
    Findings,
    Rule,
    branch_rows,
    bus_ids_at,
    row_numbers,
)
from powerzoo_jax.cases.topology import reachable_from_slack, shared_references

MAY_BE_INFINITE = frozenset({"p_max_mw", "p_min_mw", "q_max_mvar", "q_min_mvar", "angle_min_deg", "angle_max_deg"})


def validate(case: Case) -> list[Problem]:
    """Return every problem of a case, errors and warnings; empty = nothing found."""
    return [problem for rule in RULES for problem in rule(case)]


def assert_valid(case: Case) -> None:
    """Raise one CaseError that lists all errors of a case; warnings pass."""
    errors = [p for p in validate(case) if p.severity == "error"]
    if errors:
        raise CaseError(render_problems(case.name, errors))


def finite(case: Case) -> Findings:
    """Every number is finite, but limits may be infinite."""
    for component in ("bus", "branch", "unit", "load"):
        table = getattr(case, component)
        for column in fields(table):
            values = getattr(table, column.name)
            bad = np.isnan(values) if column.name in MAY_BE_INFINITE else ~np.isfinite(values)
            at = np.flatnonzero(bad.any(axis=tuple(range(1, bad.ndim))))  # costs have several numbers a row
            if at.size:
                message = f"{column.name} is not a finite number in {at.size} row(s)."
                yield Problem(component, column.name, row_numbers(at), message, "Give numbers.")


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


def references(case: Case) -> Findings:
    """One reference bus is all that there is."""
    several = shared_references(case)
    if several.size:
        message = f"buses {listing(case.bus.id[several])} are references of one island."
        remedy = (
            "run_power_flow holds the voltage of each; other solvers take one reference an island: make the others PV "
            "(kind 2) for them."
        )
        yield Problem("bus", "kind", bus_ids_at(case, several), message, remedy, "warning")
    elif case.slack_bus.size > 1:
        message = "several islands have a reference each."
        remedy = "Some solvers take one island only: close a tie switch, or keep one island."
        yield Problem("bus", "kind", bus_ids_at(case, case.slack_bus), message, remedy, "warning")


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
            yield Problem(component, column, row_numbers(at), message, "Correct the id or add the bus.")


def connected(case: Case) -> Findings:
    """Every bus but an isolated one is connected with a reference bus."""
    if case.slack_bus.size == 0:
        return  # already reported, and every bus would be repeated here
    lost = ~reachable_from_slack(case) & (case.bus.kind != ISOLATED)
    if lost.any():
        message = f"{int(lost.sum())} bus(es) are not connected with the reference bus by in-service branches."
        remedy = (
            "Close a switch, add a branch, or mark the buses isolated (kind 4), as cases.isolate_unsupplied does with "
            "all that stands at them."
        )
        yield Problem("bus", "id", tuple(map(int, case.bus.id[lost])), message, remedy)


def isolated_in_use(case: Case) -> Findings:
    """No in-service branch ends at an isolated bus."""
    isolated = case.bus.id[case.bus.kind == ISOLATED]
    b = case.branch
    at = np.flatnonzero(b.in_service & (np.isin(b.from_id, isolated) | np.isin(b.to_id, isolated)))
    if at.size:
        message = f"in service at an isolated bus: {branch_rows(case, at)}."
        remedy = "Take the branch out of service, or change the bus kind."
        yield Problem("branch", "in_service", row_numbers(at), message, remedy)


def impedances(case: Case) -> Findings:
    """No branch has zero impedance or joins a bus with itself."""
    b = case.branch
    zero = np.flatnonzero((b.r_pu == 0) & (b.x_pu == 0))
    if zero.size:
        message = f"r = x = 0 pu: {branch_rows(case, zero)}."
        remedy = "Give a small reactance such as 1e-4 pu, or merge the two buses."
        yield Problem("branch", "x_pu", row_numbers(zero), message, remedy)
    loop = np.flatnonzero(b.from_id == b.to_id)
    if loop.size:
        message = f"both ends are one bus: {branch_rows(case, loop)}."
        yield Problem("branch", "to_id", row_numbers(loop), message, "Remove the branch or correct an end.")


def taps_and_ratings(case: Case) -> Findings:
    """Taps are positive, ratings not negative."""
    b = case.branch
    low = np.flatnonzero(b.tap <= 0)
    if low.size:
        message = f"tap = {listing(b.tap[low])}: {branch_rows(case, low)}."
        yield Problem("branch", "tap", row_numbers(low), message, "Give a positive ratio; 1 = nominal.")
    negative = np.flatnonzero(b.rate_a_mva < 0)
    if negative.size:
        message = f"rate_a = {listing(b.rate_a_mva[negative])} MVA."
        yield Problem("branch", "rate_a_mva", row_numbers(negative), message, "Give a rating, or 0 for no limit.")


def ordered_limits(case: Case) -> Findings:
    """No lower limit lies above its upper limit; those of a unit out of service bind nobody."""
    bus, branch, unit = case.bus, case.branch, case.unit
    pairs = (
        ("bus", "v_min_pu", "v_max_pu", bus.v_min_pu, bus.v_max_pu),
        ("branch", "angle_min_deg", "angle_max_deg", branch.angle_min_deg, branch.angle_max_deg),
        ("unit", "p_min_mw", "p_max_mw", unit.p_min_mw, unit.p_max_mw),
        ("unit", "q_min_mvar", "q_max_mvar", unit.q_min_mvar, unit.q_max_mvar),
    )
    for component, low_name, high_name, low, high in pairs:
        at = np.flatnonzero((low > high) & (unit.in_service if component == "unit" else True))
        if at.size:
            found = listing(f"{low[i]:g} > {high[i]:g}" for i in at)
            ids = tuple(map(int, bus.id[at])) if component == "bus" else row_numbers(at)
            yield Problem(component, low_name, ids, f"{low_name} > {high_name}: {found}.", "Exchange the two limits.")


def set_points(case: Case) -> Findings:
    """Voltage set-points are positive and near 1 pu."""
    unit = case.unit
    at = np.flatnonzero(unit.in_service & ((unit.v_set_pu <= 0) | (unit.v_set_pu > LARGE_VOLTAGE_PU)))
    if at.size:
        message = f"v_set = {listing(unit.v_set_pu[at])} pu."
        yield Problem("unit", "v_set_pu", row_numbers(at), message, "Give a set-point near 1 pu.")


def cost_points(case: Case) -> Findings:
    """The points of piecewise linear costs are at least two, with growing output."""
    unit = case.unit
    bad = []
    for i in np.flatnonzero(unit.cost_model == 1).tolist():
        x = unit.cost[i, : 2 * unit.cost_terms[i] : 2]
        # a unit of one fixed output may repeat its point
        falls = np.any(np.diff(x) < 0) or (x.size and x[-1] == x[0] and unit.p_max_mw[i] > unit.p_min_mw[i])
        if x.size < 2 or falls:
            bad.append(i)
    if bad:
        message = "the points of the piecewise linear cost do not grow in output."
        yield Problem("unit", "cost", row_numbers(np.array(bad)), message, "Give x1 < x2 < ... in MW, at least two.")


def not_represented(case: Case) -> Findings:
    """Records of the source that the tables cannot express."""
    for note in case.notes:
        yield Problem("case", "notes", (), f"{note}.", "Model it as a load or a unit if it matters.", "warning")


RULES: tuple[Rule, ...] = (
    finite,
    base_power,
    bus_ids,
    bus_kinds,
    references,
    unknown_buses,
    connected,
    isolated_in_use,
    impedances,
    taps_and_ratings,
    ordered_limits,
    set_points,
    cost_points,
    *PLAUSIBILITY,
    not_represented,
)
