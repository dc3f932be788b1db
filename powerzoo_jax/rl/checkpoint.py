"""Save and restore a training state with its settings: a run that is resumed ends as if it had never stopped.

A checkpoint is a folder that Orbax keeps: one subfolder, named by the updates done, with the arrays and, as JSON, the
settings. A subfolder appears whole or not at all, and the one before it goes only then: a process killed at any
instant leaves the last checkpoint behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from jax.sharding import Sharding, SingleDeviceSharding

from powerzoo_jax.base.errors import DataMissing, listing, unknown
from powerzoo_jax.rl.config import ALGORITHMS, Config

S = TypeVar("S")

STATE, SETTINGS = "state", "settings"


def save(folder: str | Path, state: Any, cfg: Config, *, updates: int) -> None:
    """Write a state and the resolved settings beside what the folder holds, then drop that.

    updates:  updates done so far, given back by `load_config`; more than at the last call for the same folder
    With several processes every one of them calls, with arrays that each holds whole.
    """
    items = {STATE: ocp.args.StandardSave(_filled(state)), SETTINGS: ocp.args.JsonSave(cfg.to_dict())}
    with _manager(folder) as manager:
        if not manager.save(updates, args=ocp.args.Composite(**items), force=True):
            raise ValueError(f"checkpoint {folder}: update {updates} does not follow update {manager.latest_step()}.")


def exists(folder: str | Path) -> bool:
    """Does the folder hold a whole checkpoint?"""
    return Path(folder).is_dir() and bool(ocp.utils.checkpoint_steps(Path(folder).absolute()))


def load_config(folder: str | Path) -> tuple[Config, int]:
    """Read the settings of a checkpoint and the updates done.

    Raises DataMissing where there is none, ValueError for an unknown algorithm.
    """
    with _opened(folder) as (manager, updates):
        record = manager.restore(updates, args=ocp.args.Composite(**{SETTINGS: ocp.args.JsonRestore()}))[SETTINGS]
    algorithm = record.pop("algorithm")
    if algorithm not in ALGORITHMS:
        raise ValueError(unknown("algorithm", algorithm, ALGORITHMS))
    return ALGORITHMS[algorithm].from_dict(record), updates


def restore(folder: str | Path, like: S, sharding: Sharding | None = None) -> S:
    """Read a state into the structure of `like`: a state of the same settings, or its shapes (`jax.eval_shape`).

    sharding:  where every array goes; None = the first device
    Raises DataMissing where there is none, ValueError where a leaf has another shape or dtype, that is where task or
    settings differ.
    """
    where = SingleDeviceSharding(jax.devices()[0]) if sharding is None else sharding
    target = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), like)
    with _opened(folder) as (manager, updates):
        _compare(folder, manager.item_metadata(updates)[STATE], _filled(target))
        wanted = ocp.args.StandardRestore(_filled(target))
        state = manager.restore(updates, args=ocp.args.Composite(**{STATE: wanted}))[STATE]

    def back(old: Any, new: Any) -> Any:
        return new if old.size else jnp.zeros(old.shape, old.dtype, device=where)

    return jax.tree.map(back, target, state)


def _manager(folder: str | Path) -> ocp.CheckpointManager:
    options = ocp.CheckpointManagerOptions(max_to_keep=1, enable_async_checkpointing=False)
    handlers = {STATE: ocp.StandardCheckpointHandler(), SETTINGS: ocp.JsonCheckpointHandler()}
    return ocp.CheckpointManager(Path(folder).absolute(), options=options, item_handlers=handlers)


@contextmanager
def _opened(folder: str | Path) -> Iterator[tuple[ocp.CheckpointManager, int]]:
    """The manager of a folder and its newest checkpoint."""
    if not exists(folder):
        raise DataMissing(f"{folder} holds no checkpoint. Train the run, or give the folder that `save` was given.")
    with _manager(folder) as manager:
        yield manager, manager.latest_step()


def _filled(tree: S) -> S:
    """Orbax stores no array without elements (a fleet of none, an action without choices): those are left out."""
    return jax.tree.map(lambda x: x if x.size else None, tree)


def _compare(folder: str | Path, stored: Any, target: Any) -> None:
    """Refuse what Orbax would refuse leaf by leaf in its own words, and what it would cast in silence."""
    # typed PRNG keys are stored as their words
    words = jax.eval_shape(lambda tree: jax.tree.map(_words, tree), target)
    old, new = ocp.tree.to_flat_dict(stored), ocp.tree.to_flat_dict(words)
    hint = "Restore it with the settings of `load_config` and the task they name."
    if old.keys() != new.keys():
        others = listing(sorted(".".join(path) for path in old.keys() ^ new.keys()))
        raise ValueError(f"checkpoint {folder} and the state expected do not both hold {others}. {hint}")
    for path, leaf in new.items():
        kept = old[path]
        if tuple(kept.shape) != leaf.shape or kept.dtype != leaf.dtype:
            raise ValueError(
                f"checkpoint {folder}: {'.'.join(path)} is {kept.dtype}{list(kept.shape)}, expected "
                f"{leaf.dtype}{list(leaf.shape)}. {hint}"
            )


def _words(x: Any) -> Any:
    return jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
