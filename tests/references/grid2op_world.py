"""A plain reader of Grid2Op's environment folders for the tests: NumPy and the standard library, nothing is executed.

Every series, limit and characteristic is float32, as Grid2Op keeps them; impedances are float64. Elements stand in
Grid2Op's order: lines, then transformers; the topology vector goes substation by substation, in each first the line
ends, then units, loads and storages.
"""

from __future__ import annotations

import ast
import bz2
import csv
import datetime
import io
import json
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

DT_S = 300.0  # of energies, whatever time_interval.info says: that moves the clock and drawn maintenance alone
KINDS = ("or", "ex", "unit", "load", "storage")  # of the topology vector
TABLES = ("bus", "line", "trafo", "gen", "ext_grid", "load", "shunt", "sgen", "storage")
RENEWABLE = ("wind", "solar")
DEFAULTS: dict[str, Any] = {
    "NO_OVERFLOW_DISCONNECTION": False,
    "NB_TIMESTEP_OVERFLOW_ALLOWED": 2,
    "NB_TIMESTEP_RECONNECTION": 10,
    "NB_TIMESTEP_COOLDOWN_LINE": 0,
    "NB_TIMESTEP_COOLDOWN_SUB": 0,
    "HARD_OVERFLOW_THRESHOLD": 2.0,
    "SOFT_OVERFLOW_THRESHOLD": 1.0,
    "MAX_SUB_CHANGED": 1,
    "MAX_LINE_STATUS_CHANGED": 1,
    "INIT_STORAGE_CAPACITY": 0.5,
    "ACTIVATE_STORAGE_LOSS": True,
}
ARITHMETIC: dict[type, Callable] = {
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
}
# file of an episode -> elements in its columns, and their key in names_chronics_to_grid
SERIES = {
    "load_p": ("load", "loads"),
    "load_q": ("load", "loads"),
    "prod_p": ("unit", "prods"),
    "prod_v": ("unit", "prods"),
    "maintenance": ("line", "lines"),
    "hazards": ("line", "lines"),
}
FORECAST = ("load_p", "load_q", "prod_p", "prod_v")
Row = dict[str, Any]


@dataclass(frozen=True)
class Grid:
    """Elements of a grid.json.

    names:    of every kind of element, in order
    sub:      kind -> (E,) substation
    place:    kind -> (E,) position in the topology vector
    sub_of_place:  (D,)          vn_kv: (N,)          base_mva
    y:        (4, L) complex [pu], admittances from-from, from-to, to-from, to-to
    b_dc:     (L,) [pu]          shift_rad: (L,)
    limit_a:  (L,) [A], of the tables
    slack:    unit               v_unit_pu, p_unit_mw, q_span_mvar: (G,)
    s_load, s_storage, s_shunt: (E,) complex [MVA]   s_fixed: (N,) complex [MVA], injections without topology
    """

    names: dict[str, tuple[str, ...]]
    sub: dict[str, np.ndarray]
    place: dict[str, np.ndarray]
    sub_of_place: np.ndarray
    vn_kv: np.ndarray
    base_mva: float
    y: np.ndarray
    b_dc: np.ndarray
    shift_rad: np.ndarray
    limit_a: np.ndarray
    slack: int
    v_unit_pu: np.ndarray
    p_unit_mw: np.ndarray
    q_span_mvar: np.ndarray
    s_load: np.ndarray
    s_storage: np.ndarray
    s_shunt: np.ndarray
    s_fixed: np.ndarray

    @property
    def n_sub(self) -> int:
        return len(self.vn_kv)

    @property
    def n_line(self) -> int:
        return len(self.names["line"])


def _number(value: Any) -> float:
    return 0.0 if value is None or not math.isfinite(value) else float(value)


def _column(rows: Sequence[Row], key: str) -> np.ndarray:
    return np.array([_number(row.get(key)) for row in rows], float)


def _positions(rows: Sequence[Row], key: str) -> np.ndarray:
    return np.array([row[key] for row in rows], int)


def _tables(net: dict) -> dict[str, list[Row]]:
    """Rows of the element tables of a saved net; those out of service of shunts and static generators are left out."""
    found: dict[str, list[Row]] = {}
    for name in TABLES:
        table = net.get(name, {"columns": [], "data": [], "index": []})
        table = table.get("_object", table)
        table = json.loads(table) if isinstance(table, str) else table
        rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
        if name == "bus":
            rows = [row for _, row in sorted(zip(table["index"], rows, strict=True), key=lambda pair: pair[0])]
            if sorted(table["index"]) != list(range(len(rows))):
                raise ValueError("the buses of grid.json are not numbered 0, 1, 2, ...")
        if name in ("shunt", "sgen"):
            rows = [row for row in rows if row.get("in_service", True)]
        found[name] = rows
    return found


def _units(tables: dict[str, list[Row]]) -> list[Row]:
    """Generators, and where none of them is the slack one more for the external grid, unless a unit stands there."""
    units = tables["gen"]
    if any(row.get("slack") for row in units):
        return units
    held = {row["bus"] for row in units}
    wide = {"min_q_mvar": -1e9, "max_q_mvar": 1e9, "p_mw": 0.0}
    fresh = [row | wide | {"name": None} for row in tables["ext_grid"] if row["bus"] not in held]
    for row in fresh[:1] or [row for row in units if row["bus"] in {e["bus"] for e in tables["ext_grid"]}]:
        row["slack"] = True
    return units + fresh


def _names(rows: Sequence[Row], default: Callable[[int, Row], str]) -> tuple[str, ...]:
    if rows and all(row.get("name") is not None for row in rows):
        return tuple(str(row["name"]) for row in rows)
    return tuple(default(k, row) for k, row in enumerate(rows))


def _branches(tables: dict[str, list[Row]], vn: np.ndarray, base: float, f_hz: float) -> tuple[np.ndarray, ...]:
    """Admittances (4, L), DC susceptances, shifts and limits [A] of lines and transformers.

    A transformer is a T of z/2, y, z/2, which as a pi has the impedance z (1 + y z/4) and (y/2) / (1 + y z/4) at each
    end; a negative no-load current is charging.
    """
    lines, trafos = tables["line"], tables["trafo"]
    km, v = _column(lines, "length_km"), vn[_positions(lines, "from_bus")]
    ohm = (_column(lines, "r_ohm_per_km") + 1j * _column(lines, "x_ohm_per_km")) * km
    siemens = _column(lines, "g_us_per_km") * 1e-6 + 2j * np.pi * f_hz * 1e-9 * _column(lines, "c_nf_per_km")
    z_line, y_line = ohm / (v * vn[_positions(lines, "to_bus")] / base), siemens * km / 2 * v**2 / base

    s_mva = _column(trafos, "sn_mva")
    step = 1 + _column(trafos, "tap_pos") * _column(trafos, "tap_step_percent") / 100
    sides = [row.get("tap_side") for row in trafos]
    at_high, at_low = np.array([s == "hv" for s in sides], bool), np.array([s == "lv" for s in sides], bool)
    k = np.where(at_low, step, 1.0) ** 2 * base / s_mva
    r, size = _column(trafos, "vkr_percent") / 100 * k, _column(trafos, "vk_percent") / 100 * k
    iron, no_load = _column(trafos, "pfe_kw") * 1e-3, _column(trafos, "i0_percent") / 100 * s_mva
    magnetising = np.sqrt(np.maximum(no_load**2 - iron**2, 0.0))
    z, y = r + 1j * np.sqrt(size**2 - r**2), (iron - 1j * np.sign(no_load) * magnetising) / base
    turn = 1 + y * z / 4

    series = 1 / np.concatenate([z_line, z * turn])
    end = np.concatenate([y_line, y / 2 / turn])
    ratio = np.concatenate([np.ones(len(lines)), np.where(at_high, step, np.where(at_low, 1 / step, 1.0))])
    shift = np.concatenate([np.zeros(len(lines)), np.deg2rad(_column(trafos, "shift_degree"))])
    tap = ratio * np.exp(1j * shift)
    full = np.array([(series + end) / ratio**2, -series / tap.conj(), -series / tap, series + end])
    rated = s_mva / (np.sqrt(3) * _column(trafos, "vn_hv_kv"))
    limit = 1000 * np.concatenate([_column(lines, "max_i_ka"), rated])
    return full, 1 / ((1 / series).imag * ratio), shift, limit.astype(np.float32)


def read_grid(path: Path) -> Grid:
    """Elements of a grid.json in Grid2Op's order. Raises ValueError for a net with none or several slack units."""
    saved = json.loads(path.read_text(encoding="utf-8"))
    net = saved.get("_object", saved)
    tables = _tables(net)
    units, vn, base = _units(tables), _column(tables["bus"], "vn_kv"), float(net["sn_mva"])
    slack = [k for k, row in enumerate(units) if row.get("slack")]
    if len(slack) != 1:
        raise ValueError(f"{path} has {len(slack)} slack units, expected one")
    lines, trafos = tables["line"], tables["trafo"]
    sub = {
        "or": np.concatenate([_positions(lines, "from_bus"), _positions(trafos, "hv_bus")]),
        "ex": np.concatenate([_positions(lines, "to_bus"), _positions(trafos, "lv_bus")]),
        "unit": _positions(units, "bus"),
        **{kind: _positions(tables[kind], "bus") for kind in ("load", "storage", "shunt")},
    }
    n_line = len(lines)

    def trafo_name(k: int, row: Row) -> str:
        return "_".join([*sorted((str(row["hv_bus"]), str(row["lv_bus"]))), str(k + n_line)])

    named = _names(lines, lambda k, row: f"{row['from_bus']}_{row['to_bus']}_{k}")
    names = {
        "line": named + _names(trafos, trafo_name),
        "unit": _names(units, lambda k, row: f"gen_{row['bus']}_{k}"),
        "load": _names(tables["load"], lambda k, row: f"load_{row['bus']}_{k}"),
        "storage": _names(tables["storage"], lambda k, row: f"storage_{row['bus']}_{k}"),
    }
    place, sub_of_place = _places(sub, len(vn))
    y, b_dc, shift, limit = _branches(tables, vn, base, float(net["f_hz"]))
    fixed = np.zeros(len(vn), complex)
    for row in tables["sgen"]:
        fixed[row["bus"]] += (_number(row["p_mw"]) + 1j * _number(row["q_mvar"])) * _number(row.get("scaling", 1))

    def power(kind: str) -> np.ndarray:
        return _column(tables[kind], "p_mw") + 1j * _column(tables[kind], "q_mvar")

    return Grid(
        names=names,
        sub=sub,
        place=place,
        sub_of_place=sub_of_place,
        vn_kv=vn,
        base_mva=base,
        y=y,
        b_dc=b_dc,
        shift_rad=shift,
        limit_a=limit,
        slack=slack[0],
        v_unit_pu=_column(units, "vm_pu"),
        p_unit_mw=_column(units, "p_mw"),
        q_span_mvar=_column(units, "max_q_mvar") - _column(units, "min_q_mvar"),
        s_load=power("load"),
        s_storage=power("storage"),
        s_shunt=power("shunt"),
        s_fixed=fixed,
    )


def _places(sub: dict[str, np.ndarray], n_sub: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Positions of the elements in the topology vector, and the substation of every position."""
    ends = [(sub[kind][k], 0, k, kind) for k in range(len(sub["or"])) for kind in ("or", "ex")]
    others = [(s, rank, k, kind) for rank, kind in enumerate(KINDS[2:], 1) for k, s in enumerate(sub[kind])]
    order = sorted(ends + others, key=lambda item: item[:3])
    place = {kind: np.zeros(len(sub[kind]), int) for kind in KINDS}
    for position, (_, _, k, kind) in enumerate(order):
        place[kind][k] = position
    return place, np.array([item[0] for item in order], int)


def read_config(path: Path) -> dict[str, Any]:
    """Last assignment of `config` in a config.py, by its syntax tree.

    A class is ("name", its last part), a call ("call", class, arguments); what is neither is left out.
    """
    values: dict[str, Any] = {}

    def value(node: ast.AST) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return values.get(node.id, ("name", node.id))
            case ast.Attribute():
                return ("name", node.attr)
            case ast.List() | ast.Tuple():
                return [value(item) for item in node.elts]
            case ast.Dict():
                return {value(k): value(v) for k, v in zip(node.keys, node.values, strict=True) if k is not None}
            case ast.UnaryOp(op=ast.USub()):
                return -value(node.operand)
            case ast.BinOp() if type(node.op) in ARITHMETIC:
                return ARITHMETIC[type(node.op)](value(node.left), value(node.right))
            case ast.Call():
                return ("call", value(node.func), [value(item) for item in node.args])
        return None

    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            values[statement.targets[0].id] = value(statement.value)
    return values["config"]


def read_parameters(folder: Path) -> dict[str, Any]:
    """Parameters in force: `competition` or the largest level of difficulty_levels.json, else parameters.json."""
    levels, own = folder / "difficulty_levels.json", folder / "parameters.json"
    if levels.exists():
        found = json.loads(levels.read_text(encoding="utf-8"))
        key = "competition" if "competition" in found else str(max(int(k) for k in found if k.isdigit()))
        return DEFAULTS | found[key]
    return DEFAULTS | (json.loads(own.read_text(encoding="utf-8")) if own.exists() else {})


def read_series(base: Path) -> tuple[list[str], np.ndarray] | None:
    """Header and rows of a series, `.csv` or `.csv.bz2`; NaN where there is no value, None without the file."""
    plain, packed = base.with_name(base.name + ".csv"), base.with_name(base.name + ".csv.bz2")
    if not plain.exists() and not packed.exists():
        return None
    text = plain.read_text(encoding="utf-8") if plain.exists() else bz2.decompress(packed.read_bytes()).decode()
    rows = [row for row in csv.reader(io.StringIO(text), delimiter=";") if row]
    return rows[0], np.array([[float(x or "nan") for x in row] for row in rows[1:]], float).reshape(-1, len(rows[0]))


def windows(out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Steps to the next window of a line, 0 inside and -1 without one, and its steps, inside those that are left.

    out:  (T,) whether the line is out; a window is seen where it begins after the first row
    """
    n, done = len(out), 0
    edge = np.diff(np.concatenate([out, [0, 0]]))
    first, after = np.flatnonzero(edge == 1) + 1, np.flatnonzero(edge == -1) + 1
    time, left = np.full(n, -1), np.zeros(n, int)
    for a, b in zip(first.tolist(), after.tolist(), strict=False):
        time[done:a], time[a:b] = np.arange(a - done, 0, -1), 0
        left[done:a], left[a:b] = b - a, np.arange(b - a, 0, -1)
        done = b
    time[done:], left[done:] = -1, 0
    return time, left


@dataclass(frozen=True)
class Episode:
    """Series of an episode: one row an observation.

    rows:     name -> (T, E) float32, or (T, L) bool of maintenance and hazards; absent without the file
    to_maintenance, maintenance_left: (T, L) or None      hazard_left: (T, L) or None
    forecast: name -> (horizons * T, E) float32
    """

    name: str
    rows: dict[str, np.ndarray]
    to_maintenance: np.ndarray | None
    maintenance_left: np.ndarray | None
    hazard_left: np.ndarray | None
    forecast: dict[str, np.ndarray]

    @property
    def steps(self) -> int:
        """Number of steps: row 0 is the first observation."""
        order = ("maintenance", "hazards", "prod_p", "load_p", "prod_v", "load_q")
        return next(len(self.rows[name]) for name in order if name in self.rows) - 1


class World:
    """An environment folder: grids, parameters, limits [A], characteristics of units and storages, episodes."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.grid = read_grid(self.folder / "grid.json")
        other = self.folder / "grid_forecast.json"
        self.forecast_grid = read_grid(other) if other.exists() else self.grid
        self.config, self.parameters = read_config(self.folder / "config.py"), read_parameters(self.folder)
        limits = self.config.get("thermal_limits")
        if isinstance(limits, dict):
            limits = [limits[name] for name in self.grid.names["line"]]
        self.limit_a = self.grid.limit_a if limits is None else np.array(limits, np.float32)
        self.episodes = sorted(path.name for path in (self.folder / "chronics").iterdir() if path.is_dir())
        rule = self.config.get("gamerules_class")
        self.always_legal = rule == ("name", "AlwaysLegal")
        self.areas = rule[2][0] if isinstance(rule, list | tuple) and rule[0] == "call" else None
        self.horizons = len((self.config.get("data_feeding_kwargs") or {}).get("h_forecast", (5,)))
        named = (self.config.get("data_feeding_kwargs") or {}).get("gridvalueClass")
        drawn = named or self.config.get("grid_value_class") or ("name", "")
        self.draws_maintenance = drawn[1].endswith("WithMaintenance")
        self._read_units()
        self._read_storages()

    def _table(self, name: str, kind: str) -> Callable[..., np.ndarray] | None:
        """Columns of a table of characteristics by element, None where the table names not all of them."""
        path, names = self.folder / name, self.grid.names[kind]
        if not path.exists():
            return None
        with path.open(encoding="utf-8", newline="") as file:
            rows = {row["name"]: row for row in csv.DictReader(file)}
        if not rows.keys() >= set(names):
            return None

        def column(key: str, default: float | None = None, text: bool = False) -> np.ndarray:
            found = [str(rows[name].get(key, default)) for name in names]
            return np.array(found) if text else np.array([float(x or "nan") for x in found], np.float32)

        return column

    def _read_units(self) -> None:
        column = self._table("prods_charac.csv", "unit")
        self.has_units = column is not None
        n = len(self.grid.names["unit"])
        zeros = np.zeros(n, np.float32)
        self.renewable = np.zeros(n, bool) if column is None else np.isin(column("type", text=True), RENEWABLE)
        self.redispatchable = ~self.renewable & self.has_units
        self.p_max_mw = zeros if column is None else column("Pmax")
        self.p_min_mw = zeros if column is None else column("Pmin")
        self.cost = zeros if column is None else column("marginal_cost")
        self.ramp_up_mw = zeros if column is None else np.nan_to_num(column("max_ramp_up"))
        self.ramp_down_mw = zeros if column is None else np.nan_to_num(column("max_ramp_down"))

    def _read_storages(self) -> None:
        found = self._table("storage_units_charac.csv", "storage")

        def column(key: str, default: float | None = None) -> np.ndarray:
            return np.zeros(0, np.float32) if found is None else found(key, default)  # without a table there are none

        self.e_max_mwh, self.e_min_mwh = column("Emax"), column("Emin")
        self.produced_mw, self.absorbed_mw = column("max_p_prod"), column("max_p_absorb")
        self.loss_mw = column("power_loss", 0.0)
        self.charging, self.discharging = column("charging_efficiency", 1.0), column("discharging_efficiency", 1.0)

    def _series(self, base: Path, name: str) -> np.ndarray | None:
        found = read_series(base)
        if found is None:
            return None
        kind, key = SERIES[name]
        renamed = (self.config.get("names_chronics_to_grid") or {}).get(key, {})
        column = {renamed.get(head, head): k for k, head in enumerate(found[0])}
        return found[1][:, [column[element] for element in self.grid.names[kind]]]

    def read_episode(self, name: str, seed: int | None = None) -> Episode:
        """Series of an episode.

        seed:  of `env.reset(seed=...)`, for worlds whose maintenance is drawn at reset
        """
        folder, interval = self.folder / "chronics" / name, self.folder / "chronics" / name / "time_interval.info"
        dt_s = DT_S
        if interval.exists():
            hours, minutes = interval.read_text(encoding="ascii").strip().split(":")[:2]
            dt_s = 3600.0 * int(hours) + 60.0 * int(minutes)
        rows = {key: found for key in SERIES if (found := self._series(folder / key, key)) is not None}
        if self.draws_maintenance:
            rows.pop("maintenance", None)
        if self.draws_maintenance and seed is not None:
            rows["maintenance"] = draw_maintenance(self, folder, seed, len(rows["load_p"]), dt_s)
        counted = {
            key: [np.stack(part, axis=1) for part in zip(*map(windows, rows[key].T), strict=True)]
            for key in ("maintenance", "hazards")
            if key in rows
        }
        for key in counted:
            rows[key] = np.abs(rows[key]) >= 1e-7
        to_next, left = counted.get("maintenance", (None, None))
        hazard = counted.get("hazards", (None, None))[0:2]
        hazard_left = None if hazard[0] is None else np.where(hazard[0] == 0, hazard[1], 0)
        known = {key: rows[key] if rows[key].dtype == bool else rows[key].astype(np.float32) for key in rows}
        forecast = {
            key: found.astype(np.float32)
            for key in FORECAST
            if (found := self._series(folder / f"{key}_forecasted", key)) is not None
        }
        return Episode(name, known, to_next, left, hazard_left, forecast)


def draw_maintenance(world: World, folder: Path, seed: int, n: int, dt_s: float) -> np.ndarray:
    """Maintenance (n, L) that Grid2Op draws at `env.reset(seed=seed)` by an episode's maintenance_meta.json.

    The seed passes from the environment to the handler of the series, their folder and the episode, each drawing the
    next one. A day of the listed weekdays draws every listed line with the month's probability and drops some above the
    month's maximum.
    """
    meta = json.loads((folder / "maintenance_meta.json").read_text(encoding="utf-8"))
    for _ in range(3):
        seed = np.random.RandomState(seed).randint(np.iinfo(np.int32).max)
    rng = np.random.RandomState(seed)
    listed = [k for k, name in enumerate(world.grid.names["line"]) if name in set(meta["line_to_maintenance"])]
    text = (folder / "start_datetime.info").read_text(encoding="ascii").strip()
    start = datetime.datetime.fromisoformat(text)
    days = sorted({(start + datetime.timedelta(seconds=dt_s * k)).date() for k in range(n)})[:-1]
    weekdays = {int(day) for day in meta.get("maintenance_day_of_week", range(5))}
    begin, end = (int(meta[f"maintenance_{edge}_hour"] * 3600 / dt_s) for edge in ("starting", "ending"))
    out = np.zeros((n, world.grid.n_line))
    for k, day in enumerate(days):
        if day.weekday() not in weekdays:
            continue
        chance = meta["daily_proba_per_month_maintenance"][day.month - 1]
        most = meta["max_daily_number_per_month_maintenance"][day.month - 1]
        drawn = rng.choice([False, True], p=[1.0 - chance, chance], size=len(listed))
        count = drawn.sum()
        if count > most:
            dropped = rng.choice(count, replace=False, size=count - most)
            drawn[np.flatnonzero(drawn)[dropped]] = False
        first = k * int(86400 / dt_s)
        out[first + begin : first + end, np.array(listed, int)[drawn]] = 1.0
    return out
