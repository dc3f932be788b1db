"""Packing of many small arrays into a few vectors, because every array that enters or leaves a program costs time."""

from __future__ import annotations

import functools
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax

APART = "apart"  # stands for the vector of a leaf that is in none
WHOLE = "int32"  # vector of flags and of integers of 32 bits
TOGETHER = frozenset(map(np.dtype, ("bool", "int32", "uint32")))
LARGEST = 2**15  # entries of a leaf that is worth a copy; one array more costs less than to copy a larger one


class Piece(NamedTuple):
    """One leaf: its vector, offset, shape and dtype. Of a random key the vector holds the bits; `key` is its kind."""

    vector: str
    first: int
    last: int
    shape: tuple[int, ...]
    dtype: Any
    key: Any = None


@dataclass(frozen=True)
class Layout:
    """Structure of a pytree and the pieces of its leaves."""

    structure: Any
    pieces: tuple[Piece, ...]

    @functools.cached_property
    def reads(self) -> tuple[tuple[str, slice, Any, Any], ...]:
        """Vector and place of each leaf on the host, with shape and dtype where they are not the vector's own."""
        return tuple(
            (
                piece.vector,
                slice(piece.first, piece.last),
                None if len(piece.shape) == 1 else piece.shape,
                None if piece.dtype == np.dtype(piece.vector) else piece.dtype,
            )
            for piece in self.pieces
        )


@functools.lru_cache(maxsize=1024)
def _one(layout: Layout) -> Layout:
    """The first one of equal layouts, which a call of a program then recognises without comparing their pieces."""
    return layout


@struct.dataclass
class Packed:
    """A pytree as a few vectors.

    vectors:  leaves of one dtype after another, by its name; flags and integers of 32 bits together in int32
    apart:    leaves that are too large to copy
    layout:   where each leaf lies; part of the program's output structure, so that no call computes it
    """

    vectors: dict[str, Array]
    apart: tuple[Array, ...]
    layout: Layout = struct.field(pytree_node=False)


def pack(tree: Any, largest: int | None = None) -> Packed:
    """Join the leaves, inside a program. Leaves are numbers, flags and keys.

    largest:  entries of the largest leaf that is joined; None joins all
    """
    leaves, structure = jax.tree.flatten(tree)
    parts: dict[str, list[Array]] = defaultdict(list)
    sizes: dict[str, int] = defaultdict(int)
    apart: list[Array] = []
    pieces: list[Piece] = []
    for leaf in leaves:
        key = None
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            # a typed key among its arguments or results takes a program off JAX's fast path
            key, leaf = jax.random.key_impl(leaf), jax.random.key_data(leaf)
        if largest is not None and leaf.size > largest:
            pieces.append(Piece(APART, len(apart), len(apart) + 1, leaf.shape, np.dtype(leaf.dtype), key))
            apart.append(leaf)
            continue
        vector = WHOLE if leaf.dtype in TOGETHER else leaf.dtype.name
        first = sizes[vector]
        sizes[vector] += leaf.size
        parts[vector].append(_as_vector(leaf, vector))
        pieces.append(Piece(vector, first, first + leaf.size, leaf.shape, np.dtype(leaf.dtype), key))
    vectors = {name: jnp.concatenate(part) for name, part in parts.items()}
    return Packed(vectors, tuple(apart), _one(Layout(structure, tuple(pieces))))


def _as_vector(leaf: Array, vector: str) -> Array:
    # the bits of a word above 2**31 stay, which a conversion would not promise
    same = leaf.dtype == jnp.uint32
    return lax.bitcast_convert_type(leaf.reshape(-1), jnp.int32) if same else leaf.reshape(-1).astype(vector)


def opened(packed: Packed) -> Any:
    """The pytree again, inside a program."""

    def leaf(piece: Piece) -> Array:
        part = bits(piece)
        return part if piece.key is None else jax.random.wrap_key_data(part, impl=piece.key)

    def bits(piece: Piece) -> Array:
        if piece.vector == APART:
            return packed.apart[piece.first]
        part = lax.slice(packed.vectors[piece.vector], (piece.first,), (piece.last,)).reshape(piece.shape)
        return lax.bitcast_convert_type(part, jnp.uint32) if piece.dtype == np.uint32 else part.astype(piece.dtype)

    return jax.tree.unflatten(packed.layout.structure, [leaf(piece) for piece in packed.layout.pieces])


@functools.partial(jax.jit, static_argnums=1)
def packed_apart(tree: Any, largest: int = LARGEST) -> Packed:
    """A pytree packed by a program of its own."""
    return pack(tree, largest)


opened_apart = jax.jit(opened)


def unpack(packed: Packed) -> Any:
    """The pytree with NumPy leaves, which share memory with nothing outside this call's result; no leaf is a key."""
    vectors = {name: np.array(vector) for name, vector in packed.vectors.items()}
    leaves = []
    for name, place, shape, dtype in packed.layout.reads:
        part = vectors[name][place]
        if shape is not None:
            part = part.reshape(shape)
        leaves.append(part if dtype is None else part.astype(dtype))
    return jax.tree.unflatten(packed.layout.structure, leaves)
