"""AEMO NEMWEB operational demand, actual or forecast: `C`, `I` and `D` rows, half-hourly, NEM time (UTC+10)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from powerzoo_jax.base.errors import DataError
from powerzoo_jax.data.adapters.aemo import DEMAND, HALF_HOUR, choose, instant, last_rows, rows_of, series_of
from powerzoo_jax.data.adapters.regular import FILL_MINUTES, Rows, check_magnitude
from powerzoo_jax.data.adapters.report import Report
from powerzoo_jax.data.adapters.table import Table, find_files, join, read_cells, to_table
from powerzoo_jax.data.clock import MINUTE_NS
from powerzoo_jax.data.series import Series

ADJUSTMENT, RESPONSE = "load.adjustment_mw", "load.demand_response_mw"
POE = {f"operational_demand_poe{p}": f"load.forecast_poe{p}_mw" for p in (50, 10, 90)}
LEAD = "load.forecast_lead_min"
LARGEST_MW = 60_000.0


def read_aemo_nemweb(
    path: str | Path, *, region: str | None = None, fill_minutes: int = FILL_MINUTES
) -> tuple[Series, Report]:
    """Read NEMWEB operational demand of one region, actual or forecast: (series, report).

    Forecasts keep the last issue of each interval, and its age at the start of the interval as
    load.forecast_lead_min.  Demand may be negative (South Australia).
    """
    tables = [_nemweb(file) for file in find_files(path, "*.csv")]
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


def _nemweb(path: Path) -> Table:
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


def _actual(table: Table) -> dict[str, np.ndarray]:
    names = {"operational_demand": DEMAND, "operational_demand_adjustment": ADJUSTMENT, "wdr_estimate": RESPONSE}
    table.require(("INTERVAL_DATETIME", "OPERATIONAL_DEMAND"))
    start = table.convert(("interval_datetime",), instant) - HALF_HOUR
    return {"time": start} | {names[c]: table.numbers(c) for c in names if c in table.columns}


def _forecast(table: Table) -> dict[str, np.ndarray]:
    table.require(("FORECAST_DATETIME", "LOAD_DATE", *POE))
    start = table.convert(("forecast_datetime",), instant) - HALF_HOUR
    issued = table.convert(("load_date",), instant)
    return {"time": start} | {POE[c]: table.numbers(c) for c in POE} | {LEAD: (start - issued) / MINUTE_NS}
