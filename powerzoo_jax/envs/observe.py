"""Field tables: one list of named, bounded fields from which order, bounds and public names all come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base.spaces import Box

PADDING_NAME = "padding"


class Block(NamedTuple):
    """A run of fields that share bounds.

    key:    name of the values in the mapping handed to `assemble`
    names:  public names, one a field
    low, high: declared bounds; values are clipped into them
    """

    key: str
    names: tuple[str, ...]
    low: float
    high: float


class FieldTable(NamedTuple):
    """The blocks of one observation in order; hashable, so that an env can hold it as a static."""

    blocks: tuple[Block, ...]

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


def table(blocks: Iterable[Block]) -> FieldTable:
    """Build a table, leaving out empty blocks."""
    return FieldTable(tuple(b for b in blocks if b.names))


def assemble(fields: FieldTable, values: dict[str, Array]) -> Array:
    """Clip every block into its bounds and lay the blocks side by side: (O,)."""
    return jnp.concatenate([jnp.clip(values[b.key], b.low, b.high) for b in fields.blocks], axis=-1)


def bounds(fields: FieldTable, n_agent: int, dtype: Any) -> Box:
    """Declared bounds with the agent axis in front, (A, O) NumPy arrays."""

    def spread(pick: Sequence[float]) -> np.ndarray:
        counts = [len(b.names) for b in fields.blocks]
        return np.tile(np.repeat(np.asarray(pick, dtype), counts), (n_agent, 1))

    return Box(spread([b.low for b in fields.blocks]), spread([b.high for b in fields.blocks]))
