"""Three-phase equivalent of a single-phase (positive-sequence) feeder: three equal phases in three-phase tables.

ZIP loads, capacitors, voltage regulators, loads and generators on one phase: start from the balanced feeder and change
its tables with `dataclasses.replace`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np

from powerzoo_jax.base.errors import CaseError, listing
from powerzoo_jax.base.ranges import WHOLE, Finite, Share, axes, checks_ranges, fitted
from powerzoo_jax.cases.case import PV, Case
from powerzoo_jax.cases.threephase.case import (
    GROUND,
    CapacitorTable,
    LineTable,
    NodeTable,
    PhaseLoadTable,
    RegulatorTable,
    SourceTable,
    ThreePhaseCase,
    TransformerTable,
)
from powerzoo_jax.cases.topology import branch_positions

PHASES = np.arange(3)
STEP, TAP_MAX = 0.00625, 16  # the usual regulator: 32 steps over plus and minus ten percent
HOLDS_BETWEEN = (1e-3, 1e3, 5e-4)  # [pu] v_min, v_max, v_low: loads follow their law at every voltage


@checks_ranges("to_threephase")
def to_threephase(
    case: Case,
    *,
    z_share: Share = 0.0,
    i_share: Share = 0.0,
    regulators: Annotated[Sequence[int], axes("...", kind=WHOLE)] = (),
    capacitors_kvar: Mapping[int, float] | None = None,
) -> ThreePhaseCase:
    """Balanced three-phase feeder with the voltages, flows and losses of a single-phase one.

    case:             feeder with one slack bus and no PV bus; its units other than the slack's are left out
    z_share, i_share: shares of every load that are constant impedance and constant current at 1 pu
    regulators:       branches (row numbers from 0) that become regulators with a tap per phase, their impedance kept
    capacitors_kvar:  external bus id -> three-phase rating at 1 pu; shunts of the case come on top

    Raises CaseError naming the bus or branch that the tables cannot hold: several slack or PV buses, shunt losses, taps
    or phase shifts of branches, a bus without base voltage.
    """
    _refuse(case, regulators)
    kv = case.bus.base_kv / np.sqrt(3)
    n = case.n_bus
    names = np.array([str(i) for i in case.bus.id])
    f, t = branch_positions(case)
    moved = np.zeros(case.n_branch, bool)
    moved[list(regulators)] = True
    return ThreePhaseCase(
        name=case.name,
        base_mva=case.base_mva,
        citation=case.citation,
        node=NodeTable(bus=np.repeat(names, 3), phase=np.tile(PHASES + 1, n), base_kv=np.repeat(kv, 3)),
        source=_source(case),
        line=_lines(case, f, t, kv, np.flatnonzero(case.branch.in_service & ~moved)),
        transformer=_units(case, f, t, kv, np.asarray(regulators, int)),
        regulator=_regulators(len(regulators), kv[f[np.asarray(regulators, int)]]),
        capacitor=_capacitors(case, kv, dict(capacitors_kvar or {})),
        load=_loads(case, kv, z_share, i_share),
    )


def _refuse(case: Case, regulators: Sequence[int]) -> None:
    on = case.branch.in_service
    moved = [k for k in regulators if not 0 <= k < case.n_branch or not on[k]]
    if moved:
        raise CaseError(f"{case.name}: regulators names branch {listing(moved)}, which is none in service.")
    for bad, what in (
        (case.bus.kind == PV, "holds its voltage (PV)"),
        (case.bus.gs_mw != 0, "has a shunt that consumes active power"),
        (case.bus.base_kv <= 0, "has no base voltage"),
    ):
        if bad.any():
            raise CaseError(
                f"{case.name}: bus {listing(case.bus.id[bad])} {what}, which a three-phase feeder cannot hold."
            )
    if len(case.slack_bus) != 1:
        raise CaseError(f"{case.name} has {len(case.slack_bus)} reference buses; a feeder has one.")
    odd = on & ((case.branch.tap != 1) | (case.branch.shift_deg != 0))
    if odd.any():
        rows = np.flatnonzero(odd)
        raise CaseError(f"{case.name}: branch {listing(rows)} has a tap or a shift. Name it in regulators, or drop it.")


def _source(case: Case) -> SourceTable:
    slack = int(case.slack_bus[0])
    held = case.unit.v_set_pu[case.unit.in_service & (case.unit.bus_id == case.bus.id[slack])]
    magnitude = float(held[0]) if held.size else float(case.bus.v_init_pu[slack])
    nothing = np.zeros((3, 3))
    return SourceTable(
        node=3 * slack + PHASES,
        v_pu=np.full(3, magnitude),
        angle_deg=-120.0 * PHASES,
        r_ohm=nothing,
        x_ohm=nothing,
    )


def _lines(case: Case, f: np.ndarray, t: np.ndarray, kv: np.ndarray, rows: np.ndarray) -> LineTable:
    base = 3 * kv[f[rows]] ** 2 / case.base_mva
    eye = np.eye(3)[None]

    def diagonal(values: np.ndarray) -> np.ndarray:
        return values[:, None, None] * eye

    branch = case.branch
    return LineTable(
        name=np.array([f"branch {k + 1}" for k in rows]),
        from_node=3 * f[rows][:, None] + PHASES,
        to_node=3 * t[rows][:, None] + PHASES,
        r_ohm=diagonal(branch.r_pu[rows] * base),
        x_ohm=diagonal(branch.x_pu[rows] * base),
        b_us=diagonal(branch.b_pu[rows] / base * 1e6),
        in_service=np.ones(rows.size, bool),
        switch=np.ones(rows.size, bool),
        rating_amp=1e3 * branch.rate_a_mva[rows] / (3 * kv[f[rows]]),
    )


def _units(case: Case, f: np.ndarray, t: np.ndarray, kv: np.ndarray, rows: np.ndarray) -> TransformerTable:
    """Three single-phase units a regulator; ratings are the base, so impedances keep their per-unit values."""
    from_node, to_node = ((3 * at[rows][:, None] + PHASES).reshape(-1) for at in (f, t))
    count, three = from_node.size, np.repeat(rows, 3)
    ground, one = np.full(count, GROUND), np.ones(count)
    return TransformerTable(
        name=np.array([f"regulator {k + 1}" for k in three]),
        from_node=from_node,
        from_end=ground,
        to_node=to_node,
        to_end=ground,
        from_kv=kv[f[three]],
        to_kv=kv[t[three]],
        rating_kva=np.full(count, case.base_mva / 3 * 1e3),
        r_pu=case.branch.r_pu[three],
        x_pu=case.branch.x_pu[three],
        from_tap=one,
        to_tap=one,
    )


def _regulators(count: int, kv: np.ndarray) -> RegulatorTable:
    """A regulator a phase, at neutral, measuring its own unit; set to 1 pu on a 120 V secondary."""
    each = np.repeat(kv, 3)
    unit = np.full((3 * count, 3), GROUND)
    unit[:, 0] = np.arange(3 * count)
    same = np.ones(3 * count)
    return RegulatorTable(
        name=np.array([f"regulator {k // 3 + 1}.{k % 3 + 1}" for k in range(3 * count)]),
        unit=unit,
        tap=np.zeros(3 * count, np.int64),
        step=STEP * same,
        tap_max=np.full(3 * count, TAP_MAX),
        v_set_volt=120.0 * same,
        band_volt=2.0 * same,  # wider than a step, 0.75 V, or the control would hunt
        pt_ratio=each * 1e3 / 120.0,
        ct_primary_amp=100.0 * same,
        drop_r_volt=0.0 * same,
        drop_x_volt=0.0 * same,
    )


def _capacitors(case: Case, kv: np.ndarray, given_kvar: dict[int, float]) -> CapacitorTable:
    kvar = case.bus.bs_mvar * 1e3
    for bus, rating in given_kvar.items():
        if int(bus) not in case.bus_index:
            raise CaseError(f"{case.name} has no bus {bus} for a capacitor. Valid ids: {listing(case.bus.id)}.")
        kvar[case.bus_index[int(bus)]] += fitted(f"to_threephase capacitors_kvar[{bus}]", rating, Finite)
    at = np.flatnonzero(kvar)
    return CapacitorTable(
        name=np.repeat(np.array([f"capacitor {i}" for i in case.bus.id[at]], np.str_), 3),
        node=(3 * at[:, None] + PHASES).reshape(-1),
        end=np.full(3 * at.size, GROUND),
        q_kvar=np.repeat(kvar[at] / 3, 3),
        kv=np.repeat(kv[at], 3),
    )


def _loads(case: Case, kv: np.ndarray, z_share: float, i_share: float) -> PhaseLoadTable:
    at = np.flatnonzero((case.p_load_mw != 0) | (case.q_load_mvar != 0))
    at = at[at != case.slack_bus[0]]
    one = np.ones(3 * at.size)
    low, high, bottom = HOLDS_BETWEEN
    return PhaseLoadTable(
        name=np.repeat(np.array([str(i) for i in case.bus.id[at]], np.str_), 3),
        node=(3 * at[:, None] + PHASES).reshape(-1),
        end=np.full(3 * at.size, GROUND),
        p_kw=np.repeat(case.p_load_mw[at] * 1e3 / 3, 3),
        q_kvar=np.repeat(case.q_load_mvar[at] * 1e3 / 3, 3),
        kv=np.repeat(kv[at], 3),
        z_p=z_share * one,
        i_p=i_share * one,
        z_q=z_share * one,
        i_q=i_share * one,
        v_min_pu=low * one,
        v_max_pu=high * one,
        v_low_pu=bottom * one,
    )
