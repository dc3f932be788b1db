"""Speed of PPO with its updates, one pinned core: how much of it is the environment, how much the learner.

Usage: python benchmarks/ppo.py [--task dso] [--lanes 256] [--steps 48] [--epochs 4 8] [--rounds 7] [--out FILE]

Two programs of lanes x steps environment steps run interleaved, medians over rounds:
  update    collect with the policy, advantages, all epochs of minibatches (other settings are those of `PPOConfig`)
  env       vstep with random actions, every output that the learner reads consumed
The learner's time is the difference. Compile time stands apart; `callbacks` counts what the whole training program
would call on the host. Columns are tab-separated.
"""

from __future__ import annotations

# isort: off
import one_core  # noqa: F401  pins the process before jax starts
# isort: on

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import powerzoo_jax
from powerzoo_jax.cli.commands.bench import device_name
from powerzoo_jax.envs import Sim, vstep
from powerzoo_jax.rl.algorithms import ppo
from powerzoo_jax.rl.training.config import PPOConfig

WIDTHS = ((64, 64), (128, 128))
HOST = ("callback", "debug", "infeed", "outfeed")
COLUMNS = ("task", "network", "lanes", "steps", "epochs", "steps_per_s", "update_ms", "env_ms", "learner_ms")
TAIL = ("compile_s", "callbacks")


def play(sim: Sim, states: Any, actions: Array) -> tuple[Any, Array]:
    """Play random actions (T, B, A, U); what a learner reads is summed, so that nothing is optimised away."""

    def body(states: Any, action: Array) -> tuple[Any, Array]:
        out, states, obs = vstep(sim, states, action)
        read = lax.optimization_barrier((out.obs, obs, out.reward, out.cost, out.info))
        return states, sum(jnp.sum(x, dtype=jnp.float32) for x in jax.tree.leaves(read) if x.size)

    return lax.scan(body, states, actions)


def compiled(function: Callable[..., Any], *arguments: Any) -> tuple[Callable[[], Any], float]:
    """Compile ahead of time: (a call that waits for its result, seconds it took)."""
    begin = time.perf_counter()
    program = jax.jit(function).lower(*arguments).compile()
    return lambda: jax.block_until_ready(program(*arguments)), time.perf_counter() - begin


def primitives(jaxpr: Any) -> Iterator[str]:
    """Names of all primitives of a program, inner programs included."""
    for eqn in jaxpr.eqns:
        yield eqn.primitive.name
        for inner in jax.tree.leaves(eqn.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from primitives(inner)


def measure(sim: Sim, cfg: PPOConfig, rounds: int) -> list[str]:
    """One row of the table."""
    key = jax.random.key(0)
    init, update = ppo.make_update(cfg, sim)
    state = jax.jit(init)(key, sim)
    shape = (cfg.steps, cfg.lanes, sim.env.dims.agent, sim.env.dims.act)
    states, _ = jax.jit(jax.vmap(sim.init))(jax.random.split(key, cfg.lanes))
    learn, compile_s = compiled(update, state, sim)
    env, _ = compiled(play, sim, states, jax.random.uniform(key, shape, minval=-1))
    runs, times = {"update": learn, "env": env}, {"update": [], "env": []}  # type: ignore[var-annotated]
    for count in range(rounds + 1):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            if count:  # the first round warms up
                times[name].append(time.perf_counter() - begin)
    whole, alone = (float(np.median(times[name])) * 1e3 for name in ("update", "env"))
    train = jax.make_jaxpr(ppo.make_train(cfg, sim))(key, sim)
    calls = sum(any(word in name for word in HOST) for name in primitives(train.jaxpr))
    network = "x".join(map(str, cfg.widths))
    row = (sim.spec.id, network, cfg.lanes, cfg.steps, cfg.epochs, f"{cfg.lanes * cfg.steps / whole * 1e3:.0f}")
    return [*map(str, row), f"{whole:.1f}", f"{alone:.1f}", f"{whole - alone:.1f}", f"{compile_s:.1f}", str(calls)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="dso")
    parser.add_argument("--lanes", type=int, default=PPOConfig.lanes)
    parser.add_argument("--steps", type=int, default=PPOConfig.steps)
    parser.add_argument("--epochs", type=int, nargs="+", default=[4, 8], help="passes over the samples of an update")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, help="write the table to this file as well")
    args = parser.parse_args()
    lines: list[str] = []

    def tell(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    tell(f"# {device_name()}, one core, jax {metadata.version('jax')}, powerzoo_jax {powerzoo_jax.__version__}")
    tell("\t".join((*COLUMNS, *TAIL)))
    sim = powerzoo_jax.make(args.task, split="train")
    for widths, epochs in itertools.product(WIDTHS, args.epochs):
        cfg = PPOConfig(task=args.task, lanes=args.lanes, steps=args.steps, epochs=epochs, widths=widths)
        tell("\t".join(measure(sim, cfg, args.rounds)))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
