"""`ThreePhaseCase`: an unbalanced feeder as plain host tables, node by node (a node is one phase of one bus).

From rows of elements that name their nodes to the tables of a `ThreePhaseCase`: order, positions, base voltages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from powerzoo_jax.base.errors import CaseError, listing, unknown
from powerzoo_jax.base.struct import brief
from powerzoo_jax.cases.case import _Columns, flatten, rebuild

GROUND = -1  # stands for the earth where a table asks for a node


class _NamedTable(_Columns):
    """A table with columns of text beside those of numbers."""

    TEXT: ClassVar[frozenset[str]] = frozenset({"name"})

    @classmethod
    def _dtype(cls, name: str) -> type:
        return np.str_ if name in cls.TEXT else super()._dtype(name)


@dataclass(frozen=True, eq=False, repr=False)
class NodeTable(_NamedTable):
    """Nodes.

    bus:      (N,)  str    bus name, lower case
    phase:    (N,)  int64  1, 2, 3; neutral and other conductors from 4 on
    base_kv:  (N,)  [kV]   base voltage, line to neutral
    """

    TEXT = frozenset({"bus"})
    INTEGER = frozenset({"phase"})

    bus: np.ndarray
    phase: np.ndarray
    base_kv: np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class SourceTable(_NamedTable):
    """Phases of the source: a voltage behind an impedance, positions of its nodes.

    node:           (3,)    int64  where it feeds in
    v_pu:           (3,)    [pu]   magnitude behind the impedance
    angle_deg:      (3,)    [deg]
    r_ohm, x_ohm:   (3, 3)  [ohm]
    """

    INTEGER = frozenset({"node"})

    node: np.ndarray
    v_pu: np.ndarray
    angle_deg: np.ndarray
    r_ohm: np.ndarray
    x_ohm: np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class LineTable(_NamedTable):
    """Lines, cables and switches as pi models of coupled conductors; absent conductors are -1 and zero.

    The width W is three, or the number of conductors of the widest line where neutrals are modelled.

    name:                (L,)       str
    from_node, to_node:  (L, W)     int64  positions of the nodes that each conductor joins
    r_ohm, x_ohm:        (L, W, W)  [ohm]  series impedance
    b_us:                (L, W, W)  [uS]   total charging, half of it at each end
    in_service:          (L,)       bool
    switch:              (L,)       bool   can be opened and closed
    rating_amp:          (L,)       [A]    normal rating of a conductor, 0 = none
    """

    INTEGER = frozenset({"from_node", "to_node"})
    BOOLEAN = frozenset({"in_service", "switch"})
    ROW = dict.fromkeys(("from_node", "to_node"), (3,)) | dict.fromkeys(("r_ohm", "x_ohm", "b_us"), (3, 3))

    name: np.ndarray
    from_node: np.ndarray
    to_node: np.ndarray
    r_ohm: np.ndarray
    x_ohm: np.ndarray
    b_us: np.ndarray
    in_service: np.ndarray
    switch: np.ndarray
    rating_amp: np.ndarray = 0.0  # type: ignore[assignment]


@dataclass(frozen=True, eq=False, repr=False)
class TransformerTable(_NamedTable):
    """Single-phase units of two windings; wye and delta are how their ends are joined. -1 is the ground.

    name:                  (T,)  str    name of the bank, shared by its units
    from_node, from_end:   (T,)  int64  nodes between which the first winding lies
    to_node, to_end:       (T,)  int64  the same of the second winding
    from_kv, to_kv:        (T,)  [kV]   rated voltages of the windings themselves
    rating_kva:            (T,)  [kVA]
    r_pu, x_pu:            (T,)  [pu]   short-circuit impedance on the rating
    from_tap, to_tap:      (T,)  [-]    off-nominal ratios that do not move; a regulator multiplies `to_tap`
    """

    INTEGER = frozenset({"from_node", "from_end", "to_node", "to_end"})

    name: np.ndarray
    from_node: np.ndarray
    from_end: np.ndarray
    to_node: np.ndarray
    to_end: np.ndarray
    from_kv: np.ndarray
    to_kv: np.ndarray
    rating_kva: np.ndarray
    r_pu: np.ndarray
    x_pu: np.ndarray
    from_tap: np.ndarray
    to_tap: np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class RegulatorTable(_NamedTable):
    """Voltage regulators: tap changers on the second windings of units, and the settings of their controls.

    name:             (R,)    str
    unit:             (R, 3)  int64  units that the control moves together, -1 for none; the first one is measured
    tap:              (R,)    int64  position; the ratio is 1 + tap * step
    step:             (R,)    [-]    ratio per position
    tap_max:          (R,)    int64  the range is -tap_max .. tap_max
    v_set_volt:       (R,)    [V]    set-point on the secondary of the potential transformer
    band_volt:        (R,)    [V]    full width of the dead band around it
    pt_ratio:         (R,)    [-]    ratio of the potential transformer
    ct_primary_amp:   (R,)    [A]    primary current that gives the line-drop settings
    drop_r_volt, drop_x_volt: (R,)  [V]  line-drop compensation at that current
    """

    INTEGER = frozenset({"unit", "tap", "tap_max"})

    name: np.ndarray
    unit: np.ndarray
    tap: np.ndarray
    step: np.ndarray
    tap_max: np.ndarray
    v_set_volt: np.ndarray
    band_volt: np.ndarray
    pt_ratio: np.ndarray
    ct_primary_amp: np.ndarray
    drop_r_volt: np.ndarray
    drop_x_volt: np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class CapacitorTable(_NamedTable):
    """Single-phase capacitors.

    name:       (C,)  str    name of the bank
    node, end:  (C,)  int64  nodes between which it lies, -1 = ground
    q_kvar:     (C,)  [kvar] at the rated voltage
    kv:         (C,)  [kV]   rated voltage across it
    """

    INTEGER = frozenset({"node", "end"})

    name: np.ndarray
    node: np.ndarray
    end: np.ndarray
    q_kvar: np.ndarray
    kv: np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class ShuntTable(_NamedTable):
    """Constant admittances between two nodes, or a node and the ground: reactors, no-load losses, neutral grounding.

    name:        (S,)  str    element that they belong to
    node, end:   (S,)  int64  nodes between which it lies, -1 = ground
    g_us, b_us:  (S,)  [uS]   conductance and susceptance, negative for a reactor
    unit:        (S,)  int64  transformer unit on whose second winding it stands, -1 for none: g and b are those at the
                              ratio 1 of that winding and go with 1 / ratio^2, fixed tap and regulator together
    """

    INTEGER = frozenset({"node", "end", "unit"})

    name: np.ndarray
    node: np.ndarray
    end: np.ndarray
    g_us: np.ndarray
    b_us: np.ndarray
    unit: np.ndarray = -1  # type: ignore[assignment]


@dataclass(frozen=True, eq=False, repr=False)
class PlaceTable(_NamedTable):
    """Positions of buses on a map.

    bus:   (B,)  str  bus name, lower case
    x, y:  (B,)  [-]  coordinates in the unit of their source
    """

    TEXT = frozenset({"bus"})

    bus: np.ndarray
    x: np.ndarray
    y: np.ndarray


def empty_table(kind: type[_NamedTable]) -> Any:
    """A table without rows, of columns that hold one number or name each."""
    return kind(**{column.name: np.zeros(0) for column in fields(kind)})  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False, repr=False)
class PhaseLoadTable(_NamedTable):
    """Single-phase loads between two nodes; with u = |v| / rated voltage they draw

    P = p_kw (z_p u^2 + i_p u + 1 - z_p - i_p)  for v_min_pu <= u <= v_max_pu, Q likewise with z_q, i_q.

    Above `v_max_pu` they are constant impedances; below `v_min_pu` their current falls linearly with u until
    `v_low_pu`, from where on they are constant impedances that draw p_kw at u = 1.

    name:                 (D,)  str    a three-phase load gives three rows of one name
    node, end:            (D,)  int64  nodes between which it lies, -1 = ground
    p_kw, q_kvar:         (D,)  [kW], [kvar]  consumption at the rated voltage
    kv:                   (D,)  [kV]   rated voltage across it
    z_p, i_p, z_q, i_q:   (D,)  [-]    shares of constant impedance and constant current
    v_min_pu, v_max_pu, v_low_pu: (D,)  [pu]  where the law above holds, on `kv`
    """

    INTEGER = frozenset({"node", "end"})

    name: np.ndarray
    node: np.ndarray
    end: np.ndarray
    p_kw: np.ndarray
    q_kvar: np.ndarray
    kv: np.ndarray
    z_p: np.ndarray
    i_p: np.ndarray
    z_q: np.ndarray
    i_q: np.ndarray
    v_min_pu: np.ndarray
    v_max_pu: np.ndarray
    v_low_pu: np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class ExponentTable(_NamedTable):
    """Loads whose share of constant power is a power of the voltage: for v_min_pu <= u <= v_max_pu they draw

    P = p_kw (z_p u^2 + i_p u + (1 - z_p - i_p) u^p_exponent)  and Q likewise.

    Outside of that range the exponents are 0, as in OpenDSS: the power jumps where the range ends.

    load:                    (E,)  int64  rows of the table of loads
    p_exponent, q_exponent:  (E,)  [-]
    """

    TEXT = frozenset()
    INTEGER = frozenset({"load"})

    load: np.ndarray
    p_exponent: np.ndarray
    q_exponent: np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class ThreePhaseCase:
    """An unbalanced feeder on the host: picklable, read-only; change it with `dataclasses.replace`.

    name:      what `load_feeder` calls it
    base_mva:  [MVA] three-phase power base of the per-unit values; one phase has a third of it
    citation:  where the numbers come from
    notes:     records of the source that the tables cannot express
    shunt, place, exponent: may be empty
    """

    name: str
    base_mva: float
    citation: str
    node: NodeTable
    source: SourceTable
    line: LineTable
    transformer: TransformerTable
    regulator: RegulatorTable
    capacitor: CapacitorTable
    load: PhaseLoadTable
    notes: tuple[str, ...] = ()
    shunt: ShuntTable = field(default_factory=lambda: empty_table(ShuntTable))
    place: PlaceTable = field(default_factory=lambda: empty_table(PlaceTable))
    exponent: ExponentTable = field(default_factory=lambda: empty_table(ExponentTable))

    __repr__ = brief

    @property
    def n_node(self) -> int:
        return len(self.node)

    @cached_property
    def node_names(self) -> tuple[str, ...]:
        """ "bus.phase" of every node."""
        return tuple(f"{bus}.{phase}" for bus, phase in zip(self.node.bus, self.node.phase, strict=True))

    @cached_property
    def node_index(self) -> dict[str, int]:
        """ "bus.phase" -> position."""
        return {name: k for k, name in enumerate(self.node_names)}

    def position(self, name: str) -> int:
        """Position of the node "bus.phase"; raises CaseError, with the nearest name, when there is none."""
        if name.lower() not in self.node_index:
            raise CaseError(f"{self.name}: {unknown('node', name, self.node_names)}")
        return self.node_index[name.lower()]

    @property
    def three_phase_nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """Names (T,) of the buses that have all phases, and the positions (T, 3) of their nodes."""
        names = list(dict.fromkeys(map(str, self.node.bus)))
        rows = [[self.node_index.get(f"{bus}.{phase}", -1) for phase in (1, 2, 3)] for bus in names]
        at = np.array(rows, np.int64).reshape(-1, 3)
        full = (at >= 0).all(axis=1)
        return np.array(names)[full], at[full]

    @property
    def taps(self) -> np.ndarray:
        """Ratio of every regulator, (R,) [-]."""
        return 1.0 + self.regulator.step * self.regulator.tap


def grounded_neutrals(case: ThreePhaseCase) -> np.ndarray:
    """Positions of neutral nodes that a shunt joins with the ground: the earth leads them back to the source."""
    at = case.shunt.node[case.shunt.end == GROUND]
    return np.asarray(at[case.node.phase[at] > 3])


TABLES: dict[str, type[_NamedTable]] = {
    "node": NodeTable,
    "source": SourceTable,
    "line": LineTable,
    "transformer": TransformerTable,
    "regulator": RegulatorTable,
    "capacitor": CapacitorTable,
    "load": PhaseLoadTable,
}
# not in a file where empty
OPTIONAL: dict[str, type[_NamedTable]] = {"shunt": ShuntTable, "place": PlaceTable, "exponent": ExponentTable}


def to_arrays(case: ThreePhaseCase) -> dict[str, np.ndarray]:
    """Flatten a feeder into named arrays, the content of its npz: `node.bus`, `line.r_ohm`, `name`, ..."""
    return flatten(case, TABLES | {name: kind for name, kind in OPTIONAL.items() if len(getattr(case, name))})


def from_arrays(arrays: dict[str, np.ndarray]) -> ThreePhaseCase:
    """Rebuild a feeder from `to_arrays`."""
    given = {name: kind for name, kind in OPTIONAL.items() if any(key.startswith(f"{name}.") for key in arrays)}
    return ThreePhaseCase(**rebuild(arrays, TABLES | given))


def stripped(case: ThreePhaseCase, v_source_pu: float = 1.05) -> ThreePhaseCase:
    """The bare feeder that simple solvers are tested with: constant-power loads, no capacitors, every tap at 1."""
    zero, load = np.zeros(len(case.load)), case.load
    return replace(
        case,
        name=f"{case.name}_stripped",
        source=replace(case.source, v_pu=np.full(3, v_source_pu)),
        capacitor=empty_table(CapacitorTable),
        regulator=replace(case.regulator, tap=np.zeros(len(case.regulator))),
        # beyond its voltage range a load becomes an impedance: a range this wide keeps the power constant
        load=replace(load, z_p=zero, i_p=zero, z_q=zero, i_q=zero, v_min_pu=zero + 0.5, v_max_pu=zero + 1.5),
        exponent=empty_table(ExponentTable),
    )


BASE_MVA = 1.0  # OpenDSS scripts name no power base, and results in volts and watts do not depend on it
AT_NODES = frozenset(["node", "end", "from_node", "from_end", "to_node", "to_end"])

Row = dict[str, Any]


def assemble(
    name: str,
    citation: str,
    rows: dict[str, list[Row]],
    voltage_bases: Sequence[float],
    notes: tuple[str, ...] = (),
    places: Mapping[str, tuple[float, float]] | None = None,
) -> ThreePhaseCase:
    """Build a feeder from rows per table, in which nodes are "bus.phase" and None is the ground.

    A source row holds `kv` and `line_kv`, a transformer row the rated line voltages of its sides as `line_kv`, and a
    load row may hold `p_exponent` and `q_exponent`.
    voltage_bases: [kV] line to line; a part of the network takes the one nearest to its ratings
    notes:  what the rows leave out
    places: bus -> coordinates; those of other buses are dropped

    Raises CaseError naming the buses that neither line nor transformer joins with the source.
    """
    base_kv, used = (
        _bases(rows, voltage_bases),
        {key for table in rows.values() for row in table for key in nodes_of(row)},
    )
    lost = sorted({_bus(key) for key in used} - base_kv.keys())
    if lost:
        raise CaseError(f"{name}: the source does not reach bus {listing(lost)}. Add a line, or remove what is there.")
    there: dict[str, list[int]] = {}
    for key in used:
        there.setdefault(_bus(key), []).append(int(key.rpartition(".")[2]))
    nodes = [(bus, phase) for bus in base_kv for phase in sorted(there.get(bus, ()))]
    node = NodeTable(
        bus=np.array([bus for bus, _ in nodes]),
        phase=np.array([phase for _, phase in nodes]),
        base_kv=np.array([base_kv[bus] for bus, _ in nodes]),
    )
    _widen(rows["line"])
    for row in rows["source"]:
        row["v_pu"] = row["kv"] / base_kv[_bus(row["node"])]
    index = {f"{bus}.{phase}": k for k, (bus, phase) in enumerate(nodes)}
    tables = {kind: _table(TABLES[kind], rows[kind], index) for kind in TABLES if kind != "node"}
    tables["shunt"] = _table(ShuntTable, rows.get("shunt", []), index)
    tables["exponent"] = _table(
        ExponentTable, [{"load": k} | row for k, row in enumerate(rows["load"]) if "p_exponent" in row], index
    )
    known = {bus: at for bus, at in (places or {}).items() if bus in there}
    x, y = np.array(list(known.values()), float).reshape(-1, 2).T
    tables["place"] = PlaceTable(bus=np.array(list(known), np.str_), x=x, y=y)
    return ThreePhaseCase(name=name, base_mva=BASE_MVA, citation=citation, node=node, notes=notes, **tables)


def _widen(rows: list[Row]) -> None:
    """Give all lines as many conductors as the widest has, three at least, by absent ones."""
    width = max([3, *(len(row["from_node"]) for row in rows)])
    for row in rows:
        more = width - len(row["from_node"])
        row |= {key: [*row[key], *[None] * more] for key in ("from_node", "to_node")}
        row |= {key: np.pad(row[key], (0, more)) for key in ("r_ohm", "x_ohm", "b_us")}


def _bus(node: str) -> str:
    return node.rpartition(".")[0]


def nodes_of(row: Row) -> Iterator[str]:
    """Nodes that a row names."""
    for column in AT_NODES & row.keys():
        value = row[column]
        yield from (key for key in (value if isinstance(value, list) else [value]) if key is not None)


def _bases(rows: dict[str, list[Row]], voltage_bases: Sequence[float]) -> dict[str, float]:
    """Base voltage [kV, line to neutral] of every bus, in the order in which the source reaches them."""

    def nearest(kv: float) -> float:
        return float(min(voltage_bases, key=lambda base: abs(base - kv), default=kv) / np.sqrt(3))

    joined: dict[str, list[tuple[str, float | None]]] = {}
    for row in rows["line"]:
        a, b = _bus(row["from_node"][0]), _bus(row["to_node"][0])
        joined.setdefault(a, []).append((b, None))
        joined.setdefault(b, []).append((a, None))
    for row in rows["transformer"]:
        a, b = (_bus(row[f"{side}_node"] or row[f"{side}_end"]) for side in ("from", "to"))
        joined.setdefault(a, []).append((b, row["line_kv"][1]))
        joined.setdefault(b, []).append((a, row["line_kv"][0]))
    start = rows["source"][0]
    base = {_bus(start["node"]): nearest(start["line_kv"])}
    queue = deque(base)
    while queue:
        bus = queue.popleft()
        for other, kv in joined.get(bus, ()):
            if other not in base:
                base[other] = base[bus] if kv is None else nearest(kv)
                queue.append(other)
    return base


def _table(kind: type[_NamedTable], rows: list[Row], index: dict[str, int]) -> Any:
    def at(key: str | None) -> int:
        return GROUND if key is None else index[key]

    def cell(column: Any, row: Row) -> Any:
        value = row[column.name] if column.default is MISSING else row.get(column.name, column.default)
        if column.name not in AT_NODES:
            return value
        return [at(key) for key in value] if isinstance(value, list) else at(value)

    columns = fields(kind)  # type: ignore[arg-type]
    return kind(**{column.name: np.array([cell(column, row) for row in rows]) for column in columns})
