"""Rules for numbers that are possible but nearly always a mistake: of units, of columns, of copied rows.

Each returns warnings, so a case that really is like that can still be used.

How the rules for cases name what they have found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from powerzoo_jax.base.errors import Problem, listing
from powerzoo_jax.cases.case import ISOLATED, PV, REF, Case
from powerzoo_jax.cases.topology import branch_positions, is_radial, radial_order

Findings = Iterator[Problem]
Rule = Callable[[Case], Findings]


def row_numbers(at: np.ndarray) -> tuple[object, ...]:
    """Positions as rows of a table, counted from 1."""
    return tuple(int(i) + 1 for i in at)


def bus_ids_at(case: Case, at: np.ndarray) -> tuple[object, ...]:
    """External ids of bus positions."""
    return tuple(int(i) for i in case.bus.id[at])


def branch_rows(case: Case, at: np.ndarray) -> str:
    """Branches by row and ends: `17 (bus 8 -> 9)`."""
    b = case.branch
    return listing(f"{i + 1} (bus {b.from_id[i]} -> {b.to_id[i]})" for i in at)


# Possible values, nearly always a mistake of units or columns: every warning that these
# limits give on the 78 cases of MATPOWER and the 60 of PGLib is true.
LARGE_IMPEDANCE_PU = 10.0
# Median over the lines of a voltage: that of published feeders is at most 2.5 ohm; 20 km of overhead line have 8.
LARGE_LINES_OHM = ((1.5, 2.0), (50.0, 8.0))  # up to a base voltage [kV]: [ohm]
LARGE_CHARGING_PU = 50.0
LARGE_TAP = 2.0
LARGE_SHIFT_DEG = 180.0  # every angle has an equal within half a turn
LARGE_VOLTAGE_PU = 2.0
USUAL_BAND_PU = (0.8, 1.2)
LOW_SET_POINT_PU = 0.7  # the lowest of the published cases hold 0.8
LARGE_BASE_KV = 2000.0  # the highest AC voltage in use is 1150 kV
BASE_MVA_RANGE = (1e-3, 1e5)
PLACEHOLDERS_MVA = (9900.0, 9999.0, 99999.0, 999999.0)  # what many files write for "not known"
LARGE_UNIT_MW = 1e5  # the largest power station of the world has 2.3e4 MW
LOAD_PER_BASE = 100.0  # one bus drawing 100 power bases
LOAD_PER_CAPACITY = 50.0  # kW read as MW give 1000; a short supply gives less than 2
REACTIVE_PER_ACTIVE = 5.0  # loads with a power factor below 0.2
FLAT_SLOPE = 1e-3  # relative: slopes of points printed with 5 decimals
DEEP_DROP_PU = 0.5  # a feeder loses its voltage near there


def _warn(component: str, field: str, ids: tuple[object, ...], message: str, remedy: str) -> Problem:
    return Problem(component, field, ids, message, remedy, "warning")


def base_power(case: Case) -> Findings:
    """The power base is a number of MVA."""
    low, high = BASE_MVA_RANGE
    if case.base_mva > 0 and not low <= case.base_mva <= high:
        message = f"base_mva = {case.base_mva:g} MVA."
        yield _warn("case", "base_mva", (), message, "Check that the base is in MVA, not in VA, kVA or GVA.")


def base_voltages(case: Case) -> Findings:
    """Base voltages are given, in kV."""
    kv = case.bus.base_kv
    at = np.flatnonzero(kv <= 0)
    if at.size:
        remedy = "Give the base voltage; conversions to kA or ohm need it."
        yield _warn("bus", "base_kv", bus_ids_at(case, at), f"base_kv = {listing(kv[at])} kV.", remedy)
    at = np.flatnonzero(kv > LARGE_BASE_KV)
    if at.size:
        remedy = "Check that base voltages are in kV, not in V."
        yield _warn("bus", "base_kv", bus_ids_at(case, at), f"base_kv = {listing(kv[at])} kV.", remedy)


def voltage_bands(case: Case) -> Findings:
    """Voltage limits are near 1 pu."""
    bus = case.bus
    at = np.flatnonzero((bus.v_max_pu > LARGE_VOLTAGE_PU) | (bus.v_max_pu <= 0))
    if at.size:
        message = f"v_max = {listing(bus.v_max_pu[at])} pu."
        yield _warn(
            "bus", "v_max_pu", bus_ids_at(case, at), message, "Check that limits are in per unit, not in kV or %."
        )
    low, high = USUAL_BAND_PU
    at = np.flatnonzero((bus.v_min_pu > high) | ((bus.v_max_pu < low) & (bus.v_max_pu > 0)))
    if at.size:
        message = f"the band is {listing(f'{bus.v_min_pu[i]:g} to {bus.v_max_pu[i]:g}' for i in at)} pu."
        yield _warn("bus", "v_min_pu", bus_ids_at(case, at), message, "Check that limits are per unit of base_kv.")


def controlled_buses(case: Case) -> Findings:
    """Reference and PV buses have a unit in service, and units at one bus agree on its voltage."""
    unit, bare = case.unit, ~case.bus_has_unit
    holding = unit.bus_id[unit.in_service]
    balances = np.zeros(case.n_bus, bool)
    balances[case.slack_bus] = True
    moved = case.bus.id[balances & (case.bus.kind != REF)]
    instead = f"bus {listing(moved)} balances" if moved.size else "the other references balance"
    reference = "the reference bus has no unit in service"
    choose = "Put a unit there, or choose another reference (kind 3)."
    for found, what, remedy in (
        ((case.bus.kind == REF) & balances, f"{reference}: what it delivers comes from none", choose),
        ((case.bus.kind == REF) & ~balances, f"{reference}: {instead} in its place", choose),
        (
            case.bus.kind == PV,
            "no unit in service holds the voltage of a PV bus",
            "Put a unit there, or make it a PQ bus (kind 1).",
        ),
    ):
        at = np.flatnonzero(bare & found)
        if at.size:
            yield _warn("bus", "kind", bus_ids_at(case, at), f"{what}.", remedy)
    first = {int(b): v for b, v in zip(holding[::-1], unit.v_set_pu[unit.in_service][::-1], strict=True)}
    wanted = np.array([first.get(int(b), np.nan) for b in unit.bus_id], np.float64)
    at = np.flatnonzero(unit.in_service & (unit.v_set_pu != wanted))
    if at.size:
        found = listing(f"{unit.v_set_pu[i]:g} and {wanted[i]:g} at bus {unit.bus_id[i]}" for i in at)
        yield _warn(
            "unit", "v_set_pu", row_numbers(at), f"set-points differ: {found} pu.", "Give all units of a bus one."
        )
    idle = case.bus.id[case.bus.kind == ISOLATED]
    at = np.flatnonzero(unit.in_service & np.isin(unit.bus_id, idle))
    if at.size:
        message = f"in service at isolated bus {listing(unit.bus_id[at])}."
        yield _warn("unit", "bus_id", row_numbers(at), message, "Switch the unit off, or connect the bus.")


def low_set_points(case: Case) -> Findings:
    """Voltages that units hold are near 1 pu."""
    unit = case.unit
    holds = np.isin(unit.bus_id, case.bus.id[np.isin(case.bus.kind, (PV, REF))])
    at = np.flatnonzero(unit.in_service & holds & (unit.v_set_pu > 0) & (unit.v_set_pu < LOW_SET_POINT_PU))
    if at.size:
        found = listing(f"{unit.v_set_pu[i]:g} at bus {unit.bus_id[i]}" for i in at)
        remedy = "Give it near 1: no line carries much power at such a voltage."
        yield _warn("unit", "v_set_pu", row_numbers(at), f"the set-point is {found} pu.", remedy)


def impedances(case: Case) -> Findings:
    """Impedances are in per unit, and resistances not negative."""
    b = case.branch
    at = np.flatnonzero(np.hypot(b.r_pu, b.x_pu) > LARGE_IMPEDANCE_PU)
    if at.size:
        message = f"|z| above {LARGE_IMPEDANCE_PU:g} pu: {branch_rows(case, at)}."
        yield _warn("branch", "x_pu", row_numbers(at), message, "Check that impedances are in per unit, not in ohm.")
    at = np.flatnonzero(np.abs(b.b_pu) > LARGE_CHARGING_PU)
    if at.size:
        message = f"|b| above {LARGE_CHARGING_PU:g} pu: {branch_rows(case, at)}."
        yield _warn(
            "branch", "b_pu", row_numbers(at), message, "Check that charging is in per unit, not in microsiemens."
        )
    at = np.flatnonzero(b.r_pu < 0)
    if at.size:
        message = f"r = {listing(b.r_pu[at])} pu: {branch_rows(case, at)}."
        remedy = "Right in the star of a three-winding transformer; otherwise correct the sign."
        yield _warn("branch", "r_pu", row_numbers(at), message, remedy)


def line_lengths(case: Case) -> Findings:
    """Lines of distribution voltages have impedances of such lines: ohms given as per unit make them longer."""
    b, kv = case.branch, case.bus.base_kv
    f, t = branch_positions(case)
    line = (f >= 0) & (t >= 0) & np.isin(b.tap, (0.0, 1.0)) & (kv[f] == kv[t]) & (kv[f] > 0)
    base_ohm = kv[f] ** 2 / case.base_mva if case.base_mva > 0 else np.zeros(len(b))
    z_pu = np.hypot(b.r_pu, b.x_pu)
    if np.any(z_pu > LARGE_IMPEDANCE_PU):  # the rule above has said it
        return
    ohm = z_pu * base_ohm
    above = 0.0
    for limit, most in LARGE_LINES_OHM:
        at = np.flatnonzero(line & (kv[f] > above) & (kv[f] <= limit))
        above = limit
        middle = np.median(ohm[at]) if at.size else 0.0
        if middle > most:
            own, voltages = base_ohm[at[np.argmax(ohm[at])]], listing(np.unique(kv[f][at]))
            message = f"half of the lines at {voltages} kV have {middle:.3g} ohm or more."
            remedy = f"Check that impedances are in per unit: divide ohms by base_kv^2 / base_mva = {own:.4g}."
            yield _warn("branch", "x_pu", row_numbers(at), message, remedy)


def ratios(case: Case) -> Findings:
    """Taps are near 1, shifts within half a turn."""
    b = case.branch
    at = np.flatnonzero((b.tap > LARGE_TAP) | ((b.tap > 0) & (b.tap < 1 / LARGE_TAP)))
    if at.size:
        message = f"tap = {listing(b.tap[at])}: {branch_rows(case, at)}."
        yield _warn("branch", "tap", row_numbers(at), message, "Check that taps are per-unit ratios.")
    at = np.flatnonzero(np.abs(b.shift_deg) > LARGE_SHIFT_DEG)
    if at.size:
        message = f"shift = {listing(b.shift_deg[at])} degrees: {branch_rows(case, at)}."
        yield _warn("branch", "shift_deg", row_numbers(at), message, "Give shifts between -180 and 180 degrees.")


def ratings(case: Case) -> Findings:
    """Ratings are limits, not placeholders."""
    rate = case.branch.rate_a_mva
    at = np.flatnonzero(np.isin(rate, PLACEHOLDERS_MVA))
    if at.size:
        every = " of all branches" if at.size == len(rate) else ""
        message = (
            f"rate_a{every} = {listing(np.unique(rate[at]))} MVA looks like a placeholder: {branch_rows(case, at)}."
        )
        yield _warn("branch", "rate_a_mva", row_numbers(at), message, "Give ratings in MVA, or 0 for no limit.")


def repeated_branches(case: Case) -> Findings:
    """No branch is a copy of another."""
    b = case.branch
    ends = np.sort(np.stack([b.from_id, b.to_id]), axis=0)
    rows = np.stack([*ends, b.r_pu, b.x_pu, b.b_pu, b.tap, b.shift_deg], axis=1)
    _, first = np.unique(rows, axis=0, return_index=True)
    at = np.setdiff1d(np.arange(len(b)), first)
    if at.size:
        message = f"equal to an earlier branch: {branch_rows(case, at)}."
        yield _warn(
            "branch", "from_id", row_numbers(at), message, "Right for parallel circuits; otherwise remove the copy."
        )


def load_magnitudes(case: Case) -> Findings:
    """Loads are plausible beside the power base, beside the units and beside their reactive part."""
    p_mw, total = case.load.p_mw, float(np.sum(case.load.p_mw))
    at = np.flatnonzero(np.abs(p_mw) > LOAD_PER_BASE * abs(case.base_mva))
    if at.size:
        message = f"load of {listing(f'{p:g} MW' for p in p_mw[at])} on a base of {case.base_mva:g} MVA."
        ids = tuple(map(int, case.load.bus_id[at]))
        yield _warn("load", "p_mw", ids, message, "Check that loads are in MW, not in kW.")
    capacity = float(np.sum(case.unit.p_max_mw[case.unit.in_service]))
    stated = f"the total load is {total:g} MW, the units have {capacity:g} MW."
    if capacity > 0 and total > LOAD_PER_CAPACITY * capacity:
        remedy = "Check that loads are in MW, not in kW: the file may convert them in code below its tables."
        yield _warn("case", "load", (), stated, remedy)
    elif total > capacity:
        yield _warn("case", "load", (), stated, "Add units or raise p_max, or expect shedding in every optimum.")
    least = float(np.sum(case.unit.p_min_mw[case.unit.in_service]))
    if least > total > 0:
        message = f"the units cannot go below {least:g} MW, the total load is {total:g} MW."
        yield _warn("case", "p_min_mw", (), message, "Lower p_min or switch units off.")
    reactive, active = float(np.sum(np.abs(case.load.q_mvar))), float(np.sum(np.abs(p_mw)))
    if reactive > REACTIVE_PER_ACTIVE * active:
        message = f"the loads draw {active:g} MW and {reactive:g} Mvar."
        yield _warn("load", "q_mvar", (), message, "Check that both columns are in the same unit, and not exchanged.")


def unit_magnitudes(case: Case) -> Findings:
    """No unit is larger than any that exists."""
    p_max = case.unit.p_max_mw
    at = np.flatnonzero(np.isfinite(p_max) & (p_max > LARGE_UNIT_MW))
    if at.size:
        message = f"p_max = {listing(f'{p:g}' for p in p_max[at])} MW."
        yield _warn("unit", "p_max_mw", row_numbers(at), message, "Check that limits are in MW, not in kW.")


def feeder_drop(case: Case) -> Findings:
    """A feeder's branches can carry its load: the linear estimate of the drop, sum of r p + x q, stays small."""
    f, t = branch_positions(case)
    if np.any(f < 0) or np.any(t < 0) or np.any(case.positions(case.load.bus_id) < 0) or not is_radial(case):
        return
    tree = radial_order(case.n_bus, f, t, case.branch.in_service, int(case.slack_bus[0]))
    p, q = case.p_load_mw / case.base_mva, case.q_load_mvar / case.base_mva
    for bus in tree.order[:0:-1]:
        p[tree.parent[bus]] += p[bus]
        q[tree.parent[bus]] += q[bus]
    drop = np.zeros(case.n_bus)
    for bus in tree.order[1:]:
        via = tree.via_branch[bus]
        own = case.branch.r_pu[via] * p[bus] + case.branch.x_pu[via] * q[bus]
        drop[bus] = drop[tree.parent[bus]] + own
    worst = int(np.argmax(drop))
    if drop[worst] > DEEP_DROP_PU:
        message = f"the voltage would drop by about {drop[worst]:.3g} pu under the given load."
        remedy = "Check that impedances are in per unit, not in ohm, and loads in MW, not in kW."
        yield _warn("bus", "id", bus_ids_at(case, np.array([worst])), message, remedy)


def costs(case: Case) -> Findings:
    """Costs are convex and at most quadratic, as an exact optimum requires."""
    unit = case.unit
    polynomial, width = unit.cost_model == 2, unit.cost.shape[1]
    power = unit.cost_terms[:, None] - 1 - np.arange(width)
    used = polynomial[:, None] & (unit.cost != 0)
    at = np.flatnonzero(np.any(used & (power >= 3), axis=1))
    if at.size:
        message = f"the cost is of degree {listing(np.where(used, power, 0).max(axis=1)[at])}."
        remedy = "Fit a quadratic or piecewise linear cost: an optimal power flow refuses higher degrees."
        yield _warn("unit", "cost", row_numbers(at), message, remedy)
    concave = np.any(used & (power == 2) & (unit.cost < 0), axis=1)
    slopes = {int(i): _slopes(unit.cost[i], int(unit.cost_terms[i])) for i in np.flatnonzero(unit.cost_model == 1)}
    bent = [i for i, s in slopes.items() if np.any(np.diff(s) < -FLAT_SLOPE * np.abs(s).max(initial=1.0))]
    at = np.array(sorted({*np.flatnonzero(concave).tolist(), *bent}), np.int64)
    if at.size:
        message = "the marginal cost falls with output."
        yield _warn("unit", "cost", row_numbers(at), message, "Give a convex cost; the optimum is not exact otherwise.")


def _slopes(cost: np.ndarray, points: int) -> np.ndarray:
    x, y = cost[: 2 * points : 2], cost[1 : 2 * points : 2]
    run = np.diff(x)
    return np.divide(np.diff(y), run, out=np.zeros_like(run), where=run > 0)


PLAUSIBILITY = (
    base_power,
    base_voltages,
    voltage_bands,
    controlled_buses,
    low_set_points,
    impedances,
    line_lengths,
    ratios,
    ratings,
    repeated_branches,
    load_magnitudes,
    unit_magnitudes,
    feeder_drop,
    costs,
)
