"""Compute the reference returns of a task, and keep the shipped table: `python -m powerzoo_jax.oracle.reference`."""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.draw import Draw
from powerzoo_jax.oracle.policies import BASELINES, evaluate_baseline, evaluate_plans, solve_starts
from powerzoo_jax.oracle.table import FILE
from powerzoo_jax.tasks import get_spec, list_tasks, make
from powerzoo_jax.tasks.score import SEED, Evaluation, all_starts, normalized_score, seeded_starts

SPLITS = ("train", "val", "test", "price_stress")
REPEATS = 20  # of the random policy: the standard error of its mean is then below 1 % of the span to the oracle
DIGITS = 6  # of the record


def reference(
    task_id: str,
    split: str = "test",
    *,
    n_episodes: int | None = None,
    seed: int = SEED,
    repeats: int = REPEATS,
    date: str | None = None,
    **overrides: Any,
) -> dict[str, Any]:
    """Mean returns of the reference policies on a split, all executed in the environment, in float64.

    n_episodes:  None plays every eligible start once; else seeds seed .. seed + n_episodes - 1
    repeats:     plays of the random policy on each of these episodes
    date:        ISO date of the record; None takes today
    overrides:   task keywords, as for `make`

    Returns random, rule, no_control, oracle [unit of the reward]; bound (no plan earns more); gap (bound less the
    planned profit); score_of_rule, rule_share_of_oracle; per-channel mean costs; feasible; n, repeats, seeds, date,
    data hashes and library version.
    """
    # in float32 the oracle could round above its own bound, and later digits would differ between machines
    with jax.enable_x64(True):
        sim = make(task_id, split=split, dtype="float64", **overrides)
        return _measure(sim, n_episodes, seed, repeats, date)


def _measure(sim: Sim, n_episodes: int | None, seed: int, repeats: int, date: str | None) -> dict[str, Any]:
    draws = all_starts(sim) if n_episodes is None else seeded_starts(sim, n_episodes, seed)
    solutions = solve_starts(sim, draws)
    records = {name: evaluate_baseline(sim, name, draws=draws, seed=seed) for name in ("no_control", "rule")}
    records["random"] = evaluate_baseline(sim, "random", draws=_repeated(draws, repeats), seed=seed)
    records["oracle"] = evaluate_plans(sim, np.stack([s.plan_mw for s in solutions]), draws, seed=seed)
    bound = float(np.mean([s.bound for s in solutions]))
    gap = float(np.mean([s.gap for s in solutions]))
    means = {name: records[name].mean_reward for name in BASELINES}
    return _rounded(
        {
            **means,
            "bound": bound,
            "gap": gap,
            "score_of_rule": normalized_score(means["rule"], means["random"], means["oracle"]),
            "rule_share_of_oracle": means["rule"] / means["oracle"] if means["oracle"] else None,
            **_facts(sim, records),
            "n": len(solutions),
            "n_integer": sum(s.integer for s in solutions),
            "repeats": repeats,
            "seed": seed,
            "date": date or datetime.date.today().isoformat(),
        }
    )


def _facts(sim: Sim, records: dict[str, Evaluation]) -> dict[str, Any]:
    oracle = records["oracle"]
    return {
        "unit": "$ per episode",
        "horizon_hours": sim.spec.horizon * sim.spec.dt_hours,
        "mean_costs": {name: records[name].mean_costs_by_constraint for name in BASELINES},
        "feasible": {name: records[name].feasible for name in BASELINES},
        "min_voltage_pu": {name: records[name].metrics["min_voltage_pu"] for name in BASELINES},
        "cycles": {name: records[name].metrics["cycles"] for name in BASELINES},
        "dataset_hashes": oracle.dataset_hashes,
        "library_version": oracle.library_version,
    }


def _repeated(draws: Draw, repeats: int) -> Draw:
    tiled: Draw = jax.tree.map(lambda x: jnp.concatenate([x] * repeats), draws)
    return tiled


def _rounded(value: Any) -> Any:
    """Round every float: later digits differ between machines and mean nothing."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return (round(value, DIGITS) + 0.0) if isinstance(value, float) else value


def write_table(records: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Merge task -> split -> record into the shipped table at each task's registered version."""
    table = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}
    for task_id, splits in records.items():
        table.setdefault(task_id, {}).setdefault(f"v{get_spec(task_id).version}", {}).update(splits)
    FILE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the reference returns of tasks and splits; with --write, store them in the shipped table."""
    parser = argparse.ArgumentParser(prog="python -m powerzoo_jax.oracle.reference", description=main.__doc__)
    parser.add_argument("task", nargs="*", default=list(list_tasks()), help="task ids (default: all)")
    parser.add_argument("--split", action="append", help=f"repeatable; default {', '.join(SPLITS)}")
    parser.add_argument("--write", action="store_true", help=f"store in {FILE.name}")
    chosen = parser.parse_args(arguments)
    records: dict[str, dict[str, dict[str, Any]]] = {}
    print("\t".join(("task", "split", "n", *BASELINES, "bound", "rule/oracle", "score(rule)")))
    for task_id in chosen.task:
        for split in chosen.split or SPLITS:
            record = reference(task_id, split)
            records.setdefault(task_id, {})[split] = record
            keys = (*BASELINES, "bound", "rule_share_of_oracle", "score_of_rule")
            print("\t".join((task_id, split, str(record["n"]), *(f"{record[key]:.4f}" for key in keys))), flush=True)
    if chosen.write:
        write_table(records)
        print(f"wrote {FILE.name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
