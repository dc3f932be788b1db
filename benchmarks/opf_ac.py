"""Speed of AC-OPF on case118 against pandapower's runopp: one pinned core, interleaved, the same loads.

Usage: python benchmarks/opf_ac.py [--quick] [--rounds 5] [--out results.tsv]

What is timed: here loads on the device in -> operating point, prices, residuals and status ready, float64. pandapower
solves the same loads one after the other through `runopp`, from a flat start. Loads are unseen draws per bus.
`cost_error` is the largest relative difference between the two, `violation` the largest of a balance or limit [pu];
pandapower's network is a conversion of the case, so it solves a slightly different problem.
pandapower comes with `pip install .[bench]`; without it there is no ratio.
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
from peers import Engine
from report import Table, parser

from powerzoo_jax.cases import Case
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.opf import AcOpfResult, ac_opf, prepare_ac_opf

SEED, PEER_COUNT, BATCHES = 20_240_613, 4, (256,)
COLUMNS = (
    *("problem", "engine", "dtype", "B", "compile_s", "solves_per_s", "ms_per_solve", "iterations"),
    *("cost_error", "violation_pu", "ratio_to_pandapower"),
)


def draws(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Loads (B, N) [MW], [Mvar]."""
    factor = np.random.default_rng(SEED).uniform(0.8, 1.2, (max(BATCHES), case.n_bus))
    return factor * case.p_load_mw, factor * case.q_load_mvar


def own_engine(case: Case, batch: int) -> tuple[Engine, AcOpfResult]:
    factors = prepare_ac_opf(case, dtype="float64")
    p, q = (jnp.asarray(x[:batch]) for x in draws(case))
    begin = time.perf_counter()
    many = jax.vmap(lambda f, p, q: ac_opf(f, p, q, shedding=False), in_axes=(None, 0, 0))
    compiled = jax.jit(many).lower(factors, p, q).compile()
    compile_s = time.perf_counter() - begin
    out = jax.tree.map(np.asarray, compiled(factors, p, q))
    run = lambda: jax.block_until_ready(compiled(factors, p, q))  # noqa: E731
    name = f"powerzoo_jax ({out.optimal.mean():.2%} optimal)"
    return Engine(name, "float64", batch, run, compile_s, float(out.iterations.mean())), out


def pandapower_engine(case: Case) -> list[Engine]:
    if util.find_spec("pandapower") is None:
        return []
    import pandapower as pp

    net, at = network(case)
    p, q = draws(case)

    def run() -> list[float]:
        found = []
        for k in range(PEER_COUNT):
            net.load["p_mw"], net.load["q_mvar"] = p[k][at], q[k][at]
            pp.runopp(net, verbose=False)
            found.append(float(net.res_cost))
        return found

    engine = Engine("pandapower runopp", "float64", PEER_COUNT, run)
    engine.objectives = np.array(run())  # type: ignore[attr-defined]
    return [engine]


def network(case: Case) -> tuple[Any, np.ndarray]:
    """The case as pandapower's network, and the bus position of each of its loads."""
    from pandapower.converter.pypower.from_ppc import from_ppc

    b, br, unit, n = case.bus, case.branch, case.unit, case.n_bus
    zero, one = np.zeros(n), np.ones(n)
    base_kv = np.where(b.base_kv > 0, b.base_kv, 100.0)
    bus = [np.arange(n), b.kind, one, one, b.gs_mw, b.bs_mvar, one, b.v_init_pu, zero, base_kv, one]
    far = np.full(case.n_branch, 1e4)
    branch = [case.positions(br.from_id), case.positions(br.to_id), br.r_pu, br.x_pu, br.b_pu, far, far, far]
    branch += [br.tap, br.shift_deg, br.in_service, 0 * far - 360, 0 * far + 360]
    gen = [case.positions(unit.bus_id), unit.p_mw, unit.q_mvar, unit.q_max_mvar, unit.q_min_mvar, unit.v_set_pu]
    gen += [unit.base_mva, unit.in_service, unit.p_max_mw, unit.p_min_mw]
    cost = [unit.cost_model, 0 * unit.p_mw, 0 * unit.p_mw, 0 * unit.p_mw + 3, *unit.cost.T]
    tables = {
        "bus": np.stack([*bus, b.v_max_pu, b.v_min_pu], 1).astype(float),
        "branch": np.stack(branch, 1).astype(float),
        "gen": np.c_[np.stack(gen, 1), np.zeros((case.n_unit, 11))].astype(float),
        "gencost": np.stack(cost, 1).astype(float),
    }
    net = from_ppc({"version": "2", "baseMVA": case.base_mva, **tables}, f_hz=50)
    return net, net.load.bus.to_numpy()


def measure(rounds: int) -> list[tuple[str, ...]]:
    case = load_case("case118")
    with jax.enable_x64(True):
        own = [own_engine(case, batch) for batch in BATCHES]
        peers = pandapower_engine(case)
        engines = [engine for engine, _ in own] + peers
        for _ in range(rounds):
            for engine in engines:
                engine.time(0.05)
    exact = own[-1][1]
    lines = []
    for engine in engines:
        found = next((out for known, out in own if known is engine), None)
        cost = getattr(engine, "objectives", exact.objective[: engine.batch] if found is None else found.objective)
        error = np.abs(cost / exact.objective[: len(cost)] - 1).max()
        violation = "-" if found is None else f"{found.primal_residual.max():.1e}"
        ratio = f"{engine.rate / peers[0].rate:.1f}" if peers else "-"
        cells = ("ac118", engine.name, engine.dtype, str(engine.batch), f"{engine.compile_s:.1f}")
        speed = (f"{engine.rate:.1f}", f"{1e3 / engine.rate:.3f}", f"{engine.iterations:.1f}")
        lines.append((*cells, *speed, f"{error:.1e}", violation, ratio))
    return lines


def main() -> None:
    args = parser(__doc__, "few rounds").parse_args()
    with Table(COLUMNS, args.out) as table:
        for row in measure(args.rounds or (2 if args.quick else 5)):
            table.add(row)


if __name__ == "__main__":
    main()
