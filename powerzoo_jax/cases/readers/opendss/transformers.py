"""Transformers of OpenDSS scripts: single-phase units of two windings, their no-load losses and regulators.

Three windings on one core are three units that meet in a star point, a node of a bus of its own: with the measured
z12, z13 and z23 the units have z1 = (z12 + z13 - z23) / 2 and its like, which is the same circuit (C. L. Fortescue's
star equivalent; W. D. Stevenson, Elements of Power System Analysis, section on three-winding transformers).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import excerpt
from powerzoo_jax.cases.readers.opendss.script import Element, FollowUp, Given, Script, ScriptProblem
from powerzoo_jax.cases.readers.opendss.terminal import End, winding
from powerzoo_jax.cases.readers.opendss.values import Bus
from powerzoo_jax.cases.threephase.case import Row

# Values of properties that a script leaves out are the defaults of OpenDSS.
STEP = 0.2 / 32  # a regulator has 32 steps over +-10 %
TAP_MAX = 16  # so many of them on either side of neutral
NEW = {"conn": False, "kv": 12.47, "kva": 1000.0, "tap": 1.0, "%r": 0.2, "rneut": -1.0, "xneut": 0.0}
ARRAYS = {"buses": "bus", "conns": "conn", "kvs": "kv", "kvas": "kva", "taps": "tap", "%rs": "%r"}
OF_ALL = {"x12": "xhl", "x13": "xht", "x23": "xlt"}
PPM = 1e-6


class Windings:
    """Values of a transformer, or of a transformer code, while its properties are taken.

    each:  by property, one value for each winding
    all:   of the transformer: reactances, losses and magnetizing current [%], ppm of the shunt against floating
    at:    the winding that properties without an array concern
    hz:    frequency of the reactances, None = that of the circuit
    x_r_constant: resistances follow the frequency as well
    """

    def __init__(self, windings: int = 2) -> None:
        self.phases, self.at = 3, 0
        self.hz: float | None = None
        self.x_r_constant = False
        self.all: dict[str, float] = {"%noloadloss": 0.0, "%imag": 0.0, "ppm_antifloat": 1.0}
        self.x: dict[str, float] = {"xhl": 7.0}
        self.bus = [Bus("", ())] * windings
        self.renew(windings)

    def renew(self, windings: int) -> None:
        """Default windings; what is given before their number is lost in OpenDSS as well."""
        self.each: dict[str, list[Any]] = {key: [value] * windings for key, value in NEW.items()}
        self.bus = (self.bus + [Bus("", ())] * windings)[:windings]

    @property
    def count(self) -> int:
        return len(self.bus)

    def take(self, script: Script, element: Element, key: str, value: Any, given: Given) -> None:
        """Apply one property."""
        if key == "windings":
            self.renew(value)
        elif key == "wdg":
            if value > self.count:
                element.refuse(given, f"it has {self.count} windings. Give windings first.")
            self.at = value - 1
        elif key == "bus":
            self.bus[self.at] = value
        elif key == "kva":
            self.each[key][self.at] = value
            if self.at == 0 or self.count == 2:
                self.each[key] = [value] * self.count
        elif key in self.each:
            self.each[key][self.at] = value
        elif key in ARRAYS:
            self._take_array(element, ARRAYS[key], value, given)
        elif key == "%loadloss":
            self.each["%r"][:2] = [value / 2] * 2
        elif key in ("xhl", "xht", "xlt") or key in OF_ALL:
            self.x[OF_ALL.get(key, key)] = value
        elif key in self.all:
            self.all[key] = value
        elif key == "phases":
            self.phases = value
        elif key == "basefreq":
            self.hz = value
        elif key == "xrconst":
            self.x_r_constant = value
        elif key == "xfmrcode":
            self._take_code(script, element, value, given)

    def move_to(self, hz: float) -> None:
        """Scale the reactances to another frequency; the magnetizing current is that of a reactance."""
        times = hz / (self.hz or hz)
        self.x = {key: value * times for key, value in self.x.items()}
        self.all["%imag"] /= times
        for key in ("xneut", "%r") if self.x_r_constant else ("xneut",):
            self.each[key] = [value * times for value in self.each[key]]

    def _take_array(self, element: Element, key: str, value: list[Any], given: Given) -> None:
        if len(value) > self.count:
            element.refuse(given, f"it has {len(value)} values for {self.count} windings. Give windings first.")
        if key == "bus":
            self.bus[: len(value)] = value
        else:
            self.each[key][: len(value)] = value
        self.at = len(value) - 1  # OpenDSS stays at the last winding of an array

    def _take_code(self, script: Script, element: Element, name: str, given: Given) -> None:
        code = script.elements.get(("xfmrcode", name))
        if code is None and ("xfmrcode", name) in script.lost:
            raise FollowUp(name)
        if code is None or code.order > given.order:
            element.refuse(given, "the transformer code is not defined. Define it before.")
        if any(bus.name for bus in self.bus):
            element.refuse(given, "it stands after the buses. Give the code first.")
        found = windings_of(script, code, before=given.order)
        self.phases, self.x, self.all, self.at = found.phases, dict(found.x), dict(found.all), 0
        self.bus = [Bus("", ())] * found.count
        self.each = {key: list(values) for key, values in found.each.items()}


def windings_of(script: Script, element: Element, before: int | None = None) -> Windings:
    """Values of a transformer or a transformer code after its commands, up to the one of number `before`."""
    found = Windings()
    for key, value, given in (entry for group in script.values(element) for entry in group):
        if before is None or given.order < before:
            found.take(script, element, key, value, given)
    return found


def transformer_rows(script: Script, element: Element, first: int) -> tuple[list[Row], list[Row]]:
    """One unit for each phase and pair of windings, and the shunts: no-load losses, neutrals, what keeps from floating.

    first:  row of its first unit in the table of units

    A three-phase delta on the high-voltage side leads by its turn of the phases.
    """
    w = windings_of(script, element)
    w.move_to(script.frequency_hz)
    conn, kv, phases = w.each["conn"], w.each["kv"], w.phases
    if w.count == 3 and len(w.x) < 3:
        element.fail("three windings need xhl, xht and xlt. Give them.")
    turn = -1 if conn[0] != conn[1] and conn[int(kv[1] > kv[0])] else 1
    sides = [
        winding(element, f"bus of winding {k}", bus, phases, delta, turn, grounded=phases == 1)
        for k, (bus, delta) in enumerate(zip(w.bus, conn, strict=True), 1)
    ]
    root = [1.0 if delta or phases == 1 else np.sqrt(3) for delta in conn]
    line = [np.sqrt(3) if phases == 1 and not delta else 1.0 for delta in conn]
    own = [value / r for value, r in zip(kv, root, strict=True)]  # of the windings themselves
    line_kv = [value * factor for value, factor in zip(kv, line, strict=True)]
    base = {"name": element.name, "rating_kva": w.each["kva"][0] / phases}
    if w.count == 3:
        rows = [
            base | _ends("from", (f"{element}.{k + 1}", None), own[0]) | _ends("to", sides[n][k], own[n]) | of_unit
            for n, of_unit in enumerate(_star(w, line_kv))
            for k in range(phases)
        ]
    else:
        of_unit = {
            "r_pu": sum(w.each["%r"]) / 100,
            "x_pu": w.x["xhl"] / 100,
            "from_tap": w.each["tap"][0],
            "to_tap": w.each["tap"][1],
            "line_kv": (line_kv[0], line_kv[1]),
        }
        rows = [
            base | _ends("from", sides[0][k], own[0]) | _ends("to", sides[1][k], own[1]) | of_unit
            for k in range(phases)
        ]
    second = first + (phases if w.count == 3 else 0)  # the units of winding 2 follow those of winding 1
    return rows, _shunts(element, w, sides, own, second)


def _ends(side: str, ends: tuple[End, End], kv: float) -> Row:
    return {f"{side}_node": ends[0], f"{side}_end": ends[1], f"{side}_kv": kv}


def _star(w: Windings, line_kv: list[float]) -> list[Row]:
    """Units from the star point to the windings: half of what two measurements have more than the third."""
    x12, x13, x23 = (w.x[key] for key in ("xhl", "xht", "xlt"))
    x = (x12 + x13 - x23, x12 + x23 - x13, x13 + x23 - x12)
    return [
        {
            "r_pu": w.each["%r"][n] / 100,
            "x_pu": x[n] / 200,
            "from_tap": 1.0,
            "to_tap": w.each["tap"][n],
            "line_kv": (line_kv[0], line_kv[n]),
            "winding": n + 1,
        }
        for n in range(3)
    ]


def _shunts(
    element: Element, w: Windings, sides: list[list[tuple[End, End]]], own: list[float], second: int
) -> list[Row]:
    """Shunts of a transformer, those between the same nodes added up; `second` is the first unit of winding 2.

    OpenDSS lays half a millionth of the rating of a phase, inductive, at either end of every winding, and so much again
    at an open neutral; losses and magnetizing current without load lie across the turns of the second winding that the
    tap leaves, so that they fall as the tap rises.
    """
    va = 1e3 * w.each["kva"][0] / w.phases
    total: dict[tuple[End, End], complex] = {}

    def add(node: End, end: End, siemens: complex) -> None:
        if node != end and siemens:
            key = (node, end) if node else (end, None)
            total[key] = total.get(key, 0.0) + siemens

    for n, ends in enumerate(sides):
        floating = -0.5j * PPM * w.all["ppm_antifloat"] * va / (1e3 * own[n]) ** 2
        for pair in ends:
            for node in pair:
                add(node, None, floating)
        if not w.each["conn"][n]:
            neutral = ends[0][1]
            r, x = w.each["rneut"][n], w.each["xneut"][n]
            add(neutral, None, floating if r < 0 else 1e6 if r == x == 0 else 1 / complex(r, x))
    idle = va / (1e3 * own[1]) ** 2 / 100 * complex(w.all["%noloadloss"], -w.all["%imag"])
    across = [(*(pair if pair[0] else pair[::-1]), idle, second + k) for k, pair in enumerate(sides[1]) if idle]
    return [
        {"name": str(element), "node": node, "end": end, "g_us": 1e6 * y.real, "b_us": 1e6 * y.imag, "unit": unit}
        for node, end, y, unit in [*((*ends, y, -1) for ends, y in total.items()), *across]
    ]


def regulator_row(
    script: Script, element: Element, units: list[Row], unit_rows: Mapping[str, list[int]], taps: Mapping[str, int]
) -> Row:
    """One regulator; `unit_rows` are the rows of the phases of a transformer, by its name."""
    value: dict[str, Any] = {
        **{"transformer": "", "winding": 1, "vreg": 120.0, "band": 3.0},
        **{"ptratio": 60.0, "ctprim": 300.0, "r": 0.0, "x": 0.0},
    }
    value |= {key: entry for group in script.values(element) for key, entry, _ in group}
    name = value["transformer"]
    at = [k for k in unit_rows.get(name, ()) if units[k].get("winding", 2) == 2]
    if not at and ("transformer", name) in script.lost:
        raise FollowUp(name)
    if not at:
        element.fail(f"it controls transformer {excerpt(name)!r}, which is not defined. Check the name.")
    if value["winding"] == 1:
        element.fail("it regulates winding 1, the default. Give winding=2, and model the transformer so.")
    position = taps.get(name, (units[at[0]]["to_tap"] - 1) / STEP)
    if abs(position - round(position)) > 1e-6 or abs(position) > TAP_MAX:
        raise ScriptProblem(
            f"{element.where}: transformer.{name}: the tap {position:g} is no position from -{TAP_MAX} to {TAP_MAX}. "
            f"Give a multiple of {STEP:g}."
        )
    for k in at:
        units[k]["to_tap"] = 1.0
    return {
        "name": name,
        "unit": at + [-1] * (3 - len(at)),
        "tap": round(position),
        "step": STEP,
        "tap_max": TAP_MAX,
        "v_set_volt": value["vreg"],
        "band_volt": value["band"],
        "pt_ratio": value["ptratio"],
        "ct_primary_amp": value["ctprim"],
        "drop_r_volt": value["r"],
        "drop_x_volt": value["x"],
    }
