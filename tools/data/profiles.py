"""SimBench load, solar and wind profiles."""

from __future__ import annotations

import io
from datetime import datetime
from pathlib import Path

import numpy as np

from powerzoo_jax.base.errors import DataError
from powerzoo_jax.data.clock import convert_stamps
from powerzoo_jax.data.series import DatasetInfo
from tools.data.common import Built, encode
from tools.pins import read_member

PROFILE_LEVELS = 4095  # 12 bit: steps of 0.02 % of a profile's largest value
SIMBENCH = "simbench/networks/1-complete_data-mixed-all-0-sw"


def build_simbench(paths: tuple[Path, ...], info: DatasetInfo) -> Built:
    """SimBench profiles: the columns of the manifest, 12 bit each."""
    members = tuple(f"{SIMBENCH}/{kind}Profile.csv" for kind in ("Load", "RES"))
    names, rows, clocks = [], [], []
    for member in members:
        text = read_member(paths[0], member).decode("utf-8-sig")
        header = text[: text.index("\n")].strip().split(";")
        wanted = [s.column for s in info.signals if s.column in header]
        use = [header.index(column) for column in wanted]
        rows.append(np.loadtxt(io.StringIO(text), delimiter=";", skiprows=1, usecols=use, ndmin=2).T)
        clocks.append(np.loadtxt(io.StringIO(text), delimiter=";", skiprows=1, usecols=0, dtype=str))
        names += wanted
    if not np.array_equal(clocks[0], clocks[1]) or len(names) != len(info.signals):
        raise DataError("the two SimBench files differ in their clock, or lack a column of the manifest.")
    times = convert_stamps([datetime.strptime(stamp, "%d.%m.%Y %H:%M") for stamp in clocks[0]], info.civil_zone)
    values = np.concatenate(rows)
    scale = np.abs(values).max(axis=1) / PROFILE_LEVELS
    arrays = encode(times, names, values, scale)
    transform = "columns selected; 12 bit per column (wind readings of -0.00001 become 0); civil clock to UTC"
    return Built(arrays, members, transform)
