"""Generators and photovoltaic systems of OpenDSS scripts at their operating point: loads of negative power.

They hold their power within vminpu and vmaxpu, and are constant impedances beyond.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from powerzoo_jax.cases.readers.opendss.script import Element, Script
from powerzoo_jax.cases.readers.opendss.shunts import phase_rows
from powerzoo_jax.cases.readers.opendss.values import Bus
from powerzoo_jax.cases.threephase.case import Row

TERMINAL: dict[str, Any] = {
    "bus1": Bus("", ()),
    "conn": False,
    "phases": 3,
    "kv": None,
    "vminpu": 0.9,
    "vmaxpu": 1.1,
}
NO_VOLTAGE_PU = 1e-6  # not 0, whose inverse is not finite


def generator_rows(script: Script, element: Element) -> list[Row]:
    """Rows of a generator of constant power.

    kvar follows from the power factor whenever kW or pf is given, and the power factor from kvar.
    """
    value: dict[str, Any] = TERMINAL | {"status": "variable"}
    kw, kvar, factor, rated_for = 1000.0, 60.0, 0.88, 3
    for key, entry, given in (entry for group in script.values(element) for entry in group):
        value[key] = entry
        rated_for = value["phases"] if key in ("kv", "conn") else rated_for
        if key == "kvar":
            kvar, power = entry, float(np.hypot(kw, entry))
            factor = kw / power * (-1.0 if kw * kvar < 0 else 1.0) if power else 1.0
        elif key in ("kw", "pf"):
            kw, factor = (entry, factor) if key == "kw" else (kw, entry)
            if factor == 0:
                element.refuse(given, "kvar follows from a power factor of 0. Give kW, then kvar.")
            kvar = float(np.copysign(kw * np.sqrt(1 / factor**2 - 1), kw * factor))
    if (rated_for == 1) != (value["phases"] == 1):
        element.fail("kv stands before phases, and OpenDSS takes it for that of three. Put phases first.")
    scale = script.generation_factor if value["status"] == "variable" else 1.0
    return _rows(script, element, value, scale * kw, scale * kvar)


def pv_rows(script: Script, element: Element) -> list[Row]:
    """Rows of a photovoltaic system with an ideal inverter.

    P = irradiance Pmpp, at the most %Pmpp of Pmpp, and 0 below the cut-out power of the inverter; Q by the power factor
    or by kvar, whichever is given last; P gives way to Q where the inverter's rating is exceeded, or Q to P.
    """
    value: dict[str, Any] = TERMINAL | {"irradiance": 1.0, "pmpp": 500.0, "%pmpp": 100.0, "pf": 1.0, "kvar": 0.0}
    value |= {"kva": 500.0, "%cutin": 20.0, "%cutout": 20.0, "varfollowinverter": False, "wattpriority": False}
    running, by_kvar = True, False
    for group in script.values(element):
        for key, entry, given in group:
            value[key] = entry
            by_kvar = key == "kvar" or (by_kvar and key != "pf")
            if key == "pf" and entry == 0:
                element.refuse(given, "kvar follows from a power factor of 0. Give kvar.")
        # OpenDSS works the state out after each command, from that before
        panel = value["irradiance"] * value["pmpp"]
        running = panel >= value["%cutout" if running else "%cutin"] * value["kva"] / 100
    if value["%cutin"] < value["%cutout"]:
        element.fail("%cutin is below %cutout: OpenDSS turns the inverter on and off by turns. Give them as one.")
    kw = min(panel, value["pmpp"] * value["%pmpp"] / 100) if running else 0.0
    kvar = value["kvar"] if by_kvar else kw * float(np.copysign(np.sqrt(1 / value["pf"] ** 2 - 1), value["pf"]))
    if value["varfollowinverter"] and not running:
        kvar = 0.0
    kva = value["kva"]
    kvar = float(np.clip(kvar, -kva, kva))
    if np.hypot(kw, kvar) > kva and value["wattpriority"]:
        kw = min(kw, kva)
        kvar = float(np.copysign(np.sqrt(kva**2 - kw**2), kvar))
    elif np.hypot(kw, kvar) > kva:
        kw = float(np.sqrt(kva**2 - kvar**2))
    return _rows(script, element, value, kw, kvar)


def _rows(script: Script, element: Element, value: dict[str, Any], kw: float, kvar: float) -> list[Row]:
    if value["conn"] and value["phases"] == 1:
        element.fail("OpenDSS takes a third of a delta of one phase beyond its voltages. Give conn=wye and both nodes.")
    if value["kv"] is None:
        element.fail("kv is not given. Give it: OpenDSS has two defaults for one element.")
    rows = phase_rows(element, value)
    script.note("their power is that of a load, negative, and scales with the loads", element.kind)
    each = {"name": str(element), "p_kw": -kw / len(rows), "q_kvar": -kvar / len(rows)}
    # below vminpu a current that falls with the voltage down to none is the impedance that begins there
    each |= {"v_min_pu": value["vminpu"], "v_max_pu": value["vmaxpu"], "v_low_pu": NO_VOLTAGE_PU}
    each |= dict.fromkeys(("z_p", "i_p", "z_q", "i_q"), 0.0)
    return [row | each for row in rows]
