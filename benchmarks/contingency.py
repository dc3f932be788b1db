"""Speed of N-1 in AC against lightsim2grid's contingency analysis: one pinned core, interleaved.

Usage: python benchmarks/contingency.py [--quick] [--case case118 ...] [--states 128] [--rounds 15] [--cpu-time]
       [--out results.tsv]

What is timed: here device arrays of B states in -> status and residual of every outage with all voltages, or with the
summary (largest loading, overload, voltage violation) ready; for the peer one call of `compute` for all outages of one
state, which leaves voltages ready on the host. Loads are unseen draws U(0.8, 1.2) per bus; the peer analyses the base
state, from its solution. Every engine stops by its own test: ours aims at 1e-6 pu in float32 and 1e-9 in x64, the peer
at the mismatch named. Only branches are lost: the peer has no outages of units. Outages that cut buses off are flagged
by both and count for both. The error is the largest of a voltage at the base state, against the peer's Newton at
1e-9 pu. `--cpu-time` counts processor time instead of the clock, for a machine whose cores are shared.
"""

from __future__ import annotations

# isort: off
import one_core  # noqa: F401  pins the process before jax starts
# isort: on

import time
from collections.abc import Callable
from importlib import util
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from peers import MODES, Engine, matpower_tables
from report import Table, parser

from powerzoo_jax.cases import Case
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.cases.topology import branch_positions
from powerzoo_jax.powerflow import n_minus_1, nominal_injection, prepare_outages
from powerzoo_jax.powerflow.meshed.base_case import solve_base, voltage_setpoints

CASES = ("case14", "case118")
BATCHES = (1, 16, 128, 512)
SPAN = 0.2
SEED = 20_240_615
PEER_TOLS = (1e-5, 1e-6, 1e-8)  # [pu] mismatch; ours are voltage errors of 1e-6 and 1e-9
RATING_PU = 1.0  # ours rates every branch, so that the summary has something to do
COLUMNS = [
    *("case", "engine", "dtype", "states", "outages", "compile_s", "outages_per_s", "us_per_outage", "iterations"),
    *("max_v_error_pu", "ratio_to_best_peer"),
]


def voltages_read(outages: Any, p: jax.Array, q: jax.Array) -> tuple[jax.Array, ...]:
    result, after = n_minus_1(outages, p, q, states=True)
    return result.status, result.iterations, result.residual, after.v_re, after.v_im


def summary_read(outages: Any, p: jax.Array, q: jax.Array) -> tuple[jax.Array, ...]:
    result = n_minus_1(outages, p, q)
    return result.status, result.iterations, result.residual, result.loading, result.overload, result.violation


def own_engine(case: Case, s: np.ndarray, dtype: str, read: Callable[..., Any], expected: np.ndarray) -> Engine:
    outages = prepare_outages(case, units=(), rate_pu=np.full(case.n_branch, RATING_PU), dtype=dtype)
    arguments = (outages, jnp.asarray(s.real, dtype), jnp.asarray(s.imag, dtype))
    begin = time.perf_counter()
    compiled = jax.jit(jax.vmap(read, in_axes=(None, 0, 0))).lower(*arguments).compile()
    compile_s = time.perf_counter() - begin
    status, steps, _, *rest = (np.asarray(x, float) for x in compiled(*arguments))
    error = float("nan")
    if read is voltages_read and expected.size:
        known = np.abs(expected[:, 0]) > 0
        error = float(np.abs(rest[0][0] + 1j * rest[1][0] - expected)[known & (status[0] == 0)].max())
    return Engine(
        name=f"powerzoo_jax {read.__name__.removesuffix('_read')}",
        dtype=dtype,
        batch=status.size,
        run=lambda: jax.block_until_ready(compiled(*arguments)),
        compile_s=compile_s,
        iterations=float(steps.mean()),
        error_pu=error,
    )


def branches_of(case: Case, model: Any) -> np.ndarray:
    """Position in the case of every branch of the peer, which keeps lines and transformers apart."""
    f, t = branch_positions(case)
    rest: dict[tuple[int, int], list[int]] = {}
    for k, ends in enumerate(zip(f.tolist(), t.tolist(), strict=True)):
        rest.setdefault(ends, []).append(k)
    found = []
    for element in (*model.get_lines(), *model.get_trafos()):
        ends = element.bus1_id, element.bus2_id
        found.append(rest[ends if ends in rest else ends[::-1]].pop(0))
    return np.array(found)


def peers(case: Case) -> tuple[list[Engine], np.ndarray]:
    """lightsim2grid at every tolerance, and its voltages (O, N) of every outage, 0 where it solves none."""
    if util.find_spec("lightsim2grid") is None:
        return [], np.zeros((0, 0))
    from lightsim2grid import lightsim2grid_cpp as cpp
    from lightsim2grid import network

    model = network.init_from_matpower(matpower_tables(case))
    start = solve_base(case, nominal_injection(case), voltage_setpoints(case))

    def analysis(mode: int) -> Any:
        found = cpp.ContingencyAnalysisCPP(model)
        found.change_algorithm(cpp.AlgorithmType.NRSing_KLU)
        config = found.get_algo_config()
        values = list(config.int_params)
        values[1] = mode
        config.int_params = values
        found.set_algo_config(config)
        found.add_all_n1()
        return found

    exact = analysis(0)
    exact.compute(start, 30, 1e-9)
    expected = np.zeros((case.n_branch, case.n_bus), complex)
    expected[branches_of(case, model)] = exact.get_voltages()
    engines = []
    for name, mode, steps in MODES:
        for tol in PEER_TOLS:
            each = analysis(mode)

            def run(each: Any = each, steps: int = steps, tol: float = tol) -> None:
                each.clear_results_only()
                each.compute(start, steps, tol)

            run()
            error = float(np.abs(np.array(each.get_voltages()) - exact.get_voltages()).max())
            iterations = float(np.mean(each.get_row_nb_iter()))
            label = f"{name} {tol:.0e}"
            engines.append(Engine(label, "float64", len(expected), run, iterations=iterations, error_pu=error))
    return engines, expected


def engines_of(case: Case, batches: tuple[int, ...]) -> list[Engine]:
    others, expected = peers(case)
    nominal = nominal_injection(case)
    load = (case.p_load_mw + 1j * case.q_load_mvar) / case.base_mva
    factor = np.random.default_rng(SEED).uniform(1 - SPAN, 1 + SPAN, (max(batches), case.n_bus))
    factor[0] = 1.0
    s = nominal + load * (1 - factor)
    engines = [own_engine(case, s[:b], "float32", voltages_read, expected) for b in batches]
    engines += [own_engine(case, s[:b], "float32", summary_read, expected) for b in batches[-1:]]
    with jax.enable_x64(True):
        engines += [own_engine(case, s[:b], "float64", voltages_read, expected) for b in batches[-1:]]
    return engines + others


def timed_by(clock: Callable[[], float], engine: Engine) -> Engine:
    """The engine with runs that say how long they took by this clock."""
    run = engine.run

    def timed() -> float:
        tick = clock()
        run()
        return clock() - tick

    engine.run = timed
    return engine


def main() -> None:
    arguments = parser(__doc__, "case118 with 128 states alone, few rounds")
    arguments.add_argument("--case", nargs="+", default=None, help=f"default: {' '.join(CASES)}")
    arguments.add_argument("--states", nargs="+", type=int, default=None, help=f"default: {BATCHES}")
    arguments.add_argument("--cpu-time", action="store_true", help="count processor time instead of the clock")
    args = arguments.parse_args()
    clock = time.process_time if args.cpu_time else time.perf_counter
    title = f"loads {1 - SPAN:.1f}-{1 + SPAN:.1f}, {'processor time' if args.cpu_time else 'clock'}"
    with Table(COLUMNS, args.out, title) as table:
        batches = tuple(args.states or (BATCHES[2:3] if args.quick else BATCHES))
        for name in args.case or (("case118",) if args.quick else CASES):
            case = load_case(name)
            engines = [timed_by(clock, e) for e in engines_of(case, batches)]
            for _ in range(args.rounds or (5 if args.quick else 15)):
                for engine in engines:
                    engine.time(0.05)
            best = max((e.rate for e in engines if e.name.startswith("lightsim2grid")), default=float("nan"))
            for e in engines:
                states = e.batch // case.n_branch
                cells = (case.name, e.name, e.dtype, str(states), str(case.n_branch), f"{e.compile_s:.2f}")
                speed = (f"{e.rate:.0f}", f"{1e6 / e.rate:.3f}", f"{e.iterations:.2f}", f"{e.error_pu:.1e}")
                table.add((*cells, *speed, f"{e.rate / best:.2f}"))


if __name__ == "__main__":
    main()
