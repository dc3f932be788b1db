"""Series of an episode: CSV files, plain or packed by bzip2, columns by their headers."""

from __future__ import annotations

import bz2
import contextlib
import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import DataError, DataMissing, WriteError, excerpt, listing
from powerzoo_jax.base.host import cache_folder
from powerzoo_jax.base.npz import read_npz, write_npz
from powerzoo_jax.base.numerics import FLOAT
from powerzoo_jax.base.textfile import MAX_TABLE_MB, decimal, open_regular, read_text, too_large
from powerzoo_jax.families.operation.actions import ElementNames

REMEDY = "Restore the file of the episode."
# file of an episode -> kind of the elements in its columns, key of their other names in `names_chronics_to_grid`
SERIES = {
    "load_p": ("load", "loads"),
    "load_q": ("load", "loads"),
    "prod_p": ("unit", "prods"),
    "prod_v": ("unit", "prods"),
    "maintenance": ("line", "lines"),
    "hazards": ("line", "lines"),
}
FORECAST = ("load_p", "load_q", "prod_p", "prod_v")
STEP_S = 300
KEPT_BYTES = 100_000  # of the files of an episode from which on it is kept parsed
FORMAT = 1  # of what is kept
MOST = 1e30  # of a number that float32 holds


@dataclass(frozen=True)
class Files:
    """Folder of a world or an episode: files are opened where they lie inside of `root`, links followed."""

    root: Path
    folder: Path

    def find(self, *names: str) -> Path | None:
        """The first of these files that there is. Raises DataError for a link that leads out of the world."""
        for name in names:
            path = self.folder / name
            if path.is_symlink() or path.exists():
                if not path.resolve().is_relative_to(self.root.resolve()):
                    raise DataError(f"{path} is a link that leads out of {self.root}. Put the file itself there.")
                if path.exists():
                    return path
        return None

    def require(self, name: str) -> Path:
        """A file. Raises DataMissing without it."""
        found = self.find(name)
        if found is None:
            raise DataMissing(f"There is no {self.folder / name}, without which the environment cannot be played.")
        return found


@dataclass(frozen=True, eq=False)
class Chronics:
    """Series of an episode as its files say them, NaN where a value stays what it was.

    rows:     name -> (T, E) float32; maintenance and hazards (T, L) bool; absent without the file
    forecast: name -> (K T, E) float32, row K t + h - 1 of horizon h
    start:    of the first row        step_s: [s]
    """

    rows: dict[str, np.ndarray]
    forecast: dict[str, np.ndarray]
    start: datetime
    step_s: int
    n: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", len(next(iter(self.rows.values()))))


def read_chronics(
    files: Files, names: ElementNames, renamed: Mapping[str, Mapping[str, str]], horizons: int
) -> Chronics:
    """Series of an episode's folder.

    names:     of the elements    renamed: "loads", "prods", "lines" -> name of the file -> name here
    horizons:  rows of forecasts for each row, 0 leaves them out
    Raises DataError for a cut file, a wrong header or what is no number, naming the file and the row.
    """

    def read(base: str, name: str) -> np.ndarray | None:
        path = files.find(f"{base}.csv", f"{base}.csv.bz2")
        if path is None:
            return None
        kind, key = SERIES[name]
        header, values = _read_csv(path)
        known = renamed.get(key) or {}
        column = {known.get(head, head): k for k, head in enumerate(header)}
        missing = [element for element in getattr(names, kind) if element not in column]
        if missing:
            raise DataError(f"{path} has no column of {kind} {listing(missing)}. Its header must name every {kind}.")
        return values[:, [column[element] for element in getattr(names, kind)]]

    rows = {name: found for name in SERIES if (found := read(name, name)) is not None}
    if not rows:
        raise DataMissing(f"{files.folder} holds no series: none of {', '.join(SERIES)} as .csv or .csv.bz2. {REMEDY}")
    n = {name: len(values) for name, values in rows.items()}
    if len(set(n.values())) > 1 or min(n.values()) < 2:
        counted = listing(f"{name} {count}" for name, count in n.items())
        raise DataError(
            f"{files.folder}: the series have {counted} rows. All need the same number, two at least. {REMEDY}"
        )
    for name in ("maintenance", "hazards"):
        if name in rows:
            if not np.isin(rows[name], (0, 1)).all():
                raise DataError(f"{files.folder / name}.csv holds other values than 0 and 1. {REMEDY}")
            rows[name] = rows[name] == 1
    count = next(iter(n.values()))
    forecast = {}
    for name in FORECAST if horizons else ():
        if (ahead := read(f"{name}_forecasted", name)) is not None:
            if len(ahead) < horizons * count:
                raise DataError(
                    f"{files.folder / name}_forecasted.csv has {len(ahead)} rows; {count} rows with {horizons} "
                    f"horizon(s) each need {horizons * count}. {REMEDY}"
                )
            forecast[name] = ahead[: horizons * count]
    return Chronics(
        rows={name: x if x.dtype == bool else x.astype(FLOAT) for name, x in rows.items()},
        forecast={name: x.astype(FLOAT) for name, x in forecast.items()},
        start=_start(files),
        step_s=_step(files),
    )


def load_chronics(
    files: Files, names: ElementNames, renamed: Mapping[str, Mapping[str, str]], horizons: int
) -> Chronics:
    """Series of an episode's folder: a large one is parsed once, and kept in the user's cache while its files stay."""
    listed = sorted(path for path in files.folder.iterdir() if path.suffix in (".csv", ".bz2", ".info"))
    known = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in listed]
    folder = cache_folder("grid2op") if sum(size for _, size, _ in known) >= KEPT_BYTES else None
    if folder is None:
        return read_chronics(files, names, renamed, horizons)
    said = repr((FORMAT, str(files.folder.resolve()), known, names[:-1], renamed, horizons))
    path = folder / f"{hashlib.sha256(said.encode()).hexdigest()[:32]}.npz"
    if path.exists():
        try:
            return _from_arrays(read_npz(path))
        except (DataError, KeyError, ValueError):  # damaged: made anew
            pass
    found = read_chronics(files, names, renamed, horizons)
    with contextlib.suppress(WriteError):  # a full disk: without it the next time takes as long
        write_npz(path, _to_arrays(found), level=1)
    return found


def _to_arrays(found: Chronics) -> dict[str, np.ndarray]:
    arrays = found.rows | {f"{name}.ahead": values for name, values in found.forecast.items()}
    return arrays | {"start": np.array(found.start.isoformat()), "step_s": np.array(found.step_s)}


def _from_arrays(arrays: dict[str, np.ndarray]) -> Chronics:
    start, step_s = datetime.fromisoformat(str(arrays.pop("start"))), int(arrays.pop("step_s"))
    ahead = {name.removesuffix(".ahead"): x for name, x in arrays.items() if name.endswith(".ahead")}
    return Chronics({name: x for name, x in arrays.items() if "." not in name}, ahead, start, step_s)


def _start(files: Files) -> datetime:
    path = files.find("start_datetime.info")
    text = "2019-01-01 00:00" if path is None else read_text(path, DataError, max_mb=1).strip()
    try:
        return datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError as err:
        raise DataError(f"{path} holds {excerpt(repr(text))}, no time such as 2019-01-05 23:55. {REMEDY}") from err


def _step(files: Files) -> int:
    path = files.find("time_interval.info")
    if path is None:
        return STEP_S
    text = read_text(path, DataError, max_mb=1).strip()
    hours, _, minutes = text.partition(":")
    seconds = (
        3600 * int(hours) + 60 * int(minutes) if len(text) < 9 and hours.isdecimal() and minutes.isdecimal() else 0
    )
    if not 0 < seconds <= 86_400:
        raise DataError(f"{path} holds {excerpt(repr(text))}, no interval HH:MM of at most a day. {REMEDY}")
    return seconds


def _read_csv(path: Path) -> tuple[list[str], np.ndarray]:
    """Header and rows (T, E) of a series, NaN in empty fields."""
    text = _unpacked(path) if path.suffix == ".bz2" else read_text(path, DataError, max_mb=MAX_TABLE_MB)
    head, _, rest = text.partition("\n")
    header = [name.strip() for name in head.split(";")]
    if len(set(header)) < len(header):
        raise DataError(f"{path} names a column twice. Give every element one column.")
    if not rest.strip():
        return header, np.zeros((0, len(header)))
    try:
        values = np.loadtxt(io.StringIO(rest), delimiter=";", comments=None, ndmin=2, encoding=None)
    except ValueError:
        values = _by_hand(path, rest, len(header))
    if values.shape[1] != len(header):
        raise DataError(f"{path} has {values.shape[1]} values a row and {len(header)} columns in its header. {REMEDY}")
    beyond = np.argwhere(np.abs(values) >= MOST)
    if beyond.size:
        raise DataError(f"{path} row {beyond[0][0] + 1} holds {values[tuple(beyond[0])]:g}. {REMEDY}")
    return header, values


def _by_hand(path: Path, text: str, width: int) -> np.ndarray:
    """Rows with empty fields, which are NaN; the row of a fault is named."""
    rows = []
    for number, line in enumerate((line for line in text.splitlines() if line.strip()), 1):
        fields = line.split(";")
        if len(fields) != width:
            raise DataError(f"{path} row {number} has {len(fields)} values, the header {width}: it is cut. {REMEDY}")
        try:
            rows.append([decimal(item.strip()) if item.strip() else np.nan for item in fields])
        except ValueError as err:
            raise DataError(f"{path} row {number}: {excerpt(err)}. {REMEDY}") from err
    return np.array(rows, float).reshape(-1, width)


def _unpacked(path: Path) -> str:
    """Text of a file packed by bzip2, at most as large as a plain one may be."""
    most = int(1e6 * MAX_TABLE_MB)
    try:
        with open_regular(path) as raw, bz2.BZ2File(raw) as file:
            content = file.read(most + 1)
    except (OSError, EOFError, ValueError) as err:
        raise DataError(f"{path} cannot be unpacked: {excerpt(err)}. {REMEDY}") from err
    if len(content) > most:
        raise DataError(too_large(f"{path}, unpacked,", len(content) / 1e6, MAX_TABLE_MB).partition(" Give")[0])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        raise DataError(f"{path} is not UTF-8 text. {REMEDY}") from err


def filled(values: np.ndarray, first: Any) -> np.ndarray:
    """Rows (T, E) with the last known value where there is none, `first` (E,) before any."""
    if np.isfinite(values).all():
        return values
    whole = np.concatenate([np.asarray(first, values.dtype)[None], values])
    at = np.where(np.isfinite(whole), np.arange(len(whole))[:, None], 0)
    return np.take_along_axis(whole, np.maximum.accumulate(at, axis=0), axis=0)[1:]
