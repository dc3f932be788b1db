"""`check`: every problem of a grid file at once, each with its remedy."""

from __future__ import annotations

import argparse
import dataclasses

import numpy as np

from powerzoo_jax.base.errors import render_problems
from powerzoo_jax.cases import Case, ThreePhaseCase, scan_grid
from powerzoo_jax.cli.table import STDOUT, write_json


def run(options: argparse.Namespace) -> int:
    """Print every problem of a case; 1 when there is an error among them."""
    name, case, problems = scan_grid(options.case)
    errors = sum(p.severity == "error" for p in problems)
    if options.json:
        found = [dataclasses.asdict(problem) for problem in problems]
        write_json({"case": name, "usable": not errors, "problems": found}, STDOUT)
        return int(errors > 0)
    if case is not None:
        print(_summary(case))
    if not problems:
        print("no problems found")
        return 0
    print(render_problems(name, problems))
    verdict = "cannot be used as it is" if errors else "can be used"
    print(f"{_count(errors, 'error')}, {_count(len(problems) - errors, 'warning')}: {name} {verdict}")
    return int(errors > 0)


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
