"""Trivial policies: the best constant action and the best plan by the clock, which look at no observation.

Fitted on days of training by the cross-entropy method, `python -m powerzoo_jax.oracle.trivial TASK --write`: what a
task can be had for without looking. Among candidates that keep every budget the one with the larger return wins, among
others the one that breaks less. Where the rule breaks a budget on those days, candidates may reach as much. Source:
Rubinstein and Kroese, The Cross-Entropy Method, Springer 2004, chapter 4.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base.errors import SettingsError, listing
from powerzoo_jax.base.files.results import write_text
from powerzoo_jax.base.textfile import read_json
from powerzoo_jax.base.tree import take
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import run_episode
from powerzoo_jax.envs.family import family_of
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.oracle.baselines import RULE, evaluate_baseline
from powerzoo_jax.oracle.clock_plan import COMMAND, FILE, ClockPlan, steps_per_day
from powerzoo_jax.oracle.progress import show_progress
from powerzoo_jax.oracle.registry import PlanCarry, plan_act, version_key
from powerzoo_jax.tasks import make
from powerzoo_jax.tasks.score import SEED, all_starts, episode_keys

MOST_OWN = 16  # entries of the actions of several agents that each have a plan of their own
MOST_VALUES = 150  # of a plan: what 60 generations of the search can still order
BLOCKS = (24, 12, 8, 6, 4)  # of a day, that a plan may hold its actions for
POPULATION, ELITE = 250, 10  # candidates of a generation, one of so many is kept
GENERATIONS = {"constant": 16, "clock": 64}  # times POPULATION: 20,000 evaluations
STEPS, LEAST_DAYS, MOST_DAYS = 480, 3, 10  # of training that each evaluation plays
REFINED = 30  # further generations of a quarter of the candidates, on four times as many days: ten leave budgets broken
FEWER = 4
CHECKED = 20  # last candidates of each search, among which the best is chosen on those days
SPREAD, LEAST_SPREAD, KEPT = 0.8, 0.02, 0.3  # first standard deviation, the smallest, share of the old one that is kept
MARGIN = 0.9  # of every budget that a candidate may use
DIGITS = 3


def groups(sim: Sim) -> tuple[tuple[int, ...], ...]:
    """Group of each entry of an action: its own, or with many agents one for each kind of unit and column.

    Units that share a load by their scores are told apart however many they are: equal scores are the same for all.
    """
    agent, width = sim.env.dims.agent, sim.env.dims.act
    shared = family_of(sim).loads_shared
    if agent == 1 or agent * width <= (MOST_VALUES if shared else MOST_OWN):
        return tuple(tuple(range(a * width, (a + 1) * width)) for a in range(agent))
    kind = np.zeros((agent, width), int)
    layout = getattr(sim.env, "layout", None)
    if layout is not None and layout.per_device:
        for number, block in enumerate(layout.table.blocks):
            kind[list(block.units)] = number
    _, index = np.unique(kind * width + np.arange(width), return_inverse=True)
    return tuple(tuple(int(x) for x in row) for row in index.reshape(agent, width))


def shapes(sim: Sim) -> dict[str, ClockPlan]:
    """The constant and the plan by the clock."""
    group = groups(sim)
    count = 1 + max(max(row) for row in group)
    blocks = next((b for b in BLOCKS if b * count <= MOST_VALUES), BLOCKS[-1])
    return {"constant": ClockPlan(group, 1), "clock": ClockPlan(group, blocks)}


def spread_starts(sim: Sim, count: int) -> Draw:
    """As many of the eligible starts, evenly over the calendar."""
    starts = all_starts(sim)
    total = starts.load_row.shape[0]
    chosen = np.unique(np.linspace(0, total - 1, min(count, total)).round().astype(int))
    picked: Draw = take(starts, chosen)
    return picked


@dataclass(frozen=True)
class Played:
    """Means over days of N candidates: money (N,) and cost channels (N, C)."""

    money: np.ndarray
    cost: np.ndarray

    def order(self, budget: np.ndarray) -> np.ndarray:
        """Positions from the best to the worst: feasible ones by money, then the others by what they break."""
        finite = np.isfinite(budget)
        room = np.maximum(MARGIN * budget[finite], 1e-3)
        broken = np.maximum(self.cost[:, finite] / room - 1, 0).sum(axis=1)
        # a channel that rounding touches counts as kept
        broken = np.where(broken < 1e-6, 0.0, np.nan_to_num(broken, nan=np.inf))
        return np.lexsort((-np.nan_to_num(self.money, nan=-np.inf), broken))


def play_candidates(sim: Sim, shape: ClockPlan, values: np.ndarray, draws: Draw, keys: Array) -> Played:
    """Play each candidate (N, size) on every drawn episode."""
    dtype = sim.spaces()[1].low.dtype  # type: ignore[union-attr]
    money, cost = mean_of_days(sim, shape, jnp.asarray(np.asarray(values, dtype)), draws, keys)
    return Played(np.asarray(money, np.float64), np.asarray(cost, np.float64))


@jax.jit(static_argnums=1)
def mean_of_days(sim: Sim, shape: ClockPlan, values: Array, draws: Draw, keys: Array) -> tuple[Array, Array]:
    """Mean money (N,) and costs (N, C) of candidates (N, size) over drawn episodes (B,); gradients flow through it."""
    per_day = steps_per_day(sim)

    def one(candidate: Array, drawn: Draw, key: Array) -> tuple[Array, Array]:
        actions = jnp.clip(shape.actions(candidate, sim.spec.horizon, per_day), -1, 1)
        totals = run_episode(sim, plan_act, PlanCarry(jnp.zeros((), jnp.int32), actions), key, drawn)
        return totals.total, totals.cost

    on_days = jax.vmap(one, (None, 0, 0))
    money, cost = jax.vmap(on_days, (0, None, None))(values, draws, keys)
    return jnp.mean(money, axis=1), jnp.mean(cost, axis=1)


class Training(NamedTuple):
    """Days that candidates are compared on: drawn episodes, their keys, and what each cost channel may reach (C,)."""

    draws: Draw
    keys: Array
    room: np.ndarray


def _training(sim: Sim, count: int, seed: int) -> Training:
    draws = spread_starts(sim, count)
    rule = evaluate_baseline(sim, RULE, draws=draws, seed=seed).mean_costs_by_constraint
    keys = episode_keys(seed, draws.load_row.shape[0])
    return Training(draws, keys, widened(np.asarray(sim.spec.cost_budget), rule, sim.spec.cost_names))


def widened(budget: np.ndarray, rule: Mapping[str, float], names: Sequence[str]) -> np.ndarray:
    """Budgets (C,), or what the rule reaches where it is more: days on which nothing keeps them still rank by money.

    rule:   mean cost of each channel that has a budget
    names:  of all channels (C,)
    """
    reached = np.array([rule.get(name, 0.0) for name in names])
    return np.where(reached > budget, reached / MARGIN, budget)


@dataclass
class Search:
    """State of a cross-entropy search, all that it needs to go on.

    kind: of shape;  generation: that comes next;  mean, spread: (size,) of the candidates;  best: (CHECKED, size)
    """

    kind: str
    generation: int
    mean: np.ndarray
    spread: np.ndarray
    best: np.ndarray

    def save(self, path: Path, room: np.ndarray) -> None:
        """Write the state, and beside which budgets (C,) its candidates were ordered."""
        fields = {name: np.asarray(value).tolist() for name, value in (vars(self) | {"room": room}).items()}
        write_text(path, json.dumps(fields))


def start_search(kind: str, size: int, constant: np.ndarray | None = None) -> Search:
    """A search before its first generation: around the best constant, else every action equally far from both ends."""
    if constant is None:
        return Search(kind, 0, np.zeros(size), np.full(size, SPREAD), np.zeros((CHECKED, size)))
    mean = np.tile(constant, size // len(constant))
    return Search(kind, 0, mean, np.full(size, SPREAD / 2), np.tile(mean, (CHECKED, 1)))


def load_search(path: Path, room: np.ndarray) -> Search:
    """A search as `Search.save` left it; raises ValueError where it was begun beside other budgets (C,)."""
    fields = read_json(path, SettingsError, "Delete it, and the search begins anew.")
    before = np.asarray(fields.get("room", ()), np.float64)
    if before.shape != room.shape or not np.allclose(before, room, rtol=1e-5, atol=0):
        raise ValueError(
            f"{path} holds a search whose candidates could reach {before.tolist()} in the cost channels, which is "
            f"{room.tolist()} now; delete the file, or name another folder, to begin the search anew"
        )
    arrays = {name: np.asarray(fields[name]) for name in ("mean", "spread", "best")}
    return Search(fields["kind"], fields["generation"], **arrays)


def advance(
    search: Search, evaluate: Callable[[np.ndarray], Played], budget: np.ndarray, seed: int, count: int
) -> None:
    """One generation: draw `count` candidates, play them, and move towards the best of them."""
    random = np.random.default_rng([seed, search.generation, len(search.mean)])
    drawn = search.mean + search.spread * random.standard_normal((count, len(search.mean)))
    candidates = np.clip(drawn, -1, 1)
    candidates[0] = np.clip(search.mean, -1, 1)
    candidates[1] = search.best[0]
    order = evaluate(candidates).order(budget)
    elite = candidates[order[: count // ELITE]]
    search.best = candidates[order[:CHECKED]]
    search.mean = elite.mean(axis=0)
    search.spread = np.maximum(KEPT * search.spread + (1 - KEPT) * elite.std(axis=0), LEAST_SPREAD)
    search.generation += 1


def fit_trivial(
    task_id: str,
    *,
    version: int | None = None,
    seed: int = SEED,
    folder: Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Any]:
    """Search for the best constant and the best plan by the clock of a task, on its days of training.

    version:   of the task; None takes that of `make`
    folder:    where the state of the search is kept after each generation, and found again; None keeps none
    progress:  called with the kind of plan, generations done, and all of them
    """
    sim = make(task_id, version=version, split="train")
    days = min(max(STEPS // sim.spec.horizon, LEAST_DAYS), MOST_DAYS)
    few, more = (_training(sim, count, seed) for count in (days, FEWER * days))
    finals: list[tuple[str, ClockPlan, np.ndarray]] = []
    played: list[tuple[float, np.ndarray]] = []
    for kind, shape in shapes(sim).items():
        state = folder / f"{task_id}_v{sim.spec.version}_{kind}.json" if folder else None
        constant = finals[0][2] if finals else None
        search = load_search(state, few.room) if state and state.is_file() else start_search(kind, shape.size, constant)
        total = GENERATIONS[kind] + REFINED
        while search.generation < total:
            coarse = search.generation < GENERATIONS[kind]
            count = POPULATION if coarse else POPULATION // FEWER
            on = few if coarse else more
            play = partial(play_candidates, sim, shape, draws=on.draws, keys=on.keys)
            advance(search, play, on.room, seed, count)
            if state:
                search.save(state, few.room)
            if progress:
                progress(kind, search.generation, total)
        rounded = search.best.round(DIGITS)
        found = play_candidates(sim, shape, rounded, more.draws, more.keys)
        first = found.order(more.room)[0]
        finals.append((kind, shape, rounded[first]))
        played.append((float(found.money[first]), found.cost[first]))
    chosen = Played(*(np.stack(part) for part in zip(*played, strict=True))).order(more.room)[0]
    kind, shape, values = finals[chosen]
    return {
        "kind": kind,
        "blocks": shape.blocks,
        "group": [list(row) for row in shape.group],
        "values": [float(x) + 0.0 for x in values],
        "train": {name[0]: round(float(money), 6) for name, (money, _) in zip(finals, played, strict=True)},
        "train_costs": {
            name: round(float(x), 6) for name, x in zip(sim.spec.cost_names, played[chosen][1], strict=True)
        },
        "evaluations": sum(POPULATION * count + POPULATION // FEWER * REFINED for count in GENERATIONS.values()),
        "days": days,
        "seed": seed,
    }


def write_trivial(records: dict[str, dict[str, Any]], version: int | None = None) -> None:
    """Merge task -> record into the shipped file at a version of the tasks; None takes that of `make`."""
    table = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}
    for task_id, record in records.items():
        table.setdefault(task_id, {})[version_key(task_id, version)] = record
    write_text(FILE, _readable(table))


def _readable(table: dict[str, Any]) -> str:
    """JSON with a line for each entry of a record, so that a change shows as one line."""
    parts = []
    for task, versions in sorted(table.items()):
        records = []
        for version, record in sorted(versions.items()):
            lines = ",\n".join(f"   {json.dumps(name)}: {json.dumps(record[name])}" for name in sorted(record))
            records.append(f"  {json.dumps(version)}: {{\n{lines}\n  }}")
        parts.append(f" {json.dumps(task)}: {{\n" + ",\n".join(records) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit the trivial policies of tasks; with --write, store them in the shipped file."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=main.__doc__)
    parser.add_argument("task", nargs="+", help="task ids")
    parser.add_argument("--version", type=int, help="of the tasks; default: that of make")
    parser.add_argument("--write", action="store_true", help=f"store in {FILE.name}")
    parser.add_argument("--state", type=Path, help="folder that keeps the search after each generation, to resume from")
    chosen = parser.parse_args(arguments)
    if chosen.state:
        chosen.state.mkdir(parents=True, exist_ok=True)
    print("\t".join(("task", "kind", "train", "costs")))
    for task_id in chosen.task:
        record = fit_trivial(task_id, version=chosen.version, folder=chosen.state, progress=show_progress)
        costs = listing(f"{name}={value:g}" for name, value in record["train_costs"].items())
        print("\t".join((task_id, record["kind"], f"{record['train'][record['kind']]:.4f}", costs)), flush=True)
        if chosen.write:
            write_trivial({task_id: record}, chosen.version)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
