"""The natively batched shell: users vmap a single-scenario function, the core sees one flat batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_batching import custom_vmap

Core = Callable[[Any, Array, Array], Any]


def batched_shell(core: Core) -> Callable[[Any, Array, Array], Any]:
    """Wrap `core(factors, a (B, n), b (B, n)) -> outputs (B, ...)` into a function of single scenarios (n,).

    Every `vmap` around it adds its axis to one flat batch, however deeply vmaps are nested, so the products
    inside stay of rank two. Mapped factors (a grid per lane) map the core instead: slower, still right.
    """

    @custom_vmap
    def rows(factors: Any, a: Array, b: Array) -> Any:
        return core(factors, a, b)

    @rows.def_vmap
    def _(size: int, batched: list[Any], factors: Any, a: Array, b: Array) -> tuple[Any, Any]:
        return _map(core, rows, size, batched, factors, a, b, flatten=True)

    @custom_vmap
    def one(factors: Any, a: Array, b: Array) -> Any:
        return jax.tree.map(lambda x: x[0], rows(factors, a[None], b[None]))

    @one.def_vmap
    def _(size: int, batched: list[Any], factors: Any, a: Array, b: Array) -> tuple[Any, Any]:
        return _map(core, rows, size, batched, factors, a, b, flatten=False)

    return one


def _map(
    core: Core,
    rows: Callable[..., Any],
    size: int,
    batched: list[Any],
    factors: Any,
    a: Array,
    b: Array,
    *,
    flatten: bool,
) -> tuple[Any, Any]:
    """Batching rule of both shells: `flatten` when the arguments already carry a batch axis of their own."""
    shared, a_mapped, b_mapped = batched
    a = a if a_mapped else jnp.broadcast_to(a, (size, *a.shape))
    b = b if b_mapped else jnp.broadcast_to(b, (size, *b.shape))
    if any(jax.tree.leaves(shared)):
        axes = jax.tree.map(lambda mapped: 0 if mapped else None, shared)
        if not flatten:
            a, b = a[:, None], b[:, None]
        out = jax.vmap(core, in_axes=(axes, 0, 0))(factors, a, b)
        out = out if flatten else jax.tree.map(lambda x: x[:, 0], out)
    elif flatten:
        out = rows(factors, a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1]))
        out = jax.tree.map(lambda x: x.reshape(size, -1, *x.shape[1:]), out)
    else:
        out = rows(factors, a, b)
    return out, jax.tree.map(lambda _: True, out)
