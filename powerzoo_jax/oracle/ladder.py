"""Ladder of the reference policies of tasks, as tab-separated values: `python -m powerzoo_jax.oracle.ladder TASK ...`

Random, the rule, the best policy that looks at nothing, the causal planner, the oracle and the best feasible plans on
the same episodes: mean returns, their share of the way from the rule to the oracle, and their gain, the share of the
way from the rule to the best, of policies that keep every budget. The best has the bound that no policy within the
budgets exceeds, and the gap (bound - best) / (best - rule).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from powerzoo_jax.base.errors import listing
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.oracle.baselines import evaluate_baseline
from powerzoo_jax.oracle.best import blind_policies
from powerzoo_jax.oracle.registry import get_baselines, load_best, load_table, version_key
from powerzoo_jax.tasks import make
from powerzoo_jax.tasks.score import SEED, Evaluation, all_starts, gain, seeded_starts

SPLITS = ("val", "test")
COLUMNS = (
    *("task", "split", "policy", "n", "mean_return", "share_of_rule_to_oracle", "gain", "feasible", "over_budget"),
    *("bound", "gap"),
)
BEST = "best"
KEPT = (1.001, 1e-6)  # a mean cost of so many budgets, and so much more, is kept: float32 sums


class Rung(NamedTuple):
    """One policy on one split.

    gain:         None where it is not feasible, or no best is known
    over_budget:  channels whose mean cost exceeds the budget
    bound, gap:   of the best alone
    """

    task: str
    split: str
    policy: str
    n: int
    mean_return: float
    share: float
    feasible: bool
    over_budget: str
    gain: float | None = None
    bound: float | None = None
    gap: float | None = None

    def line(self) -> str:
        """The row of the table."""
        words = ("yes" if self.feasible else "no", self.over_budget or "-")
        numbers = (f"{self.mean_return:.4f}", f"{self.share:.4f}", _shown(self.gain))
        ends = (_shown(self.bound), _shown(self.gap))
        return "\t".join((self.task, self.split, self.policy, str(self.n), *numbers, *words, *ends))


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{round(value, 4) + 0.0:.4f}"


def climb(
    task_id: str, split: str, *, version: int | None = None, n_episodes: int | None = None, recorded: bool = True
) -> list[Rung]:
    """Evaluate the policies of a task on one set of episodes.

    version:     of the task; None takes that of `make`
    n_episodes:  None plays the episodes of the shipped reference, or every start once; else as many seeded ones
    recorded:    take the oracle's return from that reference, for its plans are dear. It is computed in float64, where
                 keys draw other trips and jobs. False plans and plays it here, on the very episodes of the others
    """
    sim = make(task_id, version=version, split=split)
    table = load_table().get(task_id, {}).get(version_key(task_id, version), {})
    shipped = table.get(split) if recorded and n_episodes is None else None
    draws = all_starts(sim)
    if n_episodes is None and shipped and shipped["n"] != draws.load_row.shape[0]:
        n_episodes = shipped["n"]  # a record of seeded episodes
    if n_episodes is not None:
        draws = seeded_starts(sim, n_episodes, SEED)
    count = draws.load_row.shape[0]
    found = {name: evaluate_baseline(sim, name, draws=draws) for name in _names(sim)}
    money = {name: record.mean_reward for name, record in found.items()}
    over = {name: over_budget(record) for name, record in found.items()}
    if shipped is None:
        best = evaluate_baseline(sim, "oracle", draws=draws)
        money["oracle"], over["oracle"] = best.mean_reward, over_budget(best)
    else:
        money["oracle"], over["oracle"] = shipped["oracle"], "" if shipped["feasible"]["oracle"] else "recorded"
    known = _best(sim, found["rule"].episodes)
    if known:
        money[BEST], over[BEST] = known["best"], "" if known["feasible"]["best"] else "recorded"
    span = money["oracle"] - money["rule"]
    rungs = []
    for name, value in money.items():
        ends = {"bound": known["bound"], "gap": known["gap"]} if known and name == BEST else {}
        earned = gain(value, known["rule"], known["best"], feasible=not over[name]) if known else None
        share = (value - money["rule"]) / span
        rungs.append(Rung(task_id, split, name, count, value, share, not over[name], over[name], earned, **ends))
    return rungs


def _best(sim: Sim, episodes: str) -> dict[str, Any] | None:
    """The shipped best of a task, where there is one that was measured on these episodes."""
    key = version_key(sim.spec.id, sim.spec.version)
    record = load_best().get(sim.spec.id, {}).get(key, {}).get(sim.spec.split)
    return record if record and record["episodes"] == episodes else None


def over_budget(record: Evaluation) -> str:
    """Channels whose mean over the episodes exceeds the budget, beyond rounding."""
    budgets = {name: budget for name, budget in record.cost_thresholds.items() if budget is not None}
    costs = record.mean_costs_by_constraint
    return listing(name for name, budget in budgets.items() if not costs[name] <= KEPT[0] * budget + KEPT[1])


def _names(sim: Sim) -> Iterator[str]:
    yield "random"
    yield "rule"
    safe = get_baselines(sim.spec.id, sim.spec.version).safe
    if safe != "rule":
        yield safe
    yield from blind_policies(sim)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the ladder of tasks; with --out, write it to a file as well."""
    parser = argparse.ArgumentParser(prog="python -m powerzoo_jax.oracle.ladder", description=main.__doc__)
    parser.add_argument("task", nargs="+", help="task ids")
    parser.add_argument("--version", type=int, help="of the tasks; default: that of make")
    parser.add_argument("--split", action="append", help=f"repeatable; default: {', '.join(SPLITS)}")
    parser.add_argument("--episodes", type=int, help="seeded episodes; default: every start of the split once")
    parser.add_argument("--live", action="store_true", help="plan the oracle here rather than read its record")
    parser.add_argument("--out", type=Path, help="file that the rows of these tasks are replaced in")
    chosen = parser.parse_args(arguments)
    print("\t".join(COLUMNS))
    for task_id in chosen.task:
        for split in chosen.split or SPLITS:
            rungs = climb(task_id, split, version=chosen.version, n_episodes=chosen.episodes, recorded=not chosen.live)
            lines = [rung.line() for rung in rungs]
            print("\n".join(lines), flush=True)
            if chosen.out:
                replace_rows(chosen.out, task_id, split, lines)
    return 0


def replace_rows(path: Path, task_id: str, split: str, lines: Sequence[str]) -> None:
    """Put the rows of a task and split in the place of former ones, in the order of tasks and splits."""
    former = path.read_text(encoding="utf-8").splitlines()[1:] if path.is_file() else []
    kept = [line for line in former if line.split("\t")[:2] != [task_id, split]]
    rows = sorted([*kept, *lines], key=lambda line: line.split("\t")[:2])
    path.write_text("\n".join(["\t".join(COLUMNS), *rows]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
