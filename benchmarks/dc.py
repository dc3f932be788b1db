"""Speed of the DC power flow: one pinned core, beside lightsim2grid's DC sweep where that is installed.

Usage: python benchmarks/dc.py [--quick] [--case case118 ...] [--rounds 15] [--out results.tsv]

What is timed: device arrays of injections in -> `flows`: branch flows and status ready; `proof`: these and the
residual; `all`: these and the angles. Injections are unseen draws U(0.8, 1.2) per bus. The peer's call includes the
upload of the injections and leaves angles on the host. Medians over rounds in which every engine runs once.
"""

from __future__ import annotations

# isort: off
import one_core  # noqa: F401  pins the process before jax starts
# isort: on

import time
from importlib import util
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from peers import Engine, matpower_tables
from report import Table, parser

from powerzoo_jax.cases import Case
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.powerflow import DcFactors, prepare_dc, scheduled_injection, solve_dc
from tests.references.dc import solve_reference

CASES = ("case14", "case118", "case300", "case2383wp")
BATCHES = (256, 1024, 4096)
SEED, SPAN = 20_240_611, (0.8, 1.2)
COLUMNS = ("case", "engine", "dtype", "B", "compile_s", "solves_per_s", "us_per_solve", "max_flow_error_pu", "device")
READS: dict[str, tuple[str, ...]] = {
    "flows": ("p_from", "status"),
    "proof": ("p_from", "status", "residual"),
    "all": ("p_from", "status", "residual", "angle_rad"),
}


def own_engine(case: Case, p: np.ndarray, expected: np.ndarray, dtype: str, reads: str) -> Engine:
    factors = prepare_dc(case, dtype=dtype)
    given = jnp.asarray(p, dtype)

    def solve(factors: DcFactors, p: jax.Array) -> tuple[jax.Array, ...]:
        out = solve_dc(factors, p)
        return tuple(getattr(out, name) for name in READS[reads])

    begin = time.perf_counter()
    compiled = jax.jit(solve).lower(factors, given).compile()
    compile_s = time.perf_counter() - begin
    found = np.asarray(compiled(factors, given)[0][: len(expected)], float)
    error = float(np.abs(found - expected).max())
    run = lambda: jax.block_until_ready(compiled(factors, given))  # noqa: E731
    return Engine(f"powerzoo_jax {reads}", dtype, len(p), run, compile_s=compile_s, error_pu=error)


def lightsim2grid_engine(case: Case, p: np.ndarray) -> list[Engine]:
    if util.find_spec("lightsim2grid") is None:
        return []
    from lightsim2grid import lightsim2grid_cpp as cpp
    from lightsim2grid import network

    model = network.init_from_matpower(matpower_tables(case))
    bus = np.array([load.bus_id for load in model.get_loads()])
    p_mw = np.ascontiguousarray(-p[:, bus] * case.base_mva)
    sweep = cpp.InjectionSweepCPP(model)
    sweep.change_algorithm(cpp.AlgorithmType.DC_KLU)
    start = np.ones(case.n_bus, complex)

    def run() -> Any:
        sweep.modify_load_p(p_mw)
        sweep.compute(start, 1, 1e-8)
        return sweep.get_voltages()

    run()
    return [Engine("lightsim2grid dc", "float64", len(p), run, error_pu=float("nan"))]


def engines_of(case: Case, batches: tuple[int, ...]) -> list[Engine]:
    rng = np.random.default_rng(SEED)
    p = scheduled_injection(case) * rng.uniform(*SPAN, (max(batches), case.n_bus))
    expected = np.stack([solve_reference(case, row)[1] for row in p[:4]])
    engines = [own_engine(case, p[:b], expected, "float32", reads) for b in batches for reads in READS]
    with jax.enable_x64(True):
        engines += [own_engine(case, p[:1024], expected, "float64", reads) for reads in READS]
    return engines + lightsim2grid_engine(case, p[:1024])


def row(name: str, engine: Engine) -> tuple[str, ...]:
    rate, place = engine.rate, jax.devices()[0].platform
    cells = (name, engine.name, engine.dtype, str(engine.batch), f"{engine.compile_s:.2f}", f"{rate:.0f}")
    return (*cells, f"{1e6 / rate:.3f}", f"{engine.error_pu:.1e}", place)


def main() -> None:
    arguments = parser(__doc__, "case118 alone, few rounds")
    arguments.add_argument("--case", nargs="+", default=None, help=f"default: {' '.join(CASES)}")
    args = arguments.parse_args()
    with Table(COLUMNS, args.out) as table:
        for name in args.case or (("case118",) if args.quick else CASES):
            engines = engines_of(load_case(name), (1024,) if args.quick else BATCHES)
            for _ in range(args.rounds or (7 if args.quick else 25)):
                for engine in engines:
                    engine.time(0.0)
            for engine in engines:
                table.add(row(name, engine))


if __name__ == "__main__":
    main()
