"""Checkpoints of a training state with its settings: a resumed run ends as if it had never stopped.

A checkpoint is a folder that Orbax keeps: one subfolder, named by the updates done, with the arrays and, as JSON, the
settings. A subfolder appears whole or not at all, and the one before it goes only then: a process killed at any
instant leaves the last checkpoint behind, and other processes may read the folder while a training writes to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from jax.sharding import Sharding, SingleDeviceSharding

from powerzoo_jax.base.errors import DataMissing, PowerZooError, RunError, listing, unknown
from powerzoo_jax.rl.networks.split import divided_like, undivided
from powerzoo_jax.rl.training.config import ALGORITHMS, Config

S = TypeVar("S")
R = TypeVar("R")

STATE, SETTINGS = "state", "settings"
LONGEST = 200  # characters of another library's complaint that are passed on
LOOKS, PAUSE_S = 4, 0.05  # at a checkpoint that cannot be read, while nothing replaces it


def save(folder: str | Path, state: Any, cfg: Config, *, updates: int) -> None:
    """Write a state and the resolved settings beside what the folder holds, then drop that.

    updates:  updates done so far, given back by `load_config`; more than at the last call for the same folder
    With several processes every one of them calls, with arrays that each holds whole.
    """
    items = {STATE: ocp.args.StandardSave(_filled(state)), SETTINGS: ocp.args.JsonSave(cfg.to_dict())}
    with _manager(folder, max_to_keep=1) as manager:
        if not manager.save(updates, args=ocp.args.Composite(**items), force=True):
            raise ValueError(f"checkpoint {folder}: update {updates} does not follow update {manager.latest_step()}.")


def exists(folder: str | Path) -> bool:
    """True where the folder holds a complete checkpoint."""
    return bool(_updates(folder))


def load_config(folder: str | Path) -> tuple[Config, int]:
    """Read the settings of a checkpoint and the updates done.

    Raises DataMissing where there is none, RunError (a ValueError) for one that is damaged or of an unknown algorithm.
    """

    def read(manager: ocp.CheckpointManager, updates: int) -> tuple[Config, int]:
        wanted = ocp.args.Composite(**{SETTINGS: ocp.args.JsonRestore()})
        record = dict(manager.restore(updates, args=wanted)[SETTINGS])
        algorithm = record.pop("algorithm")
        if algorithm not in ALGORITHMS:
            raise RunError(f"checkpoint {folder}: {unknown('algorithm', algorithm, ALGORITHMS)}")
        return ALGORITHMS[algorithm].from_dict(record), updates

    return _newest(folder, read)


def restore(folder: str | Path, like: S, sharding: Sharding | None = None) -> S:
    """Read a state into the structure of `like`: a state of the same settings, or its shapes (`jax.eval_shape`).

    sharding:  where every array goes; None = the first device
    Raises DataMissing where there is none, RunError (a ValueError) where a leaf has another shape or dtype, that is
    where task or settings differ, and where the checkpoint is damaged.
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

    state = _newest(folder, read)

    def back(old: Any, new: Any) -> Any:
        return new if old.size else jnp.zeros(old.shape, old.dtype, device=where)

    return jax.tree.map(back, target, state)


def _manager(folder: str | Path, **options: Any) -> ocp.CheckpointManager:
    options = ocp.CheckpointManagerOptions(enable_async_checkpointing=False, **options)
    handlers = {STATE: ocp.StandardCheckpointHandler(), SETTINGS: ocp.JsonCheckpointHandler()}
    return ocp.CheckpointManager(Path(folder).absolute(), options=options, item_handlers=handlers)


def _newest(folder: str | Path, read: Callable[[ocp.CheckpointManager, int], R]) -> R:
    """Result of `read` on the newest checkpoint; of the next one where a training replaces it meanwhile."""
    quiet = 0  # failures in a row during which nothing was replaced
    while True:
        there = _updates(folder)
        try:
            if not there:
                raise DataMissing(
                    f"{folder} holds no checkpoint. Train the run, or give the folder that `save` was given."
                )
            # a reader keeps whatever is there: a training may be writing to the folder
            with _manager(folder, create=False) as manager:
                return read(manager, max(there))
        except RunError:  # whole, and of other settings
            raise
        except Exception as err:  # Orbax and TensorStore say in many ways that a part is missing or broken
            # an old checkpoint may vanish under the reader, or its folder be half renamed: look again
            quiet = quiet + 1 if _updates(folder) == there else 0
            if quiet < LOOKS and Path(folder).is_dir():
                time.sleep(PAUSE_S)
                continue
            if isinstance(err, PowerZooError):
                raise
            reason = next(iter(str(err).splitlines()), "") or type(err).__name__
            raise RunError(
                f"checkpoint {folder}, update {max(there)}, is damaged ({reason[:LONGEST]}). "
                "Restore the folder, or train again from the start (--overwrite)."
            ) from err


def _updates(folder: str | Path) -> list[int]:
    """Updates of the whole checkpoints of a folder."""
    return list(ocp.utils.checkpoint_steps(Path(folder).absolute())) if Path(folder).is_dir() else []


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
