"""`list` and `show`: the tasks, cases and data sets there are, and the definition of a task."""

from __future__ import annotations

import argparse
import dataclasses
import math
import textwrap
from typing import Any

from powerzoo_jax.base.errors import excerpt
from powerzoo_jax.cases import list_cases
from powerzoo_jax.cli.own import parse_keywords
from powerzoo_jax.cli.table import STDOUT, render, render_pairs, write_json
from powerzoo_jax.data import get_info, list_datasets
from powerzoo_jax.envs import Sim
from powerzoo_jax.envs.observe import FieldBlock
from powerzoo_jax.tasks import list_tasks, make
from powerzoo_jax.tasks.registry import get_spec, named_splits
from powerzoo_jax.tasks.settings import keywords_of
from powerzoo_jax.tasks.spec import CALENDAR

WIDTH, CELL, PURPOSE = 100, 32, 90  # characters of a line of names, of a value, of a purpose


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
    made: list[Sim] = []
    given = parse_keywords(options.keywords)
    keywords = keywords_of(lambda: made.append(make(options.task, split=options.split, **given)))
    sim = made[0]
    splits = tuple(dict.fromkeys((*CALENDAR, *named_splits(sim.spec))))
    spec, dims = dataclasses.asdict(sim.spec), dataclasses.asdict(sim.env.dims)
    if options.json:
        taken = {name: {"value": _value(value), "purpose": purpose} for name, value, purpose in keywords}
        shown = {"spec": _plain(spec), "dims": dims, "fields": list(sim.env.fields.names)}
        write_json(shown | {"splits": splits, "keywords": taken}, STDOUT)
        return 0
    print(render_pairs([(k, _text(v)) for k, v in spec.items() if k != "overrides"]))
    print(render_pairs([("splits", _text(splits))]))
    print("\n" + render(("keyword of `make`", "value", "purpose"), [(k, _cell(v), _first(p)) for k, v, p in keywords]))
    print("\nsizes\n" + render_pairs([(f"  {k}", v) for k, v in dims.items()]))
    blocks = [(b.key, len(b.names), _bounds(b), _units(b), b.names[0]) for b in sim.env.fields.blocks]
    print("\n" + render(("observation", "fields", "bounds", "unit", "first"), blocks))
    print("\nfields in their order")
    for block in sim.env.fields.blocks:
        print(textwrap.fill(", ".join(block.names), WIDTH, initial_indent="  ", subsequent_indent="  "))
    return 0


def _value(value: Any) -> Any:
    """A value that JSON can hold; a network, a series or a record as text."""
    plain = value is None or isinstance(value, str | int | float | list | tuple | dict)
    return _plain(value) if plain else str(value)


def _cell(value: Any) -> str:
    """A value of a table, cut where it is a network or a series."""
    return excerpt(_text(value) if value != () else "()", CELL)


def _first(purpose: str) -> str:
    """Beginning of a purpose, as long as a line of a table; the class of the keywords says all."""
    return textwrap.shorten(purpose, PURPOSE, placeholder=" ...")


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
