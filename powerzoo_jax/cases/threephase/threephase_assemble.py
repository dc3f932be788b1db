"""From rows of elements that name their nodes to the tables of a `ThreePhaseCase`: order, positions, base voltages."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import CaseError, listing
from powerzoo_jax.cases.threephase.case import GROUND, TABLES, NodeTable, ThreePhaseCase

BASE_MVA = 1.0
AT_NODES = frozenset(["node", "end", "from_node", "from_end", "to_node", "to_end"])

Row = dict[str, Any]


def assemble(
    name: str,
    citation: str,
    rows: dict[str, list[Row]],
    voltage_bases: Sequence[float],
    notes: tuple[str, ...] = (),
) -> ThreePhaseCase:
    """Build a feeder from rows per table, in which nodes are "bus.phase" and None is the ground.

    A source row holds `kv` and `line_kv`, a transformer row the rated line voltages of its sides as `line_kv`.
    voltage_bases: [kV] line to line; a part of the network takes the one nearest to its ratings
    notes: what the rows leave out

    Raises CaseError naming the buses that neither line nor transformer joins with the source.
    """
    base_kv, used = _bases(rows, voltage_bases), {key for table in rows.values() for row in table for key in _keys(row)}
    lost = sorted({_bus(key) for key in used} - base_kv.keys())
    if lost:
        raise CaseError(f"{name}: the source does not reach bus {listing(lost)}. Add a line, or remove what is there.")
    nodes = [(bus, phase) for bus in base_kv for phase in (1, 2, 3) if f"{bus}.{phase}" in used]
    node = NodeTable(
        bus=np.array([bus for bus, _ in nodes]),
        phase=np.array([phase for _, phase in nodes]),
        base_kv=np.array([base_kv[bus] for bus, _ in nodes]),
    )
    for row in rows["source"]:
        row["v_pu"] = row["kv"] / base_kv[_bus(row["node"])]
    index = {f"{bus}.{phase}": k for k, (bus, phase) in enumerate(nodes)}
    tables = {kind: _table(kind, rows[kind], index) for kind in TABLES if kind != "node"}
    return ThreePhaseCase(name=name, base_mva=BASE_MVA, citation=citation, node=node, notes=notes, **tables)


def _bus(node: str) -> str:
    return node.rpartition(".")[0]


def _keys(row: Row) -> Iterator[str]:
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
        a, b = _bus(row["from_node"]), _bus(row["to_node"])
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


def _table(kind: str, rows: list[Row], index: dict[str, int]) -> Any:
    def at(key: str | None) -> int:
        return GROUND if key is None else index[key]

    def cell(column: str, row: Row) -> Any:
        value = row[column]
        if column not in AT_NODES:
            return value
        return [at(key) for key in value] if isinstance(value, list) else at(value)

    names = [f.name for f in fields(TABLES[kind])]  # type: ignore[arg-type]
    return TABLES[kind](**{column: np.array([cell(column, row) for row in rows]) for column in names})
