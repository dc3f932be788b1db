"""Train a small run, kill it at random moments, go on each time, and compare with the run that nobody disturbed.

Usage: python tests/cli/killed.py FOLDER           trains the run in FOLDER, or goes on with it
       python tests/cli/killed.py FOLDER KILLS     kills such a process that often and compares
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from powerzoo_jax.cli.commands.train import train
from powerzoo_jax.cli.lock import hold
from powerzoo_jax.cli.runs import CHECKPOINT, LOG, Run, has_checkpoint, is_run
from powerzoo_jax.rl.training import checkpoint
from powerzoo_jax.rl.training.config import PPOConfig
from tests.rl.toy_battery import STEPS, toy_sim

UPDATES = 20
CFG = PPOConfig(lanes=4, total_steps=4 * STEPS * UPDATES, epochs=1, minibatches=2, widths=(8,))
GAP_S = 1.0  # a process is killed at most so long after its first update


def live(folder: Path) -> Run:
    """Train to the end, a checkpoint after every update."""
    run = Run(folder, CFG, seeds=2)
    with hold(folder, "tests/cli/killed.py"):  # as the command does: a killed process must not keep the folder
        if not is_run(folder):
            run.write()
        train(run, toy_sim(), resume=True, every=0.0)
    return run


def rows(folder: Path) -> int:
    """Updates that the log knows of."""
    path = folder / LOG
    return max(0, path.read_text().count("\n") - 1) if path.is_file() else 0


def kill_once(folder: Path, wait_s: float) -> tuple[int, int]:
    """Go on with the run and kill it; (updates logged, updates in the checkpoint) that are left."""
    before = rows(folder)
    process = subprocess.Popen([sys.executable, __file__, str(folder)])
    while rows(folder) <= before and process.poll() is None:
        time.sleep(0.002)
    time.sleep(wait_s)
    process.send_signal(signal.SIGKILL)
    process.wait()
    run = Run(folder, CFG, seeds=2)
    return rows(folder), checkpoint.load_config(folder / CHECKPOINT)[1] if has_checkpoint(run) else 0


def main() -> None:
    """Behave as the arguments say."""
    folder = Path(sys.argv[1])
    if len(sys.argv) == 2:
        live(folder)
        return
    draw = random.Random(0)
    whole, cut = live(folder / "whole"), folder / "cut"
    for k in range(int(sys.argv[2])):
        logged, saved = kill_once(cut, draw.uniform(0, GAP_S))
        print(f"kill {k + 1}: {logged} updates logged, {saved} in the checkpoint", flush=True)
        assert saved >= logged - 1
    live(cut)
    assert (cut / LOG).read_text() == (whole.folder / LOG).read_text()
    print(f"all {UPDATES} updates as in the undisturbed run")


if __name__ == "__main__":
    main()
