"""MATPOWER files as valid cases, and cases written as MATPOWER files."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from powerzoo_jax.base.errors import CaseError, listing
from powerzoo_jax.base.files.results import write_text
from powerzoo_jax.base.textfile import MAX_MB, require_file
from powerzoo_jax.cases.case import Case, unit_rows, with_power_factors
from powerzoo_jax.cases.readers.matpower import read_matpower
from powerzoo_jax.cases.validate import assert_valid

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
    becomes the cost 0). MATPOWER takes every unit with Pmin < 0 = Pmax and one reactive limit of 0 as a load of
    constant power factor; a note of the file names those that are free here. A bus number below 1 and a ratio of
    reactive to active output that no such limits express raise CaseError.
    """
    low = case.bus.id[case.bus.id < 1]
    if low.size:
        raise CaseError(f"bus id {int(low[0])} cannot be written: MATPOWER counts from 1. Renumber the buses.")
    notes = list(case.notes)
    read = with_power_factors(replace(case, unit=replace(case.unit, q_per_p=np.zeros(case.n_unit)))).unit.q_per_p
    lost = case.unit.q_per_p != read
    if (lost & (case.unit.q_per_p != 0)).any():
        names = unit_rows(case, lost & (case.unit.q_per_p != 0))
        raise CaseError(
            f"the power factor of unit {names} cannot be written. Give it Pmin < 0 = Pmax, one reactive limit of 0 and "
            "the other of this power factor at Pmin."
        )
    if case.held:
        notes.append(f"an optimum of the source holds the voltage of bus {listing(case.held)}")
    if lost.any():
        names = unit_rows(case, lost)
        notes.append(f"unit {names} had a free reactive output before MATPOWER's rule for dispatchable loads tied it")
    name = re.sub(r"\W", "_", case.name)
    name = name if name[:1].isalpha() else f"case_{name}"
    text = [f"function mpc = {name}", *(f"%   {line}".rstrip() for line in case.citation.splitlines()), ""]
    text += ["%% MATPOWER Case Format : Version 2", *(f"%% note: {note}" for note in notes)]
    text += ["mpc.version = '2';", f"mpc.baseMVA = {case.base_mva!r};"]
    for table, rows in _matpower_tables(case).items():
        text += ["", "%\t" + LAYOUT[table][0].replace(" ", "\t"), f"mpc.{table} = ["]
        text += ["\t" + "\t".join(map(_number, row)) + ";" for row in rows.tolist()]
        text += ["];"]
    write_text(Path(path), "\n".join(text) + "\n")


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
    tables["gen"][:, 10:16] = unit.capability
    costs = [_cost_rows(unit.cost_model, unit.startup_usd, unit.shutdown_usd, unit.cost_terms, unit.cost)]
    if unit.q_cost_model.any():
        none = np.zeros(len(unit))
        costs.append(_cost_rows(unit.q_cost_model, none, none, unit.q_cost_terms, unit.q_cost))
    if unit.cost_model.any() or len(costs) > 1:
        width = max(rows.shape[1] for rows in costs)
        tables["gencost"] = np.concatenate([np.pad(rows, ((0, 0), (0, width - rows.shape[1]))) for rows in costs])
    return tables


def _cost_rows(
    model: np.ndarray, startup: np.ndarray, shutdown: np.ndarray, terms: np.ndarray, values: np.ndarray
) -> np.ndarray:
    none = model == 0
    return np.column_stack([np.where(none, 2, model), startup, shutdown, np.where(none, 1, terms), values])
