"""Loads of OpenDSS scripts: the rows of their phases, with the law of their voltage dependence."""

from __future__ import annotations

from typing import Any

import numpy as np

from powerzoo_jax.cases.readers.opendss.script import Element, Script
from powerzoo_jax.cases.readers.opendss.shunts import phase_rows
from powerzoo_jax.cases.readers.opendss.values import Bus
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
