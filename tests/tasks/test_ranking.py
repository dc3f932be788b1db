"""Ranking of learners on data with known answers: blocks, intervals and their coverage, screening, room."""

from __future__ import annotations

import math

import numpy as np
import pytest

from powerzoo_jax.tasks.ranking import AnchorMeans, AnchorReturns, Gain, day_blocks, screen, why_not_ranked

BLOCKS, LENGTH, SEEDS = 24, 7, 5


def flat(n_block: int = BLOCKS, rule: float = 0.0, best: float = 10.0) -> AnchorReturns:
    """AnchorReturns on which the anchors return the same every day."""
    n = n_block * LENGTH
    return AnchorReturns(np.full(n, rule), np.full(n, best), np.repeat(np.arange(n_block), LENGTH))


def test_runs_of_days_are_cut_at_seven() -> None:
    days = [*range(10), 20, 21, 40]
    assert day_blocks(days).tolist() == [0] * 7 + [1] * 3 + [2, 2, 3]
    assert day_blocks(days[::-1]).tolist() == [3, 2, 2] + [1] * 3 + [0] * 7


def test_overlapping_weeks_are_one_block() -> None:
    assert day_blocks([0, 1, 5, 11, 30, 37], n_days=7).tolist() == [0, 0, 0, 0, 1, 2]


def test_few_series_are_the_blocks() -> None:
    assert day_blocks(range(6), series=[4, 4, 9, 9, 4, 9]).tolist() == [0, 0, 1, 1, 0, 1]
    assert day_blocks(range(3), series=[4, 5, 6]).tolist() == [0, 0, 0]


def test_an_equal_return_every_day_has_an_interval_of_no_width() -> None:
    gain = flat().gain(np.full((SEEDS, BLOCKS * LENGTH), 4.0))
    assert gain == Gain(0.4, 0.4, 0.4, 0.4, 0.4, BLOCKS, 0.0)


def test_the_interval_of_one_seed_is_that_of_the_mean_over_blocks() -> None:
    rng = np.random.default_rng(0)
    by_block = rng.normal(5, 2, BLOCKS)
    gain = flat().gain(np.repeat(by_block, LENGTH)[None])
    # of a mean of 24 independent numbers, in the gain's unit; the bootstrap leaves out the factor n / (n - 1)
    half = 1.96 * by_block.std() / np.sqrt(BLOCKS) / 10
    assert gain.mean == pytest.approx(by_block.mean() / 10)
    assert gain.half_width == pytest.approx(half, rel=0.05)


def test_twenty_days_have_no_interval() -> None:
    noise = np.random.default_rng(1).normal(0, 5, (SEEDS, 20))
    gain = AnchorReturns(np.zeros(20), np.full(20, 10.0), day_blocks(range(20))).gain(noise)
    assert (gain.low, gain.high, gain.n_block) == (None, None, 3)
    assert why_not_ranked(AnchorMeans(0, 10, None, 100), gain) == ["not resolved"]


def test_draws_in_which_the_best_plans_lose_are_counted() -> None:
    rng = np.random.default_rng(2)
    best = np.repeat(rng.normal(1, 5, BLOCKS), LENGTH)
    best += 1 - best.mean()
    days = AnchorReturns(np.zeros(len(best)), best, np.repeat(np.arange(BLOCKS), LENGTH))
    gain = days.gain(0.5 * best[None])
    # the mean of the best plans over blocks, 1, is one standard error above 0
    expected = 0.5 * math.erfc(1 / (best[::LENGTH].std() / math.sqrt(BLOCKS)) / math.sqrt(2))
    assert gain.inverted == pytest.approx(expected, abs=0.02)
    assert any("of draws" in reason for reason in why_not_ranked(AnchorMeans(0, 1, None, 10), gain))


def test_a_task_without_room_is_not_ranked() -> None:
    sure = Gain(0.8, 0.75, 0.85, 0.8, 0.8, BLOCKS, 0.0)
    assert why_not_ranked(AnchorMeans(rule=-100, best=-80, trivial=-150, bill=100), sure) == []
    assert why_not_ranked(AnchorMeans(-100, -99, -110, 100), sure) == [
        "the rule closes 0.91 of what trivial leaves",
        "room 1.00 %",
    ]
    assert why_not_ranked(AnchorMeans(-100, -80, -82, 100), sure) == ["trivial gains 0.90"]
    assert why_not_ranked(AnchorMeans(-100, -80, None, 100), sure._replace(low=0.4, high=0.8)) == [
        "not resolved: causal +/- 0.20"
    ]
    assert why_not_ranked(AnchorMeans(-100, -100, None, 100), sure) == ["the best plans are no better than the rule"]
    with pytest.raises(ValueError, match="nothing to gain"):
        flat(best=0.0).gain(np.ones((1, BLOCKS * LENGTH)))


def test_seeds_are_screened_on_validation_alone() -> None:
    n = BLOCKS * LENGTH
    returns = np.stack([np.full(n, x) for x in (9.0, 5.0, 4.0)])
    costs = {"overload": np.stack([np.full(n, x) for x in (9.0, 2.0, 0.0)])}
    found = screen(flat(), returns, costs, {"overload": 1.5}, (False, True, True))
    # the first would gain most and never kept its budget on val; the second breaks it on test and still counts
    assert (found.trained, found.admitted, found.kept, found.starred) == (3, 2, 1, True)
    assert found.gain is not None
    assert (found.gain.mean, found.gain.lowest, found.gain.highest) == pytest.approx((0.45, 0.4, 0.5))
    assert found.over == {"overload": 0.0}  # of the mean of those admitted
    # seeds drawn (2, 2), (2, 0), (0, 2), (0, 0): only the first mean is above
    assert found.in_draws == pytest.approx(0.75, abs=0.02)
    none = screen(flat(), returns, costs, {"overload": 1.5}, (False,) * 3)
    assert none.gain is None
    assert sorted([none, found], key=lambda x: x.order) == [found, none]


def test_two_learners_differ_where_the_paired_interval_says_so() -> None:
    rng = np.random.default_rng(3)
    day = np.repeat(rng.normal(0, 3, BLOCKS), LENGTH)  # hard days are hard for both
    one, other = (5 + day + rng.normal(0, 0.1, (SEEDS, len(day))) for _ in range(2))
    days = flat()
    assert not days.differ(one, other)
    assert days.differ(one + 0.3, other)
    # the two intervals alone overlap widely
    assert days.gain(one + 0.3).low < days.gain(other).mean < days.gain(one + 0.3).high


@pytest.mark.full
def test_coverage_of_the_interval() -> None:
    rng = np.random.default_rng(4)
    of_blocks = 2.0
    of_seeds = np.sqrt(0.1 * of_blocks**2 / BLOCKS * SEEDS)  # the mean over seeds: a tenth of the variance over blocks
    days, inside, repeats = flat(), 0, 500
    for _ in range(repeats):
        block, seed = rng.normal(0, of_blocks, BLOCKS), rng.normal(0, of_seeds, (SEEDS, 1))
        gain = days.gain(4 + np.repeat(block, LENGTH)[None] + seed)
        inside += gain.low <= 0.4 <= gain.high
    assert 0.88 <= inside / repeats <= 0.98
