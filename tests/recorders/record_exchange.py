"""Record what pandapower makes of a few of its nets: its conversion, and the power flow of the same net.

Runs where pandapower is installed (`pip install .[bench]`). Without --write it prints the differences to what is
committed; with --write it replaces the file.

Usage: python tests/recorders/record_exchange.py [--write]
"""

from __future__ import annotations

import copy
import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from powerzoo_jax.cases import load_case, to_pandapower  # noqa: E402
from powerzoo_jax.cases.readers.pandapower.dispatch import has_costs, take_out  # noqa: E402
from powerzoo_jax.cases.readers.pandapower.tables import RATED, make_ready  # noqa: E402
from tests.recorders.recording import Arrays, keep  # noqa: E402

DATA = ROOT / "tests" / "recorded" / "exchange"
CONVERTED = (
    "case14",
    "case39",
    "example_multivoltage",
    "create_cigre_network_mv",
    "create_kerber_vorstadtnetz_kabel_1",
    "create_kerber_landnetz_kabel_1",
    "example_simple",
    "create_synthetic_voltage_control_lv_network",
)
DEVICES = ("svc", "ssc", "tcsc", "vsc", "vsc_stacked", "vsc_bipolar")
# columns that our reader looks at itself; of other tables it asks which rows are in service
LIMITS = "min_p_mw max_p_mw min_q_mvar max_q_mvar"
MOVED = f"in_service controllable bus p_mw q_mvar scaling sn_mva {LIMITS}"
READ = {
    "bus": "in_service vn_kv max_vm_pu min_vm_pu",
    "line": "in_service from_bus to_bus max_i_ka df parallel max_loading_percent",
    "trafo": "in_service hv_bus lv_bus sn_mva df parallel max_loading_percent",
    "trafo3w": "in_service hv_bus mv_bus lv_bus sn_hv_mva sn_mv_mva sn_lv_mva max_loading_percent",
    "dcline": "in_service from_bus to_bus p_mw loss_percent loss_mw vm_from_pu vm_to_pu min_q_from_mvar "
    "max_q_from_mvar min_q_to_mvar max_q_to_mvar",
    "load": f"{MOVED} const_z_p_percent const_i_p_percent const_z_q_percent const_i_q_percent",
    "sgen": f"{MOVED} reactive_capability_curve",
    "storage": MOVED,
    "ext_grid": f"in_service controllable {LIMITS}",
    "gen": "in_service controllable slack reactive_capability_curve min_vm_pu max_vm_pu",
    "poly_cost": "et element cp0_eur cp1_eur_per_mw cp2_eur_per_mw2 cq0_eur cq1_eur_per_mvar cq2_eur_per_mvar2",
    "pwl_cost": "et element power_type points",
}
LOADED = ("line", "line rated", "trafo3w")
OPTIMISED = ("ext_grid costs", "gen held", "poly_cost moved", "pwl_cost moved")
RESULTS = (
    "ext_grid costs",
    "line",
    "trafo",
    "trafo3w",
    "impedance",
    "ext_grid several",
    "ext_grid islands",
    "gen",
    "gen slack",
)
RESULT_COLUMNS = {
    "res_bus": "vm_pu va_degree",
    "res_line": "p_from_mw q_from_mvar p_to_mw q_to_mvar",
    "res_impedance": "p_from_mw q_from_mvar p_to_mw q_to_mvar",
    "res_trafo": "p_hv_mw q_hv_mvar p_lv_mw q_lv_mvar",
    "res_trafo3w": "p_hv_mw q_hv_mvar p_mv_mw q_mv_mvar p_lv_mw q_lv_mvar",
    "res_ext_grid": "p_mw q_mvar",
    "res_gen": "p_mw q_mvar",
}
WRITTEN = ("case14", "case24_ieee_rts")
# columns of the nets that `to_pandapower` writes
WRITTEN_COLUMNS = {
    "bus": "vn_kv in_service max_vm_pu min_vm_pu",
    "load": "bus p_mw q_mvar",
    "shunt": "bus p_mw q_mvar vn_kv",
    "line": "from_bus to_bus length_km r_ohm_per_km x_ohm_per_km c_nf_per_km max_i_ka max_loading_percent in_service",
    "trafo": "hv_bus lv_bus sn_mva vn_hv_kv vn_lv_kv vkr_percent vk_percent shift_degree max_loading_percent",
    "ext_grid": "bus vm_pu va_degree controllable max_p_mw min_p_mw max_q_mvar min_q_mvar",
    "gen": "bus p_mw vm_pu controllable sn_mva max_p_mw min_p_mw max_q_mvar min_q_mvar in_service",
    "poly_cost": "element et cp0_eur cp1_eur_per_mw cp2_eur_per_mw2",
}
SAVED = {"case29gb": "GBreducednetwork", "case2224gb": "GBnetwork"}
EXTRA = ("branch_g", "branch_g_asym", "branch_b_asym", "branch_r_asym", "branch_x_asym")
TOLERANCE_MVA = 1e-9
README = """# Nets converted and solved by pandapower

`<net>.bus`, `.branch`, `.gen`, `.baseMVA`, `.branch_g`, ...: what `to_ppc(net, init="flat", mode="pf")` of pandapower
{version} (BSD-3-Clause) returns, MATPOWER's columns only; `.lookup`: the row that each bus stands in. `.v`:
complex bus voltages [pu] of `runpp` to {tolerance} MVA without voltage-dependent loads, in the order of `.bus`.
`.seen`, bytes of a JSON text: what our reader looks at in the tables of the net, and in which rows the kinds of
branches stand. The nets are `{converted}`
of `pandapower.networks`; `ucte` is the file of `tests/references/ucte_network.py`, read by pandapower.

`nets`, bytes of a JSON text: the same of the nets of `tests/references/pandapower_nets.py`, one for every element
table, which `tables` lists, and every kind of switch; for some of them `results` are columns of the tables of `runpp`,
`loading` its loadings [%], and `optimum` cost, voltages and outputs of `runopp`, where static generators of -P stand
for controllable loads and storages.

`written`, bytes of a JSON text: tables of the nets that `to_pandapower` makes of `{written}`; `written_<case>.*`: what
`to_ppc` makes of them, and the voltages of `runpp`.

`case29gb.v`, `case2224gb.v`: voltages of `runpp` of `GBreducednetwork` and `GBnetwork`, transformers as pi models
without no-load current (pandapower drops its sign, which the shipped cases keep).

Recorded by `tests/recorders/record_exchange.py --write`; without the flag it prints what would change.
"""


def solve(net: Any, model: str) -> np.ndarray:
    """Complex voltages of all rows of the bus table, inner buses included."""
    import pandapower as pp

    options = {"algorithm": "nr", "tolerance_mva": TOLERANCE_MVA, "max_iteration": 30, "numba": False}
    options |= {"voltage_depend_loads": False, "init": "dc"}
    pp.runpp(net, calculate_voltage_angles=True, trafo_model=model, **options)
    return np.asarray(net["_ppc"]["internal"]["V"])


def convert(net: Any) -> tuple[Arrays, dict[str, Any]]:
    """What pandapower makes of a net that our reader has made ready, and what our reader looks at besides."""
    from pandapower.converter.pypower.to_ppc import to_ppc

    ready = copy.deepcopy(net)
    if has_costs(ready):
        take_out(ready)
    make_ready(ready)
    ppc = to_ppc(ready, init="flat", calculate_voltage_angles=True, mode="pf")
    parts = {"bus": ppc["bus"][:, :13], "branch": ppc["branch"][:, :13].real, "gen": ppc["gen"][:, :10]}
    parts |= {key: np.asarray(ppc[key]).real for key in EXTRA if key in ppc}
    lookups = ready["_pd2ppc_lookups"]
    parts |= {"lookup": lookups["bus"], "baseMVA": ppc["baseMVA"]}
    arrays = {key: np.array(value) for key, value in parts.items()}
    rows = {key: ppc["internal"][key].tolist() for key in ("branch_is", "gen_is")}
    rows |= {key: lookups[key] for key in ("branch", "ext_grid", "gen")}
    return arrays, seen(net) | rows


def seen(net: Any) -> dict[str, Any]:
    """What our reader looks at in the tables of a net."""
    tables = {}
    for key, table in net.items():
        if hasattr(table, "columns") and not key.startswith(("_", "res_")) and len(table):
            names = READ.get(key, "in_service max_loading_percent").split()
            columns = {name: table[name].tolist() for name in names if name in table}
            tables[key] = {"index": table.index.tolist(), **columns}
    return {"tables": tables}


def results(net: Any) -> dict[str, Any]:
    """Columns of the result tables of a net that `runpp` solves."""
    solve(net, "t")
    return {
        table: {name: net[table][name].tolist() for name in names.split()}
        for table, names in RESULT_COLUMNS.items()
        if len(net[table])
    }


def loadings(net: Any) -> dict[str, Any]:
    """Loading [%] of the branches of a net, by the current at the more loaded end."""
    solve(net, "t")
    return {table: net[f"res_{table}"].loading_percent.tolist() for table in RATED if len(net[table])}


def optimum(net: Any) -> dict[str, Any]:
    """Cost and outputs that `runopp` finds, controllable loads and storages as static generators."""
    import pandapower as pp

    from tests.references.pandapower_nets import as_static_generators

    net = as_static_generators(net)
    pp.runopp(net, numba=False)
    outputs = {table: net[f"res_{table}"].p_mw.tolist() for table in ("ext_grid", "gen")}
    return {"cost": float(net.res_cost), "v": net.res_bus.vm_pu.tolist(), **outputs}


def written(net: Any) -> dict[str, Any]:
    """Tables of a net as `to_pandapower` wrote them."""
    return {
        table: {"index": net[table].index.tolist()}
        | {name: net[table][name].tolist() for name in names.split() if name in net[table]}
        for table, names in WRITTEN_COLUMNS.items()
        if len(net[table])
    }


def _text(content: Any) -> np.ndarray:
    """Content as the bytes of a JSON text: hundreds of small arrays would each cost an entry of the archive."""
    return np.frombuffer(json.dumps(content, default=lambda x: x.tolist()).encode(), np.uint8)


def record() -> Arrays:
    import pandapower.networks as networks

    from tests.references.pandapower_nets import ADDED, table_net, tables
    from tests.references.ucte_network import ucte_net

    arrays: Arrays = {}
    for name in (*CONVERTED, "ucte"):
        random.seed(0)  # kerber's lengths are drawn
        net = ucte_net() if name == "ucte" else getattr(networks, name)()
        parts, parts_seen = convert(net)
        parts |= {"v": solve(net, "t"), "seen": _text(parts_seen)}
        arrays |= {f"{name}.{key}": value for key, value in parts.items()}
    small = {}
    for name in ADDED:
        parts, parts_seen = ({}, seen(table_net(name))) if name in DEVICES else convert(table_net(name))
        if name not in (*DEVICES, "source_dc"):  # pandapower does not solve a DC source without a converter
            v = solve(table_net(name), "t")
            parts["v"] = np.stack([v.real, v.imag])
        if name in RESULTS:
            parts_seen["results"] = results(table_net(name))
        if name in LOADED:
            parts_seen["loading"] = loadings(table_net(name))
        if name in OPTIMISED:
            parts_seen["optimum"] = optimum(table_net(name))
        small[name] = {key: value.tolist() for key, value in parts.items()} | {"seen": parts_seen}
    tables_written = {}
    for name in WRITTEN:
        net = to_pandapower(load_case(name))
        tables_written[name] = written(net)
        parts, parts_seen = convert(net)
        parts |= {"v": solve(net, "t"), "seen": _text(parts_seen)}
        arrays |= {f"written_{name}.{key}": value for key, value in parts.items()}
    arrays["written"] = _text(tables_written)
    arrays["nets"] = _text({"tables": tables(), "nets": small})
    for name, function in SAVED.items():
        net = getattr(networks, function)()
        net.trafo["i0_percent"] = 0.0
        arrays[f"{name}.v"] = solve(net, "pi")
    return arrays


if __name__ == "__main__":
    keep(
        __doc__,
        DATA,
        README,
        record,
        tolerance=TOLERANCE_MVA,
        converted="`, `".join(CONVERTED),
        written="`, `".join(WRITTEN),
    )
