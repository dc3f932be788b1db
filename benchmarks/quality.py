"""Time to quality: gain of a learner on the test split against the seconds since its process began.

Usage: python benchmarks/quality.py TASK [--algorithm A] [--set key=value] [--seeds 1] [--every 30] [--until 0.9]

Trains with the shipped settings and plays the greedy policy after every so many updates, one row each:
  wall_s     seconds since the process began, imports and compiling included, scoring left out
  cpu_s      CPU seconds of the same; tells more where the machine is shared
  env_steps  of one seed
  gain       mean over the seeds that keep every budget on test, see `tasks.score.gain`;  within: how many do
Ends at the first row whose gain reaches --until within the budgets of most seeds. Columns are tab-separated.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

WALL, CPU = time.perf_counter(), time.process_time()

import jax  # noqa: E402
import numpy as np  # noqa: E402

import powerzoo_jax  # noqa: E402
from powerzoo_jax.cli.commands.evaluate import score_trained  # noqa: E402
from powerzoo_jax.cli.runs import Run, resolve_config  # noqa: E402
from powerzoo_jax.cli.selection import chosen_policies  # noqa: E402

COLUMNS = ("task", "algorithm", "updates", "env_steps", "wall_s", "cpu_s", "gain", "within", "costs")


def measure(args: argparse.Namespace) -> None:
    """Train, and print a row at every stop."""
    run = Run(Path("unused"), resolve_config(args.task, args.algorithm, args.settings), args.seeds)
    sim, test = powerzoo_jax.make(run.config.task, split="train"), powerzoo_jax.make(run.config.task, split="test")
    init, update = run.programs(sim)
    state = jax.jit(init)(run.keys, (), sim)
    step = jax.jit(update).lower(state, (), sim).compile()
    spent = [WALL, CPU]  # moved forward by what scoring takes
    for done in range(1, run.config.updates + 1):
        state, _ = step(state, (), sim)
        if done % args.every and done < run.config.updates:
            continue
        jax.block_until_ready(state)
        clocks = time.perf_counter(), time.process_time()
        records = score_trained(test, chosen_policies(run, sim, state))
        known, within = [r.gain for r in records if r.gain is not None], sum(r.feasible for r in records)
        share = float(np.mean(known)) if known else np.nan
        steps = done * run.learner.batch_steps(run.config, sim)
        used = (f"{now - begin:.1f}" for now, begin in zip(clocks, spent, strict=True))
        costs = np.mean([list(r.mean_costs_by_constraint.values()) for r in records], axis=0)
        row = (run.config.task, run.config.algorithm, done, steps, *used, f"{share:.3f}", f"{within}/{args.seeds}")
        print("\t".join(map(str, (*row, " ".join(f"{c:.3g}" for c in costs)))), flush=True)
        if share >= args.until and 2 * within > args.seeds:
            return
        after = time.perf_counter(), time.process_time()
        spent = [begin + b - a for begin, a, b in zip(spent, clocks, after, strict=True)]


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("--algorithm")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--every", type=int, default=30)
    parser.add_argument("--until", type=float, default=np.inf)
    print("\t".join(COLUMNS))
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
