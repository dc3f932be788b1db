"""Key discipline: one seed, sub-streams keyed by purpose and never by order of use."""

from __future__ import annotations

from enum import IntEnum

import jax
from jax import Array


class Purpose(IntEnum):
    """What a sub-stream of an episode's key is for. Values are frozen: changing one changes every trajectory."""

    DAY = 1
    PAIRED_DAY = 2
    SOC = 3
    START_STEP = 4
    NEXT_EPISODE = 5
    POLICY = 6
    FORECAST_NOISE = 7
    TRIPS = 8
    JOBS = 9
    WORKLOAD = 10
    OFFERS = 11


def purpose_key(key: Array, purpose: Purpose) -> Array:
    """Return the sub-stream, a PRNG key (), of `key` () for one purpose."""
    return jax.random.fold_in(key, int(purpose))
