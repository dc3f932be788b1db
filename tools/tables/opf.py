"""AC-OPF in float64, without unserved load: of PGLib-OPF, and of one case within other bands of voltages than its own.

`seconds` is one solve of one state, without compilation, which equal shapes share.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base.errors import CaseError, DataMissing, PowerZooError
from powerzoo_jax.cases import Case, load_case
from powerzoo_jax.cases.readers.matpower import read_matpower
from powerzoo_jax.opf import OpfStatus, ac_opf, prepare_ac_opf
from tools.tables import Row, Table

PREFIX = "pglib_opf_case"
FOLDERS = {"api": "api", "sad": "sad"}  # by the end of a name; typical cases have none

solve = jax.jit(partial(ac_opf, shedding=False))


def solved(case: Case, **limits: Any) -> tuple[Any, float]:
    """Solution at the case's own load from the flat start, and the seconds of a second solve."""
    with jax.enable_x64(True):
        factors = prepare_ac_opf(case, dtype="float64")
        call = partial(solve, factors, jnp.asarray(case.p_load_mw), jnp.asarray(case.q_load_mvar), **limits)
        jax.block_until_ready(call())
        begin = time.perf_counter()
        found = jax.tree.map(np.asarray, call())
    return found, time.perf_counter() - begin


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


def compare(folder: Path, row: Published) -> Row:
    """Outcome of one case of the library by column."""
    out = {"case": row.name, "buses": str(row.buses), "branches": str(row.branches), "published": row.ac}
    path = folder / FOLDERS.get(row.name.rpartition("__")[2], "") / f"{PREFIX}{row.name}.m"
    try:
        found, seconds = solved(read_matpower(path.read_text(encoding="utf-8"), row.name))
    except (PowerZooError, OSError) as err:
        return out | {"outcome": "refused", "notes": " ".join(str(err).split())}
    out |= {"steps": str(int(found.iterations)), "violation_pu": f"{float(found.primal_residual):.1e}"}
    out["seconds"] = f"{seconds:.3f}"
    if not found.optimal:
        return out | {"outcome": "missed", "here": OpfStatus(int(found.status)).name}
    here = f"{float(found.objective):.4e}"
    return out | {"outcome": "match" if here == row.ac else "differs", "here": here}


def pglib(folder: Path, buses: int = 300, only: tuple[str, ...] = ("",)) -> Iterator[Row]:
    """AC-OPF of the cases of PGLib-OPF, beside the optima that the library publishes.

    A case matches where its cost has the five digits of the column "AC" there. Nothing of the library is kept.

    --folder  copy of the library as its authors publish it: BASELINE.md, the typical cases, those of api and sad
    --buses   largest network to solve
    --only    cases whose names contain one of these
    """
    for row in published(folder, buses):
        if any(text in row.name for text in only):
            yield compare(folder, row)


def bands(case: str = "case2224gb", bands: tuple[str, ...] = ("0.94:1.06", "0.86:1.14", "0.85:1.15")) -> Iterator[Row]:
    """AC-OPF of one case within other bands of voltages than its own, without ratings.

    --case   name of a shipped case
    --bands  LOW:HIGH [pu] of every bus
    """
    own = load_case(case)
    for band in bands:
        low, high = (np.full(own.n_bus, float(edge)) for edge in band.split(":"))
        banded = replace(own, bus=replace(own.bus, v_min_pu=low, v_max_pu=high))
        found, seconds = solved(banded, rate_mva=np.zeros(own.n_branch))
        yield {
            "case": case,
            "band_pu": band,
            "outcome": OpfStatus(int(found.status)).name,
            "cost_usd_per_h": f"{found.objective:.2f}" if found.optimal else "",
            "steps": str(int(found.iterations)),
            "violation_pu": f"{found.primal_residual:.1e}",
            "v_min_pu": f"{found.v_pu.min():.4f}",
            "v_max_pu": f"{found.v_pu.max():.4f}",
            "seconds": f"{seconds:.1f}",
        }


PGLIB = Table(
    pglib,
    ("case", "buses", "branches", "outcome", "published", "here", "steps", "violation_pu", "seconds", "notes"),
    fails=lambda row: row["outcome"] != "match",
)
BANDS = Table(
    bands,
    ("case", "band_pu", "outcome", "cost_usd_per_h", "steps", "violation_pu", "v_min_pu", "v_max_pu", "seconds"),
)
