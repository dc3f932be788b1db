"""Windows of maintenance and hazards, and the maintenance that Grid2Op draws at reset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np

DAY_S = 86_400
WORKDAYS = range(5)


def windows(out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Steps to the next window of each line, 0 inside and -1 without one, and its steps, inside those that are left.

    out:  (T, L) bool; a window is announced where it begins after the first row
    """
    to_next, left = np.full(out.shape, -1, np.int32), np.zeros(out.shape, np.int32)
    for line in np.flatnonzero(out.any(axis=0)):
        edge, done = np.diff(np.r_[out[:, line].astype(int), 0, 0]), 0
        begins, ends = np.flatnonzero(edge > 0) + 1, np.flatnonzero(edge < 0) + 1
        # a window that begins in the first row leaves its end to the one after, as Grid2Op has it
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=False):
            to_next[done:begin, line], to_next[begin:end, line] = np.arange(begin - done, 0, -1), 0
            left[done:begin, line], left[begin:end, line] = end - begin, np.arange(end - begin, 0, -1)
            done = end
        to_next[done:, line], left[done:, line] = -1, 0
    return to_next, left


def draw_maintenance(
    meta: Mapping[str, Any], lines: Sequence[str], start: datetime, step_s: int, n: int, seed: int
) -> np.ndarray:
    """Maintenance (n, L) bool that `env.reset(seed=seed)` of Grid2Op draws.

    The seed passes from the environment to the series, their folder and the episode, each drawing the next one. On
    every day but the last whose weekday is listed, each listed line is drawn with the probability of the month, and
    what exceeds the largest number of the month is dropped.

    meta:  content of maintenance_meta.json       start: of the first row
    """
    for _ in range(3):
        seed = np.random.RandomState(seed).randint(np.iinfo(np.int32).max)
    rng = np.random.RandomState(seed)
    named = set(meta["line_to_maintenance"])
    listed = np.array([k for k, name in enumerate(lines) if name in named], np.int64)
    weekdays = {int(day) for day in meta.get("maintenance_day_of_week", WORKDAYS)}
    hours = meta["maintenance_starting_hour"], meta["maintenance_ending_hour"]
    begin, end = (int(hour * 3600 / step_s) for hour in hours)
    last = start + timedelta(seconds=step_s * (n - 1))
    out = np.zeros((n, len(lines)), bool)
    for k in range((last.date() - start.date()).days):
        day = start.date() + timedelta(days=k)
        if day.weekday() not in weekdays:
            continue
        chance = meta["daily_proba_per_month_maintenance"][day.month - 1]
        most = meta["max_daily_number_per_month_maintenance"][day.month - 1]
        drawn = rng.choice([False, True], p=[1.0 - chance, chance], size=len(listed))
        count = int(drawn.sum())
        if count > most:
            drawn[np.flatnonzero(drawn)[rng.choice(count, replace=False, size=count - most)]] = False
        first = k * (DAY_S // step_s)
        out[first + begin : first + end, listed[drawn]] = True
    return out
