"""Profile bank: the tables an environment reads by row number, built on the host with NumPy.

A bank holds the whole year, whatever the split, plus the rows at which episodes may start.  Banks of all
splits of a task therefore have one shape, and one compiled program serves them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from powerzoo_jax.base.errors import DataError, unknown
from powerzoo_jax.base.struct import brief
from powerzoo_jax.data.augment import AS_RECORDED, DAYS_PER_YEAR, NONE, Augmentation, made_row, made_years
from powerzoo_jax.data.clock import iso_dates, steps_per_day
from powerzoo_jax.data.library import load_dataset, signal_range
from powerzoo_jax.data.series import Series, day_matrix, differ
from powerzoo_jax.data.splits import (
    UNUSED,
    all_days,
    eligible_start_days,
    label_days,
    list_splits,
    month_day,
    pair_days,
    window_days,
)

TABLE_DAYS = 366  # days in a price table and in the start list, so that leap years fit
# Of the price signal, 0 and 1 at two percentiles of the training days: spikes and negative prices beyond are cut, so
# that the observation has bounds. The reward takes the price itself.
SIGNAL_LIMITS = (-1.0, 3.0)
LOAD_FIELDS = ("load_factor", "time_sin", "time_cos", "load_ahead_hi", "load_ahead_lo")
STRESS_SPLIT = "price_stress"
STRESS_SET, STRESS_COLUMN = "ercot_dam_2021_2022", "HB_HOUSTON"
CUSTOM_SPLIT = "custom"
HOURS_PER_DAY = 24


@dataclass(frozen=True, eq=False)
class Bank:
    """Tables of one task and split; shapes depend on the data sets and the step, never on the split.

    split:           name of the split, "custom" for a window of dates
    load_fields:     names of the F_l columns of load_rows: LOAD_FIELDS and any load_forecast_k
    load_rows:       (R_l, F_l)  float32  one row a step; the last row repeats the features of the step before
                     load_factor  [1]     D(t) / d_ref
                     time_sin, time_cos   of the local standard time of day
                     load_ahead_hi, _lo   sum of load_factor, where it is positive, over all rows before this one, as
                                          two floats: the sum over rows a..b-1 is (hi[b] - hi[a]) + (lo[b] - lo[a])
                     load_forecast_k [1]  load_factor k steps ahead; beyond its run the last value repeats
    price_fields:    names of the F_p columns of price_rows
    price_rows:      (R_p, F_p)  float32  one row a step, edge-padded to 366 days and one row
                     price_per_mwh        [$/MWh]
                     price_signal         [1]  (price - p05) / (p95 - p05), clipped to [-1, 3]; 0 where p95 = p05
                     price_forecast_k     [1]  the same, k hours (or steps) ahead, with the same end
                     mean_price_ahead     [$/MWh]  mean over the horizon that starts at this row
    start_day:       n_start ISO dates of the load set
    start_load_row:  (S,)    int32  load row of each start, padded with the first one
    n_start:         number of starts that are real
    pair_price_row:  (S, K)  int32  candidate price rows of each start, padded with the first one
    pair_count:      (S,)    int32  number of candidates, at least 1
    steps_per_day:   steps in a day
    d_ref:           constant that load_factor divides by, in the unit of the load signal
    price_p05, price_p95:  [$/MWh]  prices whose signals are 0 and 1, see `library.signal_range`
    price_mean:      [$/MWh]  mean over the price days of the split
    sources:         (data set, signal, content hash) of load and price
    """

    split: str
    load_fields: tuple[str, ...]
    load_rows: np.ndarray
    price_fields: tuple[str, ...]
    price_rows: np.ndarray
    start_day: tuple[str, ...]
    start_load_row: np.ndarray
    n_start: int
    pair_price_row: np.ndarray
    pair_count: np.ndarray
    steps_per_day: int
    d_ref: float
    price_p05: float
    price_p95: float
    price_mean: float
    sources: tuple[tuple[str, str, str], ...]

    __repr__ = brief


@dataclass(frozen=True, eq=False)
class _Choice:
    """Selection of the days that each set lends to a bank: one label a day of `all_days`, and the label wanted."""

    split: str
    load_split: str
    load_labels: np.ndarray
    price: Series
    price_column: str
    price_split: str
    price_labels: np.ndarray


def build_bank(
    load_set: str | Path | Series,
    load_column: str,
    price_set: str | Path | Series,
    price_column: str,
    step_minutes: int,
    split: str,
    horizon_steps: int,
    forecast_hours: int = 24,
    start_date: str | None = None,
    end_date: str | None = None,
    load_floor: float | None = None,
    forecast_steps: int | None = None,
    augmentation: Augmentation = AS_RECORDED,
) -> Bank:
    """Build the bank of a task that has one load and one price: bundled sets by name, CSV files, or series.

    load_floor maps the smallest value of all load data to this share of the reference (None: as it is); a flat load
    stays at the reference.
    forecast_steps shows load and price that many single steps ahead, in the place of forecast_hours of prices.
    augmentation adds price days that were never recorded, behind the others of the price table and of every start.
    Dates replace the split calendar.  A split that the load set does not have ("price_stress") starts on its
    test days; one that the price set does not have takes the prices of the ERCOT storm.
    Raises ValueError for an unknown name or an unusable window (DataError), KeyError for an unknown signal.
    """
    spd = steps_per_day(step_minutes)
    if horizon_steps < 1:
        raise ValueError(f"horizon_steps must be at least 1, got {horizon_steps}.")
    horizon_days = -(-horizon_steps // spd)
    load, price = load_dataset(load_set), load_dataset(price_set)
    if start_date is None and end_date is None:
        choice = _choose_split(split, load, price, price_column, horizon_days)
    else:
        choice = _choose_window(start_date, end_date, load, price, price_column, horizon_days)
    augmentation.refuse(choice.split)
    price = choice.price
    load_days, profile = day_matrix(load, load_column, step_minutes)
    days, values, labels = _price_days(price, choice, step_minutes)
    ours = labels == choice.price_split
    starts = eligible_start_days(load_days[choice.load_labels == choice.load_split], horizon_days)
    candidates = eligible_start_days(days[ours], horizon_days)
    for found, data in ((starts, load), (candidates, price)):
        if not len(found):
            name = data.meta.name
            raise DataError(f"no {horizon_days}-day episode fits into {choice.split!r} of {name}. Shorten the horizon.")
    size = max(TABLE_DAYS, len(load_days))
    pair, pair_count = pair_days(starts, candidates)
    pair_price_row = np.searchsorted(days, candidates)[pair] * spd
    d_ref = load.divisor(load_column)
    factor = profile / d_ref
    if load_floor is not None:
        factor = _raise_floor(factor, load.d_min(load_column) / d_ref, load_floor)
    low, high = signal_range(price, price.resolve(choice.price_column))
    by_hour = np.arange(1, forecast_hours + 1) * spd // HOURS_PER_DAY
    lead = by_hour if forecast_steps is None else np.arange(1, forecast_steps + 1)
    fields, rows = _price_table(values, _run_ends(days, labels), horizon_steps, lead, (low, high))
    rows = _pad(rows, TABLE_DAYS * spd + 1, edge=-1)
    if augmentation.kind != NONE:
        made = made_years(days[ours], values[ours], augmentation)
        last = np.repeat(np.arange(1, augmentation.years + 1) * DAYS_PER_YEAR - 1, DAYS_PER_YEAR)
        own = np.stack([made_row(starts, horizon_days, year) for year in range(augmentation.years)], axis=1) * spd
        pair_price_row, pair_count = _paired_too(pair_price_row, pair_count, len(rows) + own)
        rows = np.concatenate([rows, _price_table(made, last, horizon_steps, lead, (low, high))[1]])
    shown = lead[:0] if forecast_steps is None else lead
    load_fields, load_rows = _load_table(factor, _run_ends(load_days, choice.load_labels), shown)
    return Bank(
        split=choice.split,
        load_fields=load_fields,
        load_rows=load_rows,
        price_fields=fields,
        price_rows=rows,
        start_day=iso_dates(starts),
        start_load_row=_pad(np.searchsorted(load_days, starts) * spd, size),
        n_start=len(starts),
        pair_price_row=_pad(pair_price_row, size),
        pair_count=_pad(pair_count, size),
        steps_per_day=spd,
        d_ref=d_ref,
        price_p05=low,
        price_p95=high,
        price_mean=float(values[ours].mean()),
        sources=(_source(load, load_column), _source(price, choice.price_column)),
    )


def published_sums(bank: Bank) -> np.ndarray:
    """Sum of the prices of all rows before each, (price - p05) / (p95 - p05) [1], as two floats, (R, 2)."""
    signal = _over_range(bank.price_rows[:, 0].astype(np.float64), bank.price_p05, bank.price_p95)
    total = np.cumsum(signal) - signal
    high = total.astype(np.float32)
    return np.column_stack([high, total - high])


def _raise_floor(factor: np.ndarray, lowest: float, floor: float) -> np.ndarray:
    """Stretch load factors so that the smallest of all data becomes `floor` and 1 stays 1."""
    if not 0 <= floor < 1:
        raise DataError(f"load_floor = {floor:g} must be at least 0 and under 1: min_load_ratio below max_load_ratio.")
    if not differ(lowest, 1.0):
        return np.ones_like(factor)
    return floor + (1.0 - floor) * (factor - lowest) / (1.0 - lowest)


def _over_range(price: np.ndarray, low: float, high: float) -> np.ndarray:
    """Prices in the scale of the price signal, not clipped; a price that does not vary tells nothing and is 0."""
    return (price - low) / (high - low) if high > low else np.zeros_like(price)


def _choose_split(split: str, load: Series, price: Series, price_column: str, horizon_days: int) -> _Choice:
    known = dict.fromkeys((*list_splits(load), *list_splits(price), STRESS_SPLIT))
    if split not in known:
        raise ValueError(unknown("split", split, known))
    if split not in list_splits(price):
        price, price_column = load_dataset(STRESS_SET), STRESS_COLUMN
    return _Choice(
        split=split,
        load_split=split if split in list_splits(load) else "test",
        load_labels=label_days(load, horizon_days),
        price=price,
        price_column=price_column,
        price_split=split,
        price_labels=label_days(price, horizon_days),
    )


def _choose_window(
    start_date: str | None, end_date: str | None, load: Series, price: Series, price_column: str, horizon_days: int
) -> _Choice:
    window = window_days(load, start_date, end_date, horizon_days)
    load_days, price_days = all_days(load), all_days(price)
    same_dates = np.isin(month_day(price_days), month_day(window))
    if price is load:
        same_dates = np.isin(price_days, window)
    return _Choice(
        split=CUSTOM_SPLIT,
        load_split=CUSTOM_SPLIT,
        load_labels=np.where(np.isin(load_days, window), CUSTOM_SPLIT, UNUSED),
        price=price,
        price_column=price_column,
        price_split=CUSTOM_SPLIT,
        price_labels=np.where(same_dates, CUSTOM_SPLIT, UNUSED),
    )


def _source(data: Series, column: str) -> tuple[str, str, str]:
    return data.meta.name, data.resolve(column), data.meta.sha256


def _price_days(price: Series, choice: _Choice, step_minutes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Days (D,), prices (D, steps) and labels (D,) that fit a price table: the whole set, or only the split."""
    days, values = day_matrix(price, choice.price_column, step_minutes)
    labels = choice.price_labels
    if len(days) > TABLE_DAYS:
        ours = labels == choice.price_split
        days, values, labels = days[ours], values[ours], labels[ours]
    if len(days) > TABLE_DAYS:
        raise DataError(
            f"{choice.split!r} of {price.meta.name} holds {len(days)} days, a price table {TABLE_DAYS}. "
            "Choose a window of at most a year."
        )
    return days, values, labels


def _run_ends(days: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Position of the last day of each day's run: consecutive dates that share a label."""
    breaks = (np.diff(days) != np.timedelta64(1, "D")) | (labels[1:] != labels[:-1])
    ends = np.append(np.flatnonzero(breaks), len(days) - 1)
    return ends[np.searchsorted(ends, np.arange(len(days)))]


def _load_table(factor: np.ndarray, run_end: np.ndarray, lead: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """Field names and rows (D * steps + 1, F) from load factors (D, steps)."""
    n_day, spd = factor.shape
    flat = factor.reshape(-1)
    # a load that feeds back is none that can go unserved
    ahead = np.concatenate([[0.0], np.cumsum(np.maximum(flat, 0.0))])
    high = ahead.astype(np.float32)
    angle = np.tile(2.0 * np.pi * np.arange(spd) / spd, n_day)
    features = [np.append(x, x[-1]) for x in (flat, np.sin(angle), np.cos(angle))]
    later = flat[_steps_ahead(run_end, spd, lead)]
    later = np.concatenate([later, later[-1:]])
    names = tuple(f"load_forecast_{k}" for k in range(1, len(lead) + 1))
    return LOAD_FIELDS + names, np.column_stack([*features, high, ahead - high, later]).astype(np.float32)


def _steps_ahead(run_end: np.ndarray, spd: int, lead: np.ndarray) -> np.ndarray:
    """Rows (D * steps, K) that lie `lead` steps ahead of each row, none beyond the last day of its run."""
    last = np.repeat((run_end + 1) * spd - 1, spd)
    return np.minimum(np.arange(len(last))[:, None] + lead, last[:, None])


def _price_table(
    values: np.ndarray, run_end: np.ndarray, horizon: int, lead: np.ndarray, quantiles: tuple[float, float]
) -> tuple[tuple[str, ...], np.ndarray]:
    """Field names and rows (D * steps, F) from prices (D, steps)."""
    spd, flat = values.shape[1], values.reshape(-1)
    low, high = quantiles
    signal = np.clip(_over_range(flat, low, high), *SIGNAL_LIMITS)
    row = np.arange(len(flat))
    forecast = signal[_steps_ahead(run_end, spd, lead)]
    total = np.concatenate([[0.0], np.cumsum(np.append(flat, np.full(horizon, flat[-1])))])
    mean_ahead = (total[row + horizon] - total[row]) / horizon
    table = np.column_stack([flat, signal, forecast, mean_ahead])
    names = tuple(f"price_forecast_{k}" for k in range(1, len(lead) + 1))
    fields = ("price_per_mwh", "price_signal", *names, "mean_price_ahead")
    return fields, table.astype(np.float32)


def _paired_too(pair: np.ndarray, count: np.ndarray, more: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Candidates (n, K + k) of each start and their numbers (n,): k more behind those there are, padded as before."""
    wide = np.concatenate([pair, np.repeat(pair[:, :1], more.shape[1], axis=1)], axis=1)
    place = count[:, None] + np.arange(more.shape[1])
    wide[np.arange(len(pair))[:, None], place] = more
    return wide, count + more.shape[1]


def _pad(rows: np.ndarray, size: int, edge: int = 0) -> np.ndarray:
    """Lengthen axis 0 with copies of one row; row numbers become int32."""
    filler = np.repeat(rows[edge][None], size - len(rows), axis=0)
    padded = np.concatenate([rows, filler])
    return padded.astype(np.int32) if padded.dtype.kind == "i" else padded
