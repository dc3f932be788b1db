"""Elements of a world: its `grid.json`, a saved net of pandapower, as a `Case` and the order that Grid2Op gives them.

A transformer is a T of z/2, y, z/2, which as a pi has the impedance z (1 + y z/4), and (y/2) / (1 + y z/4) at each end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import CaseError, excerpt, listing
from powerzoo_jax.base.numerics import FLOAT
from powerzoo_jax.base.textfile import parse_json, read_json
from powerzoo_jax.cases.case import NO_ANGLE_LIMIT, PQ, PV, REF, BranchTable, BusTable, Case, LoadTable, UnitTable
from powerzoo_jax.families.operation.actions import ElementNames

REMEDY = "Save the net again with pandapower's to_json."
TABLES = ("bus", "line", "trafo", "gen", "ext_grid", "load", "shunt", "sgen", "storage")
NOT_MODELLED = ("trafo3w", "impedance", "ward", "xward", "dcline", "motor", "switch", "svc", "tcsc", "asymmetric_load")
# of a column, the only value that Grid2Op's backend takes into account
EXPECTED = {"parallel": 1, "tap_neutral": 0, "tap_phase_shifter": 0, "const_z_percent": 0, "const_i_percent": 0}
VOLTAGES = (0.9, 1.1)  # [pu] of a bus whose limits the file does not give


class Table:
    """Rows of an element table; `where` names it in messages."""

    def __init__(self, name: str, where: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self.name, self.where, self.columns, self.rows = name, f"{where}: table {name}", list(columns), list(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, key: str) -> list[Any]:
        """Values of a column; None in every row where the table has it not."""
        at = self.columns.index(key) if key in self.columns else None
        return [None if at is None else row[at] for row in self.rows]

    def numbers(self, key: str, default: float = 0.0) -> np.ndarray:
        """A column as numbers; `default` where there is no finite one."""
        values = self.column(key)
        odd = [v for v in values if not (v is None or isinstance(v, int | float)) or abs(v or 0) > 1e300 * (v == v)]
        odd = [v for v in odd if not (isinstance(v, float) and abs(v) == np.inf)]
        if odd:
            raise CaseError(f"{self.where} has {listing(map(repr, odd))} as {key}. Give numbers.")
        return np.array([default if v is None or not np.isfinite(v) else v for v in values], float)

    def positions(self, key: str, n_bus: int) -> np.ndarray:
        """A column of bus numbers. Raises CaseError for any that is none of 0 to n_bus - 1."""
        odd = [v for v in self.column(key) if type(v) is not int or not 0 <= v < n_bus]
        if odd:
            raise CaseError(f"{self.where} has {listing(map(repr, odd))} as {key}. Give buses, 0 to {n_bus - 1}.")
        return np.array(self.column(key), np.int64)

    def names(self, default: Callable[[int], str]) -> tuple[str, ...]:
        """Names of the rows; made of their positions where one row has none."""
        found = self.column("name")
        if not found or any(name is None for name in found):
            return tuple(default(k) for k in range(len(self)))
        return tuple(map(str, found))

    def running(self) -> Table:
        """The rows that are in service."""
        on = [value is None or bool(value) for value in self.column("in_service")]
        return Table(
            self.name, self.where, self.columns, [row for row, kept in zip(self.rows, on, strict=True) if kept]
        )


@dataclass(frozen=True, eq=False)
class Elements:
    """Elements of a net in Grid2Op's order: lines, then transformers; E in the order of `operation.types`.

    conductance_pu: (L,) total of both ends
    limit_a:   (L,) [A] of the tables
    slack:     unit that balances
    storage_bus, q_storage: (B,) [Mvar] consumption
    n_fixed:   loads of the case without topology, its last
    """

    case: Case
    names: ElementNames
    conductance_pu: np.ndarray
    limit_a: np.ndarray
    slack: int
    storage_bus: np.ndarray
    q_storage: np.ndarray
    n_fixed: int

    @property
    def unit_bus(self) -> np.ndarray:
        """Substation of each unit, (G,)."""
        return self.case.unit.bus_id


def read_elements(path: Path, name: str) -> Elements:
    """Elements of a grid.json. Raises CaseError for what the flow of Grid2Op does not model, naming it."""
    net = read_json(path, CaseError, REMEDY)
    net = net.get("_object", net) if isinstance(net, dict) else net
    if not isinstance(net, dict) or "bus" not in net:
        raise CaseError(f"{path} is no net of pandapower: it has no table `bus`. {REMEDY}")
    tables = {key: _table(net, key, path) for key in (*TABLES, *NOT_MODELLED)}
    _refuse(tables, path)
    tables |= {key: tables[key].running() for key in ("shunt", "sgen")}
    base, f_hz = (_setting(net, key, path) for key in ("sn_mva", "f_hz"))
    bus, lines, trafos, loads, storages = (tables[key] for key in ("bus", "line", "trafo", "load", "storage"))
    n, vn = len(bus), bus.numbers("vn_kv")
    if np.any(vn <= 0):
        raise CaseError(f"{bus.where} has vn_kv = {listing(vn[vn <= 0])}. Give nominal voltages in kV.")
    units, slack = _units(tables["gen"], tables["ext_grid"], n)
    f = np.r_[lines.positions("from_bus", n), trafos.positions("hv_bus", n)]
    t = np.r_[lines.positions("to_bus", n), trafos.positions("lv_bus", n)]
    of = {table.name: table.positions("bus", n) for table in (units, loads, storages, tables["shunt"], tables["sgen"])}
    crossing = np.flatnonzero(vn[f[: len(lines)]] != vn[t[: len(lines)]])
    if crossing.size:
        raise CaseError(f"{lines.where}: rows {listing(crossing)} join two nominal voltages. Make them transformers.")
    branch, conductance, limit = _branches(lines, trafos, f, t, vn, base, f_hz)
    shared = np.flatnonzero(of["gen"] == of["gen"][slack])
    if shared[0] != slack:
        raise CaseError(
            f"{units.where}: unit {slack} balances and shares substation {of['gen'][slack]} with unit {shared[0]}. "
            "List the unit that balances first."
        )
    names = {
        "line": lines.names(lambda k: f"{f[k]}_{t[k]}_{k}")
        + trafos.names(
            lambda k: "_".join([*sorted((str(f[k + len(lines)]), str(t[k + len(lines)]))), str(k + len(lines))])
        ),
        "unit": units.names(lambda k: f"gen_{of['gen'][k]}_{k}"),
        "load": loads.names(lambda k: f"load_{of['load'][k]}_{k}"),
        "storage": storages.names(lambda k: f"storage_{of['storage'][k]}_{k}"),
    }
    for kind, found in names.items():
        if len(set(found)) < len(found):
            twice = listing(sorted({x for x in found if found.count(x) > 1}))
            raise CaseError(f"{path}: {kind} {twice} is there more than once. Give every {kind} a name of its own.")
    bus_kind = np.full(n, PQ)
    bus_kind[of["gen"]] = PV
    bus_kind[of["gen"][slack]] = REF
    p_shunt, q_shunt = (_per_bus(tables["shunt"], key, of["shunt"], n, "step") for key in ("p_mw", "q_mvar"))
    sgen, low, high = tables["sgen"], *VOLTAGES
    v_set = units.numbers("vm_pu", 1.0)
    ones, zeros = np.ones(n), np.zeros(len(units))
    fixed = [-sgen.numbers(key) * sgen.numbers("scaling", 1.0) for key in ("p_mw", "q_mvar")]
    load = [loads.numbers(key) * loads.numbers("scaling", 1.0) for key in ("p_mw", "q_mvar")]
    held = ones.copy()
    held[of["gen"]] = v_set
    p = units.numbers("p_mw")
    case = Case(
        name=name,
        base_mva=base,
        citation=f"grid.json of the Grid2Op environment {name}",
        bus=BusTable(
            *(np.arange(n), bus_kind, p_shunt, -q_shunt, held, 0 * ones, vn),
            *(bus.numbers("max_vm_pu", high), bus.numbers("min_vm_pu", low)),
        ),
        branch=branch,
        unit=UnitTable(
            *(of["gen"], p, zeros, units.numbers("max_q_mvar", np.inf), units.numbers("min_q_mvar", -np.inf), v_set),
            *(np.full(len(p), base), np.ones(len(p), bool), np.maximum(units.numbers("max_p_mw", np.inf), p)),
            *(np.minimum(0.0, p), zeros, zeros, zeros, zeros, zeros[:, None]),
        ),
        load=LoadTable(np.r_[of["load"], of["sgen"]], np.r_[load[0], fixed[0]], np.r_[load[1], fixed[1]]),
    )
    sub = np.concatenate([f, t, of["gen"], of["load"], of["storage"]])
    return Elements(
        case=case,
        names=ElementNames(**names, sub=sub),
        conductance_pu=conductance,
        limit_a=limit.astype(FLOAT),
        slack=slack,
        storage_bus=of["storage"],
        q_storage=storages.numbers("q_mvar"),
        n_fixed=len(sgen),
    )


def _table(net: dict[str, Any], key: str, path: Path) -> Table:
    """One table of a net, its buses by their numbers."""
    found = net.get(key, {})
    found = found.get("_object", found) if isinstance(found, dict) else found
    found = parse_json(found, f"{path}: table {key}", CaseError, REMEDY) if isinstance(found, str) else found
    empty: dict[str, Any] = {"columns": [], "data": [], "index": []}
    content: Any = (found or empty) if isinstance(found, dict | list) else {}
    parts: list[Any] = [content.get(x) if isinstance(content, dict) else None for x in empty]
    columns, rows, index = parts
    shaped = all(isinstance(part, list) for part in parts) and len(rows) == len(index)
    if not shaped or any(type(row) is not list or len(row) != len(columns) for row in rows):
        raise CaseError(f"{path}: table {key} is not of the form that pandapower saves: columns, index, data. {REMEDY}")
    if key == "bus":
        if not rows or any(type(k) is not int for k in index) or sorted(index) != list(range(len(rows))):
            raise CaseError(f"{path}: the buses are not numbered 0, 1, 2, ...: {listing(index)}. Renumber them.")
        rows = [row for _, row in sorted(zip(index, rows, strict=True), key=lambda pair: pair[0])]
    return Table(key, str(path), columns, rows)


def _setting(net: dict[str, Any], key: str, path: Path) -> float:
    value = net.get(key)
    if not isinstance(value, int | float) or not 0 < value < 1e9:
        raise CaseError(f"{path}: {key} = {excerpt(repr(value))}. Give a positive number.")
    return float(value)


def _refuse(tables: dict[str, Table], path: Path) -> None:
    """Raise for tables, columns and rows that Grid2Op's flow leaves out or refuses."""
    for key in NOT_MODELLED:
        if len(tables[key]):
            raise CaseError(
                f"{path}: the table {key} has {len(tables[key])} rows, which are not modelled. Remove them."
            )
    for key in ("bus", "line", "trafo", "gen", "load", "storage"):
        table = tables[key]
        if len(table.running()) < len(table):
            off = [k for k, on in enumerate(table.column("in_service")) if on is not None and not on]
            raise CaseError(
                f"{table.where}: rows {listing(off)} are out of service. Remove them, or set them in service."
            )
        for column, value in EXPECTED.items():
            found = table.numbers(column, value)
            if np.any(found != value):
                raise CaseError(
                    f"{table.where} has {column} = {listing(found[found != value])}, which Grid2Op does not take. "
                    f"Set {value}."
                )


def _units(gen: Table, ext: Table, n: int) -> tuple[Table, int]:
    """Units, and the one that balances: where none is flagged, an external grid, which becomes a unit."""
    flagged = [k for k, value in enumerate(gen.column("slack")) if value]
    if not flagged:
        here = ext.positions("bus", n).tolist()
        held = gen.positions("bus", n).tolist()
        columns = list(dict.fromkeys((*gen.columns, "bus", "vm_pu")))
        rows = [[dict(zip(gen.columns, row, strict=True)).get(key) for key in columns] for row in gen.rows]
        for bus, v in zip(here, ext.column("vm_pu"), strict=True):
            if bus not in held:
                rows.append([{"bus": bus, "vm_pu": v}.get(key) for key in columns])
        flagged = [len(gen)] if len(rows) > len(gen) else [k for k, bus in enumerate(held) if bus in here]
        gen = Table("gen", gen.where.rpartition(": ")[0], columns, rows)
    if len(flagged) != 1:
        raise CaseError(f"{gen.where} has {len(flagged)} units that balance (slack). Flag exactly one.")
    return gen, flagged[0]


def _per_bus(table: Table, key: str, at: np.ndarray, n: int, times: str) -> np.ndarray:
    return np.bincount(at, table.numbers(key) * table.numbers(times, 1.0), n).astype(float)


def _branches(
    lines: Table, trafos: Table, f: np.ndarray, t: np.ndarray, vn: np.ndarray, base: float, f_hz: float
) -> tuple[BranchTable, np.ndarray, np.ndarray]:
    """Branches, their conductance [pu] and their limits [A]; the voltages of transformers are those of their buses."""
    n_line = len(lines)
    km, ohm = lines.numbers("length_km"), vn[f[:n_line]] ** 2 / base
    z_line = (lines.numbers("r_ohm_per_km") + 1j * lines.numbers("x_ohm_per_km")) * km / ohm
    siemens = lines.numbers("g_us_per_km") * 1e-6 + 2j * np.pi * f_hz * 1e-9 * lines.numbers("c_nf_per_km")

    s_mva, side = (
        trafos.numbers("sn_mva"),
        np.array(["lv" if s == "lv" else "hv" if s == "hv" else "" for s in trafos.column("tap_side")]),
    )
    if np.any(s_mva <= 0):
        raise CaseError(f"{trafos.where} has sn_mva = {listing(s_mva[s_mva <= 0])}. Give ratings in MVA.")
    step = 1 + trafos.numbers("tap_pos") * trafos.numbers("tap_step_percent") / 100
    if np.any(step <= 0):
        raise CaseError(f"{trafos.where}: tap_pos and tap_step_percent make a ratio of {listing(step[step <= 0])}.")
    scale = np.where(side == "lv", step, 1.0) ** 2 * base / s_mva
    r, size = trafos.numbers("vkr_percent") / 100 * scale, trafos.numbers("vk_percent") / 100 * scale
    if np.any(np.abs(r) > np.abs(size)):
        raise CaseError(f"{trafos.where} has vkr_percent above vk_percent. Correct one of them.")
    iron, no_load = trafos.numbers("pfe_kw") * 1e-3, trafos.numbers("i0_percent") / 100 * s_mva
    z = r + 1j * np.sqrt(size**2 - r**2)
    # a negative no-load current is charging
    y = (iron - 1j * np.sign(no_load) * np.sqrt(np.maximum(no_load**2 - iron**2, 0.0))) / base
    turn = 1 + y * z / 4
    series, shunt = np.r_[z_line, z * turn], np.r_[siemens * km * ohm, y / turn]
    tap = np.r_[np.ones(n_line), np.where(side == "hv", step, np.where(side == "lv", 1 / step, 1.0))]
    none = np.zeros(len(f))
    v_rated = trafos.numbers("vn_hv_kv")
    rated = np.where(v_rated > 0, s_mva / (np.sqrt(3) * np.where(v_rated > 0, v_rated, 1)), 0.0)
    branch = BranchTable(
        *(f, t, series.real, series.imag, shunt.imag, none, tap, np.r_[none[:n_line], trafos.numbers("shift_degree")]),
        *(np.ones(len(f), bool), none - NO_ANGLE_LIMIT, none + NO_ANGLE_LIMIT),
    )
    return branch, shunt.real, 1000 * np.r_[lines.numbers("max_i_ka"), rated]
