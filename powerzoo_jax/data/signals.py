"""Signals by canonical name, from the data sets that contain them, over chosen dates and at a chosen step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from powerzoo_jax.base.errors import DataError, listing, unknown
from powerzoo_jax.data.clock import local_days, steps_per_day
from powerzoo_jax.data.library import load_dataset
from powerzoo_jax.data.manifest import DATASETS
from powerzoo_jax.data.series import (
    EVENTS,
    Series,
    content_hash,
    find_signal,
    freeze,
    natural_way,
    refuse_events,
    refuse_missing,
    resample,
)
from powerzoo_jax.data.splits import window_days


def find_sources(signal: str, region: str | None = None) -> tuple[str, ...]:
    """Names of the bundled data sets, of one region or of all, that offer a signal by its canonical name.

    Raises ValueError for an unknown region and KeyError for a signal that nobody offers.
    """
    regions = {info.region for info in DATASETS.values()}
    if region is not None and region not in regions:
        raise ValueError(unknown("region", region, regions))
    offered = {s.name: None for info in DATASETS.values() for s in info.signals}
    if signal not in offered:
        raise KeyError(unknown("signal", signal, offered))
    return tuple(
        name
        for name, info in sorted(DATASETS.items())
        if region in (None, info.region) and any(s.name == signal for s in info.signals)
    )


def load_signals(
    signals: str | Sequence[str],
    *,
    source: str | Path | Series | None = None,
    region: str | None = None,
    start_date: str | None = None,
    end_date: str | None = None,
    step_minutes: int | None = None,
) -> Series:
    """Load signals of one source, over whole local standard days, at a step of 5, 15, 30 or 60 min.

    source:      name of a bundled set, path of a CSV file, or a series; None looks the signals up by name
    region:      restricts that search
    start_date, end_date:  ISO dates on the local standard clock of the source, both included; None = everything
    step_minutes:          None keeps the step of the source; coarser steps are means, finer ones hold prices and
                           interpolate the others

    The scaling constants stay those of all data, whatever the window.
    Raises ValueError when several sources offer a signal, listing them, or the window is unusable or lacks values
    (DataError); KeyError for a signal that the source lacks.

    Example:
        demand = load_signals("load.actual_mw", source="fr_2017_2019", start_date="2019-01-01", end_date="2019-01-07")
    """
    names = (signals,) if isinstance(signals, str) else tuple(signals)
    if not names:
        raise ValueError("no signal was asked for. Name at least one.")
    data = load_dataset(_only_source(names, region) if source is None else source)
    names = tuple(data.resolve(name) for name in names)
    time_utc, columns = data.time_utc, {name: data.column(name) for name in names}
    if step_minutes is not None:
        time_utc, columns = _at_step(data, names, step_minutes)
    kept = np.ones(len(time_utc), bool)
    if start_date is not None or end_date is not None:
        days = window_days(data, start_date, end_date)
        kept = np.isin(local_days(time_utc, data.meta.offset_minutes), days)
    window = _select(data, names, time_utc[kept], {name: v[kept] for name, v in columns.items()}, step_minutes)
    refuse_missing(window, names)
    return window


def _only_source(names: Sequence[str], region: str | None) -> str:
    offers = {name: find_sources(name, region) for name in names}
    common = set.intersection(*(set(found) for found in offers.values()))
    if len(common) == 1:
        return common.pop()
    lines = "; ".join(f"{name}: {', '.join(found) or 'no source of this region'}" for name, found in offers.items())
    if not common:
        raise ValueError(f"no source offers all of {listing(names)}. Load them one source at a time. {lines}.")
    raise ValueError(f"several sources offer {listing(names)}. Pass source=. {lines}.")


def _at_step(data: Series, names: Sequence[str], minutes: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    steps_per_day(minutes)
    refuse_events(data)
    columns = {}
    for name in names:
        time_utc, columns[name] = resample(
            data.time_utc, data.column(name), minutes, natural_way(data, name, minutes), data.meta.offset_minutes
        )
    return time_utc, columns


def _select(
    data: Series, names: Sequence[str], time_utc: np.ndarray, columns: dict[str, np.ndarray], minutes: int | None
) -> Series:
    if not len(time_utc):
        raise DataError(f"{data.meta.name} has no row in this window. Widen it.")
    frozen = {name: freeze(np.asarray(values, np.float32)) for name, values in columns.items()}
    fixed = (
        replace(find_signal(data.meta, name), reference=data.d_ref(name), lowest=data.d_min(name)) for name in names
    )
    step = data.meta.step_minutes if minutes is None else minutes
    time_utc = freeze(np.array(time_utc))
    meta = replace(
        data.meta,
        signals=tuple(fixed),
        default=names[0],
        step_minutes=step,
        scaling_minutes=0,  # the constants are fixed above
        sha256=content_hash({"time_utc": time_utc, **frozen}),
    )
    return Series(time_utc, frozen, meta, freeze(_rows_repaired(data, time_utc, step)))


def _rows_repaired(data: Series, time_utc: np.ndarray, minutes: int) -> np.ndarray:
    """Rows of another clock whose interval holds a repaired one, or lies in it."""
    if minutes == EVENTS or not len(data.repaired):
        return np.zeros(0, np.int64)
    longest = max(minutes, data.meta.step_minutes) * 60_000_000_000
    return np.flatnonzero(np.isin(time_utc // longest, data.time_utc[data.repaired] // longest))
