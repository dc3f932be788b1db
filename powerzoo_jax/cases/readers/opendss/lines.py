"""Lines and line codes of OpenDSS scripts: impedance per length as their properties set it, one after the other."""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Collection
from typing import Any, NoReturn

import numpy as np

from powerzoo_jax.base.errors import CaseError, listing
from powerzoo_jax.cases.readers.opendss.conductors import KIND, Geometry, geometry_of, metres
from powerzoo_jax.cases.readers.opendss.script import Element, FollowUp, Given, Script, ScriptProblem
from powerzoo_jax.cases.readers.opendss.terminal import terminal
from powerzoo_jax.cases.readers.opendss.values import UNITS, Bus
from powerzoo_jax.cases.threephase.case import Row

# What OpenDSS itself gives a line with switch=yes, and below, in PerLength, one without impedances.
SWITCH = {"r1": 1.0, "x1": 1.0, "r0": 1.0, "x0": 1.0, "c1": 1.1, "c0": 1.0}
SWITCH_LENGTH = 0.001


class FrequencyLaw:
    """Impedance per length at another frequency f than the one for which it is given, with m = f / hz.

    R = r + rg (m - 1),   X = m (x - k ln(m) / 2),   B = m 2 pi charged_hz C,   k = xg / ln(658.5 sqrt(rho / hz))

    hz:          [Hz] base frequency
    charged_hz:  [Hz] at which the susceptances have been worked out, before `hz` was changed
    rg, xg:      resistance and reactance of the earth's return per length, of whatever unit: Carson's first terms
    rho:         [ohm m] of the earth
    k:           as above, at the `hz` that held when xg or rho were given
    """

    def __init__(self, hz: float) -> None:
        self.hz = self.charged_hz = hz
        self.rg, self.xg, self.rho = 0.01805, 0.155081, 100.0
        self.renew()

    def renew(self) -> None:
        self.k = self.xg / float(np.log(658.5 * np.sqrt(self.rho / self.hz)))

    def take(self, key: str, value: float) -> bool:
        """Apply one property; False when it is none of these."""
        if key == "basefreq":
            self.hz = value
        elif key in ("rg", "xg", "rho"):
            setattr(self, key, value)
            if key != "rg":
                self.renew()
        else:
            return False
        return True

    def at(self, hz: float, z: PerLength, scale: float) -> dict[str, np.ndarray]:
        """Resistance, reactance [ohm] and susceptance [uS] of so many units of length."""
        times = hz / self.hz
        turned = 0.5 * self.k * float(np.log(times)) if self.xg else 0.0
        return {
            "r_ohm": z.square("r") * scale + self.rg * (times - 1) * scale,
            "x_ohm": (z.square("x") * scale - turned * scale) * times,
            "b_us": z.square("c") * scale * 2e-3 * np.pi * self.charged_hz * times,
        }


class PerLength:
    """Impedance per length.

    sequence:  ohm and nF per length of the positive and the zero sequence
    matrix:    lower triangles in their place, by "r", "x", "c"
    unit:      of the length
    derived:   the sequence values have changed since the matrices were worked out from them: they then take the place
               of matrices that the script gives
    law:       of other frequencies
    amps:      normal rating, 0 = not given
    """

    def __init__(self, law: FrequencyLaw) -> None:
        self.law = law
        self.sequence = {"r1": 0.058, "x1": 0.1206, "r0": 0.1784, "x0": 0.4047, "c1": 3.4, "c0": 1.6}
        self.matrix: dict[str, list[list[float]]] = {}
        self.unit = "none"
        self.phases = 3
        self.derived = False
        self.amps = 0.0

    def take(self, element: Element, key: str, value: Any, given: Given) -> bool:
        """Apply one property; False when it is none of an impedance."""
        if key in self.sequence:
            self.sequence[key], self.derived = value, True
            self.matrix.clear()
        elif key in ("rmatrix", "xmatrix", "cmatrix"):
            if self.derived:
                element.refuse(given, "sequence values or switch=yes stand beside it. Give either them or matrices.")
            if len(value) != self.phases:
                element.refuse(given, f"it has {len(value)} rows for {self.phases} phases. Give one for each phase.")
            self.matrix[key[0]] = value
            if key == "cmatrix":
                self.law.charged_hz = self.law.hz
        else:
            return False
        return True

    def set_phases(self, element: Element, value: int, given: Given) -> None:
        if self.matrix and value != self.phases:
            element.refuse(given, f"the matrices before it have {self.phases} phases. Give the phases first.")
        self.phases = value

    def work_out(self) -> None:
        """Derive the matrices of a line from the sequence values; one phase has no zero sequence of its own."""
        self.derived = False
        self.matrix.clear()
        self.law.charged_hz = self.law.hz
        if self.phases == 1:
            self.sequence |= {f"{letter}0": self.sequence[f"{letter}1"] for letter in "rxc"}

    def square(self, letter: str) -> np.ndarray:
        """r, x [ohm] or c [nF] per length, (phases, phases)."""
        n = self.phases
        if letter in self.matrix:
            full = np.zeros((n, n))
            for i, row in enumerate(self.matrix[letter]):
                full[i, : len(row)] = row
                full[: len(row), i] = row
            return full
        one, zero = self.sequence[f"{letter}1"], self.sequence[f"{letter}0"]
        return (zero - one) / 3 + np.eye(n) * one


Groups = list[list[tuple[str, Any, Given]]]


def line_rows(script: Script, opened: Collection[str]) -> list[Row]:
    """One row for each line; `opened` are out of service besides those that the script opens."""
    hz = script.frequency_hz
    codes = {element.name: _Code(element, script.values(element), hz) for element in script.of("linecode")}
    for code in codes.values():
        with script.collecting():
            code.before(None)  # also those that no line uses are checked
    rows = list[Row]()
    for element in script.of("line"):
        with script.collecting():
            rows.append(_Line(element, script, codes).row(opened))
    bare = [row["name"] for row in rows if not row["rating_amp"] and not row["switch"]]
    if 0 < len(bare) < len(rows) and any(row["rating_amp"] for row in rows):
        script.note("lines without normamps have no rating, where OpenDSS takes 400 A", f"line {listing(bare)}")
    missing = set(opened) - {element.name for element in script.of("line")}
    if missing:
        names = ", ".join(f"line.{name}" for name in sorted(missing))
        raise CaseError(f"{names} is to be opened and not defined. Check the name of the line.")
    return rows


class _Code:
    """A line code as the commands before a line have defined it; what many lines ask for is worked out once."""

    def __init__(self, element: Element, groups: Groups, hz: float) -> None:
        self.element, self.hz = element, hz
        self.groups = [group for group in groups if group]
        self.orders = [group[0][2].order for group in self.groups]
        self.known: dict[int, PerLength] = {}

    def before(self, order: int | None) -> PerLength:
        """The code as the commands up to number `order` define it, None = all of them; not to be changed."""
        count = len(self.groups) if order is None else bisect_left(self.orders, order)
        if count not in self.known:
            self.known[count] = self._take(self.groups[:count])
        return self.known[count]

    def _take(self, groups: Groups) -> PerLength:
        code = PerLength(FrequencyLaw(self.hz))
        for group in groups:
            for key, value, given in group:
                self._take_one(code, key, value, given)
            if not code.matrix:  # OpenDSS works the matrices out after each command
                code.law.charged_hz = code.law.hz
        if code.matrix:  # the others are those of its sequence values, also for a line with values of its own
            squares = {letter: code.square(letter)[: code.phases] for letter in "rxc"}
            code.matrix = {letter: [row[: k + 1].tolist() for k, row in enumerate(s)] for letter, s in squares.items()}
        return code

    def _take_one(self, code: PerLength, key: str, value: Any, given: Given) -> None:
        if key == "nphases":
            if code.matrix:
                self.element.refuse(given, "it undoes the matrices before it. Give it first.")
            if value != code.phases:
                code.law.charged_hz = code.law.hz
            code.set_phases(self.element, value, given)
        elif key == "units":
            code.unit = value
        elif key == "normamps":
            code.amps = max(value, 0.0)
        elif not code.law.take(key, value):
            if key in code.sequence and code.matrix:
                self.element.refuse(given, "matrices stand before it. Give either them or sequence values.")
            code.take(self.element, key, value, given)


class _Line:
    """A line while its properties are taken.

    conversion:  units of the length in one unit of the impedance
    coded:       the impedance is that of a line code
    built:       the impedance is that of a geometry, or of a spacing with wires, per metre
    strung:      its conductors in their places
    named:       name of the geometry
    spacing:     the spacing and its wires while they are collected
    charged:     the capacitances are given, not the defaults of OpenDSS, which are per thousand feet
    """

    def __init__(self, element: Element, script: Script, codes: dict[str, _Code]) -> None:
        self.element, self.script, self.codes = element, script, codes
        self.z = PerLength(FrequencyLaw(script.frequency_hz))
        self.ends, self.length = [Bus("", ())] * 2, 1.0
        self.unit, self.code_unit, self.conversion = "none", "none", 1.0
        self.coded = self.charged = self.switch = self.built = False
        self.enabled, self.earth = True, element.earth
        self.strung: tuple[Geometry, Given] | None = None
        self.named = ""
        self.spacing: tuple[str, Given] | None = None
        self.wires: list[tuple[str, list[str], Given]] = []
        for group in script.values(element):
            for key, value, given in group:
                self._take(key, value, given)

    def _take(self, key: str, value: Any, given: Given) -> None:
        if key in ("bus1", "bus2"):
            self.ends[int(key[-1]) - 1] = value
        elif key == "linecode":
            self._fetch(value, given)
        elif key == "phases":
            changes = value != self.z.phases
            if changes and self.built:
                self.element.refuse(given, f"the geometry has {self.z.phases} phases. Leave it out.")
            self.z.set_phases(self.element, value, given)
            if changes:
                self.z.work_out()
        elif key == "length":
            self.length = value
        elif key == "earthmodel":
            self.earth = value
            if self.built and self.strung:
                self._build(*self.strung)
        elif key == "geometry":
            self._build(self._geometry(value, given), given)
        elif key == "spacing":
            self.spacing, self.wires = (value, given), []
        elif key in ("wires", "cncables"):
            self._string(key, value, given)
        elif key == "units":
            before = self.code_unit if self.coded else self.unit
            self.conversion = (1.0 if self.coded else self.conversion) * _per(before, value)
            self.unit = value
        elif key == "switch":
            self.switch = value
            if value:
                self.z.sequence, self.z.derived, self.length = dict(SWITCH), True, SWITCH_LENGTH
                self.z.matrix.clear()
                self._own_unit()
        elif key == "enabled":
            self.enabled = value
        elif key == "normamps":
            self.z.amps = max(value, 0.0)
        elif not self.z.law.take(key, value) and self.z.take(self.element, key, value, given):
            self.charged |= key[0] == "c"
            self._own_unit()

    def _own_unit(self) -> None:
        """Impedance per unit of length in the line's own unit, whatever unit was given before."""
        self.coded, self.built, self.unit, self.conversion = False, False, "none", 1.0

    def _geometry(self, name: str, given: Given) -> Geometry:
        element = self.script.elements.get(("linegeometry", name))
        if element is None or element.order > given.order:
            self._undefined("linegeometry", name, given)
        self.named = name
        return geometry_of(self.script, element, given.order)

    def _string(self, key: str, names: list[str], given: Given) -> None:
        """Take wires of a spacing; with the last of them the line has its impedance."""
        if self.spacing is None:
            self.element.refuse(given, "no spacing stands before it. Give spacing first.")
        self.named = ""
        self.wires.append((KIND[key], names, given))
        spacing, found = self.script.elements.get(("linespacing", self.spacing[0])), Geometry()
        if spacing is None or spacing.order > given.order:
            self._undefined("linespacing", self.spacing[0], given)
        counts = [entry for group in self.script.values(spacing) for key, entry, _ in group if key == "nconds"]
        found.resize(counts[-1] if counts else 3)
        found.phases = found.place(self.script, self.element, *self.spacing)
        found.reduce = len(found.names) > found.phases
        for kind, wires, source in self.wires:
            found.place_wires(self.element, kind, wires, source)
        if None not in found.names:
            self._build(found, given)

    def _build(self, geometry: Geometry, given: Given) -> None:
        """Take the impedance of conductors in their places, whatever was given before."""
        z, c, amps = geometry.constants(self.script, self.element, given, self.earth)
        self.z = PerLength(self.z.law)
        self.z.phases, self.z.amps, self.charged = len(z), amps, True
        for letter, square in (("r", z.real), ("x", z.imag), ("c", c)):
            self.z.matrix[letter] = [row[: k + 1].tolist() for k, row in enumerate(square)]
        self.built, self.coded, self.strung = True, False, (geometry, given)

    def _undefined(self, kind: str, name: str, given: Given) -> NoReturn:
        """Raise ScriptProblem for a name that no command defines, FollowUp where its definition has a problem."""
        if (kind, name) in self.script.lost:
            raise FollowUp(kind)
        raise ScriptProblem(f"{given.where}: {self.element}: {kind} {name} is not defined. Define it before.")

    def _fetch(self, name: str, given: Given) -> None:
        element = self.script.elements.get(("linecode", name))
        if element is None or element.order > given.order:
            self._undefined("linecode", name, given)
        code = self.codes[name].before(given.order)
        self.coded, self.code_unit, self.conversion = True, code.unit, _per(code.unit, self.unit)
        self.built = False
        derived, own = self.z.derived, self.z.sequence
        self.z = copy.deepcopy(code)
        self.z.law.renew()
        if code.matrix:
            self.z.sequence, self.z.derived = own, derived
        else:
            self.z.work_out()

    def row(self, opened: Collection[str]) -> Row:
        name, z = self.element.name, self.z
        if self.built and self.named and self.script.built.setdefault(self.named, self.earth) != self.earth:
            other = self.script.built[self.named]
            self.element.fail(f"OpenDSS works geometry {self.named} out once, here for {other}. Define it twice.")
        if z.derived and not self.charged:
            per = _per("kft", self.unit)
            z.sequence |= {key: z.sequence[key] / per for key in ("c1", "c0")}
        if z.derived:
            z.work_out()
        scale = self.length * metres(self.unit) if self.built else self.length / self.conversion
        nodes = [terminal(self.element, f"bus{k}", end, z.phases, z.phases) for k, end in enumerate(self.ends, 1)]
        # conductors in their places have their impedance at the frequency of the circuit
        law = FrequencyLaw(self.script.frequency_hz) if self.built else z.law
        return {
            "name": name,
            "from_node": nodes[0],
            "to_node": nodes[1],
            **law.at(self.script.frequency_hz, z, scale),
            "in_service": self.enabled and name not in opened and not self.script.opened.get(name),
            "switch": self.switch,
            "disabled": not self.enabled,
            "rating_amp": z.amps,
        }


def _per(first: str, second: str) -> float:
    """Conversion factor from the first unit of length to the second; 1 where either is none."""
    return UNITS[first] / UNITS[second] if UNITS[first] and UNITS[second] else 1.0
