"""The shipped three-phase feeders by name."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from powerzoo_jax.base.errors import CaseError, unknown
from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.cases.readers.opendss import read_opendss
from powerzoo_jax.cases.threephase.case import ThreePhaseCase, from_arrays
from powerzoo_jax.cases.threephase.validate import assert_valid_feeder

SCRIPT = ".dss"
FEEDERS = Path(__file__).parents[1] / "tables" / "feeders"


def list_feeders() -> tuple[str, ...]:
    """Names that `load_feeder` knows."""
    return tuple(sorted((p.stem for p in FEEDERS.glob("*.npz")), key=lambda name: int(name.removeprefix("case"))))


def is_feeder(what: Any) -> bool:
    """Whether a three-phase feeder is meant: one itself, a .dss file, or one of the shipped names."""
    if isinstance(what, ThreePhaseCase):
        return True
    named = isinstance(what, str | int | os.PathLike)
    return named and (str(what).lower().endswith(SCRIPT) or _name_of(what) in list_feeders())


def _name_of(what: Any) -> str:
    return f"case{str(what).strip().lower().removeprefix('case').removeprefix('ieee')}"


def load_feeder(name_or_path: str | int | os.PathLike[str] | ThreePhaseCase) -> ThreePhaseCase:
    """Return a shipped three-phase feeder by name ("case123", "ieee123", 123), read a .dss file, or take one as it is.

    Raises ValueError for an unknown name and CaseError for a balanced network; a path raises as `read_opendss`, and
    CaseError with every error that `validate_threephase` finds. Shipped feeders are cached and read-only.
    """
    if isinstance(name_or_path, ThreePhaseCase):
        return name_or_path
    if not isinstance(name_or_path, int) and str(name_or_path).lower().endswith(SCRIPT):
        case = read_opendss(name_or_path)
        assert_valid_feeder(case)
        return case
    if str(name_or_path).lower().endswith((".m", ".json")):
        raise CaseError(f"{name_or_path} is a balanced network. Give cases.to_threephase(load_case(...)) of it.")
    name = _name_of(name_or_path)
    if name not in list_feeders():
        raise ValueError(unknown("feeder", name_or_path, list_feeders()))
    return _shipped(name)


@cache
def _shipped(name: str) -> ThreePhaseCase:
    return from_arrays(read_npz(FEEDERS / f"{name}.npz"))
