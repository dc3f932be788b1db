"""Speed of a transmission grid with 1,000 feeders below it (33,000 buses) in one program, one pinned core.

Usage: python benchmarks/joint.py [--feeders 1000] [--lanes 1] [--steps 16] [--rounds 5] [--out FILE]

The feeders hang from the buses of case118 that have load, each by itself, in proportion to the load of the bus; all
batteries take random actions. Every output passes an optimisation barrier and is summed. Compile time stands apart;
columns are tab-separated. The last column is the largest boundary mismatch of the steps that were timed.
"""

from __future__ import annotations

# isort: off
import one_core  # noqa: F401  pins the process before jax starts
# isort: on

import argparse
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from report import Table

import powerzoo_jax
from powerzoo_jax.cases import load_case
from powerzoo_jax.envs import Sim

COLUMNS = ("feeders", "buses", "lanes", "step_per_s", "feeder_step_per_s", "compile_s", "boundary_mismatch_pu")
LOAD_RATIO, FEEDER_RATIO = 0.85, 0.5


def boundary_buses(count: int) -> tuple[int, ...]:
    """One bus a feeder: as many to each bus of case118 as its load can stand for, the remainder to the largest."""
    case = load_case("pz_case118")
    share = np.floor(count * case.p_load_mw / case.p_load_mw.sum()).astype(int)
    share[np.argsort(-case.p_load_mw)[: count - share.sum()]] += 1
    return tuple(int(bus) for bus in np.repeat(case.bus.id, share))


def consume(tree: Any) -> Array:
    """Force every output to be computed and read."""
    leaves = [x for x in jax.tree.leaves(lax.optimization_barrier(tree)) if x.size]
    return sum((jnp.sum(x, dtype=jnp.float32) for x in leaves), start=jnp.float32(0))


def run(sim: Sim, states: Any, actions: Array) -> tuple[Array, Array]:
    """Play `actions` (T, B, A, 1): the sum of all outputs, and the largest boundary mismatch."""

    def body(carry: tuple[Any, Array, Array], action: Array) -> tuple[tuple[Any, Array, Array], None]:
        out = jax.vmap(sim.step)(carry[0], action)
        worst = jnp.maximum(carry[2], jnp.max(out.info.boundary_mismatch_pu))
        return (out.state, carry[1] + consume((out.obs, out.reward, out.cost, out.info)), worst), None

    _, total, worst = lax.scan(body, (states, jnp.float32(0), jnp.float32(0)), actions)[0]
    return total, worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--feeders", type=int, default=1000)
    parser.add_argument("--lanes", type=int, nargs="+", default=[1])
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the table to this file as well")
    args = parser.parse_args()
    with Table(COLUMNS, args.out, "one core") as table:
        measure(table, args)


def measure(table: Table, args: argparse.Namespace) -> None:
    """Add a row for every batch."""
    sim = powerzoo_jax.make(
        "joint_trans_dist",
        trans_case="pz_case118",
        trans_load_ratio=LOAD_RATIO,
        dist_load_ratio=FEEDER_RATIO,
        feeder_bus_ids=boundary_buses(args.feeders),
        feeder_scale=1.0,
        obs_mode="local",
    )
    buses = args.feeders * sim.env.feeder.dims.bus
    for lanes in args.lanes:
        states, _ = jax.jit(jax.vmap(sim.init))(jax.random.split(jax.random.key(0), lanes))
        shape = (args.steps, lanes, sim.env.dims.agent, 1)
        actions = jax.random.uniform(jax.random.key(1), shape, minval=-1)
        begin = time.perf_counter()
        program = jax.jit(run).lower(sim, states, actions).compile()
        compile_s = time.perf_counter() - begin
        times = []
        for _ in range(args.rounds):
            begin = time.perf_counter()
            _, worst = jax.block_until_ready(program(sim, states, actions))
            times.append(time.perf_counter() - begin)
        rate = args.steps * lanes / float(np.median(times))
        row = (args.feeders, buses, lanes, f"{rate:.1f}", f"{rate * args.feeders:.0f}", f"{compile_s:.1f}")
        table.add(map(str, (*row, f"{float(worst):.1e}")))


if __name__ == "__main__":
    main()
