"""A lock on the folder that a command writes to: two trainings in one folder would destroy each other's run.

The operating system holds it (`flock`), so a process that is killed lets go by itself; a file says who holds it. Where
there are no such locks, as on Windows and on some network drives, that a file exists is the lock, and one that a dead
process of the same machine has left is taken over.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from powerzoo_jax.base.errors import RunError
from powerzoo_jax.base.files.forms import misfit
from powerzoo_jax.base.textfile import open_regular

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LOCK, HOLDER = ".lock", ".holder"  # what the system locks, and the file that stands for a lock where it locks nothing
HOLDS = {"command": str, "pid": int, "host": str, "since": str}  # what the file says of its holder
LEAST_NO_PID = 2**31
LONGEST = 10_000  # bytes of that
FOREIGN = (errno.ELOOP, errno.EISDIR, errno.ENXIO)  # what opening a link, a folder or a socket ends in
HELD = (errno.EACCES, errno.EAGAIN)  # what `flock` says of a lock that somebody has
NAP_S = 0.05  # between a lock and the name of its holder

Release = Callable[[], None]


@contextmanager
def hold(folder: Path, command: str) -> Iterator[None]:
    """Keep other processes from writing to a folder, which is made where it is missing; reading stays free.

    command:  what this process runs, for the message that others get
    Raises RunError that names the holder while another process, or another call in this one, holds the folder.
    """
    created = not folder.is_dir()
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    mine = {"command": command, "pid": os.getpid(), "host": socket.gethostname(), "since": now}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        release = _by_system(folder / LOCK, mine) or _by_existence(folder / HOLDER, mine)
    except OSError as err:
        raise RunError(f"{str(folder)!r} cannot be written to: {err.strerror}. Choose another folder.") from err
    try:
        yield
    finally:
        release()
        if created:  # a command that was refused leaves no empty folder behind
            with suppress(OSError):
                folder.rmdir()


def _by_system(path: Path, mine: dict[str, Any]) -> Release | None:
    """Lock a file; None where the system, or the drive, has no locks."""
    if fcntl is None:
        return None
    while True:
        file = _open_own(path)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as err:
            os.close(file)
            if err.errno in HELD:
                raise _refusal(path, _holder(path), "A process that is killed lets go by itself.") from None
            path.unlink(missing_ok=True)  # nobody can lock it here
            return None
        with suppress(FileNotFoundError):
            # the holder before may have removed the file after we had opened it: then it keeps nobody out
            if os.path.samestat(os.fstat(file), path.stat()):
                break
        os.close(file)
    os.ftruncate(file, 0)
    os.pwrite(file, json.dumps(mine).encode(), 0)

    def release() -> None:
        path.unlink(missing_ok=True)  # before the lock goes, or the file may be the next holder's
        os.close(file)

    return release


def _open_own(path: Path) -> int:
    """Descriptor of the file to lock, which is made where it is missing.

    Raises RunError for what no lock of ours is: it is written to and removed, so a link, a file that has another name
    elsewhere, or one with other content may not stand there.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as err:
        if err.errno in FOREIGN:
            raise RunError(_foreign(path)) from None
        raise
    about = os.fstat(file)
    text = os.pread(file, LONGEST + 1, 0) if stat.S_ISREG(about.st_mode) and about.st_nlink < 2 else b"?"
    if text and not _parsed(text):
        os.close(file)
        raise RunError(_foreign(path))
    return file


def _foreign(path: Path) -> str:
    return f"{path} is no lock of ours, and is left as it is. Move it away, or choose another folder."


def _parsed(text: bytes) -> dict[str, Any]:
    """Holder that a lock tells of; nothing for any other text."""
    with suppress(ValueError, RecursionError):
        holder = json.loads(text[:LONGEST])
        if not misfit(holder, HOLDS) and 0 < holder["pid"] < LEAST_NO_PID:
            return dict(holder)
    return {}


def _by_existence(path: Path, mine: dict[str, Any]) -> Release:
    """Make a file that must not exist, unless its maker is dead.

    Two processes that find the same dead maker within an instant may both go on; a lock of the system has no such gap.
    """
    while True:
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            holder = _holder(path)
            if not _is_dead(holder):
                raise _refusal(path, holder, f"If that process is gone, remove {path}.") from None
            path.unlink(missing_ok=True)
        else:
            os.write(file, json.dumps(mine).encode())
            os.close(file)
            return lambda: path.unlink(missing_ok=True)


def _holder(path: Path) -> dict[str, Any]:
    """Text that the holder has written into the lock; nothing where it had no time to."""
    for _ in range(2):
        with suppress(OSError, ValueError), open_regular(path) as file:
            if holder := _parsed(file.read(LONGEST + 1)):
                return holder
        time.sleep(NAP_S)
    return {}


def _is_dead(holder: dict[str, Any]) -> bool:
    """True where the holder is known to have ended: only its own machine can tell, and not under Windows."""
    if holder.get("host") != socket.gethostname() or os.name == "nt":
        return False
    try:
        os.kill(holder["pid"], 0)  # signal 0 asks, and does nothing
    except ProcessLookupError:
        return True
    except PermissionError:  # alive, and another user's
        return False
    return False


def _refusal(path: Path, holder: dict[str, Any], hint: str) -> RunError:
    folder, who = path.parent, "another process"
    if holder:
        who = f"`{holder['command']}`, process {holder['pid']} on {holder['host']}, since {holder['since']}"
    return RunError(
        f"{folder} is in use by {who}. Wait until it has ended, or choose another folder; "
        f"`evaluate` may read this one meanwhile. {hint}"
    )
