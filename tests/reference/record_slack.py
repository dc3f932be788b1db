"""Record power flows that pandapower solves with a distributed slack, one file for three cases.

Runs where pandapower is installed (`pip install .[bench]`). Without --write it prints the differences to what is
committed; with --write it replaces the file.

Usage: python tests/reference/record_slack.py [--write]
"""

from __future__ import annotations

import argparse
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from powerzoo_jax.base.npz import compare_npz, write_npz  # noqa: E402
from powerzoo_jax.cases import Case  # noqa: E402
from powerzoo_jax.cases.library import load_case  # noqa: E402
from powerzoo_jax.powerflow import slack_share  # noqa: E402
from tests.reference.meshed_reference import MeshedStates, base_state  # noqa: E402
from tests.reference.record_reactive import DIGITS, network, pv_positions  # noqa: E402

CASES = ("14", "118", "300")
LEVELS = (0.8, 0.9, 1.0, 1.1)  # multiples of the loads; what the units are scheduled to give stays
SPAN, WINDOW = 0.05, 0.01  # of each load on its own, relative; of set-points [pu]
SEED = 23
OPTIONS = dict(distributed_slack=True, tolerance_mva=1e-9, calculate_voltage_angles=True, init="flat")
OPTIONS |= dict(trafo_model="pi", numba=False, lightsim2grid=False, max_iteration=40)
DATA = ROOT / "tests" / "data" / "slack"
README = """# Power flows of three transmission cases with a distributed slack

States of `record_slack.slack_states`: loads times one of {levels} and off that each on its own, units as scheduled
(seed {seed}). Solved by `runpp(distributed_slack=True)` of pandapower {version} (BSD-3-Clause), participation in
proportion to the capacity of the units in service at PV buses and the slack, on a network that its `from_ppc` makes of
the case's tables in MATPOWER's columns.

- `<case>.v_pu`, `<case>.angle_rad` (B, N): voltages, buses in the order of the case
- `<case>.p_added` (B, N): active power [pu] that each bus adds to its schedule

Values are stored to 1e-10. Recorded by `tests/reference/record_slack.py --write`; without the flag it prints what
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


def record(case: Case) -> dict[str, np.ndarray]:
    import pandapower as pp

    states, share, at = slack_states(case), bus_weights(case), pv_positions(case)
    net: Any = network(case)
    order = net.gen.index[np.argsort(net.gen.bus.to_numpy())]
    net.gen.loc[order, "slack_weight"] = share[at]
    net.ext_grid["slack_weight"] = share[case.slack_bus[0]]
    found: dict[str, list[np.ndarray]] = dict(v_pu=[], angle_rad=[], p_added=[])
    for s, v_set in zip(*states, strict=True):
        load_at = net.load.bus.to_numpy()
        net.load["p_mw"], net.load["q_mvar"] = -s.real[load_at] * case.base_mva, -s.imag[load_at] * case.base_mva
        net.gen["p_mw"] = 0.0  # their schedule stands in s
        net.gen.loc[order, "vm_pu"] = v_set[at]
        net.ext_grid["vm_pu"] = v_set[case.slack_bus[0]]
        pp.runpp(net, **OPTIONS)
        bus = net.res_bus.sort_index()
        added = np.zeros(case.n_bus)
        added[at] = net.res_gen.p_mw[order].to_numpy() / case.base_mva
        added[case.slack_bus[0]] = net.res_ext_grid.p_mw.sum() / case.base_mva
        angle = np.deg2rad(bus.va_degree.to_numpy())
        for key, row in zip(found, (bus.vm_pu.to_numpy(), angle, added), strict=True):
            found[key].append(np.round(row, DIGITS))
    return {key: np.stack(rows) for key, rows in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the committed file")
    args = parser.parse_args()
    arrays = {}
    for name in CASES:
        case = load_case(name)
        arrays |= {f"{case.name}.{key}": x for key, x in record(case).items()}
    for line in compare_npz(DATA / "expected.npz", arrays) or ["unchanged"]:
        print(line)
    if args.write:
        DATA.mkdir(parents=True, exist_ok=True)
        write_npz(DATA / "expected.npz", arrays)
        values = dict(version=metadata.version("pandapower"), seed=SEED, levels=LEVELS)
        (DATA / "README.md").write_text(README.format(**values))


if __name__ == "__main__":
    main()
