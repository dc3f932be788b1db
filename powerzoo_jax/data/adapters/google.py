"""Google 2019 cluster trace: processor use over processor capacity of one cell.

`instance_usage*` holds the mean use of every instance over a window, in the unit of the machines' capacity;
`machine_events*` adds, updates and removes machines.  Exports are CSV with flattened names (`average_usage.cpus`) or
one JSON object a line; int64 may be quoted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import DataError
from powerzoo_jax.base.textfile import read_text
from powerzoo_jax.data.adapters.cluster import STARTS, trace_series
from powerzoo_jax.data.adapters.regular import FILL_MINUTES
from powerzoo_jax.data.adapters.report import Report
from powerzoo_jax.data.adapters.table import Table, find_files, read_table, to_table
from powerzoo_jax.data.series import Series

OFFSET_US = 600_000_000  # the trace starts at 600 s; what was there before has time 0
MINUTE_US = 60_000_000
LAST_US = 2**63 - 1  # stands for "after the trace"
REMOVED = ("2", "REMOVE")
KNOWN_EVENTS = ("1", "ADD", "3", "UPDATE", *REMOVED)
SLACK = 1e-6  # rounding of the published shares


def read_google(
    path: str | Path, *, start: str = STARTS["google"], step_minutes: int = 5, fill_minutes: int = FILL_MINUTES
) -> tuple[Series, Report]:
    """Read a folder of `instance_usage*` and `machine_events*`: (series, report).

    share(step) = sum over windows of cpus * overlap / integral of capacity over the step.
    Raises DataMissing without files, DataError for what cannot be read and for a use beyond the capacity.
    """
    step = step_minutes * MINUTE_US
    usage_files = find_files(path, "instance_usage*.csv", "instance_usage*.json*")
    event_files = find_files(path, "machine_events*.csv", "machine_events*.json*")
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
    if not text.removeprefix("-").isdigit():
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


def _usage(path: Path) -> Table:
    return _read(path, ("start_time", "end_time", "average_usage.cpus"))


def _events(path: Path) -> Table:
    return _read(path, ("time", "machine_id", "type", "capacity.cpus"))


def _read(path: Path, required: tuple[str, ...]) -> Table:
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
