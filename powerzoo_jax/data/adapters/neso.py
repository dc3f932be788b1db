"""NESO (formerly National Grid ESO) historic demand: `demanddata_YYYY.csv`, half-hourly, Great Britain.

Settlement period 1 starts at midnight of Europe/London civil time; a day has 46 of them in March, 50 in October.
ND excludes station load, pumping and exports.  Columns and their order vary from year to year.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from powerzoo_jax.base.textfile import MAX_TABLE_MB
from powerzoo_jax.data.adapters.regular import FILL_MINUTES, Rows, check_magnitude, to_series
from powerzoo_jax.data.adapters.table import Report, find_files, join, period_start, read_table
from powerzoo_jax.data.series import Series

ZONE = "Europe/London"
DATES = ("%Y-%m-%d", "%d-%b-%Y", "%d/%m/%Y", "%Y-%m-%dT%H:%M:%S")
DATE, PERIOD, INDICATOR = "settlement_date", "settlement_period", "forecast_actual_indicator"
DEMAND = "load.actual_mw"
SIGNALS = {
    "nd": DEMAND,
    "tsd": "load.transmission_system_mw",
    "england_wales_demand": "load.england_wales_mw",
    "embedded_wind_generation": "wind.embedded_mw",
    "embedded_wind_capacity": "wind.embedded_capacity_mw",
    "embedded_solar_generation": "solar.embedded_mw",
    "embedded_solar_capacity": "solar.embedded_capacity_mw",
    "non_bm_stor": "generation.non_bm_stor_mw",
    "pump_storage_pumping": "load.pumping_mw",
    "scottish_transfer": "flow.scottish_transfer_mw",
}
FLOW = "_flow"  # interconnectors, import positive; new ones join every few years
PLAUSIBLE_MW = (5_000.0, 100_000.0)  # national demand lies between some 13,000 and 62,000: outside is another unit


def read_neso(
    path: str | Path, *, fill_minutes: int = FILL_MINUTES, max_mb: float | None = MAX_TABLE_MB
) -> tuple[Series, Report]:
    """Read one demand file, or all of a folder: (series, report).

    Raises DataMissing without files, DataError for a wrong header, date, period, number or unit.
    """
    files, times, blocks, read, forecast = find_files(path, "*.csv", max_mb=max_mb), [], [], 0, 0
    for file in files:
        table = read_table(file, (DATE, PERIOD, "ND"))
        read += len(table)
        if INDICATOR in table.columns:
            actual = np.array([cell.strip().upper() != "F" for cell in table.columns[INDICATOR]])
            forecast += int((~actual).sum())
            table = table.keep(actual)
        times.append(table.convert((DATE, PERIOD), lambda date, period: period_start(date, period, DATES, ZONE)))
        names = SIGNALS | {c: f"flow.{c.removesuffix(FLOW)}_mw" for c in table.columns if c.endswith(FLOW)}
        blocks.append({names[c]: table.numbers(c) for c in names if c in table.columns})
    values = join(blocks)
    check_magnitude("neso", "ND [MW]", values[DEMAND], *PLAUSIBLE_MW)
    rows = Rows(
        files=tuple(file.name for file in files),
        time_utc=np.concatenate(times),
        values=values,
        units=dict.fromkeys(values, "MW"),
        required=(DEMAND,),
        read=read,
        dropped={"forecast rows": forecast},
        notes=(
            "load.actual_mw is ND: without station load, pumping and exports; embedded wind and solar are estimates "
            "of what is connected to distribution networks.",
        ),
    )
    return to_series(
        "neso",
        rows,
        title="NESO historic demand, Great Britain",
        licence="NESO Open Data Licence",
        region="GB",
        offset_minutes=0,
        civil_zone=ZONE,
        step_minutes=30,
        fill_minutes=fill_minutes,
    )
