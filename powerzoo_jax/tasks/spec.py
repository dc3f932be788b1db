"""Task specifications: the type, and reading one from TOML."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path

from powerzoo_jax.base.errors import SettingsError, unknown
from powerzoo_jax.base.textfile import read_toml
from powerzoo_jax.base.types import TaskSpec as TaskSpec

# type of each key as TOML gives it
KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("id", "family", "case", "split"), (str,)),
    **dict.fromkeys(("version", "horizon"), (int,)),
    "dt_hours": (float, int),
    **dict.fromkeys(("agents", "cost_names", "cost_budget", "term_names", "term_weights"), (list,)),
    "overrides": (dict,),
}


def from_toml(path: str | Path) -> TaskSpec:
    """Read a TaskSpec from a TOML file whose keys are its fields; `overrides` is a table.

    Raises DataMissing when there is no such file, SettingsError (a ValueError) for a file that is no TOML and for an
    unknown or a missing key or a value of another type, naming it.
    """
    raw = read_toml(path, "task file")
    known = {f.name for f in fields(TaskSpec)}
    for key in raw:
        if key not in known:
            raise SettingsError(f"{path}: {unknown('key', key, known)}")
    missing = [f.name for f in fields(TaskSpec) if f.default is MISSING and f.name not in raw]
    if missing:
        raise SettingsError(f"{path}: missing key(s) {', '.join(missing)}. A task file gives every field of TaskSpec.")
    for key, value in raw.items():
        kinds = KINDS[key]
        if not isinstance(value, kinds) or isinstance(value, bool):
            names = " or ".join(kind.__name__ for kind in kinds)
            raise SettingsError(f"{path}: {key} = {value!r} must be of type {names}.")
        if isinstance(value, list):
            raw[key] = tuple(value)
    raw["overrides"] = tuple(sorted(raw.get("overrides", {}).items()))
    return TaskSpec(**raw)
