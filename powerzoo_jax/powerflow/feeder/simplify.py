"""Networks of all kinds as feeders of given injections: what holds a voltage delivers its solved power instead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from powerzoo_jax.base.errors import CaseError, listing
from powerzoo_jax.base.ranges import Label, checks_ranges
from powerzoo_jax.cases import Case, assert_valid, isolate_unsupplied
from powerzoo_jax.cases.case import ISOLATED, PQ, PV, REF
from powerzoo_jax.cases.topology import branch_positions
from powerzoo_jax.powerflow.feeder.factors import nominal_injection
from powerzoo_jax.powerflow.meshed.base_case import admittance, solve_base, voltage_setpoints

PARTIAL_LOAD = 0.5  # share of the load at which the report compares voltages


@checks_ranges("simplify_feeder")
def simplify_feeder(case: Case, *, reference: Label | None = None) -> Case:
    """The part of a network that one bus supplies, with given injections elsewhere, as the feeder solver takes it.

    reference:  id of the reference bus that stays; needed where the case has several

    At the case's own load nothing moves: units at other buses that hold their voltage, or are references, deliver the
    power that they have there. At other loads they keep it, while the voltage moves; `notes` of the case returned tell
    what was changed, and by how much voltages differ at half the load. Lines with charging, taps, phase shifts and
    shunts stay as they are. A case that is such a feeder already is returned as it is.

    Raises CaseError for an invalid case or a reference that is none, BaseLoadError where the case has no power flow.

    Example:
        from powerzoo_jax import load_case

        feeder = simplify_feeder(load_case("case14"))  # four units hold voltages beside the reference
        print("\\n".join(feeder.notes))
    """
    assert_valid(case)
    chosen, notes = _with_reference(case, reference), []
    gone = (chosen.bus.kind == ISOLATED) & (case.bus.kind != ISOLATED)
    if gone.any():
        notes.append(f"{gone.sum()} buses that the reference does not supply are left out")
    supplied = _supplied(chosen)
    free = (supplied.bus.kind == PV) | (supplied.bus.kind == REF)
    free[supplied.bus.id == (case.bus.id[case.slack_bus[0]] if reference is None else reference)] = False
    if not free.any():
        return case if supplied.n_bus == case.n_bus else replace(supplied, notes=(*case.notes, *notes))
    feeder = _given_power(supplied, free)
    notes.append(
        f"bus {listing(supplied.bus.id[free])} delivers the power of the case's own load and no longer holds its "
        f"voltage: at {PARTIAL_LOAD:g} times the load voltages differ by up to {_moved(supplied, feeder):.4f} pu"
    )
    return replace(feeder, notes=(*case.notes, *notes))


def _with_reference(case: Case, reference: int | None) -> Case:
    """The case supplied by one reference alone; the others of its island hold their voltage, the rest is isolated."""
    ids = case.bus.id[case.bus.kind == REF]
    if reference is None and len(ids) > 1:
        raise CaseError(f"{case.name} has the reference buses {listing(ids)}; a feeder has one. Give reference=.")
    if reference is not None and reference not in ids:
        raise CaseError(f"{case.name}: reference = {reference} is no reference bus. Valid: {listing(ids)}.")
    if len(ids) == 1:
        return isolate_unsupplied(case)
    others = (case.bus.kind == REF) & (case.bus.id != reference)
    alone = isolate_unsupplied(replace(case, bus=replace(case.bus, kind=np.where(others, PV, case.bus.kind))))
    return replace(alone, bus=replace(alone.bus, kind=np.where(others & (alone.bus.kind == PV), REF, alone.bus.kind)))


def _supplied(case: Case) -> Case:
    """The case without isolated buses and what stands there."""
    keep = case.bus.kind != ISOLATED
    if keep.all():
        return case
    f, t = branch_positions(case)
    return replace(
        case,
        bus=case.bus.rows(keep),
        branch=case.branch.rows(keep[f] & keep[t]),
        unit=case.unit.rows(keep[case.positions(case.unit.bus_id)]),
        load=case.load.rows(keep[case.positions(case.load.bus_id)]),
    )


def _given_power(case: Case, free: np.ndarray) -> Case:
    """The case with all-PQ buses in the place of `free` (N,), whose first unit makes up what they delivered."""
    v = solve_base(case, nominal_injection(case), voltage_setpoints(case))
    u, at = case.unit, case.positions(case.unit.bus_id)
    injected = v * np.conj(admittance(case) @ v)
    missing = case.base_mva * (injected - _injection(case))
    on = np.flatnonzero(u.in_service & free[at])
    first = np.isin(np.arange(len(u)), on[np.unique(at[on], return_index=True)[1]])
    bare = free & (case.bus.kind == REF) & ~np.isin(np.arange(case.n_bus), at[on])
    if bare.any():
        raise CaseError(
            f"{case.name}: reference bus {listing(case.bus.id[bare])} has no unit in service. Give it kind 1."
        )
    unit = replace(
        u,
        p_mw=u.p_mw + np.where(first, missing.real[at], 0.0),
        q_mvar=u.q_mvar + np.where(first, missing.imag[at], 0.0),
    )
    return replace(case, bus=replace(case.bus, kind=np.where(free, PQ, case.bus.kind)), unit=unit)


def _injection(case: Case) -> np.ndarray:
    """Injection of every bus, references too, as the tables have it, (N,) complex [pu]."""
    kind = np.where(case.bus.kind == REF, PQ, case.bus.kind)
    return nominal_injection(replace(case, bus=replace(case.bus, kind=kind)))


def _moved(before: Case, after: Case) -> float:
    """Largest difference of a voltage magnitude between two cases at part of their load [pu]."""
    size = []
    for case in (before, after):
        load = replace(case.load, p_mw=PARTIAL_LOAD * case.load.p_mw, q_mvar=PARTIAL_LOAD * case.load.q_mvar)
        part = replace(case, load=load)
        size.append(np.abs(solve_base(part, nominal_injection(part), voltage_setpoints(part))))
    return float(np.abs(size[0] - size[1]).max())
