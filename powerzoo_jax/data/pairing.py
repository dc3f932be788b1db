"""Pairing of days: which days of a secondary data set may accompany a day of the primary one."""

from __future__ import annotations

import numpy as np

MAX_PAIRS = 31  # the days of one month
MONTHS = 12


def pair_days(starts: np.ndarray, candidates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions (n, 31) in `candidates` that each start day may be paired with, and their number (n,).

    The same month and day where the candidates have it (in every year), else every day of the month, else of the
    nearest month around the year.  More than 31 are thinned evenly; unused places repeat the first one, so that
    an episode draws with its seed among the first `number` places.
    Both arguments are sorted datetime64[D]; candidates must not be empty.
    """
    of_day, of_month = month_day(candidates), _month(candidates)
    months = np.unique(of_month)
    pairs, counts = np.zeros((len(starts), MAX_PAIRS), np.int64), np.zeros(len(starts), np.int64)
    for i, (day, month) in enumerate(zip(month_day(starts), _month(starts), strict=True)):
        found = np.flatnonzero(of_day == day)
        if not len(found):
            away = np.abs(months - month)
            found = np.flatnonzero(of_month == months[np.argmin(np.minimum(away, MONTHS - away))])
        if len(found) > MAX_PAIRS:
            found = found[np.linspace(0, len(found) - 1, MAX_PAIRS).astype(np.int64)]
        pairs[i] = found[0]
        pairs[i, : len(found)] = found
        counts[i] = len(found)
    return pairs, counts


def month_day(days: np.ndarray) -> np.ndarray:
    """Month and day of dates as 100 * month + day."""
    day = (days - days.astype("datetime64[M]").astype("datetime64[D]")).astype(np.int64) + 1
    return 100 * _month(days) + day


def _month(days: np.ndarray) -> np.ndarray:
    return days.astype("datetime64[M]").astype(np.int64) % MONTHS + 1
