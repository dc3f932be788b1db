"""One of several processes that train a small run together: python processes.py FOLDER HOST:PORT PROCESSES PROCESS.

With 1 process nothing is joined. Every update is followed by a checkpoint, and the run goes on where it stands.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from powerzoo_jax.cli.commands.train import train
from powerzoo_jax.cli.runs import Run, is_run
from powerzoo_jax.rl.training.config import PPOConfig
from powerzoo_jax.rl.training.processes import join, watch
from tests.rl.toy_battery import STEPS, toy_sim

UPDATES = 20
TIMEOUT_S = 5.0
CFG = PPOConfig(lanes=4, total_steps=4 * STEPS * UPDATES, epochs=1, minibatches=1, shards=4, widths=(8,))


def main() -> None:
    """Train to the end."""
    folder, address, count, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    if count > 1:
        join(address, count, number, timeout_s=TIMEOUT_S)
    run = Run(folder, CFG, seeds=1)
    if number == 0 and not is_run(folder):
        run.write()
    with watch(TIMEOUT_S):
        train(run, toy_sim(), resume=True, every=0.0)


if __name__ == "__main__":
    main()
