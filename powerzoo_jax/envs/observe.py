"""Field tables: fields declared once, each with name, unit, bounds and value, from which all that is observed comes.

A family lists what its observations show as blocks: `block("soc", "1", 0, 1, value)` of one field,
`field_block(key, fields)` of several `Field`s, `FieldBlock(key, names, low, high, unit, value)` of a run that one array
holds. `observe` evaluates the values on the scene of the step, clips them into their bounds and lays them side by side.
No other place repeats a name, a unit or a bound.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base import struct
from powerzoo_jax.base.spaces import Box, Field, Observed

PADDING_NAME = "padding"
Runs = tuple[tuple[bool, int], ...]


@dataclass(frozen=True, eq=False)
class Scene(Observed):
    """Scene of an observation, from which the fields of a family take their values; families add to it by subclass.

    dt_hours:  [h]  length of a step
    params:    parameters of the lane
    state:     state that is observed
    row:       (F,) bank row that the next action meets
    """

    dt_hours: float
    params: Any
    state: Any
    row: Array


class FieldBlock(NamedTuple):
    """A run of fields that are observed together.

    key:    name of the block
    names:  public names, one a field
    low, high: declared bounds, for all fields or one each; values are clipped into them
    unit:   of all fields, or one each; "1" for ratios
    value:  scene -> (k,) the same for all agents, or (A, k) a row for each; a function of a module or a callable
            equal by value, since the table is static. A tuple has one for each field, scene -> () or (A,)
    """

    key: str
    names: tuple[str, ...]
    low: float | tuple[float, ...]
    high: float | tuple[float, ...]
    unit: str | tuple[str, ...]
    value: Callable[[Any], Array] | tuple[Callable[[Any], Array], ...]

    def named(self, names: Iterable[str]) -> FieldBlock:
        """The block with a field for each line, bus or unit of a case."""
        return self._replace(names=tuple(names))

    def limits(self, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of every field, two arrays."""
        size = len(self.names)
        low, high = (np.asarray(x, dtype) for x in (self.low, self.high))
        return np.broadcast_to(low, size), np.broadcast_to(high, size)


class FieldTable(NamedTuple):
    """The blocks of one observation in order; hashable, so that an env can hold it as a static.

    split:  observations of several agents come as `SharedObs`
    """

    blocks: tuple[FieldBlock, ...]
    split: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for block in self.blocks for name in block.names)

    @property
    def size(self) -> int:
        return sum(len(block.names) for block in self.blocks)

    def padded(self, widths: dict[str, int]) -> FieldTable:
        """The table with some blocks widened; added fields are called `padding`."""
        wide = (
            b._replace(names=b.names + (PADDING_NAME,) * (widths.get(b.key, len(b.names)) - len(b.names)))
            for b in self.blocks
        )
        return self._replace(blocks=tuple(wide))

    def __contains__(self, key: object) -> bool:
        return any(block.key == key for block in self.blocks)


def block(name: str, unit: str, low: float, high: float, value: Callable[[Any], Array]) -> FieldBlock:
    """One field as a block of its own; value: scene -> (1,), or (A, 1)."""
    return FieldBlock(name, (name,), low, high, unit, value)


def field_block(key: str, fields: Sequence[Field], value: Callable[[Any], Array] | None = None) -> FieldBlock:
    """Several fields as one block.

    value:  scene -> (k,) or (A, k), all of them at once; None stacks the fields' own values
    """
    names, units, low, high, own = (tuple(getattr(f, name) for f in fields) for name in Field._fields)
    unit = units[0] if len(set(units)) == 1 else units
    if len(set(low)) == len(set(high)) == 1:  # one number, so that the clip needs no row of constants
        low, high = low[0], high[0]
    return FieldBlock(key, names, low, high, unit, own if value is None else value)


def unit_block(
    key: str, ids: Sequence[str], joint: str, fields: Sequence[Field], value: Callable[[Any], Array]
) -> FieldBlock:
    """Fields that every unit of a kind shows, unit after unit: names are id + joint + name; value: scene -> (G k,)."""
    return field_block(key, [f._replace(name=f"{unit}{joint}{f.name}") for unit in ids for f in fields], value)


def table(blocks: Iterable[FieldBlock]) -> FieldTable:
    """Build a table, leaving out empty blocks."""
    return FieldTable(tuple(b for b in blocks if b.names))


def name_values(module: str) -> None:
    """Give the nameless functions in the field tables of a module names by which pickles find them.

    Tables are static, and programs are shared where their functions are the same ones: a copy must not have others.
    To be called once, after the last table of the module, which is given by its `__name__`.
    """
    home = sys.modules[module]
    home.VALUES = values = SimpleNamespace()  # type: ignore[attr-defined]
    for name, function in _functions(tuple(vars(home).items())):
        if function.__module__ == module and "<" in function.__qualname__:  # as Python calls lambdas and inner ones
            names = itertools.chain([name], (f"{name}_{k}" for k in itertools.count(2)))
            free = next(x for x in names if not hasattr(values, x))
            function.__name__, function.__qualname__ = free, f"VALUES.{free}"
            setattr(values, free, function)


def _functions(value: Any, name: str = "") -> Iterator[tuple[str, FunctionType]]:
    """Functions in tuples of tables, and what they close over, each with the name of its field."""
    if isinstance(value, FunctionType):
        yield name, value
        for cell in value.__closure__ or ():
            yield from _functions(cell.cell_contents, name)
    elif isinstance(value, Field):
        yield from _functions(value.value, value.name)
    elif isinstance(value, FieldBlock):
        names = value.names if isinstance(value.value, tuple) else itertools.repeat(value.key)
        own = value.value if isinstance(value.value, tuple) else (value.value,)
        for field, function in zip(names, own, strict=False):
            yield from _functions(function, field)
    elif isinstance(value, tuple):
        for inner in value:
            yield from _functions(inner, name)


@struct.dataclass
class SharedObs:
    """Observations of all agents of a lane in two parts: what is the same for every agent is held once.

    shared:  (..., S)     [unit of each field]  fields that all agents see
    own:     (..., A, P)  [unit of each field]  fields of each agent
    runs:    (shared, length) of each run of fields, in the order of an observation (A, O); static

    Example:
        split = powerzoo_jax.envs.split_observations(powerzoo_jax.make("opf_118"))
        state, obs = jax.jit(split.init)(jax.random.key(0))
        obs.shared.shape, obs.own.shape, obs.expand().shape  # (189,), (54, 6), (54, 195)
    """

    shared: Array
    own: Array
    runs: Runs = struct.field(pytree_node=False)

    def expand(self) -> Array:
        """The observation of every agent, (..., A, O)."""
        repeated = jnp.broadcast_to(self.shared[..., None, :], (*self.own.shape[:-1], self.shared.shape[-1]))
        rest, pieces = {True: repeated, False: self.own}, []
        for shared, length in self.runs:
            pieces.append(rest[shared][..., :length])
            rest[shared] = rest[shared][..., length:]
        return jnp.concatenate(pieces, axis=-1)


def fields_of(x: Array, runs: Runs, shared: bool, axis: int = -1) -> Array:
    """Entries of an axis over the fields of an observation (O) that are of the shared part, or of the other one."""
    ends = np.cumsum([length for _, length in runs])
    pieces = [
        lax.slice_in_dim(x, int(end) - n, int(end), axis=axis)
        for (s, n), end in zip(runs, ends, strict=True)
        if s == shared
    ]
    # slices of runs, not one gather, whose derivative would be a scatter
    return jnp.concatenate(pieces, axis=axis) if pieces else lax.slice_in_dim(x, 0, 0, axis=axis)


def divide(obs: Array, runs: Runs) -> SharedObs:
    """Two parts of observations (..., A, O), the inverse of `SharedObs.expand`."""
    return SharedObs(fields_of(obs[..., 0, :], runs, True), fields_of(obs, runs, False), runs)


def with_field(fields: FieldTable, last: FieldBlock) -> FieldTable:
    """The table with one more block, behind all others."""
    return fields._replace(blocks=(*fields.blocks, last))


def observe(fields: FieldTable, scene: Any, n_agent: int | None = None) -> Any:
    """Observation of a scene: every block clipped into its bounds, side by side; (O,), or (A, O) for n_agent agents.

    A block (k,) is the same for all agents, one of (A, k) has a row for each. A table that is split gives the
    observation of several agents as `SharedObs`, whose shared part is never repeated.
    """
    values = [
        jnp.stack([own(scene) for own in b.value], axis=-1) if isinstance(b.value, tuple) else b.value(scene)
        for b in fields.blocks
    ]
    parts = [_clipped(block, value) for block, value in zip(fields.blocks, values, strict=True)]
    if fields.split and n_agent is not None:
        return _divided(parts, n_agent)
    if n_agent is not None:
        rows = [part if part.ndim == 2 else part[None] for part in parts]
        parts = [jnp.broadcast_to(row, (n_agent, row.shape[1])) for row in rows]
    return jnp.concatenate(parts, axis=-1)


def _divided(parts: Sequence[Array], n_agent: int) -> SharedObs:
    dtype = jnp.result_type(*parts)
    common = [part for part in parts if part.ndim == 1]
    own = [jnp.broadcast_to(part, (n_agent, part.shape[1])) for part in parts if part.ndim == 2]
    order = itertools.groupby(parts, key=lambda part: part.ndim == 1)
    runs = tuple((shared, sum(part.shape[-1] for part in run)) for shared, run in order)
    return SharedObs(
        jnp.concatenate([jnp.zeros(0, dtype), *common]),
        jnp.concatenate([jnp.zeros((n_agent, 0), dtype), *own], -1),
        runs,
    )


def _clipped(block: FieldBlock, value: Array) -> Array:
    if isinstance(block.low, tuple) or isinstance(block.high, tuple):
        low, high = (jnp.asarray(x) for x in block.limits(value.dtype))
        return jnp.clip(value, low[None], high[None]) if value.ndim == 2 else jnp.clip(value, low, high)
    return jnp.clip(value, block.low, block.high)


def bounds(fields: FieldTable, n_agent: int, dtype: Any) -> Box:
    """Declared bounds with the agent axis in front, (A, O) NumPy arrays."""
    low, high = zip(*(block.limits(dtype) for block in fields.blocks), strict=True)
    return Box(np.tile(np.concatenate(low), (n_agent, 1)), np.tile(np.concatenate(high), (n_agent, 1)))
