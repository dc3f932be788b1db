"""Preparation on the host: what depends on the network alone is computed by the processor, whatever device solves."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np
from jax import Array

P = ParamSpec("P")
T = TypeVar("T")


@functools.cache
def use_compilation_cache() -> None:
    """Keep compiled programs in the user's cache folder, decided once a process; commands and `make` call it.

    A folder that the environment (JAX_COMPILATION_CACHE_DIR, also an empty one) or the program (jax.config) has named
    stays, and so does JAX_ENABLE_COMPILATION_CACHE=false. Where the folder cannot be made, nothing is kept.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ or jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]
        return
    folder = cache_folder("jax")
    if folder is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder))


def cache_folder(name: str) -> Path | None:
    """Folder of a kind of files in the user's cache; None where it cannot be made or written."""
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = base / "powerzoo_jax" / name
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # a disk that only reads; a user without a home
        return None
    return folder if os.access(folder, os.W_OK) else None


def processor() -> Any:
    """The first CPU device, or None where JAX was told to know none."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


def on_host(prepare: Callable[P, T]) -> Callable[P, T]:
    """Decorator of a function from tables to arrays: its programs run on the processor, its results go to the device.

    An accelerator would compile dozens of programs that run once, some of them factorisations in float64, which a TPU
    lacks. Where the processor is JAX's default device, nothing changes.
    """

    @functools.wraps(prepare)
    def prepared(*args: P.args, **kwargs: P.kwargs) -> T:
        host = processor()
        default = jax.config.jax_default_device or jax.local_devices()[0]  # type: ignore[attr-defined]
        if host is None or host == default:
            return prepare(*args, **kwargs)
        with jax.default_device(host):
            found = prepare(*args, **kwargs)
        # by way of the host's own arrays, which are bound to no device
        return jax.tree.map(_placed, found)  # type: ignore[no-any-return]

    return prepared


def _placed(leaf: Any) -> Any:
    if not isinstance(leaf, Array):
        return leaf
    with jax.enable_x64(True):  # float64 stays float64
        return jax.device_put(np.asarray(leaf))
