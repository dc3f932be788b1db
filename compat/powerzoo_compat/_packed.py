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
    """One leaf: the vector that holds it, its offset, shape and dtype."""

    vector: str
    first: int
    last: int
    shape: tuple[int, ...]
    dtype: Any


@dataclass(frozen=True)
class Layout:
    """Structure of a pytree and the pieces of its leaves."""

    structure: Any
    pieces: tuple[Piece, ...]


@functools.lru_cache(maxsize=1024)
def _one(layout: Layout) -> Layout:
    """The first one of equal layouts, which a call of a program then recognises without comparing their pieces."""
    return layout


@struct.dataclass
class Packed:
    """A pytree as a few vectors.

    vectors:  leaves of one dtype after another, by its name; flags and integers of 32 bits together in int32
    apart:    leaves that are too large to copy, and random keys
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
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) or (largest is not None and leaf.size > largest):
            pieces.append(Piece(APART, len(apart), len(apart) + 1, leaf.shape, leaf.dtype))
            apart.append(leaf)
            continue
        vector = WHOLE if leaf.dtype in TOGETHER else leaf.dtype.name
        first = sizes[vector]
        sizes[vector] += leaf.size
        parts[vector].append(_as_vector(leaf, vector))
        pieces.append(Piece(vector, first, first + leaf.size, leaf.shape, np.dtype(leaf.dtype)))
    vectors = {name: jnp.concatenate(part) for name, part in parts.items()}
    return Packed(vectors, tuple(apart), _one(Layout(structure, tuple(pieces))))


def _as_vector(leaf: Array, vector: str) -> Array:
    # the bits of a word above 2**31 stay, which a conversion would not promise
    same = leaf.dtype == jnp.uint32
    return lax.bitcast_convert_type(leaf.reshape(-1), jnp.int32) if same else leaf.reshape(-1).astype(vector)


def opened(packed: Packed) -> Any:
    """The pytree again, inside a program."""

    def leaf(piece: Piece) -> Array:
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
    leaves = [_leaf(vectors[piece.vector], piece) for piece in packed.layout.pieces]
    return jax.tree.unflatten(packed.layout.structure, leaves)


def _leaf(vector: np.ndarray, piece: Piece) -> np.ndarray:
    part = vector[piece.first : piece.last].reshape(piece.shape)
    return part if part.dtype == piece.dtype else part.astype(piece.dtype)
