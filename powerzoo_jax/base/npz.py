"""npz archives that depend on their content alone, for the developers' builders."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from powerzoo_jax.base.errors import DataError

EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest time a zip entry can carry; any fixed value would do
READABLE = 0o644 << 16  # file mode of an entry, or the umask of the builder's machine would enter the bytes


def write_npz(path: str | Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as a compressed npz with sorted keys, fixed timestamps and fixed modes.

    Raises ValueError for an object array, which only pickle could store.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(arrays):
            entry = zipfile.ZipInfo(f"{name}.npy", EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix on every platform, for the same reason as the mode
            entry.external_attr = READABLE
            archive.writestr(entry, _encode(name, arrays[name]), compresslevel=9)


def _encode(name: str, array: np.ndarray) -> bytes:
    value = np.asarray(array)
    if value.dtype.hasobject:
        raise ValueError(f"array {name!r} holds Python objects. Give numbers, booleans or fixed-width strings.")
    buffer = io.BytesIO()
    # not ascontiguousarray, which would turn a scalar into a vector of one
    np.lib.format.write_array(buffer, np.asarray(value, order="C"), version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def read_npz(path: str | Path) -> dict[str, np.ndarray]:
    """Read every array of an npz; pickled content is refused. Raises DataError for a file that is cut off or no npz."""
    try:
        with np.load(Path(path), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as err:
        remedy = "Restore the file; those of the package come with a new installation."
        raise DataError(f"{path} is damaged ({err}). {remedy}") from err


def compare_npz(path: str | Path, arrays: Mapping[str, np.ndarray]) -> list[str]:
    """List the differences between a committed npz and fresh arrays: name, dtype, shape, bytes.

    The decoded content is compared, since deflate output depends on the zlib build. Empty = equal.
    """
    target = Path(path)
    if not target.is_file():
        return [f"{target.name}: not committed"]
    old = read_npz(target)
    lines = [f"{target.name}: {name} is committed and no longer built" for name in sorted(old.keys() - arrays.keys())]
    lines += [f"{target.name}: {name} is built and not committed" for name in sorted(arrays.keys() - old.keys())]
    for name in sorted(old.keys() & arrays.keys()):
        difference = _difference(old[name], np.asarray(arrays[name]))
        if difference:
            lines.append(f"{target.name}: {name} {difference}")
    return lines


def _difference(old: np.ndarray, new: np.ndarray) -> str:
    if old.dtype != new.dtype:
        return f"has dtype {old.dtype} in the file and {new.dtype} when built"
    if old.shape != new.shape:
        return f"has shape {old.shape} in the file and {new.shape} when built"
    if old.tobytes() == new.tobytes():
        return ""
    equal = (old == new) | ((old != old) & (new != new))
    # equal values with other bytes are signed zeros or NaN payloads: still a difference to report
    where = np.flatnonzero(~equal)
    if where.size == 0:
        return "differs in its bytes only (signed zeros or NaN payloads)"
    first = int(where[0])
    return f"differs in {where.size} of {old.size} values, first {old.flat[first]!r} -> {new.flat[first]!r}"
