"""SHA-256 digests of the files of a checkpoint: a changed bit, a missing part and a foreign file are told by name.

The list is a JSON file beside what it lists, and carries the digest of itself, so that no file is beyond doubt. It
tells accidents, of disks and of copying; whoever changes a file on purpose can write its digest too.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from powerzoo_jax.base.errors import CheckpointError, listing
from powerzoo_jax.base.files.results import write_text
from powerzoo_jax.base.textfile import open_regular, read_json

FORMAT = 2  # of a checkpoint: 2 has digests, 1 (nowhere written down) had none
DIGESTS = "digests.json"
OWN = "digest"  # key of the list's digest of itself


def write_digests(folder: Path, updates: int) -> None:
    """List size and digest of every file of a checkpoint that is complete, beside them."""
    content = {"format": FORMAT, "updates": updates, "files": _files(folder)}
    text = json.dumps(content | {OWN: _digest_of(content)}, indent=1)
    write_text(folder / DIGESTS, text + "\n")


def check_digests(folder: Path, updates: int) -> bool:
    """Compare every file of a checkpoint with its digest; False where there is no list, as before format 2.

    Raises CheckpointError naming the files that are damaged, missing or of another checkpoint.
    """
    special = [path for path in folder.rglob("*") if not (path.is_dir() or path.is_file())]
    if special:  # Orbax would open them
        raise CheckpointError(f"{listing(special)} is no regular file.")
    path = folder / DIGESTS
    if not path.exists():
        return False
    content = read_json(path, CheckpointError, "It lists the digests of the checkpoint.")
    if not isinstance(content, dict) or content.pop(OWN, None) != _digest_of(content):
        raise CheckpointError(f"{path} is damaged: it does not fit the digest of itself.")
    if content["format"] != FORMAT:
        raise CheckpointError(
            f"{path} tells format {content['format']}, this version reads {FORMAT}. Use the version of powerzoo_jax "
            "that wrote it."
        )
    if content["updates"] != updates:
        raise CheckpointError(f"{folder} is named after update {updates} and holds update {content['updates']}.")
    broken = [_fault(folder / name, *kept) for name, kept in content["files"].items()]
    faults = [fault for fault in broken if fault]
    if faults:
        raise CheckpointError(listing(faults))
    return True


def _files(folder: Path) -> dict[str, tuple[int, str]]:
    """Size [bytes] and digest of every file below a folder but the list, by its path from there."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / DIGESTS)
    return {path.relative_to(folder).as_posix(): (path.stat().st_size, _digest(path)) for path in paths}


def _fault(path: Path, size: int, digest: str) -> str:
    """Difference of a file from what was saved, as text; "" where there is none."""
    if not path.is_file():
        return f"{path} is missing"
    if path.stat().st_size != size:
        return f"{path} has {path.stat().st_size} bytes, {size} were saved"
    return "" if _digest(path) == digest else f"{path} is damaged (its SHA-256 is not that of what was saved)"


def _digest(path: Path) -> str:
    with open_regular(path, CheckpointError) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
