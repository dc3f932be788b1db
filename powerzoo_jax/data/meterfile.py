"""Tables of meters and spreadsheets: where the header is, what separates cells, how numbers and dates are written."""

from __future__ import annotations

import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from itertools import chain, islice
from pathlib import Path

from powerzoo_jax.base.errors import DataError, excerpt, listing, missing_extra
from powerzoo_jax.base.textfile import check_size, open_regular, open_text, too_large
from powerzoo_jax.data.adapters.table import FileTable, read_cells, short_lines, table_of_rows

TIME, DATE = "time", "date"
DELIMITERS = (",", ";", "\t")
PREAMBLE = 50  # lines, among which the header is looked for
GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+")  # 1,234 is either of two numbers
NATIONAL = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4})[ T]+(\d{1,2}):(\d{2})(?::(\d{2}))?(?: *([AaPp])[Mm])?")
LAST = re.compile(r"([ T])24(:00(:00)?)(?=$|[+-]|Z)")  # 24:00 of a day
MOST_MONTHS = 12


def read_meter_file(path: Path, columns: Mapping[str, str] | None, max_mb: float | None) -> FileTable:
    """Table of a file by column names in lower case, with points in its numbers and without what is above its header.

    columns:  names of the file -> names of the table; the others are left out
    Raises DataError for a column that is missing or occurs twice, a row of another length, and numbers that may be two.
    """
    check_size(path, max_mb)
    names = {given.strip().lower(): own for given, own in (columns or {}).items()}
    time = next((given for given, own in names.items() if own == TIME), TIME)
    delimiter = "" if path.suffix.lower() == ".xlsx" else _delimiter(path, time)
    rows = read_cells(path, delimiter) if delimiter else _sheet(path, max_mb)
    above = list(islice(rows, PREAMBLE))
    filled = [sum(map(bool, _lowered(cells))) for _, cells in above] or [0]
    at = next((i for i, (_, cells) in enumerate(above) if time in _lowered(cells)), filled.index(max(filled)))
    header = _lowered(above[at][1]) if above else []
    if missing := [name for name in dict.fromkeys((time, *names)) if name not in header]:
        raise DataError(
            f"{path.name} has no column {missing[0]!r}; its header is {listing(filter(None, header))}. "
            "Rename one, or give columns={'a name of the file': 'time', ...}."
        )
    if twice := [name for name, count in Counter(header).items() if count > 1 and (name in names or not names)]:
        raise DataError(f"{path.name} has the column {listing(twice)} twice. Keep one of them.")
    table = table_of_rows(path.name, chain(above[at:], rows), (time,))
    kept = {names.get(name, name): cells for name, cells in table.columns.items() if name in names or not names}
    if not any(map(str.strip, kept.get("", ()))):  # every row ends in a delimiter
        kept.pop("", None)
    table = FileTable(table.where, table.lines, kept)
    points = {name: _points(table, name, delimiter) for name in kept if name not in (TIME, DATE)}
    return FileTable(table.where, table.lines, kept | points)


def read_stamps(table: FileTable, ends: bool = False) -> list[datetime]:
    """Stamps of the rows: ISO 8601, or day, month and year in the order that all rows together leave open.

    ends:  of intervals, the last of a day may then be its 24:00
    Raises DataError for anything else, naming the lines.
    """
    cells = [cell.strip() for cell in table.columns[TIME]]
    if DATE in table.columns:  # spreadsheets give a day as its midnight
        days = [re.split("[ T]", cell.strip())[0] for cell in table.columns[DATE]]
        cells = [f"{day} {cell}" for day, cell in zip(days, cells, strict=True)]
    later = [ends and LAST.search(cell) is not None for cell in cells]
    cells = [LAST.sub(r"\g<1>00\2", cell) if last else cell for cell, last in zip(cells, later, strict=True)]
    found = [NATIONAL.fullmatch(cell) or cell for cell in cells]
    turned = [entry for entry in found if isinstance(entry, re.Match) and entry[2] != "."]
    orders = [order for order in ((1, 3), (3, 1)) if all(int(entry[order[1]]) <= MOST_MONTHS for entry in turned)]
    stamps: list[datetime] = []
    wrong = []
    for row, entry in enumerate(found):
        try:
            if isinstance(entry, str):
                stamps.append(datetime.fromisoformat(entry))
            elif entry[2] != "." and len(orders) != 1:
                raise ValueError
            else:
                stamps.append(_from_national(entry, *(orders[0] if entry[2] != "." else (1, 3))))
        except ValueError:
            wrong.append(f"line {table.lines[row]} {cells[row]!r}")
    if wrong:
        end = " Starts of intervals have no 24:00: for ends give stamps='end'." if "24:00" in " ".join(wrong) else ""
        raise DataError(f"{table.where}: {listing(wrong)} is no ISO 8601 time. Write 2023-01-31T14:30 (+01:00).{end}")
    return [stamp + timedelta(days=last) for stamp, last in zip(stamps, later, strict=True)]


def _from_national(found: re.Match[str], day: int, month: int) -> datetime:
    hour, half = int(found[5]), (found[8] or "").lower()
    if half:  # 12 AM is midnight
        hour = datetime.strptime(f"{hour} {half}m", "%I %p").hour
    return datetime(int(found[4]), int(found[month]), int(found[day]), hour, int(found[6]), int(found[7] or 0))


def _lowered(cells: list[str]) -> list[str]:
    return [cell.strip().lower() for cell in cells]


def _delimiter(path: Path, time: str) -> str:
    """Delimiter of the first line that has the column of the stamps, else of the first line."""
    with open_text(path) as file:
        lines = list(islice(short_lines(path, file), PREAMBLE)) or [""]
    for line in lines:
        for delimiter in DELIMITERS:
            if time in [cell.strip(' "') for cell in _lowered(line.split(delimiter))]:
                return delimiter
    return max(DELIMITERS, key=lines[0].count)


def _points(table: FileTable, name: str, delimiter: str) -> list[str]:
    """Cells of a column with decimal points.

    A comma is the decimal sign between semicolons, and where a cell shows that it separates no thousands.
    """
    cells = table.columns[name]
    commas = [row for row, cell in enumerate(cells) if "," in cell]
    if not commas:
        return cells
    points = [row for row, cell in enumerate(cells) if "." in cell]
    if points or (delimiter != ";" and all(GROUPED.fullmatch(cells[row].strip()) for row in commas)):
        shown = listing(f"line {table.lines[row]} {excerpt(repr(cells[row]), 30)}" for row in [commas[0], *points[:1]])
        raise DataError(
            f"{table.where}: {name} has commas that may be the decimal sign or separate thousands ({shown}). "
            "Write its numbers without separators of thousands."
        )
    return [cell.replace(",", ".") for cell in cells]


def _sheet(path: Path, max_mb: float | None) -> Iterator[tuple[int, list[str]]]:
    """(row number, cells) of the first sheet of a workbook; raises ImportError without openpyxl."""
    try:
        import openpyxl
    except ImportError as err:
        raise ImportError(missing_extra("Reading a .xlsx file", "openpyxl", "excel")) from err
    with open_regular(path) as file:
        content = io.BytesIO(file.read())
    try:
        size = sum(part.file_size for part in zipfile.ZipFile(content).infolist()) / 1e6
        if max_mb is not None and size > max_mb:  # a packed file may be much larger than it looks
            raise DataError(too_large(str(path), size, max_mb))
        sheet = openpyxl.load_workbook(content, read_only=True, data_only=True).worksheets[0]
        for line, row in enumerate(sheet.iter_rows(values_only=True), 1):
            cells = [_text(cell) for cell in row]
            if any(cells):
                yield line, cells
    except (zipfile.BadZipFile, KeyError, IndexError) as err:
        raise DataError(f"{path} is no workbook of Excel. Save it as .xlsx again, or export the sheet as CSV.") from err


def _text(cell: object) -> str:
    return "" if cell is None else cell.isoformat(" ") if isinstance(cell, datetime) else str(cell)
