"""Rules for three-phase feeders, as `validate` has them for cases: every finding at once, with what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields

import numpy as np

from powerzoo_jax.base.errors import CaseError, Problem, listing, render_problems
from powerzoo_jax.cases.threephase.case import GROUND, ThreePhaseCase, grounded_neutrals
from powerzoo_jax.cases.topology import islands

Findings = Iterator[Problem]
TABLES = ("node", "source", "line", "transformer", "regulator", "capacitor", "load", "shunt", "exponent")
ENDS = {
    "line": ("from_node", "to_node"),
    "transformer": ("from_node", "from_end", "to_node", "to_end"),
    "capacitor": ("node", "end"),
    "load": ("node", "end"),
    "shunt": ("node", "end"),
}
POSITIVE = {
    "node": ("base_kv",),
    "transformer": ("from_kv", "to_kv", "rating_kva", "from_tap", "to_tap"),
    "regulator": ("step", "tap_max", "v_set_volt", "band_volt", "pt_ratio", "ct_primary_amp"),
    "capacitor": ("kv",),
    "load": ("kv", "v_min_pu", "v_max_pu"),
}
SAME_KV = 0.02  # relative difference of base voltages along a line, beyond which one of them is wrong
RATED_KV = (0.7, 1.4)  # rated over base voltage of a load or capacitor; 1.73 is line to line taken for line to neutral
LARGE_FEEDER_KW = 1e5  # one hundred MW at one row: W written for kW


def validate_threephase(case: ThreePhaseCase) -> list[Problem]:
    """Return every problem of a feeder, errors and warnings; empty = nothing found."""
    found = [problem for rule in SHAPE for problem in rule(case)]
    # what follows reads positions, which must exist
    broken = any(p.severity == "error" for p in found)
    return found + ([] if broken else [problem for rule in RULES for problem in rule(case)])


def assert_valid_feeder(case: ThreePhaseCase) -> None:
    """Raise one CaseError that lists all errors of a feeder; warnings pass."""
    errors = [p for p in validate_threephase(case) if p.severity == "error"]
    if errors:
        raise CaseError(render_problems(case.name, errors))


def finite(case: ThreePhaseCase) -> Findings:
    """Every number is finite."""
    for component in TABLES:
        table = getattr(case, component)
        for column in fields(table):
            values = np.asarray(getattr(table, column.name))
            if values.dtype.kind != "f" or values.size == 0:
                continue
            at = np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))
            if at.size:
                message = f"{column.name} is not a finite number in {at.size} row(s)."
                yield Problem(component, column.name, _names(case, component, at), message, "Give numbers.")


def base_power(case: ThreePhaseCase) -> Findings:
    """The power base is positive."""
    if not (np.isfinite(case.base_mva) and case.base_mva > 0):
        yield Problem("case", "base_mva", (), f"base_mva = {case.base_mva} MVA.", "Give a positive base, such as 10.")


def nodes(case: ThreePhaseCase) -> Findings:
    """Nodes have a number from 1 on and occur once."""
    bad = np.flatnonzero(case.node.phase < 1)
    if bad.size:
        message = f"the phase is {listing(case.node.phase[bad])}."
        yield Problem("node", "phase", _names(case, "node", bad), message, "Use 1, 2 or 3, and 4 for a neutral.")
    names, count = np.unique(np.array(case.node_names, str), return_counts=True)
    if (count > 1).any():
        twice = tuple(map(str, names[count > 1]))
        yield Problem("node", "bus", twice, "the node occurs more than once.", "Remove rows.")


def positions(case: ThreePhaseCase) -> Findings:
    """Ends are nodes that exist, units of regulators are transformers that exist."""
    for component, columns in ENDS.items():
        for column in columns:
            at = getattr(getattr(case, component), column)
            wrong = (at < GROUND) | (at >= case.n_node)
            bad = np.flatnonzero(wrong.any(axis=1) if wrong.ndim > 1 else wrong)
            if bad.size:
                message = f"{column} names a node that does not exist."
                yield Problem(component, column, _names(case, component, bad), message, "Correct the position.")
    if ((case.source.node < 0) | (case.source.node >= case.n_node)).any():
        yield Problem("source", "node", (), "it stands at a node that does not exist.", "Give three nodes of one bus.")
    unit = case.regulator.unit.reshape(-1, 3)
    bad = np.flatnonzero((unit[:, 0] < 0) | (unit < -1).any(1) | (unit >= len(case.transformer)).any(1))
    if bad.size:
        message = "it moves a transformer unit that does not exist."
        yield Problem("regulator", "unit", _names(case, "regulator", bad), message, "Name its transformer.")
    unit = case.shunt.unit
    bad = np.flatnonzero((unit < -1) | (unit >= len(case.transformer)))
    if bad.size:
        message = "it stands on a transformer unit that does not exist."
        yield Problem("shunt", "unit", _names(case, "shunt", bad), message, "Name a unit, or -1 for none.")
    rows = case.exponent.load
    if ((rows < 0) | (rows >= len(case.load))).any() or len(np.unique(rows)) < len(rows):
        message = f"load = {listing(rows)}: each is a row of the {len(case.load)} loads, once."
        yield Problem("exponent", "load", (), message, "Correct the rows, or drop the table.")


def positive(case: ThreePhaseCase) -> Findings:
    """Voltages, ratings, ratios and dead bands are positive."""
    for component, columns in POSITIVE.items():
        for column in columns:
            values = getattr(getattr(case, component), column)
            at = np.flatnonzero(values <= 0)
            if at.size:
                message = f"{column} = {listing(values[at])}."
                yield Problem(component, column, _names(case, component, at), message, "Give a positive number.")


def two_ends(case: ThreePhaseCase) -> Findings:
    """Nothing lies between a node and itself."""
    pairs = (
        ("transformer", case.transformer.from_node, case.transformer.from_end),
        ("transformer", case.transformer.to_node, case.transformer.to_end),
        ("capacitor", case.capacitor.node, case.capacitor.end),
        ("load", case.load.node, case.load.end),
        ("shunt", case.shunt.node, case.shunt.end),
    )
    for component, first, second in pairs:
        at = np.flatnonzero(first == second)
        if at.size:
            message = "both ends are one node, or the ground."
            yield Problem(component, "node", _names(case, component, at), message, "Correct an end.")


def shunts_on_units(case: ThreePhaseCase) -> Findings:
    """A shunt on a transformer unit lies across its second winding."""
    t, shunt, on = case.transformer, case.shunt, np.flatnonzero(case.shunt.unit >= 0)
    own = np.sort(np.stack([t.to_node, t.to_end], 1)[shunt.unit[on]], 1)
    at = on[(np.sort(np.stack([shunt.node, shunt.end], 1)[on], 1) != own).any(1)]
    if at.size:
        message = "it does not lie across the second winding of its unit."
        yield Problem("shunt", "unit", _names(case, "shunt", at), message, "Correct its ends, or give -1 for no unit.")


def conductors(case: ThreePhaseCase) -> Findings:
    """A line has the same conductors at both ends, a symmetric impedance, and one voltage level."""
    line = case.line
    there, back = line.from_node >= 0, line.to_node >= 0
    at = np.flatnonzero((there != back).any(1) | ~there.any(1))
    if at.size:
        message = "its ends have different conductors, or none."
        yield Problem("line", "to_node", _names(case, "line", at), message, "Give both ends the same phases.")
    for name in ("r_ohm", "x_ohm", "b_us"):
        matrix = getattr(line, name)
        size, skew = (np.abs(x).max((1, 2), initial=0) for x in (matrix, matrix - matrix.transpose(0, 2, 1)))
        at = np.flatnonzero(skew > 1e-9 * size)
        if at.size:
            message = f"{name} is not symmetric: the mutual impedance of two conductors is one number."
            yield Problem("line", name, _names(case, "line", at), message, "Mirror the lower triangle.")
    kv = np.r_[case.node.base_kv, np.nan]
    ratio = kv[line.from_node] / kv[line.to_node]
    # an open line between two voltages carries nothing, and is how a script notes a tie that is never closed
    joined = there & back & line.in_service[:, None]
    at = np.flatnonzero((joined & (np.abs(ratio - 1) > SAME_KV)).any(1))
    if at.size:
        message = "it joins nodes of different base voltage."
        yield Problem("line", "to_node", _names(case, "line", at), message, "Put a transformer there, or correct it.")


def impedances(case: ThreePhaseCase) -> Findings:
    """No transformer is without impedance, no resistance is negative."""
    t = case.transformer
    at = np.flatnonzero((t.r_pu == 0) & (t.x_pu == 0))
    if at.size:
        message = "r = x = 0 pu: the engine that wrote the file adds a reactance of its own."
        yield Problem("transformer", "x_pu", _names(case, "transformer", at), message, "Give 1e-4 pu.", "warning")
    own = np.diagonal(case.line.r_ohm, axis1=1, axis2=2)
    for component, column, low in (("transformer", "r_pu", t.r_pu < 0), ("line", "r_ohm", (own < 0).any(1))):
        at = np.flatnonzero(low)
        if at.size:
            yield Problem(component, column, _names(case, component, at), "negative resistance.", "Change the sign.")


def supplied(case: ThreePhaseCase) -> Findings:
    """Every node is joined with the source."""
    line, t = case.line, case.transformer
    on = (line.from_node >= 0) & (line.to_node >= 0) & line.in_service[:, None]
    pairs = [np.stack([line.from_node[on], line.to_node[on]])]
    shunts = (case.shunt.node, case.shunt.end)
    grounded = grounded_neutrals(case)
    earth = (grounded, np.full(grounded.size, case.source.node[0]))
    across = (np.where(t.from_node >= 0, t.from_node, t.from_end), np.where(t.to_node >= 0, t.to_node, t.to_end))
    for ends in ((t.from_node, t.from_end), (t.to_node, t.to_end), across, shunts, earth):
        pairs.append(np.stack(ends)[:, (ends[0] != GROUND) & (ends[1] != GROUND)])
    f, to = np.concatenate(pairs, axis=1)
    label = islands(case.n_node, f, to, np.ones(f.size, bool))
    at = np.flatnonzero(~np.isin(label, label[case.source.node]))
    if at.size:
        message = f"{at.size} node(s) are not joined with the source."
        yield Problem("node", "bus", _names(case, "node", at), message, "Close a switch, or drop these nodes.")


def regulators(case: ThreePhaseCase) -> Findings:
    """Taps lie in their range; a dead band is wider than a step; no unit has two controls."""
    r = case.regulator
    at = np.flatnonzero(np.abs(r.tap) > r.tap_max)
    if at.size:
        message = f"tap = {listing(r.tap[at])} beyond {listing(r.tap_max[at])}."
        yield Problem("regulator", "tap", _names(case, "regulator", at), message, "Give a position of the range.")
    unit = r.unit.reshape(-1, 3)
    moved, count = np.unique(unit[unit >= 0], return_counts=True)
    if (count > 1).any():
        names = _names(case, "transformer", moved[count > 1])
        yield Problem("transformer", "name", names, "two regulators move it.", "Keep one control.")
    stride = r.step * case.transformer.to_kv[unit[:, 0]] * 1e3 / r.pt_ratio
    at = np.flatnonzero(r.band_volt < stride)
    if at.size:
        message = f"band = {listing(f'{x:g}' for x in r.band_volt[at])} V is narrower than one step: it will hunt."
        yield Problem("regulator", "band_volt", _names(case, "regulator", at), message, "Widen it.", "warning")


def load_laws(case: ThreePhaseCase) -> Findings:
    """The range in which a load keeps its law is one."""
    load = case.load
    at = np.flatnonzero((load.v_low_pu > load.v_min_pu) | (load.v_min_pu > load.v_max_pu))
    if at.size:
        message = "its voltage limits are not in the order v_low <= v_min <= v_max."
        yield Problem("load", "v_min_pu", _names(case, "load", at), message, "Exchange the limits.")


def magnitudes(case: ThreePhaseCase) -> Findings:
    """Rated voltages fit the nodes, loads are in kW."""
    for component in ("load", "capacitor"):
        table = getattr(case, component)
        base = case.node.base_kv[np.maximum(table.node, table.end)]
        base = np.where((table.node != GROUND) & (table.end != GROUND), np.sqrt(3), 1.0) * base
        ratio = table.kv / base
        at = np.flatnonzero((ratio < RATED_KV[0]) | (ratio > RATED_KV[1]))
        if at.size:
            found = listing(f"{x:.3g}" for x in table.kv[at])
            message = f"rated at {found} kV where the node has {listing(f'{x:.3g}' for x in base[at])} kV."
            remedy = "Take line-to-neutral for wye, line-to-line for delta."
            yield Problem(component, "kv", _names(case, component, at), message, remedy, "warning")
    at = np.flatnonzero(np.hypot(case.load.p_kw, case.load.q_kvar) > LARGE_FEEDER_KW)
    if at.size:
        message = f"{listing(f'{x:g}' for x in case.load.p_kw[at])} kW at one node."
        yield Problem("load", "p_kw", _names(case, "load", at), message, "Check the unit: kW, not W.", "warning")


def notes(case: ThreePhaseCase) -> Findings:
    """Records of the feeder's source that the tables cannot express."""
    for note in case.notes:
        yield Problem("case", "notes", (), f"{note}.", "Nothing to do where it does not matter.", "warning")


def _names(case: ThreePhaseCase, component: str, at: np.ndarray) -> tuple[object, ...]:
    """Names of the rows, each once."""
    if component == "node":
        return tuple(case.node_names[k] for k in at)
    if component == "source":
        return ()
    if component == "exponent":
        rows = case.exponent.load[at]
        return _names(case, "load", rows[(rows >= 0) & (rows < len(case.load))])
    return tuple(dict.fromkeys(map(str, getattr(case, component).name[at])))


Rule = Callable[[ThreePhaseCase], Findings]
SHAPE: tuple[Rule, ...] = (finite, base_power, nodes, positions)
RULES: tuple[Rule, ...] = (
    positive,
    two_ends,
    shunts_on_units,
    conductors,
    impedances,
    supplied,
    regulators,
    load_laws,
    magnitudes,
    notes,
)
