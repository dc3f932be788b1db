"""Dtype policy and guarded arithmetic; every epsilon of the package has its name here."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.custom_batching import custom_vmap

FLOAT = np.dtype("float32")  # the only place, with the door in cases.grid, where a width is spelled
ROUGH = jnp.dtype("bfloat16")  # three digits, for products whose error later steps remove
INT = np.dtype("int32")

TINY = 1e-12  # guards a denominator that is zero only where the result is masked out anyway


def resolve_dtype(dtype: Any = None) -> np.dtype:
    """Return the float dtype a simulation is built with.

    dtype:  None (float32), or "float32" / "float64".  float64 needs JAX's x64 mode.
    Raises ValueError for another dtype, or for float64 while x64 is off (it would be truncated silently).
    """
    chosen = FLOAT if dtype is None else np.dtype(dtype)
    if chosen not in (np.dtype("float32"), np.dtype("float64")):
        raise ValueError(f"dtype {chosen.name!r} is not supported. Valid: float32, float64.")
    if chosen == np.dtype("float64") and jnp.asarray(0.0).dtype != chosen:
        raise ValueError(
            "dtype='float64' needs x64 mode, which is off. Set the environment variable JAX_ENABLE_X64=1, "
            "or call inside `with jax.enable_x64(True):`."
        )
    return chosen


def safe_divide(a: Array, b: Array, otherwise: float = 0.0) -> Array:
    """a / b where b != 0, else `otherwise`; finite values and gradients on both branches."""
    ok = b != 0
    return jnp.where(ok, a / jnp.where(ok, b, jnp.ones_like(b)), jnp.asarray(otherwise, a.dtype))


@custom_vmap
def anywhere(flag: Array) -> Array:
    """Any of `flag`, also over every vmapped axis: the result stays unbatched.

    A `lax.cond` on it therefore remains a branch under any number of `vmap`s, where a plain
    predicate would turn it into a select that computes both sides.
    """
    return jnp.any(flag)


@anywhere.def_vmap
def _anywhere_vmap(size: int, batched: list[bool], flag: Array) -> tuple[Array, bool]:
    del size, batched
    return anywhere(flag), False
