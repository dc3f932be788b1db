"""Cases from and to the formats of other programs: MATPOWER files and pandapower nets."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import CaseError, listing
from powerzoo_jax.base.textfile import MAX_MB, require_file
from powerzoo_jax.cases.case import Case, assemble
from powerzoo_jax.cases.readers.matpower import read_matpower
from powerzoo_jax.cases.readers.pandapower_tables import (
    add_asymmetric,
    branch_ratings,
    dc_line_units,
    left_out,
    make_ready,
    screen,
    without_costs,
)
from powerzoo_jax.cases.validate import assert_valid

NO_LIMIT = 1e9  # [MW], [Mvar] what pandapower writes where a unit has no limit

# MATPOWER's columns: its header, and the column of our table (a number where we have none)
LAYOUT = {
    "bus": (
        "bus_i type Pd Qd Gs Bs area Vm Va baseKV zone Vmax Vmin",
        "id kind p_load_mw q_load_mvar gs_mw bs_mvar 1 v_init_pu angle_init_deg base_kv 1 v_max_pu v_min_pu",
    ),
    "gen": (
        "bus Pg Qg Qmax Qmin Vg mBase status Pmax Pmin Pc1 Pc2 Qc1min Qc1max Qc2min Qc2max agc r10 r30 rq apf",
        "bus_id p_mw q_mvar q_max_mvar q_min_mvar v_set_pu base_mva in_service p_max_mw p_min_mw" + 11 * " 0",
    ),
    "branch": (
        "fbus tbus r x b rateA rateB rateC ratio angle status angmin angmax",
        "from_id to_id r_pu x_pu b_pu rate_a_mva 0 0 tap shift_deg in_service angle_min_deg angle_max_deg",
    ),
    "gencost": ("model startup shutdown n values", ""),
}


def from_matpower(path: str | os.PathLike[str], *, max_mb: float | None = MAX_MB) -> Case:
    """Read and validate a MATPOWER case file (format version 2, see `read_matpower` for what is understood).

    max_mb:  [MB] largest file that is read; None lifts this limit and those of statements and formulas

    Raises DataMissing when there is no such file, CaseError with every problem of a file that cannot be read, or of
    the case that was read.
    """
    here = f"Check the path (the current folder is {str(Path.cwd())!r})"
    remedy = f"{here}, or give a shipped name, see cases.list_cases()."
    case = read_matpower(require_file(path, "case file", remedy), max_mb=max_mb)
    assert_valid(case)
    return case


def to_matpower(case: Case, path: str | os.PathLike[str]) -> None:
    """Write a case as a MATPOWER file; `from_matpower` then gives the same case back, number by number.

    Not kept: the order of several loads at one bus (a file has their sum) and a missing cost beside given ones (it
    becomes the cost 0). A bus number below 1 raises CaseError, as MATPOWER cannot use it.
    """
    low = case.bus.id[case.bus.id < 1]
    if low.size:
        raise CaseError(f"bus id {int(low[0])} cannot be written: MATPOWER counts from 1. Renumber the buses.")
    name = re.sub(r"\W", "_", case.name)
    name = name if name[:1].isalpha() else f"case_{name}"
    text = [f"function mpc = {name}", *(f"%   {line}".rstrip() for line in case.citation.splitlines()), ""]
    text += ["%% MATPOWER Case Format : Version 2", *(f"%% note: {note}" for note in case.notes)]
    text += ["mpc.version = '2';", f"mpc.baseMVA = {case.base_mva!r};"]
    for table, rows in _matpower_tables(case).items():
        text += ["", "%\t" + LAYOUT[table][0].replace(" ", "\t"), f"mpc.{table} = ["]
        text += ["\t" + "\t".join(map(_number, row)) + ";" for row in rows.tolist()]
        text += ["];"]
    Path(path).write_text("\n".join(text) + "\n", encoding="utf-8")


def _number(value: float) -> str:
    if np.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 and str(value) != "-0.0" else repr(value)


def _matpower_tables(case: Case) -> dict[str, np.ndarray]:
    loads = {"p_load_mw": case.p_load_mw, "q_load_mvar": case.q_load_mvar}
    tables = {}
    for key, part in (("bus", case.bus), ("gen", case.unit), ("branch", case.branch)):
        names = LAYOUT[key][1].split()
        columns = (np.full(len(part), n) if n.isdigit() else loads.get(n, getattr(part, n, None)) for n in names)
        tables[key] = np.stack([np.asarray(column, np.float64) for column in columns], axis=1)
    unit = case.unit
    if unit.cost_model.any():
        none = unit.cost_model == 0
        model, terms = np.where(none, 2, unit.cost_model), np.where(none, 1, unit.cost_terms)
        tables["gencost"] = np.column_stack([model, unit.startup_usd, unit.shutdown_usd, terms, unit.cost])
    return tables


def from_pandapower(net: Any, name: str | None = None) -> Case:
    """Convert and validate a pandapower net, by pandapower's own `to_ppc`, transformers as `runpp` models them.

    Elements out of service are left out, buses joined by closed switches become one, and bus id = index + 1 (the
    lowest index of joined buses; inner buses of three-winding transformers and open lines get new ids). Costs come
    along when the net has any. Iron losses become shunts at both ends of their branch, a DC line two units of fixed
    power that hold the voltages of its ends. `notes` says what of the net the case does not hold.

    Raises ImportError that names the extra when pandapower is missing, CaseError naming what has no counterpart (static
    var and series compensators, converters, impedances that differ by direction) and every problem of the case.
    """
    case = convert_pandapower(net, name)
    assert_valid(case)
    return case


def convert_pandapower(net: Any, name: str | None = None) -> Case:
    """Convert as `from_pandapower` does, without the rules, so that `validate` can report on the result."""
    try:
        from pandapower.converter.pypower.to_ppc import to_ppc
    except ImportError as err:
        message = "from_pandapower needs pandapower, which is not installed: pip install 'powerzoo-jax[pandapower]'."
        raise ImportError(message) from err
    net = copy.deepcopy(net)  # the conversion leaves its workings in the net
    title = name or str(net.get("name") or "") or "net"
    notes = screen(net, title)
    make_ready(net)
    try:
        ppc = to_ppc(net, init="flat", calculate_voltage_angles=True)
    except Exception as err:  # a net that lacks what an optimum needs fails in many ways
        remedy = "Try pandapower.diagnostic(net); a net with costs needs limits for all its units."
        raise CaseError(f"pandapower cannot convert {title!r}: {err}. {remedy}") from err
    return _from_ppc(ppc, net, title, notes)


def _from_ppc(ppc: Mapping[str, Any], net: Any, name: str, notes: tuple[str, ...]) -> Case:
    base = float(ppc["baseMVA"])
    bus, branch, gen = (np.array(ppc[key][:, :13].real) for key in ("bus", "branch", "gen"))
    branch[:, 5] = branch_ratings(branch[:, 5], ppc, net)
    f, t = branch[:, 0].astype(int), branch[:, 1].astype(int)
    tap = np.where(branch[:, 8] == 0, 1.0, branch[:, 8])
    conductance = _extra(ppc, "branch_g") / 2
    np.add.at(bus[:, 4], f, base * conductance / tap**2)
    np.add.at(bus[:, 4], t, base * (conductance + _extra(ppc, "branch_g_asym") / 2))
    np.add.at(bus[:, 5], t, base * _extra(ppc, "branch_b_asym") / 2)
    gencost = np.array(ppc.get("gencost", np.zeros((0, 5)))).real
    if len(gencost):
        add_asymmetric(bus, net)
    linked = dc_line_units(bus, net)
    if len(gencost) and len(linked):
        gencost = without_costs(gencost, len(gen), len(linked))
    gen = np.concatenate([gen, np.pad(linked, ((0, 0), (0, gen.shape[1] - linked.shape[1])))])
    ids = _bus_ids(net, len(bus))
    uneven = np.flatnonzero(_extra(ppc, "branch_r_asym") + 1j * _extra(ppc, "branch_x_asym"))
    if uneven.size:
        ends = listing(f"bus {ids[f[k]]} -> {ids[t[k]]}" for k in uneven)
        raise CaseError(
            f"{name!r} has an impedance that differs by direction ({ends}, index + 1), which a case cannot express. "
            "Give both directions the same r and x."
        )
    _take_voltage_limits(bus, ids, net)
    branch[:, 0], branch[:, 1] = ids[f], ids[t]
    gen[:, 0], bus[:, 0] = ids[gen[:, 0].astype(int)], ids
    gen[:, 6] = np.where(np.isfinite(gen[:, 6]), gen[:, 6], base)
    limits = gen[:, [3, 4, 8, 9]].round(9) + 0.0  # pandapower widens limits by 1e-10
    gen[:, [3, 4, 8, 9]] = np.where(np.abs(limits) >= NO_LIMIT, np.copysign(np.inf, limits), limits)
    tables = {"bus": bus, "branch": branch, "gen": gen}
    if len(gencost):
        tables["gencost"] = gencost
    notes = (*notes, *left_out(net, len(bus)))
    return assemble(name, base, f"Converted from a pandapower net ({name}).", tables, notes)


def _extra(ppc: Mapping[str, Any], key: str) -> np.ndarray:
    """A column that pandapower adds to MATPOWER's, (L,); it is left out where it is zero throughout."""
    return np.asarray(ppc.get(key, np.zeros(len(ppc["branch"])))).real


def _bus_ids(net: Any, count: int) -> np.ndarray:
    """Bus id of every row: lowest index of the buses it stands for, plus 1; new ids for inner buses."""
    lookup, index = net["_pd2ppc_lookups"]["bus"], np.asarray(net["bus"].index)
    ids = np.zeros(count, np.int64)
    for i in np.sort(index)[::-1]:
        if 0 <= lookup[i] < count:
            ids[lookup[i]] = i + 1
    inner = np.flatnonzero(ids == 0)
    ids[inner] = index.max() + 2 + np.arange(len(inner))
    return ids


def _take_voltage_limits(bus: np.ndarray, ids: np.ndarray, net: Any) -> None:
    """Put the net's own limits in: without costs pandapower leaves them out, and it fixes the reference bus."""
    frame = net["bus"]
    for column, key, unset in ((11, "max_vm_pu", 2.0), (12, "min_vm_pu", 0.0)):
        given = dict(zip(frame.index, frame[key], strict=True)) if key in frame else {}
        values = np.array([given.get(i - 1, unset) for i in ids.tolist()], np.float64)
        bus[:, column] = np.where(np.isfinite(values), values, unset)
