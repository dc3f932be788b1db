"""Reader of OpenDSS feeders: the subset that three-phase distribution feeders are written in.

Lines by code, matrix or sequence values, switches, two-winding transformers in wye and delta, regulators with their
controls, capacitors, and loads of the models 1 (power), 2 (impedance), 4 (CVR), 5 (current) and 8 (ZIP). Properties
take effect in the order of the script, as in OpenDSS. `dssrules` and `dsscommands` list what happens to every property
and command: it is applied, noted in the case, or refused by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import CaseError, excerpt
from powerzoo_jax.base.textfile import MAX_MB, require_file, too_large
from powerzoo_jax.cases.readers.opendss.script import CIRCUIT, Element, Script, parse
from powerzoo_jax.cases.readers.opendss.lines import line_rows
from powerzoo_jax.cases.readers.opendss.rules import ANTIFLOAT
from powerzoo_jax.cases.readers.opendss.terminal import winding
from powerzoo_jax.cases.readers.opendss.values import Bus
from powerzoo_jax.cases.threephase.case import Row, ThreePhaseCase, assemble

# Values of properties that a script leaves out are the defaults of OpenDSS: 115 kV and 2,000 MVA for a source, 12.47 kV
# and 1,000 kVA for a transformer, 1,200 kvar for a capacitor, 10 kW at a power factor of 0.88 for a load.
STEP = 0.2 / 32  # a regulator has 32 steps over +-10 %
TAP_MAX = 16  # so many of them on either side of neutral
SHARES = {1: [0.0, 0.0, 0.0, 0.0], 2: [1.0, 0.0, 1.0, 0.0], 5: [0.0, 1.0, 0.0, 1.0]}  # z_p, i_p, z_q, i_q
EXPONENT = {0: [0.0, 0.0], 1: [0.0, 1.0], 2: [1.0, 0.0]}  # of the voltage in model 4 -> shares z, i
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
    path = Path(path)
    script = parse(path.name, read or _folder(path.parent, outside, max_mb))
    if len(script.circuits) != 1:
        raise CaseError(f"{path.name} defines {len(script.circuits)} circuits. Give a master script that defines one.")
    units = [row for e in script.of("transformer") for row in _transformer(script, e)]
    if units:
        script.note(ANTIFLOAT, "transformer.ppm_antifloat")
    source = _source(script, script.elements[CIRCUIT])
    unit_rows: dict[str, list[int]] = {}
    for k, row in enumerate(units):
        unit_rows.setdefault(row["name"], []).append(k)
    regulators = [_regulator(script, e, units, unit_rows, taps or {}) for e in script.of("regcontrol")]
    rows: dict[str, list[Row]] = {
        "source": source,
        "regulator": regulators,
        "transformer": units,
        "line": line_rows(script, {line.lower() for line in opened}),
        "capacitor": [row for e in script.of("capacitor") for row in _capacitor(script, e)],
        "load": [row for e in script.of("load") for row in _load(script, e)],
    }
    notes = tuple(f"{reason} ({', '.join(what)})" for reason, what in script.notes.items())
    case = assemble(name or script.circuits[0], citation, rows, script.voltage_bases, notes)
    _refuse_open_ends(script, case)
    return case


def _folder(folder: Path, outside: bool, max_mb: float | None) -> Callable[[str], str]:
    """Reader of the files of a folder by their path from it, up to a sum of their sizes."""
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
        return path.read_text(encoding="latin-1")

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


def _source(script: Script, element: Element) -> list[Row]:
    value = {"basekv": 115.0, "pu": 1.0, "angle": 0.0, "mvasc3": 2000.0, "mvasc1": 2100.0}
    z1, z0 = _short_circuit(element, value)
    ohm = {"r1": z1.real, "x1": z1.imag, "r0": z0.real, "x0": z0.imag}
    bus, given_as = Bus("sourcebus", ()), ""
    for group in script.values(element):
        for key, entry, given in group:
            specified = "mvasc" if key.startswith("mvasc") else "ohm" if key in ohm else ""
            if specified and given_as not in ("", specified):
                element.refuse(given, "the source is given by ohm and by short-circuit powers. Give one of them.")
            given_as = specified or given_as
            if key == "bus1":
                bus = entry
            elif key in value:
                value[key] = entry
            elif key in ohm:
                ohm[key] = entry
        if given_as != "ohm":
            z1, z0 = _short_circuit(element, value)
            ohm = {"r1": z1.real, "x1": z1.imag, "r0": z0.real, "x0": z0.imag}
    z1, z0 = complex(ohm["r1"], ohm["x1"]), complex(ohm["r0"], ohm["x0"])
    z = np.full((3, 3), (z0 - z1) / 3) + np.eye(3) * z1
    nodes = [node for node, _ in winding(element, "bus1", bus, 3, delta=False)]
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


def _short_circuit(element: Element, value: Mapping[str, float]) -> tuple[complex, complex]:
    """Z1 and Z0 [ohm] of a source by its short-circuit powers, with X1 / R1 = 4 and X0 / R0 = 3.

    |2 Z1 + Z0| = 3 V / I1 with the single-phase fault current I1 fixes R0.
    """
    kv, mva3, mva1 = value["basekv"], value["mvasc3"], value["mvasc1"]
    x1 = kv * kv / mva3 / np.sqrt(1 + 1 / 16)
    r1 = x1 / 4
    fault = 3 * kv * kv / mva1
    a, b, c = 10.0, 4 * (r1 + 3 * x1), 4 * (r1 * r1 + x1 * x1) - fault * fault
    if c > 0:
        element.fail(f"mvasc1={mva1:g} asks for a negative zero-sequence impedance at mvasc3={mva3:g}. Give both.")
    r0 = (-b + np.sqrt(b * b - 4 * a * c)) / (2 * a)
    return complex(r1, x1), complex(r0, 3 * r0)


def _transformer(script: Script, element: Element) -> list[Row]:
    """One row per phase; a three-phase delta on the high-voltage side leads by its turn of the phases."""
    both: dict[str, list[Any]] = {"bus": [Bus("", ())] * 2, **_new_windings()}
    several = {"buses": "bus", "conns": "conn", "kvs": "kv", "kvas": "kva", "taps": "tap", "%rs": "%r"}
    phases, at, xhl = 3, 0, 7.0
    for key, value, _ in (entry for group in script.values(element) for entry in group):
        if key == "windings":
            both |= _new_windings()  # what is given before is lost in OpenDSS as well
        elif key == "wdg":
            at = value - 1
        elif key == "kva":
            both[key] = [value] * 2
        elif key in both:
            both[key][at] = value
        elif key in several:
            both[several[key]], at = value, 1  # OpenDSS stays at the last winding of an array
        elif key == "%loadloss":
            both["%r"] = [value / 2] * 2
        elif key in ("xhl", "x12"):
            xhl = value
        elif key == "phases":
            phases = value
    if both["kva"][0] != both["kva"][1]:
        element.fail(f"kvas={both['kva']}: the windings have different ratings. Give both one, and %rs on it.")
    # between wye and delta the high-voltage side leads by 30 degrees
    delta = both["conn"]
    turn = -1 if delta[0] != delta[1] and delta[int(both["kv"][1] > both["kv"][0])] else 1
    sides = [winding(element, "bus", bus, phases, d, turn) for bus, d in zip(both["bus"], delta, strict=True)]
    root = [1.0 if d or phases == 1 else np.sqrt(3) for d in delta]
    line = [np.sqrt(3) if phases == 1 and not d else 1.0 for d in delta]
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


def _new_windings() -> dict[str, list[Any]]:
    return {
        "conn": [False, False],
        "kv": [12.47, 12.47],
        "kva": [1000.0, 1000.0],
        "tap": [1.0, 1.0],
        "%r": [0.2, 0.2],
    }


def _regulator(
    script: Script, element: Element, units: list[Row], unit_rows: Mapping[str, list[int]], taps: Mapping[str, int]
) -> Row:
    """One regulator; `unit_rows` are the rows of the phases of a transformer, by its name."""
    value: dict[str, Any] = {
        **{"transformer": "", "winding": 1, "vreg": 120.0, "band": 3.0},
        **{"ptratio": 60.0, "ctprim": 300.0, "r": 0.0, "x": 0.0},
    }
    value |= {key: entry for group in script.values(element) for key, entry, _ in group}
    name = value["transformer"]
    at = unit_rows.get(name, [])
    if not at:
        element.fail(f"it controls transformer {excerpt(name)!r}, which is not defined. Check the name.")
    if value["winding"] == 1:
        element.fail("it regulates winding 1, the default. Give winding=2, and model the transformer so.")
    position = taps.get(name, (units[at[0]]["to_tap"] - 1) / STEP)
    if abs(position - round(position)) > 1e-6 or abs(position) > TAP_MAX:
        raise CaseError(
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


def _shunt_rows(element: Element, value: Mapping[str, Any]) -> list[Row]:
    """Rows of a load or a capacitor: one row per phase with nodes and rated voltage."""
    phases, delta = value["phases"], value["conn"]
    ends = winding(element, "bus1", value["bus1"], phases, delta)
    kv = value["kv"] / (np.sqrt(3) if phases == 3 and not delta else 1.0)
    return [{"name": element.name, "node": a, "end": b, "kv": kv} for a, b in ends]


def _capacitor(script: Script, element: Element) -> list[Row]:
    value: dict[str, Any] = {"bus1": Bus("", ()), "conn": False, "phases": 3, "kvar": 1200.0, "kv": 12.47}
    value |= {key: entry for group in script.values(element) for key, entry, _ in group}
    if element.model and value["conn"] and value["phases"] == 1:
        element.refuse(element.model, "OpenDSS copies a delta capacitor of one phase wrongly. Write it out.")
    rows = _shunt_rows(element, value)
    ground = {} if value["conn"] else {"end": None}  # whatever node follows those of the phases
    return [row | ground | {"q_kvar": value["kvar"] / len(rows)} for row in rows]


def _load(script: Script, element: Element) -> list[Row]:
    groups = script.values(element)
    value: dict[str, Any] = {"bus1": Bus("", ()), "conn": False, "phases": 3, "kv": 12.47, "model": 1, "zipv": None}
    value |= {"vminpu": 0.95, "vmaxpu": 1.05, "vlowpu": 0.5, "cvrwatts": 1, "cvrvars": 2, "status": "variable"}
    value |= {key: entry for group in groups for key, entry, _ in group}
    shares = value["zipv"] if value["model"] == 8 else SHARES.get(value["model"])
    if value["model"] == 4:
        script.note(
            "the power that OpenDSS gives CVR loads beyond vminpu and vmaxpu is not represented", "load.model=4"
        )
        shares = EXPONENT[value["cvrwatts"]] + EXPONENT[value["cvrvars"]]
    if element.model and value["conn"] and value["phases"] == 3:
        element.refuse(element.model, "OpenDSS copies a three-phase delta load wrongly. Write the load out.")
    if shares is None:
        element.fail("model=8 without zipv. Give the ZIP coefficients.")
    law = dict(zip(("z_p", "i_p", "z_q", "i_q"), shares, strict=True))
    law |= {"v_min_pu": value["vminpu"], "v_max_pu": value["vmaxpu"], "v_low_pu": value["vlowpu"]}
    rows, (kw, kvar) = _shunt_rows(element, value), _demand(element, groups)
    factor = script.load_factor if value["status"] == "variable" else 1.0
    each = {"p_kw": kw * factor / len(rows), "q_kvar": kvar * factor / len(rows)}
    return [row | each | law for row in rows]


def _demand(element: Element, groups: list[list[tuple[str, Any, Any]]]) -> tuple[float, float]:
    """kW and kvar of a load after the commands that concern it.

    kW is given with a power factor, 0.88 to begin with, until kvar is given, and again when kW is given after it. Each
    command ends with the power factor that its kW and kvar have, negative where kvar is.
    """
    kw, kvar, factor, by_factor = 10.0, 0.0, 0.88, True
    for group in groups:
        for key, value, _ in group:
            if key == "kw":
                kw, by_factor = value, True
            elif key == "kvar":
                kvar, by_factor = value, False
            elif key == "pf":
                factor = value
        if by_factor and factor == 0:
            element.fail("kW follows from a power factor of 0. Give kvar after kW.")
        if by_factor:
            kvar = kw * float(np.copysign(np.sqrt(1 / factor**2 - 1), factor))
        else:
            power = float(np.hypot(kw, kvar))
            factor = float(np.copysign(abs(kw) / power, kvar)) if power else factor
    return kw, kvar
