"""Capacitors and reactors of OpenDSS scripts, and the rows that one-port elements have for their phases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from powerzoo_jax.cases.readers.opendss.script import Element, Script
from powerzoo_jax.cases.readers.opendss.terminal import terminal, winding
from powerzoo_jax.cases.readers.opendss.values import Bus
from powerzoo_jax.cases.threephase.case import Row


def phase_rows(element: Element, value: Mapping[str, Any]) -> list[Row]:
    """Rows of a load, a capacitor or a reactor: one row per phase with nodes and rated voltage."""
    phases, delta = value["phases"], value["conn"]
    if phases == 2 and delta:
        element.fail("two phases in delta. Write it as elements between two nodes, with phases=1.")
    ends = winding(element, "bus1", value["bus1"], phases, delta)
    kv = value["kv"] / (np.sqrt(3) if phases > 1 and not delta else 1.0)
    return [{"name": element.name, "node": a, "end": b, "kv": kv} for a, b in ends]


def capacitor_rows(script: Script, element: Element) -> list[Row]:
    value: dict[str, Any] = {"bus1": Bus("", ()), "conn": False, "phases": 3, "kvar": 1200.0, "kv": 12.47}
    value["basefreq"] = script.frequency_hz
    value |= {key: entry for group in script.values(element) for key, entry, _ in group}
    if element.model and value["conn"] and value["phases"] == 1:
        element.refuse(element.model, "OpenDSS copies a delta capacitor of one phase wrongly. Write it out.")
    rows = phase_rows(element, value)
    ground = {} if value["conn"] else {"end": None}  # whatever node follows those of the phases
    kvar = value["kvar"] * script.frequency_hz / value["basefreq"]
    return [row | ground | {"q_kvar": kvar / len(rows)} for row in rows]


def reactor_rows(script: Script, element: Element) -> tuple[list[Row], list[Row]]:
    """A reactor between two buses as one line, any other as a shunt for each phase; returns lines and shunts.

    Series r + jx, with rp beside them; x follows from kvar and kV where it is not given, and is that of `basefreq`.
    """
    value: dict[str, Any] = {"bus1": Bus("", ()), "conn": False, "phases": 3, "kvar": 100.0, "kv": 12.47}
    value |= {"r": 0.0, "x": None, "rp": None, "basefreq": script.frequency_hz}
    for key, entry, _ in (entry for group in script.values(element) for entry in group):
        value[key] = entry
        if key == "kvar":
            value["x"] = None
    phases, delta = value["phases"], value["conn"]
    kv = value["kv"] / (np.sqrt(3) if phases > 1 and not delta else 1.0)
    x = value["x"] if value["x"] is not None else 1e3 * kv * kv * phases / value["kvar"]
    z = complex(value["r"], x * script.frequency_hz / value["basefreq"])
    if z == 0:
        element.fail("r and x are both 0. Give one of them, or join the buses by a line.")
    y = 1 / z + (1 / value["rp"] if value["rp"] else 0.0)
    second = value.get("bus2")
    if second is None or second.name == value["bus1"].name:
        if second is not None and delta:
            element.fail("a delta reactor has one bus. Remove bus2.")
        if second is None:
            ends = [(a, b if delta else None) for a, b in winding(element, "bus1", value["bus1"], phases, delta)]
        else:
            ends = list(zip(*_both(element, value, phases, grounded=True), strict=True))
        each = {"name": str(element), "g_us": 1e6 * y.real, "b_us": 1e6 * y.imag}
        return [], [{"node": a or b, "end": b if a else None} | each for a, b in ends if a != b]
    if delta:
        element.fail("a delta reactor has one bus. Remove bus2.")
    nodes, eye = _both(element, value, phases), np.eye(phases)
    row = {"name": str(element), "from_node": nodes[0], "to_node": nodes[1], "in_service": True, "switch": False}
    return [row | {"r_ohm": (1 / y).real * eye, "x_ohm": (1 / y).imag * eye, "b_us": 0.0 * eye}], []


def _both(element: Element, value: Mapping[str, Any], phases: int, *, grounded: bool = False) -> list[list[str | None]]:
    return [terminal(element, key, value[key], phases, phases, grounded=grounded) for key in ("bus1", "bus2")]
