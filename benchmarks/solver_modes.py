"""Iterations that lanes of the feeder tasks need, and how often the fixed form of the solver is not enough.

Usage: python benchmarks/solver_modes.py [--task NAME ...] [--lanes 4096] [--steps 1000000] [--out FILE]

Random actions, uniform in [-1, 1], on the train days of each task, with solver="fixed" on whatever device JAX takes.
A lane-step is one lane for one step. Columns, tab-separated:
  fixed_steps        chord iterations that the fixed form takes with every lane
  share_2 ... 6      share of lane-steps that have converged after so many
  share_more         share that needs more of them, fixed or not
  asked              batches in which at least one lane was left after the fixed iterations, over all batches
  left               lane-steps left after the fixed iterations
  out_of_steps       lane-steps that end OUT_OF_STEPS;  failed: that end otherwise without a solution
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import powerzoo_jax
from powerzoo_jax.envs import DistributionEnv, Sim, vstep
from powerzoo_jax.powerflow import Status
from powerzoo_jax.tasks import list_presets

SHOWN = (2, 3, 4, 5, 6)
LONGEST = 64  # iterations that are counted one by one
COLUMNS = ("task", "lanes", "lane_steps", "fixed_steps", *(f"share_{k}" for k in SHOWN), "share_more")
COLUMNS = (*COLUMNS, "asked", "left", "out_of_steps", "failed")
PER_CALL = 48  # steps of a call of the compiled program
SEED = 20_261_122


def feeder_tasks() -> list[str]:
    """Tasks and presets that solve a feeder and nothing else."""
    names = (*powerzoo_jax.list_tasks(), *list_presets())
    return [name for name in names if isinstance(powerzoo_jax.make(name).env, DistributionEnv)]


@partial(jax.jit, static_argnames="fixed")
def play(sim: Sim, states: Any, key: Array, fixed: int) -> tuple[Any, dict[str, Array]]:
    """Steps of a batch under random actions: next states, and counts over all of them."""
    dims = sim.env.dims

    def body(states: Any, key: Array) -> tuple[Any, dict[str, Array]]:
        shape = (states.t.shape[0], dims.agent, dims.act)
        out, states, _ = vstep(sim, states, jax.random.uniform(key, shape, minval=-1.0, maxval=1.0))
        taken, status = out.info.pf_iterations, out.info.pf_status
        left = (taken > fixed) | (status != Status.CONVERGED)
        return states, {
            "taken": jnp.bincount(jnp.minimum(taken, LONGEST), length=LONGEST + 1),
            "asked": jnp.any(left),
            "left": jnp.sum(left),
            "out_of_steps": jnp.sum(status == Status.OUT_OF_STEPS),
            "failed": jnp.sum((status != Status.CONVERGED) & (status != Status.OUT_OF_STEPS)),
        }

    states, counts = lax.scan(body, states, jax.random.split(key, PER_CALL))
    return states, jax.tree.map(lambda x: jnp.sum(x, axis=0), counts)


def measure(task: str, lanes: int, steps: int) -> dict[str, Any]:
    """One row: counts over at least `steps` lane-steps."""
    sim = powerzoo_jax.make(task, split="train", solver="fixed")
    fixed = sim.params.factors.core.steps
    key = jax.random.key(SEED)
    states, _ = jax.jit(jax.vmap(sim.init))(jax.random.split(key, lanes))
    total: dict[str, Any] = {}
    calls = -(-steps // (lanes * PER_CALL))
    for call in range(calls):
        states, counts = play(sim, states, jax.random.fold_in(key, call), fixed)
        counts = jax.tree.map(lambda x: np.asarray(x, np.int64), counts)
        total = {name: value + total.get(name, 0) for name, value in counts.items()}
    share = total["taken"] / total["taken"].sum()
    row = {"task": task, "lanes": lanes, "lane_steps": int(total["taken"].sum()), "fixed_steps": fixed}
    row |= {f"share_{k}": f"{share[k]:.3g}" for k in SHOWN} | {"share_more": f"{share[max(SHOWN) + 1 :].sum():.3g}"}
    row["asked"] = f"{int(total['asked'])}/{calls * PER_CALL}"
    return row | {name: int(total[name]) for name in ("left", "out_of_steps", "failed")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", default=None)
    parser.add_argument("--lanes", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=1_000_000, help="lane-steps of a task, at least")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    lines = ["\t".join(COLUMNS)]
    print(lines[0], flush=True)
    for task in args.task or feeder_tasks():
        row = measure(task, args.lanes, args.steps)
        lines.append("\t".join(str(row[name]) for name in COLUMNS))
        print(lines[-1], flush=True)
        if args.out:
            args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
