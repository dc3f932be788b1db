"""Rows of official files as text, their numbers and their stamps.

Report: what an adapter found in official files and what it did about it.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from powerzoo_jax.base.errors import DataError, DataMissing, excerpt, listing, nearest
from powerzoo_jax.base.textfile import check_size, decimal, open_text, require_file
from powerzoo_jax.data.clock import settlement_periods


@dataclass(frozen=True)
class Report:
    """Report of an adapter: missing, repeated and repaired steps of official files.

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


LONGEST_LINE = 1_000_000  # characters
SPARSEST_TABLE = 50  # cells of a table of records for one that is given: records of one kind have the same names
BLANKS = frozenset({"", "-", "na", "n/a", "nan", "null", "none"})


@dataclass(frozen=True)
class FileTable:
    """Rows of one file as text; columns by lower-case name.

    where:    name of the file
    lines:    line number of each row
    columns:  name -> (R,) cells
    """

    where: str
    lines: list[int]
    columns: dict[str, list[str]]

    def __len__(self) -> int:
        return len(self.lines)

    def numbers(self, name: str) -> np.ndarray:
        """Values (R,) float64 of a column, NaN where blank; raises DataError naming the line of anything else."""
        return np.array([self._number(name, i, cell) for i, cell in enumerate(self.columns[name])], np.float64)

    def _number(self, name: str, row: int, cell: str) -> float:
        text = cell.strip()
        if text.lower() in BLANKS:
            return np.nan
        try:
            value = decimal(text)
        except ValueError:
            value = np.inf
        if np.isinf(value):
            raise DataError(
                f"{self.at(row)}: {name} is {excerpt(repr(cell))}, not a number. Correct the cell or leave it blank."
            )
        return value

    def convert(self, names: Sequence[str], to_instant: Callable[..., int]) -> np.ndarray:
        """Instants (R,) int64 ns made from the named cells of each row; errors name the line."""
        found = np.empty(len(self), np.int64)
        for i, cells in enumerate(zip(*(self.columns[name] for name in names), strict=True)):
            try:
                found[i] = to_instant(*(cell.strip() for cell in cells))
            except ValueError as err:
                raise DataError(f"{self.at(i)}: {err} Correct the stamp, or remove the row.") from err
        return found

    def keep(self, mask: np.ndarray) -> FileTable:
        """The rows at which the mask is True."""
        rows = np.flatnonzero(mask)
        columns = {name: [cells[i] for i in rows] for name, cells in self.columns.items()}
        return FileTable(self.where, [self.lines[i] for i in rows], columns)

    def require(self, names: Sequence[str]) -> None:
        """Raise DataError unless the table has these columns."""
        check_header(self.where, list(self.columns), names)

    def at(self, row: int) -> str:
        return f"{self.where} line {self.lines[row]}"


def find_files(path: str | Path, *patterns: str, max_mb: float | None = None) -> list[Path]:
    """The file itself, or the files of a folder that match a pattern, by name. Raises DataMissing when there are none.

    Patterns are matched in lower case. Raises DataError for files that are larger together than `max_mb` [MB].
    """
    found = _find_files(Path(path), patterns)
    check_size(found, max_mb)
    return found


def _find_files(path: Path, patterns: Sequence[str]) -> list[Path]:
    if not path.is_dir():
        return [require_file(path, "file or folder", "Download the official files and give their path.")]
    found = [p for p in sorted(path.iterdir()) if p.is_file() and any(Path(p.name.lower()).match(q) for q in patterns)]
    if not found:
        raise DataMissing(f"folder {str(path)!r} holds no {' or '.join(patterns)}. Put the official files there.")
    return found


def read_table(path: Path, required: Sequence[str], delimiter: str = ",", *, max_mb: float | None = None) -> FileTable:
    """Read a delimited file with a header, whatever the case and the order of its columns.

    Raises DataError for an empty file, one larger than `max_mb` [MB], a missing column and a row of another length.
    """
    check_size(path, max_mb)
    return table_of_rows(path.name, read_cells(path, delimiter), required)


def table_of_rows(where: str, rows: Iterator[tuple[int, list[str]]], required: Sequence[str]) -> FileTable:
    """Table of (line number, cells), the header first. Raises DataError like `read_table`."""
    header = [cell.strip().lower() for cell in next(rows)[1]]
    check_header(where, header, required)
    lines, table = [], []
    for line, cells in rows:
        if len(cells) != len(header):
            raise DataError(f"{where} line {line} has {len(cells)} cells, the header {len(header)}. Is it cut off?")
        lines.append(line)
        table.append(cells)
    if not table:
        raise DataError(f"{where} has a header and no row. Download it again.")
    return FileTable(where, lines, dict(zip(header, map(list, zip(*table, strict=True)), strict=True)))


def check_header(where: str, header: Sequence[str], required: Sequence[str]) -> None:
    """Raise DataError for a column that is missing, with the nearest name there is, or that occurs twice."""
    for name in required:
        if name.lower() not in header:
            close = nearest(name, header)
            hint = f" Did the publisher rename it to {close!r}?" if close else ""
            raise DataError(f"{where} has no column {name!r}; its header is {listing(header)}.{hint}")
        if list(header).count(name.lower()) > 1:
            raise DataError(f"{where} has the column {name!r} twice. Remove one.")


def to_table(
    where: str, records: Sequence[Mapping[str, Any]], required: Sequence[str], lines: Sequence[int] | None = None
) -> FileTable:
    """Table of records by name; a column that a record lacks is blank there. Raises DataError like `read_table`."""
    if not records:
        raise DataError(f"{where} holds no record. Download it again.")
    header = dict.fromkeys(str(name).lower() for record in records for name in record)
    if len(header) * len(records) > SPARSEST_TABLE * sum(map(len, records)):
        raise DataError(f"{where}: its {len(records)} records share hardly a name ({listing(header)}). Check the file.")
    check_header(where, list(header), required)
    lowered = [{str(name).lower(): value for name, value in record.items()} for record in records]
    columns = {n: ["" if row.get(n) is None else str(row[n]) for row in lowered] for n in header}
    return FileTable(where, list(lines or range(1, len(records) + 1)), columns)


def read_cells(path: Path, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of every row that is not blank; raises DataError for an empty file and one of no text."""
    with open_text(path, newline="") as stream:
        reader, empty = csv.reader(short_lines(path, stream), delimiter=delimiter), True
        try:
            for cells in reader:
                if any(cell.strip() for cell in cells):
                    empty = False
                    yield reader.line_num, cells
        except csv.Error as err:
            raise DataError(f"{path.name} line {reader.line_num + 1} is not a row of a table ({err}).") from err
    if empty:
        raise DataError(f"{path.name} is empty. Download it again.")


def short_lines(path: Path, stream: TextIO) -> Iterator[str]:
    """Lines of a file; a file without line ends would else be one row that fills the memory."""
    while line := stream.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE:
            raise DataError(f"{path.name} has a line of {LONGEST_LINE:,} characters or more. Is it a table?")
        yield line


@lru_cache(maxsize=4096)
def parse_stamp(text: str, formats: tuple[str, ...]) -> datetime:
    """First format that reads the text; raises ValueError listing them."""
    for pattern in formats:
        try:
            return datetime.strptime(text, pattern)
        except ValueError:
            continue
    raise ValueError(f"{text!r} is none of {', '.join(formats)}.")


@lru_cache(maxsize=4096)
def periods_of(date: str, formats: tuple[str, ...], zone: str) -> np.ndarray:
    """UTC starts [ns] of the settlement periods of a civil day."""
    return settlement_periods(parse_stamp(date, formats).date().isoformat(), zone)


def period_start(date: str, period: str, formats: tuple[str, ...], zone: str) -> int:
    """UTC start [ns] of a settlement period; raises ValueError beyond the 46, 48 or 50 of its day."""
    starts = periods_of(date, formats, zone)
    if not (period.isascii() and period.isdigit()) or not 1 <= int(period) <= len(starts):
        raise ValueError(f"{date} has settlement periods 1..{len(starts)} in {zone}, not {period!r}.")
    return int(starts[int(period) - 1])


def join(blocks: Iterable[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Join blocks of rows; a column that a block lacks is NaN there."""
    blocks = list(blocks)
    names = dict.fromkeys(name for block in blocks for name in block)
    sizes = [len(next(iter(block.values()))) for block in blocks]
    pairs = [(block, np.full(size, np.nan)) for block, size in zip(blocks, sizes, strict=True)]
    return {name: np.concatenate([block.get(name, blank) for block, blank in pairs]) for name in names}
