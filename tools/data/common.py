"""Shared parts of the builders: the built data set, integer coding, civil stamps, gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from powerzoo_jax.base.errors import DataError
from powerzoo_jax.data.clock import MINUTE_NS, SECOND_NS
from powerzoo_jax.data.series import DatasetInfo


@dataclass(frozen=True)
class Built:
    """One data set, ready to be written.

    arrays:     content of the npz
    members:    files read inside the artefacts
    transform:  what was done to the values
    repairs:    what was repaired -> number of rows changed, filled or dropped
    """

    arrays: dict[str, np.ndarray]
    members: tuple[str, ...]
    transform: str
    repairs: Mapping[str, int] = field(default_factory=dict)

    @property
    def repaired(self) -> int:
        return sum(self.repairs.values())


class Builder(Protocol):
    """Builds one data set from artefacts, given in the order of its row in `build_bundle.BUILDERS`."""

    def __call__(self, paths: tuple[Path, ...], info: DatasetInfo) -> Built: ...


def encode(time_utc: np.ndarray, names: Sequence[str], values: np.ndarray, scale: np.ndarray) -> dict[str, np.ndarray]:
    """Code values (C, T) as integers times a scale (C,), on a regular UTC clock.

    Raises DataError when the clock has a gap or a duplicate.
    """
    steps = np.unique(np.diff(time_utc))
    if len(steps) != 1:
        raise DataError(f"clock is not regular: steps of {(steps // MINUTE_NS).tolist()} min. Check the stamps.")
    clock = {
        "start_s": np.asarray(time_utc[0] // SECOND_NS, np.int64),
        "step_s": np.asarray(steps[0] // SECOND_NS, np.int64),
    }
    return clock | _columns(names, values, scale)


def encode_events(
    time_utc: np.ndarray, names: Sequence[str], values: np.ndarray, scale: np.ndarray
) -> dict[str, np.ndarray]:
    """Code values (C, T) of events, whose instants are kept to the second."""
    if np.any(np.diff(time_utc) < 0):
        raise DataError("the events are not in order of time. Sort them.")
    return {"time_s": (time_utc // SECOND_NS).astype(np.int32)} | _columns(names, values, scale)


def _columns(names: Sequence[str], values: np.ndarray, scale: np.ndarray) -> dict[str, np.ndarray]:
    if not np.isfinite(values).all():
        raise DataError(f"{int((~np.isfinite(values)).sum())} value(s) are missing. Repair them before coding.")
    codes = np.rint(values / scale[:, None]).astype(np.int64)
    small = np.abs(codes).max() <= np.iinfo(np.int16).max
    return {
        "columns": np.array(names),
        "scale": scale.astype(np.float64),
        "codes": codes.astype(np.int16 if small else np.int32),
    }


def clock_between(first: str, last: str, minutes: int) -> np.ndarray:
    """UTC instants [ns] from first to last, inclusive, both given as ISO stamps in UTC."""
    step = minutes * MINUTE_NS
    begin, end = (int(np.datetime64(stamp, "ns").astype(np.int64)) for stamp in (first, last))
    return begin + step * np.arange((end - begin) // step + 1, dtype=np.int64)


def place(times: np.ndarray, values: np.ndarray, clock: np.ndarray) -> tuple[np.ndarray, int]:
    """Values (C, T) of stamped rows (C, R) on a regular clock, NaN where no row is; and the number of duplicates.

    Rows off the clock's range are left out; of rows with one stamp the last stays.
    """
    step = clock[1] - clock[0]
    if np.any((times - clock[0]) % step):
        raise DataError(f"stamps do not fall on a clock of {step // MINUTE_NS} min. Check the step.")
    row = (times - clock[0]) // step
    inside = (row >= 0) & (row < len(clock))
    table = np.full((len(values), len(clock)), np.nan)
    table[:, row[inside]] = values[:, inside]
    return table, int(inside.sum() - len(np.unique(row[inside])))


def mark(bad: np.ndarray) -> dict[str, np.ndarray]:
    """The array that tells a reader which steps (T,) were repaired."""
    return {"repaired_rows": np.flatnonzero(bad).astype(np.int32)}


def fill_gaps(values: np.ndarray, bad: np.ndarray, longest: int) -> np.ndarray:
    """Interpolate the bad steps (T,) of values (C, T) linearly; raises DataError for a run longer than `longest`."""
    edges = np.diff(np.concatenate([[0], bad.astype(int), [0]]))
    lengths = np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1)
    if len(lengths) and lengths.max() > longest:
        raise DataError(f"a gap of {lengths.max()} steps is longer than the {longest} that may be filled.")
    filled, steps = values.copy(), np.arange(len(bad))
    for row in filled:
        row[bad] = np.interp(steps[bad], steps[~bad], row[~bad])
    return filled
