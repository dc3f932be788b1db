"""`list`, `show`, `check`: what there is, and what is wrong with a grid file."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import CaseError, Problem, render_problems, unknown
from powerzoo_jax.cases import Case, list_cases, load_case, read_matpower, validate
from powerzoo_jax.cli.table import render, render_pairs
from powerzoo_jax.data import get_info, list_datasets
from powerzoo_jax.tasks import list_tasks, make
from powerzoo_jax.tasks.registry import get_spec


def run_list(options: argparse.Namespace) -> int:
    """Print tasks, cases and data sets."""
    tasks = [get_spec(name) for name in list_tasks()]
    if options.json:
        content = {"tasks": list(list_tasks()), "cases": list(list_cases()), "datasets": list(list_datasets())}
        print(json.dumps(content, indent=2))
        return 0
    rows = [(f"{s.id}-v{s.version}", s.family, s.case, len(s.agents), s.horizon, f"{s.dt_hours:g}") for s in tasks]
    print(render(("task", "family", "case", "agents", "steps", "step [h]"), rows))
    print(f"\ncases: {', '.join(list_cases())}")
    print("\n" + render(("data set", "licence", "content"), [_dataset_row(name) for name in list_datasets()]))
    return 0


def _dataset_row(name: str) -> tuple[str, str, str]:
    info = get_info(name)
    return name, info.licence, info.title


def run_show(options: argparse.Namespace) -> int:
    """Print everything that defines a task."""
    sim = make(options.task, split=options.split)
    spec, dims = dataclasses.asdict(sim.spec), dataclasses.asdict(sim.env.dims)
    if options.json:
        print(json.dumps({"spec": _plain(spec), "dims": dims, "fields": list(sim.env.fields.names)}, indent=2))
        return 0
    print(render_pairs([(k, _text(v)) for k, v in spec.items() if k != "overrides"]))
    print("\nkeywords of `make`")
    print(render_pairs([(f"  {k}", _text(v)) for k, v in spec["overrides"]]))
    print("\nsizes\n" + render_pairs([(f"  {k}", v) for k, v in dims.items()]))
    blocks = [(b.key, len(b.names), f"[{b.low:g}, {b.high:g}]", b.names[0]) for b in sim.env.fields.blocks]
    print("\n" + render(("observation", "fields", "bounds", "first"), blocks))
    return 0


def _plain(value: Any) -> Any:
    """Values that JSON can hold: an unlimited budget is null."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and math.isinf(value) else value


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def run_check(options: argparse.Namespace) -> int:
    """Print every problem of a case; 1 when there is an error among them."""
    case = _read(options.case)
    problems = validate(case)
    print(_summary(case))
    if not problems:
        print("no problems found")
        return 0
    print(render_problems(case.name, problems))
    return int(any(_is_error(p) for p in problems))


def _is_error(problem: Problem) -> bool:
    return problem.severity == "error"


def _read(name: str) -> Case:
    """The case as it stands: for a file the reader alone, so that the rules can report all they find."""
    if name.lower().endswith(".m"):
        return read_matpower(Path(name))
    if Path(name).is_file():
        raise CaseError(f"{name} is not a .m file, the only format that can be read. Export it as a MATPOWER case.")
    bare = name.lower().removeprefix("case")
    if f"case{bare}" not in list_cases():
        raise CaseError(f"{unknown('case', name, list_cases())} A file of your own ends in .m.")
    return load_case(name)


def _summary(case: Case) -> str:
    load, supply = float(np.sum(case.p_load_mw)), float(np.sum(case.unit.p_max_mw[case.unit.in_service]))
    return (
        f"{case.name}: {case.n_bus} buses, {case.n_branch} branches, {len(case.unit)} units, "
        f"load {load:g} MW, capacity {supply:g} MW, base {case.base_mva:g} MVA"
    )
