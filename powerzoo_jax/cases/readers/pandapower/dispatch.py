"""Units, limits and costs of the optimum of a pandapower net: what it may move, at which cost, and what it holds.

External grids and generators are rows of `to_ppc`; controllable loads, storages and static generators become rows here.
A load or a storage of P is a unit of -P: its limits change places, f(P) = c2 P^2 + c1 P + c0 becomes the row
[c2, -c1, c0], and the points of a piecewise linear cost are mirrored. `runopp` turns the sign of every coefficient
instead, which is right for c1 alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import CaseError, listing
from powerzoo_jax.cases.case import PV, REF
from powerzoo_jax.cases.readers.pandapower.tables import RATED, column, flags, in_service, rows_of, size
from powerzoo_jax.cases.topology import islands

MODEL_PIECEWISE, MODEL_POLYNOMIAL = 1, 2
SIGN = {"sgen": 1.0, "load": -1.0, "storage": -1.0}  # of the unit that stands for a controllable element
# columns of MATPOWER's gen table
PG, QG, QMAX, QMIN, VG, MBASE, STATUS, PMAX, PMIN, WIDTH = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
KIND, PD, VMAX, VMIN = 1, 2, 11, 12  # and of its bus table
AMPLE = 10.0  # times load and capacity of a net: a limit that no unit needs
LOWEST_PU = 0.5  # its middle with 2 pu, which pandapower writes for no upper limit, is 1 pu
POLYNOMIAL = {  # the highest power comes first
    "p": ("cp2_eur_per_mw2", "cp1_eur_per_mw", "cp0_eur"),
    "q": ("cq2_eur_per_mvar2", "cq1_eur_per_mvar", "cq0_eur"),
}


def has_costs(net: Any) -> bool:
    """Test whether a net has the cost of any element."""
    return size(net.get("poly_cost")) + size(net.get("pwl_cost")) > 0


def take_out(net: Any) -> dict[str, np.ndarray]:
    """Take the controllable elements in service out of a copy of a net: name of the table -> positions in it."""
    taken = {}
    for key in SIGN:
        table = net.get(key)
        if size(table):
            moved = flags(table, "controllable", False) & in_service(table)
            if moved.any():
                taken[key] = np.flatnonzero(moved)
                table["in_service"] = in_service(table) & ~moved
    return taken


def limit_units(gen: np.ndarray, net: Any, rows: Mapping[str, np.ndarray], dispatch: bool) -> None:
    """Write the limits of external grids; where units are dispatched, the one output of those not controllable.

    `to_ppc` gives an external grid the reactive limits [0, 0] in a power flow, and none of active power.
    """
    if "ext_grid" in rows:
        table, row = net["ext_grid"], rows["ext_grid"]
        for name, lower, upper in (("p_mw", PMIN, PMAX), ("q_mvar", QMIN, QMAX)):
            low, high = _limits(table, name)
            gen[row[row >= 0], lower], gen[row[row >= 0], upper] = low[row >= 0], high[row >= 0]
    if dispatch and "gen" in rows:
        table, row = net["gen"], rows["gen"]
        # the output of a reference follows from the power balance
        fixed = row[(row >= 0) & ~flags(table, "controllable", True) & ~flags(table, "slack", False)]
        gen[fixed, PMIN] = gen[fixed, PMAX] = gen[fixed, PG]


def _limits(table: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper limit (n,) of every element, infinite where the net has none."""
    return column(table, f"min_{name}", -np.inf), column(table, f"max_{name}", np.inf)


def dispatched_units(net: Any, taken: Mapping[str, np.ndarray], count: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Units (n, 10) in MATPOWER's columns of the elements taken out; by table, where each element stands, -1 = nowhere.

    Elements at buses that are not among the `count` of the case are left out.
    """
    parts, rows, begin = [np.zeros((0, WIDTH))], {}, 0
    for key, positions in taken.items():
        table, sign = net[key], SIGN[key]
        at, here = rows_of(net, table["bus"], count)
        kept = positions[here[positions]]
        part = np.zeros((size(table), WIDTH))
        part[:, 0], part[:, VG], part[:, STATUS] = at, 1.0, 1.0
        part[:, MBASE] = column(table, "sn_mva", np.nan)
        scale = sign * column(table, "scaling", 1.0)
        for name, power, lower, upper in (("p_mw", PG, PMIN, PMAX), ("q_mvar", QG, QMIN, QMAX)):
            low, high = _limits(table, name)
            part[:, power] = scale * column(table, name, 0.0)
            part[:, lower], part[:, upper] = (low, high) if sign > 0 else (-high, -low)
        rows[key] = np.full(size(table), -1)
        rows[key][kept] = begin + np.arange(len(kept))
        begin += len(kept)
        parts.append(part[kept])
    return np.concatenate(parts), rows


def cost_rows(net: Any, rows: Mapping[str, np.ndarray], count: int) -> np.ndarray:
    """Cost table of `count` units in MATPOWER's columns, rows of reactive power behind those of active power if any.

    rows:  by table, the unit of every element, -1 = none

    Raises CaseError for an element with several costs, and for segments that do not follow one another.
    """
    twice = [f"{key} {element}" for (key, element, _), n in Counter(_priced(net)).items() if n > 1]
    if twice:
        raise CaseError(f"{listing(twice)} of the net has several costs. Keep one.")
    poly, pwl = net.get("poly_cost"), net.get("pwl_cost")
    found: dict[int, tuple[int, list[float]]] = {}
    for power, names in POLYNOMIAL.items():
        terms = names if size(poly) and np.any(column(poly, names[0], 0.0)) else names[1:]
        for k, (key, element) in enumerate(_elements(poly)):
            row = _row(net, rows, key, element)
            if row >= 0 and (power == "p" or (key, element, "q") in _priced(net)):
                values = [float(column(poly, name, 0.0)[k]) for name in terms]
                values[-2] *= SIGN.get(key, 1.0)
                found[row + count * (power == "q")] = MODEL_POLYNOMIAL, values
    for k, (key, element) in enumerate(_elements(pwl)):
        row = _row(net, rows, key, element)
        if row >= 0:
            what = f"The piecewise linear cost of {key} {element}"
            points = _points(list(pwl["points"])[k], SIGN.get(key, 1.0), what)
            found[row + count * (_power(pwl)[k] == "q")] = MODEL_PIECEWISE, points
    width = max([2, *(len(values) for _, values in found.values())])
    cost = np.zeros((count * (2 if max(found, default=0) >= count else 1), 4 + width))
    cost[:, 0], cost[:, 3] = MODEL_POLYNOMIAL, 1
    for row, (model, values) in found.items():
        cost[row, 0], cost[row, 3] = model, len(values) // (2 if model == MODEL_PIECEWISE else 1)
        cost[row, 4 : 4 + len(values)] = values
    return cost


def least_output(count: int) -> np.ndarray:
    """Cost table of one a MW for every unit: what `runopp` minimises where a net has no cost."""
    return np.tile([MODEL_POLYNOMIAL, 0.0, 0.0, 2.0, 1.0, 0.0], (count, 1))


def _elements(table: Any) -> list[tuple[str, int]]:
    """Table and index of the element of every cost."""
    return [] if size(table) == 0 else [(str(a), int(b)) for a, b in zip(table["et"], table["element"], strict=True)]


def _power(pwl: Any) -> list[str]:
    """ "p" or "q" of every piecewise linear cost."""
    return [str(kind) for kind in pwl["power_type"]] if "power_type" in pwl.columns else ["p"] * size(pwl)


def _priced(net: Any) -> Iterator[tuple[str, int, str]]:
    """Table, index and "p" or "q" of every cost of a net, a polynomial once for each."""
    poly, pwl = net.get("poly_cost"), net.get("pwl_cost")
    reactive = [k for name in POLYNOMIAL["q"] if size(poly) for k in np.flatnonzero(column(poly, name, 0.0))]
    for k, element in enumerate(_elements(poly)):
        yield (*element, "p")
        if k in reactive:
            yield (*element, "q")
    for k, element in enumerate(_elements(pwl)):
        yield (*element, _power(pwl)[k])


def _row(net: Any, rows: Mapping[str, np.ndarray], key: str, element: int) -> int:
    if key not in rows:
        return -1
    at = np.flatnonzero(np.asarray(net[key].index) == element)
    return int(rows[key][at[0]]) if at.size else -1


def _points(segments: Any, sign: float, what: str) -> list[float]:
    """Points x1, y1, x2, y2, ... of segments [from, to, slope]; the first segment leads through zero."""
    segment = np.asarray(segments, float).reshape(-1, 3)
    if np.any(segment[1:, 0] != segment[:-1, 1]):
        raise CaseError(f"{what} has segments that do not follow one another: {listing(segment[:, :2].tolist())}.")
    x = np.append(segment[:1, 0], segment[:, 1])
    y = segment[0, 0] * segment[0, 2] + np.append(0.0, np.cumsum(np.diff(x) * segment[:, 2]))
    points = np.stack([sign * x, y], 1)
    return [float(value) for value in (points if sign > 0 else points[::-1]).ravel() + 0.0]


def held_buses(gen: np.ndarray, net: Any, rows: Mapping[str, np.ndarray]) -> np.ndarray:
    """Positions of buses whose voltage `runopp` holds: those of external grids and generators not controllable."""
    held = [np.zeros(0, int)]
    for key in ("ext_grid", "gen"):
        if key in rows:
            fixed = rows[key][(rows[key] >= 0) & ~flags(net[key], "controllable", key == "gen")]
            held.append(gen[fixed, 0].astype(int))
    return np.unique(np.concatenate(held))


def narrow_voltages(bus: np.ndarray, gen: np.ndarray, net: Any, rows: Mapping[str, np.ndarray]) -> None:
    """Make the voltage limits of generators those of their buses, where they are closer."""
    if "gen" in rows:
        there = rows["gen"] >= 0
        low, high = _limits(net["gen"], "vm_pu")
        at = gen[rows["gen"][there], 0].astype(int)
        np.maximum.at(bus[:, VMIN], at, low[there])
        np.minimum.at(bus[:, VMAX], at, high[there])


def free_references(bus: np.ndarray, branch: np.ndarray) -> list[str]:
    """Leave one reference of those in one island, as `runopp` does: the first; a note on the others."""
    reference = np.flatnonzero(bus[:, KIND] == REF)
    ends = branch[:, :2].astype(int)
    island = islands(len(bus), ends[:, 0], ends[:, 1], np.ones(len(branch), bool))[reference]
    others = np.delete(reference, np.unique(island, return_index=True)[1])
    bus[others, KIND] = PV
    ids = listing(bus[others, 0].astype(int))
    return [f"the optimum frees the angle of bus {ids}: one reference an island keeps its own"] if others.size else []


def close_limits(bus: np.ndarray, gen: np.ndarray, last: int) -> list[str]:
    """Give an optimum of the tables limits where the net has none, beyond what it needs; notes on that.

    last:  highest id of a bus of the net, behind which those of inner buses begin

    It starts between the limits of a unit, and in the logarithm of voltages.
    """
    notes = []
    p = gen[:, [PMIN, PMAX]]
    open_ended = ~np.isfinite(p).all(1)
    if open_ended.any():
        most = AMPLE * (np.abs(bus[:, PD]).sum() + np.abs(p[np.isfinite(p)]).sum())
        gen[:, [PMIN, PMAX]] = np.clip(p, -most, most)
        ids = listing(np.unique(bus[gen[open_ended, 0].astype(int), 0].astype(int)))
        notes.append(f"units at bus {ids} lack a limit of active power: the optimum keeps them within {most:g} MW")
    bottomless = bus[:, VMIN] <= 0
    bus[bottomless, VMIN] = np.minimum(LOWEST_PU, bus[bottomless, VMAX])
    ids = bus[bottomless, 0].astype(int)
    if np.any(ids <= last):
        found = listing(ids[ids <= last])
        notes.append(f"bus {found} lacks a lower voltage limit: the optimum keeps it above {LOWEST_PU} pu")
    return notes


def unlimited_in_runopp(net: Any) -> Iterator[str]:
    """A note on branches that a case limits in an optimum and `runopp` does not."""
    found = []
    for key in RATED:
        table = net.get(key)
        if size(table):
            open_ended = np.isnan(column(table, "max_loading_percent", np.nan)) & in_service(table)
            found += [f"{key} {element}" for element in np.asarray(table.index)[open_ended].tolist()]
    if found:
        yield (
            f"{listing(found)} without max_loading_percent: the optimum keeps to 100 % of the rating, runopp sets no "
            "limit"
        )


def cost_notes(net: Any) -> Iterator[str]:
    """Costs of a net that no unit can have."""
    priced = list(_priced(net))
    for key in dict.fromkeys(key for key, _, _ in priced):
        table, known = net.get(key), np.zeros(0, int)
        if size(table) and key in ("ext_grid", "gen"):
            known = np.asarray(table.index)
        elif size(table) and key in SIGN:
            # what is out of service costs nothing
            known = np.asarray(table.index)[flags(table, "controllable", False) | ~in_service(table)]
        mine = dict.fromkeys(element for kind, element, _ in priced if kind == key and element not in known)
        if mine:
            yield f"the cost of {key} {listing(mine)}, which the case does not dispatch, is not represented"
