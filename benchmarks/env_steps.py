"""Speed of whole environment steps: one pinned core, every output consumed, beside the solver and one observation.

Usage: python benchmarks/env_steps.py [--task NAME ...] [--lanes 1 64 256 1024 4096] [--rounds 15] [--cpu-time]
       [--out FILE]

Three programs of 48 steps run interleaved, medians over rounds:
  step      vstep with random actions; obs, reward, cost and info pass an optimisation barrier and are summed
  solver    the power flow of the very injections that those steps meet, with the results that the env reads
  write     one observation written, through the same barrier and sum
A task without a feeder has no solver of its own to stand beside ("-"). `--cpu-time` counts processor time instead of
the clock, for a machine whose cores are shared. Compile time stands apart; columns are tab-separated.
"""

from __future__ import annotations

# isort: off
import one_core  # noqa: F401  pins the process before jax starts
# isort: on

import argparse
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import powerzoo_jax
from powerzoo_jax.envs import DistributionEnv, Sim, vstep

STEPS = 48
TASKS = ("battery_arbitrage", "dso", "marl_der_arbitrage", "marl_ders_benchmark", "marl_ev_v2g", "dc_microgrid")
COLUMNS = [
    "task",
    "lanes",
    "step_per_s",
    "step_ns",
    "solver_ns",
    "write_ns",
    "step_over_budget",
    "compile_s",
    "iterations",
]


def consume(tree: Any) -> Array:
    """Force every output to be computed and read, none to be optimised away."""
    leaves = [x for x in jax.tree.leaves(lax.optimization_barrier(tree)) if x.size]
    return sum((jnp.sum(x, dtype=jnp.float32) for x in leaves), start=jnp.float32(0))


def run_steps(sim: Sim, states: Any, actions: Array) -> Array:
    """Play `actions` (T, B, A, U) and return the sum of all outputs."""

    def body(carry: tuple[Any, Array], action: Array) -> tuple[tuple[Any, Array], None]:
        out, states, _ = vstep(sim, carry[0], action)
        return (states, carry[1] + consume((out.obs, out.reward, out.cost, out.info))), None

    return lax.scan(body, (states, jnp.float32(0)), actions)[0][1]


def run_solver(sim: Sim, injections: tuple[Array, Array]) -> Array:
    """Solve the same injections (T, B, a) and return the sum of what the environment reads."""

    def body(total: Array, injection: tuple[Array, Array]) -> tuple[Array, None]:
        out = jax.vmap(lambda p, q: sim.env.flow((p, q), sim.params))(*injection)
        # agents that see their own unit need no flows of branches
        flows = (out.p_from, out.q_from) if sim.env.flattened else ()
        read = (out.v_pu, flows, out.p_loss, out.p_slack, out.q_slack)
        return total + consume((read, out.status, out.residual, out.iterations)), None

    return lax.scan(body, jnp.float32(0), injections)[0]


def run_write(obs: Array, count: int) -> Array:
    """Write an observation `count` times and return the sum."""

    def body(total: Array, k: Array) -> tuple[Array, None]:
        return total + consume(obs + k), None

    return lax.scan(body, jnp.float32(0), jnp.arange(count, dtype=obs.dtype))[0]


def met_injections(sim: Sim, states: Any, actions: Array) -> tuple[tuple[Array, Array], Array]:
    """Injections (T, B, a) that the steps meet, and the mean number of solver iterations."""

    def one(sim: Sim, state: Any, action: Array) -> tuple[Array, Array]:
        _, delivery = sim.env.limit(state, sim.env.decode(action, sim.params), sim.params)
        return sim.env.dispatch(state, delivery, sim.params)

    def body(states: Any, action: Array) -> tuple[Any, tuple[tuple[Array, Array], Array]]:
        injection = jax.vmap(one, in_axes=(None, 0, 0))(sim, states, action)
        out, states, _ = vstep(sim, states, action)
        return states, (injection, jnp.mean(out.info.pf_iterations.astype(jnp.float32)))

    _, (injections, iterations) = jax.jit(lambda s, a: lax.scan(body, s, a))(states, actions)
    return injections, jnp.mean(iterations)


def compiled(
    function: Callable[..., Array], *args: Any, clock: Callable[[], float] = time.perf_counter
) -> tuple[Callable[[], Any], float]:
    """Compile ahead of time: (a call that waits for its result, seconds it took to compile)."""
    begin = clock()
    program = jax.jit(function, static_argnums=1 if function is run_write else ()).lower(*args).compile()
    seconds = clock() - begin
    arrays = args[:1] if function is run_write else args
    return lambda: jax.block_until_ready(program(*arrays)), seconds


def measure(sim: Sim, lanes: int, rounds: int, clock: Callable[[], float]) -> list[Any]:
    """One row of the table."""
    states, obs = jax.jit(jax.vmap(sim.init))(jax.random.split(jax.random.key(0), lanes))
    shape = (STEPS, lanes, sim.env.dims.agent, sim.env.dims.act)
    actions = jax.random.uniform(jax.random.key(1), shape, minval=-1)
    runs: dict[str, Callable[[], Any]] = {}
    runs["step"], compile_s = compiled(run_steps, sim, states, actions, clock=clock)
    runs["write"], _ = compiled(run_write, obs, STEPS)
    iterations = None
    if isinstance(sim.env, DistributionEnv):
        injections, iterations = met_injections(sim, states, actions)
        runs["solver"], _ = compiled(run_solver, sim, injections)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            begin = clock()
            run()
            times[name].append(clock() - begin)
    ns = {name: float(np.median(t)) / (STEPS * lanes) * 1e9 for name, t in times.items()}
    row = [sim.spec.id, lanes, f"{1e9 / ns['step']:.0f}", f"{ns['step']:.0f}"]
    if iterations is None:
        return [*row, "-", f"{ns['write']:.0f}", "-", f"{compile_s:.1f}", "-"]
    over = ns["step"] / (ns["solver"] + 1.5 * ns["write"])
    row += [f"{ns['solver']:.0f}", f"{ns['write']:.0f}", f"{over:.2f}"]
    return [*row, f"{compile_s:.1f}", f"{float(iterations):.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", default=TASKS, choices=powerzoo_jax.list_tasks(), metavar="NAME")
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 64, 256, 1024, 4096])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--out", type=Path, help="write the table to this file as well")
    args = parser.parse_args()
    clock = time.process_time if args.cpu_time else time.perf_counter
    device = f"{jax.devices()[0].device_kind}, one core" + ", processor time" * args.cpu_time
    lines: list[str] = []

    def tell(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    tell(f"# {device}, jax {metadata.version('jax')}, powerzoo_jax {powerzoo_jax.__version__}")
    tell("\t".join(COLUMNS))
    for task in args.task:
        sim = powerzoo_jax.make(task)
        for lanes in args.lanes:
            tell("\t".join(str(x) for x in measure(sim, lanes, args.rounds, clock)))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
