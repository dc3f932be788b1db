"""Ranking of learners on a task: gains with intervals over days and seeds, seeds admitted by validation, room to gain.

gain = (return - rule) / (best - rule), each a mean over episodes. Days are not independent: neighbours are alike and
weeks overlap, so that intervals are drawn from blocks of days, and independently from seeds (two-way bootstrap).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from powerzoo_jax.tasks.score import keeps

DRAWS = 10_000
BLOCK_DAYS = 7  # at which a run of consecutive days is cut
LEAST_BLOCKS = 10  # below which there is no interval
LEVEL = (2.5, 97.5)  # percentiles
INVERTED = 0.01  # share of draws in which the best plans are no better than the rule, above which nothing is ranked
MOST_TRIVIAL, MOST_CLOSED = 0.5, 0.9  # gain of trivial; share of (best - trivial) that the rule has closed
LEAST_ROOM = 0.02  # of the bill
WIDEST = 0.15  # half the width of the interval of the causal planner


def day_blocks(days: Sequence[int], n_days: int = 1, series: Sequence[int] | None = None) -> np.ndarray:
    """Block of every episode, (n,) int from 0: its run of consecutive start days, cut every seven days.

    days:    start day of each episode, in any order
    n_days:  that an episode lasts; episodes of several days that overlap are one block, uncut
    series:  number of the series that each episode plays, where a split has fewer of them than episodes: then a block
             is a series
    """
    day = np.asarray(days)
    if series is not None and len(np.unique(series)) < len(day):
        return np.unique(np.asarray(series), return_inverse=True)[1]
    block, label, first = 0, {}, None
    ordered = np.unique(day).tolist()
    for before, this in pairwise([None, *ordered]):
        joined = before is not None and this - before <= max(n_days - 1, 1)
        if not joined or (n_days == 1 and this - first >= BLOCK_DAYS):
            block, first = block + (before is not None), this
        label[this] = block
    return np.array([label[x] for x in day.tolist()])


class Gain(NamedTuple):
    """Gain of a learner: mean over seeds and episodes, its interval, and the lowest and highest seed.

    low, high:  95 % interval; None with fewer than ten blocks
    n_block:    blocks that it was drawn from
    inverted:   share of draws in which best <= rule
    """

    mean: float
    low: float | None
    high: float | None
    lowest: float
    highest: float
    n_block: int
    inverted: float

    @property
    def half_width(self) -> float | None:
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


@dataclass(frozen=True)
class AnchorReturns:
    """Returns of the anchors by episode, (n,) each, and the block of every episode (n,) int."""

    rule: np.ndarray
    best: np.ndarray
    block: np.ndarray

    def drawn(self, values: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Means of values (A, n), of the rule and of the best plans, in every draw (DRAWS,) of blocks and of rows."""
        rng = np.random.Generator(np.random.PCG64(seed))
        n_block, rows = int(self.block.max()) + 1, len(values)
        blocks, seeds = (_counts(rng.integers(0, k, (DRAWS, k))) for k in (n_block, rows))
        joined = np.zeros((len(self.block), n_block))
        joined[np.arange(len(self.block)), self.block] = 1
        size = blocks @ joined.sum(0)
        mean = ((blocks @ (values @ joined).T) * seeds).sum(1) / rows / size
        rule, best = ((blocks @ (x @ joined)) / size for x in (self.rule, self.best))
        return mean, rule, best

    def gain(self, returns: np.ndarray) -> Gain:
        """Gain of the seeds whose returns by episode are `returns` (A, n). Raises ValueError where best <= rule."""
        room = float(self.best.mean() - self.rule.mean())
        if not room > 0:
            raise ValueError(f"best - rule = {room}: there is nothing to gain on these episodes.")
        by_seed = (returns.mean(1) - self.rule.mean()) / room
        mean, rule, best = self.drawn(returns)
        fine, n_block = best > rule, int(self.block.max()) + 1
        low = high = None
        if n_block >= LEAST_BLOCKS and fine.any():
            low, high = np.percentile((mean - rule)[fine] / (best - rule)[fine], LEVEL).tolist()
        lowest, highest = float(by_seed.min()), float(by_seed.max())
        return Gain(float(by_seed.mean()), low, high, lowest, highest, n_block, float(1 - fine.mean()))

    def differ(self, one: np.ndarray, other: np.ndarray) -> bool:
        """Whether the paired interval of the difference of two learners' returns, (A, n) and (B, n), excludes 0."""
        if int(self.block.max()) + 1 < LEAST_BLOCKS:
            return False
        # the same blocks of both; seeds are drawn apart
        first, second = self.drawn(one), self.drawn(other)
        low, high = np.percentile(first[0] - second[0], LEVEL)
        return bool(low > 0 or high < 0)


def _counts(drawn: np.ndarray) -> np.ndarray:
    """Numbers of times that each of k was drawn, (DRAWS, k), from draws (DRAWS, k)."""
    draws, k = drawn.shape
    flat = (drawn + k * np.arange(draws)[:, None]).ravel()
    return np.bincount(flat, minlength=draws * k).reshape(draws, k).astype(float)


class Screening(NamedTuple):
    """Seeds of a learner: trained, admitted on validation days, and those of them that keep the budgets on test days.

    gain:     of the admitted, none chosen again; None where none was admitted
    over:     mean cost over budget of the admitted by channel, 0 where kept
    in_draws: share of draws of blocks in which the mean of the admitted keeps all budgets
    """

    trained: int
    admitted: int
    kept: int
    gain: Gain | None
    over: dict[str, float]
    in_draws: float

    @property
    def starred(self) -> bool:
        """Whether some admitted seed breaks a budget on test days."""
        return self.kept < self.admitted

    @property
    def order(self) -> tuple[float, float]:
        """Sort key: more kept of the trained first, then more gain."""
        return -self.kept / self.trained, -self.gain.mean if self.gain else np.inf


def screen(
    episodes: AnchorReturns,
    returns: np.ndarray,
    costs: Mapping[str, np.ndarray],
    budgets: Mapping[str, float],
    admitted: Sequence[bool],
) -> Screening:
    """Screening of a learner's seeds by their returns (S, n) and costs by channel (S, n) on test days.

    budgets:   of the channels that are constrained
    admitted:  (S,) whether each seed keeps all budgets on validation days, the only screening there is
    """
    chosen = np.flatnonzero(admitted)
    if not len(chosen):
        return Screening(len(returns), 0, 0, None, {}, 0.0)
    limit = np.array(list(budgets.values()))
    by_channel = np.array([costs[name][chosen] for name in budgets]).reshape(len(budgets), len(chosen), -1)
    kept = [bool(keeps(by_channel[:, k].mean(1), limit).all()) for k in range(len(chosen))]
    over = {
        name: float(max(x.mean() - budget, 0.0)) for name, x, budget in zip(budgets, by_channel, limit, strict=True)
    }
    held = np.ones(DRAWS, bool)
    for x, budget in zip(by_channel, limit, strict=True):
        held &= keeps(episodes.drawn(x)[0], budget)
    gain = episodes.gain(returns[chosen])
    return Screening(len(returns), len(chosen), sum(kept), gain, over, float(held.mean()))


class AnchorMeans(NamedTuple):
    """Mean returns of a task's anchors; trivial None where it breaks a budget. bill: absolute money under the rule."""

    rule: float
    best: float
    trivial: float | None
    bill: float

    @property
    def room(self) -> float:
        """(best - rule) / bill."""
        return (self.best - self.rule) / self.bill


def why_not_ranked(anchors: AnchorMeans, causal: Gain | None) -> list[str]:
    """Reasons for which gains on a task say little, a phrase each; none where it is ranked.

    causal:  gain of the planner without foresight, None where it was not played by episode
    """
    found = []
    if anchors.best <= anchors.rule:
        return ["the best plans are no better than the rule"]
    if anchors.trivial is not None:
        gain = (anchors.trivial - anchors.rule) / (anchors.best - anchors.rule)
        if gain > MOST_TRIVIAL:
            found.append(f"trivial gains {gain:.2f}")
        if anchors.best > anchors.trivial:
            closed = (anchors.rule - anchors.trivial) / (anchors.best - anchors.trivial)
            if closed > MOST_CLOSED:
                found.append(f"the rule closes {closed:.2f} of what trivial leaves")
    if anchors.room < LEAST_ROOM:
        found.append(f"room {100 * anchors.room:.2f} %")
    if causal is None or causal.half_width is None:
        found.append("not resolved")
    elif causal.half_width > WIDEST:
        found.append(f"not resolved: causal +/- {causal.half_width:.2f}")
    if causal is not None and causal.inverted > INVERTED:
        found.append(f"best <= rule in {100 * causal.inverted:.1f} % of draws")
    return found
