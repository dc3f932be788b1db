"""Damage to the files that others may hand over: seeded mutations of bytes, of plain content, and of named arrays."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

STRANGE = (
    *(None, True, 0, -1, 2**31, 10**400, 1e400, float("nan"), -0.5, "", "x", "../x", "\x1b[2J", "\u2028", "é" * 300),
    *([], {}, [[]], [None], {"a": {"a": None}}, [1, "a", None], {"": 0}),
)
DTYPES = ("U3", "f8", "f2", "i8", "u1", "c16", "?", "S2", "M8[s]", "V4")
DEEP = "[" * 3000


def cut(draw: random.Random, content: bytes) -> bytes:
    """Bytes of a file that was cut off, lengthened, or in which some bytes are others."""
    at = draw.randrange(len(content))
    if draw.random() < 0.3:
        return content[:at]
    if draw.random() < 0.2:
        return content + draw.randbytes(draw.randrange(1, 30))
    changed = bytearray(content)
    for _ in range(draw.randrange(1, 8)):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


def places(content: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to everything within plain content."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, inner in items:
        yield (*at, key)
        yield from places(inner, (*at, key))


def other(draw: random.Random, content: Any) -> Any:
    """Plain content with one to three places that are missing, of another type, out of range, or named otherwise."""
    content = copy.deepcopy(content)
    for _ in range(draw.randrange(1, 4)):
        *above, last = draw.choice([*places(content)] or [()]) or (None,)
        if last is None:
            return draw.choice(STRANGE)
        node = content
        for key in above:
            node = node[key]
        kind = draw.randrange(4)
        if kind == 0:
            del node[last]
        elif kind == 1 and isinstance(node, dict):
            node[f"{last}\x07"] = node.pop(last)
        elif kind == 2 and isinstance(node, list):
            node *= draw.choice((0, 2, 50))
        else:
            node[last] = copy.deepcopy(draw.choice(STRANGE))
    return content


def as_json(draw: random.Random, content: Any) -> str:
    """JSON text of changed content; now and then one that is nested without end."""
    if draw.random() < 0.05:
        return DEEP
    return json.dumps(other(draw, content))


def array(draw: random.Random, value: np.ndarray) -> np.ndarray:
    """Array of another dtype, rank, length or content."""
    kind = draw.randrange(6)
    if kind == 0:
        try:
            return value.astype(draw.choice(DTYPES))
        except (TypeError, ValueError, OverflowError):
            return np.zeros(value.shape, draw.choice(DTYPES))
    if kind == 1:
        return draw.choice((value[None], value.ravel(), np.zeros((), value.dtype), value[..., None]))
    if kind == 2:
        return value[:-1] if value.ndim and draw.random() < 0.5 else np.resize(value, (*value.shape[:-1], 7))
    if kind == 3:
        return np.zeros((0, *value.shape[1:]), value.dtype)
    strange = draw.choice((np.nan, np.inf, -1, 2**31 - 1, 1e300, 0))
    changed = value.copy()
    if changed.size and changed.dtype.kind in "fiub":
        with np.errstate(all="ignore"):
            changed.flat[draw.randrange(changed.size)] = np.array(strange).astype(changed.dtype)
    return changed


def arrays(draw: random.Random, content: dict[str, np.ndarray], about: str) -> dict[str, np.ndarray]:
    """Named arrays of which one or two are missing, others, or hold other JSON text, where a name ends in `about`."""
    whole, content = content, dict(content)
    for _ in range(draw.randrange(1, 3)):
        name = draw.choice(sorted(content))
        if name in whole and name.endswith(about) and draw.random() < 0.9:
            content[name] = np.array(as_json(draw, json.loads(str(whole[name]))))
        elif draw.random() < 0.2:
            del content[name]
        elif draw.random() < 0.1:
            content[f"{name}x"] = content.pop(name)
        else:
            content[name] = array(draw, content[name])
    return content
