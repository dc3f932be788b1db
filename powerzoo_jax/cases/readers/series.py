"""Time series that stand in a file of a network: plain arrays beside the case, which is one snapshot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from powerzoo_jax.base.struct import brief


@dataclass(frozen=True, eq=False)
class NetworkSeries:
    """Time series of a network, as `data.series_from_arrays` takes them.

    name:          of the network
    step_minutes:  of all columns
    start:         first interval, ISO 8601, "" where the file has no dates
    columns:       name -> (T,): load_mw, the active power of all loads together; load.NAME_pu, a load shape over what
                   it multiplies; solar_mw and wind_mw, the power available
    notes:         what is left out
    """

    name: str
    step_minutes: int
    start: str
    columns: dict[str, np.ndarray]
    notes: tuple[str, ...] = ()

    __repr__ = brief
