"""Record what pandapower makes of a few of its nets: its conversion, and the power flow of the same net.

Runs where pandapower is installed (`pip install .[bench]`). Without --write it prints the differences to what is
committed; with --write it replaces the file.

Usage: python tests/reference/record_exchange.py [--write]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.reference.recording import Arrays, keep  # noqa: E402

DATA = ROOT / "tests" / "data" / "exchange"
CONVERTED = ("case14", "case39", "example_multivoltage", "create_cigre_network_mv")
SAVED = {"case29gb": "GBreducednetwork", "case2224gb": "GBnetwork"}
SHUNTS = ("branch_g", "branch_g_asym", "branch_b_asym")
TOLERANCE_MVA = 1e-9
README = """# Nets converted and solved by pandapower

`<net>.bus`, `.branch`, `.gen`, `.gencost`, `.baseMVA`, `.branch_g`, ...: what `to_ppc(net, init="flat")` of
pandapower {version} (BSD-3-Clause) returns, MATPOWER's columns only. `.index`, `.lookup`, `.max_vm_pu`, `.min_vm_pu`:
bus numbers of the net and the row each stands in. `.v`: complex bus voltages [pu] of `runpp` to {tolerance} MVA,
in the order of `.bus`. The nets are `{converted}`
of `pandapower.networks`.

`case29gb.v`, `case2224gb.v`: voltages of `runpp` of `GBreducednetwork` and `GBnetwork`, transformers as pi models
without no-load current (pandapower drops its sign, which the shipped cases keep).

Recorded by `tests/reference/record_exchange.py --write`; without the flag it prints what would change.
"""


def solve(net: Any, model: str) -> np.ndarray:
    """Complex voltages of all rows of the bus table, inner buses included."""
    import pandapower as pp

    options = {"algorithm": "nr", "tolerance_mva": TOLERANCE_MVA, "max_iteration": 30, "numba": False}
    pp.runpp(net, calculate_voltage_angles=True, trafo_model=model, **options)
    return np.asarray(net["_ppc"]["internal"]["V"])


def record() -> Arrays:
    import pandapower.networks as networks
    from pandapower.converter.pypower.to_ppc import to_ppc

    arrays: Arrays = {}
    for name in CONVERTED:
        net = getattr(networks, name)()
        ppc = to_ppc(net, init="flat", calculate_voltage_angles=True)
        parts = {"bus": ppc["bus"][:, :13], "branch": ppc["branch"][:, :13].real, "gen": ppc["gen"][:, :10]}
        parts |= {key: np.asarray(ppc[key]).real for key in SHUNTS if key in ppc}
        if "gencost" in ppc:
            parts["gencost"] = ppc["gencost"]
        parts |= {"lookup": net["_pd2ppc_lookups"]["bus"], "index": net.bus.index.to_numpy()}
        parts |= {key: net.bus[key].to_numpy(float) for key in ("max_vm_pu", "min_vm_pu") if key in net.bus}
        parts["baseMVA"] = ppc["baseMVA"]
        parts["v"] = solve(net, "t")
        arrays |= {f"{name}.{key}": np.array(value) for key, value in parts.items()}
    for name, function in SAVED.items():
        net = getattr(networks, function)()
        net.trafo["i0_percent"] = 0.0
        arrays[f"{name}.v"] = solve(net, "pi")
    return arrays


if __name__ == "__main__":
    keep(__doc__, DATA, README, record, tolerance=TOLERANCE_MVA, converted="`, `".join(CONVERTED))
