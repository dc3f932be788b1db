"""A case of any kind as named arrays, the content of its npz: `bus.id`, `line.r_ohm`, `name`, ..."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np


def flatten(case: Any, tables: Mapping[str, type]) -> dict[str, np.ndarray]:
    """Arrays of a case: its name, base, citation and notes, and every column of its tables."""
    arrays = {
        "name": np.array(case.name),
        "base_mva": np.array(case.base_mva, np.float64),
        "citation": np.array(case.citation),
        "notes": np.array(case.notes, dtype=np.str_),
    }
    for table in tables:
        rows = getattr(case, table)
        arrays |= {f"{table}.{column.name}": getattr(rows, column.name) for column in fields(rows)}
    return arrays


def rebuild(arrays: Mapping[str, np.ndarray], tables: Mapping[str, type]) -> dict[str, Any]:
    """Keywords of the case that `flatten` took apart."""

    def columns(table: str) -> dict[str, np.ndarray]:
        return {key.partition(".")[2]: value for key, value in arrays.items() if key.startswith(f"{table}.")}

    head = {
        "name": str(arrays["name"]),
        "base_mva": float(arrays["base_mva"]),
        "citation": str(arrays["citation"]),
        "notes": tuple(str(note) for note in arrays["notes"]),
    }
    return head | {table: kind(**columns(table)) for table, kind in tables.items()}
