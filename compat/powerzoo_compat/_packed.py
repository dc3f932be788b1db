"""Packing of many small device arrays into two, because every transfer to the host costs some microseconds."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array


class Piece(NamedTuple):
    """One leaf: the vector that holds it, its offset, shape and dtype."""

    whole: bool
    first: int
    last: int
    shape: tuple[int, ...]
    dtype: Any


@struct.dataclass
class Packed:
    """A pytree as two vectors.

    real:    (n,)  its floating leaves, one after another
    whole:   (m,)  int32  its integers and flags
    layout:  structure and pieces; part of the program's output structure, so that no call computes it
    """

    real: Array
    whole: Array
    layout: Any = struct.field(pytree_node=False)


def pack(tree: Any) -> Packed:
    """Join the leaves, inside a program. Leaves are floats of one dtype, flags, or integers of 32 bits."""
    leaves, structure = jax.tree.flatten(tree)
    real: list[Array] = []
    whole: list[Array] = []
    pieces = []
    for leaf in leaves:
        is_whole = not jnp.issubdtype(leaf.dtype, jnp.floating)
        into = whole if is_whole else real
        first = sum(part.size for part in into)
        into.append(leaf.reshape(-1).astype(jnp.int32) if is_whole else leaf.reshape(-1))
        pieces.append(Piece(is_whole, first, first + leaf.size, leaf.shape, np.dtype(leaf.dtype)))
    return Packed(_joined(real, jnp.float32), _joined(whole, jnp.int32), (structure, tuple(pieces)))


def _joined(parts: list[Array], dtype: Any) -> Array:
    return jnp.concatenate(parts) if parts else jnp.zeros((0,), dtype)


def unpack(packed: Packed) -> Any:
    """The pytree with NumPy leaves, which share memory with nothing outside this call's result."""
    real, whole = np.array(packed.real), np.array(packed.whole)
    structure, pieces = packed.layout
    leaves = [_leaf(whole if piece.whole else real, piece) for piece in pieces]
    return jax.tree.unflatten(structure, leaves)


def _leaf(vector: np.ndarray, piece: Piece) -> np.ndarray:
    part = vector[piece.first : piece.last].reshape(piece.shape)
    return part if part.dtype == piece.dtype else part.astype(piece.dtype)
