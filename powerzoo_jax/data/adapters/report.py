"""Report: what an adapter found in official files and what it did about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from powerzoo_jax.base.errors import listing


@dataclass(frozen=True)
class Report:
    """What an adapter found in official files and what it did about it.

    source:      name of the adapter
    files:       names of the files read, in order
    rows:        rows read
    steps:       steps of the series
    missing:     steps for which the files hold no value of some signal
    duplicated:  rows whose instant another row has as well
    superseded:  of those, rows that say something else than the row kept
    unordered:   rows earlier than the row before them; sorted
    repaired:    steps with a missing value that was filled
    dropped:     reason -> number of rows or values left out
    notes:       what the numbers mean
    """

    source: str
    files: tuple[str, ...]
    rows: int
    steps: int
    missing: int
    duplicated: int
    superseded: int
    unordered: int
    repaired: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [
            f"{self.source}: {self.rows} rows of {listing(self.files)} give {self.steps} steps.",
            f"{self.missing} steps lacked a value, {self.repaired} had one filled.",
            f"{self.duplicated} rows were duplicated ({self.superseded} with another value; the last one stays).",
        ]
        if self.unordered:
            parts.append(f"{self.unordered} rows were out of order and have been sorted.")
        parts += [f"Left out: {count} ({reason})." for reason, count in self.dropped.items() if count]
        return " ".join([*parts, *self.notes])
