"""Speed of the feeder power flow against lightsim2grid and power-grid-model: one pinned core, interleaved.

Usage: python benchmarks/powerflow.py [--quick] [--case case33bw ...] [--rounds 15] [--out results.tsv]

What is timed: here device arrays of injections in -> voltages of all buses, status and residual ready; for a peer
one call of its batch interface, upload of the loads included as the interface has it, voltages ready on the host.
Loads are unseen draws U(0.8, 1.2) per bus; every engine stops by its own test at run time. Peers stop at 1e-8 pu.
Medians over rounds in which every engine runs once; a ratio is against the fastest peer of its case.
Install the peers with `pip install .[bench]`; one that is missing is left out.
"""

from __future__ import annotations

# isort: off
import one_core  # noqa: F401  pins the process before jax starts
# isort: on

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata, util
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from powerzoo_jax.cases import Case
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.powerflow import nominal_injection, prepare_feeder, solve_feeder_active
from tests.reference.newton_reference import build_network, solve_states

CASES = ("case33bw", "case69", "case118zh", "case141", "case533mt_hi", "case533mt_lo")
BATCHES = (1, 64, 256, 1024, 4096)
PEER_BATCH = 1024
PEER_TOL = 1e-8
SPAN = (0.8, 1.2)
SEED = 20_240_607
COLUMNS = [
    *("case", "engine", "dtype", "B", "compile_s", "solves_per_s", "us_per_solve", "iterations"),
    *("max_v_error_pu", "ratio_to_best_peer", "device", "versions"),
]


@dataclass
class Engine:
    """One timed closure: `run()` solves `batch` scenarios; the figures are filled in as it runs."""

    name: str
    dtype: str
    batch: int
    run: Callable[[], Any]
    compile_s: float = 0.0
    iterations: float = 0.0
    error_pu: float = 0.0
    times: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.batch / float(np.median(self.times))


def draw(case: Case, count: int) -> np.ndarray:
    """Net injections (count, N) complex [pu], every load scaled on its own."""
    rng = np.random.default_rng(SEED)
    return nominal_injection(case) * rng.uniform(*SPAN, (count, case.n_bus))


def own_engine(case: Case, s: np.ndarray, v_ref: np.ndarray, dtype: str) -> Engine:
    factors = prepare_feeder(case, dtype=dtype)
    active = np.asarray(factors.active)
    p, q = jnp.asarray(s[:, active].real, dtype), jnp.asarray(s[:, active].imag, dtype)

    def solve(factors: Any, p: jax.Array, q: jax.Array) -> tuple[jax.Array, ...]:
        out = solve_feeder_active(factors, p, q)
        return out.v_re, out.v_im, out.status, out.residual, out.iterations

    # iterations are read below and cost nothing: the loop carries them anyway
    batched = jax.jit(jax.vmap(solve, in_axes=(None, 0, 0)))
    begin = time.perf_counter()
    compiled = batched.lower(factors, p, q).compile()
    compile_s = time.perf_counter() - begin
    v_re, v_im, status, _, steps = (np.asarray(x, float) for x in compiled(factors, p, q))
    if status.any():
        raise RuntimeError(f"{case.name}: {int((status != 0).sum())} of {len(s)} lanes did not converge")
    return Engine(
        name="powerzoo_jax",
        dtype=dtype,
        batch=len(s),
        run=lambda: jax.block_until_ready(compiled(factors, p, q)),
        compile_s=compile_s,
        iterations=float(steps.mean()),
        error_pu=float(np.abs(np.hypot(v_re, v_im) - np.abs(v_ref[: len(s)])).max()),
    )


def lightsim2grid_engines(case: Case, s: np.ndarray, v_ref: np.ndarray) -> list[Engine]:
    if util.find_spec("lightsim2grid") is None:
        return []
    from lightsim2grid import lightsim2grid_cpp as cpp
    from lightsim2grid import network

    model = network.init_from_matpower(_matpower_tables(case))
    bus = np.array([load.bus_id for load in model.get_loads()])
    p_mw, q_mvar = (np.ascontiguousarray(-x[:, bus] * case.base_mva) for x in (s.real, s.imag))
    unit_mw = np.array([unit.target_p_mw for unit in model.get_generators()])
    units_mw = np.repeat(unit_mw[None], len(s), 0)
    start = solve_states(build_network(case), nominal_injection(case)[None]).v[0]
    engines = []
    for name, mode, steps in (("lightsim2grid newton", 0, 30), ("lightsim2grid chord", 2, 100)):
        sweep = cpp.InjectionSweepCPP(model)
        sweep.change_algorithm(cpp.AlgorithmType.NR_KLU)
        config = sweep.get_algo_config()
        values = list(config.int_params)
        values[1] = mode  # 0 refactors the Jacobian at every step, 2 keeps the first
        config.int_params = values
        sweep.set_algo_config(config)

        def run(sweep: Any = sweep, steps: int = steps) -> Any:
            sweep.modify_gen_p(units_mw)
            sweep.modify_load_p(p_mw)
            sweep.modify_load_q(q_mvar)
            sweep.compute(start, steps, PEER_TOL)
            return sweep.get_voltages()

        error = float(np.abs(np.abs(run()) - np.abs(v_ref[: len(s)])).max())
        iterations = float(np.mean(sweep.get_row_nb_iter()))
        engines.append(Engine(name, "float64", len(s), run, iterations=iterations, error_pu=error))
    return engines


def _matpower_tables(case: Case) -> dict[str, Any]:
    """The case in MATPOWER's columns; bus shunts, charging and taps are absent in these feeders."""
    one, zero = np.ones(case.n_bus), np.zeros(case.n_bus)
    b, u, br = case.bus, case.unit, case.branch
    s = nominal_injection(case)  # units at load buses are folded into the loads, as in the package
    at = case.positions(u.bus_id)
    keep = at == case.slack_bus[0]
    bus = [b.id, b.kind, -s.real * case.base_mva, -s.imag * case.base_mva, zero, zero, one, b.v_init_pu]
    bus += [b.angle_init_deg, b.base_kv, one, b.v_max_pu, b.v_min_pu]
    unit = [u.bus_id, u.p_mw, u.q_mvar, u.q_max_mvar, u.q_min_mvar, u.v_set_pu, u.base_mva, u.in_service]
    unit += [u.p_max_mw, u.p_min_mw, *([np.zeros(case.n_unit)] * 11)]
    branch = [br.from_id, br.to_id, br.r_pu, br.x_pu, br.b_pu, *([br.rate_a_mva] * 3), 0 * br.tap]
    branch += [br.shift_deg, br.in_service, br.angle_min_deg, br.angle_max_deg]

    def columns(parts: list[np.ndarray], rows: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.stack([np.asarray(c, float)[rows] for c in parts], 1))

    tables = {
        "bus": columns(bus, np.ones(case.n_bus, bool)),
        "gen": columns(unit, keep),
        "branch": columns(branch, br.in_service),
    }
    return {"baseMVA": case.base_mva, "version": "2", **tables}


def power_grid_model_engine(case: Case, s: np.ndarray, v_ref: np.ndarray) -> list[Engine]:
    if util.find_spec("power_grid_model") is None:
        return []
    from power_grid_model import CalculationMethod, PowerGridModel, initialize_array

    model, load_ids, bus = _power_grid_model(case, initialize_array, PowerGridModel)
    update = initialize_array("update", "sym_load", (len(s), len(bus)))
    update["id"] = load_ids[None]
    update["p_specified"] = -s[:, bus].real * case.base_mva * 1e6
    update["q_specified"] = -s[:, bus].imag * case.base_mva * 1e6

    def run() -> Any:
        return model.calculate_power_flow(
            update_data={"sym_load": update},
            calculation_method=CalculationMethod.newton_raphson,
            error_tolerance=PEER_TOL,
            max_iterations=200,
            threading=-1,
            output_component_types=["node"],
        )

    error = float(np.abs(run()["node"]["u_pu"] - np.abs(v_ref[: len(s)])).max())
    return [Engine("power-grid-model newton", "float64", len(s), run, iterations=float("nan"), error_pu=error)]


def _power_grid_model(case: Case, initialize: Any, model: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    volt = 1e4
    ohm = volt * volt / (case.base_mva * 1e6)
    net = build_network(case)
    on = case.branch.in_service
    n, n_line = case.n_bus, int(on.sum())
    node = initialize("input", "node", n)
    node["id"], node["u_rated"] = np.arange(n), volt
    line = initialize("input", "line", n_line)
    line["id"], line["from_node"], line["to_node"] = n + np.arange(n_line), net.f[on], net.t[on]
    line["from_status"], line["to_status"] = 1, 1
    line["r1"], line["x1"] = case.branch.r_pu[on] * ohm, case.branch.x_pu[on] * ohm
    line["c1"], line["tan1"], line["i_n"] = 0.0, 0.0, 1e4
    bus = np.flatnonzero(nominal_injection(case))
    load = initialize("input", "sym_load", bus.size)
    load["id"], load["node"], load["status"], load["type"] = n + n_line + np.arange(bus.size), bus, 1, 0
    load["p_specified"], load["q_specified"] = 0.0, 0.0
    source = initialize("input", "source", 1)
    source["id"], source["node"], source["status"] = 3 * n + n_line, net.slack, 1
    source["u_ref"], source["u_ref_angle"], source["sk"], source["rx_ratio"] = net.v0, 0.0, 1e16, 0.1
    built = model({"node": node, "line": line, "sym_load": load, "source": source}, system_frequency=50.0)
    return built, load["id"], bus


def measure(case: Case, batches: tuple[int, ...], rounds: int, budget_s: float) -> list[Engine]:
    """Time all engines of one case in turn, round by round."""
    s = draw(case, max(*batches, PEER_BATCH))
    v_ref = solve_states(build_network(case), s).v
    engines = [own_engine(case, s[:b], v_ref, "float32") for b in batches]
    with jax.enable_x64(True):
        engines += [own_engine(case, s[:b], v_ref, "float64") for b in batches]
    engines += lightsim2grid_engines(case, s[:PEER_BATCH], v_ref)
    engines += power_grid_model_engine(case, s[:PEER_BATCH], v_ref)
    for _ in range(rounds):
        for engine in engines:
            _time(engine, budget_s)
    return engines


def _time(engine: Engine, budget_s: float) -> None:
    begin = time.perf_counter()
    while time.perf_counter() - begin < budget_s or len(engine.times) == 0:
        tick = time.perf_counter()
        engine.run()
        engine.times.append(time.perf_counter() - tick)


def rows(case: Case, engines: list[Engine], versions: str) -> list[tuple[str, ...]]:
    peers = [e.rate for e in engines if e.name != "powerzoo_jax"]
    device = jax.devices()[0].device_kind
    return [
        (
            case.name,
            e.name,
            e.dtype,
            str(e.batch),
            f"{e.compile_s:.2f}",
            f"{e.rate:.0f}",
            f"{1e6 / e.rate:.3f}",
            f"{e.iterations:.2f}",
            f"{e.error_pu:.1e}",
            f"{e.rate / max(peers):.2f}" if peers else "-",
            device,
            versions,
        )
        for e in engines
    ]


def _versions() -> str:
    found = {d.metadata["Name"].lower().replace("_", "-"): d.version for d in metadata.distributions()}
    wanted = ("powerzoo-jax", "jax", "numpy", "lightsim2grid", "power-grid-model")
    return " ".join(f"{name}={found[name]}" for name in wanted if name in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three cases, B = 256 and 1024, few rounds")
    parser.add_argument("--case", nargs="+", default=None, help=f"default: {' '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--out", type=Path, default=None, help="also write the table to this file")
    args = parser.parse_args()
    cases = args.case or (("case33bw", "case69", "case141") if args.quick else CASES)
    batches = (256, 1024) if args.quick else BATCHES
    rounds = args.rounds or (5 if args.quick else 15)
    lines = ["\t".join(COLUMNS)]
    print(lines[0], flush=True)
    for name in cases:
        case = load_case(name)
        engines = measure(case, batches, rounds, 0.02 if args.quick else 0.05)
        for row in rows(case, engines, _versions()):
            lines.append("\t".join(row))
            print(lines[-1], flush=True)
    if args.out is not None:
        args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
