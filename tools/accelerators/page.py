"""Tables of `docs/howto/accelerators.md`, written from the results: `python -m tools.accelerators.page`.

Each stands between a comment with its name and a closing one, and is replaced whole.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from pathlib import Path

from tools.accelerators.__main__ import LATE, ROOT, Rows, read_rows

PAGE = ROOT / "docs" / "howto" / "accelerators.md"
RESULTS = ROOT / "benchmarks" / "results" / "accelerators.tsv"
MODES = ROOT / "benchmarks" / "results" / "solver_modes.tsv"
SUITES = ROOT / "benchmarks" / "results" / "fixed_mode.tsv"
CHECKOUTS = ROOT / "benchmarks" / "results" / "checkouts.tsv"
LIBRARY_BYTES = 33.6e6  # of the working memory on a GPU: workspace of the library of products, whatever the lanes
SHARE = 0.75  # of the memory that lanes may take
MEMORIES = (141e9, 16e9)  # of an H200 and of a v5e


def _programs(rows: Rows) -> list[str]:
    return list(dict.fromkeys(program for program, _ in rows))


def _table(head: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---", *("---:" for _ in head[1:])], *map(list, body)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _short(program: str) -> str:
    return f"`{program.removeprefix('task/')}`"


def _thousands(number: str) -> str:
    return f"{int(number):,}" if number.isdigit() else number


def compiled(rows: Rows) -> str:
    """Counts of each program on both platforms; the reason where one does not compile, "-" where it was not tried."""

    def cells(program: str, platform: str, names: tuple[str, ...]) -> list[str]:
        row = rows.get((program, platform))
        if row is None:
            return ["-"] * len(names)
        if row["outcome"] != "ok":
            late = row["outcome"].startswith(LATE)
            return [row["outcome"] if late else "does not compile", *[""] * (len(names) - 1)]
        return [_thousands(row[name]) for name in names]

    most = ("kernels", "questions", "rare", "library", "wide")
    few = ("kernels", "questions", "library")
    head = ("program", *(f"H200 {n}" for n in most), *(f"v5e {n}" for n in few))
    return _table(head, ([_short(p), *cells(p, "h200", most), *cells(p, "v5e", few)] for p in _programs(rows)))


def memory(rows: Rows) -> str:
    """Bytes of a lane on an H200, and lanes that fit two memories: twice the state, an observation, working memory."""
    body = []
    for program in _programs(rows):
        row = rows.get((program, "h200"))
        if not program.startswith("task/") or row is None or row["outcome"] != "ok":
            continue
        state, seen = int(row["state_bytes"]), int(row["obs_bytes"])
        work = max(float(row["temp_mb"]) * 1e6 - LIBRARY_BYTES, 0) / int(row["lanes"])
        lanes = (f"{float(f'{SHARE * size / (2 * state + seen + work):.2g}'):,.0f}" for size in MEMORIES)
        body.append([_short(program), f"{state:,} B", f"{seen:,} B", f"{work:,.0f} B", *lanes])
    head = ("task", "state of a lane", "observation of a lane", "working memory of a lane")
    return _table((*head, "lanes on 141 GB", "lanes on 16 GB"), body)


def training(rows: Rows) -> str:
    """Working memory of learners, and products that they leave to the device."""
    body = []
    for program in _programs(rows):
        found = [rows.get((program, platform)) for platform in ("h200", "v5e")]
        if program.startswith("train/"):
            there = [row if row and row["outcome"] == "ok" else None for row in found]
            memories = [f"{float(row['temp_mb']) / 1e3:.1f} GB" if row else "-" for row in there]
            body.append([_short(program), *memories, *(row["unpinned"] if row else "-" for row in there)])
    return _table(("program", "H200 memory", "v5e memory", "H200 `unpinned`", "v5e `unpinned`"), body)


def steps(modes: Iterable[dict[str, str]]) -> str:
    """Lane-steps that a fixed number of iterations left, from the rows of `benchmarks/solver_modes.py`."""
    body = []
    for row in modes:
        if row["solver"] == "fixed":
            most = max(int(share.split(":")[0]) for share in row["taken"].split())
            counts = (row["lane_steps"], row["fixed_steps"], str(most), row["left"], row["out_of_steps"])
            body.append([f"`{row['task']}`", *map(_thousands, counts)])
    head = ("what was solved", "lane-steps", "fixed steps", "most that a lane took", "left after the fixed steps")
    return _table((*head, "`OUT_OF_STEPS`"), body)


def suites(rows: Iterable[dict[str, str]]) -> str:
    """Tests of references in the fixed form, from the rows of `tools.accelerators.suites`."""
    body = [[f"`{row['suite']}`", row["passed"], row["failed"]] for row in rows]
    return _table(("reference suite", "passed", "failed"), body)


def checkouts(rows: Iterable[dict[str, str]]) -> str:
    """Times of a step on a core in two checkouts, from the rows of `benchmarks/checkouts.py`."""
    names = ("base_ns", "ns", "ratio", "low", "high")
    body = [[f"`{row['task']}`", *(_thousands(row[name]) for name in names)] for row in rows]
    return _table(("task", "before [ns]", "now [ns]", "ratio", "lower quartile", "upper quartile"), body)


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader((line for line in file if not line.startswith("#")), delimiter="\t"))


def tables() -> dict[str, str]:
    """Every table of the page by its name."""
    rows = read_rows(RESULTS)
    found = {make.__name__: make(rows) for make in (compiled, memory, training)}
    return found | {
        "steps": steps(_read(MODES)),
        "suites": suites(_read(SUITES)),
        "checkouts": checkouts(_read(CHECKOUTS)),
    }


def written(page: str, new: dict[str, str]) -> str:
    """Text of the page with every table made anew. Raises ValueError for a page without a place for one."""
    for name, table in new.items():
        place = re.compile(rf"(<!-- table {name} -->\n\n).*?(\n\n<!-- end -->)", re.DOTALL)
        if not place.search(page):
            raise ValueError(
                f"no place for table {name!r}: add '<!-- table {name} -->' and '<!-- end -->' to the page."
            )
        page = place.sub(lambda found, table=table: found[1] + table + found[2], page)  # type: ignore[misc]
    return page


def main() -> None:
    """Write the page."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), tables()), encoding="utf-8")


if __name__ == "__main__":
    main()
