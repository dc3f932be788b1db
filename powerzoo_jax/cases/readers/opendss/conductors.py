"""Wire data, cable data, spacings and line geometries of OpenDSS scripts: from their properties to line constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from powerzoo_jax.cases.readers.opendss.geometry import Conductor, line_constants
from powerzoo_jax.cases.readers.opendss.script import Element, FollowUp, Given, Script
from powerzoo_jax.cases.readers.opendss.values import UNITS

ROUND = 0.7788  # geometric mean radius over radius of a round wire
DC = 1.02  # resistance at alternating over that at direct current where one of them is left out


def metres(unit: str) -> float:
    """[m] of a unit of length; without one OpenDSS takes metres."""
    return UNITS[unit] or 1.0


def conductor_of(script: Script, element: Element, before: int) -> Conductor:
    """Wire or cable after its commands up to number `before`."""
    value: dict[str, Any] = {"runits": "none", "gmrunits": "none", "radunits": "none", "epsr": 2.3}
    for key, entry, given in (entry for group in script.values(element) for entry in group):
        if given.order < before:
            _take(element, value, key, entry, given)
    missing = [key for key in ("rac", "gmrac", "radius") if key not in value]
    if missing:
        element.fail(f"{' and '.join(missing)} is not given. Give rac, gmrac and diam with their units.")
    per, gmr_unit, unit = (metres(value[key]) for key in ("runits", "gmrunits", "radunits"))
    wire: dict[str, Any] = {
        "r_ac": value["rac"] / per,
        "r_dc": value["rdc"] / per,
        "gmr": value["gmrac"] * gmr_unit,
        "radius": value["radius"] * unit,
        "cap_radius": value.get("capradius", value["radius"]) * unit,
        "amps": max(value.get("normamps", 0.0), 0.0),
    }
    if element.kind == "wiredata":
        return Conductor(**wire)
    keys = ("k", "diastrand", "gmrstrand", "rstrand", "inslayer", "diains", "diacable")
    missing = [key for key in keys if key not in value]
    if missing:
        element.fail(f"{', '.join(missing)} is not given. Give the strands and the insulation of the cable.")
    outer = 0.5 * value["diains"] * unit
    inner = outer - value["inslayer"] * unit
    circle = 0.5 * (value["diacable"] - value["diastrand"]) * unit
    if inner <= 0 or circle <= 0:
        element.fail("its layers are thicker than the cable. Check diacable, diastrand, diains and inslayer.")
    return Conductor(
        **wire,
        strands=value["k"],
        strand_radius=circle,
        strand_gmr=value["gmrstrand"] * gmr_unit,
        strand_r=value["rstrand"] / per,
        insulation=(outer, inner),
        eps_r=value["epsr"],
    )


def _take(element: Element, value: dict[str, Any], key: str, entry: Any, given: Given) -> None:
    """Apply one property; what it implies holds for what is not given yet."""
    if key == "diam":
        key, entry = "radius", entry / 2
    value[key] = entry
    if key == "k" and (entry != int(entry) or not 2 <= entry <= 1000):
        element.refuse(given, "give the number of strands, 2 to 1000.")
    if key == "k":
        value["k"] = int(entry)
    elif key == "rdc":
        value.setdefault("rac", DC * entry)
    elif key == "rac":
        value.setdefault("rdc", entry / DC)
    elif key == "gmrac":
        value.setdefault("radius", entry / ROUND)
    elif key == "radius":
        value.setdefault("gmrac", ROUND * entry)
        value.setdefault("capradius", entry)
    elif key == "diastrand":
        value.setdefault("gmrstrand", ROUND * 0.5 * entry)
    elif key in ("gmrunits", "radunits"):
        other = "radunits" if key == "gmrunits" else "gmrunits"
        value[other] = entry if value[other] == "none" else value[other]


class Geometry:
    """Conductors in their places while the properties of a line geometry, or of a spacing with wires, are taken."""

    def __init__(self) -> None:
        self.phases, self.at, self.reduce, self.amps = 3, 0, False, 0.0
        self.resize(3)

    def resize(self, count: int) -> None:
        """So many conductors, none of them placed."""
        self.names: list[tuple[str, str] | None] = [None] * count
        self.x, self.h = np.zeros(count), np.zeros(count)
        self.units: list[str | None] = [None] * count
        self.last, self.at = "ft", 0

    def take(self, script: Script, element: Element, key: str, value: Any, given: Given) -> None:
        """Apply one property of a line geometry."""
        if key == "nconds":
            self.resize(value)
        elif key == "nphases":
            self.phases = value
        elif key == "cond":
            if value > len(self.names):
                element.refuse(given, f"it has {len(self.names)} conductors. Give nconds first.")
            self.at = value - 1
            self.units[self.at] = self.units[self.at] or self.last
        elif key in ("wire", "cncable"):
            self.names[self.at] = (KIND[key], value)
        elif key in ("wires", "cncables"):
            self.place_wires(element, KIND[key], value, given)
        elif key in ("x", "h"):
            getattr(self, key)[self.at] = value
        elif key == "units":
            self.units[self.at] = self.last = value
        elif key == "reduce":
            self.reduce = value
        elif key == "normamps":
            self.amps = max(value, 0.0)
        elif key == "spacing":
            self.place(script, element, value, given)

    def place(self, script: Script, element: Element, name: str, given: Given) -> int:
        """Put the conductors where a spacing has them; returns its number of phases."""
        spacing = _defined(script, element, "linespacing", name, given)
        value: dict[str, Any] = {"nconds": 3, "nphases": 3, "units": "ft", "x": [], "h": []}
        for key, entry, source in (entry for group in script.values(spacing) for entry in group):
            if source.order < given.order:
                value |= {key: entry} | ({"x": [], "h": [], "units": "ft"} if key == "nconds" else {})
        count = value["nconds"]
        if not len(value["x"]) == len(value["h"]) == count:
            spacing.fail(f"x has {len(value['x'])} and h {len(value['h'])} numbers for {count} conductors. Give all.")
        if count != len(self.names):
            element.refuse(given, f"the spacing has {count} conductors instead of {len(self.names)}. Give as many.")
        self.x, self.h = np.array(value["x"], float), np.array(value["h"], float)
        self.units, self.last = [value["units"]] * count, value["units"]
        return int(value["nphases"])

    def place_wires(self, element: Element, kind: str, names: list[str], given: Given) -> None:
        """Name all conductors at once, or the bare neutrals behind cables."""
        cables = kind == "wiredata" and any(name and name[0] == "cndata" for name in self.names)
        first = self.phases if cables else 0
        if first + len(names) > len(self.names):
            element.refuse(given, f"it has {len(self.names)} conductors. Give nconds first.")
        self.names[first : first + len(names)] = [(kind, name) for name in names]

    def constants(
        self, script: Script, element: Element, given: Given, earth: str
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Z [ohm/m] and C [nF/m] of the conductors that are left after the reduction, and the rating [A].

        The rating is that of the geometry, or of its first conductor; 0 = none.
        """
        places = [metres(unit or "none") for unit in self.units]
        x, h = self.x * places, self.h * places
        found = []
        for k, name in enumerate(self.names, 1):
            if name is None:
                element.fail(f"conductor {k} has no wire. Name one for each of the {len(self.names)} conductors.")
            found.append(conductor_of(script, _defined(script, element, *name, given), given.order))
        apart = np.hypot(x[:, None] - x, h[:, None] - h) + np.diag(np.full(len(x), np.inf))
        radius = np.array([c.radius for c in found])
        if (apart < radius[:, None] + radius).any():
            element.fail("two conductors occupy the same space. Give each its x and h.")
        if any(c.strands for c in found) and not all(c.strands for c in found[: self.phases]):
            element.fail("cables and bare wires stand among its phases. Give all phases cables.")
        if not any(c.strands for c in found) and (h <= 0).any():
            element.fail("a wire is not above the ground. Give h > 0.")
        kept = min(self.phases, len(found)) if self.reduce else len(found)
        z, c = line_constants(found, x, h, kept, script.frequency_hz, earth)
        return z, c, self.amps or found[0].amps


KIND = {"wire": "wiredata", "wires": "wiredata", "cncable": "cndata", "cncables": "cndata"}


def _defined(script: Script, element: Element, kind: str, name: str, given: Given) -> Element:
    found = script.elements.get((kind, name))
    if found is None and (kind, name) in script.lost:
        raise FollowUp(name)
    if found is None or found.order > given.order:
        element.refuse(given, f"{kind} {name} is not defined. Define it before.")
    return found


def geometry_of(script: Script, element: Element, before: int) -> Geometry:
    """A line geometry after its commands up to number `before`."""
    found = Geometry()
    for key, value, given in (entry for group in script.values(element) for entry in group):
        if given.order < before:
            found.take(script, element, key, value, given)
    return found
