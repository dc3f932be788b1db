"""From numeric tables in MATPOWER's column order to a `Case`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from powerzoo_jax.base.errors import CaseError, Problem, listing, render_problems
from powerzoo_jax.cases.case import BranchTable, BusTable, Case, LoadTable, UnitTable

NO_ANGLE_LIMIT = 360.0  # [deg]
NO_COST = np.zeros((0, 5))


def assemble(
    name: str, base_mva: float, citation: str, tables: Mapping[str, np.ndarray], notes: tuple[str, ...] = ()
) -> Case:
    """Build a case from `bus`, `branch`, `gen` and optional `gencost` tables, columns in MATPOWER's order.

    Normalised: tap 0 -> 1, infinite rating -> 0 (unlimited), an angle limit pair of 0, 0 -> -360, 360.
    Raises CaseError listing ids, kinds and cost records that cannot be read.
    """
    problems = table_problems(tables)
    if problems:
        raise CaseError(render_problems(name, problems))
    bus, branch, gen, cost = tables["bus"], tables["branch"], tables["gen"], tables.get("gencost", NO_COST)
    if len(cost) > len(gen):
        notes = (*notes, "reactive cost rows of gencost are not represented")
    has_load = (bus[:, 2] != 0) | (bus[:, 3] != 0)
    return Case(
        name=name,
        base_mva=base_mva,
        citation=citation,
        bus=BusTable(bus[:, 0], bus[:, 1], *(bus[:, k] for k in (4, 5, 7, 8, 9, 11, 12))),
        branch=_branches(branch),
        unit=_units(gen, cost),
        load=LoadTable(bus[has_load, 0], bus[has_load, 2], bus[has_load, 3]),
        notes=notes,
    )


def table_problems(tables: Mapping[str, np.ndarray]) -> list[Problem]:
    """What keeps `assemble` from building a case; empty = nothing."""
    cost = tables.get("gencost", NO_COST)
    return _integer_problems(tables["bus"], tables["branch"], tables["gen"]) + _cost_problems(cost, len(tables["gen"]))


def _branches(t: np.ndarray) -> BranchTable:
    low = t[:, 11] if t.shape[1] > 12 else np.zeros(len(t))
    high = t[:, 12] if t.shape[1] > 12 else np.zeros(len(t))
    free = (low == 0) & (high == 0)
    return BranchTable(
        from_id=t[:, 0],
        to_id=t[:, 1],
        r_pu=t[:, 2],
        x_pu=t[:, 3],
        b_pu=t[:, 4],
        rate_a_mva=np.where(np.isposinf(t[:, 5]), 0.0, t[:, 5]),
        tap=np.where(t[:, 8] == 0, 1.0, t[:, 8]),
        shift_deg=t[:, 9],
        in_service=t[:, 10] > 0,
        angle_min_deg=np.where(free, -NO_ANGLE_LIMIT, low),
        angle_max_deg=np.where(free, NO_ANGLE_LIMIT, high),
    )


def _units(t: np.ndarray, cost: np.ndarray) -> UnitTable:
    count = len(t)
    model, terms = np.zeros(count), np.zeros(count)
    startup, shutdown = np.zeros(count), np.zeros(count)
    values = np.zeros((count, 1))
    if len(cost):
        rows = cost[:count]
        model, startup, shutdown, terms = rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3]
        used = np.where(model == 1, 2 * terms, terms).astype(np.int64)
        width = max(int(used.max(initial=0)), 1)
        # entries behind a row's own terms are filler of the table, whatever they hold
        values = np.where(np.arange(width) < used[:, None], rows[:, 4 : 4 + width], 0.0)
    p, q, q_max, q_min, v_set, base = (t[:, k] for k in range(1, 7))
    return UnitTable(
        t[:, 0], p, q, q_max, q_min, v_set, base, t[:, 7] > 0, t[:, 8], t[:, 9], model, terms, startup, shutdown, values
    )


def _integer_problems(bus: np.ndarray, branch: np.ndarray, gen: np.ndarray) -> list[Problem]:
    columns = (
        ("bus", "id", bus[:, 0]),
        ("bus", "kind", bus[:, 1]),
        ("branch", "from_id", branch[:, 0]),
        ("branch", "to_id", branch[:, 1]),
        ("unit", "bus_id", gen[:, 0]),
    )
    problems = []
    for component, field, values in columns:
        # outside int64 a cast would wrap silently; 2**53 is where float64 stops telling integers apart
        bad = np.flatnonzero(~(np.isfinite(values) & (np.abs(values) < 2**53) & (values == np.round(values))))
        if bad.size:
            message = f"column {field} must hold whole numbers, found {listing(values[bad])}."
            rows = tuple(f"row {i + 1}" for i in bad)
            problems.append(Problem(component, field, rows, message, "Renumber the buses."))
    return problems


def _cost_problems(cost: np.ndarray, n_unit: int) -> list[Problem]:
    if len(cost) == 0:
        return []
    if len(cost) not in (n_unit, 2 * n_unit):
        message = f"gencost has {len(cost)} rows for {n_unit} units."
        return [Problem("unit", "cost", (), message, "Give one row per unit (and optionally one more for Q).")]
    rows = cost[:n_unit]
    model, terms = rows[:, 0], rows[:, 3]
    whole = np.isfinite(terms) & (terms == np.round(terms)) & (terms >= 0)
    needed = np.where(model == 1, 2 * terms, terms)
    bad = np.flatnonzero(~(np.isin(model, (1, 2)) & whole & (needed <= cost.shape[1] - 4)))
    if bad.size == 0:
        return []
    found = listing(f"(model {model[i]:g}, n {terms[i]:g})" for i in bad)
    message = f"gencost cannot be read: {found} with {cost.shape[1] - 4} value columns."
    remedy = "Use model 1 with n points or model 2 with n coefficients, and enough columns."
    return [Problem("unit", "cost", tuple(f"row {i + 1}" for i in bad), message, remedy)]
