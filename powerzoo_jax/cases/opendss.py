"""Reader of OpenDSS feeders: the subset that three-phase distribution feeders are written in.

Lines by code, matrix or sequence values, switches, two-winding transformers in wye and delta, regulators with their
controls, capacitors, and loads of the models 1 (power), 2 (impedance), 4 (CVR), 5 (current) and 8 (ZIP). Properties
take effect in the order of the script, as in OpenDSS. Whatever else defines an element is refused, never dropped.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from powerzoo_jax.base.errors import CaseError, DataMissing
from powerzoo_jax.cases.dssfile import Element, Script, number, parse, triangle, truth, unquote, words
from powerzoo_jax.cases.threephase import ThreePhaseCase
from powerzoo_jax.cases.threephase_assemble import Row, assemble

FREQUENCY_HZ = 60.0
STEP = 0.2 / 32  # a regulator has 32 steps over +-10 %
TAP_MAX = 16
UNITS = {"none": 0.0, "mi": 1609.344, "kft": 304.8, "km": 1e3, "m": 1.0, "ft": 0.3048, "in": 0.0254, "cm": 0.01}
KINDS = frozenset(["circuit", "line", "linecode", "transformer", "regcontrol", "capacitor", "load"])
# Properties about operation, display or harmonics, and those that two-winding transformers do not use.
IGNORED = frozenset(
    [
        *("bank", "basefreq", "class", "ctrlwinding", "daily", "delay", "duty", "emergamps", "maxtapchange"),
        *("normamps", "ppm", "ppm_antifloat", "seasons", "spectrum", "status", "vminemerg", "vminnorm"),
        *("xht", "xlt", "yearly"),
    ]
)
SHARES = {"1": [0.0, 0.0, 0.0, 0.0], "2": [1.0, 0.0, 1.0, 0.0], "5": [0.0, 1.0, 0.0, 1.0]}  # z_p, i_p, z_q, i_q
EXPONENT = {0.0: [0.0, 0.0], 1.0: [0.0, 1.0], 2.0: [1.0, 0.0]}  # of the voltage in model 4 -> shares z, i


def read_opendss(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    taps: Mapping[str, int] | None = None,
    opened: Collection[str] = (),
    citation: str = "",
    read: Callable[[str], str] | None = None,
) -> ThreePhaseCase:
    """Read an OpenDSS feeder.

    path:      master script; `Redirect` looks beside it
    name:      of the case, None = of the circuit
    taps:      regulator transformer -> tap position in place of the one in the script; one position is 0.00625
    opened:    names of lines to open besides those that the script opens
    citation:  kept in the case
    read:      returns the text of a file by name; None reads the folder of `path`

    Raises DataMissing for a missing file and CaseError, naming the element, for what the subset does not hold.
    """
    path = Path(path)
    script = parse(path.name, read or _folder(path.parent))
    circuits = script.of("circuit")
    if len(circuits) != 1:
        raise CaseError(f"{path.name} defines {len(circuits)} circuits. Give a master script that defines one.")
    left = {e.kind for e in script.elements.values()} - KINDS
    if left:
        raise CaseError(f"{path.name} defines {', '.join(sorted(left))}, which this reader does not know. Remove them.")
    units = [row for e in script.of("transformer") for row in _transformer(e)]
    rows: dict[str, list[Row]] = {
        "source": _source(circuits[0]),
        "regulator": [_regulator(e, units, taps or {}) for e in script.of("regcontrol")],
        "transformer": units,
        "line": _lines(script, {f"line.{line.lower()}" for line in opened} | set(script.opened)),
        "capacitor": [row for e in script.of("capacitor") for row in _capacitor(e)],
        "load": [row for e in script.of("load") for row in _load(e)],
    }
    return assemble(name or circuits[0].name, citation, rows, script.voltage_bases)


def _folder(folder: Path) -> Callable[[str], str]:
    def read(name: str) -> str:
        path = folder / name
        if not path.is_file():
            raise DataMissing(f"There is no script {str(path)!r}. Check the name that the Redirect gives.")
        return path.read_text(encoding="latin-1")

    return read


def _refuse(element: Element, key: str, value: str) -> NoReturn:
    raise CaseError(
        f"{element.kind}.{element.name}: {key}={value} is not in the subset of OpenDSS read here. "
        "Express the element otherwise, or remove the property if it does not matter."
    )


def _terminal(text: str, count: int) -> list[str | None]:
    """Nodes of a terminal, "bus.phase" or None for the ground: 1, 2, ... unless the text names them."""
    bus, *given = unquote(text).lower().split(".")
    phases = [int(p) for p in given] or list(range(1, min(count, 3) + 1))
    phases += [0] * (count - len(phases))
    return [f"{bus}.{p}" if p else None for p in phases]


def _source(element: Element) -> list[Row]:
    value = {"basekv": 115.0, "pu": 1.0, "angle": 0.0, "mvasc3": 2000.0, "mvasc1": 2100.0}
    ohm = {"r1": 1.65, "x1": 6.6, "r0": 1.9, "x0": 5.7}
    bus, by_power = "sourcebus", True
    for key, text in element.properties:
        if key == "bus1":
            bus = text
        elif key in value:
            value[key] = number(text)
            by_power |= key.startswith("mvasc")
        elif key in ohm:
            ohm[key], by_power = number(text), False
        elif key not in IGNORED and (key, text) != ("phases", "3"):
            _refuse(element, key, text)
    z1, z0 = complex(ohm["r1"], ohm["x1"]), complex(ohm["r0"], ohm["x0"])
    if by_power:
        z1, z0 = _short_circuit(value["basekv"], value["mvasc3"], value["mvasc1"])
    z = np.full((3, 3), (z0 - z1) / 3) + np.eye(3) * z1
    nodes = _terminal(bus, 3)
    kv = value["pu"] * value["basekv"] / np.sqrt(3)
    return [
        {
            "node": nodes[k],
            "kv": kv,
            "line_kv": value["basekv"],
            "angle_deg": value["angle"] - 120.0 * k,
            "r_ohm": z[k].real,
            "x_ohm": z[k].imag,
        }
        for k in range(3)
    ]


def _short_circuit(kv: float, mva3: float, mva1: float) -> tuple[complex, complex]:
    """Z1 and Z0 [ohm] of a source by its short-circuit powers, with X1 / R1 = 4 and X0 / R0 = 3.

    |2 Z1 + Z0| = 3 V / I1 with the single-phase fault current I1 fixes R0.
    """
    x1 = kv * kv / mva3 / np.sqrt(1 + 1 / 16)
    r1 = x1 / 4
    fault = 3 * kv * kv / mva1
    a, b, c = 10.0, 4 * (r1 + 3 * x1), 4 * (r1 * r1 + x1 * x1) - fault * fault
    r0 = (-b + np.sqrt(b * b - 4 * a * c)) / (2 * a)
    return complex(r1, x1), complex(r0, 3 * r0)


class _PerLength:
    """Impedance per length as the properties of a line or a line code set it, one after the other."""

    def __init__(self) -> None:
        self.sequence = {"r1": 0.058, "x1": 0.1206, "r0": 0.1784, "x0": 0.4047, "c1": 3.4, "c0": 1.6}
        self.matrix: dict[str, list[list[float]]] = {}
        self.unit = "none"
        self.phases = 3

    def take(self, key: str, text: str) -> bool:
        """Apply one property; False when it is none of an impedance."""
        if key in self.sequence:
            self.sequence[key] = number(text)
            self.matrix.clear()
        elif key in ("rmatrix", "xmatrix", "cmatrix"):
            self.matrix[key[0]] = triangle(text)
        else:
            return False
        return True

    def be_switch(self) -> None:
        self.sequence = {"r1": 1.0, "x1": 1.0, "r0": 1.0, "x0": 1.0, "c1": 1.1, "c0": 1.0}
        self.matrix.clear()
        self.unit = "none"

    def square(self, letter: str) -> np.ndarray:
        """r, x [ohm] or c [nF] per length, (3, 3), zero beyond the phases."""
        n, full = self.phases, np.zeros((3, 3))
        if letter in self.matrix:
            for i, row in enumerate(self.matrix[letter]):
                full[i, : len(row)] = row
                full[: len(row), i] = row
            return full
        one, zero = self.sequence[f"{letter}1"], self.sequence[f"{letter}0"]
        full[:n, :n] = (zero - one) / 3 + np.eye(n) * one
        return full


def _lines(script: Script, opened: set[str]) -> list[Row]:
    codes: dict[str, _PerLength] = {}
    for element in script.of("linecode"):
        code = codes[element.name] = _PerLength()
        for key, text in element.properties:
            if key == "nphases":
                code.phases = int(text)
            elif key == "units":
                code.unit = text.lower()
            elif not code.take(key, text) and key not in IGNORED:
                _refuse(element, key, text)
    rows = [_line(element, codes, opened) for element in script.of("line")]
    missing = opened - {f"line.{row['name']}" for row in rows}
    if missing:
        raise CaseError(f"{', '.join(sorted(missing))} is to be opened and not defined. Check the name of the line.")
    return rows


def _line(element: Element, codes: Mapping[str, _PerLength], opened: Collection[str]) -> Row:
    z, ends, length, unit, enabled, switch = _PerLength(), ["", ""], 1.0, "none", True, False
    for key, text in element.properties:
        if key in ("bus1", "bus2"):
            ends[int(key[-1]) - 1] = text
        elif key == "linecode":
            if text.lower() not in codes:
                raise CaseError(f"line.{element.name}: linecode {text} is not defined. Define it before the line.")
            z = copy.deepcopy(codes[text.lower()])
        elif key == "phases":
            z.phases = int(text)
        elif key == "length":
            length = number(text)
        elif key == "units":
            unit = text.lower()
        elif key == "switch":
            switch = truth(text)
            if switch:
                z.be_switch()
                length, unit = 0.001, "none"
        elif key == "enabled":
            enabled = truth(text)
        elif not z.take(key, text) and key not in IGNORED:
            _refuse(element, key, text)
    scale = length * (UNITS[unit] / UNITS[z.unit] if UNITS[unit] and UNITS[z.unit] else 1.0)
    pad: list[str | None] = [None] * (3 - z.phases)
    return {
        "name": element.name,
        "from_node": _terminal(ends[0], z.phases) + pad,
        "to_node": _terminal(ends[1], z.phases) + pad,
        "r_ohm": z.square("r") * scale,
        "x_ohm": z.square("x") * scale,
        "b_us": z.square("c") * scale * 2e-3 * np.pi * FREQUENCY_HZ,
        "in_service": enabled and f"line.{element.name}" not in opened,
        "switch": switch,
    }


def _transformer(element: Element) -> list[Row]:
    """One row per phase; a three-phase delta on the high-voltage side leads by its turn of the phases."""
    both: dict[str, list[Any]] = {
        "bus": ["", ""],
        "conn": ["wye", "wye"],
        "kv": [12.47, 12.47],
        "kva": [1000.0, 1000.0],
        "tap": [1.0, 1.0],
        "%r": [0.2, 0.2],
    }
    several = {"buses": "bus", "conns": "conn", "kvs": "kv", "kvas": "kva", "taps": "tap", "%rs": "%r"}
    phases, winding, xhl = 3, 0, 7.0
    for key, text in element.properties:
        if key == "wdg":
            winding = int(text) - 1
        elif key in both:
            both[key][winding] = text if key in ("bus", "conn") else number(text)
        elif key in several:
            numeric = key not in ("buses", "conns")
            both[several[key]] = [number(w) if numeric else w for w in words(text)]
        elif key == "%loadloss":
            both["%r"] = [number(text) / 2] * 2
        elif key == "xhl":
            xhl = number(text)
        elif key == "phases":
            phases = int(text)
        elif key not in IGNORED and (key, text) != ("windings", "2"):
            _refuse(element, key, text)
    if both["kva"][0] != both["kva"][1]:
        _refuse(element, "kvas", str(both["kva"]))
    delta = [conn.lower().startswith(("d", "ll")) for conn in both["conn"]]
    # between wye and delta the high-voltage side leads by 30 degrees
    turn = -1 if delta[0] != delta[1] and delta[int(both["kv"][1] > both["kv"][0])] else 1
    sides = [_winding(bus, phases, is_delta, turn) for bus, is_delta in zip(both["bus"], delta, strict=True)]
    root = [1.0 if is_delta or phases == 1 else np.sqrt(3) for is_delta in delta]
    line = [np.sqrt(3) if phases == 1 and not is_delta else 1.0 for is_delta in delta]
    return [
        {
            "name": element.name,
            "from_node": sides[0][k][0],
            "from_end": sides[0][k][1],
            "to_node": sides[1][k][0],
            "to_end": sides[1][k][1],
            "from_kv": both["kv"][0] / root[0],
            "to_kv": both["kv"][1] / root[1],
            "rating_kva": both["kva"][0] / phases,
            "r_pu": sum(both["%r"]) / 100,
            "x_pu": xhl / 100,
            "from_tap": both["tap"][0],
            "to_tap": both["tap"][1],
            "line_kv": (both["kv"][0] * line[0], both["kv"][1] * line[1]),
        }
        for k in range(phases)
    ]


def _winding(bus: str, phases: int, delta: bool, turn: int) -> list[tuple[str | None, str | None]]:
    nodes = _terminal(bus, phases + 1 if phases == 1 or not delta else phases)
    if not delta or phases == 1:
        return [(nodes[k], nodes[phases]) for k in range(phases)]
    return [(nodes[k], nodes[(k + turn) % phases]) for k in range(phases)]


def _regulator(element: Element, units: list[Row], taps: Mapping[str, int]) -> Row:
    value = {"vreg": 120.0, "band": 3.0, "ptratio": 60.0, "ctprim": 300.0, "r": 0.0, "x": 0.0}
    name = ""
    for key, text in element.properties:
        if key == "transformer":
            name = text.lower()
        elif key in value:
            value[key] = number(text)
        elif key not in IGNORED and (key, text) != ("winding", "2"):
            _refuse(element, key, text)
    at = [k for k, row in enumerate(units) if row["name"] == name]
    if not at:
        raise CaseError(f"regcontrol.{element.name} controls transformer {name!r}, which is not defined.")
    position = taps.get(name, (units[at[0]]["to_tap"] - 1) / STEP)
    if abs(position - round(position)) > 1e-6 or abs(position) > TAP_MAX:
        raise CaseError(f"transformer.{name}: the tap {position:g} is no position from -{TAP_MAX} to {TAP_MAX}.")
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


def _shunt(element: Element, keys: Mapping[str, float]) -> tuple[dict[str, float], dict[str, str], list[Row]]:
    """What loads and capacitors share: numbers, words, and one row per phase with nodes and rated voltage."""
    value, text_of = dict(keys), {"bus1": "", "conn": "wye", "model": "1", "zipv": ""}
    for key, text in element.properties:
        if key in value:
            value[key] = number(text)
        elif key in text_of:
            text_of[key] = unquote(text).lower()
        elif key not in IGNORED:
            _refuse(element, key, text)
    phases, delta = int(value["phases"]), text_of["conn"].startswith(("d", "ll"))
    if phases not in (1, 3):
        _refuse(element, "phases", str(phases))
    ends = _winding(text_of["bus1"], phases, delta, 1)
    kv = value["kv"] / (np.sqrt(3) if phases == 3 and not delta else 1.0)
    return value, text_of, [{"name": element.name, "node": a, "end": b, "kv": kv} for a, b in ends]


def _capacitor(element: Element) -> list[Row]:
    value, _, rows = _shunt(element, {"phases": 3, "kvar": 1200.0, "kv": 12.47})
    return [row | {"q_kvar": value["kvar"] / len(rows)} for row in rows]


def _load(element: Element) -> list[Row]:
    defaults = {"phases": 3, "kw": 10.0, "kvar": 5.0, "kv": 12.47, "vminpu": 0.95, "vmaxpu": 1.05, "vlowpu": 0.5}
    value, text, rows = _shunt(element, defaults | {"cvrwatts": 1.0, "cvrvars": 2.0})
    if text["model"] == "4" and {value["cvrwatts"], value["cvrvars"]} <= EXPONENT.keys():
        shares = EXPONENT[value["cvrwatts"]] + EXPONENT[value["cvrvars"]]
    elif text["model"] == "8":
        z_p, i_p, _, z_q, i_q, _, _ = (float(w) for w in words(text["zipv"]))
        shares = [z_p, i_p, z_q, i_q]
    elif text["model"] in SHARES:
        shares = SHARES[text["model"]]
    else:
        _refuse(element, "model", text["model"])
    law = dict(zip(("z_p", "i_p", "z_q", "i_q"), shares, strict=True))
    law |= {"v_min_pu": value["vminpu"], "v_max_pu": value["vmaxpu"], "v_low_pu": value["vlowpu"]}
    each = {"p_kw": value["kw"] / len(rows), "q_kvar": value["kvar"] / len(rows)}
    return [row | each | law for row in rows]
