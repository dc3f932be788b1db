"""Checkpoints of a training state with its settings: a resumed run ends as if it had never stopped.

A folder of checkpoints holds a subfolder for each of the last two, named by the updates done: the arrays as Orbax
writes them, the settings as JSON, and the digests of all its files. A subfolder appears whole or not at all, and the
oldest goes only then: a process killed at any instant leaves the last checkpoint behind, and other processes may read
the folder while a training writes to it. Where the last one is damaged, the one before it is there to go on from.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from jax.sharding import Sharding, SingleDeviceSharding
from orbax.checkpoint.multihost import sync_global_processes

from powerzoo_jax.base.errors import CheckpointError, DataMissing, PowerZooError, RunError, listing, unknown
from powerzoo_jax.base.files.results import not_written
from powerzoo_jax.rl.networks.split import divided_like, undivided
from powerzoo_jax.rl.training.config import ALGORITHMS, Config
from powerzoo_jax.rl.training.digests import DIGESTS, FORMAT, check_digests, write_digests

S = TypeVar("S")
R = TypeVar("R")

STATE, SETTINGS = "state", "settings"
KEPT = 2  # checkpoints of a folder: the last, and the one before it in case a file of the last is damaged
PARTIAL = ".partial"  # folder inside it of what is being written, and of what goes
LONGEST = 200  # characters of another library's complaint that are passed on
SYSTEM_ERROR = re.compile(r"os_error_code='(\d+)'")  # in what TensorStore says
LOOKS, PAUSE_S = 4, 0.05  # at a checkpoint that cannot be read, while nothing replaces it


def save(folder: str | Path, state: Any, cfg: Config, *, updates: int) -> None:
    """Write a state and the resolved settings beside what the folder holds, then drop all but the last KEPT.

    updates:  updates done so far, given back by `load_config`; more than at the last call for the same folder
    With several processes every one of them calls, with arrays that each holds whole.
    """
    folder = Path(folder).absolute()
    partial, first = folder / PARTIAL, jax.process_index() == 0
    replaced = _not_before(folder, updates)
    if first and partial.exists():
        shutil.rmtree(partial)  # of a process that was killed
    sync_global_processes("checkpoint begins")
    record = {"format": FORMAT} | cfg.to_dict()
    items = {STATE: ocp.args.StandardSave(_filled(state)), SETTINGS: ocp.args.JsonSave(record)}
    try:
        with _quiet(), _manager(partial) as manager:
            manager.save(updates, args=ocp.args.Composite(**items), force=True)
    except Exception as err:  # Orbax and TensorStore say in many ways that a disk is full
        if first:
            shutil.rmtree(partial, ignore_errors=True)
        told = SYSTEM_ERROR.search(str(err))
        reason = OSError(int(told[1]), os.strerror(int(told[1]))) if told else err
        raise not_written(folder / str(updates), reason) from err
    if first:
        write_digests(partial / str(updates), updates)
        for old in replaced:
            (folder / str(old)).rename(partial / f"{old}.damaged")
        (partial / str(updates)).rename(folder / str(updates))
        for old in _updates(folder)[:-KEPT]:
            # out of sight first: the removal of a folder may be cut off half way
            (folder / str(old)).rename(partial / f"{old}.old")
        shutil.rmtree(partial)
    sync_global_processes("checkpoint ends")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Orbax from printing the tracebacks of its threads: what they end in is raised as well."""
    log = logging.getLogger("absl")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _not_before(folder: Path, updates: int) -> list[int]:
    """Damaged checkpoints of this update and later ones, which a run that went on from an earlier one replaces.

    Raises ValueError for a whole one among them.
    """
    later = [there for there in _updates(folder) if there >= updates]
    whole = [there for there in later if _is_whole(folder / str(there), there)]
    if whole:
        raise ValueError(f"checkpoint {folder}: update {updates} does not follow update {whole[-1]}.")
    return later


def exists(folder: str | Path) -> bool:
    """True where the folder holds a complete checkpoint."""
    return bool(_updates(folder))


def load_config(folder: str | Path, *, updates: int | None = None) -> tuple[Config, int]:
    """Read the settings of a checkpoint and the updates done.

    updates:  which of the checkpoints that the folder holds; None = the last
    Raises DataMissing where there is none, CheckpointError (a DataError and a RunError) naming the file for one that is
    damaged, RunError for one of an unknown algorithm.
    """

    def read(manager: ocp.CheckpointManager, updates: int) -> tuple[Config, int]:
        record = _record(manager, updates)
        algorithm = record.pop("algorithm")
        if algorithm not in ALGORITHMS:
            raise RunError(f"checkpoint {folder}: {unknown('algorithm', algorithm, ALGORITHMS)}")
        return ALGORITHMS[algorithm].from_dict(record), updates

    return _read(folder, updates, read)


def restore(folder: str | Path, like: S, sharding: Sharding | None = None, *, updates: int | None = None) -> S:
    """Read a state into the structure of `like`: a state of the same settings, or its shapes (`jax.eval_shape`).

    sharding:  where every array goes; None = the first device
    updates:   which of the checkpoints that the folder holds; None = the last
    Raises DataMissing where there is none, RunError (a ValueError) where a leaf has another shape or dtype, that is
    where task or settings differ, and CheckpointError naming the file where the checkpoint is damaged.
    """
    where = SingleDeviceSharding(jax.devices()[0]) if sharding is None else sharding
    target = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), like)
    before = undivided(target)

    def read(manager: ocp.CheckpointManager, updates: int) -> Any:
        stored = manager.item_metadata(updates)[STATE]
        if stored is None:
            raise ValueError("the list of its arrays is missing")
        form = before if _paths(stored) == _paths(_filled(before)) else target
        _compare(folder, stored, _filled(form))
        wanted = ocp.args.StandardRestore(_filled(form))
        found = manager.restore(updates, args=ocp.args.Composite(**{STATE: wanted}))[STATE]
        return divided_like(found, target)

    state = _read(folder, updates, read)

    def back(old: Any, new: Any) -> Any:
        return new if old.size else jnp.zeros(old.shape, old.dtype, device=where)

    return jax.tree.map(back, target, state)


def _manager(folder: str | Path, **options: Any) -> ocp.CheckpointManager:
    options = ocp.CheckpointManagerOptions(enable_async_checkpointing=False, **options)
    handlers = {STATE: ocp.StandardCheckpointHandler(), SETTINGS: ocp.JsonCheckpointHandler()}
    return ocp.CheckpointManager(Path(folder).absolute(), options=options, item_handlers=handlers)


def _record(manager: ocp.CheckpointManager, updates: int) -> dict[str, Any]:
    """Settings that a checkpoint holds. Raises CheckpointError where digests belong to its format and are missing."""
    wanted = ocp.args.Composite(**{SETTINGS: ocp.args.JsonRestore()})
    record = dict(manager.restore(updates, args=wanted)[SETTINGS])
    folder = Path(manager.directory) / str(updates)
    if record.pop("format", 1) >= FORMAT and not (folder / DIGESTS).exists():
        raise CheckpointError(f"{folder / DIGESTS} is missing: the checkpoint was copied in part.")
    return record


def _read(folder: str | Path, updates: int | None, read: Callable[[ocp.CheckpointManager, int], R]) -> R:
    """Result of `read` on a checkpoint that fits its digests; of the next one where a training replaces it meanwhile.

    updates:  None = the last checkpoint
    """
    quiet = 0  # failures in a row during which nothing was replaced
    while True:
        there = _updates(folder)
        chosen = max(there, default=0) if updates is None else updates
        try:
            if chosen not in there:
                raise DataMissing(_none(folder, updates, there))
            listed = check_digests(Path(folder).absolute() / str(chosen), chosen)
            # a reader keeps whatever is there: a training may be writing to the folder
            with _manager(folder, create=False) as manager:
                if not listed:
                    _record(manager, chosen)
                found = read(manager, chosen)
            if not listed:
                warnings.warn(
                    f"checkpoint {folder}, update {chosen}, is of format 1: it has no digests, so that a damaged bit "
                    "would go unnoticed. The next checkpoint of the run has them.",
                    stacklevel=3,
                )
            return found
        except Exception as err:  # Orbax and TensorStore say in many ways that a part is missing or broken
            if isinstance(err, RunError) and not isinstance(err, CheckpointError):  # whole, and of other settings
                raise
            # an old checkpoint may vanish under the reader, or its folder be half renamed: look again
            quiet = quiet + 1 if _updates(folder) == there else 0
            known = quiet and isinstance(err, CheckpointError)  # digests do not change by looking again
            if quiet < LOOKS and not known and Path(folder).is_dir():
                time.sleep(PAUSE_S)
                continue
            if isinstance(err, PowerZooError) and not isinstance(err, CheckpointError):
                raise
            raise CheckpointError(_damaged(Path(folder), chosen, err)) from err


def _none(folder: str | Path, updates: int | None, there: list[int]) -> str:
    if there:
        return f"{folder} holds no checkpoint of update {updates}. Valid: {listing(there)}."
    return f"{folder} holds no checkpoint. Train the run, or give the folder that `save` was given."


def _damaged(folder: Path, updates: int, err: Exception) -> str:
    """Message for a checkpoint that cannot be used: its file, and the way back."""
    reason = (next(iter(str(err).splitlines()), "") or type(err).__name__).rstrip(".")
    reason = reason if isinstance(err, CheckpointError) else reason[:LONGEST]
    good = [u for u in _updates(folder) if u != updates and _is_whole(folder / str(u), u)]
    if good:
        way = (
            f"The checkpoint of update {good[-1]} is whole: remove {folder / str(updates)} and go on from there "
            f"(--resume), or read it with updates={good[-1]}."
        )
    else:
        way = "Restore the folder from a copy, or train again from the start (--overwrite)."
    return f"checkpoint {folder}, update {updates}, cannot be used: {reason}. {way}"


def _is_whole(folder: Path, updates: int) -> bool:
    """True for a checkpoint in which no fault is known: its files fit their digests, or it has none."""
    try:
        check_digests(folder, updates)
    except CheckpointError:
        return False
    return True


def _updates(folder: str | Path) -> list[int]:
    """Updates of the finished checkpoints of a folder, the last one last."""
    return sorted(ocp.utils.checkpoint_steps(Path(folder).absolute())) if Path(folder).is_dir() else []


def _filled(tree: S) -> S:
    """Orbax stores no array without elements (a fleet of none, an action without choices): those are left out."""
    return jax.tree.map(lambda x: x if x.size else None, tree)


def _compare(folder: str | Path, stored: Any, target: Any) -> None:
    """Check of structure, shapes and dtypes: Orbax would report leaf by leaf, and cast other dtypes silently."""
    # typed PRNG keys are stored as their words
    words = jax.eval_shape(lambda tree: jax.tree.map(_words, tree), target)
    old, new = ocp.tree.to_flat_dict(stored), ocp.tree.to_flat_dict(words)
    hint = "Restore it with the settings of `load_config` and the task they name."
    if old.keys() != new.keys():
        others = listing(sorted(".".join(path) for path in old.keys() ^ new.keys()))
        raise RunError(f"checkpoint {folder} and the state expected do not both hold {others}. {hint}")
    for path, leaf in new.items():
        kept = old[path]
        if tuple(kept.shape) != leaf.shape or kept.dtype != leaf.dtype:
            raise RunError(
                f"checkpoint {folder}: {'.'.join(path)} is {kept.dtype}{list(kept.shape)}, expected "
                f"{leaf.dtype}{list(leaf.shape)}. {hint}"
            )


def _paths(tree: Any) -> set[Any]:
    return set(ocp.tree.to_flat_dict(tree))


def _words(x: Any) -> Any:
    return jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
