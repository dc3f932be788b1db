"""A pytree of arrays as one file: written whole or not at all, read back bit by bit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base.errors import DataError, DataMissing

DONE = "updates_done"


def save(path: Path, state: Any, done: int) -> None:
    """Store a state and the number of finished updates; an interrupted write leaves the file before it."""
    leaves: dict[str, Any] = {DONE: np.asarray(done)}
    for where, leaf in jax.tree_util.tree_leaves_with_path(state):
        leaves[jax.tree_util.keystr(where)] = _to_host(leaf)
    draft = path.with_suffix(".tmp")
    with draft.open("wb") as file:
        np.savez(file, **leaves)
    os.replace(draft, path)


def load(path: Path, like: Any) -> tuple[Any, int]:
    """Read a state shaped as `like` (arrays or their shapes), and the number of finished updates.

    Raises DataMissing where there is no file and DataError where it holds another structure.
    """
    if not path.is_file():
        raise DataMissing(f"{path} does not exist: the run was stopped before it was saved. Train it with --overwrite.")
    with np.load(path, allow_pickle=False) as archive:
        stored = {name: archive[name] for name in archive.files}
    done = int(stored.pop(DONE))
    expected = {jax.tree_util.keystr(where): leaf for where, leaf in jax.tree_util.tree_leaves_with_path(like)}
    odd = sorted(stored.keys() ^ expected.keys())
    odd += [name for name in stored.keys() & expected.keys() if not _fits(stored[name], expected[name])]
    if odd:
        raise DataError(f"{path} holds another network or task, first at {odd[0]}. Use the settings it was made with.")
    leaves = [_to_device(stored[name], leaf) for name, leaf in expected.items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves), done


def _is_key(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _to_host(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _to_device(value: np.ndarray, like: Any) -> Any:
    return jax.random.wrap_key_data(jnp.asarray(value)) if _is_key(like) else jnp.asarray(value)


def _fits(value: np.ndarray, like: Any) -> bool:
    if _is_key(like):  # key data have one more axis, of a length that belongs to the generator
        return value.shape[:-1] == like.shape
    return value.shape == like.shape and value.dtype == like.dtype
