"""A user's own series: CSV file or arrays in, `Series` out, or an error that names line, value and remedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from powerzoo_jax.base.errors import DataError, KindError, listing, unknown
from powerzoo_jax.base.ranges import as_numbers
from powerzoo_jax.base.textfile import MAX_TABLE_MB, open_text, require_file
from powerzoo_jax.data.adapters.table import FileTable, read_table, short_lines
from powerzoo_jax.data.clock import MINUTE_NS, YEARS, convert_stamps, has_instant, instant_ns, standard_offset
from powerzoo_jax.data.series import UNITS, Series, make_series, refuse_missing

TIME = "time"
# header -> canonical signal, unit, factor to that unit
COLUMNS = {
    "load_mw": ("load.actual_mw", "MW", 1.0),
    "load_kw": ("load.actual_mw", "MW", 1e-3),
    "load_pu": ("load.profile_pu", "pu", 1.0),
    "solar_mw": ("solar.available_mw", "MW", 1.0),
    "solar_kw": ("solar.available_mw", "MW", 1e-3),
    "wind_mw": ("wind.available_mw", "MW", 1.0),
    "wind_kw": ("wind.available_mw", "MW", 1e-3),
    "price_per_mwh": ("price.day_ahead_per_mwh", "$/MWh", 1.0),
    "price_eur_per_mwh": ("price.day_ahead_per_mwh", "EUR/MWh", 1.0),
    "price_usd_per_mwh": ("price.day_ahead_per_mwh", "USD/MWh", 1.0),
    "price_gbp_per_mwh": ("price.day_ahead_per_mwh", "GBP/MWh", 1.0),
}


def read_csv(path: str | Path, *, zone: str = "UTC", max_mb: float | None = MAX_TABLE_MB) -> Series:
    r"""Read a CSV file with a column `time` and columns of `COLUMNS`, whose endings are their units.

    time:  ISO 8601 start of each interval, with an offset ("2023-01-01T00:00+01:00") or without one
    zone:  IANA zone of stamps without an offset, and of the local standard clock that days follow
    max_mb:  [MB] largest file that is read; None = any

    Columns are separated by commas or tabs.  The text is UTF-8, or UTF-16 with its byte order mark.
    The steps must be equal and complete.  Raises DataMissing when there is no such file and DataError for another
    encoding, a wrong header or unit, a bad stamp, a year outside 1678 to 2261, time that goes backwards, duplicated or
    missing stamps, a cell that is no number, or a column with missing values.

    Example:
        Path("my_load.csv").write_text("time,load_mw\n2023-01-01T00:00,1.2\n2023-01-01T01:00,1.1\n")
        load = read_csv("my_load.csv", zone="Europe/Madrid")
    """
    path = require_file(path, remedy="Check the path; the names of bundled sets carry no ending.")
    table = read_table(path, (TIME,), _delimiter(path), max_mb=max_mb)
    columns, units, headers = _columns(path.name, table)
    times = _instants(table, zone)
    year = np.datetime64(int(times[0]), "ns").astype("datetime64[Y]").astype(int) + 1970
    series = make_series(
        path.name,
        times,
        columns,
        units,
        headers=headers,
        offset_minutes=standard_offset(zone, int(year)),
        title=f"user's file {path.name}",
        licence="the user's",
        civil_zone=zone,
        currency_note="Prices are read as $, one to one." if any("MWh" in unit for unit in units.values()) else "",
    )
    refuse_missing(series, columns)
    return series


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


def _delimiter(path: Path) -> str:
    """Delimiter of the columns; raises for semicolons, whose decimal sign is the comma, and for a column twice."""
    with open_text(path) as file:
        header = next(short_lines(path, file), "")
    if ";" in header and "," not in header:
        raise DataError(
            f"{path.name} is separated by semicolons. Save it with commas between columns and points in numbers."
        )
    delimiter = "\t" if "\t" in header and "," not in header else ","
    names = [cell.strip().strip('"').lower() for cell in header.split(delimiter)]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{path.name} has the column {listing(twice)} twice. Keep one of them.")
    return delimiter


def _columns(name: str, table: FileTable) -> tuple[dict[str, np.ndarray], dict[str, str], dict[str, str]]:
    """Values, unit and header of each signal."""
    columns: dict[str, np.ndarray] = {}
    units: dict[str, str] = {}
    headers: dict[str, str] = {}
    for header in table.columns:
        if header == TIME:
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


def _instants(table: FileTable, zone: str) -> np.ndarray:
    stamps, wrong = [], []
    for row, cell in enumerate(table.columns[TIME]):
        try:
            stamps.append(datetime.fromisoformat(cell.strip()))
        except ValueError:
            wrong.append(f"line {table.lines[row]} {cell!r}")
    if wrong:
        raise DataError(f"{table.where}: {listing(wrong)} is no ISO 8601 time. Write 2023-01-31T14:30 (+01:00).")
    far = [row for row, stamp in enumerate(stamps) if not has_instant(stamp)]
    if far:
        where = listing(f"line {table.lines[row]} {table.columns[TIME][row].strip()!r}" for row in far)
        raise DataError(f"{table.where}: {where} is outside the years {YEARS[0]} to {YEARS[1]}. Correct the year.")
    aware = {stamp.tzinfo is not None for stamp in stamps}
    if len(aware) == 2:
        raise DataError(f"{table.where}: some stamps have an offset from UTC and some have none. Use one kind.")
    if aware == {True}:
        return np.array([instant_ns(stamp) for stamp in stamps], np.int64)
    try:
        return convert_stamps(stamps, zone)
    except ValueError as err:
        raise DataError(f"{table.where}: {err} Give the zone of the stamps, or write their offset.") from err
