"""Hourly load of the six areas of the synthetic ACTIVSg200 grid, from MATPOWER's change table."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from powerzoo_jax.base.errors import DataError
from powerzoo_jax.data.series import DatasetInfo
from tools.data.common import Built, clock_between, encode
from tools.pins import read_member

MEMBER = "matpower/data/scenarios_ACTIVSg200.m"
ROW = re.compile(r"^\s*(\d+)\s+0\s+CT_TAREALOAD\s+(\d+)\s+CT_LOAD_ALL_P\s+CT_REP\s+([\d.]+);", re.MULTILINE)
AREAS = (2, 3, 4, 5, 6, 7)
SCALE_MW = 0.1


def build_activsg200(paths: tuple[Path, ...], info: DatasetInfo) -> Built:
    """Areas by the numbers that the change table uses."""
    rows = ROW.findall(read_member(paths[0], MEMBER).decode())
    clock = clock_between("2017-01-01T06:00", "2018-01-01T05:00", info.step_minutes)
    if [(int(hour), int(area)) for hour, area, _ in rows] != [(h + 1, a) for h in range(len(clock)) for a in AREAS]:
        raise DataError(f"{MEMBER} does not list {len(AREAS)} areas for each of {len(clock)} hours.")
    values = np.array([float(mw) for *_, mw in rows]).reshape(len(clock), len(AREAS)).T
    arrays = encode(clock, [f"area_{area}_mw" for area in AREAS], values, np.full(len(AREAS), SCALE_MW))
    transform = "hours 1..8760 of 2017; the source names no zone: its daily pattern is that of US Central time"
    return Built(arrays, (MEMBER,), transform)
