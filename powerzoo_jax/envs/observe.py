"""Field tables: one list of named, bounded fields from which order, bounds and public names all come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base.spaces import Box

PADDING_NAME = "padding"


class FieldBlock(NamedTuple):
    """A run of fields that share bounds.

    key:    name of the values in the mapping handed to `assemble`
    names:  public names, one a field
    low, high: declared bounds, for all fields or one each; values are clipped into them
    """

    key: str
    names: tuple[str, ...]
    low: float | tuple[float, ...]
    high: float | tuple[float, ...]

    def limits(self, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of every field, two arrays."""
        size = len(self.names)
        low, high = (np.asarray(x, dtype) for x in (self.low, self.high))
        return np.broadcast_to(low, size), np.broadcast_to(high, size)


class FieldTable(NamedTuple):
    """The blocks of one observation in order; hashable, so that an env can hold it as a static."""

    blocks: tuple[FieldBlock, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for block in self.blocks for name in block.names)

    @property
    def size(self) -> int:
        return sum(len(block.names) for block in self.blocks)

    def padded(self, widths: dict[str, int]) -> FieldTable:
        """The table with some blocks widened; added fields are called `padding`."""
        return FieldTable(
            tuple(
                b._replace(names=b.names + (PADDING_NAME,) * (widths.get(b.key, len(b.names)) - len(b.names)))
                for b in self.blocks
            )
        )

    def __contains__(self, key: object) -> bool:
        return any(block.key == key for block in self.blocks)


def table(blocks: Iterable[FieldBlock]) -> FieldTable:
    """Build a table, leaving out empty blocks."""
    return FieldTable(tuple(b for b in blocks if b.names))


def assemble(fields: FieldTable, values: dict[str, Array], n_agent: int | None = None) -> Array:
    """Clip every block into its bounds and lay the blocks side by side: (O,), or (A, O) for n_agent agents.

    A block (k,) is the same for all agents, one of (A, k) has a row for each.
    """
    parts = [_clipped(block, values[block.key]) for block in fields.blocks]
    if n_agent is not None:
        rows = [part if part.ndim == 2 else part[None] for part in parts]
        parts = [jnp.broadcast_to(row, (n_agent, row.shape[1])) for row in rows]
    return jnp.concatenate(parts, axis=-1)


def _clipped(block: FieldBlock, value: Array) -> Array:
    if isinstance(block.low, tuple) or isinstance(block.high, tuple):
        low, high = (jnp.asarray(x) for x in block.limits(value.dtype))
        return jnp.clip(value, low[None], high[None]) if value.ndim == 2 else jnp.clip(value, low, high)
    return jnp.clip(value, block.low, block.high)


def bounds(fields: FieldTable, n_agent: int, dtype: Any) -> Box:
    """Declared bounds with the agent axis in front, (A, O) NumPy arrays."""
    low, high = zip(*(block.limits(dtype) for block in fields.blocks), strict=True)
    return Box(np.tile(np.concatenate(low), (n_agent, 1)), np.tile(np.concatenate(high), (n_agent, 1)))
