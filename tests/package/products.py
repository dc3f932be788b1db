"""Products in a traced program: listing them, and running the program with the digits an accelerator would drop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend.core import ClosedJaxpr, Jaxpr

# Primitives that multiply and add up in the arithmetic that `precision` asks for. Factorisations (lu, cholesky,
# triangular_solve) take no precision: their libraries work in the type of their operands.
PRODUCTS = ("dot_general", "ragged_dot_general", "conv_general_dilated")
PROGRAMS = Jaxpr | ClosedJaxpr
# calls whose rules ran when the program was traced, and those that matter to derivatives only: what holds the function
CALLS = {
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vmap_call": "call",
    "remat2": "jaxpr",
}
Mode = Literal["tf32", "bf16", "pairs"]


def equations(jaxpr: Any) -> Iterator[Any]:
    """Every equation of a program and of all programs inside it: loops, branches, calls, linear solves, custom rules.

    A custom derivative or batching rule is Python until it runs: trace the derivative of the mapped function to see it.
    """
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in jax.tree.leaves(eqn.params, is_leaf=lambda x: isinstance(x, PROGRAMS)):
            if isinstance(inner, PROGRAMS):
                yield from equations(getattr(inner, "jaxpr", inner))


def is_pinned(eqn: Any) -> bool:
    """Whether a product asks for HIGHEST for both operands."""
    precision = eqn.params["precision"]
    return bool(precision in (lax.Precision.HIGHEST, (lax.Precision.HIGHEST, lax.Precision.HIGHEST)))


def kind_of(eqn: Any) -> str:
    """What a product is called in a count: its operands and, unless it is pinned, that it is not.

    float32, float64   pinned
    rough              bfloat16 operands, summed in float32: `base.numerics.rough_matvec`, the same on every device
    whole              of integers or truth values, exact whatever the precision
    """
    left, right = (v.aval.dtype for v in eqn.invars[:2])
    if not jnp.issubdtype(left, jnp.inexact):
        return "whole"
    if left == right == jnp.bfloat16 and eqn.outvars[0].aval.dtype == jnp.float32:
        return "rough"
    return f"{jnp.promote_types(left, right)}{'' if is_pinned(eqn) else ' unpinned'}"


def products(function: Callable[..., Any], *arguments: Any) -> Counter[str]:
    """Count the products of a function by `kind_of`; it is traced, not compiled."""
    program = jax.make_jaxpr(function)(*arguments)
    return Counter(kind_of(eqn) for eqn in equations(program.jaxpr) if eqn.primitive.name in PRODUCTS)


def rounded(function: Callable[..., Any], mode: Mode) -> Callable[..., Any]:
    """The function with the operands of float32 products that are not pinned rounded as an accelerator rounds them.

    tf32 keeps 10 bits of mantissa (GPUs since Ampere), bf16 7 (TPUs); products and sums stay in float32, as there.
    pairs leaves these alone and keeps of every float64 what two float32 hold, 48 bits and their range, as XLA for TPUs.
    """

    def run(*arguments: Any) -> Any:
        program, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
        with jax.enable_x64(True):  # programs hold float64 parts, which would be cut down to float32
            out = _run(program, mode, jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shape), out)

    return run


def _run(program: Any, mode: Mode, arguments: list[Any]) -> list[Any]:
    """Interpret a closed program equation by equation, rounding on the way, also in the programs inside it."""
    values: dict[Any, Any] = dict(zip(program.jaxpr.constvars, program.consts, strict=True))
    values |= zip(program.jaxpr.invars, arguments, strict=True)

    def read(v: Any) -> Any:
        # a literal is a bare number, whose type would otherwise be that of the mode
        return np.asarray(v.val, v.aval.dtype) if hasattr(v, "val") else values[v]

    for eqn in program.jaxpr.eqns:
        given = [read(v) for v in eqn.invars]
        if eqn.primitive.name in PRODUCTS and not is_pinned(eqn) and mode != "pairs":
            given[:2] = (_round(x, mode) for x in given[:2])
        if eqn.primitive.name in CALLS:
            called = eqn.params[CALLS[eqn.primitive.name]]
            out = _run(called if isinstance(called, ClosedJaxpr) else ClosedJaxpr(called, ()), mode, given)
        else:
            params = jax.tree.map(lambda x: _rewritten(x, mode), eqn.params, is_leaf=lambda x: isinstance(x, PROGRAMS))
            out = eqn.primitive.bind(*given, **params)
        out = out if eqn.primitive.multiple_results else [out]
        values |= zip(eqn.outvars, map(_narrowed, out) if mode == "pairs" else out, strict=True)
    return [read(v) for v in program.jaxpr.outvars]


def _rewritten(value: Any, mode: Mode) -> Any:
    """A program inside an equation with its products rounded; anything else as it is."""
    if isinstance(value, Jaxpr):  # how a scatter or a reduction combines two numbers
        assert all(eqn.primitive.name not in PRODUCTS for eqn in equations(value))
    if not isinstance(value, ClosedJaxpr):
        return value
    given = [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in value.in_avals]
    return jax.make_jaxpr(lambda *given: _run(value, mode, list(given)))(*given)


def _round(x: Array, mode: Mode) -> Array:
    if x.dtype != jnp.float32:
        return x
    if mode == "bf16":
        return x.astype(jnp.bfloat16).astype(jnp.float32)
    bits = lax.bitcast_convert_type(x, jnp.uint32)
    return lax.bitcast_convert_type((bits + jnp.uint32(0x1000)) & jnp.uint32(0xFFFFE000), jnp.float32)


def _narrowed(x: Any) -> Any:
    """A float64 rounded to 48 bits, beyond the range of float32 to 0 or infinity."""
    return lax.reduce_precision(x, 8, 47) if getattr(x, "dtype", None) == jnp.float64 else x
