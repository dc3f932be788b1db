"""Record power flows that pandapower solves with Q limits enforced, one file for four cases.

Runs where pandapower is installed (`pip install .[bench]`). Without --write it prints the differences to what is
committed; with --write it replaces the file.

Usage: python tests/recorders/record_reactive.py [--write]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from powerzoo_jax.cases import Case  # noqa: E402
from tests.recorders.record_dc import tables  # noqa: E402
from tests.recorders.recording import Arrays, by_case, keep  # noqa: E402
from tests.references.meshed import base_state  # noqa: E402

CASES = ("14", "30", "57", "118")
LEVELS = (0.5, 0.7, 0.85, 1.0, 1.1, 1.2, 1.3)  # multiples of loads and generation
DRAWS = 4  # states of each level: set-points move together in one half of them, each on its own in the other
SPAN, WINDOW = 0.1, 0.015  # of each load on its own, relative; of set-points [pu]
SEED = 17
TOLERANCE_MVA = 1e-9
SAME, DIGITS = 1e-9, 10  # [pu]; decimals that are stored
OPTIONS = dict(enforce_q_lims=True, tolerance_mva=TOLERANCE_MVA, calculate_voltage_angles=True, init="dc")
OPTIONS |= dict(trafo_model="pi", numba=False, max_iteration=30)
DATA = ROOT / "tests" / "recorded" / "reactive"
README = """# Power flows of four transmission cases with Q limits enforced

States of `record_reactive.reactive_states`: loads and generation times one of {levels},
every load off that on its own, set-points moved together or each on its own (seed {seed}). Solved by
`runpp(enforce_q_lims=True)` of pandapower {version} (BSD-3-Clause), tolerance {tolerance} MVA, on a network
that its `from_ppc` makes of the case's tables in MATPOWER's columns.

- `<case>.v_pu` (B, N): voltage magnitudes, buses in the order of the case
- `<case>.q_unit_pu` (B, m): reactive power of the units at the PV buses, by position in the case
- `<case>.at_limit` (B, m): -1 where it ends at the lower limit, 1 at the upper one, 0 where the bus holds its set-point

Values are stored to 1e-10. pandapower never takes a limit back, so a state can end with a bus at a limit whose
voltage passed its set-point.

Recorded by `tests/recorders/record_reactive.py --write`; without the flag it prints what would change.
"""


class ReactiveStates(NamedTuple):
    """Inputs of the recorded states, all (B, N) [pu], in numbers that float32 holds.

    p:      net injections                  q:  injections without the units that hold a voltage
    v_set:  set-points of the buses that hold theirs
    """

    p: np.ndarray
    q: np.ndarray
    v_set: np.ndarray


class Solved(NamedTuple):
    """A state as pandapower ends: voltages (N,), power [pu] of the units at `pv_positions` (m,) and of the slack."""

    v_pu: np.ndarray
    angle_rad: np.ndarray
    p_unit: np.ndarray
    q_unit: np.ndarray
    p_slack: float


def reactive_states(case: Case) -> ReactiveStates:
    """States off base at several load levels."""
    rng = np.random.default_rng(SEED)
    level = np.repeat(LEVELS, DRAWS)[:, None]
    factor = level * rng.uniform(1 - SPAN, 1 + SPAN, (len(level), case.n_bus))
    unit = base_state(case).s[0].real + case.p_load_mw / case.base_mva
    p = level * unit - factor * case.p_load_mw / case.base_mva
    q = -factor * case.q_load_mvar / case.base_mva
    together = np.arange(len(level))[:, None] % 2 == 0
    own = rng.uniform(-WINDOW, WINDOW, factor.shape)
    v_set = base_state(case).v_set + np.where(together, own[:, :1], own)
    return ReactiveStates(*(x.astype(np.float32).astype(float) for x in (p, q, v_set)))


def pv_positions(case: Case) -> np.ndarray:
    """Positions of the buses of kind 2 that have a unit in service."""
    return np.flatnonzero((case.bus.kind == 2) & np.isin(case.bus.id, case.unit.bus_id[case.unit.in_service]))


def q_range(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Limits [pu] of the units in service, summed over each of `pv_positions`."""
    on = case.unit.in_service
    at = case.positions(case.unit.bus_id[on])
    low, high = np.zeros(case.n_bus), np.zeros(case.n_bus)
    np.add.at(low, at, case.unit.q_min_mvar[on] / case.base_mva)
    np.add.at(high, at, case.unit.q_max_mvar[on] / case.base_mva)
    return low[pv_positions(case)], high[pv_positions(case)]


def network(case: Case) -> Any:
    """The case as pandapower's network: a load at every bus, one generator at every PV bus."""
    from pandapower.converter.pypower.from_ppc import from_ppc

    bus, branch = (x[:, :13] for x in tables(case))
    bus[:, 2:4] = 1.0  # a load at every bus, to be set per state
    bus[:, 9] = 100.0  # some files leave it zero, which pandapower divides by
    branch[:, 5:8] = case.base_mva  # likewise the rating of a transformer
    at = np.r_[case.slack_bus, pv_positions(case)]
    low, high = (np.r_[0.0, x] * case.base_mva for x in q_range(case))
    gen = np.zeros((len(at), 21))
    gen[:, 0], gen[:, 3], gen[:, 4], gen[:, 5] = at, high, low, case.bus.v_init_pu[at]
    gen[:, 6], gen[:, 7], gen[:, 8], gen[:, 9] = case.base_mva, 1, 1e4, -1e4
    return from_ppc(dict(baseMVA=case.base_mva, bus=bus, branch=branch, gen=gen, version="2"), f_hz=50)


def solved(
    case: Case, states: tuple[np.ndarray, ...], options: dict[str, Any], weight: Any = None, free: Any = None
) -> Iterator[Solved]:
    """Solve the states (s or p and q, v_set), (B, N) each, one by one with pandapower.

    weight:  (N,) participation of the buses in a distributed slack
    free:    (B, m) bool, units at `pv_positions` whose limits are not enforced
    """
    import pandapower as pp

    net, at = network(case), pv_positions(case)
    order = net.gen.index[np.argsort(net.gen.bus.to_numpy())]
    if weight is not None:
        net.gen.loc[order, "slack_weight"] = weight[at]
        net.ext_grid["slack_weight"] = weight[case.slack_bus[0]]
    load_at = net.load.bus.to_numpy()
    ranges = [x * case.base_mva for x in q_range(case)]
    for k, (p, q, v_set) in enumerate(zip(*states, strict=True)):
        if free is not None:
            for name, limit, none in zip(("min_q_mvar", "max_q_mvar"), ranges, (-1e4, 1e4), strict=True):
                net.gen.loc[order, name] = np.where(free[k], none, limit)
        net.load["p_mw"], net.load["q_mvar"] = -p[load_at] * case.base_mva, -q[load_at] * case.base_mva
        net.gen["p_mw"] = 0.0  # their active power stands in p
        net.gen.loc[order, "vm_pu"] = v_set[at]
        net.ext_grid["vm_pu"] = v_set[case.slack_bus[0]]
        pp.runpp(net, **options)
        bus, unit = net.res_bus.sort_index(), net.res_gen.loc[order]
        p_slack = net.res_ext_grid.p_mw.sum() / case.base_mva
        yield Solved(
            v_pu=bus.vm_pu.to_numpy(),
            angle_rad=np.deg2rad(bus.va_degree.to_numpy()),
            p_unit=unit.p_mw.to_numpy() / case.base_mva,
            q_unit=unit.q_mvar.to_numpy() / case.base_mva,
            p_slack=float(p_slack),
        )


def stored(rows: list[dict[str, np.ndarray]]) -> Arrays:
    """Rows of states stacked, rounded to what is worth storing."""
    return {key: np.stack([np.round(row[key], DIGITS) for row in rows]) for key in rows[0]}


def record(case: Case) -> Arrays:
    return within_limits(case, reactive_states(case))


def within_limits(case: Case, states: ReactiveStates, free: Any = None) -> Arrays:
    """How pandapower ends: v_pu (B, N), q_unit_pu and at_limit (B, m) of the units at `pv_positions`."""
    at = pv_positions(case)
    low, high = q_range(case)
    rows = []
    for v_set, found in zip(states.v_set, solved(case, states, OPTIONS, free=free), strict=True):
        q = found.q_unit
        limit = (np.abs(q - high) < SAME).astype(np.int8) - (np.abs(q - low) < SAME).astype(np.int8)
        holds = np.abs(found.v_pu[at] - v_set[at]) < SAME
        rows.append(dict(v_pu=found.v_pu, q_unit_pu=q, at_limit=np.where(holds, np.int8(0), limit)))
    return stored(rows)


if __name__ == "__main__":
    values = dict(seed=SEED, levels=LEVELS, tolerance=TOLERANCE_MVA)
    keep(__doc__, DATA, README, lambda: by_case(CASES, record), **values)
