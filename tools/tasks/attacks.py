"""Attempts to beat the best returns that are known: `python -m tools.tasks.attacks TASK ... --version 1 --out FILE`

Plans that look at no observation are searched for on the very episodes of the record, with seeds that are fixed. Where
one that keeps the budgets earned more than the best plan known, that plan would not be the best, or the task would pay
for what it should not. Attacks, each with the same number of plans: random constants, random plans by the clock, random
search around the best plan found so far, and the cross-entropy method. The latter two begin at devices left alone and
at the task's trivial policy: where few plans keep the budgets, a search from nowhere would find none, and try nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from powerzoo_jax.envs.core import Sim
from powerzoo_jax.oracle.baselines import idle_action
from powerzoo_jax.oracle.clock_plan import ClockPlan, load_trivial
from powerzoo_jax.oracle.reference import recorded_starts
from powerzoo_jax.oracle.registry import get_reference, version_key
from powerzoo_jax.oracle.trivial import Played, advance, play_candidates, shapes, start_search
from powerzoo_jax.tasks import make
from powerzoo_jax.tasks.score import episode_keys, gain, keeps
from tools.tasks.margins import replace_rows

SPLIT = "val"
PLANS, BATCH = 500, 50  # of an attack, and played at once
FIRST_STEP, LEAST_STEP = 0.5, 0.02  # of the random search, in actions: from the first batch to the last
ALLOWED = 0.01  # gain beyond that of the best, which is 1
SEED = 42
COLUMNS = ("task", "version", "split", "attack", "n", "plans", "feasible", "best_return", "gain", "held")
RESULTS = Path("benchmarks/results/attacks.tsv")

Play = Callable[[np.ndarray], Played]


class Attack(NamedTuple):
    """Result of one attack. feasible: plans that keep the budgets; value: largest mean return of these, None of none;
    gain: of it, where rule and best are 0 and 1
    """

    task: str
    version: int
    split: str
    attack: str
    n: int
    plans: int
    feasible: int
    value: float | None
    gain: float | None

    @property
    def held(self) -> bool:
        return self.gain is None or self.gain <= 1 + ALLOWED

    def line(self) -> str:
        """The row of the table; an attack without a plan that keeps the budgets shows nothing."""
        shown = ("-" if x is None else f"{x:.4f}" for x in (self.value, self.gain))
        held = "-" if self.gain is None else "yes" if self.held else "no"
        return "\t".join((*map(str, self[:7]), *shown, held))


def starting_plans(sim: Sim, shape: ClockPlan) -> np.ndarray:
    """Values (S, size) of the plans that searches begin at: devices left alone, and the trivial policy if it fits."""
    group, idle = np.asarray(shape.group), idle_action(sim)
    alone = [idle[group == number].mean() for number in range(group.max() + 1)]
    starts = [np.tile(alone, shape.blocks)]
    trivial = load_trivial().get(sim.spec.id, {}).get(version_key(sim.spec.id, sim.spec.version))
    if trivial and np.array_equal(trivial["group"], group) and shape.blocks % trivial["blocks"] == 0:
        values = np.reshape(trivial["values"], (trivial["blocks"], -1))
        starts.append(np.repeat(values, shape.blocks // trivial["blocks"], axis=0).ravel())
    return np.stack(starts)


def constants(
    shape: ClockPlan, play: Play, budget: np.ndarray, plans: int, seed: int, starts: np.ndarray
) -> Iterator[Played]:
    """Actions that never change, drawn evenly; so are plans by the clock."""
    random = np.random.default_rng(seed)
    for _ in range(plans // BATCH):
        yield play(random.uniform(-1, 1, (BATCH, shape.size)))


def nearby(
    shape: ClockPlan, play: Play, budget: np.ndarray, plans: int, seed: int, starts: np.ndarray
) -> Iterator[Played]:
    """Random search: each batch lies around the best plan so far, ever closer."""
    random, rounds = np.random.default_rng(seed), plans // BATCH
    best, kept = starts[0], starts
    for spread in np.geomspace(FIRST_STEP, LEAST_STEP, rounds):
        drawn = np.clip(best + spread * random.standard_normal((BATCH, shape.size)), -1, 1)
        drawn[: len(kept)] = kept
        known = play(drawn)
        best = drawn[known.order(budget)[0]]
        kept = best[None]
        yield known


def cross_entropy(
    shape: ClockPlan, play: Play, budget: np.ndarray, plans: int, seed: int, starts: np.ndarray
) -> Iterator[Played]:
    """Cross-entropy method, as the trivial policies are fitted, here on the episodes themselves."""
    search, seen = start_search("clock", shape.size, starts[0]), []
    search.best[0] = starts[-1]

    def watched(values: np.ndarray) -> Played:
        seen.append(play(values))
        return seen[-1]

    for _ in range(plans // BATCH):
        advance(search, watched, budget, seed, BATCH)
        yield seen[-1]


ATTACKS = {
    "constant": ("constant", constants),
    "clock": ("clock", constants),
    "random_search": ("clock", nearby),
    "cross_entropy": ("clock", cross_entropy),
}


def attack(
    task_id: str, *, version: int | None = None, split: str = SPLIT, plans: int = PLANS, seed: int = SEED
) -> Iterator[Attack]:
    """Attack the best return known of a task: one result for each of ATTACKS.

    version:  of the task; None takes that of `make`
    plans:    of each attack, in whole batches
    Raises KeyError where no best return is known, with the command that computes it.
    """
    record = get_reference(task_id, split, version=version)
    sim = make(task_id, version=version, split=split)
    draws, budget = recorded_starts(sim, record), np.asarray(sim.spec.cost_budget)
    keys = episode_keys(int(record["seed"]), record["n"])
    for name, (kind, search) in ATTACKS.items():
        shape = shapes(sim)[kind]

        def play(values: np.ndarray, shape: ClockPlan = shape) -> Played:
            return play_candidates(sim, shape, values, draws, keys)

        found = list(search(shape, play, budget, plans, seed, starting_plans(sim, shape)))
        money = np.concatenate([part.money for part in found])
        cost = np.concatenate([part.cost for part in found])
        kept = keeps(cost, budget).all(axis=1)
        value = float(money[kept].max()) if kept.any() else None
        share = None if value is None else gain(value, record["rule"], record["best"])
        yield Attack(task_id, sim.spec.version, split, name, record["n"], len(money), int(kept.sum()), value, share)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the attacks on tasks; exit status 1 where one earned more than the best return known."""
    parser = argparse.ArgumentParser(prog="python -m tools.tasks.attacks", description=main.__doc__)
    parser.add_argument("task", nargs="+", help="task ids")
    parser.add_argument("--version", type=int, help="of the tasks; default: that of make")
    parser.add_argument("--split", default=SPLIT, help=f"default: {SPLIT}")
    parser.add_argument("--plans", type=int, default=PLANS, help=f"of each attack; default: {PLANS}")
    parser.add_argument("--out", type=Path, help=f"file that the rows of these tasks are replaced in, as {RESULTS}")
    chosen = parser.parse_args(arguments)
    print("\t".join(COLUMNS))
    held = True
    for task_id in chosen.task:
        rows = []
        for row in attack(task_id, version=chosen.version, split=chosen.split, plans=chosen.plans):
            print(row.line(), flush=True)
            rows.append(row)
        held &= all(row.held for row in rows)
        if chosen.out:
            replace_rows(chosen.out, rows, COLUMNS)
    return int(not held)


if __name__ == "__main__":
    raise SystemExit(main())
