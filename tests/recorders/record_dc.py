"""Record PYPOWER's DC power flow (as pandapower ships it) of nominal states, one file for all cases.

Runs where pandapower is installed (`pip install .[bench]`). Without --write it prints the differences to what is
committed; with --write it replaces the file.

Usage: python tests/recorders/record_dc.py [--write]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from powerzoo_jax.cases import Case  # noqa: E402
from tests.recorders.recording import Arrays, by_case, keep  # noqa: E402

CASES = ("case9", "case14", "case24_ieee_rts", "case30", "case39", "case57", "case118", "case300", "case2383wp")
DATA = ROOT / "tests" / "recorded" / "dc"
README = """# DC power flows of nine transmission cases

`<case>.angle_rad` (buses) and `<case>.p_from_pu` (branches) of the nominal injections, in the order of the case.
Solved by the `makeBdc` and `dcpf` that pandapower {version} (BSD-3-Clause) carries from PYPOWER, from the case's
tables in MATPOWER's columns: susceptance 1 / (x tap), phase shifts, shunt conductance as load.
Agreement to be reached: 1e-9 of the largest value.

Recorded by `tests/recorders/record_dc.py --write`; without the flag it prints what would change.
"""


def tables(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Bus and branch tables in MATPOWER's columns, buses numbered by position."""
    b, br = case.bus, case.branch
    zero, n = np.zeros(case.n_bus), np.arange(case.n_bus, dtype=float)
    bus = [n, b.kind, case.p_load_mw, case.q_load_mvar, b.gs_mw, b.bs_mvar, zero + 1, b.v_init_pu, b.angle_init_deg]
    bus += [b.base_kv, zero + 1, b.v_max_pu, b.v_min_pu]
    off = np.zeros(case.n_branch)
    branch = [case.positions(br.from_id), case.positions(br.to_id), br.r_pu, br.x_pu, br.b_pu, off, off, off]
    branch += [br.tap, br.shift_deg, br.in_service, off - 360, off + 360]
    # pandapower's tables carry further columns of its own behind MATPOWER's
    return _wide(bus, 20), _wide(branch, 35)


def _wide(columns: list[np.ndarray], width: int) -> np.ndarray:
    table = np.zeros((len(columns[0]), width))
    for k, column in enumerate(columns):
        table[:, k] = column
    return table


def record(case: Case) -> Arrays:
    """Angles [rad] and flows [pu] of the nominal state."""
    from pandapower.pypower.dcpf import dcpf
    from pandapower.pypower.makeBdc import makeBdc

    bus, branch = tables(case)
    b_bus, b_from, p_bus, p_from, *_ = makeBdc(bus, branch)
    on, unit = case.unit.in_service, case.unit
    p = -(case.p_load_mw + case.bus.gs_mw) / case.base_mva - p_bus
    np.add.at(p, case.positions(unit.bus_id[on]), unit.p_mw[on] / case.base_mva)
    kind = case.bus.kind
    start = np.deg2rad(case.bus.angle_init_deg)
    ref, pv, pq = (np.flatnonzero(kind == k) for k in (3, 2, 1))
    angle = dcpf(b_bus.tocsr(), p, start, ref, pv, pq)
    return dict(angle_rad=np.asarray(angle), p_from_pu=np.asarray(b_from @ angle + p_from))


if __name__ == "__main__":
    keep(__doc__, DATA, README, lambda: by_case(CASES, record))
