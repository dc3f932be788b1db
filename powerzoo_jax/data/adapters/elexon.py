"""Elexon BMRS: generation by fuel (FUELHH, or the endpoint per type) and market index prices (MID), half-hourly.

Bodies are CSV in PascalCase, or JSON in camelCase: a list of records or `{"data": [...]}`.  startTime is UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import DataError
from powerzoo_jax.base.textfile import MAX_TABLE_MB, read_json
from powerzoo_jax.data.adapters.regular import FILL_MINUTES, Rows, to_series
from powerzoo_jax.data.adapters.table import FileTable, Report, find_files, period_start, read_table, to_table
from powerzoo_jax.data.clock import instant_ns
from powerzoo_jax.data.series import Series

ZONE = "Europe/London"
DATES = ("%Y-%m-%d", "%d/%m/%Y", "%Y-%m-%dT%H:%M:%SZ")
START, DATE, PERIOD, PUBLISHED = "starttime", "settlementdate", "settlementperiod", "publishtime"
PRICE, VOLUME = "price.market_index_per_mwh", "volume.market_index_mwh"
MAY_BE_NEGATIVE = ("ps", "int", "hydro pumped")  # pumping, exports; station load below a megawatt is no error either
STATION_LOAD_MW = -500.0


def read_elexon_fuelhh(
    path: str | Path, *, fill_minutes: int = FILL_MINUTES, max_mb: float | None = MAX_TABLE_MB
) -> tuple[Series, Report]:
    """Read generation by fuel: (series, report), one signal a fuel.

    Of several records of one fuel and half-hour the one published last stays.  FUELHH holds no solar.
    Raises DataMissing without files, DataError for what cannot be read.
    """
    tables = [_records(file, ("fuelType", "generation")) for file in find_files(path, "*.csv", "*.json", max_mb=max_mb)]
    cells: dict[tuple[int, str], tuple[str, float]] = {}
    again = 0
    for table in tables:
        values = table.numbers("generation")
        published = table.columns.get(PUBLISHED, [""] * len(table))
        for i, instant in enumerate(_instants(table).tolist()):
            name = _fuel_signal(table, i, values[i])
            old = cells.get((instant, name))
            again += old is not None
            if old is None or published[i] >= old[0]:
                cells[instant, name] = (published[i], float(values[i]))
    instants = list(dict.fromkeys(instant for instant, _ in cells))
    names = sorted({name for _, name in cells})
    nothing = ("", np.nan)
    columns = {name: np.array([cells.get((t, name), nothing)[1] for t in instants]) for name in names}
    rows = Rows(
        files=tuple(table.where for table in tables),
        time_utc=np.array(instants, np.int64),
        values=columns,
        units=dict.fromkeys(names, "MW"),
        required=(),
        read=sum(map(len, tables)),
        dropped={"records of a fuel and half-hour that another record, published last, replaces": again},
        notes=("Metered output of units connected to the transmission system; imports positive.",),
    )
    return _series("elexon_fuelhh", "Elexon generation by fuel, Great Britain", rows, fill_minutes)


def read_elexon_mid(
    path: str | Path, *, fill_minutes: int = FILL_MINUTES, max_mb: float | None = MAX_TABLE_MB
) -> tuple[Series, Report]:
    """Read market index prices: (series, report).

    price = sum(price volume) / sum(volume) over the providers with volume > 0: a provider without trades states
    0 at 0 MWh, which is no price.  Half-hours without any trade are missing.  Negative prices are legal.
    Raises DataMissing without files, DataError for what cannot be read.
    """
    tables = [
        _records(file, ("dataProvider", "price", "volume"))
        for file in find_files(path, "*.csv", "*.json", max_mb=max_mb)
    ]
    trades: dict[int, dict[str, tuple[float, float]]] = {}
    idle = twice = 0
    for table in tables:
        prices, volumes = table.numbers("price"), table.numbers("volume")
        if np.any(volumes < 0):
            raise DataError(f"{table.at(int(np.argmin(volumes)))}: a volume is negative. Check the column order.")
        for i, instant in enumerate(_instants(table).tolist()):
            offers = trades.setdefault(instant, {})
            provider = table.columns["dataprovider"][i]
            twice += provider in offers
            idle += not volumes[i] > 0
            offers[provider] = (prices[i], volumes[i])
    values = np.array([_weighted(offers) for offers in trades.values()]).reshape(-1, 2)
    rows = Rows(
        files=tuple(table.where for table in tables),
        time_utc=np.array(list(trades), np.int64),
        values={PRICE: values[:, 0], VOLUME: values[:, 1]},
        units={PRICE: "GBP/MWh", VOLUME: "MWh"},
        required=(PRICE,),
        read=sum(map(len, tables)),
        dropped={"records without volume": idle, "records of one provider and half-hour, the last stays": twice},
        notes=("Mean over the providers that traded, weighted with volume.",),
    )
    return _series("elexon_mid", "Elexon market index price, Great Britain", rows, fill_minutes)


def _weighted(offers: dict[str, tuple[float, float]]) -> tuple[float, float]:
    traded = [(price, volume) for price, volume in offers.values() if volume > 0 and not np.isnan(price)]
    total = sum(volume for _, volume in traded)
    return (sum(price * volume for price, volume in traded) / total if traded else np.nan), total


def _series(source: str, title: str, rows: Rows, fill_minutes: int) -> tuple[Series, Report]:
    return to_series(
        source,
        rows,
        title=title,
        licence="contains BMRS data (c) Elexon Limited copyright and database right",
        region="GB",
        offset_minutes=0,
        civil_zone=ZONE,
        step_minutes=30,
        fill_minutes=fill_minutes,
    )


def _fuel_signal(table: FileTable, row: int, value: float) -> str:
    fuel = table.columns["fueltype"][row].strip().lower()
    if not fuel:
        raise DataError(f"{table.at(row)} names no fuel. Download the file again.")
    if value < STATION_LOAD_MW and not fuel.startswith(MAY_BE_NEGATIVE):
        raise DataError(f"{table.at(row)}: {fuel.upper()} generates {value:g} MW. Only PS and INT* may be negative.")
    return f"generation.{re.sub('[^a-z0-9]+', '_', fuel).strip('_')}_metered_mw"


def _instants(table: FileTable) -> np.ndarray:
    """UTC starts (R,) [ns] from startTime, settlement date and period, or both, which must agree."""
    has_start = START in table.columns
    if not (has_start or {DATE, PERIOD} <= set(table.columns)):
        raise DataError(f"{table.where} has neither startTime nor settlementDate and settlementPeriod. Add either.")
    if not {DATE, PERIOD} <= set(table.columns):
        return table.convert((START,), _utc)
    periods = table.convert((DATE, PERIOD), lambda date, period: period_start(date, period, DATES, ZONE))
    if has_start:
        wrong = np.flatnonzero(table.convert((START,), _utc) != periods)
        if len(wrong):
            raise DataError(
                f"{table.at(int(wrong[0]))}: startTime is not the start of its settlement period in {ZONE} "
                f"({len(wrong)} rows). Restore startTime to UTC."
            )
    return periods


@lru_cache(maxsize=4096)
def _utc(text: str) -> int:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"startTime is {text!r}, not an ISO instant.") from None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return instant_ns(instant)


def _records(path: Path, required: tuple[str, ...]) -> FileTable:
    """Records of a CSV or JSON body, with lower-case column names."""
    if path.suffix.lower() == ".csv":
        return read_table(path, required)
    body = read_json(path, DataError, "Download it again.", max_mb=None)  # `find_files` has looked at the size
    records = body.get("data") if isinstance(body, dict) else body
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise DataError(f"{path.name} is neither a list of records nor {{'data': [...]}}. Save the whole body.")
    return to_table(path.name, [row for record in records for row in _flatten(record)], required)


def _flatten(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Flat records: the endpoint per type nests one quantity per fuel, FUELHH records are flat already."""
    nested = record.get("data")
    if not isinstance(nested, list) or not all(isinstance(item, dict) for item in nested):
        return [record]
    common = {key: value for key, value in record.items() if key != "data"}
    return [common | {"fuelType": item.get("psrType"), "generation": item.get("quantity")} for item in nested]
