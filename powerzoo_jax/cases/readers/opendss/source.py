"""Source of an OpenDSS circuit: a balanced voltage behind its short-circuit impedance."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from powerzoo_jax.cases.readers.opendss.script import Element, Script
from powerzoo_jax.cases.readers.opendss.terminal import winding
from powerzoo_jax.cases.readers.opendss.values import Bus
from powerzoo_jax.cases.threephase.case import Row

SPECIFIED = {
    "ohm": ("r1", "x1", "r0", "x0"),
    "short-circuit powers": ("mvasc3", "mvasc1"),
    "short-circuit currents": ("isc3", "isc1"),
}


def source_rows(script: Script, element: Element) -> list[Row]:
    value = {"basekv": 115.0, "pu": 1.0, "angle": 0.0, "mvasc3": 2000.0, "mvasc1": 2100.0}
    value |= _currents(value) | {"x1r1": 4.0, "x0r0": 3.0}
    z1, z0 = _short_circuit(element, value)
    ohm = {"r1": z1.real, "x1": z1.imag, "r0": z0.real, "x0": z0.imag}
    bus, given_as, base_hz = Bus("sourcebus", ()), "", script.frequency_hz
    for group in script.values(element):
        for key, entry, given in group:
            specified = next((kind for kind, keys in SPECIFIED.items() if key in keys), "")
            if specified and given_as not in ("", specified):
                element.refuse(given, f"the source is given by {given_as} and by {specified}. Give one of them.")
            given_as = specified or given_as
            if key == "bus1":
                bus = entry
            elif key == "basefreq":
                base_hz = entry
            elif key in value:
                value[key] = entry
            elif key in ohm:
                ohm[key] = entry
        if given_as == "short-circuit currents":
            root = np.sqrt(3) * value["basekv"] / 1e3
            value |= {"mvasc3": root * value["isc3"], "mvasc1": root * value["isc1"]}
        else:
            value |= _currents(value)
        if given_as != "ohm":
            z1, z0 = _short_circuit(element, value)
            ohm = {"r1": z1.real, "x1": z1.imag, "r0": z0.real, "x0": z0.imag}
    times = script.frequency_hz / base_hz
    z1, z0 = complex(ohm["r1"], ohm["x1"] * times), complex(ohm["r0"], ohm["x0"] * times)
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


def _currents(value: Mapping[str, float]) -> dict[str, float]:
    """Short-circuit currents [A] that belong to the powers."""
    return {f"isc{n}": 1e3 * value[f"mvasc{n}"] / (np.sqrt(3) * value["basekv"]) for n in (1, 3)}


def _short_circuit(element: Element, value: Mapping[str, float]) -> tuple[complex, complex]:
    """Z1 and Z0 [ohm] of a source by its short-circuit powers and its ratios X1 / R1 and X0 / R0.

    |2 Z1 + Z0| = 3 V / I1 with the single-phase fault current I1 fixes R0.
    """
    kv, mva3, mva1, one, zero = (value[key] for key in ("basekv", "mvasc3", "mvasc1", "x1r1", "x0r0"))
    x1 = kv * kv / mva3 / np.sqrt(1 + 1 / one**2)
    r1 = x1 / one
    fault = 3 * kv * kv / mva1
    a, b, c = 1 + zero**2, 4 * (r1 + zero * x1), 4 * (r1 * r1 + x1 * x1) - fault * fault
    if c > 0:
        element.fail(f"mvasc1={mva1:g} asks for a negative zero-sequence impedance at mvasc3={mva3:g}. Give both.")
    r0 = (-b + np.sqrt(b * b - 4 * a * c)) / (2 * a)
    return complex(r1, x1), complex(r0, zero * r0)
