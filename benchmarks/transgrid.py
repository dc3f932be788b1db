"""Speed of case118 under one operator: DC and AC by schedule, what outages and reactive limits cost, one pinned core.

Usage: python benchmarks/transgrid.py [--lanes 512 2048] [--rounds 7] [--cpu-time] [--out FILE]

Four programs of 48 steps run interleaved, medians over rounds, every output consumed as in `env_steps.py`.
`--cpu-time` counts processor time instead of the clock, for a machine whose cores are shared. The last column is the
time of a step over that of a DC step.
"""

from __future__ import annotations

# isort: off
import one_core  # noqa: F401  pins the process before jax starts
# isort: on

import argparse
import time
from pathlib import Path

import jax
import numpy as np
from env_steps import STEPS, compiled, run_steps
from report import Table

from powerzoo_jax.families.transmission.tasks.operator import make_transgrid

GRIDS = {
    "dc": {},
    "dc, outages": {"n_minus_1": True},
    "ac": {"physics": "ac", "enforce_q_lim": False},
    "ac, reactive limits": {"physics": "ac"},
}
COLUMNS = ("grid", "lanes", "step_per_s", "step_ns", "compile_s", "over_dc")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lanes", type=int, nargs="+", default=[512, 2048])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--out", type=Path, help="write the table to this file as well")
    args = parser.parse_args()
    with Table(COLUMNS, args.out, "one core" + ", processor time" * args.cpu_time) as table:
        measure(table, args)


def measure(table: Table, args: argparse.Namespace) -> None:
    """Add a row for every grid and batch."""
    clock = time.process_time if args.cpu_time else time.perf_counter
    sims = {name: make_transgrid("pz_case118", solver_mode="pf", **more) for name, more in GRIDS.items()}
    for lanes in args.lanes:
        runs, took = {}, {name: [] for name in sims}
        for name, sim in sims.items():
            states, _ = jax.jit(jax.vmap(sim.init))(jax.random.split(jax.random.key(0), lanes))
            shape = (STEPS, lanes, sim.env.dims.agent, sim.env.dims.act)
            actions = jax.random.uniform(jax.random.key(1), shape, minval=-1)
            runs[name] = compiled(run_steps, sim, states, actions, clock=clock)
        for _ in range(args.rounds):
            for name, (run, _) in runs.items():
                begin = clock()
                run()
                took[name].append(clock() - begin)
        ns = {name: float(np.median(t)) / (STEPS * lanes) * 1e9 for name, t in took.items()}
        for name, each in ns.items():
            row = (name, lanes, f"{1e9 / each:.0f}", f"{each:.0f}", f"{runs[name][1]:.1f}", f"{each / ns['dc']:.2f}")
            table.add(str(x) for x in row)


if __name__ == "__main__":
    main()
