"""Record pandapower's Newton results of a few states per feeder, to validate the tests' own reference.

Runs where pandapower is installed (`pip install .[bench]`). Without --write it prints the differences to what is
committed; with --write it replaces the files.

Usage: python tests/recorders/record_pandapower.py [--write]
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
from powerzoo_jax.powerflow import nominal_injection  # noqa: E402
from tests.references.feeders import CASES  # noqa: E402
from tests.references.newton import build_network  # noqa: E402
from tools.builder import compare_npz  # noqa: E402

SEED, COUNT, SPAN = 7, 20, (0.2, 2.0)
RTOL, ATOL = 0.0, 1e-9
TOLERANCES_MVA = (1e-10, 1e-9, 4e-9, 8e-9, 2e-8)  # the tightest that a state reaches: Y V of 6e-7 pu branches is coarse
DATA = ROOT / "tests" / "recorded"


def injections(case: Case) -> np.ndarray:
    """(COUNT, N) complex [pu]: nominal first, then each bus scaled on its own."""
    factor = np.random.default_rng(SEED).uniform(*SPAN, (COUNT, case.n_bus))
    factor[0] = 1.0
    return nominal_injection(case) * factor


def build_net(case: Case) -> Any:
    """The case in pandapower's own elements: ohmic lines between 1 kV buses, one load per bus."""
    import pandapower as pp

    reference = build_network(case)
    kv = 1.0
    ohm = kv * kv / case.base_mva
    net = pp.create_empty_network(sn_mva=case.base_mva)
    for k in range(case.n_bus):
        pp.create_bus(net, vn_kv=kv, index=k)
    pp.create_ext_grid(net, reference.slack, vm_pu=reference.v0)
    for k in np.flatnonzero(case.branch.in_service).tolist():
        pp.create_line_from_parameters(
            net,
            int(reference.f[k]),
            int(reference.t[k]),
            length_km=1.0,
            r_ohm_per_km=case.branch.r_pu[k] * ohm,
            x_ohm_per_km=case.branch.x_pu[k] * ohm,
            c_nf_per_km=0.0,
            max_i_ka=1e3,
            index=k,
        )
    for k in range(case.n_bus):
        if k != reference.slack:
            pp.create_load(net, k, p_mw=0.0, q_mvar=0.0, index=k)
    return net


def _solve(net: Any) -> None:
    """Solve to the tightest tolerance that the arithmetic of the network allows."""
    import pandapower as pp

    for tolerance in TOLERANCES_MVA:
        try:
            pp.runpp(net, algorithm="nr", init="flat", tolerance_mva=tolerance, max_iteration=30, numba=False)
        except pp.LoadflowNotConverged:
            continue
        return
    raise RuntimeError(f"no state within {TOLERANCES_MVA[-1]} MVA")


def record(case: Case) -> dict[str, np.ndarray]:
    net, s = build_net(case), injections(case)
    names = ("v_pu", "angle_deg", "p_from_mw", "q_from_mvar", "loss_mva")
    rows: dict[str, list[np.ndarray]] = {name: [] for name in names}
    on = np.flatnonzero(case.branch.in_service)
    for state in s:
        net.load["p_mw"] = -state.real[net.load.index] * case.base_mva
        net.load["q_mvar"] = -state.imag[net.load.index] * case.base_mva
        _solve(net)
        line = net.res_line.loc[on]
        rows["v_pu"].append(net.res_bus.vm_pu.to_numpy())
        rows["angle_deg"].append(net.res_bus.va_degree.to_numpy())
        rows["p_from_mw"].append(line.p_from_mw.to_numpy())
        rows["q_from_mvar"].append(line.q_from_mvar.to_numpy())
        rows["loss_mva"].append(np.array([line.pl_mw.sum(), line.ql_mvar.sum()]))
    return {name: np.stack(values) for name, values in rows.items()}


PARAMS = """# What expected.npz was recorded with and how closely a recomputation must agree.
method = "pandapower {version} runpp, algorithm nr, init flat"
seed = {seed}
states = {count}
span = [{low}, {high}]
tolerance_mva = {tolerance}  # the tightest of these that a state reaches
rtol = {rtol}  # of every array
atol = {atol}  # [pu] and [rad]; powers are divided by the case's base first
"""
README = """# {name}: recorded power flows

{count} states of `{name}`: the nominal injections, then every bus scaled on its own, U({low}, {high}), from
`numpy.random.default_rng({seed})`. Solved by pandapower {version} (BSD-3-Clause), Newton-Raphson, with every branch
as an ohmic line between 1 kV buses. Branch rows are the branches in service, in the order of the case.

Recorded by `tests/recorders/record_pandapower.py --write`; without the flag it prints what would change.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the committed files")
    args = parser.parse_args()
    values = {
        **{"version": metadata.version("pandapower"), "seed": SEED, "count": COUNT, "low": SPAN[0], "high": SPAN[1]},
        **{"tolerance": list(TOLERANCES_MVA), "rtol": RTOL, "atol": ATOL},
    }
    for name in CASES:
        case = load_case(name)
        arrays = record(case)
        folder = DATA / case.name
        for line in compare_npz(folder / "expected.npz", arrays) or [f"{case.name}: unchanged"]:
            print(line)
        if args.write:
            write_npz(folder / "expected.npz", arrays)
            (folder / "params.toml").write_text(PARAMS.format(**values))
            (folder / "README.md").write_text(README.format(name=case.name, **values))


if __name__ == "__main__":
    main()
