"""Record pandapower's Newton results of a few states per meshed case, to validate the tests' own reference.

Runs where pandapower is installed (`pip install .[bench]`). Without --write it prints the differences to what is
committed; with --write it replaces the files.

Usage: python tests/recorders/record_meshed.py [--write]
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

from powerzoo_jax.base.npz import write_npz  # noqa: E402
from powerzoo_jax.cases import Case  # noqa: E402
from powerzoo_jax.cases.library import load_case  # noqa: E402
from tests.recorders.record_dc import tables  # noqa: E402
from tests.references.meshed import MeshedStates, base_state, draw_states  # noqa: E402
from tools.builder import compare_npz  # noqa: E402

CASES = ("9", "14", "24_ieee_rts", "30", "39", "57", "118", "300", "1354pegase", "2383wp")
SEED = 11
FEW, LARGE = 2, 1000  # states of a case of that many buses or more, to keep its file small
COUNT = 5
RTOL, ATOL = 0.0, 1e-9
TOLERANCES_PU = (1e-11, 1e-10, 1e-9)  # the tightest that a state reaches
DATA = ROOT / "tests" / "recorded"
DEVICES = ("svc", "tcsc", "ssc", "vsc", "bus_dc", "branch_dc", "source_dc")  # none of ours, but asked for


def recorded_states(case: Case) -> MeshedStates:
    """The case as its file gives it, then states off it."""
    nominal = base_state(case)
    off = draw_states(case, (FEW if case.n_bus >= LARGE else COUNT) - 1, SEED)
    return MeshedStates(*(np.vstack(pair) for pair in zip(nominal, off, strict=True)))


def _solve(net: dict[str, Any], ybus: Any, s: np.ndarray, v_set: np.ndarray, starts: list[np.ndarray]) -> np.ndarray:
    """Solve to the tightest tolerance that the arithmetic of the network allows."""
    from pandapower.pypower.newtonpf import newtonpf

    kind, held = net["kind"], net["held"]
    ref, pv = np.flatnonzero(kind == 3), np.flatnonzero((kind == 2) & held)
    pq = np.flatnonzero((kind == 1) | ((kind == 2) & ~held))
    options = dict(max_iteration=30, numba=False, algorithm="nr", voltage_depend_loads=False)
    options |= dict(distributed_slack=False, v_debug=False, use_umfpack=False, permc_spec=None)
    for tolerance in TOLERANCES_PU:
        for start in starts:
            v = start.copy()
            v[held] = v_set[held] * v[held] / np.abs(v[held])
            v, success, *_ = newtonpf(ybus, s, v, ref, pv, pq, net, options | {"tolerance_mva": tolerance})
            if success:
                return np.asarray(v)
    raise RuntimeError(f"no state within {TOLERANCES_PU[-1]} pu")


def record(case: Case) -> dict[str, np.ndarray]:
    from pandapower.pypower.makeYbus import makeYbus

    states = recorded_states(case)
    bus, branch = tables(case)
    ybus, y_from, y_to = makeYbus(case.base_mva, bus, branch)
    kind = case.bus.kind
    held = (kind != 1) & np.isin(case.bus.id, case.unit.bus_id[case.unit.in_service])
    nothing: dict[str, Any] = {name: np.zeros((0, 40)) for name in DEVICES}
    gen = np.zeros((0, 40))
    net = dict(baseMVA=case.base_mva, bus=bus, branch=branch, gen=gen, internal={}, kind=kind, held=held) | nothing
    angle = np.deg2rad(case.bus.angle_init_deg)
    starts = [np.exp(1j * angle[case.slack_bus]) * np.ones(case.n_bus), case.bus.v_init_pu * np.exp(1j * angle)]
    v = np.stack([_solve(net, ybus, *state, starts) for state in zip(*states, strict=True)])
    f, t = (branch[:, k].astype(int) for k in (0, 1))
    return {
        "v_pu": np.abs(v),
        "angle_rad": np.angle(v),
        "s_from_pu": v[:, f] * np.conj((y_from @ v.T).T),
        "s_to_pu": v[:, t] * np.conj((y_to @ v.T).T),
        "s_slack_pu": (v * np.conj((ybus @ v.T).T))[:, case.slack_bus[0]],
    }


PARAMS = """# What expected.npz was recorded with and how closely a recomputation must agree.
method = "pandapower {version} makeYbus and newtonpf"
seed = {seed}
states = {count}
tolerance_pu = {tolerance}  # the tightest of these that a state reaches
rtol = {rtol}  # of every array
atol = {atol}  # [pu] and [rad]
"""
README = """# {name}: recorded power flows

{count} states of `{name}` in per unit of its base: the case as its file gives it, then states of
`meshed_reference.draw_states(seed={seed})`, every load and every voltage set-point off base on its own. Solved by the
`makeYbus` and `newtonpf` that pandapower {version} (BSD-3-Clause) carries from PYPOWER, from the case's tables in
MATPOWER's columns. Buses and branches in the order of the case.

Recorded by `tests/recorders/record_meshed.py --write`; without the flag it prints what would change.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the committed files")
    args = parser.parse_args()
    values: dict[str, Any] = dict(version=metadata.version("pandapower"), seed=SEED, rtol=RTOL, atol=ATOL)
    values["tolerance"] = list(TOLERANCES_PU)
    for name in CASES:
        case = load_case(name)
        arrays = record(case)
        folder = DATA / case.name
        for line in compare_npz(folder / "expected.npz", arrays) or [f"{case.name}: unchanged"]:
            print(line)
        if args.write:
            values["count"] = len(arrays["v_pu"])
            write_npz(folder / "expected.npz", arrays)
            (folder / "params.toml").write_text(PARAMS.format(**values))
            (folder / "README.md").write_text(README.format(name=case.name, **values))


if __name__ == "__main__":
    main()
