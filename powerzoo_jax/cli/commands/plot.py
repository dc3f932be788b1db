"""`plot`: learning curves of runs, or the gains of a leaderboard, as a picture for a page or a paper."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from powerzoo_jax.base.errors import DataMissing, RunError, excerpt, unknown
from powerzoo_jax.base.textfile import MAX_TABLE_MB, read_text
from powerzoo_jax.cli.board import TEST, read_rows, result_on
from powerzoo_jax.cli.commands.leaderboard import DATA
from powerzoo_jax.cli.runs import LOG, REPAIR, VAL_LOG, Run, open_run
from powerzoo_jax.cli.selection import SPLIT
from powerzoo_jax.cli.table import STDOUT, working, write_json
from powerzoo_jax.oracle import evaluate_baseline, get_reference, list_baselines
from powerzoo_jax.plot import plot_gains, plot_learning_curves, save_figure
from powerzoo_jax.tasks import get_spec
from powerzoo_jax.tasks.score import gain

SHOWN = ("random", "rule", "causal", "best")  # references beside a curve
PLAYED = ("random", "rule")  # those of a task whose returns are not shipped: plans for all days would take long
RETURN = re.compile(r"^(?:(?P<point>.+) )?return(?:\.(?P<seed>\d+))?$")  # columns of a log
FOLDER = Path("results")


class Curve(NamedTuple):
    """Returns of one point of a run: (S, U) one row a seed, or their mean where the log holds no more; steps (U,)."""

    returns: np.ndarray
    steps: np.ndarray


class Scored(NamedTuple):
    """A row of a leaderboard that was scored on a split, and its name in a picture."""

    name: str
    row: dict[str, Any]
    known: dict[str, Any]
    seeds: Sequence[dict[str, Any]]


def run(options: argparse.Namespace) -> int:
    """Draw what was given: one leaderboard, or runs."""
    boards = [path for path in options.what if path.suffix == DATA]
    if boards and len(options.what) > 1:
        raise ValueError("plot draws one leaderboard, or runs. Give either.")
    if options.split is not None and not boards:
        raise ValueError("--split: a run shows how its return grew while it was trained. Leave it out.")
    if boards:
        figure, name = draw_gains(boards[0], options.split or TEST, options.title), "gains"
    else:
        figure, name = _curves(options.what, options.title), "curves"
    target = save_figure(figure, options.out or FOLDER / f"{name}.svg")
    if options.json:
        write_json({"picture": name, "file": str(target)}, STDOUT)
    else:
        print(f"{name}: {target}")
    return 0


def draw_gains(board: Path, split: str, title: str) -> Any:
    """Gains on the rule of every row of a leaderboard that was scored on the split; of the seeds that keep the budgets.

    A row whose rule breaks a budget there, or leaves nothing to gain, has no scale: it is named on standard error.
    """
    gains: dict[str, list[float] | None] = {}
    for each in _scored(board, split):
        rule, best = each.known["rule"], each.known["best"]
        if not each.known["feasible"]["rule"] or best <= rule:
            why = "leaves nothing to gain" if best <= rule else "breaks a budget"
            print(f"left out: {excerpt(each.name)}, whose rule {why} on the split {split!r}", file=sys.stderr)
            continue
        kept = [gain(seed["return"], rule, best) for seed in each.seeds if all(seed["kept"])]
        some = f", {len(kept)} of {len(each.seeds)} seeds" if 0 < len(kept) < len(each.seeds) else ""
        gains[each.name + some] = [value for value in kept if value is not None] or None
    if not gains:
        raise ValueError(f"{board} holds no gain on the split {split!r}: no rule there is a zero.")
    return plot_gains(gains, title=title)


def _scored(board: Path, split: str) -> list[Scored]:
    """Rows of a leaderboard that were played on the split beside references. Raises ValueError without any."""
    if not board.exists():
        raise DataMissing(f"{board} does not exist. `powerzoo-jax leaderboard` writes it beside its page.")
    rows = [row for row in read_rows(board) if "run" in row]
    several = len({row["task"] for row in rows}) > 1
    found = []
    for row in rows:
        result = result_on(row, split)
        if result is None or result.known is None:
            continue
        learner = row["run"]["config"]["algorithm"]
        name = f"{row['task']} ({learner})" if several else learner
        found.append(Scored(name, row, result.known, result.seeds))
    if not found:
        raise ValueError(f"{board} holds no gain on the split {split!r}. Train with `leaderboard --split {split}`.")
    return found


def _curves(folders: Sequence[Path], title: str) -> Any:
    """Learning curves of every point of every run, beside the references of their task on val.

    Curves are of val where all runs have looked at it (`select_every`), else of the days and actions of training.
    """
    runs = [open_run(folder) for folder in folders]
    tasks = {run.config.task for run in runs}
    if len(tasks) > 1:
        raise ValueError(f"runs of {' and '.join(sorted(tasks))}: their returns do not compare. Draw each task alone.")
    on_val = all((run.folder / VAL_LOG).is_file() for run in runs)
    several = len({run.config.algorithm for run in runs}) < len(runs)
    curves = {
        " ".join(filter(None, (run.folder.name if several else run.config.algorithm, point))): curve
        for run in runs
        for point, curve in _read_log(run, VAL_LOG if on_val else LOG).items()
    }
    money = set(get_spec(runs[0].config.task).term_weights) == {1.0}
    return plot_learning_curves(
        {name: curve.returns for name, curve in curves.items()},
        {name: curve.steps for name, curve in curves.items()},
        references={f"{name}{'' if on_val else ' on val'}": value for name, value in _references(runs[0]).items()},
        label=f"return of an episode, {SPLIT if on_val else 'in training'} [{'$' if money else '-'}]",
        title=title,
    )


def _read_log(run: Run, name: str) -> dict[str, Curve]:
    """Curve of each point of a run, by its label; updates in which no episode ended are left out."""
    path = run.folder / name
    if not path.is_file():
        raise DataMissing(f"{path} does not exist: the run was stopped before its first update. Go on with --resume.")
    try:
        header, *lines = (line.split("\t") for line in read_text(path, RunError, max_mb=MAX_TABLE_MB).splitlines())
        columns = dict(zip(header, np.array(lines, np.float64).T, strict=True))
        steps = columns["env_steps"] / run.rows
    except RunError:
        raise
    except (KeyError, ValueError) as err:
        raise RunError(f"{path} is not the log of a run: {excerpt(err)}. {REPAIR}") from err
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, column in columns.items():
        if match := RETURN.match(name):
            found.setdefault(match["point"] or "", {})[match["seed"] or ""] = column
    curves = {}
    for point, seeds in found.items():
        mean = seeds.pop("", None)
        if mean is None:
            continue
        returns = np.stack(list(seeds.values())) if seeds else mean[None]
        episodes = columns.get(" ".join(filter(None, (point, "episodes"))), np.inf)  # learners on whole days count none
        ended = np.isfinite(returns).all(axis=0) & (episodes > 0)
        curves[point] = Curve(returns[:, ended], steps[ended])
    if not curves:
        raise RunError(unknown("column", "return", columns) + f" {path} is not the log of a run. {REPAIR}")
    return curves


def _references(run: Run) -> dict[str, float]:
    """Returns on val of random play, the rule, the causal planner and the best: as shipped, else the first two played.

    None for a task without reference policies.
    """
    task = run.config.task
    if not run.keywords:
        with suppress(KeyError):  # a task of one's own
            record = get_reference(task, SPLIT)
            return {name: record[name] for name in SHOWN if record.get(name) is not None}
    if task not in list_baselines():
        return {}
    with working(f"playing random and rule of {task} on {SPLIT}"):
        sim = run.make(SPLIT)
        return {name: evaluate_baseline(sim, name).mean_reward for name in PLAYED}
