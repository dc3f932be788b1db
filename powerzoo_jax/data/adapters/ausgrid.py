"""Ausgrid zone substations: one row a substation and day, 96 quarter-hours, labels `00:15` ... `24:00`.

A label is the end of its interval on the civil clock of Sydney; `24:00` ends the same day.  Every row has 96 cells:
when the clock is put forward four of them are no time at all, when it is put back four stand for eight quarters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from pathlib import Path

import numpy as np

from powerzoo_jax.base.errors import DataError, listing, unknown
from powerzoo_jax.base.textfile import MAX_TABLE_MB
from powerzoo_jax.data.adapters.regular import FILL_MINUTES, Rows, check_magnitude, to_series
from powerzoo_jax.data.adapters.table import FileTable, Report, find_files, parse_stamp, read_table
from powerzoo_jax.data.clock import MINUTES_PER_DAY, check_year, civil_to_utc
from powerzoo_jax.data.series import Series

ZONE = "Australia/Sydney"
OFFSET_MINUTES = 600
STEP_MINUTES = 15
DATES = ("%Y-%m-%d", "%d/%m/%Y", "%d-%b-%Y", "%d %b %Y")
STATION, DATE, UNIT = "zone substation", "date", "unit"
LABELS = tuple(f"{m // 60:02d}:{m % 60:02d}" for m in range(STEP_MINUTES, MINUTES_PER_DAY + 1, STEP_MINUTES))
NO_TIME = -(2**63)  # instant of a cell that the spring clock change skips
DEMAND = "load.actual_mw"
LARGEST_MW = 500.0  # of one zone substation


def read_ausgrid(
    path: str | Path,
    *,
    stations: Sequence[str] | None = None,
    fill_minutes: int = FILL_MINUTES,
    max_mb: float | None = MAX_TABLE_MB,
) -> tuple[Series, Report]:
    """Read zone substations: (series, report); load.actual_mw is the sum of the chosen ones, all by default.

    With several substations each is a signal too.  A sum lacks a value where one substation does.
    Raises DataMissing without files, DataError for an unknown substation and for what cannot be read.
    """
    tables = [read_table(file, (STATION, DATE, UNIT, *LABELS)) for file in find_files(path, "*.csv", max_mb=max_mb)]
    read = sum(map(len, tables))
    active = [_active(table) for table in tables]
    names = _choose(active, stations)
    cells: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in names}
    for table in active:
        for name in set(map(str.strip, table.columns[STATION])) & set(names):
            own = table.keep(np.array([cell.strip() == name for cell in table.columns[STATION]]))
            days = own.convert((DATE,), _day)
            values = np.stack([own.numbers(label) for label in LABELS], axis=1)
            cells[name].append((np.stack([quarter_starts(day) for day in days.tolist()]).ravel(), values.ravel()))
    joined = {name: tuple(map(np.concatenate, zip(*parts, strict=True))) for name, parts in cells.items()}
    exists = {name: times != NO_TIME for name, (times, _) in joined.items()}
    skipped = sum(int((~exists[name] & ~np.isnan(values)).sum()) for name, (_, values) in joined.items())
    times = np.unique(np.concatenate([times[exists[name]] for name, (times, _) in joined.items()]))
    columns, twice = {}, 0
    for name, (when, values) in joined.items():
        row = np.searchsorted(times, when[exists[name]])
        twice += len(row) - len(np.unique(row))
        columns[_signal(name)] = np.full(len(times), np.nan)
        columns[_signal(name)][row] = values[exists[name]]
        check_magnitude("ausgrid", f"{name} [MW]", columns[_signal(name)], 0.0, LARGEST_MW)
    total = np.sum(list(columns.values()), axis=0)
    values_by_signal = {DEMAND: total} | (columns if len(columns) > 1 else {})
    rows = Rows(
        files=tuple(table.where for table in tables),
        time_utc=times,
        values=values_by_signal,
        units=dict.fromkeys(values_by_signal, "MW"),
        required=tuple(values_by_signal),
        read=read,
        dropped={
            "rows in another unit than MW": read - sum(map(len, active)),
            "cells of the hour that the spring clock change skips": skipped,
            "quarter-hours given twice, the last stays": twice,
        },
        notes=(
            f"{len(names)} substation(s): {listing(names)}. The hour that the autumn clock change doubles has one set "
            "of cells, read as its first pass.",
        ),
    )
    return to_series(
        "ausgrid",
        rows,
        title="Ausgrid zone substations, New South Wales",
        licence="CC-BY-4.0",
        region="AUSGRID",
        offset_minutes=OFFSET_MINUTES,
        civil_zone=ZONE,
        step_minutes=STEP_MINUTES,
        fill_minutes=fill_minutes,
    )


@lru_cache(maxsize=1024)
def quarter_starts(day: int) -> np.ndarray:
    """UTC starts (96,) [ns] of the cells of a civil day, given in days since 1970; NO_TIME where there is none."""
    midnight = parse_stamp("1970-01-01", DATES) + timedelta(days=day)
    starts = []
    for quarter in range(len(LABELS)):
        try:
            starts.append(civil_to_utc(midnight + timedelta(minutes=STEP_MINUTES * quarter), ZONE))
        except ValueError:
            starts.append(NO_TIME)
    return np.array(starts, np.int64)


def _day(text: str) -> int:
    """Days since 1970 of a civil date."""
    return int(np.datetime64(check_year(parse_stamp(text, DATES)), "D").astype(int))


def _active(table: FileTable) -> FileTable:
    """Rows in MW; some years also have reactive rows, which are left out."""
    active = np.array([cell.strip().upper() == "MW" for cell in table.columns[UNIT]])
    if not active.any():
        found = dict.fromkeys(cell.strip() for cell in table.columns[UNIT])
        raise DataError(f"{table.where} has no row in MW; its units are {listing(found)}. Download active power.")
    return table.keep(active)


def _choose(tables: Sequence[FileTable], stations: Sequence[str] | None) -> tuple[str, ...]:
    found = {cell.strip().lower(): cell.strip() for table in tables for cell in table.columns[STATION]}
    for name in stations or ():
        if name.lower() not in found:
            raise DataError(unknown("zone substation", name, found.values()))
    return tuple(found[name.lower()] for name in stations) if stations else tuple(sorted(found.values()))


def _signal(station: str) -> str:
    return f"load.{re.sub('[^a-z0-9]+', '_', station.lower()).strip('_')}_mw"
