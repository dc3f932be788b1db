"""Load series of the transmission tasks: demand, or demand less wind and sun, with forecasts and start days."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base.errors import CaseError, DataError
from powerzoo_jax.cases import Case
from powerzoo_jax.data import Series, load_dataset
from powerzoo_jax.data.clock import steps_per_day
from powerzoo_jax.data.series import day_matrix
from powerzoo_jax.data.splits import eligible_start_days, label_days, runs, window_days
from powerzoo_jax.envs.series import EpisodeStarts

DEMAND, WIND, SUN = "load.actual_mw", "wind.available_mw", "solar.available_mw"
LEAST = 0.05  # [-] of the reference that a net load keeps
CUSTOM = "custom"


def load_shares(case: Case, nominal_mw: np.ndarray) -> np.ndarray:
    """Shares (N,) [-] of the buses in a load (N,) [MW]; CaseError where it is not positive, as of a network without."""
    total = nominal_mw.sum()
    if not total > 0:
        raise CaseError(f"{case.name} has a load of {total:g} MW, which a series cannot be divided by. Give it loads.")
    return nominal_mw / total


@dataclass(frozen=True, eq=False)
class LoadSeries:
    """Rows of every day of a set, and the days at which episodes may start.

    split:      as asked for, "custom" for a window of dates
    rows:       (R, 1 + H)  [-]  load over the reference, and 1 to H steps ahead; one row more than there are steps
    start_row:  (S,)  int32  padded with the first one
    n_start:    number of starts that are real
    """

    split: str
    rows: np.ndarray
    start_row: np.ndarray
    n_start: int

    def starts(self) -> EpisodeStarts:
        """Start rows from which an episode draws its first; there is no price to pair a day with."""
        return EpisodeStarts(
            load_row=jnp.asarray(self.start_row, jnp.int32),
            n_start=jnp.asarray(self.n_start, jnp.int32),
            price_row=jnp.zeros((len(self.start_row), 1), jnp.int32),
            pair_count=jnp.ones(len(self.start_row), jnp.int32),
        )


def load_series(
    source: str | Path | Series,
    split: str,
    minutes: int,
    horizon: int,
    forecast_steps: int,
    *,
    wind_share: float = 0.0,
    sun_share: float = 0.0,
    dates: tuple[str | None, str | None] = (None, None),
    bounded: bool = True,
) -> LoadSeries:
    """Read demand D(t) / D_ref, less shares of wind and sun over theirs; bounded keeps a net load in [0.05, 1].

    Raises ValueError (DataError) for a window that the data or the horizon do not fit.
    """
    data = load_dataset(source)
    spd = steps_per_day(minutes)
    days, demand = day_matrix(data, DEMAND, minutes)
    factor = demand / data.divisor(DEMAND)
    for share, name in ((wind_share, WIND), (sun_share, SUN)):
        if share:
            factor = factor - share * day_matrix(data, name, minutes)[1] / data.divisor(name)
    if bounded and (wind_share or sun_share):
        factor = np.clip(factor, LEAST, 1.0)
    n_day = -(-horizon // spd)
    labels = label_days(data, n_day)
    name = split
    if dates != (None, None):
        labels = np.where(np.isin(days, window_days(data, *dates, n_day)), CUSTOM, "")
        name = CUSTOM
    starts = eligible_start_days(days[labels == name], n_day)
    if not len(starts):
        raise DataError(f"no {n_day}-day episode fits into {name!r} of {data.meta.name}. Shorten the horizon.")
    rows = _with_forecasts(factor, _last_rows(days, labels, spd), forecast_steps)
    start_row = np.searchsorted(days, starts) * spd
    padded = np.concatenate([start_row, np.full(len(days) - len(starts), start_row[0])])
    return LoadSeries(name, rows, padded.astype(np.int32), len(starts))


def _last_rows(days: np.ndarray, labels: np.ndarray, spd: int) -> np.ndarray:
    """Of every step (D * spd,) the last step of its run of consecutive days of one label."""
    last = np.zeros(len(days), np.int64)
    for label in np.unique(labels):
        for run in runs(days[labels == label]):
            first = int(np.searchsorted(days, run[0]))
            last[first : first + len(run)] = first + len(run) - 1
    return np.repeat((last + 1) * spd - 1, spd)


def _with_forecasts(factor: np.ndarray, last: np.ndarray, steps: int) -> np.ndarray:
    """Values (R, 1 + H): the load and what follows it, the last value of a run repeated beyond its end."""
    flat = factor.reshape(-1)
    ahead = np.minimum(np.arange(flat.size)[:, None] + np.arange(steps + 1), last[:, None])
    rows = flat[ahead]
    return np.concatenate([rows, rows[-1:]])
