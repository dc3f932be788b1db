"""Cases under the names of the contract: those that its tasks vary, and MATPOWER's own."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from powerzoo_jax.base.errors import unknown
from powerzoo_jax.cases import Case, ThreePhaseCase, load_feeder
from powerzoo_jax.cases import list_cases as list_core_cases
from powerzoo_jax.cases import load_case as load_core_case

CaseMeta = Case
VARIANTS = ("case5", "case14", "case118", "case300")  # the contract's own, "pz_" before them in the core
FEEDERS = {"Case123": "ieee123"}  # three phases
NAMES = (
    *("Case5", "Case14", "Case29GB", "Case33bw", "Case118", "Case118zh", "Case123", "Case141", "Case300"),
    *("Case533mt_hi", "Case533mt_lo", "Case1354pegase", "Case2224GB", "Case2383wp"),
)


def load_case(case: str | int | os.PathLike[str]) -> Case:
    """A case by number, by name in any letter case ("Case5"), or out of a MATPOWER .m file by path.

    Case5, Case14, Case118 and Case300 are the contract's variants; `powerzoo_jax.load_case` has MATPOWER's own.
    Raises ValueError for an unknown name, FileNotFoundError for a missing file, CaseError for one that is unusable.
    """
    return load_core_case(core_name(case))


def core_name(case: str | int | os.PathLike[str]) -> str:
    """Name in the core of a case named as in the contract; the path of a .m file stays."""
    text = os.fspath(case) if isinstance(case, os.PathLike) else str(case)
    if text.endswith(".m"):
        return text
    name = text.strip().lower()
    name = name if name.startswith(("case", "pz_")) else f"case{name}"
    return f"pz_{name}" if name in VARIANTS else name


def list_cases() -> tuple[str, ...]:
    """Names that `load_case` knows."""
    return tuple(name for name in list_core_cases() if not name.startswith("pz_"))


def case_on_demand(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module that offers Case5() and its like: functions that load a case."""

    def lookup(name: str) -> Any:
        if not name.startswith("Case"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        if name not in NAMES:
            raise AttributeError(unknown("case", name, NAMES))

        def load() -> Case | ThreePhaseCase:
            return load_feeder(FEEDERS[name]) if name in FEEDERS else load_case(name)

        load.__name__ = load.__qualname__ = name
        return load

    return lookup
