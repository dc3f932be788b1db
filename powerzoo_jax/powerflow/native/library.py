"""Shared library of the compiled kernel: whether there is one, and its names in compiled programs (host).

POWERZOO_JAX_NATIVE=0 leaves it alone; POWERZOO_JAX_NATIVE=require makes its absence an error.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import NamedTuple

import jax

from powerzoo_jax.base.errors import SettingsError

SWITCH = "POWERZOO_JAX_NATIVE"
WIDE = ("solve", "bounded", "rest", "linear", "split", "split_linear")
HANDLERS = (*(f"{name}{width}" for name in WIDE for width in (32, 64)), "factor")
INSTALL = "Install it by `pip install ./native` in a checkout, which takes a C++ compiler"


class Library(NamedTuple):
    """A loaded kernel: its version, and the instructions it runs: "v4", "v3" (levels of x86-64) or "base"."""

    version: str
    variant: str

    def target(self, name: str) -> str:
        """Name of a handler in programs; those of another version are other programs."""
        return f"powerzoo_jax_native_{self.version}_{name}"


def find_library() -> Library | None:
    """The compiled kernel, None where it is not installed or POWERZOO_JAX_NATIVE=0.

    Raises SettingsError for another value of that variable, and with `require` where there is no kernel.
    """
    asked = os.environ.get(SWITCH, "")
    if asked not in ("", "0", "1", "require"):
        raise SettingsError(f"{SWITCH}={asked}: give 0 (do not use the compiled kernel), 1 or require.")
    if asked == "0":
        return None
    found = _load()
    if asked == "require" and isinstance(found, str):
        raise SettingsError(f"{SWITCH}=require, but {found}. {INSTALL}.")
    return None if isinstance(found, str) else found


def describe() -> str:
    """One line that says which form of the meshed power flow is in use on CPUs, and why."""
    if os.environ.get(SWITCH) == "0":
        return f"JAX form of the meshed power flow: {SWITCH}=0"
    found = _load()
    if isinstance(found, str):
        return f"JAX form of the meshed power flow: {found}"
    return f"compiled kernel {found.version} for meshed power flow on CPUs, instructions {found.variant}"


@functools.cache
def _load() -> Library | str:
    """The library with its handlers registered, or why there is none."""
    try:
        import powerzoo_jax_native as package
    except ImportError:
        return "the package powerzoo-jax-native is not installed"
    try:
        library = ctypes.CDLL(str(package.LIBRARY))
        handlers = [(name, getattr(library, f"powerzoo_{name}")) for name in HANDLERS]
    except (OSError, AttributeError) as err:
        return f"the kernel does not load: {err}"
    library.powerzoo_variant.restype = ctypes.c_char_p
    found = Library(package.__version__, library.powerzoo_variant().decode())
    for name, handler in handlers:
        jax.ffi.register_ffi_target(found.target(name), jax.ffi.pycapsule(handler), platform="cpu")
    return found
