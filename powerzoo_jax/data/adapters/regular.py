"""Regular series from rows with time stamps, with counts of missing and repaired steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from powerzoo_jax.base.errors import DataError, listing
from powerzoo_jax.data.adapters.table import Report
from powerzoo_jax.data.clock import MINUTE_NS
from powerzoo_jax.data.series import Series, is_price, make_series, stamps

FILL_MINUTES = 120  # gaps up to this long are filled; longer ones stay NaN
SPARSEST = 0.5  # share of the steps that files must hold; below it a stamp or the step was misread


@dataclass(frozen=True)
class Rows:
    """Rows read by an adapter: one row an instant, in the order of the files.

    files:     names of the files
    time_utc:  (R,)  int64 [ns]  start of each interval
    values:    canonical signal -> (R,) float64, NaN where blank; the first is the default signal
    units:     canonical signal -> unit
    required:  signals that must hold a number somewhere; others without any are left out
    read:      rows of the files, before any was left out
    dropped:   reason -> number of rows or values left out
    notes:     what the numbers mean
    """

    files: tuple[str, ...]
    time_utc: np.ndarray
    values: Mapping[str, np.ndarray]
    units: Mapping[str, str]
    required: tuple[str, ...]
    read: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def to_series(
    source: str,
    rows: Rows,
    *,
    title: str,
    licence: str,
    region: str,
    offset_minutes: int,
    civil_zone: str,
    step_minutes: int | None = None,
    fill_minutes: int = FILL_MINUTES,
) -> tuple[Series, Report]:
    """Place rows on one regular UTC clock, fill short gaps, and report both.

    Of rows with one instant the last number stays.  Gaps up to fill_minutes are filled: prices hold their last
    value, everything else is interpolated; longer gaps, and gaps at the ends, stay NaN.  The step is the most
    frequent difference of instants unless given.
    Raises DataError when nothing is left, for stamps off the clock, for files that hold less than half of the
    steps that they span, and for a required signal without a number.
    """
    if len(np.unique(rows.time_utc)) < 2:
        found = len(np.unique(rows.time_utc))
        raise DataError(f"{source}: {found} usable instant(s) in {listing(rows.files)}. Give at least two.")
    clock, row = regular_clock(source, rows.time_utc, step_minutes)
    table, superseded = _place(rows.values, row, len(clock))
    empty = [name for name, column in table.items() if np.isnan(column).all()]
    lost = [name for name in empty if name in rows.required]
    if lost or len(empty) == len(table):
        what = listing(lost or empty)
        raise DataError(f"{source}: {what} holds no number in {listing(rows.files)}. Check header, unit and cells.")
    table = {name: column for name, column in table.items() if name not in empty}
    step = int(clock[1] - clock[0]) // MINUTE_NS
    missing = np.any([np.isnan(column) for column in table.values()], axis=0)
    filled = {name: fill(column, fill_minutes // step, is_price(name)) for name, column in table.items()}
    left = np.any([np.isnan(column) for column in filled.values()], axis=0)
    repaired = np.any([np.isnan(table[name]) & ~np.isnan(filled[name]) for name in filled], axis=0)
    notes = (*rows.notes, *((f"No number at all, left out: {listing(empty)}.",) if empty else ()))
    if left.any():
        notes = (*notes, f"Without a value stay {int(left.sum())} steps ({listing(stamps(clock[left]))} UTC).")
    report = Report(
        source=source,
        files=rows.files,
        rows=rows.read,
        steps=len(clock),
        missing=int(missing.sum()),
        duplicated=len(row) - len(np.unique(row)),
        superseded=superseded,
        unordered=int((np.diff(rows.time_utc) < 0).sum()),
        repaired=int(repaired.sum()),
        dropped=rows.dropped,
        notes=notes,
    )
    units = {name: rows.units[name] for name in filled}
    series = make_series(
        source,
        clock,
        filled,
        units,
        offset_minutes=offset_minutes,
        title=title,
        licence=licence,
        civil_zone=civil_zone,
        region=region,
        repaired=np.flatnonzero(repaired),
    )
    return series, report


def common_step(time_utc: np.ndarray) -> int:
    """Most frequent difference [min] of instants; 0 when there is only one."""
    differences, counts = np.unique(np.diff(np.unique(time_utc)), return_counts=True)
    return int(differences[np.argmax(counts)]) // MINUTE_NS if len(counts) else 0


def regular_clock(source: str, time_utc: np.ndarray, step_minutes: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Regular clock (T,) over all instants, and the step (R,) of each of them."""
    step = (step_minutes or common_step(time_utc)) * MINUTE_NS
    first = time_utc.min()
    off = (time_utc - first) % step != 0
    if off.any():
        raise DataError(
            f"{source}: {listing(stamps(time_utc[off]))} UTC do not fall on steps of {step // MINUTE_NS} min. "
            "Check the stamps, and read files of different steps one by one."
        )
    row = (time_utc - first) // step
    count = int(row.max()) + 1
    known = len(np.unique(row))
    if known < SPARSEST * count:
        ends = " to ".join(stamps(np.array([first, time_utc.max()])))
        raise DataError(
            f"{source}: only {known} of the {count} steps of {ends} UTC are there. Look for a wrong date or step."
        )
    return first + step * np.arange(count, dtype=np.int64), row


def _place(values: Mapping[str, np.ndarray], row: np.ndarray, count: int) -> tuple[dict[str, np.ndarray], int]:
    """Columns (T,) with the last number of each step, and the number of rows that contradict it."""
    table, differs = {}, np.zeros(len(row), bool)
    for name, column in values.items():
        known = ~np.isnan(column)
        table[name] = np.full(count, np.nan)
        table[name][row[known]] = column[known]
        differs |= known & (column != table[name][row])
    return table, int(differs.sum())


def fill(values: np.ndarray, longest: int, hold: bool) -> np.ndarray:
    """Fill inner runs of NaN of at most `longest` steps: by the last value when `hold`, else linearly."""
    bad = np.isnan(values)
    if not bad.any() or bad.all():
        return values
    edges = np.diff(np.concatenate([[0], bad.astype(np.int8), [0]]))
    out = values.copy()
    for start, stop in zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1), strict=True):
        if start > 0 and stop < len(values) and stop - start <= longest:
            gap = np.arange(start, stop)
            ends = [start - 1, stop]
            out[gap] = values[start - 1] if hold else np.interp(gap, ends, values[ends])
    return out


def check_magnitude(source: str, name: str, values: Sequence[float] | np.ndarray, low: float, high: float) -> None:
    """Refuse a signal whose median magnitude lies outside plausible bounds: it is in another unit."""
    known = np.abs(np.asarray(values, np.float64))
    known = known[~np.isnan(known)]
    if len(known) and not low <= np.median(known) <= high:
        raise DataError(
            f"{source}: the median of {name} is {np.median(known):g}, expected {low:g} to {high:g}. "
            "Convert it to the unit of the official file."
        )
