"""The load and price tables of a feeder task: those of the data bank, and the columns that a family adds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from powerzoo_jax.data import Bank, build_bank, load_dataset
from powerzoo_jax.data.bank import LOAD_FIELDS
from powerzoo_jax.data.series import day_matrix
from powerzoo_jax.envs.series import CLOCK_FIELDS, INFER, OUTDOOR, PLANT, SHAPE, SHAPE_HI, SHAPE_LO, LoadColumns
from powerzoo_jax.families.feeder.tasks.settings import FeederSettings
from powerzoo_jax.tasks.site import Surroundings
from powerzoo_jax.tasks.spec import Shift

MINUTES_PER_HOUR, HOURS = 60, 24
FORECASTS = ("load_forecast", "price_forecast")
NOISE_SEED = 11  # of the errors of forecasts


@dataclass(frozen=True)
class Extra:
    """Columns of the load table beside those of the bank.

    forecast_steps:  load and price shown that many single steps ahead (None: prices by the hour)
    peak, offpeak:   clock hours of the flags; empty = no clock columns
    shapes:          load signals beside `load_column`
    plants:          signal of each plant, over its largest value
    site:            what a data centre meets beside load and price
    price_floor:     prices are raised to this in money, not in the signal that is shown
    price_fixed:     one price in money, the same at every step
    """

    forecast_steps: int | None = None
    peak: tuple[int, ...] = ()
    offpeak: tuple[int, ...] = ()
    shapes: tuple[str, ...] = ()
    plants: tuple[str, ...] = ()
    site: Surroundings | None = None
    price_floor: float | None = None
    price_fixed: float | None = None


def build_series(
    settings: FeederSettings, shift: Shift, minutes: int, horizon: int, extra: Extra
) -> tuple[Bank, LoadColumns, np.ndarray]:
    """The bank of the primary load and the price, names of the columns of its load table, and that table (R, F)."""

    def bank(column: str) -> Bank:
        floor = settings.min_load_ratio
        return build_bank(
            settings.load_set,
            column,
            settings.price_set,
            settings.price_column,
            minutes,
            shift.base,
            horizon,
            start_date=settings.start_date,
            end_date=settings.end_date,
            load_floor=None if floor is None else floor / settings.max_load_ratio,
            forecast_steps=extra.forecast_steps,
            augmentation=settings.augmentation,
        )

    first = bank(settings.load_column)
    if settings.forecast_noise_std:
        _blur(first, settings.forecast_noise_std)
    names, columns = list(first.load_fields), [first.load_rows]
    if extra.peak or extra.offpeak:
        names += CLOCK_FIELDS
        columns.append(_clock(len(first.load_rows), minutes, extra))
    more = [bank(column).load_rows for column in extra.shapes]
    for key, field in ((SHAPE, "load_factor"), (SHAPE_HI, "load_ahead_hi"), (SHAPE_LO, "load_ahead_lo")):
        names += [f"{key}_{k}" for k in range(1, len(more) + 1)]
        columns += [rows[:, LOAD_FIELDS.index(field)][:, None] for rows in more]
    names += [f"{PLANT}_{k}" for k in range(1, len(extra.plants) + 1)]
    columns += [_availability(settings, signal, minutes)[:, None] for signal in extra.plants]
    if extra.site is not None:
        days, _ = day_matrix(load_dataset(settings.load_set), settings.load_column, minutes)
        rows = extra.site.rows(days, minutes)
        names += [INFER, OUTDOOR]
        columns.append(np.append(rows, rows[-1:], axis=0))
    if extra.price_floor is not None:
        first.price_rows[:, 0] = np.maximum(first.price_rows[:, 0], extra.price_floor)
    if extra.price_fixed is not None:
        first.price_rows[:, 0] = extra.price_fixed
    return first, LoadColumns(tuple(names)), np.concatenate(columns, axis=1)


def _blur(bank: Bank, std: float) -> None:
    """Add an error of this standard deviation to every forecast of the tables; what is paid for stays as it is."""
    rng = np.random.default_rng(NOISE_SEED)
    for fields, rows in ((bank.load_fields, bank.load_rows), (bank.price_fields, bank.price_rows)):
        shown = [k for k, name in enumerate(fields) if name.rpartition("_")[0] in FORECASTS]
        rows[:, shown] += std * rng.standard_normal((len(rows), len(shown)))


def _clock(n_row: int, minutes: int, extra: Extra) -> np.ndarray:
    """CLOCK_FIELDS of every row (R, 4); rows begin at midnight."""
    minute = np.arange(n_row) * minutes % (HOURS * MINUTES_PER_HOUR)
    hour = minute // MINUTES_PER_HOUR
    flags = [np.isin(hour, extra.peak), np.isin(hour, extra.offpeak)]
    return np.stack([minute / (HOURS * MINUTES_PER_HOUR), hour / HOURS, *flags], axis=1)


def _availability(settings: FeederSettings, signal: str, minutes: int) -> np.ndarray:
    """Capacity factor of every row (R,): the profile over its largest value, the last row repeated."""
    data = load_dataset(settings.load_set)
    _, profile = day_matrix(data, signal, minutes)
    flat = np.clip(profile.reshape(-1) / data.divisor(signal), 0.0, 1.0)
    return np.append(flat, flat[-1])
