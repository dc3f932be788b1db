"""Surface of a task for views: bounds of its actions in physical units, its first series, and its stores."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from powerzoo_jax.base.numerics import FLOAT


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
