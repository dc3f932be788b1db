"""Attempts to beat the best returns that are known: `python -m tools.tasks.attacks TASK ... --version 1 --out FILE`

Plans that look at no observation are searched for on the very episodes of the record, with seeds that are fixed. Where
one that keeps the budgets earned more than the best plan known, that plan would not be the best, or the task would pay
for what it should not. Attacks, each with the same number of plans: random constants, random plans by the clock, random
search around the best plan found so far, the cross-entropy method, and ascent along the gradient of the environment
(`--gradient`, of tasks whose physics are smooth). The latter three begin at devices left alone and at the task's
trivial policy: where few plans keep the budgets, a search from nowhere would find none, and try nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.oracle.baselines import idle_action
from powerzoo_jax.oracle.clock_plan import ClockPlan, load_trivial
from powerzoo_jax.oracle.reference import recorded_starts
from powerzoo_jax.oracle.registry import get_reference, version_key
from powerzoo_jax.oracle.trivial import MARGIN, Played, advance, mean_of_days, play_candidates, shapes, start_search
from powerzoo_jax.tasks import make
from powerzoo_jax.tasks.score import episode_keys, gain, keeps
from tools.tasks.margins import replace_rows

SPLIT = "val"
PLANS, BATCH = 500, 50  # of an attack, and played at once
FIRST_STEP, LEAST_STEP = 0.5, 0.02  # of the random search, in actions: from the first batch to the last
CLIMBERS = 5  # plans that climb side by side
RATE, LEAST_RATE = 0.05, 0.005  # of their steps, in actions
DECAY, TINY = (0.9, 0.999), 1e-12  # of the running moments of the gradient, and what keeps a division finite
APART = 0.1  # standard deviation [-] of where they begin
LEAST_ROOM = 1e-3  # of a budget of zero, in the unit of its channel
ALLOWED = 0.01  # gain beyond that of the best, which is 1
SEED = 42
COLUMNS = ("task", "version", "split", "attack", "n", "plans", "feasible", "best_return", "gain", "held")
RESULTS = Path("benchmarks/results/attacks.tsv")

Play = Callable[[np.ndarray], Played]
Slope = Callable[[np.ndarray], tuple[Played, np.ndarray]]
"""Values (N, size) -> what they play, and the direction (N, size) in which they are worth more"""


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


def ascent(slope: Slope, plans: int, seed: int, starts: np.ndarray) -> Iterator[Played]:
    """Ascent by Adam from plans around the first ones, in ever shorter steps; without a finite gradient a plan stays.

    Source: Kingma and Ba 2015, arXiv:1412.6980, algorithm 1.
    """
    random, size = np.random.default_rng(seed), starts.shape[1]
    noise = APART * random.standard_normal((CLIMBERS, size))
    noise[: len(starts)] = 0
    values = np.clip(starts[np.arange(CLIMBERS) % len(starts)] + noise, -1, 1)
    mean, square = np.zeros_like(values), np.zeros_like(values)
    for t, rate in enumerate(np.geomspace(RATE, LEAST_RATE, plans // CLIMBERS), start=1):
        played, upwards = slope(values)
        yield played
        upwards = np.where(np.isfinite(upwards).all(axis=1, keepdims=True), upwards, 0.0)
        mean = DECAY[0] * mean + (1 - DECAY[0]) * upwards
        square = DECAY[1] * square + (1 - DECAY[1]) * upwards**2
        height = np.sqrt(square / (1 - DECAY[1] ** t)) + TINY
        values = np.clip(values + rate * mean / (1 - DECAY[0] ** t) / height, -1, 1)


@jax.jit(static_argnums=1)
def slope_of(
    sim: Sim, shape: ClockPlan, values: Array, draws: Draw, keys: Array, room: Array, worth: Array
) -> tuple[tuple[Array, Array], Array]:
    """Money (N,) and costs (N, C) of values (N, size), and the gradient of money less what breaks the budgets.

    room:   (C,)  of each channel, inf without a budget
    worth:  ()    money that exceeding a budget once more costs
    """

    def valued(values: Array) -> tuple[Array, tuple[Array, Array]]:
        money, cost = mean_of_days(sim, shape, values, draws, keys)
        broken = jnp.sum(jnp.maximum(cost / room[None] - 1, 0), axis=1)
        return jnp.sum(money - worth * broken), (money, cost)

    upwards, played = jax.grad(valued, has_aux=True)(values)
    return played, upwards


ATTACKS = {
    "constant": ("constant", constants),
    "clock": ("clock", constants),
    "random_search": ("clock", nearby),
    "cross_entropy": ("clock", cross_entropy),
}


GRADIENT = "gradient"


def attack(
    task_id: str,
    *,
    version: int | None = None,
    split: str = SPLIT,
    plans: int = PLANS,
    seed: int = SEED,
    gradient: bool = False,
) -> Iterator[Attack]:
    """Attack the best return known of a task: one result for each of ATTACKS, and of the ascent along the gradient.

    version:   of the task; None takes that of `make`
    plans:     of each attack, in whole batches
    gradient:  whether to climb along the gradient too
    Raises KeyError where no best return is known, with the command that computes it.
    """
    record = get_reference(task_id, split, version=version)
    sim = make(task_id, version=version, split=split)
    draws, budget = recorded_starts(sim, record), np.asarray(sim.spec.cost_budget)
    keys = episode_keys(int(record["seed"]), record["n"])

    def judged(name: str, found: Sequence[Played]) -> Attack:
        money = np.concatenate([part.money for part in found])
        cost = np.concatenate([part.cost for part in found])
        kept = keeps(cost, budget).all(axis=1)
        value = float(money[kept].max()) if kept.any() else None
        share = None if value is None else gain(value, record["rule"], record["best"])
        return Attack(task_id, sim.spec.version, split, name, record["n"], len(money), int(kept.sum()), value, share)

    for name, (kind, search) in ATTACKS.items():
        shape = shapes(sim)[kind]

        def play(values: np.ndarray, shape: ClockPlan = shape) -> Played:
            return play_candidates(sim, shape, values, draws, keys)

        yield judged(name, list(search(shape, play, budget, plans, seed, starting_plans(sim, shape))))
    if gradient:
        clock, dtype = shapes(sim)["clock"], sim.spaces()[1].low.dtype  # type: ignore[union-attr]
        room = jnp.asarray(np.maximum(MARGIN * budget, LEAST_ROOM), dtype)
        worth = jnp.asarray(record["best"] - record["rule"], dtype)

        def slope(values: np.ndarray) -> tuple[Played, np.ndarray]:
            found, upwards = slope_of(sim, clock, jnp.asarray(values, dtype), draws, keys, room, worth)
            return Played(*(np.asarray(part, np.float64) for part in found)), np.asarray(upwards, np.float64)

        yield judged(GRADIENT, list(ascent(slope, plans, seed, starting_plans(sim, clock))))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the attacks on tasks; exit status 1 where one earned more than the best return known."""
    parser = argparse.ArgumentParser(prog="python -m tools.tasks.attacks", description=main.__doc__)
    parser.add_argument("task", nargs="+", help="task ids")
    parser.add_argument("--version", type=int, help="of the tasks; default: that of make")
    parser.add_argument("--split", default=SPLIT, help=f"default: {SPLIT}")
    parser.add_argument("--plans", type=int, default=PLANS, help=f"of each attack; default: {PLANS}")
    parser.add_argument("--gradient", action="store_true", help="climb along the gradient of the environment too")
    parser.add_argument("--out", type=Path, help=f"file that the rows of these tasks are replaced in, as {RESULTS}")
    chosen = parser.parse_args(arguments)
    print("\t".join(COLUMNS))
    held = True
    for task_id in chosen.task:
        rows = []
        for row in attack(
            task_id, version=chosen.version, split=chosen.split, plans=chosen.plans, gradient=chosen.gradient
        ):
            print(row.line(), flush=True)
            rows.append(row)
        held &= all(row.held for row in rows)
        if chosen.out:
            replace_rows(chosen.out, rows, COLUMNS)
    return int(not held)


if __name__ == "__main__":
    raise SystemExit(main())
