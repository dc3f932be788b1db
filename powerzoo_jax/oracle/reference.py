"""Reference returns of tasks, best feasible plans and bounds: `python -m powerzoo_jax.oracle.reference`.

The best is what plans return that foresee everything and keep the same budgets on mean costs as learners have,
executed in the environment on the very episodes that learners play. With the rule of the task it ends the gain.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import SettingsError, SolverError
from powerzoo_jax.base.files.results import write_text
from powerzoo_jax.base.tree import take
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.oracle.baselines import CAUSAL, RANDOM, RULE, TRIVIAL, baseline_policy, evaluate_baseline
from powerzoo_jax.oracle.clock_plan import load_trivial
from powerzoo_jax.oracle.foresight import learn_plans
from powerzoo_jax.oracle.lagrangian import (
    BoundPlanner,
    FlooredPlanner,
    PlanPool,
    PricedPlan,
    PricedPlanner,
    Progress,
    ReachPlanner,
    Relaxation,
    StartedPlanner,
    choose_plans,
    dual_value,
    missing_room,
    search_prices,
)
from powerzoo_jax.oracle.linear_program import NoPointError
from powerzoo_jax.oracle.progress import show_progress
from powerzoo_jax.oracle.registry import (
    COMMAND,
    FILE,
    follow,
    get_priced,
    get_reference,
    has_causal,
    load_table,
    version_key,
)
from powerzoo_jax.tasks import make
from powerzoo_jax.tasks.score import (
    SEED,
    Evaluation,
    all_starts,
    episode_hash,
    episode_keys,
    evaluate,
    seeded_starts,
)

SPLITS = ("val", "test")
BEST = "best"
DIGITS = 8  # of the record: the gains of rule and best are 0 and 1 to 1e-6 where they differ by 0.1
ROUNDED_UP = 1e-6  # of the room that the plans need, so that the choice that needs it is found again
TIGHTENED = 5  # choices of plans at most, each with the room that executing the one before has shown to be missing
AROUND = (0.8, 1.25)  # of the prices searched on fewer episodes, that the others are planned at as well
ANEW = 2  # more rounds at most, at the prices of the best mixture of the plans that these give
COLUMNS = ("task", "split", "n", "rule", "best", "bound", "gap", "feasible", "prices", "CPU s")


def reference(
    task_id: str,
    split: str = "test",
    *,
    version: int | None = None,
    n_episodes: int | None = None,
    searched: int | None = None,
    seed: int = SEED,
    folder: Path | None = None,
    progress: Progress | None = None,
    **overrides: Any,
) -> dict[str, Any]:
    """Mean returns of the best feasible plans of a task, its rule and others on a split, and the bound on them.

    version:     of the task; None takes that of `make`
    n_episodes:  None plays as many episodes as the shipped record has, or every eligible start; as many as there are
                 starts play each once, other numbers the seeds seed .. seed + n_episodes - 1
    searched:    of these, how many the prices of the channels are searched on; None takes all
    folder:      where the plans are kept while they are made, and found again; None keeps none
    overrides:   task keywords, as for `make`

    Returns random, rule, best and bound [unit of the reward], and trivial and causal where the task has such a policy;
    gap = (bound - best) / (best - rule), None where the best is no better than the rule, or no choice of the plans
    known keeps the budgets and best is of those that break them least; bound_of_actions, a bound of
    what the actions of the task can reach, where the other is of more; prices of the limited channels
    [reward per unit], budgets of them and mean costs of every policy; which of the policies are feasible; the episodes'
    fingerprint, n, searched, seed, data hashes and library version.

    Example:
        record = reference("battery_arbitrage", "val", n_episodes=2)
    """
    sim = make(task_id, version=version, split=split, **overrides)
    draws = _episodes(sim, n_episodes, seed)
    n = draws.load_row.shape[0]
    played = {name: evaluate_baseline(sim, name, draws=draws, seed=seed) for name in _shown(sim)}
    anchor = played[RULE].mean_reward
    stem = f"{task_id}_v{sim.spec.version}_{split}"
    few, first = min(searched or n, n), []
    if few < n:
        part = folder / f"{stem}_{few}.npz" if folder else None
        _, found, _ = _search(sim, take(draws, np.arange(few)), seed, anchor, part, progress)
        first = [found.price, *(scale * found.price for scale in AROUND)] if found.price.any() else []
    whole = folder / f"{stem}.npz" if folder else None
    rounds = {"first": first, "rounds": 1 + len(first) + ANEW} if few < n else {}
    planner, found, pool = _search(sim, draws, seed, anchor, whole, progress, **rounds)
    best = play_best(sim, draws, seed, pool)
    for name in (RULE, *blind_policies(sim)):
        if played[name].feasible and (not best.feasible or played[name].mean_reward > best.mean_reward):
            # plans stand on grids and pieces; a policy without foresight may be better by as much, or keep budgets that
            # no choice of them keeps
            keys = episode_keys(seed, n)
            learn_plans(pool, sim, draws, keys, baseline_policy(sim, name, draws, keys))
            best = play_best(sim, draws, seed, pool)
    if isinstance(planner, BoundPlanner):
        found = _closest(sim, planner, found, n, progress)
    return _record(sim, played | {BEST: best}, found, few) | _of_actions(sim, planner, found.price, n)


def replayed(task_id: str, split: str = "test", *, version: int | None = None) -> dict[str, Any]:
    """The shipped record of a task with the policies without foresight played anew; plans and bound stay.

    For policies that came, or changed, after the plans were made. Arguments and errors as in `get_reference`;
    ValueError too where the episodes are no longer those of the record, or the rule returns something else on them.
    """
    record = get_reference(task_id, split, version=version)
    sim = make(task_id, version=version, split=split)
    draws = recorded_starts(sim, record)
    played = {name: evaluate_baseline(sim, name, draws=draws, seed=record["seed"]) for name in _shown(sim)}
    returned = rounded(played[RULE].mean_reward, DIGITS)
    if not np.isclose(returned, record[RULE], rtol=1e-5, atol=1e-6):
        raise ValueError(f"{task_id}: the rule returns {returned}, not {record[RULE]} as recorded. Record it anew.")
    blind = {name: found.mean_reward for name, found in played.items() if name != RULE}
    kept = {name: {BEST: record[name][BEST]} for name in ("feasible", "mean_costs")}
    told = {
        "feasible": kept["feasible"] | {name: found.feasible for name, found in played.items()},
        "mean_costs": kept["mean_costs"] | {name: _limited_costs(found) for name, found in played.items()},
    }
    return record | rounded({**blind, **told}, DIGITS)


def rebounded(
    task_id: str, split: str = "test", *, version: int | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """The shipped record of a task with the bound computed anew, at its prices or those that its planner begins with.

    For bounds that became closer after the plans were made; plans and policies stay. Arguments and errors as in
    `replayed`; ValueError too for a task whose planner has no bound but that of a plan.
    """
    record = get_reference(task_id, split, version=version)
    sim = make(task_id, version=version, split=split)
    draws, n = recorded_starts(sim, record), int(record["n"])
    planner = get_priced(task_id)(sim, draws, episode_keys(record["seed"], n))
    if not isinstance(planner, BoundPlanner):
        raise ValueError(f"{task_id}: its planner bounds what it plans only. Record it anew.")
    price = np.array([record["prices"].get(channel, 0.0) for channel in sim.spec.cost_names])
    if isinstance(planner, FlooredPlanner):
        price = np.maximum(price, planner.least_price)
    prices = [price, *(planner.first_prices if isinstance(planner, StartedPlanner) else ())]
    budget = np.asarray(sim.spec.cost_budget)
    bounds = [dual_value(each, _bounds(planner, each, n, progress), budget) for each in prices]
    price, bound = prices[int(np.argmin(bounds))], min(bounds)
    gap = None if record["gap"] is None else (bound - record[BEST]) / (record[BEST] - record[RULE])
    told = {
        channel: float(x) for channel, x in zip(sim.spec.cost_names, price, strict=True) if channel in record["prices"]
    }
    closer = rounded({"bound": bound, "gap": gap, "prices": told}, DIGITS)
    return record | closer | _of_actions(sim, planner, price, n)


def _of_actions(sim: Sim, planner: PricedPlanner, price: np.ndarray, n: int) -> dict[str, float]:
    """Bound of what the actions of the task can reach at prices (C,), of planners that have one."""
    if not isinstance(planner, ReachPlanner):
        return {}
    each = np.array([planner.reached_bound(episode, price) for episode in range(n)])
    found: dict[str, float] = rounded({"bound_of_actions": dual_value(price, each, np.asarray(sim.spec.cost_budget))})
    return found


def _closest(sim: Sim, planner: BoundPlanner, found: Relaxation, n: int, progress: Progress | None) -> Relaxation:
    """The least bound by the planner's own, at the prices of plans and of their best mixture, and half way."""
    budget = np.asarray(sim.spec.cost_budget)
    other = np.maximum(found.support, planner.least_price) if isinstance(planner, FlooredPlanner) else found.support
    for price in np.unique([found.price, other, (found.price + other) / 2], axis=0):
        bound = dual_value(price, _bounds(planner, price, n, progress), budget)
        if bound < found.bound:
            found = found._replace(price=price, bound=bound)
    return found


def _bounds(planner: BoundPlanner, price: np.ndarray, n: int, progress: Progress | None) -> np.ndarray:
    """Bounds of n episodes at prices (C,) of the cost channels, (n,)."""
    each = np.zeros(n)
    for episode in range(n):
        each[episode] = planner.bound(episode, price)
        if progress:
            progress("bounds", episode + 1, n)
    return each


def recorded_starts(sim: Sim, record: Mapping[str, Any]) -> Draw:
    """Episodes of a record.

    Raises SettingsError naming the task, the split and both fingerprints where neither all starts nor seeded ones are
    these.
    """
    n, seed = int(record["n"]), int(record["seed"])
    for draws in (all_starts(sim), seeded_starts(sim, n, seed)):
        found = episode_hash(draws, seed)
        if found == record["episodes"]:
            return draws
    raise SettingsError(
        f"the {n} episodes of {sim.spec.id!r}, split {sim.spec.split!r}, are {found}, and the reference was measured "
        f"on {record['episodes']}: no score compares them. Compute the reference again: {COMMAND} {sim.spec.id} "
        f"--split {sim.spec.split} --write"
    )


def _shown(sim: Sim) -> tuple[str, ...]:
    return (RANDOM, RULE, *blind_policies(sim))


def blind_policies(sim: Sim) -> tuple[str, ...]:
    """Policies without foresight that are shown beside rule and best, of those that the task has."""
    trivial = version_key(sim.spec.id, sim.spec.version) in load_trivial().get(sim.spec.id, {})
    causal = has_causal(sim.spec.id)
    return (*((TRIVIAL,) if trivial else ()), *((CAUSAL,) if causal else ()))


def _episodes(sim: Sim, n_episodes: int | None, seed: int) -> Draw:
    draws = all_starts(sim)
    if n_episodes is None:
        shipped = load_table().get(sim.spec.id, {}).get(f"v{sim.spec.version}", {}).get(sim.spec.split)
        n_episodes = shipped["n"] if shipped else None
    return draws if n_episodes in (None, draws.load_row.shape[0]) else seeded_starts(sim, n_episodes, seed)


def _search(
    sim: Sim, draws: Draw, seed: int, anchor: float, path: Path | None, progress: Progress | None, **rounds: Any
) -> tuple[PricedPlanner, Relaxation, PlanPool]:
    n = draws.load_row.shape[0]
    planner = get_priced(sim.spec.id)(sim, draws, episode_keys(seed, n))
    pool = PlanPool.load(path) if path and path.is_file() else PlanPool()
    budget = np.asarray(sim.spec.cost_budget)
    found = search_prices(planner, n, budget, pool=pool, anchor=anchor, path=path, progress=progress, **rounds)
    return planner, found, pool


def play_best(sim: Sim, draws: Draw, seed: int, pool: PlanPool) -> Evaluation:
    """Execute the best choice of plans that keeps the budgets; where none does, the best that breaks them least.

    Where rounding, or what a plan does not see, breaks a budget that the plans keep, the choice is made again with as
    much less room. Raises SolverError where that does not help.
    """
    budget, n = np.asarray(sim.spec.cost_budget), draws.load_row.shape[0]
    try:
        plans = choose_plans(pool, n, budget)
    except NoPointError:
        enough = (budget + missing_room(pool, n, budget)) * (1 + ROUNDED_UP)
        return execute(sim, draws, seed, choose_plans(pool, n, enough))
    room = budget.copy()
    for _ in range(TIGHTENED):
        record = execute(sim, draws, seed, plans)
        if record.feasible:
            return record
        played = np.array(list(record.mean_costs_by_constraint.values()))
        room = np.maximum(room - np.maximum(played - budget, 0.0), 0.0)
        plans = choose_plans(pool, n, room)
    raise SolverError(f"{sim.spec.id}: executed, the plans break {record.mean_costs_by_constraint} of {budget}.")


def execute(sim: Sim, draws: Draw, seed: int, plans: Sequence[PricedPlan]) -> Evaluation:
    """Play one plan on each drawn episode."""
    policy = follow(sim, np.stack([plan.action for plan in plans]))
    return evaluate(sim, policy.act, draws=draws, seed=seed, carry=policy.carry)


def _record(sim: Sim, played: Mapping[str, Evaluation], found: Relaxation, searched: int) -> dict[str, Any]:
    rule, best = played[RULE], played[BEST]
    limited = dict.fromkeys(rule.constraint_names)
    room = best.mean_reward - rule.mean_reward
    return rounded(
        {
            **{name: record.mean_reward for name, record in played.items()},
            "bound": found.bound,
            "gap": (found.bound - best.mean_reward) / room if best.feasible and room > 0 else None,
            "prices": {c: float(x) for c, x in zip(sim.spec.cost_names, found.price, strict=True) if c in limited},
            "mean_costs": {name: _limited_costs(record) for name, record in played.items()},
            "budgets": {c: best.cost_thresholds[c] for c in limited},
            "feasible": {name: record.feasible for name, record in played.items()},
            "episodes": best.episodes,
            "n": best.n_episodes,
            "searched": searched,
            "seed": best.seeds[0],
            "dataset_hashes": best.dataset_hashes,
            "library_version": best.library_version,
        },
        DIGITS,
    )


def _limited_costs(record: Evaluation) -> dict[str, float]:
    """Mean costs of the channels that have a budget."""
    return {name: record.mean_costs_by_constraint[name] for name in record.constraint_names}


def rounded(value: Any, digits: int = DIGITS) -> Any:
    """Round every float: later digits differ between machines and mean nothing."""
    if isinstance(value, dict):
        return {k: rounded(v, digits) for k, v in value.items()}
    return (round(value, digits) + 0.0) if isinstance(value, float) else value


def write_record(task_id: str, split: str, record: dict[str, Any], version: int | None = None) -> None:
    """Put a record into the shipped table at a version of the task; None takes that of `make`."""
    table = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}
    table.setdefault(task_id, {}).setdefault(version_key(task_id, version), {})[split] = record
    write_text(FILE, json.dumps(table, indent=1, sort_keys=True) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the best feasible returns of tasks and their bounds; with --write, store them in the shipped table."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=main.__doc__)
    parser.add_argument("task", nargs="+", help="task ids")
    parser.add_argument("--version", type=int, help="of the tasks; default: that of make")
    parser.add_argument("--split", action="append", help=f"repeatable; default: {', '.join(SPLITS)}")
    parser.add_argument("--episodes", type=int, help="seeded episodes; default: those of the shipped record")
    parser.add_argument(
        "--searched", type=int, help="episodes that prices are searched on; default: all that are played"
    )
    parser.add_argument("--state", type=Path, help="folder that keeps the plans while they are made, to resume from")
    parser.add_argument(
        "--policies", action="store_true", help="of a stored record, only play the policies without foresight anew"
    )
    parser.add_argument("--bounds", action="store_true", help="of a stored record, only compute the bound anew")
    parser.add_argument("--write", action="store_true", help=f"store each record in {FILE.name} as it comes")
    chosen = parser.parse_args(arguments)
    if chosen.state:
        chosen.state.mkdir(parents=True, exist_ok=True)
    print("\t".join(COLUMNS))
    for task_id in chosen.task:
        for split in chosen.split or SPLITS:
            start = time.process_time()
            record = _made(chosen, task_id, split)
            print(f"{_line(task_id, split, record)}\t{time.process_time() - start:.1f}", flush=True)
            if chosen.write:
                write_record(task_id, split, record, chosen.version)
    return 0


def _made(chosen: argparse.Namespace, task_id: str, split: str) -> dict[str, Any]:
    """The record that the arguments of the command ask for."""
    if chosen.policies:
        return replayed(task_id, split, version=chosen.version)
    if chosen.bounds:
        return rebounded(task_id, split, version=chosen.version, progress=show_progress)
    return reference(
        task_id,
        split,
        version=chosen.version,
        n_episodes=chosen.episodes,
        searched=chosen.searched,
        folder=chosen.state,
        progress=show_progress,
    )


def _line(task_id: str, split: str, record: dict[str, Any]) -> str:
    """The row of a record, but for the processor time that it took."""
    money = (f"{record[name]:.4f}" for name in (RULE, BEST, "bound"))
    gap = "-" if record["gap"] is None else f"{record['gap']:.4f}"
    prices = ", ".join(f"{name}={price:g}" for name, price in record["prices"].items())
    feasible = "yes" if record["feasible"]["best"] else "no"
    return "\t".join((task_id, split, str(record["n"]), *money, gap, feasible, prices))


if __name__ == "__main__":
    raise SystemExit(main())
