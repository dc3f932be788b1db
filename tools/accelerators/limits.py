"""Limits of every program, which stand in `limits.tsv`, and what breaks them.

A limit is what was measured when it was last set. `tighten` takes over figures that have become smaller and adds
programs that are new; a limit is raised by hand only, with the reason in the commit. Targets stand beside the limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

TABLE = Path(__file__).with_name("limits.tsv")
FIGURES = ("kernels", "questions", "library", "wide", "unpinned", "temp_mb")
COLUMNS = ("program", "platform", "quick", "compiles", *FIGURES, "target_kernels", "target_questions")
SPARE = 1.1  # of temporary memory, which moves a little with every change of a program

Row = Mapping[str, str]
Limits = dict[tuple[str, str], dict[str, str]]


def read(path: Path = TABLE) -> Limits:
    """Rows of the table by program and platform; lines that begin with # say what it is."""
    if not path.is_file():
        return {}
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    if not lines or tuple(lines[0].split("\t")) != COLUMNS:
        raise ValueError(f"{path}: the first row must name the columns {', '.join(COLUMNS)}.")
    rows = [dict(zip(COLUMNS, line.split("\t"), strict=True)) for line in lines[1:]]
    return {(row["program"], row["platform"]): row for row in rows}


def write(limits: Limits, path: Path = TABLE) -> None:
    """Write the table, its head kept."""
    head = [line for line in path.read_text().splitlines() if line.startswith("#")] if path.is_file() else []
    rows = ["\t".join(row[name] for name in COLUMNS) for row in limits.values()]
    path.write_text("\n".join([*head, "\t".join(COLUMNS), *rows]) + "\n")


def broken(row: Row, limits: Limits) -> list[str]:
    """Limits that a measured row breaks, in words; none if it keeps them."""
    limit = limits.get((row["program"], row["platform"]))
    if limit is None:
        return ["has no limits: add them with --tighten"]
    if row["outcome"] != "ok":
        return [f"does not compile: {row['outcome']}"] if limit["compiles"] == "yes" else []
    return [
        f"{name} {row[name]} > {limit[name]}"
        for name in FIGURES
        if limit[name] not in ("", "-") and float(row[name]) > float(limit[name])
    ]


def missed(row: Row, limits: Limits) -> list[str]:
    """Aims that a row misses: compiling at all, its targets, and a program without library factorisations."""
    if row["outcome"] != "ok":
        return [f"to compile: {row['outcome']}"]
    limit = limits.get((row["program"], row["platform"]), {})
    targets = {name: limit.get(f"target_{name}", "-") for name in ("kernels", "questions")} | {"library": "0"}
    over = {name: target for name, target in targets.items() if target != "-" and int(row[name]) > int(target)}
    return [f"{name} {row[name]}, target {target}" for name, target in over.items()]


def tighten(limits: Limits, rows: Iterable[Row]) -> list[str]:
    """Lower the limits to what was measured and add what is missing; the programs that changed."""
    changed = []
    for row in rows:
        key = (row["program"], row["platform"])
        old = limits.get(key) or dict.fromkeys(COLUMNS, "-") | {"program": key[0], "platform": key[1], "quick": "no"}
        new = dict(old)
        if row["outcome"] == "ok":
            new["compiles"] = "yes"
            for name in FIGURES:
                value = math.ceil(SPARE * float(row[name])) if name == "temp_mb" else int(row[name])
                new[name] = str(value if old[name] == "-" else min(value, int(old[name])))
        elif old["compiles"] == "-":
            new["compiles"] = "no"
        if new != limits.get(key):
            limits[key] = new
            changed.append(" ".join(key))
    return changed
