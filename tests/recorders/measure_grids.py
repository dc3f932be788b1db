"""Solve thousands of different grids in one program and compare each with a sparse Newton method of its own.

Usage: python tests/recorders/measure_grids.py [--grids 4096] [--chunk 1024]

Grids are case118 with one branch out that islands nothing and all impedances within a fifth, then cases 14, 30 and 57
side by side, varied alike; loads are off the base by up to a fifth. Factors are made on the device from branch
parameters. Prints, per family: compile time, memory of the program, seconds, lanes solved, grids that the sparse Newton
method solves from neither a flat start nor the voltages of the case, largest voltage error [pu] over the others.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from powerzoo_jax.base.errors import BaseLoadError  # noqa: E402
from powerzoo_jax.base.tree import take  # noqa: E402
from powerzoo_jax.cases import Case, load_case  # noqa: E402
from powerzoo_jax.powerflow import (  # noqa: E402
    MeshedFactors,
    Status,
    prepare_meshed,
    solve_meshed,
    stack_meshed,
    with_branches,
)
from powerzoo_jax.powerflow.meshed.base_case import solve_base, voltage_setpoints  # noqa: E402
from tests.powerflow.meshed.test_padding import MIX, given_to, injections, parameters, variant  # noqa: E402

DTYPE = "float32"
TOOK = ("compile_s", "program_mib", "solve_s")
COLUMNS = ("family", "grids", "chunk", *TOOK, "converged", "no_reference", "max_v_error_pu")


def solve_lane(factors: MeshedFactors, table: dict[str, Any], p: Any, q: Any) -> tuple[jax.Array, ...]:
    result = solve_meshed(with_branches(factors, **table), p, q)
    return result.v_re, result.v_im, result.status


def measure(family: str, bases: list[Case], grids: int, chunk: int) -> tuple[str, ...]:
    """One row: `grids` variants of the base cases in turn, `chunk` lanes a call of one program."""
    cases = [variant(bases[k % len(bases)], k) for k in range(grids)]
    s = [injections(case, k) for k, case in enumerate(cases)]
    prepared = [prepare_meshed(case) for case in bases]
    factors = prepared[0] if len(bases) == 1 else stack_meshed(prepared)
    axis = None if len(bases) == 1 else 0
    solve = jax.jit(jax.vmap(solve_lane, in_axes=(axis, 0, 0, 0)))
    table, given = parameters(cases, DTYPE), given_to(factors, s, DTYPE)

    def arguments(rows: np.ndarray) -> tuple[Any, ...]:
        own = factors if axis is None else take(factors, rows % len(bases))
        return own, {key: x[rows] for key, x in table.items()}, given[0][rows], given[1][rows]

    parts = np.arange(grids).reshape(-1, chunk)
    begin = time.perf_counter()
    program = solve.lower(*arguments(parts[0])).compile()
    compile_s = time.perf_counter() - begin
    memory = program.memory_analysis()
    mib = (memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes) / 2**20
    begin = time.perf_counter()
    found = [jax.tree.map(np.asarray, program(*arguments(rows))) for rows in parts]
    solve_s = time.perf_counter() - begin
    v_re, v_im, status = (np.concatenate(x) for x in zip(*found, strict=True))
    worst, alone = 0.0, 0
    for k, case in enumerate(cases):
        try:
            wanted = solve_base(case, s[k], voltage_setpoints(case))
        except BaseLoadError:
            alone += 1
            continue
        worst = max(worst, float(np.abs((v_re[k] + 1j * v_im[k])[: case.n_bus] - wanted).max()))
    solved = str(int((status == Status.CONVERGED).sum()))
    took = f"{compile_s:.1f}", f"{mib:.0f}", f"{solve_s:.2f}"
    return family, str(grids), str(chunk), *took, solved, str(alone), f"{worst:.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grids", type=int, default=4096)
    parser.add_argument("--chunk", type=int, default=1024, help="lanes of a call, a divisor of --grids")
    args = parser.parse_args()
    print(*COLUMNS, sep="\t", flush=True)
    for family, names in (("case118 varied", ("118",)), ("cases 14, 30, 57 varied", MIX)):
        row = measure(family, [load_case(name) for name in names], args.grids, args.chunk)
        print(*row, sep="\t", flush=True)


if __name__ == "__main__":
    main()
