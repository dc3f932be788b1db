"""Splits of a task, and the days that each covers."""

from __future__ import annotations

import math
from typing import Any

from powerzoo_jax.base.types import TaskSpec
from powerzoo_jax.data import list_splits, split_days
from powerzoo_jax.tasks.registry import named_splits
from powerzoo_jax.tasks.site import WEATHER_SET

CALENDAR = ("train", "val", "test")
HOURS_PER_DAY = 24


def splits_of(spec: TaskSpec) -> tuple[str, ...]:
    """train, val and test, then the named ones, which play days of test."""
    return tuple(dict.fromkeys((*CALENDAR, *named_splits(spec))))


def primary_set(spec: TaskSpec) -> Any:
    """Data set whose days the episodes start on."""
    return dict(spec.overrides).get("load_set", WEATHER_SET)


def split_dates(spec: TaskSpec) -> dict[str, dict[str, Any]]:
    """First and last day, and number of days, of each split in the task's primary data set."""
    dataset = primary_set(spec)
    horizon_days = math.ceil(spec.horizon * spec.dt_hours / HOURS_PER_DAY)
    out = {}
    for split in splits_of(spec):
        base = split if split in list_splits(dataset) else "test"
        days = split_days(dataset, base, horizon_days)
        out[split] = {"first": str(days[0]), "last": str(days[-1]), "days": len(days)}
    return out
