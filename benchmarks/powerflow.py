"""Speed of the power flow against lightsim2grid and power-grid-model: one pinned core, interleaved.

Usage: python benchmarks/powerflow.py [--quick] [--case case118 ...] [--rounds 15] [--out results.tsv]
       python benchmarks/powerflow.py --device [--case case118 ...]      meshed networks on jax's default device

What is timed: here device arrays of injections in -> voltages of all buses, status and residual ready; for a peer
one call of its batch interface, upload of the loads included as the interface has it, voltages ready on the host.
Loads are unseen draws U(0.8, 1.2) per bus (case300: U(0.9, 1.1)), units of meshed networks keep their schedule; every
engine stops by its own test at run time, ours aims at 1e-6 pu in float32 and, in x64, 1e-9 (feeders) or 1e-8 (meshed).
Peers stop at 1e-8 pu. Medians over rounds in which every engine runs; a ratio is against the fastest peer of its case.
Install the peers with `pip install .[bench]`; one that is missing is left out.

--device leaves peers out and takes batches that fill an accelerator, in float32: self-stopping, and with the fixed
number of steps that every lane of a first draw of loads is done with. Errors are those of a second draw, which decided
nothing, against a float64 Newton of SciPy, of its first lanes.
"""

from __future__ import annotations

# isort: off
import one_core  # noqa: F401  pins the process before jax starts
# isort: on

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from peers import Engine, lightsim2grid_engines, lightsim2grid_voltages, power_grid_model_engine
from report import Table, parser

from powerzoo_jax.cases import Case
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.powerflow import (
    nominal_injection,
    prepare_feeder,
    prepare_meshed,
    solve_feeder_active,
    solve_meshed,
)
from tests.references.meshed import MeshedStates, base_state, build_meshed, solve_base_state
from tests.references.meshed import solve_states as solve_meshed_states
from tests.references.newton import build_network, solve_states

FEEDERS = ("case33bw", "case69", "case118zh", "case141", "case533mt_hi", "case533mt_lo")
MESHED = ("case14", "case30", "case57", "case118", "case300", "case1354pegase")
BLOCKED = ("case533mt_hi", "case533mt_lo")  # feeders so large that blocks beat the dense form
QUICK = ("case33bw", "case69", "case141", "case14", "case118", "case300")
BATCHES = (1, 64, 256, 1024, 4096)
PEER_BATCH = 1024
DEVICE_CASES = ("case14", "case118", "case300", "case1354pegase")
DEVICE_BATCHES = (1024, 16_384, 131_072)
HELD_OUT = 256  # lanes of a draw that decided nothing
SPAN = 0.2
NARROW = {"case300": 0.1}
TOL_MESHED = {"float32": None, "float64": 1e-8}
SEED = 20_240_607
COLUMNS = [
    *("case", "engine", "dtype", "B", "load_span", "compile_s", "solves_per_s", "us_per_solve", "iterations"),
    *("max_v_error_pu", "ratio_to_best_peer"),
]


def draw(case: Case, count: int, seed: int = SEED) -> tuple[np.ndarray, np.ndarray]:
    """Net injections and loads as peers see them, (count, N) complex [pu] each, every load scaled on its own.

    In a feeder units at load buses count as negative load.
    """
    rng = np.random.default_rng(seed)
    span = NARROW.get(case.name, SPAN)
    factor = rng.uniform(1 - span, 1 + span, (count, case.n_bus))
    nominal = nominal_injection(case)
    if case.name in FEEDERS:
        return nominal * factor, -nominal * factor
    load = (case.p_load_mw + 1j * case.q_load_mvar) / case.base_mva
    return nominal + load * (1 - factor), load * factor


def feeder_call(case: Case, s: np.ndarray, dtype: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    factors = prepare_feeder(case, dtype=dtype)
    active = np.asarray(factors.active)

    def solve(factors: Any, p: jax.Array, q: jax.Array) -> tuple[jax.Array, ...]:
        out = solve_feeder_active(factors, p, q)
        return out.v_re, out.v_im, out.status, out.residual, out.iterations

    return solve, (factors, jnp.asarray(s[:, active].real, dtype), jnp.asarray(s[:, active].imag, dtype))


def meshed_call(
    case: Case, s: np.ndarray, dtype: str, fixed_steps: int | None = None
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    tol = None if case.name in FEEDERS else TOL_MESHED[dtype]

    def solve(factors: Any, p: jax.Array, q: jax.Array) -> tuple[jax.Array, ...]:
        out = solve_meshed(factors, p, q, tol=tol, fixed_steps=fixed_steps)
        return out.v_re, out.v_im, out.status, out.residual, out.iterations

    return solve, (prepare_meshed(case, dtype=dtype), jnp.asarray(s.real, dtype), jnp.asarray(s.imag, dtype))


def own_engine(case: Case, s: np.ndarray, v_ref: np.ndarray, dtype: str, fixed_steps: int | None = None) -> Engine:
    if case.name in FEEDERS and case.name not in BLOCKED:
        solve, arguments = feeder_call(case, s, dtype)
    else:
        solve, arguments = meshed_call(case, s, dtype, fixed_steps)
    # iterations are read below and cost nothing: the loop carries them anyway
    batched = jax.jit(jax.vmap(solve, in_axes=(None, 0, 0)))
    begin = time.perf_counter()
    compiled = batched.lower(*arguments).compile()
    compile_s = time.perf_counter() - begin
    v_re, v_im, status, _, steps = (np.asarray(x, float) for x in compiled(*arguments))
    if status.any() and fixed_steps is None:
        raise RuntimeError(f"{case.name}: {int((status != 0).sum())} of {len(s)} lanes did not converge")
    compared = min(len(s), len(v_ref))
    error = np.abs(np.hypot(v_re, v_im)[:compared] - np.abs(v_ref[:compared]))
    return Engine(
        name="powerzoo_jax" if fixed_steps is None else f"powerzoo_jax, {fixed_steps} steps",
        dtype=dtype,
        batch=len(s),
        run=lambda: jax.block_until_ready(compiled(*arguments)),
        compile_s=compile_s,
        iterations=float(steps.mean()),
        error_pu=float(error.max()),
    )


def reference(case: Case, s: np.ndarray, load: np.ndarray) -> np.ndarray:
    """Voltages to compare with: the tests' own Newton for feeders, a peer's full Newton for meshed networks."""
    if case.name in FEEDERS:
        return solve_states(build_network(case), s).v
    return lightsim2grid_voltages(case, load[:PEER_BATCH])


def measure(case: Case, batches: tuple[int, ...], rounds: int, budget_s: float) -> list[Engine]:
    """Time all engines of one case in turn, round by round."""
    s, load = draw(case, max(*batches, PEER_BATCH))
    v_ref = reference(case, s, load)
    engines = [own_engine(case, s[:b], v_ref, "float32") for b in batches]
    with jax.enable_x64(True):
        engines += [own_engine(case, s[:b], v_ref, "float64") for b in batches]
    engines += lightsim2grid_engines(case, load[:PEER_BATCH], v_ref)
    if case.name in FEEDERS:
        engines += power_grid_model_engine(case, load[:PEER_BATCH], v_ref)
    for _ in range(rounds):
        for engine in engines:
            engine.time(budget_s)
    return engines


def measure_device(case: Case, batches: tuple[int, ...], rounds: int, budget_s: float) -> list[Engine]:
    """Time the self-stopping solve and the one of fixed steps in turn, no peers."""
    first, (s, _) = draw(case, HELD_OUT, SEED + 1)[0], draw(case, max(batches))
    solve, arguments = meshed_call(case, first, "float32")
    most = int(np.asarray(jax.jit(jax.vmap(solve, in_axes=(None, 0, 0)))(*arguments)[-1]).max())
    net = build_meshed(case)
    held = np.broadcast_to(base_state(case).v_set, first.shape)
    v_ref = solve_meshed_states(net, MeshedStates(s[:HELD_OUT], held), solve_base_state(case, net)).v
    engines = [own_engine(case, s[:b], v_ref, "float32", fixed) for b in batches for fixed in (None, most)]
    for _ in range(rounds):
        for engine in engines:
            engine.time(budget_s)
    return engines


def rows(case: Case, engines: list[Engine]) -> list[tuple[str, ...]]:
    peers = [e.rate for e in engines if not e.name.startswith("powerzoo_jax")]
    span = NARROW.get(case.name, SPAN)
    return [
        (
            case.name,
            e.name,
            e.dtype,
            str(e.batch),
            f"{1 - span:.1f}-{1 + span:.1f}",
            f"{e.compile_s:.2f}",
            f"{e.rate:.0f}",
            f"{1e6 / e.rate:.3f}",
            f"{e.iterations:.2f}",
            f"{e.error_pu:.1e}",
            f"{e.rate / max(peers):.2f}" if peers else "-",
        )
        for e in engines
    ]


def main() -> None:
    arguments = parser(__doc__, "six cases, B = 256 and 1024, few rounds")
    arguments.add_argument("--case", nargs="+", default=None, help=f"default: {' '.join((*FEEDERS, *MESHED))}")
    arguments.add_argument("--device", action="store_true", help="large batches on jax's default device, no peers")
    arguments.add_argument("--note", default="", help="what the first line should say besides: how a peer was built")
    args = arguments.parse_args()
    names, batches = (QUICK, (256, 1024)) if args.quick else ((*FEEDERS, *MESHED), BATCHES)
    if args.device:
        names, batches = DEVICE_CASES, DEVICE_BATCHES[:1] if args.quick else DEVICE_BATCHES
    rounds = args.rounds or (5 if args.quick else 15)
    run = measure_device if args.device else measure
    with Table(COLUMNS, args.out, args.note) as table:
        for name in args.case or names:
            case = load_case(name)
            for row in rows(case, run(case, batches, rounds, 0.02 if args.quick else 0.05)):
                table.add(row)


if __name__ == "__main__":
    main()
