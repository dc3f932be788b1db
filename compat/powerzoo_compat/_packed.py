"""Packing of many small arrays into one vector, because every array that enters or leaves a program costs time."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax

WORD = np.dtype("int32")  # whose copies keep every bit, also those of numbers that are none
NUMBERS = tuple(map(np.dtype, ("float32", "int32", "bool")))  # types of a word that Python has, too
LARGEST = 2**15  # entries of a leaf that is worth a copy; one array more costs less than to copy a larger one


class Piece(NamedTuple):
    """One leaf: its words, shape and dtype. Of a random key the words are the bits; `key` is its kind.

    first, last:  of its words; of a leaf that stands apart `last` is None, `first` its place among those
    """

    first: int
    last: int | None
    shape: tuple[int, ...]
    dtype: Any
    key: Any = None


@dataclass(frozen=True)
class Layout:
    """Structure of a pytree and the pieces of its leaves.

    numbers:  words in front that are a leaf each, without an axis: how many of each type of NUMBERS
    """

    structure: Any
    pieces: tuple[Piece, ...]
    numbers: tuple[int, ...]

    @functools.cached_property
    def arrays(self) -> tuple[tuple[Any, slice, Any, Any], ...]:
        """Type of the words, place, shape and dtype of each other leaf, the latter two None where they follow."""
        found = []
        for piece in self._others:
            carried = _carried(piece.dtype)
            shape = None if len(piece.shape) == 1 else piece.shape
            own = None if piece.dtype == carried else piece.dtype
            found.append((carried, slice(piece.first, piece.last), shape, own))
        return tuple(found)

    @functools.cached_property
    def views(self) -> tuple[np.dtype, ...]:
        """Types in which the words are read as a whole."""
        return tuple({dtype for dtype, *_ in self.arrays if dtype.itemsize == WORD.itemsize})

    @functools.cached_property
    def order(self) -> Callable[[list[Any]], tuple[Any, ...]]:
        """Choice of the leaves out of the numbers in front, then the arrays."""
        arrays = itertools.count(sum(self.numbers))
        places = [piece.first if _is_number(piece) else next(arrays) for piece in self.pieces]
        # one alone would come without a tuple around it
        return operator.itemgetter(*places) if len(places) > 1 else lambda found: tuple(found[i] for i in places)

    @property
    def _others(self) -> list[Piece]:
        return [piece for piece in self.pieces if not _is_number(piece)]


@functools.lru_cache(maxsize=1024)
def _one(layout: Layout) -> Layout:
    """The first one of equal layouts, which a call of a program then recognises without comparing their pieces."""
    return layout


@struct.dataclass
class Packed:
    """A pytree as one vector.

    words:   (N,) int32  bits of the leaves, one after another
    apart:   leaves that are too large to copy
    layout:  where each leaf lies; part of the program's output structure, so that no call computes it
    """

    words: Array
    apart: tuple[Array, ...]
    layout: Layout = struct.field(pytree_node=False)


def _is_number(piece: Piece) -> bool:
    return piece.last is not None and piece.shape == () and piece.dtype in NUMBERS


def _carried(dtype: Any) -> np.dtype:
    """Type whose bits stand for a leaf: its own, or one of a word for narrower ones."""
    given = np.dtype(dtype)
    if given.itemsize >= WORD.itemsize:
        return given
    return np.dtype("float32") if jnp.issubdtype(dtype, jnp.floating) else WORD


def pack(tree: Any, largest: int | None = None) -> Packed:
    """Join the leaves, inside a program. Leaves are real numbers, flags and keys.

    largest:  entries of the largest leaf that is joined; None joins all
    """
    leaves, structure = jax.tree.flatten(tree)
    keys = [jax.random.key_impl(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else None for x in leaves]
    # a typed key among its arguments or results takes a program off JAX's fast path
    leaves = [x if key is None else jax.random.key_data(x) for x, key in zip(leaves, keys, strict=True)]
    parts: list[Array] = []
    apart: list[Array] = []
    pieces: dict[int, Piece] = {}
    size, numbers = 0, [0] * len(NUMBERS)
    # numbers first, by type: all of them are read at once
    rank = [NUMBERS.index(x.dtype) if x.shape == () and x.dtype in NUMBERS else len(NUMBERS) for x in leaves]
    for at in sorted(range(len(leaves)), key=rank.__getitem__):
        leaf = leaves[at]
        if largest is not None and leaf.size > largest:
            pieces[at] = Piece(len(apart), None, leaf.shape, leaf.dtype, keys[at])
            apart.append(leaf)
            continue
        parts.append(_words(leaf))
        pieces[at] = Piece(size, size + parts[-1].size, leaf.shape, leaf.dtype, keys[at])
        size += parts[-1].size
        if _is_number(pieces[at]):
            numbers[rank[at]] += 1
    joined = jnp.concatenate(parts) if parts else jnp.zeros(0, WORD)
    layout = Layout(structure, tuple(pieces[at] for at in range(len(leaves))), tuple(numbers))
    return Packed(joined, tuple(apart), _one(layout))


def _words(leaf: Array) -> Array:
    carried = leaf.reshape(-1).astype(_carried(leaf.dtype))
    # two words of what is twice as wide
    return lax.bitcast_convert_type(carried, WORD).reshape(-1)


def opened(packed: Packed) -> Any:
    """The pytree again, inside a program."""

    def leaf(piece: Piece) -> Array:
        part = bits(piece)
        return part if piece.key is None else jax.random.wrap_key_data(part, impl=piece.key)

    def bits(piece: Piece) -> Array:
        if piece.last is None:
            return packed.apart[piece.first]
        carried = _carried(piece.dtype)
        words = lax.slice(packed.words, (piece.first,), (piece.last,))
        if carried.itemsize > WORD.itemsize:
            words = words.reshape(-1, carried.itemsize // WORD.itemsize)
        return lax.bitcast_convert_type(words, carried).reshape(piece.shape).astype(piece.dtype)

    return jax.tree.unflatten(packed.layout.structure, [leaf(piece) for piece in packed.layout.pieces])


@functools.partial(jax.jit, static_argnums=1)
def packed_apart(tree: Any, largest: int = LARGEST) -> Packed:
    """A pytree packed by a program of its own."""
    return pack(tree, largest)


opened_apart = jax.jit(opened)


def unpack(words: Array, layout: Layout) -> Any:
    """The pytree on the host, see `leaves_of`."""
    return jax.tree.unflatten(layout.structure, leaves_of(words, layout))


def leaves_of(words: Array, layout: Layout) -> tuple[Any, ...]:
    """Leaves on the host: plain numbers of Python, and arrays of NumPy that nobody can write to; none is a key."""
    bits = np.asarray(words)  # of the device itself where that is a CPU
    floats, integers, flags = layout.numbers
    whole = bits[floats : floats + integers + flags].tolist()
    found = [*bits[:floats].view(np.float32).tolist(), *whole[:integers], *map(bool, whole[integers:])]
    views = {dtype: bits.view(dtype) for dtype in layout.views}
    for dtype, place, shape, own in layout.arrays:
        # what is twice as wide has no view of all words, whose count may be odd
        part = views[dtype][place] if dtype in views else bits[place].view(dtype)
        if shape is not None:
            part = part.reshape(shape)
        found.append(part if own is None else part.astype(own))
    return layout.order(found)
