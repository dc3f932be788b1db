"""The pytree verbs: select, stack, slice, pad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


def where_done(done: Array, fresh: Any, old: Any) -> Any:
    """Leaf by leaf `fresh` where `done` (B,) bool, else `old`; `done` has the leading axes of the leaves."""

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(done.reshape(done.shape + (1,) * (b.ndim - done.ndim)), a, b)

    return jax.tree.map(pick, fresh, old)


def stack_leaves(trees: Sequence[Any]) -> Any:
    """Stack equal trees along a new leading axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def take(tree: Any, index: Any) -> Any:
    """Index the leading axis of every leaf."""
    return jax.tree.map(lambda x: x[index], tree)


def pad_axis(x: Array | np.ndarray, size: int, axis: int, fill: float | bool = 0) -> Array:
    """Pad one axis of an array (..., n) in any unit at its end to `size` with `fill`; dtype and other axes stay."""
    x = jnp.asarray(x)
    missing = size - x.shape[axis]
    if missing < 0:
        raise ValueError(f"cannot pad axis {axis} of length {x.shape[axis]} down to {size}")
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, missing)
    return jnp.pad(x, widths, constant_values=fill) if missing else x
