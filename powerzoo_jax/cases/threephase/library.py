"""The shipped three-phase feeders by name."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.cases.readers.opendss import read_opendss
from powerzoo_jax.cases.threephase.case import ThreePhaseCase, from_arrays
from powerzoo_jax.cases.threephase.validate import assert_valid_feeder

FEEDERS = Path(__file__).parents[1] / "tables" / "feeders"


def list_feeders() -> tuple[str, ...]:
    """Names that `load_feeder` knows."""
    return tuple(sorted((p.stem for p in FEEDERS.glob("*.npz")), key=lambda name: int(name.removeprefix("case"))))


def load_feeder(name_or_path: str | int | os.PathLike[str]) -> ThreePhaseCase:
    """Return a shipped three-phase feeder by name ("case123", "ieee123", 123), or read a .dss file by path.

    Raises ValueError for an unknown name; a path raises as `read_opendss`, and CaseError with every error that
    `validate_threephase` finds. Shipped feeders are cached and read-only.
    """
    text = os.fspath(name_or_path) if isinstance(name_or_path, os.PathLike) else str(name_or_path)
    if text.lower().endswith(".dss"):
        case = read_opendss(text)
        assert_valid_feeder(case)
        return case
    name = f"case{text.strip().lower().removeprefix('case').removeprefix('ieee')}"
    if name not in list_feeders():
        raise ValueError(unknown("feeder", name_or_path, list_feeders()))
    return _shipped(name)


@cache
def _shipped(name: str) -> ThreePhaseCase:
    return from_arrays(read_npz(FEEDERS / f"{name}.npz"))
