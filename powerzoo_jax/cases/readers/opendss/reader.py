"""Reader of OpenDSS feeders: from a master script to the tables of a three-phase case.

Properties take effect in the order of the script, as in OpenDSS. `rules` and `commands` list what happens to every
property and command: it is applied, noted in the case, or refused by name. All problems of a script come together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import numpy as np

from powerzoo_jax.base.errors import CaseError, excerpt, unknown
from powerzoo_jax.base.ranges import Label, Positive, checks_ranges, fitted
from powerzoo_jax.base.textfile import MAX_MB, check_limit, open_regular, require_file, too_large
from powerzoo_jax.cases.readers.opendss.generation import generator_rows, pv_rows, storage_rows
from powerzoo_jax.cases.readers.opendss.lines import line_rows
from powerzoo_jax.cases.readers.opendss.loads import MODES, load_rows, load_series
from powerzoo_jax.cases.readers.opendss.script import CIRCUIT, Script, parse
from powerzoo_jax.cases.readers.opendss.shunts import capacitor_rows, reactor_rows
from powerzoo_jax.cases.readers.opendss.source import source_rows
from powerzoo_jax.cases.readers.opendss.transformers import regulator_row, transformer_rows, windings_of
from powerzoo_jax.cases.readers.series import NetworkSeries
from powerzoo_jax.cases.threephase.case import Row, ThreePhaseCase, assemble, nodes_of

KINDS = ("source", "regulator", "transformer", "line", "capacitor", "load", "shunt")
ONE_PORTS = {
    "capacitor": capacitor_rows,
    "load": load_rows,
    "generator": generator_rows,
    "pvsystem": pv_rows,
    "storage": storage_rows,
}
OPEN_VAR = 1.0  # charging [var] of a line open at one end beyond which it changes voltages


def read_opendss(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    taps: Mapping[str, int] | None = None,
    opened: Collection[str] = (),
    citation: str = "",
    read: Callable[[str], str] | None = None,
    outside: bool = False,
    max_mb: float | None = MAX_MB,
) -> ThreePhaseCase:
    """Read an OpenDSS feeder.

    path:      master script; `Redirect` and `Compile` look beside it
    name:      of the case, None = of the circuit
    taps:      regulator transformer -> tap position in place of the one in the script; one position is 0.00625
    opened:    names of lines to open at both ends, besides those that the script opens
    citation:  kept in the case
    read:      returns the text of a file by its path from the master script; None reads the folder of `path`
    outside:   also read files outside that folder, where `Redirect ../Codes.dss` or a link leads to one
    max_mb:    [MB] largest sum of all files read; None = any

    The notes of the case list what is left out, such as ratings and time series.
    Raises DataMissing for a missing file and CaseError, naming file, line and element, for what the subset does not
    hold.
    """
    for moved, position in (taps or {}).items():
        fitted(f"read_opendss taps[{moved!r}]", position, Label)
    path = Path(path)
    script = parse(path.name, read or _folder(path.parent, outside, max_mb))
    if len(script.circuits) != 1:
        script.refuse()
        raise CaseError(f"{path.name} defines {len(script.circuits)} circuits. Give a master script that defines one.")
    rows = _rows(script, {line.lower() for line in opened}, taps or {})
    script.refuse()
    notes = tuple(f"{reason} ({', '.join(what)})" for reason, what in script.notes.items())
    case = assemble(name or script.circuits[0], citation, rows, script.voltage_bases, notes, script.places)
    _refuse_open_ends(script, case)
    return case


@checks_ranges("read_opendss_series")
def read_opendss_series(
    path: str | os.PathLike[str],
    *,
    mode: str | None = None,
    hours: Positive | None = None,
    read: Callable[[str], str] | None = None,
    outside: bool = False,
    max_mb: float | None = MAX_MB,
) -> NetworkSeries:
    """Read the load shapes of an OpenDSS feeder as the loads follow them.

    mode:   of the solution: "yearly", "daily" or "duty", which falls back to daily shapes; None = the one whose shapes
            the loads name
    hours:  length of the series; shapes repeat, as in OpenDSS. None = the longest shape
    path, read, outside, max_mb:  as in `read_opendss`

    The first interval ends at hour 0 plus one step, where OpenDSS takes the first value of a shape. Growth, CVR curves
    and the shapes of generators are left out.

    Raises DataMissing for a missing file and CaseError for loads that name no shape, for shapes that are not defined,
    of binary files, of hours apart or of kW, for steps that are no whole minutes, and for the problems of the script.
    """
    if mode not in (None, *MODES):
        raise CaseError(unknown("mode", mode, MODES))
    path = Path(path)
    read = read or _folder(path.parent, outside, max_mb)
    script = parse(path.name, read)
    script.refuse()
    step, columns = load_series(script, read, mode, hours)
    minutes = round(60 * step)
    if minutes < 1 or abs(60 * step - minutes) > 1e-6:
        raise CaseError(f"the load shapes of {path.name} have a step of {60 * step:g} min. Give whole minutes.")
    left_out = {reason: [w for w in what if w.startswith("loadshape.")] for reason, what in script.notes.items()}
    notes = tuple(f"{reason} ({', '.join(what)})" for reason, what in left_out.items() if what)
    return NetworkSeries(path.stem, minutes, "", columns, notes)


def _rows(script: Script, opened: Collection[str], taps: Mapping[str, int]) -> dict[str, list[Row]]:
    """Rows of every table; what is wrong with an element is kept among the problems of the script."""
    rows: dict[str, list[Row]] = {kind: [] for kind in KINDS}
    if CIRCUIT in script.elements:
        with script.collecting():
            rows["source"] = source_rows(script, script.elements[CIRCUIT])
    for element in script.of("xfmrcode"):
        with script.collecting():
            windings_of(script, element)  # also those that no transformer uses are checked
    for element in script.of("transformer"):
        with script.collecting():
            units, shunts = transformer_rows(script, element, len(rows["transformer"]))
            rows["transformer"] += units
            rows["shunt"] += shunts
    unit_rows: dict[str, list[int]] = {}
    for k, row in enumerate(rows["transformer"]):
        unit_rows.setdefault(row["name"], []).append(k)
    for element in script.of("regcontrol"):
        with script.collecting():
            rows["regulator"].append(regulator_row(script, element, rows["transformer"], unit_rows, taps))
    rows["line"] = line_rows(script, opened)
    for element in script.of("reactor"):
        with script.collecting():
            lines, shunts = reactor_rows(script, element)
            rows["line"] += lines
            rows["shunt"] += shunts
    for kind, make in ONE_PORTS.items():
        for element in script.of(kind):
            with script.collecting():
                rows["capacitor" if kind == "capacitor" else "load"] += make(script, element)
    rows["line"] = _without_loose(script, rows)
    return rows


def _without_loose(script: Script, rows: dict[str, list[Row]]) -> list[Row]:
    """Lines, without the disabled ones that lead to nodes of no other element: OpenDSS has no such nodes."""
    used = {node for table in rows.values() for row in table if not row.get("disabled") for node in nodes_of(row)}
    kept = [row for row in rows["line"] if not row.get("disabled") or used.issuperset(nodes_of(row))]
    if len(kept) < len(rows["line"]):
        script.note("disabled lines to nodes of no other element are left out", "line.enabled")
    return kept


def _folder(folder: Path, outside: bool, max_mb: float | None) -> Callable[[str], str]:
    """Reader of the files of a folder by their path from it, up to a sum of their sizes."""
    check_limit(max_mb)
    total = 0.0

    def read(name: str) -> str:
        nonlocal total
        # first by the letters, or a look at a network drive would tell its server that somebody is here
        if not outside and (name.startswith(("/", "..")) or ":" in name[:2]):
            raise CaseError(_outside(name, folder))
        path = require_file(folder / name, "script", "Check the name that the Redirect gives.")
        if not outside and not path.resolve().is_relative_to(folder.resolve()):
            raise CaseError(_outside(name, folder))
        total += path.stat().st_size / 1e6
        if max_mb is not None and total > max_mb:
            raise CaseError(too_large(f"{path} with the files read before it", total, max_mb))
        with open_regular(path, CaseError) as file:
            return file.read().decode("latin-1").replace("\r\n", "\n").replace("\r", "\n")

    return read


def _outside(name: str, folder: Path) -> str:
    return (
        f"{excerpt(name)} lies outside {str(folder)!r}, the folder of the master script. Copy the file there, or give "
        "outside=True if you trust the script."
    )


def _refuse_open_ends(script: Script, case: ThreePhaseCase) -> None:
    """A line open at one end still charges the other; a line out of service does not."""
    rows = {name: row for row, name in enumerate(case.line.name.tolist())}
    for name, terminals in script.opened.items():
        row = rows[name]
        volt = 1e3 * case.node.base_kv[case.line.from_node[row, 0]]
        var = volt**2 * 1e-6 * np.trace(case.line.b_us[row])
        if len(terminals) == 1 and var > OPEN_VAR:
            terminal, where = next(iter(terminals.items()))
            raise CaseError(
                f"{where}: line.{name} is open at terminal {terminal} alone, and its other end keeps charging it with "
                f"{var:.3g} var. Open both (Open line.{name} {3 - terminal}), or give it c1=0 c0=0."
            )
