"""AC-OPF of one case within other bands of voltages than its own.

Usage: python -m tools.opf_bands [--case case2224gb] [--bands 0.94:1.06 0.86:1.14 0.85:1.15] [--out opf_bands.tsv]

Every bus takes the band [pu]. The case is solved in float64 from the flat start, at its own load, without unserved load
and without ratings; `seconds` is one solve, without compilation, which the bands share.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from powerzoo_jax.cases import Case, load_case
from powerzoo_jax.opf import OpfStatus, ac_opf, prepare_ac_opf

COLUMNS = ("case", "band_pu", "outcome", "cost_usd_per_h", "steps", "violation_pu", "v_min_pu", "v_max_pu", "seconds")

solve = jax.jit(partial(ac_opf, shedding=False))


def compare(case: Case, low: float, high: float) -> dict[str, str]:
    """Outcome of one band by column."""
    one = np.ones(case.n_bus)
    banded = replace(case, bus=replace(case.bus, v_min_pu=low * one, v_max_pu=high * one))
    with jax.enable_x64(True):
        factors = prepare_ac_opf(banded, dtype="float64")
        load = jnp.asarray(case.p_load_mw), jnp.asarray(case.q_load_mvar)
        call = partial(solve, factors, *load, rate_mva=jnp.zeros(case.n_branch))
        jax.block_until_ready(call())
        begin = time.perf_counter()
        found = jax.tree.map(np.asarray, call())
    return {
        "case": case.name,
        "band_pu": f"{low:g}:{high:g}",
        "outcome": OpfStatus(int(found.status)).name,
        "cost_usd_per_h": f"{found.objective:.2f}" if found.optimal else "",
        "steps": str(int(found.iterations)),
        "violation_pu": f"{found.primal_residual:.1e}",
        "v_min_pu": f"{found.v_pu.min():.4f}",
        "v_max_pu": f"{found.v_pu.max():.4f}",
        "seconds": f"{time.perf_counter() - begin:.1f}",
    }


def main(argv: list[str] | None = None) -> int:
    """Solve the case in every band and print one row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default="case2224gb", help="name of a shipped case")
    parser.add_argument(
        "--bands", nargs="+", default=["0.94:1.06", "0.86:1.14", "0.85:1.15"], metavar="LOW:HIGH", help="in pu"
    )
    parser.add_argument("--out", type=Path, help="file for the table")
    options = parser.parse_args(argv)
    case, lines = load_case(options.case), ["\t".join(COLUMNS)]
    for band in options.bands:
        low, _, high = band.partition(":")
        row = compare(case, float(low), float(high))
        lines.append("\t".join(row[column] for column in COLUMNS))
        print(lines[-1], flush=True)
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
