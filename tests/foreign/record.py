"""The record of the scripts' runs, and the table that the page shows of it."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).with_name("scripts.toml")
RESULTS = ROOT / "benchmarks" / "results" / "foreign.jsonl"
PAGE = ROOT / "docs" / "measurements" / "foreign.md"
BEGIN, END = "<!-- table: python -m tests.foreign --page -->", "<!-- end of table -->"
OURS = re.compile(r"# ours(?:: (.*))?$", re.MULTILINE)  # behind a colon, the words of the command line that use it
RECORD = "foreign: "  # begins the lines of a script that are for the record; others are what its package says
HEAD = "| script | package | lines | random | idle | before | after | seeds | beats both |"


def read_scripts() -> dict[str, dict[str, Any]]:
    """Rows of scripts.toml by name."""
    return tomllib.loads(SCRIPTS.read_text(encoding="utf-8"))


def read_results() -> list[dict[str, Any]]:
    """Rows of the record, in its order."""
    return [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]


def merge(rows: Iterable[dict[str, Any]]) -> None:
    """Keep rows, in the place of those of the same script and seed."""
    kept = {(row["script"], row["seed"]): row for row in (read_results() if RESULTS.exists() else [])}
    kept |= {(row["script"], row["seed"]): row for row in rows}
    order = list(read_scripts())
    told = [kept[key] for key in sorted(kept, key=lambda key: (order.index(key[0]), key[1]))]
    RESULTS.write_text("".join(json.dumps(row) + "\n" for row in told), encoding="utf-8")


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error, 0 for a single value."""
    mean = sum(values) / len(values)
    spread = sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)
    return mean, math.sqrt(spread / len(values))


def beats(rows: Sequence[dict[str, Any]]) -> bool:
    """Whether the mean return, less two standard errors over the seeds, is above random and idle play."""
    mean, error = mean_and_error([row["after"] for row in rows])
    return mean - 2 * error > max(max(row["random"], row["idle"]) for row in rows)


def lines_changed(name: str, script: dict[str, Any], rows: Sequence[dict[str, Any]]) -> int:
    """Lines that name this package: those marked in a script, those exchanged in a file of a checkout."""
    if "checkout" in script:
        return len(rows[0]["lines"])
    text = Path(__file__).with_name(f"{script.get('file', name)}.py").read_text(encoding="utf-8")
    words = set(script.get("args", []))
    return sum(not users or bool(words & set(users.split())) for users in OURS.findall(text))


def table() -> str:
    """Rows of the page, in the order of scripts.toml; scripts without a record are left out."""
    results = read_results()
    lines = [HEAD, "|---|---|---:|---:|---:|---:|---:|---|---|"]
    for name, script in read_scripts().items():
        rows = [row for row in results if row["script"] == name]
        if not rows:
            continue
        before, after = (mean_and_error([row[key] for row in rows]) for key in ("before", "after"))
        cells = [
            f"`{name}`",
            rows[0]["package"],
            str(lines_changed(name, script, rows)),
            *(f"{rows[0][key]:.2f}" for key in ("random", "idle")),
            f"{before[0]:.2f}",
            f"{after[0]:.2f} ± {after[1]:.2f}",
            ", ".join(f"{row['after']:.2f}" for row in rows),
            "yes" if beats(rows) else "no",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def with_table(page: str) -> str:
    """The page's text with the table of the record between its marks."""
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n\n{table()}\n\n{END}{rest.split(END)[1]}"


def write_page() -> None:
    """Bring the page up to date."""
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
