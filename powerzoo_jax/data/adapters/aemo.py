"""AEMO: price and demand per region (`PRICE_AND_DEMAND_YYYYMM_<REGION>.csv`) and NEMWEB operational demand.

Stamps are the end of an interval in NEM time, UTC+10 without clock changes.  Prices and demands came every
30 min until September 2021 and come every 5 min from 1 October 2021.

AEMO NEMWEB operational demand, actual or forecast: `C`, `I` and `D` rows, half-hourly, NEM time (UTC+10).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from powerzoo_jax.base.errors import DataError, listing, unknown
from powerzoo_jax.base.textfile import MAX_TABLE_MB
from powerzoo_jax.data.adapters.regular import FILL_MINUTES, Rows, check_magnitude, common_step, to_series
from powerzoo_jax.data.adapters.table import (
    FileTable,
    Report,
    find_files,
    join,
    parse_stamp,
    read_cells,
    read_table,
    to_table,
)
from powerzoo_jax.data.clock import MINUTE_NS, SECOND_NS, check_year
from powerzoo_jax.data.series import Series

OFFSET_MINUTES = 600
ZONE = "Australia/Brisbane"  # NEM time is Queensland's, which keeps no summer time
STAMPS = ("%Y/%m/%d %H:%M:%S", "%Y/%m/%d %H:%M", "%d/%m/%Y %H:%M", "%d/%m/%Y %H:%M:%S", "%Y-%m-%d %H:%M:%S")
STEPS = (5, 30)
HALF_HOUR = 30 * MINUTE_NS
DEMAND, PRICE = "load.actual_mw", "price.spot_per_mwh"
FLOOR_PER_MWH = -1000.0  # [AUD/MWh] the market's own floor: nothing below it can have been a price
EPOCH = parse_stamp("1970/01/01 00:00", STAMPS)


def read_aemo(
    path: str | Path,
    *,
    region: str | None = None,
    fill_minutes: int = FILL_MINUTES,
    max_mb: float | None = MAX_TABLE_MB,
) -> tuple[Series, Report]:
    """Read price and demand of one region: (series, report).

    Files of both resolutions are brought to 30 min: a half-hour is the mean of its six five-minute values, as the
    half-hourly price was defined.  Rows other than TRADE are left out.
    Raises DataMissing without files, DataError for several regions without `region`, and for what cannot be read.
    """
    required = ("REGION", "SETTLEMENTDATE", "TOTALDEMAND", "RRP", "PERIODTYPE")
    tables = [read_table(file, required) for file in find_files(path, "*.csv", max_mb=max_mb)]
    read, traded = sum(map(len, tables)), [rows_of(t, "periodtype", "TRADE") for t in tables]
    region = choose(traded, "region", region)
    kept = [rows_of(t, "region", region) for t in traded]
    dropped = {
        "rows other than TRADE": read - sum(map(len, traded)),
        "rows of other regions": sum(map(len, traded)) - sum(map(len, kept)),
    }
    blocks, steps = [], set()
    for table in (t for t in kept if len(t)):
        end = table.convert(("settlementdate",), instant)
        step = common_step(end)
        if step not in STEPS:
            raise DataError(
                f"{table.where} has steps of {step} min. AEMO publishes 30 min or, from October 2021, 5 min."
            )
        steps.add(step)
        values = {DEMAND: table.numbers("totaldemand"), PRICE: table.numbers("rrp")}
        blocks.append((step, {"time": end - step * MINUTE_NS} | values))
    halved = [_half_hours(block) if step < max(steps) else (block, 0) for step, block in blocks]
    dropped["five-minute rows doubled or of incomplete half-hours"] = sum(lost for _, lost in halved)
    values = join(block for block, _ in halved)
    if np.any(values[PRICE] < FLOOR_PER_MWH):
        raise DataError(
            f"aemo: a price is {np.nanmin(values[PRICE]):g} AUD/MWh, the floor {FLOOR_PER_MWH:g}. Check the unit."
        )
    note = "Five-minute rows were averaged to half-hours. " if len(steps) > 1 else ""
    rows = Rows(
        files=tuple(t.where for t in tables),
        time_utc=values.pop("time").astype(np.int64),
        values=values,
        units={DEMAND: "MW", PRICE: "AUD/MWh"},
        required=(DEMAND, PRICE),
        read=read,
        dropped=dropped,
        notes=(f"{note}Region {region}; stamps are starts of intervals, NEM time is UTC+10.",),
    )
    return series_of("aemo", f"AEMO price and demand, {region}", rows, region, max(steps), fill_minutes)


def series_of(source: str, title: str, rows: Rows, region: str, step: int, fill_minutes: int) -> tuple[Series, Report]:
    return to_series(
        source,
        rows,
        title=title,
        licence="AEMO copyright permissions notice",
        region=region,
        offset_minutes=OFFSET_MINUTES,
        civil_zone=ZONE,
        step_minutes=step,
        fill_minutes=fill_minutes,
    )


def instant(text: str) -> int:
    wall = check_year(parse_stamp(text, STAMPS)) - EPOCH
    return round(wall.total_seconds()) * SECOND_NS - OFFSET_MINUTES * MINUTE_NS


def rows_of(table: FileTable, column: str, value: str) -> FileTable:
    return table.keep(np.array([cell.strip().upper() == value.upper() for cell in table.columns[column]], bool))


def choose(tables: Sequence[FileTable], column: str, region: str | None) -> str:
    found = sorted({cell.strip().upper() for table in tables for cell in table.columns[column]})
    if region is None and len(found) != 1:
        raise DataError(f"the files hold {len(found)} regions ({listing(found)}). Choose one by region=.")
    if region is not None and region.upper() not in found:
        raise DataError(unknown("region of these files", region, found))
    return found[0] if region is None else region.upper()


def last_rows(times: np.ndarray) -> np.ndarray:
    """Position of the last row of each instant, in order of time."""
    return len(times) - 1 - np.unique(times[::-1], return_index=True)[1]


def _half_hours(block: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
    """Means over complete half-hours of five-minute rows, and how many rows have none."""
    last = last_rows(block["time"])
    starts, place, count = np.unique(block["time"][last] // HALF_HOUR, return_inverse=True, return_counts=True)
    whole = count == max(STEPS) // min(STEPS)
    out = {name: np.bincount(place, block[name][last])[whole] / count[whole] for name in (DEMAND, PRICE)}
    return {"time": starts[whole] * HALF_HOUR} | out, len(block["time"]) - int(count[whole].sum())


ADJUSTMENT, RESPONSE = "load.adjustment_mw", "load.demand_response_mw"
POE = {f"operational_demand_poe{p}": f"load.forecast_poe{p}_mw" for p in (50, 10, 90)}
LEAD = "load.forecast_lead_min"
LARGEST_MW = 60_000.0  # all regions together have stayed below 40,000: more is another unit


def read_aemo_nemweb(
    path: str | Path,
    *,
    region: str | None = None,
    fill_minutes: int = FILL_MINUTES,
    max_mb: float | None = MAX_TABLE_MB,
) -> tuple[Series, Report]:
    """Read NEMWEB operational demand of one region, actual or forecast: (series, report).

    Forecasts keep the last issue of each interval, and its age at the start of the interval as
    load.forecast_lead_min.  Demand may be negative (South Australia).
    """
    tables = [_nemweb(file) for file in find_files(path, "*.csv", max_mb=max_mb)]
    region = choose(tables, "regionid", region)
    kept = [table for table in (rows_of(t, "regionid", region) for t in tables) if len(table)]
    forecast = ["forecast_datetime" in table.columns for table in kept]
    if len(set(forecast)) > 1:
        raise DataError(f"{str(path)!r} mixes actual demand and forecasts. Read them one by one.")
    values = join([_forecast(t) if forecast[0] else _actual(t) for t in kept])
    read = len(values["time"])
    if forecast[0]:
        order = np.argsort(-values[LEAD], kind="stable")  # the last issue of an interval comes last
        values = {name: column[order] for name, column in values.items()}
        values = {name: column[last_rows(values["time"])] for name, column in values.items()}
    times = values.pop("time").astype(np.int64)
    check_magnitude("aemo_nemweb", "operational demand [MW]", values[next(iter(values))], 0.0, LARGEST_MW)
    rows = Rows(
        files=tuple(t.where for t in tables),
        time_utc=times,
        values=values,
        units={name: "min" if name == LEAD else "MW" for name in values},
        required=tuple(values)[:1],
        read=sum(map(len, tables)),
        dropped={
            "rows of other regions": sum(map(len, tables)) - read,
            "forecasts issued again later": read - len(times),
        },
        notes=(f"Region {region}; stamps are starts of intervals, NEM time is UTC+10.",),
    )
    return series_of(
        "aemo_nemweb", f"AEMO operational demand, {region}", rows, region, 30, 0 if forecast[0] else fill_minutes
    )


def _nemweb(path: Path) -> FileTable:
    """Rows `D` under the header row `I`; `C` rows are comments."""
    header: list[str] = []
    records, lines = [], []
    for line, cells in read_cells(path):
        kind = cells[0].strip().upper()
        if kind == "I":
            header = [cell.strip().lower() for cell in cells]
        elif kind == "D":
            if len(cells) != len(header):
                raise DataError(
                    f"{path.name} line {line} has {len(cells)} cells, its I row {len(header)}. Is it cut off?"
                )
            records.append(dict(zip(header, cells, strict=True)))
            lines.append(line)
        elif kind != "C":
            raise DataError(f"{path.name} line {line} starts with {cells[0]!r}, not with C, I or D. Is it from NEMWEB?")
    return to_table(path.name, records, ("REGIONID",), lines)


def _actual(table: FileTable) -> dict[str, np.ndarray]:
    names = {"operational_demand": DEMAND, "operational_demand_adjustment": ADJUSTMENT, "wdr_estimate": RESPONSE}
    table.require(("INTERVAL_DATETIME", "OPERATIONAL_DEMAND"))
    start = table.convert(("interval_datetime",), instant) - HALF_HOUR
    return {"time": start} | {names[c]: table.numbers(c) for c in names if c in table.columns}


def _forecast(table: FileTable) -> dict[str, np.ndarray]:
    table.require(("FORECAST_DATETIME", "LOAD_DATE", *POE))
    start = table.convert(("forecast_datetime",), instant) - HALF_HOUR
    issued = table.convert(("load_date",), instant)
    return {"time": start} | {POE[c]: table.numbers(c) for c in POE} | {LEAD: (start - issued) / MINUTE_NS}
