"""Train a small run, kill it at random moments, go on each time, and compare with the run that nobody disturbed.

Usage: python tests/cli/killed.py FOLDER UPDATES           trains the run in FOLDER, or goes on with it
       python tests/cli/killed.py FOLDER UPDATES KILLS     kills such a process that often and compares
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from powerzoo_jax.cli.commands.train import train
from powerzoo_jax.cli.lock import hold
from powerzoo_jax.cli.runs import CHECKPOINT, LOG, Run, has_checkpoint, is_run, load_state
from powerzoo_jax.rl.training import checkpoint
from powerzoo_jax.rl.training.config import PPOConfig
from tests.rl.toy_battery import STEPS, toy_sim

UPDATES = 20  # of the tests
GAP_S = 1.0  # a process is killed at most so long after its first update


def run_of(folder: Path, updates: int) -> Run:
    """Two seeds of a toy task, one rollout an update."""
    cfg = PPOConfig(lanes=4, total_steps=4 * STEPS * updates, epochs=1, minibatches=2, widths=(8,))
    return Run(folder, cfg, seeds=2)


def live(folder: Path, updates: int = UPDATES) -> Run:
    """Train to the end, a checkpoint after every update."""
    run = run_of(folder, updates)
    with hold(folder, "tests/cli/killed.py"):  # as the command does: a killed process must not keep the folder
        if not is_run(folder):
            run.write()
        train(run, toy_sim(), resume=True, every=0.0)
    return run


def rows(folder: Path) -> int:
    """Updates that the log knows of."""
    path = folder / LOG
    return max(0, path.read_text().count("\n") - 1) if path.is_file() else 0


def kill_once(folder: Path, wait_s: float, updates: int = UPDATES) -> tuple[int, int]:
    """Go on with the run and kill it; (updates logged, updates in the checkpoint) that are left."""
    before = rows(folder)
    process = subprocess.Popen([sys.executable, __file__, str(folder), str(updates)])
    while rows(folder) <= before and process.poll() is None:
        time.sleep(0.002)
    time.sleep(wait_s)
    process.send_signal(signal.SIGKILL)
    process.wait()
    run = run_of(folder, updates)
    return rows(folder), checkpoint.load_config(folder / CHECKPOINT)[1] if has_checkpoint(run) else 0


def assert_same_state(whole: Run, cut: Run) -> None:
    """Every leaf of the final states is the same, bit for bit."""
    leaves, others = (jax.tree.leaves(load_state(run, toy_sim())[0]) for run in (whole, cut))
    for a, b in zip(leaves, others, strict=True):
        np.testing.assert_array_equal(words(a), words(b))


def words(x: jax.Array) -> jax.Array:
    return jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x


def main() -> None:
    """Behave as the arguments say."""
    folder, updates = Path(sys.argv[1]), int(sys.argv[2])
    if len(sys.argv) == 3:
        live(folder, updates)
        return
    draw, start = random.Random(0), time.monotonic()
    whole, cut = live(folder / "whole", updates), folder / "cut"
    for k in range(int(sys.argv[3])):
        logged, saved = kill_once(cut, draw.uniform(0, GAP_S), updates)
        print(f"kill {k + 1}: {logged} updates logged, {saved} in the checkpoint", flush=True)
        assert saved >= logged - 1
        assert logged < updates, "the run ended before it was killed: give more updates"
    last = live(cut, updates)
    assert (cut / LOG).read_text() == (whole.folder / LOG).read_text()
    assert_same_state(whole, last)
    print(
        f"all {updates} updates and the final state as in the undisturbed run, bit for bit, "
        f"after {sys.argv[3]} kills in {time.monotonic() - start:.0f} s"
    )


if __name__ == "__main__":
    main()
