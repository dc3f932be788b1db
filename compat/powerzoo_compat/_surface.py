"""Action bounds, calendar and stores of a task in physical units, which the arrays of its Sim do not hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.family import family_of
from powerzoo_jax.envs.surface import Stores


@dataclass(frozen=True)
class Surface:
    """Host-side description of one task.

    low, high:  per agent (U_a,)  bounds of its action in the units of the contract
    series:     dataset and signal whose days the episodes start on
    stores:     devices with a state of charge
    """

    low: tuple[np.ndarray, ...]
    high: tuple[np.ndarray, ...]
    series: tuple[Any, str]
    stores: Stores


def surface_of(sim: Sim) -> Surface:
    """Host-side description of a task, as its family tells it. Raises ValueError for a family that tells nothing."""
    describe = family_of(sim).surface
    if describe is None:
        raise ValueError(
            f"the family {sim.spec.family!r} of task {sim.spec.id!r} has no surface. Give its record one: see "
            "powerzoo_jax.envs.family."
        )
    low, high, series, stores = describe(sim)
    widths = np.asarray(sim.params.masks.act).sum(axis=1)
    rows = range(sim.env.dims.agent)
    return Surface(
        low=tuple(low[a, : widths[a]].astype(np.float32) for a in rows),
        high=tuple(high[a, : widths[a]].astype(np.float32) for a in rows),
        series=series,
        stores=stores,
    )
