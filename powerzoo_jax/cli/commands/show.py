"""`list` and `show`: the tasks, cases and data sets there are, and the definition of a task."""

from __future__ import annotations

import argparse
import dataclasses
import math
from typing import Any

from powerzoo_jax.cases import list_cases
from powerzoo_jax.cli.own import parse_keywords
from powerzoo_jax.cli.table import STDOUT, render, render_pairs, write_json
from powerzoo_jax.data import get_info, list_datasets
from powerzoo_jax.envs.observe import FieldBlock
from powerzoo_jax.tasks import list_tasks, make
from powerzoo_jax.tasks.registry import get_spec


def run_list(options: argparse.Namespace) -> int:
    """Print tasks, cases and data sets."""
    tasks = [get_spec(name) for name in list_tasks()]
    if options.json:
        content = {"tasks": list(list_tasks()), "cases": list(list_cases()), "datasets": list(list_datasets())}
        write_json(content, STDOUT)
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
    sim = make(options.task, split=options.split, **parse_keywords(options.keywords))
    spec, dims = dataclasses.asdict(sim.spec), dataclasses.asdict(sim.env.dims)
    if options.json:
        write_json({"spec": _plain(spec), "dims": dims, "fields": list(sim.env.fields.names)}, STDOUT)
        return 0
    print(render_pairs([(k, _text(v)) for k, v in spec.items() if k != "overrides"]))
    print("\nkeywords of `make`")
    print(render_pairs([(f"  {k}", _text(v)) for k, v in spec["overrides"]]))
    print("\nsizes\n" + render_pairs([(f"  {k}", v) for k, v in dims.items()]))
    blocks = [(b.key, len(b.names), _bounds(b), _units(b), b.names[0]) for b in sim.env.fields.blocks]
    print("\n" + render(("observation", "fields", "bounds", "unit", "first"), blocks))
    return 0


def _bounds(block: FieldBlock) -> str:
    """The interval that holds all fields of a block; those of its fields may be narrower."""
    low, high = block.limits(float)
    return f"[{low.min():g}, {high.max():g}]"


def _units(block: FieldBlock) -> str:
    units = (block.unit,) if isinstance(block.unit, str) else block.unit
    return ", ".join(dict.fromkeys("-" if unit == "1" else unit for unit in units))


def _plain(value: Any) -> Any:
    """Values that JSON can hold: an unlimited budget is null."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and math.isinf(value) else value


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
