"""The shipped cases by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import CaseError, unknown
from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.cases.case import BranchTable, BusTable, Case, LoadTable, UnitTable, flatten, rebuild
from powerzoo_jax.cases.readers.matpower_exchange import from_matpower
from powerzoo_jax.cases.readers.pandapower import from_pandapower
from powerzoo_jax.cases.readers.pandapower.saved import load_net
from powerzoo_jax.cases.readers.pypsa import from_pypsa
from powerzoo_jax.cases.threephase.case import ThreePhaseCase
from powerzoo_jax.cases.threephase.library import is_feeder
from powerzoo_jax.cases.validate import assert_valid

FOLDER = Path(__file__).parent / "tables"
TABLES = {"bus": BusTable, "branch": BranchTable, "unit": UnitTable, "load": LoadTable}

VARIANT = "pz_"  # cases as the task definitions have them: ratings or minimum outputs that MATPOWER's files lack

# Its phases differ in load, or may, so that no single-phase network stands for it.
NOT_BALANCED = (
    ", which no single phase stands for: the task distribution_3phase takes it as case=, load_feeder reads it for "
    "solve_threephase."
)

# Asked for by name, and impossible: the reply names what serves the purpose instead.
NOT_OFFERED = {
    "case552gb": "No openly licensed source exists for a 552-bus table of Great Britain, so case552gb is not offered. "
    "Use case2224gb or case793gb, which model the same system and can be solved in AC."
}


def list_cases() -> tuple[str, ...]:
    """Names that `load_case` knows, by number and then by letter."""
    return tuple(sorted((p.stem for p in FOLDER.glob("*.npz")), key=_by_number))


def _by_number(name: str) -> tuple[int, str]:
    digits = "".join(c for c in name.removeprefix(VARIANT).removeprefix("case").partition("_")[0] if c.isdigit())
    return int(digits or 0), name


def is_net(value: Any) -> bool:
    """Whether a value is a net of pandapower or PyPSA, which no specification of a task can hold."""
    table = isinstance(value, Mapping) and "bus" in value and "ext_grid" in value
    return table or type(value).__module__.startswith("pypsa.")


def load_case(name_or_path: Any) -> Case:
    """The network that is meant: a shipped name, a file, a pandapower or PyPSA net, or a Case as it is.

    name_or_path:  "case33bw", "33bw", 118, "pz_case118"; the path of a MATPOWER .m or a pandapower .json file;
                   a net of pandapower or PyPSA

    Raises ValueError for an unknown name, DataMissing (a FileNotFoundError) for a missing file and CaseError for a
    file that cannot be read or that `validate` finds errors in (`read_matpower` reads it without the rules).
    Shipped cases are cached and read-only.

    Example:
        case = powerzoo_jax.load_case("case33bw")
        total_mw = case.load.p_mw.sum()  # 3.715
    """
    if isinstance(name_or_path, Case):
        return name_or_path
    if is_net(name_or_path):
        case = from_pandapower(name_or_path) if isinstance(name_or_path, Mapping) else from_pypsa(name_or_path)
        assert_valid(case)
        return case
    if is_feeder(name_or_path):
        name = name_or_path.name if isinstance(name_or_path, ThreePhaseCase) else name_or_path
        raise CaseError(f"{name} is a three-phase feeder{NOT_BALANCED}")
    text = os.fspath(name_or_path) if isinstance(name_or_path, os.PathLike) else str(name_or_path)
    if text.lower().endswith(".m"):
        return from_matpower(text)
    if text.lower().endswith(".json"):
        return load_case(load_net(Path(text)))
    if os.path.isfile(text):
        raise CaseError(f"{text} is neither a .m nor a pandapower .json file. Export it as a MATPOWER case.")
    name = text.strip().lower()
    name = name if name.startswith(("case", VARIANT)) else f"case{name}"
    if name in NOT_OFFERED:
        raise CaseError(NOT_OFFERED[name])
    if name not in list_cases():
        raise ValueError(unknown("case", name_or_path, list_cases()))
    return _shipped(name)


@cache
def _shipped(name: str) -> Case:
    return from_arrays(read_npz(FOLDER / f"{name}.npz"))


def to_arrays(case: Case) -> dict[str, np.ndarray]:
    """Flatten a case into named arrays, the content of its npz."""
    return flatten(case, TABLES) | ({"held": np.array(case.held, np.int64)} if case.held else {})


def from_arrays(arrays: dict[str, np.ndarray]) -> Case:
    """Rebuild a case from `to_arrays`."""
    return Case(**rebuild(arrays, TABLES), held=tuple(int(bus) for bus in arrays.get("held", ())))
