"""Resident memory over many makes and runs of a task, and over a long training.

`python -m tools.memory` makes and runs a task 200 times, trains on it for ten minutes by the command, prints a row of
each every few samples, and exits with 1 where the memory in use keeps growing.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jax import Array

import powerzoo_jax as pz
from powerzoo_jax.base.spaces import sample
from powerzoo_jax.cli.runs import LOG
from powerzoo_jax.envs.core import Sim

CYCLES, MINUTES = 200, 10.0
EVERY_S = 5.0  # between checkpoints, more than a run would write
STEPS = 10**9  # of the training, more than it gets to
FLAT_MB = 40.0  # growth over the second half of the cycles, or of the training, that is no leak
ROWS = 20  # of each series that are printed
COLUMNS = ("what", "repeats", "seconds", "MB")


class Sample(NamedTuple):
    """Resident memory [MB] after so many cycles or updates, and so many seconds."""

    repeats: int
    seconds: float
    mb: float


def resident_mb(process: int | str = "self") -> float:
    """Memory of a process that is in use now."""
    pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@jax.jit
def _steps(sim: Sim, key: Array) -> Array:
    state, _ = sim.init(key)
    return sim.step(state, sample(sim.spaces()[1], key)).reward.sum()


def cycles(task: str, count: int) -> Iterator[Sample]:
    """Memory after each time that a task is made and run."""
    start = time.monotonic()
    for k in range(count):
        sim = pz.make(task, split="train")
        _steps(sim, jax.random.key(k)).block_until_ready()
        del sim
        gc.collect()
        yield Sample(k + 1, time.monotonic() - start, resident_mb())


def training(task: str, minutes: float) -> Iterator[Sample]:
    """Memory each second of `powerzoo-jax train TASK` with its log and checkpoints, stopped after so many minutes."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        words = ["train", task, "--out", str(folder), "--every", str(EVERY_S), "--set", f"total_steps={STEPS}"]
        process = subprocess.Popen([sys.executable, "-m", "powerzoo_jax", *words], stdout=subprocess.DEVNULL)
        start = time.monotonic()
        try:
            while time.monotonic() < start + 60 * minutes:
                time.sleep(1.0)
                if process.poll() is not None:
                    raise RuntimeError(f"training of {task} ended with status {process.returncode}. Run it alone.")
                log = folder / LOG
                updates = log.read_bytes().count(b"\n") - 1 if log.exists() else 0
                if updates > 0:  # compiled by now
                    yield Sample(updates, time.monotonic() - start, resident_mb(process.pid))
        finally:
            process.kill()
            process.wait()


def growth(samples: Sequence[float]) -> float:
    """Growth [MB] of memory over the second half, quarter mean to quarter mean: the first half fills caches."""
    half = np.asarray(samples[len(samples) // 2 :])
    return float(half[-len(half) // 4 :].mean() - half[: max(len(half) // 4, 1)].mean())


def main(argv: Sequence[str] | None = None) -> int:
    """Print the rows; 1 where memory grows."""
    parser = argparse.ArgumentParser(prog="python -m tools.memory", description=__doc__)
    parser.add_argument("task", nargs="?", default="battery_arbitrage")
    parser.add_argument("--cycles", type=int, default=CYCLES)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of training")
    parser.add_argument("--out", type=Path, help="write the rows to this TSV file as well")
    options = parser.parse_args(argv)
    lines, head, grown = ["\t".join(COLUMNS)], [], 0.0
    print(lines[0], flush=True)
    for what, series in (
        ("cycles", cycles(options.task, options.cycles)),
        ("updates", training(options.task, options.minutes)),
    ):
        found = list(series)
        step = max(len(found) // ROWS, 1)
        for x in [*found[::step], *found[-1:]]:
            lines.append(f"{what}\t{x.repeats}\t{x.seconds:.1f}\t{x.mb:.1f}")
            print(lines[-1], flush=True)
        more = growth([x.mb for x in found])
        grown = max(grown, more)
        head.append(f"{found[-1].repeats} {what} in {found[-1].seconds:.0f} s, {more:+.1f} MB over the second half")
    head = [f"# {options.task}: {'; '.join(head)}"]
    print(*head, flush=True)
    if options.out:
        options.out.write_text("\n".join((*head, *lines, "")), encoding="utf-8")
    return int(grown >= FLAT_MB)


if __name__ == "__main__":
    sys.exit(main())
