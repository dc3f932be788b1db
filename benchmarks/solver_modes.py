"""Iterations that lanes of tasks and AC solvers need, and how often the fixed form of a solver is not enough.

Usage: python benchmarks/solver_modes.py [--task NAME ...] [--solver fixed ...] [--lanes 4096] [--steps 1000000]
                                         [--out FILE]

Random actions, uniform in [-1, 1], on the train days of each task, on whatever device JAX takes; a run of the adaptive
form tells whether what is left would have been solved there. `env/ac_pf` is a grid of 118 buses under one operator, in
AC. `solve/NAME`: random states, the load of every bus from half to one and a half of its size; iterations are those of
the adaptive form, which stops by itself, and outages that cut buses off count as solved. A lane-step is one lane for
one step, one state, or one outage of one state. `--out` keeps the rows that are not measured again. Columns,
tab-separated:
  fixed_steps        iterations that the fixed form takes with every lane: of the chord, of the interior point, or
                     rounds of reactive limits, each a power flow of its own
  taken              share of lane-steps by the iterations they took, k:share
  asked              batches in which at least one lane was left after so many iterations, over all batches
  left               lane-steps left after so many iterations
  out_of_steps       lane-steps that end OUT_OF_STEPS: of a market, without a certificate of either kind
  failed             lane-steps that end otherwise without a solution: of a market, proven infeasible
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import powerzoo_jax
from powerzoo_jax import powerflow
from powerzoo_jax.base import Step
from powerzoo_jax.cases import load_case
from powerzoo_jax.envs import DistributionEnv, Sim, vstep
from powerzoo_jax.families.joint.env import JointEnv
from powerzoo_jax.families.market.bidding import MarketEnv
from powerzoo_jax.families.market.storage import StorageMarketEnv
from powerzoo_jax.families.transmission.tasks.operator import make_transgrid
from powerzoo_jax.opf import OpfStatus, lanes
from powerzoo_jax.powerflow import Status
from powerzoo_jax.powerflow.contingency.switching import FIXED_STEPS
from powerzoo_jax.powerflow.meshed.reactive_limits import FIXED_ROUNDS
from powerzoo_jax.tasks import list_presets

LONGEST = 128  # iterations that are counted one by one
COLUMNS = ("task", "solver", "lanes", "lane_steps", "fixed_steps", "taken", "asked", "left", "out_of_steps", "failed")
MARKETS = (MarketEnv, StorageMarketEnv, JointEnv)
PER_CALL = 48  # steps of a call of the compiled program
SEED = 20_261_122
AC = "env/ac_pf"
SPAN = (0.5, 1.5)  # of each load in random states


class Solves(NamedTuple):
    """What the solver of a step said of itself, (B,) each: iterations, and three flags."""

    taken: Array
    solved: Array
    out_of_steps: Array
    failed: Array


def of_power_flow(out: Step) -> Solves:
    """Power flows of a batch of steps."""
    return of_status(out.info.pf_iterations, out.info.pf_status)


def of_status(taken: Array, status: Array) -> Solves:
    """Power flows by their iterations and status; one without the buses that an outage cuts off is solved."""
    lost, solved = status == Status.OUT_OF_STEPS, (status == Status.CONVERGED) | (status == Status.ISLANDED)
    return Solves(taken, solved, lost, ~lost & ~solved)


def of_market(out: Step) -> Solves:
    """Clearings of a batch of steps of a `watched` environment."""
    status, taken = out.info.opf_status[:, 0], out.info.opf_status[:, 1]
    proven = status == OpfStatus.INFEASIBLE
    solved = status == OpfStatus.OPTIMAL
    return Solves(taken, solved, ~solved & ~proven, proven)


def watched(env: Any) -> Any:
    """A market whose `opf_status` is (2,): the status, and the iterations, which a step does not tell otherwise."""

    class Watched(type(env)):  # type: ignore[misc]
        def account(self, state: Any, devices: Any, delivery: Any, flow: Any, params: Any) -> Any:
            new, reward, cost, info = super().account(state, devices, delivery, flow, params)
            prices = flow.prices if isinstance(env, JointEnv) else flow.dispatch
            pair = jnp.stack([info.opf_status, prices.iterations])
            return new, reward, cost, dataclasses.replace(info, opf_status=pair)

    return Watched(**{field.name: getattr(env, field.name) for field in dataclasses.fields(env)})


def tasks() -> list[str]:
    """Tasks and presets that solve a feeder or clear a market."""
    names = (*powerzoo_jax.list_tasks(), *list_presets())
    return [name for name in names if isinstance(powerzoo_jax.make(name).env, (DistributionEnv, *MARKETS))]


def counted(found: Solves, fixed: int) -> dict[str, Array]:
    """Counts over a batch of solves."""
    left = (found.taken > fixed) | ~(found.solved | found.failed)
    return {
        "taken": jnp.bincount(jnp.minimum(found.taken, LONGEST).reshape(-1), length=LONGEST + 1),
        "asked": jnp.any(left),
        "left": jnp.sum(left),
        "out_of_steps": jnp.sum(found.out_of_steps),
        "failed": jnp.sum(found.failed),
    }


@partial(jax.jit, static_argnames=("fixed", "read"))
def play(sim: Sim, states: Any, key: Array, fixed: int, read: Any) -> tuple[Any, dict[str, Array]]:
    """Steps of a batch under random actions: next states, and counts over all of them."""
    dims = sim.env.dims

    def body(states: Any, key: Array) -> tuple[Any, dict[str, Array]]:
        shape = (states.t.shape[0], dims.agent, dims.act)
        out, states, _ = vstep(sim, states, jax.random.uniform(key, shape, minval=-1.0, maxval=1.0))
        return states, counted(read(out), fixed)

    states, counts = lax.scan(body, states, jax.random.split(key, PER_CALL))
    return states, jax.tree.map(lambda x: jnp.sum(x, axis=0), counts)


def played(task: str, solver: str) -> tuple[Sim, Any, int]:
    """Environment of a task, how to read its solves, and the iterations of the fixed form."""
    if task == AC:
        sim = make_transgrid("case118", physics="ac", solver_mode="pf", solver=solver)
        return sim, of_power_flow, sim.params.factors.meshed.counts.chord
    sim = powerzoo_jax.make(task, split="train", solver=solver)
    if isinstance(sim.env, MARKETS):
        return Sim(params=sim.params, env=watched(sim.env), spec=sim.spec), of_market, lanes.STEPS
    return sim, of_power_flow, sim.params.factors.core.steps


def measure(task: str, solver: str, batch: int, steps: int) -> dict[str, Any]:
    """One row: counts over at least `steps` lane-steps."""
    sim, read, fixed = played(task, solver)
    key = jax.random.key(SEED)
    states, _ = jax.jit(jax.vmap(sim.init))(jax.random.split(key, batch))
    found, calls = [], -(-steps // (batch * PER_CALL))
    for call in range(calls):
        states, counts = play(sim, states, jax.random.fold_in(key, call), fixed, read)
        found.append(jax.tree.map(np.asarray, counts))
    return row_of(task, solver, batch, fixed, found, calls * PER_CALL)


def row_of(task: str, solver: str, batch: int, fixed: int, found: list[dict[str, Any]], batches: int) -> dict[str, Any]:
    """A row of the table from the counts of every call."""
    total = {name: sum(np.asarray(x[name], np.int64) for x in found) for name in found[0]}
    count = int(total["taken"].sum())
    row = {"task": task, "solver": solver, "lanes": batch, "lane_steps": count, "fixed_steps": fixed}
    shares = ((k, n / count) for k, n in enumerate(total["taken"]) if n)
    row["taken"] = " ".join(f"{k}:{share:.3g}" for k, share in shares)
    row["asked"] = f"{int(total['asked'])}/{batches}"
    return row | {name: int(total[name]) for name in ("left", "out_of_steps", "failed")}


Solve = Callable[[Array, Array, str], tuple[Array, Array]]  # p, q (N,) [pu], mode -> iterations, status


def _meshed(name: str) -> tuple[Solve, Any, int]:
    factors = powerflow.prepare_meshed(load_case(name))

    def solve(p: Array, q: Array, mode: str) -> tuple[Array, Array]:
        found = powerflow.solve_meshed(factors, p, q, solver=mode)
        return found.iterations, found.status

    return solve, load_case(name), factors.counts.chord


def _outages(name: str) -> tuple[Solve, Any, int]:
    outages = powerflow.prepare_outages(load_case(name))

    def solve(p: Array, q: Array, mode: str) -> tuple[Array, Array]:
        found = powerflow.n_minus_1(outages, p, q, solver=mode)
        return found.iterations, found.status

    return solve, load_case(name), outages.steps


def _switched(name: str) -> tuple[Solve, Any, int]:
    switching = powerflow.prepare_switching(load_case(name))
    opened = jnp.asarray([32, 33, 34, 35, 36], jnp.int32)  # the ties of the feeder

    def solve(p: Array, q: Array, mode: str) -> tuple[Array, Array]:
        found = powerflow.solve_switched(switching, opened, p, q, solver=mode)
        return found.iterations, found.status

    return solve, load_case(name), FIXED_STEPS


def _reactive(name: str) -> tuple[Solve, Any, int]:
    case = load_case(name)
    factors = powerflow.prepare_meshed(case)
    limits = powerflow.prepare_reactive(case, factors)

    def solve(p: Array, q: Array, mode: str) -> tuple[Array, Array]:
        found = powerflow.solve_within_reactive_limits(factors, limits, p, q, solver=mode)
        return found.rounds, found.flow.status

    return solve, case, FIXED_ROUNDS


SOLVES: dict[str, Callable[[], tuple[Solve, Any, int]]] = {
    "solve/meshed_14": lambda: _meshed("case14"),
    "solve/meshed_118": lambda: _meshed("case118"),
    "solve/outages_14": lambda: _outages("case14"),
    "solve/switched_33bw": lambda: _switched("case33bw"),
    "solve/reactive_limits_14": lambda: _reactive("case14"),
}


def measure_solver(name: str, solver: str, batch: int, count: int) -> dict[str, Any]:
    """One row: counts over at least so many solves."""
    solve, case, fixed = SOLVES[name]()
    nominal = powerflow.nominal_injection(case)
    load = (case.p_load_mw + 1j * case.q_load_mvar) / case.base_mva

    @jax.jit
    def count_batch(key: Array) -> dict[str, Array]:
        more = jax.random.uniform(key, (batch, case.n_bus), minval=SPAN[0] - 1, maxval=SPAN[1] - 1)
        p, q = (a.astype(np.float32) - more * b.astype(np.float32) for a, b in parts)
        taken, _ = jax.vmap(partial(solve, mode="adaptive"))(p, q)
        _, status = jax.vmap(partial(solve, mode=solver))(p, q)
        return counted(of_status(taken, status), fixed)

    parts = ((nominal.real, load.real), (nominal.imag, load.imag))
    found: list[dict[str, Any]] = []
    while sum(int(x["taken"].sum()) for x in found) < count:
        key = jax.random.fold_in(jax.random.key(SEED), len(found))
        found.append(jax.tree.map(np.asarray, count_batch(key)))
    return row_of(name, solver, batch, fixed, found, len(found))


def kept_rows(file: Path | None) -> dict[tuple[str, str], str]:
    """Rows of an earlier table by task and solver."""
    if file is None or not file.exists():
        return {}
    lines = file.read_text(encoding="utf-8").splitlines()[1:]
    return {(line.split("\t")[0], line.split("\t")[1]): line for line in lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", default=None)
    parser.add_argument("--solver", nargs="+", default=["fixed"], choices=["fixed", "adaptive"])
    parser.add_argument("--lanes", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=1_000_000, help="lane-steps of a task, at least")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    head, rows = "\t".join(COLUMNS), kept_rows(args.out)
    print(head, flush=True)
    for task in args.task or (*tasks(), AC, *SOLVES):
        for solver in args.solver:
            row = (measure_solver if task in SOLVES else measure)(task, solver, args.lanes, args.steps)
            rows[task, solver] = "\t".join(str(row[name]) for name in COLUMNS)
            print(rows[task, solver], flush=True)
            if args.out:
                args.out.write_text("\n".join([head, *rows.values()]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
