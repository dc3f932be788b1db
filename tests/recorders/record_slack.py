"""Record power flows that pandapower solves with a distributed slack, one file for three cases.

Runs where pandapower is installed (`pip install .[bench]`). Without --write it prints the differences to what is
committed; with --write it replaces the file.

Usage: python tests/recorders/record_slack.py [--write]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from powerzoo_jax.cases import Case  # noqa: E402
from powerzoo_jax.powerflow import slack_share  # noqa: E402
from tests.recorders.record_reactive import pv_positions, solved, stored  # noqa: E402
from tests.recorders.recording import Arrays, by_case, keep  # noqa: E402
from tests.references.meshed import MeshedStates, base_state  # noqa: E402

CASES = ("14", "118", "300")
LEVELS = (0.8, 0.9, 1.0, 1.1)  # multiples of the loads; what the units are scheduled to give stays
SPAN, WINDOW = 0.05, 0.01  # of each load on its own, relative; of set-points [pu]
SEED = 23
OPTIONS = dict(distributed_slack=True, tolerance_mva=1e-9, calculate_voltage_angles=True, init="flat")
OPTIONS |= dict(trafo_model="pi", numba=False, lightsim2grid=False, max_iteration=40)
DATA = ROOT / "tests" / "recorded" / "slack"
README = """# Power flows of three transmission cases with a distributed slack

States of `record_slack.slack_states`: loads times one of {levels} and off that each on its own, units as scheduled
(seed {seed}). Solved by `runpp(distributed_slack=True)` of pandapower {version} (BSD-3-Clause), participation in
proportion to the capacity of the units in service at PV buses and the slack, on a network that its `from_ppc` makes of
the case's tables in MATPOWER's columns.

- `<case>.v_pu`, `<case>.angle_rad` (B, N): voltages, buses in the order of the case
- `<case>.p_added` (B, N): active power [pu] that each bus adds to its schedule

Values are stored to 1e-10. Recorded by `tests/recorders/record_slack.py --write`; without the flag it prints what
would change.
"""


def slack_states(case: Case) -> MeshedStates:
    """States whose loads are off the schedule of the units, in numbers that float32 holds."""
    rng = np.random.default_rng(SEED)
    nominal = base_state(case)
    load = (case.p_load_mw + 1j * case.q_load_mvar) / case.base_mva
    factor = np.array(LEVELS)[:, None] * rng.uniform(1 - SPAN, 1 + SPAN, (len(LEVELS), case.n_bus))
    s = nominal.s - (factor - 1) * load
    v_set = nominal.v_set + rng.uniform(-WINDOW, WINDOW, factor.shape)
    return MeshedStates(s.astype(np.complex64).astype(complex), v_set.astype(np.float32).astype(float))


def bus_weights(case: Case) -> np.ndarray:
    """Participation (N,) of the buses that hold their voltage: pandapower knows generators there only."""
    share = slack_share(case)
    held = np.zeros(case.n_bus, bool)
    held[np.r_[case.slack_bus, pv_positions(case)]] = True
    return np.where(held, share, 0.0) / share[held].sum()


def record(case: Case) -> Arrays:
    states, share, at = slack_states(case), bus_weights(case), pv_positions(case)
    rows = []
    for found in solved(case, (states.s.real, states.s.imag, states.v_set), OPTIONS, share):
        added = np.zeros(case.n_bus)
        added[at], added[case.slack_bus[0]] = found.p_unit, found.p_slack
        rows.append(dict(v_pu=found.v_pu, angle_rad=found.angle_rad, p_added=added))
    return stored(rows)


if __name__ == "__main__":
    keep(__doc__, DATA, README, lambda: by_case(CASES, record), seed=SEED, levels=LEVELS)
