"""Generators, photovoltaic systems and storage of OpenDSS scripts at their operating point: loads of negative power.

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
    _check_rated(element, value, rated_for)
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


class _Storage:
    """A storage while its properties are taken; what follows from them is worked out after each command.

    value:      by property
    state:      1 discharging, 0 idling, -1 charging; it ends at an empty or a full store
    on:         the inverter runs
    reserve:    [kWh] at which discharging ends; 0 until the capacity or the share is given
    kvar_limit: that of a rating of 25 kVA until kVA is given, whatever kWrated is
    """

    def __init__(self) -> None:
        self.value: dict[str, Any] = TERMINAL | {"pf": 1.0, "kvar": 0.0, "kva": 25.0, "kwrated": 25.0, "kwhrated": 50.0}
        self.value |= {"%charge": 100.0, "%discharge": 100.0, "%kwrated": 100.0, "%idlingkw": 1.0, "kwhstored": 50.0}
        self.value |= {"%cutin": 0.0, "%cutout": 0.0, "%reserve": 20.0}
        self.value |= {"varfollowinverter": False, "wattpriority": False}
        self.state, self.on, self.by_kvar, self.rated_for = 0, True, False, 3
        self.reserve, self.kvar_limit, self.kva_given = 0.0, 25.0, False

    def take(self, key: str, entry: Any) -> None:
        value = self.value
        value[key] = entry
        if key in ("kv", "conn"):
            self.rated_for = value["phases"]
        elif key in ("kvar", "pf"):
            self.by_kvar = key == "kvar"
        elif key == "state":
            self.state = entry
        elif key == "kw":
            self.state = int(np.sign(entry))
            if entry:
                value["%discharge" if entry > 0 else "%charge"] = 100 * abs(entry) / value["kwrated"]
        elif key == "kva":
            self.kvar_limit, self.kva_given = entry, True
        elif key == "kwrated" and not self.kva_given:
            value["kva"] = entry
        elif key == "%stored":
            value["kwhstored"] = entry * value["kwhrated"] / 100
        elif key in ("kwhrated", "%reserve"):
            value["kwhstored"] = value["kwhstored"] if key == "%reserve" else entry
            self.reserve = value["kwhrated"] * value["%reserve"] / 100

    def settle(self) -> float:
        """Power [kW] to the grid, after the state and the inverter have followed from the energy and the cut-out."""
        value = self.value
        stored, idle = value["kwhstored"], value["%idlingkw"] * value["kwrated"] / 100
        if (self.state < 0 and stored >= value["kwhrated"]) or (self.state > 0 and stored <= self.reserve):
            self.state = 0
        share = {1: value["%discharge"], -1: value["%charge"]}.get(self.state, 0.0)
        kw = float(self.state * value["kwrated"] * share / 100) if self.state else -idle
        self.on = abs(kw) >= value["%cutout" if self.on else "%cutin"] * value["kva"] / 100
        if not self.on:
            self.state, kw = 0, -idle
        most = value["kwrated"] * value["%kwrated"] / 100
        if self.on:
            kw = min(kw, most) if self.state > 0 else max(kw, -most)
        return kw

    def power(self, element: Element, kw: float) -> tuple[float, float]:
        """kW and kvar within the limits of the inverter."""
        value, kva, limit = self.value, self.value["kva"], self.kvar_limit
        kvar = value["kvar"] if self.by_kvar else kw * float(np.sqrt(1 / value["pf"] ** 2 - 1)) * np.sign(value["pf"])
        if not self.by_kvar and self.state == 0 and kvar < -limit:
            element.fail("its idling losses ask for more kvar than its rating. Give kvar.")
        kvar = float(np.clip(kvar, -limit, limit))
        if value["varfollowinverter"] and not self.on:
            kvar = 0.0
        if np.hypot(kw, kvar) <= kva:
            return kw, kvar
        if kw > kva and self.state and value["wattpriority"]:
            return kva, 0.0
        by_power = self.state == 0 or value["wattpriority"]
        if (abs(kw) if by_power else abs(kvar)) > kva:
            element.fail("OpenDSS has no power for it: its rating is below what it has to hold. Give a larger kVA.")
        if by_power:
            return kw, float(np.copysign(np.sqrt(kva**2 - kw**2), kvar))
        return float(np.copysign(np.sqrt(kva**2 - kvar**2), kw)), kvar


def storage_rows(script: Script, element: Element) -> list[Row]:
    """Rows of a storage with an ideal inverter, as the script leaves it.

    It discharges with kW > 0, charges with kW < 0, and draws its idling losses else, also when it is empty or full.
    """
    storage, kw = _Storage(), 0.0
    for group in script.values(element):
        for key, entry, given in group:
            if key == "pf" and entry == 0:
                element.refuse(given, "kvar follows from a power factor of 0. Give kvar.")
            storage.take(key, entry)
        storage.settle()
    value = storage.value
    if value["%cutin"] < value["%cutout"]:
        element.fail("%cutin is below %cutout: OpenDSS turns the inverter on and off by turns. Give them as one.")
    for _ in range(3):  # each iteration of OpenDSS works the state out from the one before
        kw = storage.settle()
    _check_rated(element, value, storage.rated_for)
    return _rows(script, element, value, *storage.power(element, kw))


def _check_rated(element: Element, value: dict[str, Any], rated_for: int) -> None:
    if (rated_for == 1) != (value["phases"] == 1):
        element.fail("kv stands before phases, and OpenDSS takes it for that of three. Put phases first.")


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
