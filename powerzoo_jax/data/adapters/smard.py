"""SMARD (Bundesnetzagentur): day-ahead prices, `;`-separated English exports on the civil clock of Berlin.

The hour that the spring change skips is absent, the one that autumn doubles stands there twice: only the order of
the rows tells its two passes apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import numpy as np

from powerzoo_jax.base.errors import DataError, listing, unknown
from powerzoo_jax.base.textfile import MAX_TABLE_MB, open_text
from powerzoo_jax.data.adapters.regular import FILL_MINUTES, Rows, to_series
from powerzoo_jax.data.adapters.table import FileTable, Report, find_files, parse_stamp, read_table
from powerzoo_jax.data.clock import civil_to_utc
from powerzoo_jax.data.series import Series, stamps

ZONE = "Europe/Berlin"
STAMPS = ("%b %d, %Y %I:%M %p", "%d.%m.%Y %H:%M", "%Y-%m-%d %H:%M", "%m/%d/%Y %I:%M %p", "%m/%d/%y %I:%M %p")
PRICE = "price.day_ahead_per_mwh"
# The German zone lost Austria on 1 October 2018: never both at one time.
GERMAN_ZONES = ("germany/austria/luxembourg", "germany/luxembourg")
UNITS = ("€/mwh", "eur/mwh")
THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")


def read_smard(
    path: str | Path, *, zone: str | None = None, fill_minutes: int = FILL_MINUTES, max_mb: float | None = MAX_TABLE_MB
) -> tuple[Series, Report]:
    """Read the day-ahead price of a bidding zone: (series, report); by default Germany's, its two zones joined.

    Raises DataMissing without files, DataError for an unknown zone, a wrong unit, rows out of order, two prices
    at one time and for what cannot be read.
    """
    files, times, prices = find_files(path, "*.csv", max_mb=max_mb), [], []
    for file in files:
        with open_text(file) as stream:
            newer = "start date" in stream.readline().lower()
        table = read_table(file, ("Start date",) if newer else ("Date", "Time of day"), ";")
        times.append(_instants(table, ("start date",) if newer else ("date", "time of day")))
        prices.append(_prices(table, zone))
    price = np.concatenate(prices)
    rows = Rows(
        files=tuple(file.name for file in files),
        time_utc=np.concatenate(times),
        values={PRICE: price},
        units={PRICE: "EUR/MWh"},
        required=(PRICE,),
        read=len(price),
        notes=(f"Zone {zone or 'Germany (with Austria to 30 September 2018) and Luxembourg'}.",),
    )
    return to_series(
        "smard",
        rows,
        title="SMARD day-ahead price",
        licence="CC-BY-4.0",
        region=zone or "DE",
        offset_minutes=60,
        civil_zone=ZONE,
        fill_minutes=fill_minutes,
    )


def _instants(table: FileTable, names: Sequence[str]) -> np.ndarray:
    seen: set[datetime] = set()

    def instant(*cells: str) -> int:
        wall = parse_stamp(" ".join(cells), STAMPS)
        found = civil_to_utc(wall, ZONE, repeated=wall in seen)
        seen.add(wall)
        return found

    times = table.convert(names, instant)
    back = np.flatnonzero(np.diff(times) < 0) + 1
    if len(back):
        raise DataError(
            f"{table.at(int(back[0]))}: time goes backwards to {stamps(times[back])[0]} UTC. "
            "Restore the order of the export: it alone tells the two passes of the doubled hour apart."
        )
    return times


def _prices(table: FileTable, zone: str | None) -> np.ndarray:
    """Prices (R,) of a zone, or of whichever German zone has one."""
    zones = {}
    for column in table.columns:
        match = re.match(r"(.+?)\s*\[([^\]]*)\]", column)
        if match:
            zones[match[1]] = (column, match[2].replace(" ", ""))
    wanted = [zone.lower()] if zone else [name for name in GERMAN_ZONES if name in zones]
    if not wanted or wanted[0] not in zones:
        raise DataError(f"{table.where}: {unknown('bidding zone', zone or 'Germany/Luxembourg', zones)}")
    found = []
    for name in wanted:
        column, unit = zones[name]
        if unit not in UNITS:
            raise DataError(f"{table.where}: {name} is in {unit!r}. Export day-ahead prices in EUR/MWh.")
        plain = [c.replace(",", "") if THOUSANDS.fullmatch(c.strip()) else c for c in table.columns[column]]
        found.append(FileTable(table.where, table.lines, {column: plain}).numbers(column))
    known = ~np.isnan(found)
    both = np.flatnonzero(known.sum(axis=0) > 1)
    if len(both):
        where = listing(table.at(int(row)) for row in both)
        raise DataError(f"{where}: two zones of Germany have a price at one time. Choose one by zone=.")
    return np.where(known.any(axis=0), np.nansum(found, axis=0), np.nan)
