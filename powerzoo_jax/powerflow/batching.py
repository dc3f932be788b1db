"""Batching of solvers: users vmap a single-scenario function, its core sees one flat batch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap

from powerzoo_jax.base.solver_mode import ADAPTIVE, AUTO, by_mode

Core = Callable[..., Any]

CACHE = 16_000  # buses times lanes that fit the cache of a CPU core together
SMALLEST = 128  # lanes of a tile at least: narrower products are slow


def batched_shell(core: Core, own_core: Core | None = None, *, wide: bool = True) -> Core:
    """Wrap `core(factors, *arrays (B, ...)) -> outputs (B, ...)` into a function of single scenarios (...).

    Every `vmap` around it adds its axis to one flat batch, however deeply vmaps are nested, so the products
    inside stay of rank two. Mapped factors (a grid per lane) go to `own_core(factors (B, ...), *arrays)`, or map the
    core instead: right, but what one lane needs all lanes then do. `wide` tells that the core holds float64 work.
    """
    # A program calls a solver many times, under several transformations: it is traced once for each shape. `inline`
    # leaves the compiled program as it was.
    traced = jax.jit(core, inline=True)

    @custom_vmap
    def shared(factors: Any, *arrays: Array) -> Any:
        return traced(factors, *arrays)

    @shared.def_vmap
    def _(size: int, batched: list[Any], factors: Any, *arrays: Array) -> tuple[Any, Any]:
        arrays = tuple(_spread(x, is_mapped, size) for x, is_mapped in zip(arrays, batched[1:], strict=True))
        flat = tuple(map(_flat, arrays))
        if any(jax.tree.leaves(batched[0])):
            lanes = arrays[0].shape[1]
            factors = jax.tree.map(lambda x, is_mapped: _spread(x, is_mapped, size), factors, batched[0])
            out = own(jax.tree.map(lambda x: jnp.repeat(x, lanes, axis=0), factors), *flat)
        else:
            out = shared(factors, *flat)
        return _unflat(out, size)

    @custom_vmap
    def own(factors: Any, *arrays: Array) -> Any:
        # vmap re-traces float64 work, and outside this context would cut it down to float32
        with jax.enable_x64(True) if wide else nullcontext():
            return (own_core or lane_by_lane(core))(factors, *arrays)

    @own.def_vmap
    def _(size: int, batched: list[Any], *args: Any) -> tuple[Any, Any]:
        spread = jax.tree.map(lambda x, is_mapped: _spread(x, is_mapped, size), tuple(args), tuple(batched))
        return _unflat(own(*jax.tree.map(_flat, spread)), size)

    @custom_vmap
    def one(factors: Any, *arrays: Array) -> Any:
        return jax.tree.map(lambda x: x[0], shared(factors, *(x[None] for x in arrays)))

    @one.def_vmap
    def _(size: int, batched: list[Any], factors: Any, *arrays: Array) -> tuple[Any, Any]:
        arrays = tuple(_spread(x, is_mapped, size) for x, is_mapped in zip(arrays, batched[1:], strict=True))
        if any(jax.tree.leaves(batched[0])):
            factors = jax.tree.map(lambda x, is_mapped: _spread(x, is_mapped, size), factors, batched[0])
            out = own(factors, *arrays)
        else:
            out = shared(factors, *arrays)
        return out, jax.tree.map(lambda _: True, out)

    return one


def _spread(x: Array, is_mapped: bool, size: int) -> Array:
    """Give every argument the mapped axis."""
    return x if is_mapped else jnp.broadcast_to(x, (size, *x.shape))


def _flat(x: Array) -> Array:
    return x.reshape(-1, *x.shape[2:])


def _unflat(out: Any, size: int) -> tuple[Any, Any]:
    out = jax.tree.map(lambda x: x.reshape(size, -1, *x.shape[1:]), out)
    return out, jax.tree.map(lambda _: True, out)


def in_groups(
    todo: Array,
    size: int,
    solve: Callable[[Any, Any, Any], Any],
    constants: Any,
    inputs: Any,
    outputs: Any,
    *,
    last: bool = False,
) -> Any:
    """Replace the outputs of some lanes of a batch, a few lanes at a time; the others pass through untouched.

    todo:       (B,) bool, lanes to solve
    size:       lanes solved together
    solve:      (constants, inputs of the lanes, outputs of the lanes) -> new outputs of the lanes
    constants:  what all lanes share; inputs, outputs: trees of (B, ...), or of (..., B) where lanes stand last

    A batch without such lanes pays for one test; a `cond` around the work would copy every output.
    """
    batch = todo.shape[0]
    size = min(size, batch)

    def advance(carry: tuple[Array, Any]) -> tuple[Array, Any]:
        todo, values = carry
        # tied to the carry, or XLA prepares the constants before the loop, also when no lane needs them
        tied, todo = lax.optimization_barrier((constants, todo))
        lanes = jnp.nonzero(todo, size=size, fill_value=batch)[0]
        at = jnp.minimum(lanes, batch - 1)
        mine = jax.tree.map(lambda x: x[..., at] if last else x[at], (inputs, values))
        solved = solve(tied, *mine)

        def put(old: Array, new: Array) -> Array:
            return (old.at[..., lanes] if last else old.at[lanes]).set(new, mode="drop")

        return todo.at[lanes].set(False, mode="drop"), jax.tree.map(put, values, solved)

    return lax.while_loop(lambda c: jnp.any(c[0]), advance, (todo, outputs))[1]


def lane_by_lane(core: Core) -> Core:
    """Map `core(factors, *arrays)` of batches over lanes that each have factors of their own: (B, ...) in and out."""

    def own(factors: Any, *arrays: Any) -> Any:
        out = jax.vmap(core)(factors, *jax.tree.map(lambda x: x[:, None], arrays))
        return jax.tree.map(lambda x: x[:, 0], out)

    return own


def in_tiles(solve: Callable[[Any], Any], inputs: Any, *, cpu: bool = False) -> Any:
    """Map a function of a batch, a tree of (B, N) or (B,), over tiles that fit the cache of a CPU core.

    Other devices take the batch whole, and so does every device one that does not divide into tiles. Which device it
    is shows when the program is lowered, unless the caller knows: `cpu`.
    """
    leaves = jax.tree.leaves(inputs)
    batch, n_bus = leaves[0].shape
    tile = max(SMALLEST, 1 << (CACHE // n_bus).bit_length() - 1) if n_bus <= CACHE else SMALLEST
    if batch < 2 * tile or batch % tile:
        return solve(inputs)

    def tiled(inputs: Any) -> Any:
        tiles = jax.tree.map(lambda x: x.reshape(-1, tile, *x.shape[1:]), inputs)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), lax.map(solve, tiles))

    return by_mode(ADAPTIVE if cpu else AUTO, tiled, solve, inputs)
