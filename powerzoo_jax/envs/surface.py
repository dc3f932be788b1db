"""Surface of a task for views: bounds of its actions in physical units, its first series, and its stores."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from powerzoo_jax.base.numerics import FLOAT
from powerzoo_jax.data.clock import MINUTES_PER_DAY, iso_dates
from powerzoo_jax.data.library import load_dataset
from powerzoo_jax.data.series import day_matrix
from powerzoo_jax.envs.family import family_of


class Stores(NamedTuple):
    """Devices with a state of charge: their ids, the range (S,) that a reset draws from and the feasible range (S,)."""

    ids: tuple[str, ...]
    soc_low: np.ndarray
    soc_high: np.ndarray
    soc_min: np.ndarray
    soc_max: np.ndarray


NO_STORES = Stores((), *(np.zeros(0, FLOAT) for _ in range(4)))


class TaskSurface(NamedTuple):
    """Bounds of actions, first series and stores of a task, which the arrays of its Sim do not hold.

    low, high:  (A, U)  bounds of actions in the units of the devices
    series:     data set and signal whose days the episodes start on
    stores:     devices with a state of charge
    """

    low: np.ndarray
    high: np.ndarray
    series: tuple[Any, str]
    stores: Stores = NO_STORES


def soc_limits(fleet: Any) -> list[np.ndarray]:
    """Drawn and feasible ranges of a stack of batteries, as `Stores` has them."""
    return [np.array(getattr(fleet, name)) for name in ("soc_low", "soc_high", "soc_min", "soc_max")]


@lru_cache(maxsize=32)
def calendar(data_set: Any, column: str, minutes: int) -> tuple[str, ...]:
    """ISO dates (D,) of the whole days of a signal on its local standard clock, in the order of their rows in a bank.

    minutes:  of a step
    """
    return iso_dates(day_matrix(load_dataset(data_set), column, minutes)[0])


def first_day(sim: Any, row: int) -> str:
    """ISO date of the episode that begins at a row of the first series; "" where the family tells of no series."""
    describe = family_of(sim).surface
    if describe is None:
        return ""
    minutes = round(60 * sim.spec.dt_hours)
    with suppress(ValueError, OSError):  # a file that has moved since
        days = calendar(*describe(sim).series, minutes)
        return days[row * minutes // MINUTES_PER_DAY]
    return ""
