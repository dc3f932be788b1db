"""The case that a pandapower net was made from, kept in the net until something in its element tables changes.

Impedances go through ohm and percent there, so their last digits differ on the way back; a net that nobody has touched
gives its case back number by number instead.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from powerzoo_jax.cases.case import BranchTable, BusTable, Case, LoadTable, UnitTable

KEY = "powerzoo_case"  # entry of the net
TABLES = {"bus": BusTable, "branch": BranchTable, "unit": UnitTable, "load": LoadTable}


def keep_case(net: Any, case: Case) -> None:
    """Put a case into the net that was made from it, with a digest of the element tables as they are now."""
    parts = {
        table: {name: getattr(getattr(case, table), name).tolist() for name in getattr(case, table).written()}
        for table in TABLES
    }
    head = {"name": case.name, "base_mva": case.base_mva, "citation": case.citation, "notes": list(case.notes)}
    head["held"] = list(case.held)
    net[KEY] = {"digest": _digest(net), **head, **parts}


def unchanged_case(net: Any) -> Case | None:
    """Case that a net was made from; None for a net of other origin, and for one whose elements have changed."""
    kept = net.get(KEY)
    if not isinstance(kept, dict) or kept.get("digest") != _digest(net):
        return None
    tables: dict[str, Any] = {}
    for table, kind in TABLES.items():
        columns = {name: np.array(values) for name, values in kept[table].items()}
        if table == "unit" and len(columns["bus_id"]) == 0:
            columns["cost"] = columns["cost"].reshape(0, 1)
        tables[table] = kind(**columns)
    head = kept["name"], kept["base_mva"], kept["citation"]
    return Case(*head, **tables, notes=tuple(kept["notes"]), held=tuple(kept.get("held", ())))


def _digest(net: Any) -> str:
    """SHA-256 of the element tables, of the base and of the frequency of a net."""
    sha = hashlib.sha256(repr((float(net["sn_mva"]), float(net["f_hz"]))).encode())
    for key in sorted(key for key in net if not key.startswith(("_", "res_"))):
        table = net[key]
        if hasattr(table, "columns") and len(table.index):
            sha.update(repr((key, table.index.tolist())).encode())
            for column in sorted(table.columns):
                sha.update(repr((column, table[column].tolist())).encode())
    return sha.hexdigest()
