"""npz archives that depend on their content alone, and are looked through before memory is asked for."""

from __future__ import annotations

import io
import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from powerzoo_jax.base.errors import DataError, excerpt
from powerzoo_jax.base.files.results import writing
from powerzoo_jax.base.textfile import check_size, open_regular, too_large

EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest time a zip entry can carry; any fixed value would do
READABLE = 0o644 << 16  # file mode of an entry, or the umask of the builder's machine would enter the bytes

MAX_NPZ_MB = 512.0
MAX_LIST_MB = 16.0  # of the names of arrays and where they stand: some 100,000 of them
LONGEST_HEADER = 10_000  # bytes; NumPy's own limit of what it evaluates
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
# an encrypted entry is a RuntimeError, an unknown compression a NotImplementedError, a name that is no text an OSError
DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, tokenize.TokenError),
    *(EOFError, OSError, ValueError, TypeError, RuntimeError, OverflowError, SyntaxError, KeyError),
)


def write_npz(path: str | Path, arrays: Mapping[str, np.ndarray], *, level: int = 9) -> None:
    """Write arrays as a compressed npz with sorted keys, fixed timestamps and fixed modes, whole or not at all.

    level:  of the compression, 0 to 9
    Raises ValueError for an object array, which only pickle could store, WriteError as `files.results.writing`.
    """
    with writing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(arrays):
            entry = zipfile.ZipInfo(f"{name}.npy", EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix on every platform, for the same reason as the mode
            entry.external_attr = READABLE
            archive.writestr(entry, _encode(name, arrays[name]), compresslevel=level)


def _encode(name: str, array: np.ndarray) -> bytes:
    value = np.asarray(array)
    if value.dtype.hasobject:
        raise ValueError(f"array {name!r} holds Python objects. Give numbers, booleans or fixed-width strings.")
    buffer = io.BytesIO()
    # not ascontiguousarray, which would turn a scalar into a vector of one
    np.lib.format.write_array(buffer, np.asarray(value, order="C"), version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def read_npz(path: str | Path, *, max_mb: float | None = MAX_NPZ_MB) -> dict[str, np.ndarray]:
    """Read every array of an npz; pickled content is refused.

    max_mb:  [MB] largest file, and largest sum of the unpacked arrays; None = any

    What an array says of its shape and type is compared with the size of its entry before memory is asked for. Raises
    DataMissing without the file, DataError for one that is cut off, no npz, too large, or holds anything but arrays of
    numbers and strings.
    """
    with _Pieces(open_regular(path).detach()) as file:
        check_size(path, max_mb)
        return _read(path, file, max_mb)


class _Pieces(io.BufferedReader):
    """File of which no large piece is read at once.

    An archive ends with the list of its entries, which `zipfile` reads in one piece, as long as the file says it is.
    """

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > 1e6 * MAX_LIST_MB:
            raise DataError(f"{self.name} lists arrays in more than {MAX_LIST_MB:g} MB. It is no file of ours.")
        return super().read(size)


def _read(path: str | Path, file: BinaryIO, max_mb: float | None) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            size = sum(entry.file_size for entry in entries) / 1e6
            if max_mb is not None and size > max_mb:
                raise DataError(too_large(f"{path}, unpacked,", size, max_mb))
            if len({entry.filename for entry in entries}) < len(entries):
                raise ValueError("two entries have one name")
            return {entry.filename.removesuffix(".npy"): _decode(archive, entry) for entry in entries}
    except DataError:
        raise
    except DAMAGED as err:
        remedy = "Restore the file; those of the package come with a new installation."
        raise DataError(f"{path} is damaged ({excerpt(err) or type(err).__name__}). {remedy}") from err


def _decode(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(entry) as stream:
        version = np.lib.format.read_magic(stream)
        if version not in HEADERS:
            raise ValueError(f"{entry.filename} has version {version} of the format")
        shape, _, dtype = HEADERS[version](stream, max_header_size=LONGEST_HEADER)
        stated = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or min(shape, default=0) < 0 or stream.tell() + stated != entry.file_size:
            content = "objects that only pickle could load" if dtype.hasobject else f"{dtype} of shape {shape}"
            raise ValueError(f"{entry.filename} of {entry.file_size} bytes claims to hold {content}")
        stream.seek(0)
        array: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False, max_header_size=LONGEST_HEADER)
        return array


def require_array(arrays: Mapping[str, np.ndarray], key: str, kinds: str, shape: tuple[int | None, ...]) -> np.ndarray:
    """The array of a name, which anybody may have written.

    kinds:  of its dtype, as NumPy names them by a letter, such as "fiu"
    shape:  None = any length
    Raises ValueError where it is missing, or another.
    """
    if key not in arrays:
        raise ValueError(f"{key!r} is missing")
    found = arrays[key]
    same = len(found.shape) == len(shape) and all(n in (None, m) for n, m in zip(shape, found.shape, strict=True))
    if found.dtype.kind not in kinds or not same:
        raise ValueError(f"{key!r} is {found.dtype} of shape {found.shape}")
    return found
