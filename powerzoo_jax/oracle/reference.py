"""Compute the reference returns of a task, and keep the shipped table: `python -m powerzoo_jax.oracle.reference`."""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.oracle.baselines import BASELINES, evaluate_baseline
from powerzoo_jax.oracle.registry import FILE, get_baselines, list_baselines, version_key
from powerzoo_jax.tasks import make
from powerzoo_jax.tasks.score import (
    SEED,
    Evaluation,
    all_starts,
    episode_keys,
    evaluate,
    normalized_score,
    seeded_starts,
)

REPEATS = 20  # of the random policy: the standard error of its mean is then below 1 % of the span to the oracle
DIGITS = 6  # of the record
EXACT = 1e-9  # of a bound in float64: what two orders of the same sums may differ by
COLUMNS = (*BASELINES, "bound", "gap", "score_of_rule")


def reference(
    task_id: str,
    split: str = "test",
    *,
    version: int | None = None,
    n_episodes: int | None = None,
    seed: int = SEED,
    repeats: int = REPEATS,
    date: str | None = None,
    **overrides: Any,
) -> dict[str, Any]:
    """Mean returns of the reference policies on a split, all executed in the environment, in float64.

    version:     of the task; None takes that of `make`
    n_episodes:  None plays every eligible start once; else seeds seed .. seed + n_episodes - 1
    repeats:     plays of the random policy on each of these episodes
    date:        ISO date of the record; None takes today
    overrides:   task keywords, as for `make`

    Returns random, oracle and every rule of the task [unit of the reward]; bound (no policy returns more),
    kept_bound (no policy that breaks limits as little as the oracle returns more), gap (kept_bound less the planned
    return);
    score_of_rule, rule_share_of_oracle; standard errors of the paired differences, and the share of episodes in which
    they are positive (a return with a heavy tail has no use for a standard error); per-channel mean costs and
    violation rates; feasible; episodes, their fingerprint; n, repeats, seeds, date, data hashes and library version.

    Raises SolverError when a policy returns more than the bound on any episode: the bound would be wrong.
    """
    # in float32 the oracle could round above its own bound, and later digits would differ between machines
    with jax.enable_x64(True):
        sim = make(task_id, version=version, split=split, dtype="float64", **overrides)
        return _measure(sim, n_episodes, seed, repeats, date)


def _measure(sim: Sim, n_episodes: int | None, seed: int, repeats: int, date: str | None) -> dict[str, Any]:
    draws = all_starts(sim) if n_episodes is None else seeded_starts(sim, n_episodes, seed)
    book, keys = get_baselines(sim.spec.id, sim.spec.version), episode_keys(seed, draws.load_row.shape[0])
    plan = book.foresee(sim, draws, keys)
    records = {name: evaluate_baseline(sim, name, draws=draws, seed=seed) for name in book.rules}
    records["random"] = evaluate_baseline(sim, "random", draws=_repeated(draws, repeats), seed=seed)
    records["oracle"] = evaluate(sim, plan.policy.act, draws=draws, seed=seed, carry=plan.policy.carry)
    # later plays of the random policy have keys of their own, which draw other jobs and trips
    same = {name: record.episode_rewards[: len(plan.bound)] for name, record in records.items()}
    check_bounds(same, plan.bound)
    means = {name: records[name].mean_reward for name in book.names}
    return rounded(
        {
            **means,
            "bound": float(np.mean(plan.bound)),
            "kept_bound": float(np.mean(plan.kept_bound)),
            "gap": float(np.mean(plan.kept_bound - plan.objective)),
            "score_of_rule": normalized_score(means["rule"], means["random"], means["oracle"]),
            "rule_share_of_oracle": means["rule"] / means["oracle"] if means["oracle"] else None,
            **_differences(records, repeats),
            **_facts(sim, records),
            **(book.facts(records) if book.facts else {}),
            "episodes": records["rule"].episodes,
            "n": len(plan.objective),
            "repeats": repeats,
            "seed": seed,
            "date": date or datetime.date.today().isoformat(),
        }
    )


def check_bounds(returns: Mapping[str, Sequence[float]], bound: np.ndarray) -> None:
    """Hold the returns of every policy against the bound (E,) of each episode; episodes repeat in order.

    Raises SolverError naming the policy and the episode that return more.
    """
    for name, values in returns.items():
        held = np.asarray(values, float).reshape(-1, len(bound))
        above = np.argwhere(held > bound + EXACT * np.maximum(np.abs(bound), 1))
        if above.size:
            play, episode = above[0]
            raise SolverError(
                f"{name} returns {held[play, episode]:.9g} on episode {episode}, above its bound {bound[episode]:.9g}. "
                "The bound is wrong: check the programme against the environment."
            )


def _differences(records: dict[str, Evaluation], repeats: int) -> dict[str, dict[str, float]]:
    """Between policies on the same episodes: standard errors of the means, and how often they are positive."""
    by_day = {name: np.asarray(record.episode_rewards) for name, record in records.items()}
    by_day["random"] = by_day["random"].reshape(repeats, -1).mean(axis=0)
    pairs = {"rule_over_random": ("rule", "random"), "oracle_over_rule": ("oracle", "rule")}
    gains = {name: by_day[high] - by_day[low] for name, (high, low) in pairs.items()}
    errors = {k: float(x.std(ddof=1) / np.sqrt(x.size)) if x.size > 1 else 0.0 for k, x in gains.items()}
    return {"standard_error": errors, "share_of_episodes": {k: float((x > 0).mean()) for k, x in gains.items()}}


def _facts(sim: Sim, records: dict[str, Evaluation]) -> dict[str, Any]:
    oracle = records["oracle"]
    return {
        "unit": "$ per episode" if set(sim.spec.term_weights) == {1.0} else "reward per episode",
        "horizon_hours": sim.spec.horizon * sim.spec.dt_hours,
        "mean_costs": {name: record.mean_costs_by_constraint for name, record in records.items()},
        "violation_rate": {name: record.cost_violation_rate_by_constraint for name, record in records.items()},
        "feasible": {name: record.feasible for name, record in records.items()},
        "min_voltage_pu": {name: record.metrics["min_voltage_pu"] for name, record in records.items()},
        "cycles": {name: record.metrics["cycles"] for name, record in records.items()},
        "dataset_hashes": oracle.dataset_hashes,
        "library_version": oracle.library_version,
    }


def _repeated(draws: Draw, repeats: int) -> Draw:
    tiled: Draw = jax.tree.map(lambda x: jnp.concatenate([x] * repeats), draws)
    return tiled


def rounded(value: Any, digits: int = DIGITS) -> Any:
    """Round every float: later digits differ between machines and mean nothing."""
    if isinstance(value, dict):
        return {key: rounded(item, digits) for key, item in value.items()}
    return (round(value, digits) + 0.0) if isinstance(value, float) else value


def write_table(records: dict[str, dict[str, dict[str, Any]]], version: int | None = None) -> None:
    """Merge task -> split -> record into the shipped table at a version of the tasks; None takes that of `make`."""
    table = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}
    for task_id, splits in records.items():
        table.setdefault(task_id, {}).setdefault(version_key(task_id, version), {}).update(splits)
    FILE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the reference returns of tasks and splits; with --write, store them in the shipped table."""
    parser = argparse.ArgumentParser(prog="python -m powerzoo_jax.oracle.reference", description=main.__doc__)
    parser.add_argument("task", nargs="*", default=list(list_baselines()), help="task ids (default: all)")
    parser.add_argument("--split", action="append", help="repeatable; default: all of the task")
    parser.add_argument("--episodes", type=int, help="seeded episodes; default: every start of the split once")
    parser.add_argument("--write", action="store_true", help=f"store each record in {FILE.name} as it comes")
    parser.add_argument("--version", type=int, help="of the tasks; default: that of make")
    chosen = parser.parse_args(arguments)
    print("\t".join(("task", "split", "n", *COLUMNS)))
    for task_id in chosen.task:
        for split in chosen.split or get_baselines(task_id, chosen.version).splits:
            record = reference(task_id, split, version=chosen.version, n_episodes=chosen.episodes)
            print("\t".join((task_id, split, str(record["n"]), *(f"{record[key]:.4f}" for key in COLUMNS))), flush=True)
            if chosen.write:
                write_table({task_id: {split: record}}, chosen.version)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
