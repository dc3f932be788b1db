"""Damage to every file of a checkpoint in every way, and how much of it is noticed.

A small folder of two checkpoints is copied for each fault. A fault is noticed where reading gives one CheckpointError
that names the file, and survived where the checkpoint before it then comes back bit for bit. The table has a row a
kind of fault, and fails where one was read silently, by a foreign error, or without a way back.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base.errors import CheckpointError, DataError
from powerzoo_jax.rl.training import checkpoint
from powerzoo_jax.rl.training.config import APGConfig
from tools.tables import Row, Table

CONFIG = APGConfig(lanes=4, updates=4, widths=(8,))
GOOD, LAST = 1, 2  # updates of the two checkpoints
OUTCOMES = ("tried", "noticed", "survived", "silent", "foreign", "unnamed")


def state_of(updates: int) -> Any:
    """A small state of every kind of leaf: floats, integers, none at all, a random key."""
    values = jnp.arange(64, dtype=jnp.float32) / 7 + updates
    return {"weights": values, "count": jnp.int32(updates), "none": jnp.zeros((2, 0)), "key": jax.random.key(updates)}


def make_folder(folder: Path) -> Path:
    """A folder of two checkpoints."""
    for updates in (GOOD, LAST):
        checkpoint.save(folder, state_of(updates), CONFIG, updates=updates)
    return folder


def flip(path: Path, draw: random.Random) -> None:
    """Flip one bit."""
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def cut(path: Path, draw: random.Random) -> None:
    """Cut the end off."""
    content = path.read_bytes()
    path.write_bytes(content[: draw.randrange(len(content))])


def overwrite(path: Path, draw: random.Random) -> None:
    """Put foreign bytes of the same length in its place."""
    path.write_bytes(draw.randbytes(path.stat().st_size))


def lengthen(path: Path, draw: random.Random) -> None:
    """Append foreign bytes."""
    path.write_bytes(path.read_bytes() + draw.randbytes(1 + draw.randrange(9)))


def remove(path: Path, draw: random.Random) -> None:
    """Leave the file out, as a copy that was cut off does."""
    del draw
    path.unlink()


FAULTS: dict[str, Callable[[Path, random.Random], None]] = {
    "bit flipped": flip,
    "cut off": cut,
    "foreign bytes": overwrite,
    "bytes appended": lengthen,
    "file missing": remove,
}
ONCE = ("file missing",)  # what repeating shows nothing new of


def files_of(folder: Path) -> list[str]:
    """Every file of the last checkpoint that holds anything, metadata and digests too."""
    top = folder / str(LAST)
    return sorted(p.relative_to(top).as_posix() for p in top.rglob("*") if p.is_file() and p.stat().st_size)


def trials(
    folder: Path, repeats: int, faults: Sequence[str] = tuple(FAULTS), seed: int = 0
) -> Iterator[tuple[str, str, str]]:
    """(fault, file, outcome) of every trial; the outcome is one of OUTCOMES[2:]."""
    draw = random.Random(seed)
    for name in faults:
        for file in files_of(folder):
            for _ in range(1 if name in ONCE else repeats):
                with tempfile.TemporaryDirectory() as place:
                    copy = Path(place) / "checkpoint"
                    shutil.copytree(folder, copy)
                    FAULTS[name](copy / str(LAST) / file, draw)
                    yield name, file, outcome(copy, file)


def outcome(folder: Path, file: str) -> str:
    """Outcome of reading a folder whose last checkpoint has a fault in `file`."""
    like = state_of(LAST)
    for read in (lambda: checkpoint.load_config(folder), lambda: checkpoint.restore(folder, like)):
        try:
            read()
        except CheckpointError as err:
            if not isinstance(err, DataError) or file not in str(err) or f"update {GOOD} is whole" not in str(err):
                return "unnamed"
        except Exception:
            return "foreign"
        else:
            return "silent"
    # the way back that the message names
    shutil.rmtree(folder / str(LAST))
    return "survived" if equal(checkpoint.restore(folder, like), state_of(GOOD)) else "silent"


def equal(a: Any, b: Any) -> bool:
    """Equality bit for bit of two states."""
    pairs = zip(map(_words, jax.tree.leaves(a)), map(_words, jax.tree.leaves(b)), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


def _words(x: Any) -> Any:
    return jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x


def count(folder: Path, repeats: int) -> dict[str, Counter[str]]:
    """Number of trials of each fault by their outcome."""
    found: dict[str, Counter[str]] = {name: Counter() for name in FAULTS}
    for name, _, result in trials(folder, repeats):
        found[name].update(["tried", result] + ["noticed"] * (result == "survived"))
    return found


def rows(repeats: int = 20) -> Iterator[Row | str]:
    """Faults of every file of a checkpoint, and how many were noticed and survived.

    --repeats  seeded places a file and kind of fault
    """
    with tempfile.TemporaryDirectory() as place:
        folder = make_folder(Path(place) / "checkpoint")
        files = files_of(folder)
        found = count(folder, repeats)
    yield f"{len(files)} files: {', '.join(files)}"
    for name, row in (*found.items(), ("all", sum(found.values(), Counter()))):
        yield {"fault": name} | {key: str(row[key]) for key in OUTCOMES}


TABLE = Table(rows, ("fault", *OUTCOMES), fails=lambda row: row["tried"] != row["survived"])
