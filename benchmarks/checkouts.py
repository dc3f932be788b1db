"""Environment steps of two checkouts of this repository, in turns on one pinned core.

Usage: python benchmarks/checkouts.py BASE [--task NAME ...] [--lanes 256] [--rounds 9] [--seconds 0.1] [--out FILE]

BASE is the root of the other checkout, `git worktree add BASE COMMIT` makes one. Each has a process of its own, which
compiles the 48 steps of `env_steps.py` from its own package, with every output read; then both take turns, each some
`--seconds` a round, and who begins alternates. What the core is doing besides slows both, so that ratios of one round
say more than times. Processor time; columns are tab-separated:
  base_ns, ns   a step of one lane in BASE and here, medians over rounds
  ratio         ns over base_ns of the same round, median; above 1 is slower here
  low, high     quartiles of that ratio
A task that one of the two does not have, or that does not compile there, has the reason in place of its times.
"""

from __future__ import annotations

# isort: off
import one_core  # pins the process, and those it starts, before jax starts
# isort: on

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

HERE = Path(one_core.__file__).resolve().parents[1]
COLUMNS = ("task", "lanes", "base_ns", "ns", "ratio", "low", "high")
CHILD = "--child"


class Checkout:
    """A process that steps one task with the package of one checkout."""

    def __init__(self, root: Path, task: str, lanes: int) -> None:
        command = [sys.executable, __file__, CHILD, str(root), task, str(lanes)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        self.failed = self._read().removeprefix("ready")  # waits, so that the two do not compile side by side

    def ns(self, seconds: float) -> float:
        """Median time of a lane-step [ns] over that many seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return float(self._read())

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip() or "its process ended"

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def child(root: str, task: str, lanes: int) -> None:
    """Compile the steps of a task, then answer each number of seconds on the input with nanoseconds."""
    sys.path.insert(0, root)  # before the package of this checkout
    try:
        import env_steps
        import jax

        import powerzoo_jax

        found = Path(powerzoo_jax.__file__).resolve()
        if not found.is_relative_to(Path(root).resolve()):
            raise ImportError(f"powerzoo_jax comes from {found}, not from {root}")
        sim = powerzoo_jax.make(task)
        states, _ = jax.jit(jax.vmap(sim.init))(jax.random.split(jax.random.key(0), lanes))
        shape = (env_steps.STEPS, lanes, sim.env.dims.agent, sim.env.dims.act)
        actions = jax.random.uniform(jax.random.key(1), shape, minval=-1)
        run, _ = env_steps.compiled(env_steps.run_steps, sim, states, actions)
        run()
    except Exception as err:  # whatever it is, the other checkout and the other tasks go on
        print(f"{type(err).__name__}: {' '.join(str(err).split())[:80]}", flush=True)
        return
    print("ready", flush=True)
    for line in sys.stdin:
        times, until = [], time.process_time() + float(line)
        while not times or time.process_time() < until:
            begin = time.process_time()
            run()
            times.append(time.process_time() - begin)
        print(statistics.median(times) / (env_steps.STEPS * lanes) * 1e9, flush=True)


def measure(base: Path, task: str, lanes: int, rounds: int, seconds: float) -> list[str]:
    """One row of the table."""
    both = [Checkout(root, task, lanes) for root in (base, HERE)]
    try:
        for name, one in zip(("base", "here"), both, strict=True):
            if one.failed:
                return [task, str(lanes), f"{name}: {one.failed}", "-", "-", "-", "-"]
        pairs = []
        for turn in range(rounds):
            first = turn % 2
            taken = {place: both[place].ns(seconds) for place in (first, 1 - first)}
            pairs.append((taken[0], taken[1]))
        return [task, str(lanes), *cells(pairs)]
    finally:
        for one in both:
            one.close()


def cells(pairs: Sequence[tuple[float, float]]) -> list[str]:
    """Medians of both times, and the median and quartiles of their ratio."""
    low, middle, high = statistics.quantiles([now / base for base, now in pairs], n=4, method="inclusive")
    medians = (statistics.median(times) for times in zip(*pairs, strict=True))
    return [*(f"{time:.0f}" for time in medians), *(f"{ratio:.3f}" for ratio in (middle, low, high))]


def main() -> None:
    import powerzoo_jax

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path, help="root of the other checkout")
    parser.add_argument("--task", nargs="+", default=powerzoo_jax.list_tasks(), metavar="NAME")
    parser.add_argument("--lanes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9, help="at least two")
    parser.add_argument("--seconds", type=float, default=0.1, help="of each checkout a round")
    parser.add_argument("--out", type=Path, help="write the table to this file as well, as it comes")
    args = parser.parse_args()
    if not (args.base / "powerzoo_jax" / "__init__.py").is_file():
        parser.error(f"{args.base} holds no package powerzoo_jax. Give the root of a checkout.")
    lines: list[str] = []

    def tell(line: str) -> None:
        print(line, flush=True)
        lines.append(line)
        if args.out:
            args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")

    tell(f"# one core, processor time, jax {metadata.version('jax')}, {args.rounds} rounds")
    tell("\t".join(COLUMNS))
    for task in args.task:
        tell("\t".join(measure(args.base, task, args.lanes, args.rounds, args.seconds)))


if __name__ == "__main__":
    if sys.argv[1:2] == [CHILD]:
        child(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main()
