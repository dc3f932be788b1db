"""`plot`: learning curves of runs, or the scores of a leaderboard, as a picture for a page or a paper."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from powerzoo_jax.base.errors import DataMissing, RunError, unknown
from powerzoo_jax.base.textfile import read_json, read_text
from powerzoo_jax.cli.commands.leaderboard import DATA, ROW, TEST, result_on
from powerzoo_jax.cli.runs import LOG, REPAIR, SCORES, Run, open_run
from powerzoo_jax.plot import plot_leaderboard, plot_learning_curves, save_figure
from powerzoo_jax.tasks import get_spec
from powerzoo_jax.tasks.score import normalized_score

SHOWN = ("rule", "oracle")  # references beside a curve: random is often so low that the curves become flat
RETURN = re.compile(r"^(?:(?P<point>.+) )?return(?:\.(?P<seed>\d+))?$")  # columns of a log
FOLDER = Path("results")


class Curve(NamedTuple):
    """Returns of one point of a run: (S, U) one row a seed, or their mean where the log holds no more; steps (U,)."""

    returns: np.ndarray
    steps: np.ndarray


def run(options: argparse.Namespace) -> int:
    """Draw what was given: one leaderboard, or runs."""
    boards = [path for path in options.what if path.suffix == DATA]
    if boards and len(options.what) > 1:
        raise ValueError("plot draws one leaderboard, or runs. Give either.")
    if options.split is not None and not boards:
        raise ValueError("--split: a run shows how its return grew on the days that it was trained on. Leave it out.")
    if boards:
        figure, name = _scores(boards[0], options.split or TEST, options.title), "scores"
    else:
        figure, name = _curves(options.what, options.title), "curves"
    target = save_figure(figure, options.out or FOLDER / f"{name}.svg")
    print(f"{name}: {target}")
    return 0


def _scores(board: Path, split: str, title: str) -> Any:
    """Scores of every row of a leaderboard that was scored on the split."""
    if not board.is_file():
        raise DataMissing(f"{board} does not exist. `powerzoo-jax leaderboard` writes it beside its page.")
    rows = [row for row in read_json(board, RunError, "Write the page again.") if "run" in row]
    tasks = {row["task"] for row in rows}
    scores, kept, rule = {}, {}, {}
    for row in rows:
        result = result_on(row, split)
        if result is None or result.known is None:
            continue
        learner = row["run"]["config"]["algorithm"]
        name = learner if len(tasks) == 1 else f"{row['task']} ({learner})"
        scores[name] = [seed["score"] for seed in result.seeds]
        kept[name] = all(all(seed["kept"]) for seed in result.seeds)
        rule[name] = normalized_score(*(result.known[which] for which in ("rule", "random", "oracle")))
    if not scores:
        raise ValueError(f"{board} holds no score on the split {split!r}. Train with `leaderboard --split {split}`.")
    return plot_leaderboard(scores, feasible=kept, rule=rule, title=title)


def _curves(folders: Sequence[Path], title: str) -> Any:
    """Learning curves of every point of every run, beside the references of their task."""
    runs = [open_run(folder) for folder in folders]
    tasks = {run.config.task for run in runs}
    if len(tasks) > 1:
        raise ValueError(f"runs of {' and '.join(sorted(tasks))}: their returns do not compare. Draw each task alone.")
    several = len({run.config.algorithm for run in runs}) < len(runs)
    curves = {
        " ".join(filter(None, (run.folder.name if several else run.config.algorithm, point))): curve
        for run in runs
        for point, curve in _read_log(run).items()
    }
    money = set(get_spec(runs[0].config.task).term_weights) == {1.0}
    return plot_learning_curves(
        {name: curve.returns for name, curve in curves.items()},
        {name: curve.steps for name, curve in curves.items()},
        references=_references(runs),
        label=f"return of an episode [{'$' if money else '-'}]",
        title=title,
    )


def _read_log(run: Run) -> dict[str, Curve]:
    """Curve of each point of a run, by its label; updates in which no episode ended are left out."""
    path = run.folder / LOG
    if not path.is_file():
        raise DataMissing(f"{path} does not exist: the run was stopped before its first update. Go on with --resume.")
    header, *lines = (line.split("\t") for line in read_text(path, RunError).splitlines())
    try:
        columns = dict(zip(header, np.array(lines, np.float64).T, strict=True))
        steps = columns["env_steps"] / run.rows
    except (KeyError, ValueError) as err:
        raise RunError(f"{path} is not the log of a run: {err}. {REPAIR}") from err
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, column in columns.items():
        if match := RETURN.match(name):
            found.setdefault(match["point"] or "", {})[match["seed"] or ""] = column
    curves = {}
    for point, seeds in found.items():
        mean = seeds.pop("")
        returns = np.stack(list(seeds.values())) if seeds else mean[None]
        episodes = columns.get(" ".join(filter(None, (point, "episodes"))), np.inf)  # learners on whole days count none
        ended = np.isfinite(returns).all(axis=0) & (episodes > 0)
        curves[point] = Curve(returns[:, ended], steps[ended])
    if not curves:
        raise RunError(unknown("column", "return", columns) + f" {path} is not the log of a run. {REPAIR}")
    return curves


def _references(runs: Sequence[Run]) -> dict[str, float]:
    """Test returns of the rule and the oracle, as the first run that knows them has stored them."""
    for run in runs:
        row, scores = run.folder / ROW, run.folder / SCORES
        if row.is_file() and (known := read_json(row, RunError, REPAIR)["known"]) is not None:
            return {name: known[name] for name in SHOWN}
        if scores.is_file():
            records = read_json(scores, RunError, REPAIR)
            if all(name in records for name in SHOWN):
                return {name: records[name][0]["mean_reward"] for name in SHOWN}
    return {}
