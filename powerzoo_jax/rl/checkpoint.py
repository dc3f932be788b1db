"""Save and restore a training state with its settings: a run that is resumed ends as if it had never stopped.

A checkpoint `run` is the file run.msgpack (arrays) and, beside it, run.json (settings and the number of updates done).
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from flax import serialization

from powerzoo_jax.base.errors import unknown
from powerzoo_jax.rl.config import ALGORITHMS, Config

S = TypeVar("S")


def save(path: str | Path, state: Any, cfg: Config, *, updates: int = 0) -> None:
    """Write a state and the resolved settings; an interrupted write leaves the previous checkpoint intact.

    updates:  updates done so far, given back by `load_config`
    """
    arrays, about = _files(path)
    record = {**cfg.to_dict(), "updates_done": updates}
    content = {"state": serialization.to_state_dict(_keys_to_data(state)), "settings": json.dumps(record)}
    _replace(arrays, serialization.msgpack_serialize(jax.device_get(content)))
    _replace(about, (json.dumps(record, indent=2) + "\n").encode())


def load_config(path: str | Path) -> tuple[Config, int]:
    """Read the settings of a checkpoint and the updates done; raises ValueError for an unknown algorithm."""
    record = json.loads(_content(path)["settings"])
    algorithm, updates = record.pop("algorithm"), int(record.pop("updates_done"))
    if algorithm not in ALGORITHMS:
        raise ValueError(unknown("algorithm", algorithm, ALGORITHMS))
    return ALGORITHMS[algorithm].from_dict(record), updates


def restore(path: str | Path, like: S) -> S:
    """Read a state into the structure of `like`, for example a freshly initialised one of the same settings.

    Raises ValueError where a leaf has another shape or dtype, that is where task or settings differ.
    """
    target = _keys_to_data(like)
    state = serialization.from_state_dict(target, _content(path)["state"])
    for (where, new), old in zip(jax.tree.leaves_with_path(state), jax.tree.leaves(target), strict=True):
        if new.shape != old.shape or new.dtype != old.dtype:
            raise ValueError(
                f"checkpoint {path}: {jax.tree_util.keystr(where)} is {new.dtype}{list(new.shape)}, expected "
                f"{old.dtype}{list(old.shape)}. Restore it with the settings of `load_config` and the task they name."
            )
    return _data_to_keys(jax.tree.map(jnp.asarray, state), like)


def _files(path: str | Path) -> tuple[Path, Path]:
    base = Path(path)
    return base.with_name(base.name + ".msgpack"), base.with_name(base.name + ".json")


def _content(path: str | Path) -> dict[str, Any]:
    """Both halves come from one file, so that state and settings can never be of different moments."""
    content: dict[str, Any] = serialization.msgpack_restore(_files(path)[0].read_bytes())
    return content


def _is_key(x: Any) -> bool:
    return isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)


def _keys_to_data(tree: S) -> S:
    """Typed PRNG keys have no serial form of their own; their words have."""
    return jax.tree.map(lambda x: jax.random.key_data(x) if _is_key(x) else x, tree)


def _data_to_keys(tree: S, like: S) -> S:
    def back(x: Any, old: Any) -> Any:
        return jax.random.wrap_key_data(x, impl=jax.random.key_impl(old)) if _is_key(old) else x

    return jax.tree.map(back, tree, like)


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
