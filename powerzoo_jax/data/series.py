"""Regular series: change of step, and whole days on the local standard clock."""

from __future__ import annotations

import numpy as np

from powerzoo_jax.base.errors import DataError
from powerzoo_jax.data.clock import MINUTE_NS, local_days, steps_per_day
from powerzoo_jax.data.manifest import Dataset


def resample(time_utc: np.ndarray, values: np.ndarray, minutes: int, how: str) -> tuple[np.ndarray, np.ndarray]:
    """Bring a regular series to another step: (time_utc, values).

    how:  "mean" averages whole intervals (coarser steps), "hold" repeats and "linear" interpolates (finer steps)
    Raises ValueError when the steps do not divide each other or `how` cannot be used in that direction.
    """
    native = int(time_utc[1] - time_utc[0]) // MINUTE_NS
    if np.any(np.diff(time_utc) != native * MINUTE_NS):
        raise DataError("the series has gaps or duplicates. Repair it before resampling.")
    values = np.asarray(values, np.float64)
    if minutes == native:
        return time_utc, values
    if minutes > native:
        return _average(time_utc, values, native, minutes, how)
    if native % minutes or how not in ("hold", "linear"):
        raise ValueError(
            f"cannot bring {native} min to {minutes} min by {how!r}. Use 'hold' or 'linear' and a divisor."
        )
    factor = native // minutes
    fine = time_utc[0] + minutes * MINUTE_NS * np.arange(len(values) * factor, dtype=np.int64)
    if how == "hold":
        return fine, np.repeat(values, factor)
    return fine, np.interp(np.arange(len(fine)) / factor, np.arange(len(values)), values)


def _average(
    time_utc: np.ndarray, values: np.ndarray, native: int, minutes: int, how: str
) -> tuple[np.ndarray, np.ndarray]:
    if minutes % native or how != "mean":
        raise ValueError(f"cannot bring {native} min to {minutes} min by {how!r}. Use 'mean' and a multiple.")
    factor = minutes // native
    lead = int(-(time_utc[0] // MINUTE_NS) % minutes) // native
    count = (len(values) - lead) // factor
    kept = slice(lead, lead + count * factor)
    return time_utc[kept][::factor], values[kept].reshape(count, factor).mean(axis=1)


def day_matrix(data: Dataset, column: str, step_minutes: int) -> tuple[np.ndarray, np.ndarray]:
    """Complete local standard days of a signal: (days (D,), values (D, steps per day) float64).

    Coarser steps average; finer ones hold prices and interpolate everything else.
    """
    spd, name = steps_per_day(step_minutes), data.resolve(column)
    how = "hold" if name.startswith("price.") else "linear"
    if step_minutes > data.meta.step_minutes:
        how = "mean"
    time_utc, values = resample(data.time_utc, data.column(name), step_minutes, how)
    days, first, counts = np.unique(
        local_days(time_utc, data.meta.offset_minutes), return_index=True, return_counts=True
    )
    whole = counts == spd
    return days[whole], values[first[whole, None] + np.arange(spd)]
