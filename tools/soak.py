"""Soak test: every task and preset played for long with random, extreme, invalid and adversarial actions.

`python -m tools.soak --steps 2000` plays so many steps of every version of each task and prints one row for each:
whatever was not finite, out of its bounds, or not the sum that it must be, the outcomes of the solvers, and the number
of programs compiled. It exits with 1 where a count of faults is not zero or a task compiled more than one program.
Tasks of one builder and grid that differ in numbers alone share a program; `--quick` takes the version that
`make` takes, and a compiler that does not optimise.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import multiprocessing
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import powerzoo_jax as pz
from powerzoo_jax.base.spaces import Box, MultiDiscrete, Space, sample
from powerzoo_jax.base.tree import where_done
from powerzoo_jax.base.types import Step
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.powerflow import Status
from powerzoo_jax.tasks.registry import get_builder, get_spec, list_presets, list_versions

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
COLUMNS = ("task", "version", "steps", "seconds", "programs", "episodes", "faults", "outcomes")
LEVEL, QUICK_LEVEL = 3, 0  # of XLA's optimisation: without it a program compiles in about half the time


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
    """Counts of the play of one task.

    programs:  compiled for it; 0 where a task before it had the same
    """

    task: str
    version: int
    steps: int
    seconds: float
    programs: int
    faults: dict[str, int]
    outcomes: dict[str, int]
    ended: int

    @property
    def good(self) -> bool:
        return self.programs <= 1 and not any(self.faults.values())


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


@jax.jit
def _begin(sim: Sim, keys: Array) -> Any:
    return jax.vmap(sim.init)(keys)[0]


def _play(sim: Sim, weights: Array, states: Any, ended: Array, key: Array) -> tuple[Any, Array, Tally]:
    """LENGTH steps, each begun afresh in the lanes that have ended: (states, ended, Tally)."""
    observation, action = sim.spaces()
    # the adversary's lanes begin as one
    lane, trial = jnp.minimum(jnp.arange(LANES), len(KINDS)), jnp.arange(LANES) >= len(KINDS)

    def step(carry: tuple[Any, Array], draw: tuple[Array, Array]) -> tuple[Any, Tally]:
        (states, ended), (key, t) = carry, draw
        keys = jax.vmap(functools.partial(jax.random.fold_in, key))(lane)
        states = lax.cond(ended.any(), lambda x: where_done(ended, _begin(sim, keys), x), lambda x: x, states)
        out = jax.vmap(sim.step)(states, act(action, key, t))
        harm = out.cost.sum(axis=1) - out.reward.sum(axis=1)
        worst = jnp.argmax(jnp.where(trial, harm, -jnp.inf))
        follow = jnp.where(trial, worst, jnp.arange(LANES))
        ended = (out.info.terminated | out.info.truncated)[follow]
        return (jax.tree.map(lambda x: x[follow], out.state), ended), judge(out, observation, weights)

    draws = (jax.random.split(key, LENGTH), jnp.arange(LENGTH))
    (states, ended), tallies = lax.scan(step, (states, ended), draws)
    return states, ended, jax.tree.map(lambda x: x.sum(axis=0), tallies)


@functools.cache
def player(level: int) -> Any:
    """Compiled `_play` of all tasks, at a level of optimisation."""
    return jax.jit(_play, compiler_options={"xla_backend_optimization_level": level})


def soak(sim: Sim, steps: int, seed: int = 0, level: int = LEVEL) -> Result:
    """Play a task for so many steps, counted over all lanes."""
    start, spec, weights = time.perf_counter(), sim.spec, jnp.asarray(sim.spec.term_weights, jnp.float32)
    # a label, but static: under one label tasks that differ in numbers alone share a program
    sim = dataclasses.replace(sim, spec=get_spec("battery_arbitrage"))
    key, play, calls = jax.random.key(seed), player(level), -(-steps // (LANES * LENGTH))
    before, ended = play._cache_size(), jnp.ones(LANES, bool)
    states = jax.tree.map(
        lambda x: jnp.empty(x.shape, x.dtype), jax.eval_shape(_begin, sim, jax.random.split(key, LANES))
    )
    faults, outcomes, episodes = np.zeros(len(FAULTS), np.int64), np.zeros(len(OUTCOMES), np.int64), 0
    for call in range(calls):
        states, ended, counts = play(sim, weights, states, ended, jax.random.fold_in(key, call))
        faults, outcomes, episodes = faults + counts.faults, outcomes + counts.outcomes, episodes + int(counts.ended)
    return Result(
        task=spec.id,
        version=spec.version,
        steps=calls * LANES * LENGTH,
        seconds=time.perf_counter() - start,
        programs=play._cache_size() - before,
        faults=dict(zip(FAULTS, map(int, faults), strict=True)),
        outcomes=dict(zip(OUTCOMES, map(int, outcomes), strict=True)),
        ended=episodes,
    )


# ---- command


def groups(names: Iterable[str], *, quick: bool) -> list[list[tuple[str, int]]]:
    """Tasks and versions, those together that may share a program: of one builder and grid; large groups first."""
    found: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for name in names:
        for version in (get_spec(name).version,) if quick else list_versions(name):
            place = get_builder(name, version), get_spec(name, version).case
            found.setdefault(place, []).append((name, version))
    return sorted(found.values(), key=len, reverse=True)


def soak_group(members: Sequence[tuple[str, int]], steps: int, seed: int, level: int) -> list[Result]:
    """Play tasks one after the other in one process, and forget their programs."""
    results = [soak(pz.make(task, version=version, split="train"), steps, seed, level) for task, version in members]
    jax.clear_caches()
    return results


def play_all(
    work: Sequence[Sequence[tuple[str, int]]], jobs: int, steps: int, seed: int, level: int
) -> Iterator[Result]:
    """Results of all groups, in order of the groups; several processes take one group after the other."""
    play = functools.partial(soak_group, steps=steps, seed=seed, level=level)
    if jobs == 1:
        yield from itertools.chain.from_iterable(map(play, work))
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        yield from itertools.chain.from_iterable(pool.map(play, work))


def row_of(result: Result) -> tuple[str, ...]:
    """Entries of COLUMNS."""
    bad = ", ".join(f"{count} {name}" for name, count in result.faults.items() if count) or "none"
    outcomes = ", ".join(f"{count} {name}" for name, count in result.outcomes.items() if count)
    numbers = result.version, result.steps, f"{result.seconds:.1f}", result.programs, result.ended
    return result.task, *map(str, numbers), bad, outcomes


def write_rows(path: Path, rows: Iterable[tuple[str, ...]]) -> None:
    """Put rows into a TSV by task and version; others that stand there stay."""
    lines = path.read_text(encoding="utf-8").splitlines()[2:] if path.exists() else []
    known = {row[:2]: row for row in (*(tuple(line.split("\t")) for line in lines), *rows)}
    kept = [known[key] for key in sorted(known)]
    bad = sum(row[6] != "none" for row in kept)
    total, programs = (sum(int(row[k]) for row in kept) for k in (2, 4))
    head = f"# {len(kept)} tasks, presets and versions, {total} steps, {programs} programs, {bad} with faults"
    path.write_text("\n".join((head, *map("\t".join, (COLUMNS, *kept)), "")), encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the rows; 1 for any fault or a second program of a task."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description=__doc__)
    parser.add_argument("tasks", nargs="*", help="tasks and presets; all by default")
    parser.add_argument("--steps", type=float, default=2e3, help="steps a task, over all lanes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--quick", action="store_true", help="one version of each task, compiled without optimisation")
    parser.add_argument("--out", type=Path, help="put the rows into this TSV file as well")
    options = parser.parse_args(argv)
    start, results = time.perf_counter(), []
    work = groups(options.tasks or (*pz.list_tasks(), *list_presets()), quick=options.quick)
    level = QUICK_LEVEL if options.quick else LEVEL
    print(*COLUMNS, sep="\t", flush=True)
    for result in play_all(work, options.jobs, int(options.steps), options.seed, level):
        results.append(result)
        print(*row_of(result), sep="\t", flush=True)
        if options.out:
            write_rows(options.out, [row_of(result)])  # at once: a run takes minutes and may be stopped
    good = [result.good for result in results]
    steps, programs = sum(result.steps for result in results), sum(result.programs for result in results)
    print(f"# {steps} steps, {programs} programs, {time.perf_counter() - start:.0f} s, {good.count(False)} with faults")
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
