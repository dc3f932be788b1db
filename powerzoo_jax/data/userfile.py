"""A user's own series: CSV file or arrays in, `Series` out, or an error that names line, value and remedy."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from powerzoo_jax.base.errors import DataError, KindError, listing, unknown
from powerzoo_jax.base.ranges import as_numbers
from powerzoo_jax.base.textfile import MAX_TABLE_MB, require_file
from powerzoo_jax.data.adapters.regular import fill as fill_runs
from powerzoo_jax.data.adapters.regular import regular_clock
from powerzoo_jax.data.adapters.table import BLANKS, FileTable
from powerzoo_jax.data.clock import (
    MINUTE_NS,
    YEARS,
    convert_stamps,
    has_instant,
    instant_ns,
    is_skipped,
    standard_offset,
)
from powerzoo_jax.data.meterfile import DATE, TIME, read_meter_file, read_stamps
from powerzoo_jax.data.series import UNITS, Series, check_clock, is_price, make_series, refuse_missing
from powerzoo_jax.data.series import stamps as instants_as_text

HOUR_NS = 60 * MINUTE_NS
STAMPS = ("start", "end")
FILLS = {"interpolate": "by interpolation", "previous": "with the value before"}
# one zone of each rule of clock changes: what is regular on it is regular on the others of its rule
CLOCKS = ("Europe/Berlin", "Europe/London", "Europe/Athens", "America/New_York", "Australia/Sydney")
ENERGIES = ("load_kwh", "solar_kwh")  # of an interval
# header -> canonical signal, unit, factor to that unit (of energies: of their mean power over an hour)
COLUMNS = {
    "load_mw": ("load.actual_mw", "MW", 1.0),
    "load_kw": ("load.actual_mw", "MW", 1e-3),
    "load_kwh": ("load.actual_mw", "MW", 1e-3),
    "load_pu": ("load.profile_pu", "pu", 1.0),
    "solar_mw": ("solar.available_mw", "MW", 1.0),
    "solar_kw": ("solar.available_mw", "MW", 1e-3),
    "solar_kwh": ("solar.available_mw", "MW", 1e-3),
    "wind_mw": ("wind.available_mw", "MW", 1.0),
    "wind_kw": ("wind.available_mw", "MW", 1e-3),
    "price_per_mwh": ("price.day_ahead_per_mwh", "$/MWh", 1.0),
    "price_eur_per_mwh": ("price.day_ahead_per_mwh", "EUR/MWh", 1.0),
    "price_usd_per_mwh": ("price.day_ahead_per_mwh", "USD/MWh", 1.0),
    "price_gbp_per_mwh": ("price.day_ahead_per_mwh", "GBP/MWh", 1.0),
}


def read_csv(
    path: str | Path,
    *,
    zone: str = "UTC",
    columns: Mapping[str, str] | None = None,
    stamps: Literal["start", "end"] = "start",
    fill: Literal["interpolate", "previous"] | None = None,
    max_mb: float | None = MAX_TABLE_MB,
) -> Series:
    r"""Read a table of a meter, CSV or .xlsx: a column `time` and columns of `COLUMNS`, whose endings are their units.

    time:     stamp of each interval: ISO 8601, with an offset ("2023-01-01T00:00+01:00") or without one, or day, month
              and year as 31.01.2023 14:30, 31/01/2023 or 01/31/2023; beside a column `date`, the hour alone
    zone:     IANA zone of stamps without an offset, and of the local standard clock that days follow
    stamps:   whether they are starts of intervals, or their ends, as in 00:15 to 24:00
    columns:  names of the file -> those above, {"Timestamp": "time", "Import kWh": "load_kwh"}; others are left out
    fill:     what becomes of missing rows and blank cells: "interpolate" draws a line between the values beside a gap
              and holds prices, "previous" holds the value before; a warning says how many, `Series.repaired` which
              rows. None refuses them
    max_mb:   [MB] largest file that is read; None = any

    Columns are separated by commas, semicolons or tabs, and lines above the header passed over.  A comma in numbers is
    the decimal sign.  `load_kwh` and `solar_kwh` are the energy of an interval.  The text is UTF-8, or UTF-16 with its
    byte order mark; of a workbook (extra `excel`) the first sheet is read.
    Raises DataMissing when there is no such file and DataError, naming lines, for another encoding, a wrong header or
    unit, a bad stamp, a year outside 1678 to 2261, time that goes backwards, stamps that occur twice, a step that
    changes, a cell that is no number, and missing values that are not filled.

    Example:
        Path("my_load.csv").write_text("time;load_kw\n01.01.2023 00:00;1200,5\n01.01.2023 01:00;1100\n")
        load = read_csv("my_load.csv", zone="Europe/Madrid")
    """
    path = require_file(path, remedy="Check the path; the names of bundled sets carry no ending.")
    if fill not in (None, *FILLS):
        raise DataError(unknown("fill", fill, FILLS))
    if stamps not in STAMPS:
        raise DataError(unknown("stamps", stamps, STAMPS))
    table = read_meter_file(path, columns, max_mb)
    table, times, hint = _instants(table, zone, stamps == "end")
    columns_read, units, headers = _columns(path.name, table)
    try:
        check_clock(path.name, times, table.lines)
        clock, row = regular_clock(path.name, times)
    except DataError as err:
        raise DataError(f"{err}{hint}") from err
    values = {name: np.full(len(clock), np.nan) for name in columns_read}
    for name, column in columns_read.items():
        values[name][row] = column * (HOUR_NS / (clock[1] - clock[0]) if headers[name] in ENERGIES else 1.0)
    lacking = np.any([np.isnan(column) for column in values.values()], axis=0)
    if lacking.any() and not any(np.isnan(column).all() for column in values.values()):
        told = _gaps(table, clock, row, lacking, list(headers.values())) + hint
        if fill is None:
            raise DataError(f"{told} Complete the file, or let read_csv fill it: fill='interpolate' or 'previous'.")
        values = {name: fill_runs(x, len(x), fill == "previous" or is_price(name)) for name, x in values.items()}
        if any(np.isnan(x).any() for x in values.values()):
            raise DataError(f"{told} At the ends of the file there is no value on one side: leave these rows out.")
        warnings.warn(f"{told} Filled {FILLS[fill]}.", stacklevel=2)
    year = np.datetime64(int(clock[0]), "ns").astype("datetime64[Y]").astype(int) + 1970
    return make_series(
        path.name,
        clock,
        values,
        units,
        headers=headers,
        offset_minutes=standard_offset(zone, int(year)),
        title=f"user's file {path.name}",
        licence="the user's",
        civil_zone=zone,
        currency_note="Prices are read as $, one to one." if any("MWh" in unit for unit in units.values()) else "",
        repaired=np.flatnonzero(lacking),
    )


def series_from_arrays(
    name: str,
    columns: Mapping[str, ArrayLike],
    *,
    start: str,
    step_minutes: int,
    zone: str = "UTC",
) -> Series:
    """Make a series of arrays, such as those that a reader of networks gives beside the case.

    columns:       name -> (T,) values; a name of `COLUMNS`, or one that says its unit, such as "load.homes_pu"
    start:         ISO 8601 start of the first interval, on the clock of `zone` where it has no offset
    step_minutes:  of all columns; whole days of 24 hours are what tasks draw from
    zone:          IANA zone of the local standard clock that days follow

    The first column is the default signal. Raises DataError for an unknown name, a bad stamp or step, and what
    `make_series` refuses.

    Example:
        load = series_from_arrays("mine", {"load_mw": [1.2, 1.1]}, start="2023-01-01", step_minutes=60)
    """
    if step_minutes < 1 or step_minutes != int(step_minutes):
        raise DataError(f"{name}: step_minutes = {step_minutes} is no whole number of minutes. Resample the arrays.")
    values: dict[str, np.ndarray] = {}
    units: dict[str, str] = {}
    for column, given in columns.items():
        signal, unit, factor = COLUMNS.get(column) or _named(name, column)
        if signal in values:
            raise DataError(f"{name} gives {signal} twice. Keep one of its columns.")
        try:
            values[signal] = as_numbers(column, given).astype(np.float64) * factor
        except KindError as err:
            raise DataError(f"{name}: {err}") from err
        units[signal] = unit
    rows = len(next(iter(values.values()))) if values else 0
    try:
        first = datetime.fromisoformat(start)
        begin = int(convert_stamps([first], zone)[0]) if first.tzinfo is None else instant_ns(first)
    except ValueError as err:
        raise DataError(f"{name}: start = {start!r}: {err} Give it as 2023-01-01T00:00 (+01:00).") from err
    series = make_series(
        name,
        begin + int(step_minutes) * MINUTE_NS * np.arange(rows, dtype=np.int64),
        values,
        units,
        headers={COLUMNS[column][0]: column for column in columns if column in COLUMNS},
        offset_minutes=standard_offset(zone, first.year),
        title=f"user's arrays {name}",
        licence="the user's",
        civil_zone=zone,
    )
    refuse_missing(series, values)
    return series


def _named(name: str, column: str) -> tuple[str, str, float]:
    """Signal, unit and factor of a column that is named as the bundled ones are, `<kind>.<what>_<unit>`."""
    endings = [ending for ending in UNITS if column.endswith(ending)]
    if "." not in column or not endings:
        raise DataError(f"{name}: {unknown('column', column, COLUMNS)} Or name it as load.homes_pu, with its unit.")
    return column, UNITS[max(endings, key=len)][-1], 1.0


def _columns(name: str, table: FileTable) -> tuple[dict[str, np.ndarray], dict[str, str], dict[str, str]]:
    """Values, unit and header of each signal."""
    columns: dict[str, np.ndarray] = {}
    units: dict[str, str] = {}
    headers: dict[str, str] = {}
    for header in table.columns:
        if header in (TIME, DATE):
            continue
        if header not in COLUMNS:
            raise DataError(f"{name}: {unknown('column', header, COLUMNS)} The ending is the unit of the values.")
        signal, unit, factor = COLUMNS[header]
        if signal in columns:
            raise DataError(f"{name} gives {signal} twice. Keep one of its columns.")
        columns[signal], units[signal], headers[signal] = table.numbers(header) * factor, unit, header
    if not columns:
        raise DataError(f"{name} has no column beside {TIME!r}. Valid: {', '.join(COLUMNS)}.")
    return columns, units, headers


def _instants(table: FileTable, zone: str, ends: bool) -> tuple[FileTable, np.ndarray, str]:
    """The table without blank rows of an hour that the clock skips, its instants [ns], and a zone to propose.

    ends:  the stamps are ends of intervals, whose starts are the instants. Where the clock changes, an interval ends
           by the new clock or by the old one (03:00 or 02:00 in spring): whichever makes the more regular steps
    """
    stamps = read_stamps(table, ends)
    far = [row for row, stamp in enumerate(stamps) if not has_instant(stamp)]
    if far:
        where = listing(f"line {table.lines[row]} {table.columns[TIME][row].strip()!r}" for row in far)
        raise DataError(f"{table.where}: {where} is outside the years {YEARS[0]} to {YEARS[1]}. Correct the year.")
    aware = {stamp.tzinfo is not None for stamp in stamps}
    if len(aware) == 2:
        raise DataError(f"{table.where}: some stamps have an offset from UTC and some have none. Use one kind.")
    if aware == {True}:
        times = np.array([instant_ns(stamp) for stamp in stamps], np.int64)
        return table, _a_step_before(times) if ends else times, ""
    if ends and len(stamps) > 1:
        step = sorted(b - a for a, b in pairwise(stamps))[len(stamps) // 2]
        begun = [stamp - step for stamp in stamps]
        if _irregular(begun, zone) <= _irregular(stamps, zone):
            stamps, ends = begun, False
    try:
        skipped = np.array([is_skipped(stamp, zone) for stamp in stamps])
    except ValueError as err:
        raise DataError(f"{table.where}: {err}") from err
    cells = [column for name, column in table.columns.items() if name not in (TIME, DATE)]
    full = [i for i in np.flatnonzero(skipped) if any(column[i].strip().lower() not in BLANKS for column in cells)]
    if full:
        where = listing(f"line {table.lines[i]} ({stamps[i]:%Y-%m-%d %H:%M})" for i in full)
        raise DataError(
            f"{table.where}: {where} does not exist in {zone}: the clock was put forward over it. Remove these rows, "
            "or give the zone of the stamps."
        )
    kept = table.keep(~skipped) if skipped.any() else table
    walls = [stamp for stamp, gone in zip(stamps, skipped, strict=True) if not gone]
    times = convert_stamps(walls, zone)
    return kept, _a_step_before(times) if ends else times, _likely_zone(walls, zone)


def _a_step_before(times: np.ndarray) -> np.ndarray:
    return times - int(np.median(np.diff(times))) if len(times) > 1 else times


def _irregular(walls: Sequence[datetime], zone: str) -> int:
    """Number of steps unlike the usual one, of stamps on the clock of a zone."""
    try:
        steps = np.diff(convert_stamps(walls, zone))
    except ValueError:  # an hour that this clock skips, or a system without zones
        return len(walls)
    return int((steps != np.median(steps)).sum())


def _likely_zone(walls: Sequence[datetime], zone: str) -> str:
    """Sentence that proposes a zone on whose clock stamps are more regular than as they were read; "" for none."""
    if zone != "UTC" or len(walls) < 2 or not (here := _irregular(walls, zone)):
        return ""
    best = min(CLOCKS, key=lambda name: _irregular(walls, name))
    if _irregular(walls, best) >= here:
        return ""
    return f" The stamps follow a clock that changes in spring and autumn: give its zone, such as zone={best!r}."


def _gaps(table: FileTable, clock: np.ndarray, row: np.ndarray, lacking: np.ndarray, headers: Sequence[str]) -> str:
    """Sentence that counts the steps without a value, and names the longest gaps by line and instant."""
    edges = np.diff(np.concatenate([[0], lacking.astype(np.int8), [0]]))
    starts, lengths = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1)
    order = np.argsort(-lengths, kind="stable")
    hours = lengths[order] * (clock[1] - clock[0]) / HOUR_NS
    first = instants_as_text(clock[starts[order]])
    lines = np.array(table.lines)[np.minimum(np.searchsorted(row, starts[order]), len(row) - 1)]
    shown = listing(f"{h:g} h from {at} UTC (line {line})" for h, at, line in zip(hours, first, lines, strict=True))
    gaps = "1 gap" if len(starts) == 1 else f"{len(starts)} gaps"
    return f"{table.where}: {listing(headers)} lacks {int(lacking.sum())} of {len(clock)} values, in {gaps}: {shown}."
