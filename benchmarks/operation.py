"""Power flows a second with another topology in every lane, beside lightsim2grid on the same ones: one pinned core.

Usage: python benchmarks/operation.py [--case case14 ...] [--rounds 15] [--no-jax-form] [--quick] [--out FILE]

The draw: 1,024 topologies with 0 to 2 split substations and 0 to 2 open lines, both uniform, a factor U(0.8, 1.2) for
each load; every busbar in use reaches the slack and had two line ends before lines opened. Every engine begins at the
base state and stops at 1e-8 pu. Of two mirror images each grid is the one that lightsim2grid takes, with the shunt and
the unit of the slack bus on busbar 1. What an engine calls solved is put into the power balance of the doubled network
in NumPy and SciPy, which share no code with it; `unsolved` counts the lanes that it gives up and `missed` those of them
that SciPy's Newton solves.

What is timed: here device arrays of injections by node and topologies in -> voltages, residual, steps and status, or
every field of the result; for the peer one call of `compute` of its scenario sweep, with the injections and one action
a row, which leaves voltages on the host. Engines run in turn. `best_per_s` is the fastest round, `median_per_s` the
median, both by the clock; `per_cpu_s` is the median by processor time, for a machine that other programs use too, and
what marks are judged by: of the kernel in float64 with voltages read.
"""

from __future__ import annotations

# isort: off
import one_core  # noqa: F401  pins the process before jax starts
# isort: on

import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import util
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from peers import TOL, Engine, matpower_tables
from published import balance
from report import Table, parser

from powerzoo_jax.cases import load_case
from powerzoo_jax.powerflow import prepare_topology, solve_topology
from powerzoo_jax.powerflow.native.library import describe
from tests.references.busbars import (
    SplitNetwork,
    Substations,
    build_split,
    build_substations,
    draw_topologies,
    mirror_image,
    node_sums,
    solve_split,
)

CASES = ("case14", "case118")
LANES = 1024
ROUND_S, ROUNDS, FEW_ROUNDS = 0.02, 30, 9
STATE, ALL = "state", "all"  # what is read: voltages, residual, steps and status, or every field of the result
KERNEL, JAX_FORM, PEER = "kernel", "JAX form", "lightsim2grid"
MARKS = {"case14": (500e3, 1e6), "case118": (80e3, 150e3)}  # required, aim
COLUMNS = (
    *("case", "engine", "dtype", "read", "lanes", "best_per_s", "median_per_s", "per_cpu_s", "prepare_s", "compile_s"),
    *("steps", "kcl_pu", "unsolved", "missed", "required", "aim", "reached"),
)


class Draw(NamedTuple):
    """Scenarios of one case: topology (B, E) int8, injections by element and by node (B, E), (B, 2N) complex [pu]."""

    sub: Substations
    topology: np.ndarray
    s: np.ndarray
    node: np.ndarray
    split: list[SplitNetwork]


@dataclass
class Run:
    """An engine with what is told of it beside its speed; v (B, 2N) complex [pu], solved (B,)."""

    engine: Engine
    read: str
    v: np.ndarray
    solved: np.ndarray
    prepare_s: float = 0.0


def draw(name: str, lanes: int) -> Draw:
    sub = build_substations(load_case(name))
    topology, s = draw_topologies(sub, lanes)
    slack = np.arange(sub.units.start, sub.units.stop)[sub.bus[sub.units] == sub.net.slack][:1]
    for row in topology:
        second = np.r_[slack, np.arange(sub.shunts.start, sub.shunts.stop)]
        row[:] = mirror_image(sub, row, sub.bus[second[row[second] == 2]])
    node = np.stack([node_sums(sub, *pair) for pair in zip(topology, s, strict=True)])
    return Draw(sub, topology, s, node, [build_split(sub, row) for row in topology])


def own_run(given: Draw, name: str, dtype: str, read: str) -> Run:
    """Prepare, compile and solve once."""
    tick = time.process_time()
    network = prepare_topology(given.sub.case, dtype=dtype, solver="native" if name == KERNEL else "adaptive")
    jax.block_until_ready(jax.tree.leaves(network))
    prepare_s = time.process_time() - tick

    def solve(network: Any, p: jax.Array, q: jax.Array, topology: jax.Array) -> Any:
        out = solve_topology(network, p, q, topology)
        return (out if read == ALL else None), out.v_re, out.v_im, out.status, out.residual, out.iterations

    arrays = (jnp.asarray(given.node.real, dtype), jnp.asarray(given.node.imag, dtype), jnp.asarray(given.topology))
    tick = time.process_time()
    compiled = jax.jit(jax.vmap(solve, in_axes=(None, 0, 0, 0))).lower(network, *arrays).compile()
    compile_s = time.process_time() - tick
    _, re, im, status, _, steps = jax.tree.map(np.asarray, compiled(network, *arrays))
    engine = Engine(name, dtype, len(re), lambda: jax.block_until_ready(compiled(network, *arrays)), compile_s)
    engine.iterations = float(steps.mean())
    return Run(engine, read, re.astype(float) + 1j * im, status == 0, prepare_s)


def peer_run(given: Draw) -> Iterator[Run]:
    """The scenario sweep of lightsim2grid with one topological action a row; nothing where it is not installed."""
    if util.find_spec("lightsim2grid") is None:
        return
    from lightsim2grid import lightsim2grid_cpp as cpp
    from lightsim2grid import network

    sub, case = given.sub, given.sub.case
    tick = time.process_time()
    model = network.init_from_matpower(matpower_tables(case), n_busbar_per_sub=2)
    sweep = cpp.ScenarioSweepCPP(model)
    sweep.change_algorithm(cpp.AlgorithmType.NR_KLU)
    prepare_s = time.process_time() - tick
    m, kinds = case.n_branch, cpp.ElementType
    tapped = (case.branch.tap != 1) | (case.branch.shift_deg != 0)
    line = np.empty(m, int)  # as numbered there: lines, then transformers
    line[np.r_[np.flatnonzero(~tapped), np.flatnonzero(tapped)]] = np.arange(m)
    ends = [(item.bus1_id, item.bus2_id) for item in (*model.get_lines(), *model.get_trafos())]
    assert ends == [(int(sub.bus[k]), int(sub.bus[m + k])) for k in np.argsort(line)]
    units, loads = model.get_generators(), model.get_loads()
    assert [u.bus_id for u in units] == sub.bus[sub.units].tolist()
    assert [d.bus_id for d in loads] == sub.bus[sub.loads].tolist()
    place = [(kinds.line_or, k) for k in line] + [(kinds.line_ex, k) for k in line]
    place += [(kinds.gen, k) for k in range(len(units))] + [(kinds.load, k) for k in range(len(loads))]
    actions = []
    for row in given.topology:
        action = cpp.TopoAction()
        for k in np.flatnonzero(row[:m] == 0):
            action.set_line_status(int(line[k]), -1)
        for k in np.flatnonzero(row[: len(place)] == 2):
            action.add_element(place[k][0], int(place[k][1]), 2)
        actions.append(action)
    s_mva = -case.base_mva * given.s[:, sub.loads]
    p, q = np.ascontiguousarray(s_mva.real), np.ascontiguousarray(s_mva.imag)
    start = np.tile(sub.v, 2)

    def run() -> Any:
        sweep.modify_load_p(p)
        sweep.modify_load_q(q)
        sweep.set_topo_actions(actions)
        sweep.compute(start, 10, TOL)
        return sweep.get_voltages()

    v = np.array(run())
    engine = Engine(PEER, "float64", len(p), run, iterations=float(np.mean(sweep.get_row_nb_iter())))
    yield Run(engine, STATE, v, np.abs(v).max(1) > 0, prepare_s)


def check(given: Draw, run: Run) -> tuple[float, int, int]:
    """Largest error of the lanes called solved [pu], how many are not, and how many of those SciPy solves."""
    worst, missed = 0.0, 0
    for k in range(len(run.v)):
        split = given.split[k]
        if run.solved[k]:
            held = np.where(split.in_use & ~split.net.mag, split.v_set, 0)
            v = np.where(split.in_use, run.v[k], 0)
            worst = max(worst, float(balance(split.net, held, v[None], given.node[k][None])[0]))
        else:
            missed += solve_split(given.sub, given.topology[k], given.s[k]).converged
    return worst, int((~run.solved).sum()), missed


def measure(name: str, lanes: int, rounds: int, jax_form: bool) -> Iterator[tuple[str, ...]]:
    """Rows of a case: every engine solves once and is checked, then all are timed in turn."""
    given = draw(name, lanes)
    forms = [(KERNEL, "float64", STATE), (KERNEL, "float64", ALL), (KERNEL, "float32", STATE)]
    forms += [(JAX_FORM, "float32", STATE)] * jax_form
    runs = []
    for form in forms:
        with jax.enable_x64(form[1] == "float64"):
            runs.append(own_run(given, *form))
    runs += peer_run(given)
    for k in range(rounds):
        for run in runs:
            if k < FEW_ROUNDS or run.engine.name == KERNEL:
                run.engine.time(ROUND_S)
    required, aim = MARKS[name]
    for run in runs:
        e = run.engine
        rates = (e.batch / min(e.times), e.rate, e.batch / float(np.median(e.cpu_times)))
        kcl, unsolved, missed = check(given, run)
        judged = (e.name, e.dtype, run.read) == (KERNEL, "float64", STATE)
        reached = "aim" if rates[2] >= aim else "required" if rates[2] >= required else "missed"
        marks = (f"{required:.0f}", f"{aim:.0f}", reached) if judged else ("-", "-", "-")
        about = (name, e.name, e.dtype, run.read, str(e.batch), *(f"{x:.0f}" for x in rates))
        told = (f"{run.prepare_s:.3g}", f"{e.compile_s:.3g}", f"{e.iterations:.2f}", f"{kcl:.1e}")
        yield *about, *told, str(unsolved), str(missed), *marks


def main() -> None:
    arguments = parser(__doc__, "case14 alone, few rounds, without the JAX form")
    arguments.add_argument("--case", nargs="+", default=CASES, choices=CASES)
    arguments.add_argument("--no-jax-form", action="store_true", help="it compiles long")
    args = arguments.parse_args()
    with Table(COLUMNS, args.out, f"kernel {describe()}") as table:
        for name in CASES[:1] if args.quick else args.case:
            jax_form = not (args.quick or args.no_jax_form)
            for row in measure(name, LANES, args.rounds or (3 if args.quick else ROUNDS), jax_form):
                table.add(row)


if __name__ == "__main__":
    main()
