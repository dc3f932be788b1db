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

AUTO, ADAPTIVE, FIXED, NATIVE = "auto", "adaptive", "fixed", "native"
MODES = (AUTO, ADAPTIVE, FIXED)  # of every solver; "native" is one of those that have a compiled kernel

# a context that jit knows of, as it does of the default device: a program traced under one mode is not reused under
# another; None where nobody has said
_of_auto = jax.make_user_context(default_value=None)


def check_mode(mode: str, *more: str) -> str:
    """The mode as given, one of `MODES` or of `more`. Raises ValueError for another, naming the nearest."""
    if mode not in (*MODES, *more):
        raise ValueError(unknown("solver", mode, (*MODES, *more)))
    return mode


@contextmanager
def auto_is(mode: str) -> Iterator[None]:
    """Context in which programs are traced with "auto" as another mode, for a caller that knows the program's use."""
    with _of_auto(check_mode(mode)):
        yield


@contextmanager
def one_form(mode: str) -> Iterator[None]:
    """Context of a program with one form of its solvers: that of a mode, "auto" that of JAX's default device.

    The caller of an `auto_is` around it has chosen already. Arrays on another device than the default one make such
    a program no less right, only slower.
    """
    if mode == AUTO:
        device = jax.config.jax_default_device  # type: ignore[attr-defined]
        platform = getattr(device, "platform", device) or jax.default_backend()
        mode = ADAPTIVE if platform == "cpu" else FIXED
    with _of_auto(_of_auto.value or mode):
        yield


def told(mode: str) -> str:
    """The mode as given, "auto" as the context has it. Raises ValueError as `check_mode` does."""
    return _of_auto.value or AUTO if check_mode(mode) == AUTO else mode


def by_mode(mode: str, adaptive: Callable[..., Any], fixed: Callable[..., Any], *arguments: Any) -> Any:
    """Result of one of two forms of a solver, which return trees of the same shapes and types.

    "auto" takes the adaptive form on a CPU and the fixed one elsewhere. Where no context says which, both are traced
    and one of them is left when the program is lowered for a device.
    """
    mode = told(mode)
    if mode == AUTO:
        return by_device(adaptive, fixed, *arguments)
    return (adaptive if mode == ADAPTIVE else fixed)(*arguments)


def by_device(cpu: Callable[..., Any], other: Callable[..., Any], *arguments: Any) -> Any:
    """Result of one of two ways to the same numbers, of which one is faster on a CPU."""
    if _of_auto.value == ADAPTIVE:
        return cpu(*arguments)
    return lax.platform_dependent(*arguments, cpu=cpu, default=other)
