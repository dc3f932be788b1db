"""Steps per second of processor time of one environment, by whichever package `powerzoo` the path holds, on one core.

Usage: PYTHONPATH=... python benchmarks/host_steps.py TASK [TASK ...]

One row a task: name, version of the package, median steps a second over 5 rounds of 0.3 s after a warm-up, or the error
that keeps the task from running. An action is drawn once and repeated; episodes that end are reset within the time.
`views.py --beside` runs this for our package and for PowerZooPy in turn.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import time
from importlib import import_module
from typing import Any

ROUNDS, SECONDS = 5, 0.3


def ended(out: Any) -> bool:
    """True when every agent's episode has ended."""
    flags = out[2:4]
    if isinstance(flags[0], dict):
        return any(all(flag.values()) for flag in flags)
    return any(map(bool, flags))


def rate(env: Any) -> float:
    """Median steps a second of processor time."""
    spaces = getattr(env, "action_spaces", None)
    several = isinstance(spaces, dict)
    action = {name: space.sample() for name, space in spaces.items()} if several else env.action_space.sample()
    rates = []
    env.reset(seed=0)
    for _ in range(ROUNDS + 1):  # the first one compiles and fills caches
        count, begin = 0, time.process_time()
        while time.process_time() < begin + SECONDS:
            count += 1
            if ended(env.step(action)):
                env.reset()
        rates.append(count / (time.process_time() - begin))
    return statistics.median(rates[1:])


def main() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    package = import_module("powerzoo")
    make = import_module("powerzoo.tasks.registry").make_task_env
    for task in sys.argv[1:]:
        try:
            with contextlib.redirect_stdout(sys.stderr):  # tasks may print as they are built
                found = f"{rate(make(task)):.0f}"
        except Exception as err:
            found = f"{type(err).__name__}: {' '.join(str(err).split())[:80]}"
        print(task, getattr(package, "__version__", "?"), found, sep="\t", flush=True)


if __name__ == "__main__":
    main()
