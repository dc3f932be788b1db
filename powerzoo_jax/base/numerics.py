"""Dtype policy, products of matrices and guarded arithmetic; every epsilon of the package has its name here."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_batching import custom_vmap
from jax.typing import ArrayLike

from powerzoo_jax.base.errors import excerpt

FLOAT = np.dtype("float32")  # the only place, with the door in cases.grid, where a width is spelled
ROUGH = jnp.dtype("bfloat16")  # three digits, for products whose error later steps remove
INT = np.dtype("int32")

EXACT = lax.Precision.HIGHEST  # of products; nowhere else in physics and optimisation is a precision named

TINY = 1e-12  # guards a denominator that is zero only where the result is masked out anyway


def resolve_dtype(dtype: Any = None) -> np.dtype:
    """Return the float dtype a simulation is built with.

    dtype:  None (float32), or "float32" / "float64".  float64 needs JAX's x64 mode.
    Raises ValueError for another dtype, or for float64 while x64 is off (it would be truncated silently).
    """
    try:
        chosen = FLOAT if dtype is None else np.dtype(dtype)
    except (TypeError, ValueError):
        chosen = np.dtype(object)
    if chosen not in (np.dtype("float32"), np.dtype("float64")):
        shown = repr(chosen.name) if chosen != np.dtype(object) else excerpt(repr(dtype))
        raise ValueError(f"dtype {shown} is not supported. Valid: float32, float64.")
    if chosen == np.dtype("float64") and jnp.asarray(0.0).dtype != chosen:
        raise ValueError(
            "dtype='float64' needs x64 mode, which is off. Set the environment variable JAX_ENABLE_X64=1, "
            "or call inside `with jax.enable_x64(True):`."
        )
    return chosen


def matmul(a: ArrayLike, b: ArrayLike) -> Array:
    """Product a @ b of vectors and matrices, with the shapes of `jnp.matmul`, in full precision on every device.

    Every product of physics and optimisation goes through this function, `einsum` or `matvec`. Left alone, an
    accelerator multiplies float32 in fewer digits: TF32, 10 bits of mantissa, on recent GPUs, and bfloat16, 7 bits, on
    TPUs. An interior point method then no longer reaches its tolerance, and flows are off by MW. HIGHEST asks for
    float32 throughout; on a CPU it changes nothing. Networks of learners do not need it.
    """
    return jnp.matmul(a, b, precision=EXACT)


def einsum(subscripts: str, *operands: Array) -> Array:
    """Sum of products by index, as `jnp.einsum`, in full precision like `matmul`."""
    return jnp.einsum(subscripts, *operands, precision=EXACT)


def matvec(matrix: Array, x: Array) -> Array:  # (m, n), (n,) or (B, n) -> (m,) or (B, m)
    """Product matrix @ x on the last axis of x, in full precision like `matmul`: scenarios are rows of x."""
    return lax.dot_general(x, matrix, (((x.ndim - 1,), (1,)), ((), ())), precision=EXACT)


def rough_matvec(matrix: Array, x: Array) -> Array:  # (m, n), (B, n) -> (B, m)
    """Product of `matvec` with operands rounded to bfloat16 and sums in float32: three digits, on every device.

    Only for a first step whose error the following ones remove, and which a test of convergence follows.
    """
    # by way of single precision, from which cores convert in one instruction
    left, right = (y.astype(FLOAT).astype(ROUGH) for y in (x, matrix))
    product = lax.dot_general(left, right, (((1,), (1,)), ((), ())), precision=EXACT, preferred_element_type=FLOAT)
    return product.astype(x.dtype)


def safe_divide(a: Array, b: Array, otherwise: float = 0.0) -> Array:
    """a / b where b != 0, else `otherwise`; finite values and gradients on both branches."""
    ok = b != 0
    return jnp.where(ok, a / jnp.where(ok, b, jnp.ones_like(b)), jnp.asarray(otherwise, a.dtype))


@custom_vmap
def anywhere(flag: Array) -> Array:
    """Any of `flag`, also over every vmapped axis: the result stays unbatched.

    A `lax.cond` on it therefore remains a branch under any number of `vmap`s, where a plain
    predicate would turn it into a select that computes both sides.
    """
    return jnp.any(flag)


@anywhere.def_vmap
def _anywhere_vmap(size: int, batched: list[bool], flag: Array) -> tuple[Array, bool]:
    del size, batched
    return anywhere(flag), False
