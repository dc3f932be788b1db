"""`check`: every problem of a grid file at once, each with its remedy."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import CaseError, Problem, render_problems, unknown
from powerzoo_jax.base.textfile import require_file
from powerzoo_jax.cases import (
    Case,
    ThreePhaseCase,
    convert_pandapower,
    list_cases,
    load_case,
    read_opendss,
    scan_matpower,
    validate,
    validate_threephase,
)
from powerzoo_jax.cases.readers.pandapower_file import check_net_file


def run(options: argparse.Namespace) -> int:
    """Print every problem of a case; 1 when there is an error among them."""
    name, case, problems = examine(options.case)
    if case is not None:
        print(_summary(case))
    if not problems:
        print("no problems found")
        return 0
    print(render_problems(name, problems))
    errors = sum(p.severity == "error" for p in problems)
    verdict = "cannot be used as it is" if errors else "can be used"
    print(f"{_count(errors, 'error')}, {_count(len(problems) - errors, 'warning')}: {name} {verdict}")
    return int(errors > 0)


def examine(what: str) -> tuple[str, Case | ThreePhaseCase | None, list[Problem]]:
    """Name, case (None when no table can be read) and problems of a file or a shipped case.

    The rules run on whatever was read, so that mistakes of format and of content come together. Raises DataMissing or
    CaseError when there is nothing to read.
    """
    path = Path(what)
    if path.suffix.lower() == ".dss":
        feeder = read_opendss(path)
        return feeder.name, feeder, validate_threephase(feeder)
    if path.suffix.lower() == ".m":
        name, case, problems = scan_matpower(path)
    elif path.suffix.lower() == ".json":
        case, problems = convert_pandapower(_load_net(path), path.stem), []
        name = case.name
    elif path.exists():
        raise CaseError(f"{what} is neither a .m, a .dss nor a pandapower .json file. Export it as a MATPOWER case.")
    else:
        case, problems = _shipped(what), []
        name = case.name
    return name, case, problems + (validate(case) if case is not None else [])


def _load_net(path: Path) -> Any:
    check_net_file(require_file(path, "pandapower net"))
    try:
        import pandapower
    except ImportError as err:
        message = (
            "Reading a .json net needs pandapower, which is not installed: pip install 'powerzoo-jax[pandapower]'."
        )
        raise ImportError(message) from err
    try:
        net = pandapower.from_json(str(path))
    except Exception as err:  # a file that is no net fails in as many ways as JSON has shapes
        raise CaseError(
            f"{path} cannot be read as a pandapower net: {err}. Save one with pandapower.to_json(net, path)."
        ) from err
    if not isinstance(net, pandapower.pandapowerNet):
        raise CaseError(f"{path} holds no pandapower net. Save one with pandapower.to_json(net, path).")
    return net


def _shipped(name: str) -> Case:
    try:
        return load_case(name)
    except CaseError:
        raise
    except ValueError as err:
        raise CaseError(f"{unknown('case', name, list_cases())} A file of your own ends in .m, .dss or .json.") from err


def _summary(case: Case | ThreePhaseCase) -> str:
    if isinstance(case, ThreePhaseCase):
        load = float(np.sum(case.load.p_kw))
        return (
            f"{case.name}: {case.n_node} nodes, {len(case.line)} lines, {len(case.transformer)} transformer units, "
            f"{len(case.regulator)} regulators, load {load:g} kW, base {case.base_mva:g} MVA"
        )
    load, supply = float(np.sum(case.load.p_mw)), float(np.sum(case.unit.p_max_mw[case.unit.in_service]))
    return (
        f"{case.name}: {case.n_bus} buses, {case.n_branch} branches, {len(case.unit)} units, "
        f"load {load:g} MW, capacity {supply:g} MW, base {case.base_mva:g} MVA"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
