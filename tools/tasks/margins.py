"""Margins of the rules of tasks below their budgets: `python -m tools.tasks.margins TASK ...`

A task needs a rule that an operator could follow and that keeps every budget on val and test with a tenth to spare,
a budget of zero up to a rounding; and a policy that breaks one, or the budget would be idle. On the headline split,
which differs from training on purpose, nothing is asked of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import jax
import numpy as np

from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.oracle.baselines import evaluate_baseline
from powerzoo_jax.oracle.registry import get_baselines
from powerzoo_jax.tasks import list_tasks, make
from powerzoo_jax.tasks.score import Evaluation, all_starts

SPLITS = ("val", "test")
MARGIN = 0.1  # of a budget, that the rule leaves unused
ZERO = 1e-3  # mean cost that counts as keeping a budget of zero
COLUMNS = (
    *("task", "version", "split", "policy", "n", "mean_return"),
    *("channel", "budget", "mean_cost", "days_with_cost", "margin", "kept"),
)
RESULTS = Path("benchmarks/results/margins.tsv")


class Margin(NamedTuple):
    """One channel of a policy on one split. days: share of episodes in which the channel costs anything."""

    task: str
    version: int
    split: str
    policy: str
    n: int
    mean_return: float
    channel: str
    budget: float
    cost: float
    days: float

    @property
    def kept(self) -> bool:
        return self.cost <= ((1 - MARGIN) * self.budget if self.budget > 0 else ZERO)

    def line(self) -> str:
        """The row of the table; a budget of zero has no margin relative to it."""
        share = f"{1 - self.cost / self.budget:.3f}" if self.budget > 0 else "-"
        numbers = (self.n, f"{self.mean_return:.4f}", self.channel, f"{self.budget:.5g}", f"{self.cost:.5g}")
        return "\t".join(map(str, (*self[:4], *numbers, f"{self.days:.3f}", share, "yes" if self.kept else "no")))


def some_starts(sim: Sim, n_episodes: int | None) -> Draw:
    """Every start of a split, or n_episodes of them at equal distances in the calendar."""
    draws = all_starts(sim)
    count = draws.load_row.shape[0]
    if n_episodes is None or n_episodes >= count:
        return draws
    at = np.linspace(0, count - 1, n_episodes).round().astype(int)
    return jax.tree.map(lambda x: x[at], draws)


def examine(sim: Sim, policies: Sequence[str], n_episodes: int | None) -> Iterator[Margin]:
    """Play policies on the same episodes: a row for each channel that has a budget."""
    draws = some_starts(sim, n_episodes)
    for name in policies:
        record = evaluate_baseline(sim, name, draws=draws)
        yield from _rows(sim, name, record)


def _rows(sim: Sim, name: str, record: Evaluation) -> Iterator[Margin]:
    spec = sim.spec
    for channel, budget in record.cost_thresholds.items():
        if budget is None:
            continue
        cost, each = record.mean_costs_by_constraint[channel], record.episode_costs_by_constraint[channel]
        days = float(np.mean(np.asarray(each) > ZERO * max(budget, 1.0)))
        head = (spec.id, spec.version, spec.split, name, record.n_episodes, record.mean_reward)
        yield Margin(*head, channel, budget, cost, days)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the margins of the rule and the costs of the violating policy; exit status 1 where a rule lacks margin."""
    parser = argparse.ArgumentParser(prog="python -m tools.tasks.margins", description=main.__doc__)
    parser.add_argument("task", nargs="*", default=list(list_tasks()), help="task ids (default: all)")
    parser.add_argument("--version", type=int, help="of the tasks; default: that of make")
    parser.add_argument("--split", action="append", help=f"repeatable; default: {', '.join(SPLITS)}, the headline")
    parser.add_argument("--policy", action="append", help="repeatable; default: the rule and the violating policy")
    parser.add_argument("--episodes", type=int, help="starts at equal distances; default: every start once")
    parser.add_argument("--out", type=Path, help=f"file that the rows of these tasks are replaced in, as {RESULTS}")
    chosen = parser.parse_args(arguments)
    print("\t".join(COLUMNS))
    failed = False
    for task_id in chosen.task:
        baselines = get_baselines(task_id)
        for split in chosen.split or (*SPLITS, *filter(None, [baselines.headline])):
            sim = make(task_id, version=chosen.version, split=split)
            policies = chosen.policy or ("rule", baselines.violating)
            rows = list(examine(sim, policies, chosen.episodes))
            print("\n".join(row.line() for row in rows), flush=True)
            failed |= split in SPLITS and any(not row.kept for row in rows if row.policy == "rule")
            if chosen.out:
                replace_rows(chosen.out, rows)
    return int(failed)


class Row(Protocol):
    """Row of a table whose first columns are task, version and split."""

    @property
    def task(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def split(self) -> str: ...

    def line(self) -> str: ...


def replace_rows(path: Path, rows: Sequence[Row], columns: Sequence[str] = COLUMNS) -> None:
    """Put rows in the place of former ones of the same task, version and split, in the order of these."""
    former = path.read_text(encoding="utf-8").splitlines()[1:] if path.is_file() else []
    ours = {(row.task, str(row.version), row.split) for row in rows}
    kept = [line for line in former if tuple(line.split("\t")[:3]) not in ours]
    lines = sorted([*kept, *(row.line() for row in rows)], key=lambda line: line.split("\t")[:3])
    path.write_text("\n".join(["\t".join(columns), *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
