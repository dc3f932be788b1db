"""Grid files by their ending: MATPOWER `.m`, OpenDSS `.dss`, pandapower `.json`; and the names of shipped cases."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from powerzoo_jax.base.errors import CaseError, Problem, unknown
from powerzoo_jax.cases.case import Case
from powerzoo_jax.cases.library import list_cases, load_case
from powerzoo_jax.cases.readers.matpower import read_matpower, scan_matpower
from powerzoo_jax.cases.readers.opendss import read_opendss
from powerzoo_jax.cases.readers.pandapower import convert_pandapower
from powerzoo_jax.cases.readers.pandapower.saved import load_net
from powerzoo_jax.cases.threephase.case import ThreePhaseCase
from powerzoo_jax.cases.threephase.library import is_feeder, load_feeder
from powerzoo_jax.cases.threephase.validate import validate_threephase
from powerzoo_jax.cases.validate import assert_valid, validate


def scan_grid(what: Any, *, opf: bool | None = None) -> tuple[str, Case | ThreePhaseCase | None, list[Problem]]:
    """Name, case (None when no table can be read) and problems of a file, a shipped name, a case or a net.

    opf:  of a pandapower net, what `from_pandapower` makes of it

    The rules run on whatever was read, so that mistakes of format and of content come together. Raises DataMissing or
    CaseError when there is nothing to read.
    """
    if isinstance(what, ThreePhaseCase):
        return what.name, what, validate_threephase(what)
    if isinstance(what, Case):
        return what.name, what, validate(what)
    if not isinstance(what, str | Path):
        made = convert_pandapower(what, opf=opf) if isinstance(what, Mapping) and "bus" in what else load_case(what)
        return made.name, made, validate(made)
    path = Path(what)
    if is_feeder(what):
        feeder = read_opendss(path) if path.suffix.lower() == ".dss" else load_feeder(what)
        return feeder.name, feeder, validate_threephase(feeder)
    if path.suffix.lower() == ".m":
        name, case, problems = scan_matpower(path)
    elif path.suffix.lower() == ".json":
        case, problems = convert_pandapower(load_net(path), path.stem, opf=opf), []
        name = case.name
    elif path.exists():
        raise CaseError(f"{what} is neither a .m, a .dss nor a pandapower .json file. Export it as a MATPOWER case.")
    else:
        case, problems = _shipped(str(what)), []
        name = case.name
    return name, case, problems + (validate(case) if case is not None else [])


def read_grid(what: str | Path, *, opf: bool | None = None) -> Case | ThreePhaseCase:
    """Case of a grid file or of a shipped name, ready to be solved.

    opf:  of a pandapower net, what `from_pandapower` makes of it

    Raises DataMissing without the file, CaseError listing every problem of a grid that cannot be used.
    """
    path = Path(what)
    if path.suffix.lower() == ".m":
        case = read_matpower(path)
    else:
        _, found, _ = scan_grid(what, opf=opf)
        if isinstance(found, ThreePhaseCase):
            return found
        assert found is not None  # only the tables of a .m file can be missing
        case = found
    assert_valid(case)
    return case


def _shipped(name: str) -> Case:
    try:
        return load_case(name)
    except CaseError:
        raise
    except ValueError as err:
        raise CaseError(f"{unknown('case', name, list_cases())} A file of your own ends in .m, .dss or .json.") from err
