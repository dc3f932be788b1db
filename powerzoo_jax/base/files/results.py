"""Files that are written: a new one takes its place whole or not at all, and no link leads elsewhere."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from powerzoo_jax.base.errors import WriteError, excerpt

LONGEST_PATH = 1000  # characters that a message shows
LONGEST_NAME = 100  # characters of a name that become part of that of a file


@contextmanager
def writing(path: str | Path) -> Iterator[BinaryIO]:
    """Write a file beside the one of that name, which it replaces once the block has ended; its folder is made.

    Whenever the process is killed or the disk is full, the file is as before or as written. Raises WriteError naming
    it, also where a link, a folder or a device stands there.
    """
    target = Path(path)
    part = target.parent / f".{os.getpid()}-{secrets.token_hex(4)}.part"
    try:
        require_replaceable(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except WriteError:
        raise
    except OSError as err:
        raise not_written(target, err) from err


def write_text(path: str | Path, text: str) -> None:
    """Write a text in UTF-8, as `writing` does."""
    content = text.encode("utf-8", errors="backslashreplace")  # a name may hold what is no character
    with writing(path) as file:
        file.write(content)


def not_written(target: Path, err: Exception) -> WriteError:
    """Error for a file or folder that could not be written, for the reason that the system gives."""
    reason = (getattr(err, "strerror", None) or excerpt(err) or type(err).__name__).rstrip(".")
    return WriteError(f"{excerpt(target, LONGEST_PATH)} cannot be written: {reason}. What was there is unchanged.")


def require_replaceable(target: Path) -> None:
    """See that a result can take the place of what stands there. Raises WriteError for anything but a file.

    A link may lead anywhere, and a device would be replaced by a file.
    """
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        kind = "a link" if stat.S_ISLNK(mode) else "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise WriteError(f"{excerpt(target, LONGEST_PATH)} is {kind}, and is left as it is. Give the path of a file.")


def file_name(*words: str) -> str:
    """Words as part of the name of a file: letters, digits, dots, hyphens and underscores, and no path."""
    return re.sub(r"[^\w.-]+", "_", "_".join(words)).lstrip(".")[:LONGEST_NAME]
