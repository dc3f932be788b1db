"""Reader of saved pandapower nets, for the developers' builder: the elements that have a MATPOWER twin.

Users convert their nets with `from_pandapower`, which lets pandapower itself do it; this reader needs no pandapower,
so the shipped tables can be rebuilt from the pinned file alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import CaseError, excerpt, listing
from powerzoo_jax.cases.case import NO_ANGLE_LIMIT, PQ, PV, REF, Case, assemble
from powerzoo_jax.cases.readers.pandapower.saved import REMEDY, parse_net

READ = frozenset({"bus", "load", "sgen", "gen", "shunt", "ext_grid", "line", "trafo", "poly_cost"})
DIGITS = 9  # significant: the file carries 10 decimals of numbers that went through ohm, kA and percent


class _ElementTable:
    """One element table of the file: columns by name, rows by index (the file sorts it as text: 0, 1, 10, 100, ...)."""

    def __init__(self, content: dict[str, Any]) -> None:
        rows = sorted(zip(map(int, content["index"]), content["data"], strict=True), key=lambda row: row[0])
        self.index = [index for index, _ in rows]
        self._columns = {name: [row[k] for _, row in rows] for k, name in enumerate(content["columns"])}

    def __len__(self) -> int:
        return len(self.index)

    def numbers(self, name: str, default: float = math.nan) -> np.ndarray:
        """A column as float64, `default` where the file has no value."""
        values = self._columns.get(name, [None] * len(self))
        return np.array([default if v is None else v for v in values], np.float64)

    def positions(self, name: str) -> np.ndarray:
        return self.numbers(name).astype(np.int64)

    def texts(self, name: str) -> np.ndarray:
        return np.array([str(v) for v in self._columns.get(name, [None] * len(self))])


def read_saved_net(text: str, name: str, citation: str) -> Case:
    """Case of a net that pandapower has saved as JSON, with bus id = index + 1 and branches = lines, transformers.

    Units are the external grids, the generators and the controllable static generators; the other static generators
    are negative loads. Transformers are pi models, and a negative no-load current is charging, as in the tables that
    such nets were made from (pandapower itself drops the sign). Values are rounded to 9 significant digits.

    Raises CaseError for a text that is no saved net, for element tables outside the subset and for elements out of
    service.
    """
    content = parse_net(text, name)
    try:
        return _convert(content, name, citation)
    except CaseError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as err:
        message = f"{name} cannot be read as a saved net ({type(err).__name__}: {excerpt(err)}). {REMEDY}"
        raise CaseError(message) from err


def _convert(content: Any, name: str, citation: str) -> Case:
    tables, net = _element_tables(content)
    base, hertz = float(net["sn_mva"]), float(net["f_hz"])
    bus = tables["bus"]
    branch = np.vstack([_lines(tables["line"], bus, base, hertz), _trafos(tables["trafo"], bus, base)])
    gen, cost = _units(tables, base)
    parts = {"bus": _buses(tables), "branch": branch, "gen": gen, "gencost": cost}
    return assemble(name, base, citation, {key: _rounded(value) for key, value in parts.items()})


def _element_tables(content: Any) -> tuple[dict[str, _ElementTable], dict[str, Any]]:
    net = content["_object"]
    tables = {
        key: _ElementTable(value["_object"])
        for key, value in net.items()
        if isinstance(value, dict) and value.get("_class") == "DataFrame" and not key.startswith(("res_", "_"))
    }
    strange = sorted(key for key, t in tables.items() if len(t) and key not in READ)
    if strange:
        raise CaseError(f"the saved net holds {listing(strange)}, which the builder cannot read. Use from_pandapower.")
    idle = sorted(key for key, t in tables.items() if not np.all(t.numbers("in_service", 1.0)))
    if idle:
        raise CaseError(f"the saved net holds elements out of service in {listing(idle)}. Use from_pandapower.")
    empty = _ElementTable({"index": [], "data": [], "columns": []})
    return {key: tables.get(key, empty) for key in READ}, net


def _rounded(table: np.ndarray) -> np.ndarray:
    return np.array([[float(f"{v:.{DIGITS}g}") for v in row] for row in table.tolist()], np.float64)


def _voltages(at: np.ndarray, bus: _ElementTable) -> np.ndarray:
    kv = dict(zip(bus.index, bus.numbers("vn_kv"), strict=True))
    return np.array([kv[int(i)] for i in at], np.float64)


def _buses(tables: dict[str, _ElementTable]) -> np.ndarray:
    bus, load, shunt, sgen = (tables[key] for key in ("bus", "load", "shunt", "sgen"))
    row_of = {index: k for k, index in enumerate(bus.index)}
    n = len(bus)
    rows = np.zeros((n, 13))
    rows[:, 0] = np.array(bus.index) + 1
    rows[:, 1] = PQ
    rows[:, 6], rows[:, 7], rows[:, 10] = 1, 1, 1
    rows[:, 9] = bus.numbers("vn_kv")
    rows[:, 11], rows[:, 12] = bus.numbers("max_vm_pu"), bus.numbers("min_vm_pu")
    for key, kind in (("gen", PV), ("ext_grid", REF)):
        rows[[row_of[int(i)] for i in tables[key].positions("bus")], 1] = kind

    def add(table: _ElementTable, column: int, values: np.ndarray) -> None:
        np.add.at(rows[:, column], [row_of[int(i)] for i in table.positions("bus")], values)

    fixed = 1.0 - sgen.numbers("controllable", 0.0)
    for element, sign in ((load, 1.0), (sgen, -fixed)):
        add(element, 2, sign * element.numbers("p_mw") * element.numbers("scaling", 1.0))
        add(element, 3, sign * element.numbers("q_mvar") * element.numbers("scaling", 1.0))
    # a shunt is given at its own rated voltage
    scale = shunt.numbers("step", 1.0) * (_voltages(shunt.positions("bus"), bus) / shunt.numbers("vn_kv")) ** 2
    add(shunt, 4, shunt.numbers("p_mw") * scale)
    add(shunt, 5, -shunt.numbers("q_mvar") * scale)
    return rows


def _lines(line: _ElementTable, bus: _ElementTable, base: float, hertz: float) -> np.ndarray:
    kv = _voltages(line.positions("from_bus"), bus)
    parallel, length = line.numbers("parallel", 1.0), line.numbers("length_km")
    ohm = kv * kv / base
    series = length / parallel / ohm
    rows = _branch_rows(line.positions("from_bus"), line.positions("to_bus"))
    rows[:, 2], rows[:, 3] = line.numbers("r_ohm_per_km") * series, line.numbers("x_ohm_per_km") * series
    rows[:, 4] = 2 * math.pi * hertz * line.numbers("c_nf_per_km") * 1e-9 * length * parallel * ohm
    rows[:, 5] = math.sqrt(3) * kv * line.numbers("max_i_ka") * line.numbers("df", 1.0) * parallel
    return rows


def _trafos(trafo: _ElementTable, bus: _ElementTable, base: float) -> np.ndarray:
    rows = _branch_rows(trafo.positions("hv_bus"), trafo.positions("lv_bus"))
    high, low = trafo.numbers("vn_hv_kv"), trafo.numbers("vn_lv_kv")
    steps = (trafo.numbers("tap_pos", 0.0) - trafo.numbers("tap_neutral", 0.0)) * trafo.numbers("tap_step_percent", 0.0)
    side = trafo.texts("tap_side")
    high = high * np.where(side == "hv", 1 + steps / 100, 1.0)
    low = low * np.where(side == "lv", 1 + steps / 100, 1.0)
    sn, parallel = trafo.numbers("sn_mva"), trafo.numbers("parallel", 1.0)
    to_kv = _voltages(trafo.positions("lv_bus"), bus)
    per_unit = (low / to_kv) ** 2 * base / sn / parallel
    z, r = trafo.numbers("vk_percent") / 100, trafo.numbers("vkr_percent") / 100
    rows[:, 2] = r * per_unit
    rows[:, 3] = np.sign(z) * np.sqrt(z * z - r * r) * per_unit
    rows[:, 4] = -trafo.numbers("i0_percent") / 100 / per_unit
    rows[:, 5] = sn * trafo.numbers("df", 1.0) * parallel
    rows[:, 8] = (high / _voltages(trafo.positions("hv_bus"), bus)) / (low / to_kv)
    rows[:, 9] = trafo.numbers("shift_degree", 0.0)
    return rows


def _branch_rows(f: np.ndarray, t: np.ndarray) -> np.ndarray:
    rows = np.zeros((len(f), 13))
    rows[:, 0], rows[:, 1] = f + 1, t + 1
    rows[:, 8], rows[:, 10] = 1.0, 1.0
    rows[:, 11], rows[:, 12] = -NO_ANGLE_LIMIT, NO_ANGLE_LIMIT
    return rows


def _units(tables: dict[str, _ElementTable], base: float) -> tuple[np.ndarray, np.ndarray]:
    cost = tables["poly_cost"]
    price = {
        (element, int(number)): values
        for element, number, *values in zip(
            cost.texts("et"),
            cost.numbers("element"),
            cost.numbers("cp2_eur_per_mw2"),
            cost.numbers("cp1_eur_per_mw"),
            cost.numbers("cp0_eur"),
            strict=True,
        )
    }
    gens, costs = [], []
    for key in ("ext_grid", "gen", "sgen"):
        t = tables[key]
        used = t.numbers("controllable", 1.0 if key != "sgen" else 0.0) > 0
        rows = np.zeros((len(t), 10))
        rows[:, 0] = t.positions("bus") + 1
        rows[:, 1], rows[:, 2] = t.numbers("p_mw", 0.0), t.numbers("q_mvar", 0.0)
        rows[:, 3], rows[:, 4] = t.numbers("max_q_mvar"), t.numbers("min_q_mvar")
        rows[:, 5], rows[:, 6], rows[:, 7] = t.numbers("vm_pu", 1.0), base, 1.0
        rows[:, 8], rows[:, 9] = t.numbers("max_p_mw"), t.numbers("min_p_mw")
        gens.append(rows[used])
        costs += [[2.0, 0.0, 0.0, 3.0, *price[key, index]] for index, use in zip(t.index, used, strict=True) if use]
    return np.vstack(gens), np.array(costs)
