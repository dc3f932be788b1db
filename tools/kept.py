"""Files that take long to make: kept under build/, and made again when something that they depend on has changed."""

from __future__ import annotations

import fcntl
import hashlib
import platform
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
SOURCES = ("powerzoo_jax", "compat")


def kept(kind: str, stem: str, ending: str, digest: str, make: Callable[[], str]) -> str:
    """Text of build/KIND/STEM.DIGEST.ENDING, made and written where that file does not exist; older ones are removed.

    make:  function that makes the text; what it raises is passed on, and nothing is written then
    """
    folder = BUILD / kind
    target = folder / f"{stem}.{digest}.{ending}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{stem}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the tests and the site may ask at once, each in a process of its own
        if not target.exists():
            text = make()
            for old in folder.glob(f"{stem}.*.{ending}"):
                old.unlink()
            part = folder / f"{stem}.part"  # it gets its name when it is whole
            part.write_text(text, encoding="utf-8")
            part.replace(target)
        return target.read_text(encoding="utf-8")


def digest_with(text: str) -> str:
    """Hexadecimal digest of a text, of the package with its data and views, and of the versions of Python and jax."""
    return _digest("\n".join((platform.python_version(), version("jax"), _sources(), text)).encode())[:16]


@cache
def _sources() -> str:
    """Digest of the names and contents of all sources."""
    files = (path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*")) if path.is_file())
    told = (path for path in files if "__pycache__" not in path.parts)
    return _digest("\n".join(f"{path.relative_to(ROOT)} {_digest(path.read_bytes())}" for path in told).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
