"""Solver mode of a program: iterations that stop by themselves, or a fixed number that asks nobody.

Accelerators work best on programs without questions to the host; a CPU core is fastest when every batch stops as soon
as its lanes have converged. Both forms of a solver meet the same tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
from jax import lax

from powerzoo_jax.base.errors import unknown

AUTO, ADAPTIVE, FIXED = "auto", "adaptive", "fixed"
MODES = (AUTO, ADAPTIVE, FIXED)

# a context that jit knows of: a program traced under one mode is not reused under another
_of_auto = jax.make_user_context(default_value=AUTO)


def check_mode(mode: str) -> str:
    """The mode as given. Raises ValueError for one that there is not, naming the nearest."""
    if mode not in MODES:
        raise ValueError(unknown("solver", mode, MODES))
    return mode


@contextmanager
def auto_is(mode: str) -> Iterator[None]:
    """Context in which programs are traced with "auto" as another mode, for a caller that knows the program's use."""
    with _of_auto(check_mode(mode)):
        yield


def by_mode(mode: str, adaptive: Callable[..., Any], fixed: Callable[..., Any], *arguments: Any) -> Any:
    """Result of one of two forms of a solver, which return trees of the same shapes and types.

    "auto" takes the adaptive form on a CPU and the fixed one elsewhere. That is decided when the program is lowered for
    a device, not when it is traced: one traced program serves every device, and only its own form is compiled.
    """
    if mode == AUTO:
        mode = _of_auto.value
    if mode == ADAPTIVE:
        return adaptive(*arguments)
    if mode == FIXED:
        return fixed(*arguments)
    return lax.platform_dependent(*arguments, cpu=adaptive, default=fixed)
