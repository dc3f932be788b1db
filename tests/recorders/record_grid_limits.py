"""Record power flows within reactive limits that pandapower solves for the transmission environment, one file.

Runs where pandapower is installed (`pip install .[bench]`). Without --write it prints the differences to what is
committed; with --write it replaces the file.

Usage: python tests/recorders/record_grid_limits.py [--write]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from powerzoo_jax.cases import Case  # noqa: E402
from tests.recorders.record_reactive import ReactiveStates, pv_positions, q_range, within_limits  # noqa: E402
from tests.recorders.recording import Arrays, by_case, keep  # noqa: E402
from tests.references.meshed import base_state  # noqa: E402

CASE = "pz_case118"
LOADS_MW = (2000.0, 2750.0, 3500.0, 4250.0, 5000.0, 5750.0, 6500.0, 6870.0)
SPREAD = 0.2  # of the range of a unit, around the place that all would have
SEED = 23
DATA = ROOT / "tests" / "recorded" / "grid_limits"
README = """# Power flows of case118 within reactive limits, as its environment runs them

States of `record_grid_limits.grid_states`: loads of {loads} MW, each with all units at the same
place of their range and with places drawn around it (seed {seed}). Solved by `runpp(enforce_q_lims=True)` of
pandapower {version} (BSD-3-Clause) with the options of `record_reactive.py`. It never takes a limit back: where a
bus at a limit ends beyond its set-point on the far side, the state is solved again without the limits of that bus, and
the unit then lies within them.

- `pz_case118.v_pu` (B, N): voltage magnitudes, buses in the order of the case
- `pz_case118.q_unit_pu` (B, m): reactive power of the units at the PV buses, by position in the case
- `pz_case118.at_limit` (B, m): -1 where it ends at the lower limit, 1 at the upper one, 0 where the bus holds its
  set-point

Recorded by `tests/recorders/record_grid_limits.py --write`; without the flag it prints what would change.
"""


class GridStates(NamedTuple):
    """Load (B,) [MW] and places of the units (B, G) in [-1, 1], NaN where there is no schedule."""

    load_mw: np.ndarray
    place: np.ndarray


def grid_states(case: Case) -> GridStates:
    """Each load without and with a schedule; a schedule meets the load but for losses, in numbers float32 holds."""
    rng, unit = np.random.default_rng(SEED), case.unit
    room = unit.p_max_mw - unit.p_min_mw
    slack = case.positions(unit.bus_id) == case.slack_bus[0]
    places = []
    for load in LOADS_MW:
        level = same_place(case, load)
        drawn = np.where(slack, level, level + rng.uniform(-SPREAD, SPREAD, len(room)))
        drawn += np.where(slack, 0, (level * room.sum() - drawn @ room) / room[~slack].sum())
        assert drawn.min() >= 0 and drawn.max() <= 1
        places += [np.full(len(room), np.nan), 2 * drawn - 1]
    return GridStates(np.repeat(LOADS_MW, 2), np.stack(places).astype(np.float32).astype(float))


def same_place(case: Case, load_mw: float) -> float:
    """Place in [0, 1] at which all units together give a load."""
    unit = case.unit
    return float((load_mw - unit.p_min_mw.sum()) / (unit.p_max_mw - unit.p_min_mw).sum())


def injections(case: Case, states: GridStates) -> ReactiveStates:
    """The same states as injections of the network; reactive load follows active load."""
    unit, at = case.unit, case.positions(case.unit.bus_id)
    p = -np.outer(states.load_mw, case.p_load_mw / case.p_load_mw.sum())
    q = -np.outer(states.load_mw, case.q_load_mvar / case.p_load_mw.sum())
    for row, load, place in zip(p, *states, strict=True):
        place = np.where(np.isnan(place), same_place(case, load), 0.5 * (place + 1))
        np.add.at(row, at, unit.p_min_mw + place * (unit.p_max_mw - unit.p_min_mw))
    v_set = np.repeat(base_state(case).v_set, len(p), 0)
    return ReactiveStates(p / case.base_mva, q / case.base_mva, v_set)


def record(case: Case) -> Arrays:
    states, at = injections(case, grid_states(case)), pv_positions(case)
    low, high = q_range(case)
    free = np.zeros((len(states.p), len(at)), bool)
    while True:
        found = within_limits(case, states, free)
        q, beyond = found["q_unit_pu"], found["at_limit"] * (found["v_pu"][:, at] - states.v_set[:, at])
        if not (beyond > 0).any():
            assert np.all((q >= low) & (q <= high) | ~free)
            return found
        free |= beyond > 0


if __name__ == "__main__":
    values = dict(seed=SEED, loads=", ".join(f"{x:.0f}" for x in LOADS_MW))
    keep(__doc__, DATA, README, lambda: by_case((CASE,), record), **values)
