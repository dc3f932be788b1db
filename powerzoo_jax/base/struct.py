"""Records of arrays: the pytree dataclasses of Flax, shown by their fields, shapes and types in at most six lines."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform, overload

import jax
import numpy as np
from flax import struct
from flax.struct import field as field

from powerzoo_jax.base.errors import excerpt

T = TypeVar("T")

MOST_LINES, WIDTH = 6, 120
MOST_NUMBERS = 6  # of an array, that are printed themselves
MOST_TEXT = 60  # characters of any other value


@overload
def dataclass(cls: type[T]) -> type[T]: ...
@overload
def dataclass(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def dataclass(cls: Any = None, *, kw_only: bool = False) -> Any:
    """Frozen dataclass that is a pytree, as in Flax, and whose text is `brief`."""

    def made(kind: type[T]) -> type[T]:
        if "__repr__" not in vars(kind):
            kind.__repr__ = brief  # type: ignore[assignment, method-assign]
        return struct.dataclass(kind, kw_only=kw_only)  # type: ignore[call-overload, no-any-return]

    return made if cls is None else made(cls)


def brief(record: Any) -> str:
    """Text of a record, six lines at most: short arrays by their numbers, others by type and shape."""
    names = getattr(record, "_fields", None) or [f.name for f in dataclasses.fields(record) if f.repr]
    text = ", ".join(f"{name}={_short(getattr(record, name))}" for name in names)
    lines = textwrap.wrap(f"{type(record).__name__}({text})", WIDTH, subsequent_indent="    ", break_long_words=False)
    if len(lines) <= MOST_LINES:
        return "\n".join(lines)
    rest = f"    ... and {len(lines) - MOST_LINES + 1} more lines of fields: {len(names)} in all)"
    return "\n".join([*lines[: MOST_LINES - 1], rest])


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray | jax.Array | jax.ShapeDtypeStruct):
        known = not isinstance(value, jax.core.Tracer | jax.ShapeDtypeStruct)
        if known and value.size <= MOST_NUMBERS and not jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            how: Any = {"float_kind": "{:.6g}".format}
            return " ".join(np.array2string(np.asarray(value), separator=", ", formatter=how).split())
        return f"{value.dtype}{list(value.shape)}"
    if dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
        return f"{type(value).__name__}(...)"
    return excerpt(repr(value), MOST_TEXT)
