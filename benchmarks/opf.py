"""Speed of DC-OPF and market clearing against HiGHS, OSQP and qpax: one pinned core, interleaved, same programmes.

Usage: python benchmarks/opf.py [--quick] [--problem clearing5 ...] [--rounds 9] [--out results.tsv]

What is timed: here loads on the device in -> dispatch, flows, prices, residuals and status ready. A peer solves the
same reduced programmes (balance, limits of the branches that entered, shedding) one after the other through its own
Python interface, data changes included; OSQP keeps its factor and starts warm. Loads are unseen draws per bus.
Fixed steps are the form that accelerators take; a CPU takes the adaptive one.
`violation` is the largest excess over a limit or of the balance [pu], here of all branches, of a peer of what it was
given; `cost_error` is relative to the float64 optimum, whose dual bound is checked. Peers come with
`pip install .[bench]`; one that is missing is left out.
"""

from __future__ import annotations

# isort: off
import one_core  # noqa: F401  pins the process before jax starts
# isort: on

import time
from collections.abc import Callable
from importlib import util
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from peers import Engine
from report import Table, parser

from powerzoo_jax.cases import Case
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.opf import Qp, binding_rows, dc_opf, dc_programme, dual_bound, economic_dispatch, prepare_dc_opf
from powerzoo_jax.opf.qp import cost_at, violation

SEED, PEER_COUNT, BATCHES = 20_240_613, 40, (256, 1024)
PEERS = ("highs", "osqp", "qpax")
COLUMNS = (
    *("problem", "engine", "dtype", "B", "compile_s", "solves_per_s", "us_per_solve", "iterations"),
    *("cost_error", "violation_pu", "ratio_to_highs", "ratio_to_osqp", "ratio_to_qpax"),
)


class Problem(NamedTuple):
    """A case with the branches that matter, and loads drawn around nominal."""

    name: str
    case: Case
    rate: np.ndarray
    rows: np.ndarray
    load: np.ndarray


def clearing5(count: int) -> Problem:
    case, rng = load_case("pz_case5"), np.random.default_rng(SEED)
    load = case.p_load_mw * rng.uniform(0.7, 1.4, (count, 1)) * rng.uniform(0.8, 1.2, (count, 5))
    return Problem("clearing5", case, case.branch.rate_a_mva, np.flatnonzero(case.branch.rate_a_mva > 0), load)


def lines118(count: int) -> Problem:
    case, rng = load_case("pz_case118"), np.random.default_rng(SEED)
    rate = 0.7 * case.branch.rate_a_mva  # so that some lines bind at nominal load
    load = case.p_load_mw * rng.uniform(0.8, 1.2, (count, case.n_bus))
    sample = case.p_load_mw * rng.uniform(0.8, 1.2, (200, case.n_bus))
    return Problem("lines118", case, rate, binding_rows(case, sample, rate_mva=0.97 * rate), load)


PROBLEMS: dict[str, Callable[[int], Problem]] = {"clearing5": clearing5, "lines118": lines118}


def own_engine(
    problem: Problem, batch: int, dtype: str, solver: str = "adaptive", *, vertex: bool = False
) -> tuple[Engine, Any]:
    """Solutions as the steps of environments take them, or with the way on to a vertex, as `dc_opf` does by itself."""
    factors = prepare_dc_opf(problem.case, rows=problem.rows, rate_mva=problem.rate, dtype=dtype)
    load = jnp.asarray(problem.load[:batch], dtype)
    begin = time.perf_counter()
    solve = jax.jit(
        jax.vmap(lambda factors, load: dc_opf(factors, load, solver=solver, vertex=vertex), in_axes=(None, 0))
    )
    compiled = solve.lower(factors, load).compile()
    compile_s = time.perf_counter() - begin
    out = jax.tree.map(np.asarray, compiled(factors, load))
    run = lambda: jax.block_until_ready(compiled(factors, load))  # noqa: E731
    form = ("" if solver == "adaptive" else f" {solver} steps") + (" to a vertex" if vertex else "")
    name = f"powerzoo_jax{form} ({(out.status == 0).mean():.2%} optimal)"
    return Engine(name, dtype, batch, run, compile_s, float(out.iterations.mean())), out


def merit_order_engine(problem: Problem, batch: int) -> Engine:
    """The same loads without a network."""
    factors = prepare_dc_opf(problem.case, rows=[], dtype="float32")
    total = jnp.asarray(problem.load[:batch].sum(1), "float32")

    def solve(offers: Any, total: jax.Array) -> Any:
        return jax.vmap(lambda d: economic_dispatch(offers, d, factors.p_min_mw, factors.p_max_mw))(total)

    begin = time.perf_counter()
    compiled = jax.jit(solve).lower(factors.offers, total).compile()
    compile_s = time.perf_counter() - begin
    run = lambda: jax.block_until_ready(compiled(factors.offers, total))  # noqa: E731
    return Engine("powerzoo_jax merit order", "float32", batch, run, compile_s)


def programmes(problem: Problem) -> list[Qp]:
    """What the peers solve, as host arrays without fixed columns."""
    factors = prepare_dc_opf(problem.case, rows=problem.rows, rate_mva=problem.rate, dtype="float64")
    found = [dc_programme(factors, jnp.asarray(load)) for load in problem.load[:PEER_COUNT]]
    return [jax.tree.map(lambda x: np.asarray(x, np.float64), qp) for qp in found]


def highs_engine(given: list[Qp]) -> list[Engine]:
    if util.find_spec("highspy") is None:
        return []
    import highspy
    from scipy import sparse

    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)

    def run() -> list[Any]:
        return [_highs(solver, highspy, sparse, qp) for qp in given]

    engine = Engine("highs", "float64", len(given), run)
    engine.points = run()  # type: ignore[attr-defined]
    return [engine]


def _highs(solver: Any, highspy: Any, sparse: Any, qp: Qp) -> Any:
    lp, matrix = highspy.HighsLp(), sparse.csc_matrix(np.asarray(qp.a))
    lp.num_col_, lp.num_row_ = matrix.shape[1], matrix.shape[0]
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = qp.c, qp.lo, qp.hi
    lp.row_lower_, lp.row_upper_ = qp.row_lo, qp.row_hi
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = matrix.indptr, matrix.indices, matrix.data
    model = highspy.HighsModel()
    model.lp_ = lp
    if np.any(qp.q):
        hessian = highspy.HighsHessian()
        hessian.dim_, hessian.format_ = lp.num_col_, highspy.HessianFormat.kTriangular
        hessian.start_, hessian.index_ = np.arange(lp.num_col_ + 1), np.arange(lp.num_col_)
        hessian.value_ = qp.q
        model.hessian_ = hessian
    solver.passModel(model)
    solver.run()
    return solver.getSolution().col_value


def osqp_engine(given: list[Qp]) -> list[Engine]:
    if util.find_spec("osqp") is None:
        return []
    import osqp
    from scipy import sparse

    first = given[0]
    matrix = sparse.csc_matrix(np.vstack([first.a, np.eye(first.c.size)]))
    solver = osqp.OSQP()
    scale = 1 / np.abs(first.c).max()  # without it OSQP's absolute tolerance means nothing
    bounds = [(np.r_[qp.row_lo, qp.lo], np.r_[qp.row_hi, qp.hi]) for qp in given]
    settings = {"verbose": False, "eps_abs": 1e-6, "eps_rel": 1e-6, "max_iter": 20_000}
    solver.setup(sparse.diags(first.q * scale, format="csc"), first.c * scale, matrix, *bounds[0], **settings)

    def run() -> list[Any]:
        found = []
        for low, high in bounds:
            solver.update(l=low, u=high)
            found.append(solver.solve().x)
        return found

    engine = Engine("osqp warm eps 1e-6", "float64", len(given), run)
    engine.points = run()  # type: ignore[attr-defined]
    return [engine]


def qpax_engine(given: list[Qp]) -> list[Engine]:
    """qpax's dense interior point, all programmes in one vmap; every limit that is finite is a row of its own."""
    if util.find_spec("qpax") is None:
        return []
    import qpax

    first = given[0]
    scale, one = 1 / np.abs(first.c).max(), np.eye(first.c.size)
    equal = first.row_lo == first.row_hi
    above, below = np.isfinite(first.row_hi) & ~equal, np.isfinite(first.row_lo) & ~equal
    rows = np.vstack([first.a[above], -first.a[below], one, -one])
    limits = jnp.asarray([np.r_[qp.row_hi[above], -qp.row_lo[below], qp.hi, -qp.lo] for qp in given])
    sums = jnp.asarray([qp.row_lo[equal] for qp in given])

    def solve(limit: jax.Array, total: jax.Array) -> jax.Array:
        q, c = jnp.diag(jnp.asarray(first.q * scale)), jnp.asarray(first.c * scale)
        return qpax.solve_qp(q, c, jnp.asarray(first.a[equal]), total, jnp.asarray(rows), limit, solver_tol=1e-6)[0]

    begin = time.perf_counter()
    compiled = jax.jit(jax.vmap(solve)).lower(limits, sums).compile()
    compile_s = time.perf_counter() - begin
    run = lambda: jax.block_until_ready(compiled(limits, sums))  # noqa: E731
    engine = Engine("qpax eps 1e-6", "float64", len(given), run, compile_s)
    engine.points = list(np.asarray(run()))  # type: ignore[attr-defined]
    return [engine]


def measure(problem: Problem, rounds: int) -> list[tuple[str, ...]]:
    own = [own_engine(problem, batch, "float32", vertex=vertex) for batch in BATCHES for vertex in (False, True)]
    own.append(own_engine(problem, BATCHES[-1], "float32", "fixed"))
    with jax.enable_x64(True):
        own.append(own_engine(problem, BATCHES[-1], "float64", "fixed"))
        own += [own_engine(problem, batch, "float64", vertex=vertex) for batch in BATCHES for vertex in (False, True)]
        given = programmes(problem)
        peers = highs_engine(given) + osqp_engine(given) + qpax_engine(given)
    engines = [engine for engine, _ in own] + [merit_order_engine(problem, BATCHES[-1])] + peers
    for _ in range(rounds):
        for engine in engines:
            engine.time(0.05)
    exact = own[-1][1]
    checked(problem, exact, given)
    rates = {engine.name.split()[0]: engine.rate for engine in peers}
    lines = []
    for engine in engines:
        error, violation = _quality(problem, engine, dict((id(e), out) for e, out in own).get(id(engine)), exact, given)
        ratios = tuple(
            f"{engine.rate / rates[name]:.1f}" if name in rates else "-" for name in ("highs", "osqp", "qpax")
        )
        cells = (problem.name, engine.name, engine.dtype, str(engine.batch), f"{engine.compile_s:.1f}")
        speed = (f"{engine.rate:.0f}", f"{1e6 / engine.rate:.2f}", f"{engine.iterations:.1f}")
        lines.append((*cells, *speed, error, violation, *ratios))
    return lines


def _quality(problem: Problem, engine: Engine, out: Any, exact: Any, given: list[Qp]) -> tuple[str, str]:
    if out is not None:
        error = np.abs(out.objective.astype(float) / exact.objective[: engine.batch] - 1)[out.status == 0].max()
        over = np.maximum(out.overload_mw / problem.case.base_mva, out.primal_residual)[out.status == 0].max()
        return f"{error:.1e}", f"{over:.1e}"
    points = getattr(engine, "points", None)
    if points is None:
        return "-", "-"
    fixed = float(prepare_dc_opf(problem.case, rows=[]).offers.base_cost.sum())
    cost = np.array([cost_at(qp, x) for qp, x in zip(given, points, strict=True)]) + fixed
    worst = max(violation(qp, x) for qp, x in zip(given, points, strict=True))
    return f"{np.abs(cost / exact.objective[: len(given)] - 1).max():.1e}", f"{worst:.1e}"


def checked(problem: Problem, exact: Any, given: list[Qp]) -> None:
    """Weak duality in NumPy: nothing that the peers are given costs less than the reference."""
    base, fixed = problem.case.base_mva, float(prepare_dc_opf(problem.case, rows=[]).offers.base_cost.sum())
    for k, qp in enumerate(given):
        bound = dual_bound(qp, exact.multipliers[k] * base) + fixed
        assert abs(bound / exact.objective[k] - 1) < 1e-6, (problem.name, k, bound, exact.objective[k])


def main() -> None:
    arguments = parser(__doc__, "few rounds")
    arguments.add_argument("--problem", nargs="+", default=list(PROBLEMS), choices=list(PROBLEMS))
    args = arguments.parse_args()
    with Table(COLUMNS, args.out) as table:
        for name in args.problem:
            for row in measure(PROBLEMS[name](max(BATCHES)), args.rounds or (3 if args.quick else 9)):
                table.add(row)


if __name__ == "__main__":
    main()
