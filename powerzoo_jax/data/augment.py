"""Days that were never recorded, for training alone: blocks of recorded days put together anew, or drawn from a model.

Both make whole years. A day of the year is made of the training days around its date, of the same part of the week
(work days, or Saturdays and Sundays), so that seasons and weekends stay.

blocks     every block of some hours is copied from one of these days, drawn anew (moving season, Politis and Romano
           1994 without the random lengths): no value but those of training days
synthetic  the mean of these days, and their deviations from it weighted by Gaussian numbers that are drawn once for a
           year, one for each distance from the date: normal days with the covariance of the recorded ones between
           hours, and most of that between neighbouring days
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from powerzoo_jax.base.errors import DataError
from powerzoo_jax.base.ranges import Range

NONE, BLOCKS, SYNTHETIC = "none", "blocks", "synthetic"
KINDS = (NONE, BLOCKS, SYNTHETIC)
TRAIN = "train"
SEED = 17  # of all that is drawn
AROUND_DAYS = 21  # before and after a date: a season, and some ten weekend days of two thirds of a year
DAYS_PER_YEAR, FRIDAY = 365, 4
HOURS_PER_DAY = 24

Years = Annotated[int, Range(1, 100)]


class Augmentation(NamedTuple):
    """Days added to those of training.

    kind:         none, blocks or synthetic
    years:        years made, each of which gives every start one day more to pair with
    block_hours:  length of a block
    """

    kind: str = NONE
    years: int = 4
    block_hours: int = 6

    def refuse(self, split: str) -> None:
        """Raise DataError for days added to a split that is no training."""
        if self.kind != NONE and split != TRAIN:
            raise DataError(
                f"augment = {self.kind!r} adds days to split {TRAIN!r}; {split!r} is played as it was recorded, or its "
                "scores would mean nothing. Leave the keyword out there; learners take it as a setting of training."
            )


AS_RECORDED = Augmentation()


def made_years(days: np.ndarray, values: np.ndarray, augmentation: Augmentation) -> np.ndarray:
    """Values (years * 365, steps) of years made from recorded days, in their unit.

    days:    (D,) datetime64[D] of training, in order
    values:  (D, steps)
    Raises DataError for blocks that are no whole number of steps, or do not divide a day.
    """
    rng = np.random.default_rng(SEED)
    steps, hours = values.shape[1], augmentation.block_hours
    if augmentation.kind == BLOCKS and (HOURS_PER_DAY % hours or steps * hours % HOURS_PER_DAY):
        raise DataError(
            f"augment_block_hours = {hours} must divide a day and be a whole number of steps of "
            f"{HOURS_PER_DAY / steps:g} h. Take 6 or 24."
        )
    position, rest = year_day(days), weekend(days)
    years = []
    for _ in range(augmentation.years):
        weights = rng.standard_normal(2 * AROUND_DAYS + 1)
        # a year of its own begins on any day of the week
        first_weekday = int(rng.integers(7))
        for date in range(DAYS_PER_YEAR):
            away = (position - date + DAYS_PER_YEAR // 2) % DAYS_PER_YEAR - DAYS_PER_YEAR // 2
            resting = (first_weekday + date) % 7 > FRIDAY
            near = np.flatnonzero((np.abs(away) <= AROUND_DAYS) & (rest == resting))
            if not len(near):
                near = np.argsort(np.abs(away), kind="stable")[:1]
            if augmentation.kind == BLOCKS:
                size = steps * hours // HOURS_PER_DAY
                drawn = np.repeat(rng.choice(near, steps // size), size)
                years.append(values[drawn, np.arange(steps)])
            else:
                mean = values[near].mean(axis=0)
                share = weights[np.clip(away[near], -AROUND_DAYS, AROUND_DAYS) + AROUND_DAYS] / np.sqrt(len(near))
                years.append(mean + share @ (values[near] - mean))
    return np.stack(years)


def made_row(starts: np.ndarray, horizon_days: int, year: int) -> np.ndarray:
    """Day among those of `made_years` (n,) that starts (n,) datetime64[D] pair with in a year; the horizon fits in."""
    return year * DAYS_PER_YEAR + np.minimum(year_day(starts), DAYS_PER_YEAR - horizon_days)


def year_day(days: np.ndarray) -> np.ndarray:
    """Day of the year (n,) of dates, 0 to 364; the last of a leap year counts as the one before it."""
    first = days.astype("datetime64[Y]").astype("datetime64[D]")
    found: np.ndarray = np.minimum((days - first).astype(np.int64), DAYS_PER_YEAR - 1)
    return found


def weekend(days: np.ndarray) -> np.ndarray:
    """Whether dates are Saturdays or Sundays, (n,) bool."""
    # 1970-01-01 was a Thursday
    found: np.ndarray = (days.astype("datetime64[D]").astype(np.int64) + 3) % 7 > FRIDAY
    return found
