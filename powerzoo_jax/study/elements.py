"""Results of a pandapower net by the elements that it has: its buses, lines, transformers, generators, grids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from powerzoo_jax.cases import Case
from powerzoo_jax.cases.readers.pandapower.convert import WINDINGS, NetRows
from powerzoo_jax.cases.topology import branch_positions
from powerzoo_jax.study.table import StudyTable


class BranchFlows(NamedTuple):
    """Powers entering both ends of every branch, (L,) complex [MVA]; 0 where it is out of service."""

    s_from: np.ndarray
    s_to: np.ndarray


class Dispatch(NamedTuple):
    """Operating point: bus voltages v (N,) complex [pu], output of every unit (G,), prices (N,) and cost.

    lmp and cost_usd_per_h are NaN where the point was not optimised.
    """

    v: np.ndarray
    p_mw: np.ndarray
    q_mvar: np.ndarray
    lmp: np.ndarray
    cost_usd_per_h: float


ENDS = {"line": ("from", "to"), "impedance": ("from", "to"), "trafo": ("hv", "lv"), "trafo3w": ("hv", "mv", "lv")}


def element_tables(case: Case, rows: NetRows, flows: BranchFlows, dispatch: Dispatch) -> dict[str, StudyTable]:
    """Results as tables named as pandapower names them, each with the index of the element in its first column.

    `res_bus` has voltages, `res_line`, `res_trafo`, `res_trafo3w` and `res_impedance` the powers that enter at every
    end and the losses, iron losses included, `res_gen` and `res_ext_grid` outputs. NaN where an element takes no part.
    """
    index, at = rows.bus
    tables = {"res_bus": _table("bus", index, _voltage(dispatch.v, at))}
    s_from, s_to = (
        s + case.base_mva * np.conj(y) * np.abs(dispatch.v[k]) ** 2
        for s, y, k in zip(flows, (rows.y_from, rows.y_to), branch_positions(case), strict=True)
    )
    for name, ends in ENDS.items():
        if name == "trafo3w" and WINDINGS[0] in rows.branch:
            # the other windings lead from the star point to their bus
            parts = zip(WINDINGS, (s_from, s_to, s_to), strict=True)
            index = rows.branch[WINDINGS[0]][0]
            powers = [_at(s, rows.branch[winding][1]) for winding, s in parts]
        elif name in rows.branch:
            index, at = rows.branch[name]
            powers = [_at(s_from, at), _at(s_to, at)]
        else:
            continue
        columns: dict[str, np.ndarray] = {}
        for end, s in zip(ends, powers, strict=True):
            columns |= {f"p_{end}_mw": s.real, f"q_{end}_mvar": s.imag}
        tables[f"res_{name}"] = _table(name, index, columns | {"p_loss_mw": np.sum(powers, axis=0).real})
    for name, (index, at) in rows.unit.items():
        output = {"p_mw": _at(dispatch.p_mw, at), "q_mvar": _at(dispatch.q_mvar, at)}
        bus = case.positions(case.unit.bus_id)
        tables[f"res_{name}"] = _table(name, index, output | _voltage(dispatch.v, np.where(at >= 0, bus[at], -1)))
    return tables


def _at(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Values at rows of the case, NaN at -1."""
    return np.where(rows >= 0, values[rows], np.nan)


def _voltage(v: np.ndarray, rows: np.ndarray) -> dict[str, np.ndarray]:
    found = _at(np.where(v == 0, np.nan, v), rows)
    return {"v_pu": np.abs(found), "angle_deg": np.rad2deg(np.angle(found))}


UNITS = {"v": "pu", "angle": "deg", "p": "MW", "q": "Mvar"}


def _table(name: str, index: np.ndarray, columns: Mapping[str, np.ndarray]) -> StudyTable:
    units = {name: ""} | {key: UNITS[key.partition("_")[0]] for key in columns}
    return StudyTable(f"res_{name}", {name: index, **columns}, units, ("",) * len(index))
