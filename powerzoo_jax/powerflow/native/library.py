"""Shared library of the compiled kernel: whether there is one, and its names in compiled programs (host).

POWERZOO_JAX_NATIVE=0 leaves it alone; POWERZOO_JAX_NATIVE=require makes its absence an error.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.extend import core
from jax.interpreters import mlir

from powerzoo_jax.base.errors import SettingsError, SolverError
from powerzoo_jax.base.solver_mode import AUTO, NATIVE

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


def library_for(solver: str) -> Library | None:
    """The compiled kernel where a network is prepared for it: by "native", or by "auto" where JAX runs on a CPU.

    Raises SolverError for "native" without the kernel.
    """
    found = find_library() if solver == NATIVE or (solver == AUTO and jax.default_backend() == "cpu") else None
    if found is None and solver == NATIVE:
        raise SolverError(f'solver="native": {describe()}. {INSTALL}.')
    return found


def in_kernel(native: Callable[..., Any], plain: Callable[..., Any] | None, *arguments: Any) -> Any:
    """Result of a function that calls the kernel, or of its JAX form where the program is exported or not for a CPU.

    The JAX form (None where there is none) is traced only where it is taken; neither may close over traced arrays.
    """
    flat, tree = jax.tree.flatten(arguments)
    jaxpr, shape = jax.make_jaxpr(native, return_shape=True)(*arguments)
    form = None if plain is None else lambda *flat: jax.tree.leaves(plain(*jax.tree.unflatten(tree, flat)))
    return jax.tree.unflatten(jax.tree.structure(shape), _in_kernel.bind(*flat, native=jaxpr, plain=form))


_in_kernel = core.Primitive("in_kernel")
_in_kernel.multiple_results = True


@_in_kernel.def_impl
def _(*flat: Any, native: Any, plain: Any) -> Any:
    return core.jaxpr_as_fun(native)(*flat)


@_in_kernel.def_abstract_eval
def _(*flat: Any, native: Any, plain: Any) -> Any:
    return native.out_avals


def _lower(context: Any, *flat: Any, native: Any, plain: Any) -> Any:
    module = context.module_context
    exported = getattr(module.lowering_parameters, "for_export", False)
    take = core.jaxpr_as_fun(native)
    if exported or tuple(module.platforms) != ("cpu",):
        if plain is None:
            raise SolverError(
                "An exported program, and one for another platform than a CPU, takes the JAX form, but "
                'this one asks for the compiled kernel alone. Prepare the network with solver="adaptive".'
            )
        take = plain
    return mlir.lower_fun(take, multiple_results=True)(context, *flat)


mlir.register_lowering(_in_kernel, _lower)


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
