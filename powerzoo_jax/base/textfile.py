"""Files of users: only regular ones are opened, texts in their encoding, and one clear error for what cannot be read.

UTF-8 is read with and without its byte order mark; UTF-16 and UTF-32 only with theirs, as spreadsheets write it.
"""

from __future__ import annotations

import codecs
import io
import json
import math
import os
import stat
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, TextIO

from powerzoo_jax.base.errors import DataError, DataMissing, PowerZooError, SettingsError, excerpt
from powerzoo_jax.base.files.results import LONGEST_PATH
from powerzoo_jax.base.ranges import Range, fitted

# the mark of UTF-32 begins with that of UTF-16, so it is looked for first
MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
PACKED = (
    (b"PK\x03\x04", "a zip archive or a spreadsheet", "Unpack it, or export the sheet as CSV."),
    (b"\x1f\x8b", "compressed by gzip", "Unpack it."),
)
# [MB] Readers are linear in the size of a file, so a limit of size is one of time: these are read within a minute.
MAX_MB = 32.0  # the largest published grid, of 82,000 buses, has 25
MAX_TABLE_MB = 256.0
MAX_SETTINGS_MB = 1.0
DEEPEST = 100  # levels of lists and tables in a file
HEAD = 4096  # bytes at the start that tell text from binary
WESTERN = "cp1252"  # what files that are not UTF-8 nearly always are


def require_file(path: str | PathLike[str], what: str = "file", remedy: str = "Check the path.") -> Path:
    """The path of an existing file.

    Raises DataMissing where there is none, or a folder stands there, DataError for a device, a pipe or a socket.
    """
    path = Path(path)
    _look(path, DataError, what, remedy)
    return path


def _look(path: Path, error: type[PowerZooError], what: str = "file", remedy: str = "Check the path.") -> None:
    """Raise for what is no regular file."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as err:
        raise DataMissing(f"There is no {what} {_shown(path)}. {remedy}") from err
    except (OSError, ValueError) as err:  # a folder above it may not be entered; a name may be no name
        raise _unreadable(path, error, err) from err
    if stat.S_ISDIR(mode):
        raise DataMissing(f"{_shown(path)} is a folder, not a {what}. Give the path of the file itself.")
    if not stat.S_ISREG(mode):
        raise error(f"{_shown(path)} is a device, a pipe or a socket, not a {what}. Save its content as a file first.")


def open_regular(path: str | Path, error: type[PowerZooError] = DataError) -> io.BufferedReader:
    """Open a file for reading its bytes; what is no regular file is not even opened.

    A pipe would wait for a writer, a device would never end, and to open some is to use them. Raises DataMissing where
    there is no file, `error` for what cannot be read.
    """
    path = Path(path)
    _look(path, error)
    try:
        # what was looked at may have been replaced: a pipe opened so does not wait, and is looked at again
        raw = io.FileIO(path, opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))
    except OSError as err:
        raise _unreadable(path, error, err) from err
    if not stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
        raw.close()
        raise error(f"{_shown(path)} is no regular file any more. Save its content as a file first.")
    return io.BufferedReader(raw)


def check_size(
    paths: str | Path | Sequence[Path], max_mb: float | None, error: type[PowerZooError] = DataError
) -> None:
    """Refuse files that are larger together than `max_mb` [MB, 1e6 bytes]; None = any size."""
    check_limit(max_mb)
    files = [Path(paths)] if isinstance(paths, str | Path) else list(paths)
    try:
        size = sum(file.stat().st_size for file in files) / 1e6
    except OSError as err:
        raise _unreadable(files[0], error, err) from err
    if max_mb is not None and size > max_mb:
        raise error(
            too_large(str(files[0]) if len(files) == 1 else f"{files[0].parent} ({len(files)} files)", size, max_mb)
        )


def check_limit(max_mb: float | None) -> None:
    """Refuse a limit of size [MB] that is no positive number: every file is smaller than NaN."""
    fitted("max_mb", max_mb, Annotated[float, Range(0, open_low=True, infinite=True)] | None)


def decimal(text: str) -> float:
    """A number as files write it; raises ValueError for anything else, 1_000 included, which Python reads as 1000."""
    if "_" in text or not text.isascii():
        raise ValueError(f"{text!r} is not a number.")
    return float(text)


def too_large(what: str, size_mb: float, max_mb: float) -> str:
    """Message for what exceeds a limit of size."""
    remedy = f"Give max_mb={math.ceil(size_mb)} if you trust its source, or None for no limit."
    return f"{what} has {size_mb:.4g} MB, the limit is {max_mb:g}. {remedy}"


@contextmanager
def open_text(
    path: str | Path,
    error: type[PowerZooError] = DataError,
    *,
    newline: str | None = None,
    legacy: str = "",
    max_mb: float | None = None,
) -> Iterator[TextIO]:
    """Open a text file in the encoding that its first bytes tell.

    error:    class of what is raised for a file that is binary, of another encoding, too large, or not to be read
    newline:  as in `open`
    legacy:   encoding of files that are not UTF-8 and carry no mark; "" = refuse them
    max_mb:   [MB] largest file that is opened; None = any
    """
    path = Path(path)
    check_size(path, max_mb, error)
    with open_regular(path, error) as file:
        head = file.read(HEAD)
    encoding = _encoding(path, head, error)
    if legacy and encoding == "utf-8" and _first_foreign(path) is not None:
        encoding = legacy
    try:
        with io.TextIOWrapper(open_regular(path, error), encoding=encoding, newline=newline) as stream:
            yield stream
    except UnicodeDecodeError as err:
        raise error(_foreign(path, encoding)) from err


def read_text(
    path: str | Path, error: type[PowerZooError] = DataError, *, legacy: str = "", max_mb: float | None = None
) -> str:
    """The whole text of a file; arguments and errors are those of `open_text`."""
    with open_text(path, error, legacy=legacy, max_mb=max_mb) as stream:
        return stream.read()


def read_json(path: str | Path, error: type[PowerZooError], remedy: str, *, max_mb: float | None = MAX_TABLE_MB) -> Any:
    """Content of a JSON file. Raises `error` with the place of the fault and the remedy."""
    text = read_text(path, error, max_mb=max_mb)
    if not text.strip():
        raise error(f"{path} is empty. {remedy}")
    return parse_json(text, str(path), error, remedy)


def parse_json(text: str, what: str, error: type[PowerZooError], remedy: str) -> Any:
    """Content of a JSON text; `what` names it in the message. Deep nesting is an error as any other."""
    try:
        return shallow(json.loads(text))
    except (ValueError, RecursionError) as err:
        raise error(f"{what} is not JSON ({err}). {remedy}") from err


def shallow(content: Any) -> Any:
    """Plain content as it is. Raises ValueError where it is nested deeper than any file of ours, or holds itself."""
    level = [content]
    for _ in range(DEEPEST):
        level = [
            inner
            for node in level
            if isinstance(node, dict | list)
            for inner in (node.values() if isinstance(node, dict) else node)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return content
    raise ValueError(f"nested deeper than {DEEPEST} levels")


def read_toml(path: str | Path, what: str = "settings file") -> dict[str, Any]:
    """Content of a TOML file. Raises DataMissing where there is none, SettingsError naming the line of a fault."""
    path = require_file(path, what)
    if path.stat().st_size > 1e6 * MAX_SETTINGS_MB:
        raise SettingsError(f"{what} {path} has more than {MAX_SETTINGS_MB:g} MB: it holds no settings. Check it.")
    text = read_text(path, SettingsError)
    try:
        content: dict[str, Any] = shallow(tomllib.loads(text))
    except (ValueError, RecursionError) as err:
        raise SettingsError(f"{what} {path}: {err}. Correct that line; text stands in quotes, as in configs/.") from err
    return content


def _encoding(path: Path, head: bytes, error: type[PowerZooError]) -> str:
    for mark, encoding in MARKS:
        if head.startswith(mark):
            return encoding
    for mark, what, remedy in PACKED:
        if head.startswith(mark):
            raise error(f"{path} is {what}, not text. {remedy}")
    if b"\0" in head:
        raise error(f"{path} holds zero bytes: it is binary, or UTF-16 without its mark. Save it as text in UTF-8.")
    return "utf-8"


def _first_foreign(path: Path) -> tuple[int, int] | None:
    """(line, byte) of the first byte that is not UTF-8; None where all are."""
    with open_regular(path) as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as err:
                return number, line[err.start]
    return None


def _foreign(path: Path, encoding: str) -> str:
    """Message for a file that is not in the encoding its first bytes tell."""
    found = _first_foreign(path) if encoding.startswith("utf-8") else None
    if found is None:
        return f"{path} begins as {encoding.upper()} and does not go on so: it is cut off. Save it again, as UTF-8."
    line, byte = found
    sign = bytes([byte]).decode(WESTERN, errors="ignore")
    guess = f", {sign!r} in Latin-1 (Windows-1252)" if sign else ""
    remedy = 'Save it as UTF-8; spreadsheets call that "CSV UTF-8".'
    return f"{path} line {line} is not UTF-8 (byte 0x{byte:02x}{guess}). {remedy}"


def _unreadable(path: Path, error: type[PowerZooError], err: Exception) -> PowerZooError:
    reason = getattr(err, "strerror", None) or err
    return error(f"{_shown(path)} cannot be read: {reason}. Check the path, its owner and its mode.")


def _shown(path: Path) -> str:
    return excerpt(repr(str(path)), LONGEST_PATH)


def parse_assignments(texts: Sequence[str], what: str) -> dict[str, Any]:
    """Values by name out of NAME=VALUE: numbers, true, false, null and [lists] as in JSON, all else as text.

    what:  name of the setting or option that holds the texts
    Raises SettingsError for a text of another form or a name that is given twice.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not (name.isidentifier() and sign and value):
            raise SettingsError(f"{what} {text!r} is not of the form NAME=VALUE, such as case=case69.")
        if name in found:
            raise SettingsError(f"{what} {name} is given twice.")
        found[name] = _value(value)
    return found


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return tuple(value) if isinstance(value, list) else value
