"""AEMO: price and demand per region (`PRICE_AND_DEMAND_YYYYMM_<REGION>.csv`) and NEMWEB operational demand.

Stamps are the end of an interval in NEM time, UTC+10 without clock changes.  Prices and demands came every
30 min until September 2021 and come every 5 min from 1 October 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from powerzoo_jax.base.errors import DataError, listing, unknown
from powerzoo_jax.data.adapters.regular import FILL_MINUTES, Rows, common_step, to_series
from powerzoo_jax.data.adapters.report import Report
from powerzoo_jax.data.adapters.table import Table, find_files, join, parse_stamp, read_table
from powerzoo_jax.data.clock import MINUTE_NS, SECOND_NS, check_year
from powerzoo_jax.data.series import Series

OFFSET_MINUTES = 600
ZONE = "Australia/Brisbane"  # NEM time is Queensland's, which keeps no summer time
STAMPS = ("%Y/%m/%d %H:%M:%S", "%Y/%m/%d %H:%M", "%d/%m/%Y %H:%M", "%d/%m/%Y %H:%M:%S", "%Y-%m-%d %H:%M:%S")
STEPS = (5, 30)
HALF_HOUR = 30 * MINUTE_NS
DEMAND, PRICE = "load.actual_mw", "price.spot_per_mwh"
FLOOR_PER_MWH = -1000.0
EPOCH = parse_stamp("1970/01/01 00:00", STAMPS)


def read_aemo(
    path: str | Path, *, region: str | None = None, fill_minutes: int = FILL_MINUTES
) -> tuple[Series, Report]:
    """Read price and demand of one region: (series, report).

    Files of both resolutions are brought to 30 min: a half-hour is the mean of its six five-minute values, as the
    half-hourly price was defined.  Rows other than TRADE are left out.
    Raises DataMissing without files, DataError for several regions without `region`, and for what cannot be read.
    """
    required = ("REGION", "SETTLEMENTDATE", "TOTALDEMAND", "RRP", "PERIODTYPE")
    tables = [read_table(file, required) for file in find_files(path, "*.csv")]
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


def rows_of(table: Table, column: str, value: str) -> Table:
    return table.keep(np.array([cell.strip().upper() == value.upper() for cell in table.columns[column]], bool))


def choose(tables: Sequence[Table], column: str, region: str | None) -> str:
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
