"""Iterations that lanes of feeder and market tasks need, and how often the fixed form of a solver is not enough.

Usage: python benchmarks/solver_modes.py [--task NAME ...] [--solver fixed ...] [--lanes 4096] [--steps 1000000]
                                         [--out FILE]

Random actions, uniform in [-1, 1], on the train days of each task, on whatever device JAX takes; a run of the adaptive
form tells whether what is left would have been solved there. A lane-step is one lane for one step. Columns,
tab-separated:
  fixed_steps        iterations that the fixed form takes with every lane: of the chord, or of the interior point
  taken              share of lane-steps by the iterations they took, k:share
  asked              batches in which at least one lane was left after so many iterations, over all batches
  left               lane-steps left after so many iterations
  out_of_steps       lane-steps that end OUT_OF_STEPS: of a market, without a certificate of either kind
  failed             lane-steps that end otherwise without a solution: of a market, proven infeasible
"""

from __future__ import annotations

import argparse
import dataclasses
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import powerzoo_jax
from powerzoo_jax.base import Step
from powerzoo_jax.envs import DistributionEnv, Sim, vstep
from powerzoo_jax.envs.joint.env import JointEnv
from powerzoo_jax.envs.market.bidding import MarketEnv
from powerzoo_jax.envs.market.storage import StorageMarketEnv
from powerzoo_jax.opf import OpfStatus, lanes
from powerzoo_jax.powerflow import Status
from powerzoo_jax.tasks import list_presets

LONGEST = 128  # iterations that are counted one by one
COLUMNS = ("task", "solver", "lanes", "lane_steps", "fixed_steps", "taken", "asked", "left", "out_of_steps", "failed")
MARKETS = (MarketEnv, StorageMarketEnv, JointEnv)
PER_CALL = 48  # steps of a call of the compiled program
SEED = 20_261_122


class Solves(NamedTuple):
    """What the solver of a step said of itself, (B,) each: iterations, and three flags."""

    taken: Array
    solved: Array
    out_of_steps: Array
    failed: Array


def of_feeder(out: Step) -> Solves:
    """Power flows of a batch of steps."""
    status = out.info.pf_status
    lost = status == Status.OUT_OF_STEPS
    return Solves(out.info.pf_iterations, status == Status.CONVERGED, lost, ~lost & (status != Status.CONVERGED))


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


@partial(jax.jit, static_argnames=("fixed", "read"))
def play(sim: Sim, states: Any, key: Array, fixed: int, read: Any) -> tuple[Any, dict[str, Array]]:
    """Steps of a batch under random actions: next states, and counts over all of them."""
    dims = sim.env.dims

    def body(states: Any, key: Array) -> tuple[Any, dict[str, Array]]:
        shape = (states.t.shape[0], dims.agent, dims.act)
        out, states, _ = vstep(sim, states, jax.random.uniform(key, shape, minval=-1.0, maxval=1.0))
        found: Solves = read(out)
        left = (found.taken > fixed) | ~(found.solved | found.failed)
        return states, {
            "taken": jnp.bincount(jnp.minimum(found.taken, LONGEST), length=LONGEST + 1),
            "asked": jnp.any(left),
            "left": jnp.sum(left),
            "out_of_steps": jnp.sum(found.out_of_steps),
            "failed": jnp.sum(found.failed),
        }

    states, counts = lax.scan(body, states, jax.random.split(key, PER_CALL))
    return states, jax.tree.map(lambda x: jnp.sum(x, axis=0), counts)


def measure(task: str, solver: str, batch: int, steps: int) -> dict[str, Any]:
    """One row: counts over at least `steps` lane-steps."""
    sim, read = powerzoo_jax.make(task, split="train", solver=solver), of_feeder
    if isinstance(sim.env, MARKETS):
        sim, read = Sim(params=sim.params, env=watched(sim.env), spec=sim.spec), of_market
    fixed = lanes.STEPS if read is of_market else sim.params.factors.core.steps
    key = jax.random.key(SEED)
    states, _ = jax.jit(jax.vmap(sim.init))(jax.random.split(key, batch))
    total: dict[str, Any] = {}
    calls = -(-steps // (batch * PER_CALL))
    for call in range(calls):
        states, counts = play(sim, states, jax.random.fold_in(key, call), fixed, read)
        counts = jax.tree.map(lambda x: np.asarray(x, np.int64), counts)
        total = {name: value + total.get(name, 0) for name, value in counts.items()}
    count = int(total["taken"].sum())
    row = {"task": task, "solver": solver, "lanes": batch, "lane_steps": count, "fixed_steps": fixed}
    shares = ((k, n / count) for k, n in enumerate(total["taken"]) if n)
    row["taken"] = " ".join(f"{k}:{share:.3g}" for k, share in shares)
    row["asked"] = f"{int(total['asked'])}/{calls * PER_CALL}"
    return row | {name: int(total[name]) for name in ("left", "out_of_steps", "failed")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", default=None)
    parser.add_argument("--solver", nargs="+", default=["fixed"], choices=["fixed", "adaptive"])
    parser.add_argument("--lanes", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=1_000_000, help="lane-steps of a task, at least")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    lines = ["\t".join(COLUMNS)]
    print(lines[0], flush=True)
    for task in args.task or tasks():
        for solver in args.solver:
            row = measure(task, solver, args.lanes, args.steps)
            lines.append("\t".join(str(row[name]) for name in COLUMNS))
            print(lines[-1], flush=True)
            if args.out:
                args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
