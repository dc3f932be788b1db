"""Soak test: every task played for long with random, extreme, invalid and adversarial actions, and what came of it.

`python -m tools.soak --steps 2000` plays so many steps of each task and prints one row for each: whatever was not
finite, out of its bounds, or not the sum that it must be, the outcomes of the solvers, and the number of programs
compiled. It exits with 1 where a count of faults is not zero or a task compiled more than one program.
`--memory TASK` makes and runs a task 200 times, and then trains on it for `--minutes`, and prints the memory in use.
"""

from __future__ import annotations

import argparse
import functools
import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import powerzoo_jax as pz
from powerzoo_jax.base.spaces import Box, MultiDiscrete, Space, sample
from powerzoo_jax.base.types import Step
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.powerflow import Status

# One lane each, and behind them the lanes of the adversary: they stand in one state, each tries a random action, and
# all go on from where the worst of these actions led.
KINDS = ("random", "random", "extreme", "extreme", "alternating", "alternating", "nan", "infinite", "huge", "mixed")
TRIALS = 6
LANES = len(KINDS) + TRIALS
LENGTH = 25  # steps in one call of the compiled program
HUGE = 1e30
SUM_TOLERANCE = 1e-4  # relative: float32 sums of some hundred terms
RESIDUAL_PU = 1e-3  # largest mismatch of a flow that says it has converged; float32, on the largest networks
# statuses and one more column for anything that is none
OUTCOMES = (*(status.name.lower() for status in Status), "unknown")
FAULTS = ("obs", "reward", "cost", "info", "state", "outside", "negative", "unequal", "mismatch")
HEADER = "task\tsteps\tseconds\tprograms\tepisodes\tfaults\toutcomes"
CYCLES = 200
FLAT_MB = 40.0  # growth over the second half of the cycles, or of the training, that is no leak


class Tally(NamedTuple):
    """Counts of a number of steps.

    faults:    (F,)  int32  steps of a lane with a fault of each kind of FAULTS: not finite in obs, reward, cost, info
                            or state; an observation outside its bounds, a negative cost, a reward that is not the
                            weighted sum of its terms, a converged flow that balances worse than RESIDUAL_PU
    outcomes:  (S,)  int32  steps by the outcome of their solver
    ended:     ()    int32  episodes that ended
    """

    faults: Array
    outcomes: Array
    ended: Array


class Result(NamedTuple):
    """Counts of the play of one task."""

    task: str
    steps: int
    seconds: float
    programs: int
    faults: dict[str, int]
    outcomes: dict[str, int]
    ended: int

    @property
    def good(self) -> bool:
        return self.programs == 1 and not any(self.faults.values())


def act(space: Space, key: Array, t: Array) -> Array:
    """Actions (LANES, A, U) of one step, by the kinds of KINDS and the trials of the adversary."""
    pick, coin, kind = jax.random.split(key, 3)
    draws = jax.vmap(functools.partial(sample, space))(jax.random.split(pick, LANES))
    if isinstance(space, Box):
        low, high = jnp.asarray(space.low), jnp.asarray(space.high)
        bad = (jnp.nan, jnp.inf, HUGE)
    else:
        nvec = jnp.asarray(space.nvec if isinstance(space, MultiDiscrete) else space.n)
        low, high = jnp.zeros_like(nvec), nvec - 1
        bad = (-1, jnp.iinfo(nvec.dtype).max, jnp.iinfo(nvec.dtype).min)
    low, high = (jnp.broadcast_to(jnp.asarray(x, draws.dtype), draws.shape) for x in (low, high))
    sign = jax.random.bernoulli(coin, 0.5, draws.shape)
    ends = jnp.where(sign, high, low)
    turn = (t + jnp.arange(LANES)) % 2 == 0
    swing = jnp.where(turn[:, None, None], high, low)
    values = [jnp.broadcast_to(jnp.asarray(value, draws.dtype), draws.shape) for value in bad]
    if isinstance(space, Box):
        values[1:] = [jnp.where(sign, value, -value) for value in values[1:]]
    choices = jnp.stack([draws, ends, swing, *values])
    mixed = jnp.take_along_axis(choices, jax.random.randint(kind, draws.shape, 0, len(choices))[None], axis=0)[0]
    by_kind = {"random": draws, "extreme": ends, "alternating": swing, "mixed": mixed}
    by_kind |= dict(zip(("nan", "infinite", "huge"), values, strict=True))
    return jnp.stack([by_kind[name][k] for k, name in enumerate(KINDS)] + list(draws[len(KINDS) :]))


def judge(out: Step, box: Box, weights: Array) -> Tally:
    """Counts of one step of all lanes."""
    parts = out.info.terms * weights.astype(out.info.terms.dtype)[None, None, :]
    total, size = parts.sum(axis=2), jnp.maximum(jnp.abs(parts).max(axis=(1, 2), initial=0), 1.0)
    converged = out.info.pf_status == Status.CONVERGED
    found = {name: _not_finite(getattr(out, name)) for name in ("obs", "reward", "cost", "info", "state")}
    found["outside"] = _any((out.obs < box.low[None]) | (out.obs > box.high[None]))
    found["negative"] = _any(out.cost < 0)
    found["unequal"] = _any(jnp.abs(total - out.reward) > SUM_TOLERANCE * size[:, None])
    found["mismatch"] = converged & (out.info.pf_residual > RESIDUAL_PU)
    status = jnp.where((out.info.pf_status >= 0) & (out.info.pf_status < len(Status)), out.info.pf_status, len(Status))
    return Tally(
        faults=jnp.stack([found[name].sum(dtype=jnp.int32) for name in FAULTS]),
        outcomes=(status[:, None] == jnp.arange(len(OUTCOMES))[None]).sum(axis=0, dtype=jnp.int32),
        ended=(out.info.terminated | out.info.truncated).sum(dtype=jnp.int32),
    )


def _any(x: Array) -> Array:
    return x.reshape(x.shape[0], -1).any(axis=1)


def _not_finite(tree: Any) -> Array:
    leaves = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return functools.reduce(jnp.logical_or, (_any(~jnp.isfinite(x)) for x in leaves), jnp.zeros(LANES, bool))


def program(sim: Sim) -> Any:
    """Compiled play of LENGTH steps: (sim, states, key) -> (states, Tally)."""
    observation, action = sim.spaces()
    weights = np.asarray(sim.spec.term_weights, np.float32)

    def play(sim: Sim, states: Any, key: Array) -> tuple[Any, Tally]:
        def step(states: Any, draw: tuple[Array, Array]) -> tuple[Any, Tally]:
            key, t = draw
            out, states, _ = pz.vstep(sim, states, act(action, key, t))
            harm = out.cost.sum(axis=1) - out.reward.sum(axis=1)
            worst = len(KINDS) + jnp.argmax(harm[len(KINDS) :])
            follow = jnp.where(jnp.arange(LANES) < len(KINDS), jnp.arange(LANES), worst)
            return jax.tree.map(lambda x: x[follow], states), judge(out, observation, jnp.asarray(weights))

        draws = (jax.random.split(key, LENGTH), jnp.arange(LENGTH))
        states, tallies = lax.scan(step, states, draws)
        return states, jax.tree.map(lambda x: x.sum(axis=0), tallies)

    return jax.jit(play)


def soak(sim: Sim, steps: int, seed: int = 0) -> Result:
    """Play a task for so many steps, counted over all lanes."""
    start = time.perf_counter()
    key = jax.random.key(seed)
    # the adversary's lanes begin as one
    lane = jnp.minimum(jnp.arange(LANES), len(KINDS))
    keys = jax.vmap(lambda k: jax.random.fold_in(key, k))(lane)
    states, _ = jax.jit(jax.vmap(sim.init))(keys)
    play, calls = program(sim), -(-steps // (LANES * LENGTH))
    faults, outcomes, ended = np.zeros(len(FAULTS), np.int64), np.zeros(len(OUTCOMES), np.int64), 0
    for call in range(calls):
        states, tally = play(sim, states, jax.random.fold_in(key, LANES + call))
        faults, outcomes, ended = faults + tally.faults, outcomes + tally.outcomes, ended + int(tally.ended)
    return Result(
        task=sim.spec.id,
        steps=calls * LANES * LENGTH,
        seconds=time.perf_counter() - start,
        programs=play._cache_size(),
        faults=dict(zip(FAULTS, map(int, faults), strict=True)),
        outcomes=dict(zip(OUTCOMES, map(int, outcomes), strict=True)),
        ended=ended,
    )


# ---- memory


def resident_mb() -> float:
    """Memory of this process that is in use now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@jax.jit
def _episode(sim: Sim, key: Array) -> Array:
    state, _ = sim.init(key)
    return sim.step(state, sample(sim.spaces()[1], key)).reward.sum()


def cycles(task: str, count: int) -> Iterator[float]:
    """Memory [MB] after each of so many times that a task is made and run."""
    for k in range(count):
        sim = pz.make(task, split="train")
        _episode(sim, jax.random.key(k)).block_until_ready()
        del sim
        gc.collect()
        yield resident_mb()


def training(task: str, minutes: float) -> Iterator[float]:
    """Memory [MB] while a learner is trained again and again for so long."""
    from powerzoo_jax.rl.algorithms import ppo
    from powerzoo_jax.rl.training.config import PPOConfig

    sim = pz.make(task, split="train")
    cfg = PPOConfig(lanes=8, total_steps=8 * sim.spec.horizon * 4, epochs=1, minibatches=2, widths=(16,))
    train, stop = jax.jit(ppo.make_train(cfg, sim)), time.monotonic() + 60 * minutes
    for k in range(sys.maxsize):
        jax.block_until_ready(train(jax.random.key(k), sim))
        yield resident_mb()
        if time.monotonic() > stop:
            return


def growth(samples: Sequence[float]) -> float:
    """Growth [MB] of memory over the second half: the first half fills caches."""
    half = np.asarray(samples[len(samples) // 2 :])
    return float(half[-len(half) // 4 :].mean() - half[: max(len(half) // 4, 1)].mean())


# ---- command


def _row(result: Result) -> str:
    bad = ", ".join(f"{count} {name}" for name, count in result.faults.items() if count) or "none"
    outcomes = ", ".join(f"{count} {name}" for name, count in result.outcomes.items() if count)
    numbers = f"{result.task}\t{result.steps}\t{result.seconds:.1f}\t{result.programs}\t{result.ended}"
    return f"{numbers}\t{bad}\t{outcomes}"


def _memory(task: str, count: int, minutes: float) -> bool:
    flat = True
    for what, samples in (("cycles of make and run", cycles(task, count)), ("trainings", training(task, minutes))):
        found = list(samples)
        more = growth(found)
        flat &= more < FLAT_MB
        print(
            f"{task}\t{len(found)} {what}\t{found[0]:.0f} MB first\t{found[-1]:.0f} MB last\t{more:+.1f} MB over half"
        )
    return flat


def main(argv: Sequence[str] | None = None) -> int:
    """Print the rows; 1 for any fault, a second program of a task, or memory that grows."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description=__doc__)
    parser.add_argument("tasks", nargs="*", help="tasks; all by default")
    parser.add_argument("--steps", type=float, default=2e3, help="steps a task, over all lanes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--out", type=Path, help="write the rows to this TSV file as well")
    parser.add_argument("--memory", metavar="TASK", help="look at the memory instead")
    parser.add_argument("--cycles", type=int, default=CYCLES)
    parser.add_argument("--minutes", type=float, default=10.0, help="of training, with --memory")
    options = parser.parse_args(argv)
    if options.memory:
        return int(not _memory(options.memory, options.cycles, options.minutes))
    tasks, lines, good = options.tasks or pz.list_tasks(), [HEADER], True
    print(HEADER, flush=True)
    if options.jobs > 1:
        more = ["--steps", str(options.steps), "--seed", str(options.seed)]
        shares = [
            subprocess.Popen(
                [sys.executable, "-m", "tools.soak", *tasks[k :: options.jobs], *more],
                stdout=subprocess.PIPE,
                text=True,
            )
            for k in range(options.jobs)
        ]
        for share in shares:
            rows = share.communicate()[0].splitlines()[1:]
            print(*rows, sep="\n", flush=True)
            lines += rows
        good = not any(share.returncode for share in shares)
        tasks = ()
    for task in tasks:
        result = soak(pz.make(task, split="train"), int(options.steps), options.seed)
        good &= result.good
        lines.append(_row(result))
        print(lines[-1], flush=True)
        jax.clear_caches()
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
