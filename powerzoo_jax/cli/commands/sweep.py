"""`sweep`: many settings and seeds side by side in one program, one table out."""

from __future__ import annotations

import argparse

from powerzoo_jax.cli.commands.evaluate import Score, score_policies
from powerzoo_jax.cli.commands.train import RunScores, Trained, train_and_tell
from powerzoo_jax.cli.runs import Run
from powerzoo_jax.cli.selection import chosen_policies
from powerzoo_jax.envs import Sim


def run(options: argparse.Namespace) -> int:
    """Train every point with every seed at once, then score all of them, feasible ones first."""
    return train_and_tell(options, "sweep", lambda run, sim, done: _score(run, sim, done, options.split))


def _score(run: Run, sim: Sim, trained: Trained, split: str) -> RunScores:
    """Scores of every point, most feasible seeds first, then the highest return."""
    scored = run.make(split)
    played = score_policies(scored, run.config.algorithm, chosen_policies(run, sim, trained.state)).records
    groups = [played[i : i + run.seeds] for i in range(0, run.rows, run.seeds)]
    scores = [Score(label, records) for label, records in zip(run.labels, groups, strict=True)]
    scores.sort(key=_place)
    about = f", {run.seeds} seed(s) a row, most feasible seeds first, then the highest return"
    return RunScores(scored, scores, about)


def _place(score: Score) -> tuple[int, float]:
    """Sorting key: seeds that break a budget, then the negative return of all."""
    return sum(not r.feasible for r in score.records), -sum(r.mean_reward for r in score.records)
