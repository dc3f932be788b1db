"""AC-OPF of the cases of PGLib-OPF, beside the optima that the library publishes.

Usage: python -m tools.pglib_table --pglib FOLDER [--buses 300] [--only TEXT ...] [--out pglib.tsv]

FOLDER is a copy of the library as its authors publish it: `BASELINE.md`, the typical cases, and those of `api` and
`sad`. A case matches where its cost in float64, without unserved load, has the five digits of the column "AC" there.
`seconds` is one solve of one state, without compilation. Nothing of the library is kept.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from powerzoo_jax.base.errors import CaseError, DataMissing, PowerZooError
from powerzoo_jax.cases.readers.matpower import read_matpower
from powerzoo_jax.opf import OpfStatus, ac_opf, prepare_ac_opf

PREFIX = "pglib_opf_case"
FOLDERS = {"api": "api", "sad": "sad"}  # by the end of a name; typical cases have none
COLUMNS = ("case", "buses", "branches", "outcome", "published", "here", "steps", "violation_pu", "seconds", "notes")


class Published(NamedTuple):
    """One row of the library's table: name without its prefix, size, and the cost as printed."""

    name: str
    buses: int
    branches: int
    ac: str


def published(folder: Path, buses: int) -> list[Published]:
    """Rows of `BASELINE.md` up to a number of buses, the three variants of a network side by side.

    Raises DataMissing where the folder has no such file, and CaseError where the file has no such table.
    """
    path = folder / "BASELINE.md"
    if not path.is_file():
        raise DataMissing(f"{folder} has no BASELINE.md. Give the folder of a copy of PGLib-OPF.")
    lines = path.read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:]] for line in lines if line.startswith(f"| {PREFIX}")]
    rows = [Published(row[0].removeprefix(PREFIX), int(row[1]), int(row[2]), row[4]) for row in cells]
    if not rows:
        raise CaseError(f"{path} has no row that begins with {PREFIX}. Give the BASELINE.md of PGLib-OPF.")
    # neighbours of equal shapes share a compiled program
    return sorted((row for row in rows if row.buses <= buses), key=lambda row: (row.buses, row.name))


def compare(folder: Path, row: Published) -> dict[str, str]:
    """Outcome of one case by column."""
    out = {"case": row.name, "buses": str(row.buses), "branches": str(row.branches), "published": row.ac}
    path = folder / FOLDERS.get(row.name.rpartition("__")[2], "") / f"{PREFIX}{row.name}.m"
    try:
        case = read_matpower(path.read_text(encoding="utf-8"), row.name)
        with jax.enable_x64(True):
            factors = prepare_ac_opf(case, dtype="float64")
            load = jnp.asarray(case.p_load_mw), jnp.asarray(case.q_load_mvar)
            jax.block_until_ready(solve(factors, *load))
            begin = time.perf_counter()
            found = jax.block_until_ready(solve(factors, *load))
    except (PowerZooError, OSError) as err:
        return out | {"outcome": "refused", "notes": " ".join(str(err).split())}
    out["seconds"] = f"{time.perf_counter() - begin:.3f}"
    out |= {"steps": str(int(found.iterations)), "violation_pu": f"{float(found.primal_residual):.1e}"}
    if not found.optimal:
        return out | {"outcome": "missed", "here": OpfStatus(int(found.status)).name}
    here = f"{float(found.objective):.4e}"
    return out | {"outcome": "match" if here == row.ac else "differs", "here": here}


solve = jax.jit(partial(ac_opf, shedding=False))


def main(argv: list[str] | None = None) -> int:
    """Solve the cases and print one row for each; the exit status is the number of those without a match."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pglib", type=Path, required=True, metavar="FOLDER", help="a copy of PGLib-OPF")
    parser.add_argument("--buses", type=int, default=300, help="largest network to solve")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="TEXT", help="cases whose names contain one of these"
    )
    parser.add_argument("--out", type=Path, help="file for the table")
    options = parser.parse_args(argv)
    lines, outcomes = ["\t".join(COLUMNS)], Counter[str]()
    for row in published(options.pglib, options.buses):
        if not any(text in row.name for text in options.only):
            continue
        cells = compare(options.pglib, row)
        outcomes[cells["outcome"]] += 1
        lines.append("\t".join(cells.get(column, "") for column in COLUMNS))
        print(lines[-1], flush=True)
    print("; ".join(f"{count} {outcome}" for outcome, count in outcomes.items()))
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return outcomes.total() - outcomes["match"]


if __name__ == "__main__":
    raise SystemExit(main())
