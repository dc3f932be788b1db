"""Task specifications: the type, and reading one from TOML."""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.types import TaskSpec as TaskSpec


def from_toml(path: str | Path) -> TaskSpec:
    """Read a TaskSpec from a TOML file whose keys are its fields; `overrides` is a table.

    Raises ValueError for an unknown or a missing key, naming it.
    """
    with open(path, "rb") as file:
        raw: dict[str, Any] = tomllib.load(file)
    known = {f.name for f in fields(TaskSpec)}
    for key in raw:
        if key not in known:
            raise ValueError(f"{path}: {unknown('key', key, known)}")
    missing = [f.name for f in fields(TaskSpec) if f.default is MISSING and f.name not in raw]
    if missing:
        raise ValueError(f"{path}: missing key(s) {', '.join(missing)}. A task file gives every field of TaskSpec.")
    for key, value in raw.items():
        if isinstance(value, list):
            raw[key] = tuple(value)
    raw["overrides"] = tuple(sorted(raw.get("overrides", {}).items()))
    return TaskSpec(**raw)
