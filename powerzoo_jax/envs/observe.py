"""Field tables: fields declared once, each with name, unit, bounds and value, from which all that is observed comes.

A family lists what its observations show as blocks, `block("soc", "1", 0, 1, value)` for one field or
`FieldBlock(key, names, low, high, unit, value)` for a run of them; `observe` evaluates the values on what the family
calls its scene, clips them into their bounds and lays them side by side. No other place repeats a name or a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base.spaces import Box, Field

PADDING_NAME = "padding"


class FieldBlock(NamedTuple):
    """A run of fields that share a value.

    key:    name of the block
    names:  public names, one a field
    low, high: declared bounds, for all fields or one each; values are clipped into them
    unit:   of all fields, or one each; "1" for ratios
    value:  scene -> (k,) the same for all agents, or (A, k) a row for each; a function of a module or a callable
            equal by value, since the table is static. None where the family hands values to `assemble` by key
    """

    key: str
    names: tuple[str, ...]
    low: float | tuple[float, ...]
    high: float | tuple[float, ...]
    unit: str | tuple[str, ...] = "1"
    value: Callable[[Any], Array] | None = None

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


def block(name: str, unit: str, low: float, high: float, value: Callable[[Any], Array]) -> FieldBlock:
    """One field as a block of its own; value: scene -> (1,), or (A, 1)."""
    return FieldBlock(name, (name,), low, high, unit, value)


def unit_block(
    key: str, ids: Sequence[str], joint: str, fields: Sequence[Field], value: Callable[[Any], Array]
) -> FieldBlock:
    """Fields that every unit of a kind shows, unit after unit: names are id + joint + name; value: scene -> (G k,)."""
    names = tuple(f"{unit}{joint}{f.name}" for unit in ids for f in fields)
    low, high, unit = (tuple(getattr(f, name) for f in fields) for name in ("low", "high", "unit"))
    shared = unit[0] if len(set(unit)) == 1 else unit * len(ids)
    if len(set(low)) == len(set(high)) == 1:  # one number, so that the clip needs no row of constants
        return FieldBlock(key, names, low[0], high[0], shared, value)
    return FieldBlock(key, names, low * len(ids), high * len(ids), shared, value)


def table(blocks: Iterable[FieldBlock]) -> FieldTable:
    """Build a table, leaving out empty blocks."""
    return FieldTable(tuple(b for b in blocks if b.names))


def observe(
    fields: FieldTable, scene: Any, n_agent: int | None = None, given: Mapping[str, Array] | None = None
) -> Array:
    """Observation of a scene, as `assemble` lays it out.

    given:  values by key of the blocks that a family computes itself
    """
    values = {b.key: b.value(scene) for b in fields.blocks if b.value is not None}
    return assemble(fields, values if given is None else {**values, **given}, n_agent)


def assemble(fields: FieldTable, values: Mapping[str, Array], n_agent: int | None = None) -> Array:
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
