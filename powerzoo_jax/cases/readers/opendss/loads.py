"""Loads of OpenDSS scripts: the rows of their phases, with the law of their voltage dependence; and their shapes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import CaseError, excerpt
from powerzoo_jax.cases.readers.opendss.rules import MOST_POINTS
from powerzoo_jax.cases.readers.opendss.script import Element, Given, Script, beside
from powerzoo_jax.cases.readers.opendss.shunts import phase_rows
from powerzoo_jax.cases.readers.opendss.values import Bus, decimal, unquote, word, words
from powerzoo_jax.cases.threephase.case import Row

# model -> shares z_p, i_p, z_q, i_q; model 4 has exponents
SHARES = {1: [0.0] * 4, 2: [1.0, 0.0, 1.0, 0.0], 4: [0.0] * 4, 5: [0.0, 1.0, 0.0, 1.0]}


def load_rows(script: Script, element: Element) -> list[Row]:
    groups = script.values(element)
    value: dict[str, Any] = {"bus1": Bus("", ()), "conn": False, "phases": 3, "kv": 12.47, "model": 1, "zipv": None}
    value |= {"vminpu": 0.95, "vmaxpu": 1.05, "vlowpu": 0.5, "cvrwatts": 1.0, "cvrvars": 2.0, "status": "variable"}
    value |= {key: entry for group in groups for key, entry, _ in group}
    shares = value["zipv"] if value["model"] == 8 else SHARES.get(value["model"])
    if element.model and value["conn"] and value["phases"] == 3:
        element.refuse(element.model, "OpenDSS copies a three-phase delta load wrongly. Write the load out.")
    if shares is None:
        element.fail("model=8 without zipv. Give the ZIP coefficients.")
    law = dict(zip(("z_p", "i_p", "z_q", "i_q"), shares, strict=True))
    if value["model"] == 4:
        law |= {"p_exponent": value["cvrwatts"], "q_exponent": value["cvrvars"]}
    law |= {"v_min_pu": value["vminpu"], "v_max_pu": value["vmaxpu"], "v_low_pu": value["vlowpu"]}
    rows, (kw, kvar) = phase_rows(element, value), _demand(element, groups)
    factor = script.load_factor if value["status"] == "variable" else 1.0
    each = {"p_kw": kw * factor / len(rows), "q_kvar": kvar * factor / len(rows)}
    return [row | each | law for row in rows]


def _demand(element: Element, groups: list[list[tuple[str, Any, Any]]]) -> tuple[float, float]:
    """kW and kvar of a load after the commands that concern it.

    kW is given with a power factor, 0.88 to begin with, until kvar is given, and again when kW is given after it; kVA,
    or the kVA of a transformer and the share of it, go with the power factor as well. Each command ends with the power
    factor that its kW and kvar have, negative where kvar is.
    """
    kw, kvar, factor, by_factor = 10.0, 0.0, 0.88, True
    kva, connected, share = None, 0.0, 0.5
    for group in groups:
        for key, value, _ in group:
            if key == "kw":
                kw, by_factor, kva = value, True, None
            elif key == "kvar":
                kvar, by_factor, kva = value, False, None
            elif key == "kva":
                kva, by_factor = value, True
            elif key in ("xfkva", "allocationfactor"):
                connected, share = (value, share) if key == "xfkva" else (connected, value)
                kw, by_factor, kva = connected * share * abs(factor), True, None  # at the power factor given before
            elif key == "pf":
                factor = value
        if by_factor and factor == 0:
            element.fail("kW follows from a power factor of 0. Give kvar after kW.")
        if kva is not None:
            kw = kva * abs(factor)
        if by_factor:
            kvar = kw * float(np.copysign(np.sqrt(1 / factor**2 - 1), factor))
        else:
            power = float(np.hypot(kw, kvar))
            factor = float(np.copysign(abs(kw) / power, kvar)) if power else factor
    return kw, kvar


MODES = ("yearly", "daily", "duty")
FOLLOWED = {"yearly": ("yearly", "first"), "daily": ("daily",), "duty": ("duty", "daily")}  # a shape, or the next one
FILE = re.compile(r"file\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s,]+)", re.IGNORECASE)
COLUMN = re.compile(r"col\w*\s*=\s*(\d+)", re.IGNORECASE)
HEADER = re.compile(r"head\w*\s*=\s*[yt]", re.IGNORECASE)
MINUTES = 60.0
SECOND, YEAR = 1 / 3600, 8784.0  # [h]
NEARLY = 1e-6  # of a step, for hours that are no round numbers


@dataclass(frozen=True)
class Shape:
    """Multipliers of a load shape, repeated without end: value k, from 1 on, holds at k intervals.

    hours:  interval
    p:      (T,) multipliers of the active power
    edge:   a value holds from its hour on, not from half an interval before it
    """

    hours: float
    p: np.ndarray
    edge: bool

    def at(self, hours: np.ndarray) -> np.ndarray:
        """Multiplier at every hour, as the engine takes it."""
        k = hours / self.hours
        return self.p[((np.floor(k + NEARLY) if self.edge else np.rint(k)).astype(np.int64) - 1) % len(self.p)]


def shape_of(script: Script, element: Element, read: Callable[[str], str]) -> Shape:
    """A load shape after all of its commands; `read` returns the text of a file by its path from the master."""
    npts, hours, edge, actual = 0, 1.0, False, False
    p: np.ndarray | None = None
    per = {"interval": 1.0, "minterval": MINUTES, "sinterval": MINUTES**2}
    for key, value, given in (entry for group in script.values(element) for entry in group):
        if key == "npts":
            if p is not None and value > len(p):
                element.refuse(given, "it stands after the values. Give it first.")
            npts, p = value, None if p is None else p[:value]
        elif key in per:
            hours = value / per[key]
        elif key in ("mult", "pmult", "csvfile", "pqcsvfile"):
            if not npts:
                element.refuse(given, "the number of values is not given before it. Give npts first.")
            p = _multipliers(element, given, value, npts, read)[:npts]
        elif key == "interpolation":
            edge = value
        elif key == "useactual":
            actual = value
        elif value and p is not None:  # normalize
            most = np.abs(p).max()
            p = p / most if most else p
    if p is None or not len(p):
        element.fail("it has no values. Give npts and mult.")
    if actual:
        element.fail("it holds kW (UseActual). Write kW of the loads, and multipliers of them.")
    if not SECOND <= hours <= YEAR:
        element.fail(f"its interval is {hours:g} h. Give one from a second to a year.")
    return Shape(hours, p, edge)


def _multipliers(element: Element, given: Given, text: str, npts: int, read: Callable[[str], str]) -> np.ndarray:
    """Numbers of an array, or of a column of a text file with one row for each."""
    file = FILE.match(text)
    if given.key in ("mult", "pmult") and not file:
        try:
            found = [decimal(entry) for entry in words(text)]
        except ValueError as err:
            element.refuse(given, excerpt(err))
        if len(found) < npts:
            element.refuse(given, f"it has {len(found)} values for {npts} points. Give one for each.")
        return np.array(found)
    target = unquote(file[1]) if file else text
    column = COLUMN.search(text) if file else None
    at, first = int(column[1]) - 1 if column else 0, 1 if file and HEADER.search(text) else 0
    rows = read(beside(given.where.rpartition(", line ")[0], target)).splitlines()[first : first + MOST_POINTS]
    found = list[float]()
    for number, row in enumerate(rows, first + 1):
        try:
            found.append(decimal([field for field in re.split(r"[,\s]+", row.strip()) if field][at]))
        except (ValueError, IndexError):
            element.refuse(given, f"row {number}, {excerpt(row, 40)!r}, has no number in column {at + 1}. Correct it.")
    return np.array(found)


def load_series(
    script: Script, read: Callable[[str], str], mode: str | None, hours: float | None
) -> tuple[float, dict[str, np.ndarray]]:
    """Step [hours] and columns: the active power [MW] of all loads, and the load shapes that they follow.

    mode:   of the solution, "yearly", "daily" or "duty"; None = the one whose shapes the loads name
    hours:  length, None = that of the longest shape
    """
    named: dict[str, dict[str, str]] = {}
    for element in script.of("load"):
        given = [(g.key, word(g.text)) for group in element.groups for g in group if g.key in MODES]
        days = [name for key, name in given if key == "daily"]
        # OpenDSS takes the first daily shape for the year as well, where the load has none
        named[element.name] = {"first": days[0], **dict(given)} if days else dict(given)
    used = [key for key in MODES if any(key in shapes for shapes in named.values())]
    if mode is None and len(used) != 1:
        what = f"loads name shapes of {' and of '.join(used)}" if used else "no load names a shape"
        raise CaseError(f"{what}. Give mode= one of {', '.join(MODES)}.")
    follow = FOLLOWED[mode or used[0]]
    names = {load: next((of[key] for key in follow if key in of), None) for load, of in named.items()}
    shapes: dict[str, Shape] = {}
    for name in dict.fromkeys(name for name in names.values() if name):
        with script.collecting():
            shapes[name] = shape_of(script, _shape(script, name, names), read)
    script.refuse()
    if not shapes:
        raise CaseError(f"no load names a {mode} shape. Give another mode: {', '.join(used) or 'there is none'}.")
    step = min(shape.hours for shape in shapes.values())
    longest = hours if hours is not None else max(shape.hours * len(shape.p) for shape in shapes.values())
    if not 1.5 * step <= longest <= MOST_POINTS * step:
        raise CaseError(f"{longest:g} hours are no 2 to {MOST_POINTS:,} steps of {step:g} h. Give hours= for so many.")
    count = round(longest / step)
    at = step * np.arange(1, count + 1)
    total = np.zeros(count)
    for element in script.of("load"):
        total += _power(script, element, follow[0], shapes.get(names[element.name] or ""), at)
    script.refuse()
    return step, {"load_mw": total / 1e3} | {f"load.{name}_pu": shape.at(at) for name, shape in shapes.items()}


def _shape(script: Script, name: str, names: dict[str, str | None]) -> Element:
    element = script.shapes.get(name)
    if element is None:
        load = next(load for load, of in names.items() if of == name)
        script.elements["load", load].fail(f"the load shape {excerpt(name)!r} is not defined. Define it.")
    return element


def _power(script: Script, element: Element, mode: str, shape: Shape | None, hours: np.ndarray) -> np.ndarray | float:
    """kW of a load; a fixed one follows neither shape nor multiplier, an exempt one no multiplier but of a year."""
    with script.collecting():
        groups = script.values(element)
        status = next((value for group in groups[::-1] for key, value, _ in group[::-1] if key == "status"), "variable")
        kw, _ = _demand(element, groups)
        if status == "fixed":
            return kw
        factor = script.load_factor if status == "variable" or mode == "yearly" else 1.0
        return kw * factor * (shape.at(hours) if shape else 1.0)
    return 0.0
