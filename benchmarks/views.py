"""Speed of the host views: a single environment step by step, and the VectorEnv, on one pinned core.

Usage: python benchmarks/views.py [--task NAME ...] [--lanes 256] [--rounds 15] [--out FILE]
       python benchmarks/views.py --beside PYTHON CHECKOUT [--task NAME ...] [--out FILE]
       python benchmarks/views.py --frames [--task NAME ...] [--out FILE]

With --beside: steps per second of processor time of ours and of PowerZooPy in turn, PYTHON an interpreter with its
requirements, CHECKOUT its sources; the medians of five turns each (`host_steps.py`).
With --frames: processor time of pictures of render_mode="rgb_array", 800 x 600 pixels, in the first 24 steps, in which
the scales still grow: of the first one, the median and the largest of the others [ms]. Otherwise:

  single_per_s   steps a second of make_task_env(task), infos and all
  step_us        microseconds of such a step;  device_us: of them, the compiled program and the transfer
  cpu_us         processor time of such a step, which a busy machine leaves alone; per_cpu_s: steps a second of it
  reset_ms       a reset by seed
  frame_ms       the median of --frames
  first_s        seconds from the first call of make_task_env to the end of the first step, compile included;
                 first_cpu_s: the same by processor time
  vector_per_s   steps a second, all lanes together, of the native VectorEnv (single-agent tasks)
  vector_per_cpu_s  the same by processor time
Medians over rounds of 48 steps, in which the single environment is reset once; columns are tab-separated.
"""

from __future__ import annotations

# isort: off
import one_core  # noqa: F401  pins the process before jax starts
# isort: on

import argparse
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compat"))

import numpy as np
from powerzoo_compat.powerzoo_api.tasks.factory import list_tasks, make_task_env, make_task_vec_env

import powerzoo_jax
from powerzoo_jax.cli.commands.bench import device_name

STEPS = 48
TURNS = 5  # of each package
TASKS = ("dso", "dc_microgrid", "battery_arbitrage", "marl_der_arbitrage")
COLUMNS = [
    *("task", "single_per_s", "step_us", "cpu_us", "device_us", "per_cpu_s", "reset_ms", "first_s", "first_cpu_s"),
    "frame_ms",
    *("vector_per_s", "vector_per_cpu_s"),
]


def seconds(run: Callable[[], Any], rounds: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Median time of a call by a clock."""
    times = []
    for _ in range(rounds):
        begin = clock()
        run()
        times.append(clock() - begin)
    return float(np.median(times))


def measure(task: str, lanes: int, rounds: int) -> list[Any]:
    """One row of the table."""
    begin, used = time.perf_counter(), time.process_time()
    env = make_task_env(task)
    multi = hasattr(env, "action_spaces")
    space = env.action_spaces if multi else env.action_space
    action = space.sample()
    env.reset(seed=0)
    env.step(action)
    first, used = time.perf_counter() - begin, time.process_time() - used

    def play() -> None:
        env.reset(seed=0)
        for _ in range(STEPS):
            env.step(action)

    def device() -> None:
        env.reset(seed=0)
        for _ in range(STEPS):
            host.step(kernel)

    host = env._host
    kernel = np.zeros((host.sim.env.dims.agent, host.sim.env.dims.act), np.float32)
    reset = seconds(lambda: env.reset(seed=1), rounds)
    step, inner = seconds(play, rounds) / STEPS, seconds(device, rounds) / STEPS
    cpu = seconds(play, rounds, time.process_time) / STEPS
    micros = (f"{1e6 * x:.0f}" for x in (step, cpu, inner))
    row = [task, f"{1 / step:.0f}", *micros, f"{1 / cpu:.0f}", f"{1e3 * reset:.2f}", f"{first:.1f}", f"{used:.1f}"]
    row.append(f"{np.median(frame_ms(task)[1:]):.0f}")
    rates = ("-", "-") if multi else (f"{rate:.0f}" for rate in vector_rates(task, lanes, rounds))
    return [*row, *rates]


def frame_ms(task: str) -> list[float]:
    """Processor time of the frames of the first 24 steps, that of the reset before them, in ms."""
    env = make_task_env(task, render_mode="rgb_array")
    action = (env.action_spaces if hasattr(env, "action_spaces") else env.action_space).sample()
    env.reset(seed=0)
    times = []
    for step in range(STEPS // 2 + 1):
        if step:
            env.step(action)
        begin = time.process_time()
        env.render()
        times.append(1e3 * (time.process_time() - begin))
    return times


def vector_rates(task: str, lanes: int, rounds: int) -> list[float]:
    """Steps a second of the native VectorEnv, by the clock and by processor time, ends and restarts included."""
    envs = make_task_vec_env(task, lanes)
    actions = envs.action_space.sample()

    def play() -> None:
        for _ in range(STEPS):
            envs.step(actions)

    envs.reset(seed=0)
    play()  # compiles, the restart at the end of the episode too
    play()
    return [lanes * STEPS / seconds(play, rounds, clock) for clock in (time.perf_counter, time.process_time)]


def alone(tasks: list[str], lanes: int, rounds: int) -> Iterator[str]:
    """Rows of our package alone."""
    yield "\t".join(COLUMNS)
    for task in tasks:
        yield "\t".join(str(x) for x in measure(task, lanes, rounds))


def frames(tasks: list[str]) -> Iterator[str]:
    """Rows of the pictures."""
    yield "\t".join(("task", "first_ms", "median_ms", "largest_ms"))
    for task in tasks:
        first, *others = frame_ms(task)
        yield "\t".join((task, *(f"{x:.0f}" for x in (first, np.median(others), max(others)))))


def beside(tasks: list[str], python: str, checkout: str) -> Iterator[str]:
    """Rows of both packages, each task measured five times in turn."""
    root = Path(__file__).resolve().parents[1]
    script = str(Path(__file__).with_name("host_steps.py"))
    ours = (sys.executable, f"{root}{os.pathsep}{root / 'compat'}")
    yield "\t".join(("task", "ours_per_cpu_s", "powerzoopy_per_cpu_s"))
    for task in tasks:
        found: list[list[str]] = [[], []]
        for _ in range(TURNS):
            for k, (program, path) in enumerate((ours, (python, checkout))):
                command = [program, script, task]
                environment = os.environ | {"PYTHONPATH": path}
                out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
                found[k].append(out.splitlines()[-1].split("\t")[2])
        yield "\t".join((task, *map(middle, found)))


def middle(told: list[str]) -> str:
    """Median of what turns told, or the error of the first one that could not run."""
    failed = [x for x in told if not x.isdigit()]
    return failed[0] if failed else f"{np.median([int(x) for x in told]):.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", default=TASKS, choices=list_tasks(), metavar="NAME")
    parser.add_argument("--lanes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, help="write the table to this file as well")
    parser.add_argument("--beside", nargs=2, metavar=("PYTHON", "CHECKOUT"), help="PowerZooPy, measured in turn")
    parser.add_argument("--frames", action="store_true", help="pictures alone")
    args = parser.parse_args()
    lanes = "" if args.beside or args.frames else f", {args.lanes} lanes"
    device = f"{device_name()}, one core{lanes}"
    if args.frames:
        rows = frames(args.task)
    elif args.beside:
        rows = beside(args.task, *args.beside)
    else:
        rows = alone(args.task, args.lanes, args.rounds)
    lines: list[str] = []
    head = f"# {device}, jax {metadata.version('jax')}, powerzoo_jax {powerzoo_jax.__version__}"
    for line in itertools.chain([head], rows):
        lines.append(line)
        print(line, flush=True)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
