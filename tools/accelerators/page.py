"""Tables of `docs/howto/accelerators.md`, written from the results: `python -m tools.accelerators.page`.

Each stands between a comment with its name and a closing one, and is replaced whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from tools.accelerators.__main__ import LATE, ROOT, Rows, read_rows

PAGE = ROOT / "docs" / "howto" / "accelerators.md"
RESULTS = ROOT / "benchmarks" / "results" / "accelerators.tsv"
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


TABLES: dict[str, Callable[[Rows], str]] = {"compiled": compiled, "memory": memory}


def written(page: str, rows: Rows) -> str:
    """Text of the page with every table made anew. Raises ValueError for a page without a place for one."""
    for name, make in TABLES.items():
        place = re.compile(rf"(<!-- table {name} -->\n\n).*?(\n\n<!-- end -->)", re.DOTALL)
        if not place.search(page):
            raise ValueError(
                f"no place for table {name!r}: add '<!-- table {name} -->' and '<!-- end -->' to the page."
            )
        table = make(rows)
        page = place.sub(lambda found, table=table: found[1] + table + found[2], page)  # type: ignore[misc]
    return page


def main(page: Path = PAGE, results: Path = RESULTS) -> None:
    """Write the page."""
    page.write_text(written(page.read_text(encoding="utf-8"), read_rows(results)), encoding="utf-8")


if __name__ == "__main__":
    main()
