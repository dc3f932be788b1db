"""Traces of data centres: Google 2019, Alibaba 2018 and Azure V2, as the share of their processors in use.

Stamps count from the start of a trace.  The traces of Alibaba and Azure do not say when that was: they are read
as if it were midnight of a nominal day.

Google 2019 cluster trace: processor use over processor capacity of one cell.

`instance_usage*` holds the mean use of every instance over a window, in the unit of the machines' capacity;
`machine_events*` adds, updates and removes machines.  Exports are CSV with flattened names (`average_usage.cpus`) or
one JSON object a line; int64 may be quoted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import DataError
from powerzoo_jax.base.textfile import MAX_TABLE_MB, decimal, read_text
from powerzoo_jax.data.adapters.regular import FILL_MINUTES, Rows, to_series
from powerzoo_jax.data.adapters.table import FileTable, Report, find_files, read_cells, read_table, to_table
from powerzoo_jax.data.clock import MINUTE_NS, instant_ns
from powerzoo_jax.data.series import Series

USE = "workload.cpu_share"
ALIBABA_COLUMNS = "machine_id time_stamp cpu_util_percent mem_util_percent mem_gps mkpi net_in net_out disk_io_percent"
AZURE_COLUMNS = "timestamp vm_id min_cpu max_cpu avg_cpu"
AZURE_READING_S = 300
LONGEST_S = 1e9  # 31 years, more than any trace; clocks of nanoseconds hold no more than 200
STARTS = {"google": "2019-05-01T07:00", "alibaba": "2018-01-01T00:00", "azure": "2019-01-01T00:00"}  # UTC


def read_alibaba(
    path: str | Path, *, start: str = STARTS["alibaba"], step_minutes: int = 5, fill_minutes: int = FILL_MINUTES
) -> tuple[Series, Report]:
    """Read Alibaba 2018 `machine_usage.csv`: mean utilisation of all machines, (series, report).

    Utilisations outside 0..100 % (the trace marks abnormal ones by -1 and 101) are left out and counted.
    """
    files = find_files(path, "machine_usage*.csv")
    bins = _Bins(step_minutes)
    for where, cells in _rows(files, ALIBABA_COLUMNS.split()):
        bins.add(where, cells[1], cells[2])
    bins.check_percent(files)
    index, total, count = bins.arrays()
    note = "Mean over the machines that report."
    return _series("alibaba", files, bins, index, total / count / 100, start, fill_minutes, note)


def read_azure(
    path: str | Path,
    *,
    start: str = STARTS["azure"],
    step_minutes: int = 5,
    reference: float | None = None,
    fill_minutes: int = FILL_MINUTES,
) -> tuple[Series, Report]:
    """Read Azure V2 `vm_cpu_readings*.csv`: busy virtual machines over a fixed reference, (series, report).

    Sums of readings are absolute, they grow with the number of machines: share = sum(avg / 100) / reference, by
    default the largest number of machines that report at one time.
    """
    files = find_files(path, "*vm_cpu_readings*.csv")
    bins = _Bins(step_minutes)
    for where, cells in _rows(files, AZURE_COLUMNS.split()):
        bins.add(where, cells[0], cells[4])
    bins.check_percent(files)
    index, total, count = bins.arrays()
    readings = step_minutes * 60 / AZURE_READING_S
    fixed = float(count.max() / readings) if reference is None else reference
    if not fixed > 0:
        raise DataError(f"reference is {fixed:g} machines. Give a positive number.")
    note = f"Busy machines over {fixed:g}."
    return _series("azure", files, bins, index, total / readings / 100 / fixed, start, fill_minutes, note)


class _Bins:
    """Sums of percentages per step, in one pass over files of any size."""

    def __init__(self, step_minutes: int) -> None:
        self.step_s = step_minutes * 60
        self.total: dict[int, float] = {}
        self.count: dict[int, int] = {}
        self.read = self.invalid = 0
        self.largest = 0.0

    def add(self, where: Callable[[], str], stamp: str, percent: str) -> None:
        self.read += 1
        second = number(where, stamp)
        value = number(where, percent) if percent.strip() else -1.0
        if not 0 <= second < LONGEST_S:
            raise DataError(f"{where()}: the time stamp is {stamp!r}. Stamps count seconds from 0.")
        if not 0 <= value <= 100:
            self.invalid += 1
            return
        index = int(second) // self.step_s
        self.total[index] = self.total.get(index, 0.0) + value
        self.count[index] = self.count.get(index, 0) + 1
        self.largest = max(self.largest, value)

    def check_percent(self, files: Sequence[Path]) -> None:
        if not self.total:
            raise DataError(f"{files[0].name} holds no utilisation from 0 to 100. Check the order of its columns.")
        if 0 < self.largest <= 1:
            raise DataError(f"{files[0].name}: no utilisation exceeds {self.largest:g}. Convert shares to per cent.")

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Steps in order, sums and numbers of readings."""
        index = np.array(sorted(self.total), np.int64)
        total, count = ([table[i] for i in index.tolist()] for table in (self.total, self.count))
        return index, np.array(total), np.array(count)


def _rows(files: Sequence[Path], columns: Sequence[str]) -> Iterator[tuple[Callable[[], str], list[str]]]:
    """Cells of headerless files; a first row that repeats the column names is skipped."""
    for file in files:
        for line, cells in read_cells(file):
            if len(cells) != len(columns):
                raise DataError(f"{file.name} line {line} has {len(cells)} cells instead of {', '.join(columns)}.")
            if line == 1 and cells[0].strip().lower() == columns[0]:
                continue
            yield lambda file=file, line=line: f"{file.name} line {line}", cells  # type: ignore[misc]


def number(where: Callable[[], str], text: str) -> float:
    """A number of a trace; raises DataError naming the line."""
    try:
        return decimal(text)
    except ValueError:
        raise DataError(f"{where()}: {text!r} is not a number. Check the order of the columns.") from None


def _series(
    source: str,
    files: Sequence[Path],
    bins: _Bins,
    index: np.ndarray,
    share: np.ndarray,
    start: str,
    fill_minutes: int,
    note: str,
) -> tuple[Series, Report]:
    dropped = {"readings outside 0..100 %": bins.invalid}
    return trace_series(source, files, index, share, bins.step_s // 60, start, bins.read, dropped, fill_minutes, note)


def trace_series(
    source: str,
    files: Sequence[Path],
    index: np.ndarray,
    share: np.ndarray,
    step_minutes: int,
    start: str,
    read: int,
    dropped: dict[str, int],
    fill_minutes: int,
    note: str,
) -> tuple[Series, Report]:
    """Series of utilisation from steps counted from the start of a trace."""
    try:
        stamp = datetime.fromisoformat(start)
        first = instant_ns(stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC))
    except ValueError as err:
        raise DataError(f"start {start!r} is no instant of a trace: {err} Write 2019-05-01T07:00 [UTC].") from err
    if first % (step_minutes * MINUTE_NS):
        raise DataError(f"start {start!r} is not on a step of {step_minutes} min. Choose a whole step.")
    rows = Rows(
        files=tuple(file.name for file in files),
        time_utc=first + index * (step_minutes * MINUTE_NS),
        values={USE: share},
        units={USE: "1"},
        required=(USE,),
        read=read,
        dropped=dropped,
        notes=(note, f"Time 0 of the trace is read as {start} UTC."),
    )
    return to_series(
        source,
        rows,
        title=f"Processor use, {source} trace",
        licence="see the terms of the trace",
        region=source.upper(),
        offset_minutes=0,
        civil_zone="UTC",
        step_minutes=step_minutes,
        fill_minutes=fill_minutes,
    )


OFFSET_US = 600_000_000  # the trace starts at 600 s; what was there before has time 0
MINUTE_US = 60_000_000
LAST_US = 2**63 - 1  # stands for "after the trace"
REMOVED = ("2", "REMOVE")
KNOWN_EVENTS = ("1", "ADD", "3", "UPDATE", *REMOVED)
SLACK = 1e-6  # rounding of the published shares


def read_google(
    path: str | Path,
    *,
    start: str = STARTS["google"],
    step_minutes: int = 5,
    fill_minutes: int = FILL_MINUTES,
    max_mb: float | None = MAX_TABLE_MB,
) -> tuple[Series, Report]:
    """Read a folder of `instance_usage*` and `machine_events*`: (series, report).

    share(step) = sum over windows of cpus * overlap / integral of capacity over the step.
    Raises DataMissing without files, DataError for what cannot be read and for a use beyond the capacity.
    """
    step = step_minutes * MINUTE_US
    usage_files = find_files(path, "instance_usage*.csv", "instance_usage*.json*", max_mb=max_mb)
    event_files = find_files(path, "machine_events*.csv", "machine_events*.json*", max_mb=max_mb)
    work: dict[int, float] = {}
    read = dropped = 0
    for table in map(_usage, usage_files):
        read += len(table)
        begin, end = (table.convert((name,), _microseconds) for name in ("start_time", "end_time"))
        cpus = table.numbers("average_usage.cpus")
        good = (end > begin) & (cpus >= 0) & (begin >= 0)
        dropped += int((~good).sum())
        for i, amount in _spread(begin[good], end[good], cpus[good], step):
            work[i] = work.get(i, 0.0) + amount
    index = np.array(sorted(work), np.int64)
    if not len(index):
        raise DataError(f"google: no usable window in {usage_files[0].name}. Check start_time, end_time and cpus.")
    capacity = _capacity(event_files, index * step, step)
    share = np.array([work[i] for i in index.tolist()]) / np.where(capacity > 0, capacity, np.nan)
    if np.any(share > 1 + SLACK):
        raise DataError(
            f"google: use is {np.nanmax(share):.3g} times the capacity. Give all machine events of the same cell."
        )
    reason = {"windows without length, use or before the trace": dropped}
    files = [*usage_files, *event_files]
    note = "Use over the capacity of all machines of the cell."
    return trace_series("google", files, index, share, step_minutes, start, read, reason, fill_minutes, note)


def _microseconds(text: str) -> int:
    """Microseconds since the start of the trace; only whole numbers keep all digits of an int64."""
    if not (text.isascii() and text.removeprefix("-").isdigit()):
        raise ValueError(f"{text!r} is not a whole number of microseconds.")
    if abs(int(text)) > LAST_US:
        raise ValueError(f"{text!r} exceeds the {LAST_US} that the trace writes for the end of time.")
    return int(text) - OFFSET_US


def _spread(begin: np.ndarray, end: np.ndarray, cpus: np.ndarray, step: int) -> Iterator[tuple[int, float]]:
    """(step, cpus * overlap) of every step that a window touches."""
    for a, b, c in zip(begin.tolist(), end.tolist(), cpus.tolist(), strict=True):
        for i in range(a // step, (b - 1) // step + 1):
            yield i, c * (min(b, (i + 1) * step) - max(a, i * step))


def _capacity(files: list[Path], begin: np.ndarray, step: int) -> np.ndarray:
    """Integral (T,) of the capacity of all machines over each step."""
    events = []
    for table in map(_events, files):
        size = np.nan_to_num(table.numbers("capacity.cpus"))
        kinds = [cell.strip().upper() for cell in table.columns["type"]]
        for i, kind in enumerate(kinds):
            if kind not in KNOWN_EVENTS:
                raise DataError(f"{table.at(i)}: event {kind!r} is none of ADD, REMOVE and UPDATE. Check the columns.")
        times = table.convert(("time",), _microseconds).tolist()
        machines = table.columns["machine_id"]
        events += [(t, m, 0.0 if k in REMOVED else s) for t, m, k, s in zip(times, machines, kinds, size, strict=True)]
    events.sort(key=lambda event: event[0])
    now: dict[str, float] = {}
    time, level, total = [], [], 0.0
    for t, machine, size in events:
        total += size - now.get(machine, 0.0)
        now[machine] = size
        time.append(t)
        level.append(total)
    knots = np.append(time, max(time[-1], int(begin[-1]) + step) + 1).astype(np.float64)
    area = np.concatenate([[0.0], np.cumsum(np.array(level) * np.diff(knots))])
    return np.interp(begin + step, knots, area) - np.interp(begin, knots, area)


def _usage(path: Path) -> FileTable:
    return _read(path, ("start_time", "end_time", "average_usage.cpus"))


def _events(path: Path) -> FileTable:
    return _read(path, ("time", "machine_id", "type", "capacity.cpus"))


def _read(path: Path, required: tuple[str, ...]) -> FileTable:
    if path.suffix.lower() == ".csv":
        return read_table(path, required)
    records, lines = [], []
    for line, text in enumerate(read_text(path).splitlines(), 1):
        if text.strip():
            try:
                records.append(dict(_flatten(json.loads(text))))
            except (ValueError, AttributeError, RecursionError) as err:
                raise DataError(f"{path.name} line {line} is not a JSON object ({err}). Download it again.") from err
            lines.append(line)
    return to_table(path.name, records, required, lines)


def _flatten(record: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
