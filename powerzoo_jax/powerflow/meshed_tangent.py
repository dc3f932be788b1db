"""Derivatives of a solved meshed power flow by the implicit function theorem, forward and reverse.

F(e; p, q, v, network) = 0 on the unknowns gives J zeta = dF for the turn zeta of the solution; J is the true Jacobian
at the solution, applied with the chord's blocked inverse as a preconditioner.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from powerzoo_jax.powerflow import meshed_equations as eqs
from powerzoo_jax.powerflow.batching import batched_shell
from powerzoo_jax.powerflow.blocks import transposed
from powerzoo_jax.powerflow.meshed_newton import newton_step

MAX_SWEEPS = 40
TOL = {"float32": 1e-6, "float64": 1e-13}  # relative change at which the sweeps stop


def state_tangent(primals: tuple[Any, ...], tangents: tuple[Any, ...], out: Any) -> tuple[Any, ...]:
    """Tangents of `meshed.State` for one scenario: deviations, what is left, and nothing for the rest.

    primals:  (shared, p, q[, v_set]) as the solver takes them      tangents: alike, SymbolicZero where nothing varies
    out:      the solved State
    """
    shared, *given = primals
    layout, core = shared
    e = jnp.stack([out.e_re, out.e_im], 1)[layout.inward][:, :, None]
    free = layout.free[:, :, None].astype(e.dtype)
    d_target = jnp.stack([_given(t, x) for t, x in zip(tangents[1:3], given, strict=False)], 1)[layout.inward]
    forcing = d_target[:, :, None]
    held = jnp.zeros_like(e)
    if len(given) == 3 and not isinstance(tangents[3], SymbolicZero):
        grow = jnp.where(~layout.free[:, 1], (tangents[3] / given[2])[layout.inward], 0)
        held = jnp.stack([jnp.zeros_like(grow), grow], 1)[:, :, None]
        forcing = forcing - _turned(layout, core.main, e, held)
    d_net = _network_tangent(tangents[0].core.main, core.main)
    if d_net is not None:
        target = jnp.stack([finite(x) for x in given[:2]], 1)[layout.inward][:, :, None]

        def left(net: Any) -> Array:
            return eqs.mismatch(layout, net, target - net.s_base[:, :, None], e)

        forcing = forcing + jax.jvp(left, (core.main,), (d_net,))[1]
    zeta = _implicit(shared, e[:, :, 0], (forcing * free)[:, :, 0])[:, :, None]
    d_left = (forcing - _turned(layout, core.main, e, zeta)) * (1 - free)
    d_e = eqs.turn(e, zeta + held)
    parts = [x[layout.outward, c, 0] for x in (d_e, 0 * d_e, d_left) for c in (0, 1)]
    whole = (np.zeros(x.shape, jax.dtypes.float0) for x in (out.iterations, out.status))
    return (*parts, jnp.zeros_like(out.residual), *whole)


def _given(tangent: Any, like: Array) -> Array:
    return jnp.zeros_like(like) if isinstance(tangent, SymbolicZero) else tangent


def finite(x: Array) -> Array:
    """x with 0 for what is not finite: a bad lane must not poison what it shares with others."""
    return jnp.where(jnp.isfinite(x), x, 0)


def _network_tangent(tangent: Any, net: Any) -> Any:
    """Tangent of the network's numbers, None when none varies."""
    leaves = jax.tree.leaves((tangent.s_base, tangent.own, tangent.tables))
    if all(isinstance(t, SymbolicZero) for t in leaves):
        return None
    return jax.tree.map(_given, tangent, net, is_leaf=lambda t: isinstance(t, SymbolicZero))


def _turned(layout: Any, net: Any, e: Array, zeta: Array) -> Array:
    """dS for a turn, by the linearised equations themselves."""
    return -jax.jvp(lambda z: eqs.mismatch(layout, net, jnp.zeros_like(e), eqs.rotate(e, z)), (0 * e,), (zeta,))[1]


def _implicit(shared: Any, e: Array, right: Array) -> Array:
    """Solve J(e) zeta = right (N, 2) on the unknowns; linear in `right`, transposable, batched."""
    layout, core = shared
    free = layout.free.astype(e.dtype)

    def apply(zeta: Array) -> Array:
        turned = _turned(layout, core.main, e[:, :, None], (zeta * free)[:, :, None])[:, :, 0]
        return turned * free + zeta * (1 - free)

    return lax.custom_linear_solve(
        apply,
        right,
        solve=lambda _, b: _shell(False)(shared, e, b),
        transpose_solve=lambda _, b: _shell(True)(shared, e, b),
    )


@functools.cache
def _shell(transpose: bool) -> Any:
    return batched_shell(functools.partial(_sweep, transpose))


def _sweep(transpose: bool, shared: Any, e: Array, right: Array) -> Array:
    """`solve_linear` with the batch first, (B, N, 2)."""
    e, right = jnp.moveaxis(e, 0, 2), jnp.moveaxis(right, 0, 2)
    x = solve_linear(shared, e, right, TOL[right.dtype.name], transpose=transpose)
    return jnp.moveaxis(x, 2, 0)


def solve_linear(shared: Any, e: Array, right: Array, tol: float, *, transpose: bool = False) -> Array:
    """Solve J(e) x = right (N, 2, B) on the unknowns, or its transpose, to a relative change of `tol`.

    x <- x + (blocked inverse)(right - J x) contracts as fast as the chord itself; where that stalls (near collapse) a
    fresh factorisation takes over. A lane that is done keeps its value.
    """
    layout, core = shared
    free = layout.free[:, :, None].astype(e.dtype)
    right = right * free
    s = eqs.power(layout, core.main, e)
    product = eqs.slope_transposed_times if transpose else eqs.slope_times
    blocks = transposed(layout.plan, core.blocks) if transpose else core.blocks

    def advance(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        k, x, settled = carry
        step = eqs.correction(layout, blocks, (right - product(layout, core.main, e, s, x)) * free)
        x = jnp.where(settled[None, None], x, x + step)
        return k + 1, x, settled | (eqs.largest(step) <= tol * jnp.max(jnp.abs(x), (0, 1)))

    first = eqs.correction(layout, blocks, right)
    begin = (jnp.int32(0), first, jnp.zeros(first.shape[2], bool))
    _, x, settled = lax.while_loop(lambda c: (c[0] < MAX_SWEEPS) & ~jnp.all(c[2]), advance, begin)

    def direct() -> Array:
        with jax.enable_x64(True):
            wide = jax.tree.map(lambda v: v.astype(jnp.float64), (e, right))
            exact = newton_step(layout, core.wide, *wide, transpose=transpose).astype(right.dtype)
        return jnp.where(settled[None, None], x, exact)

    return lax.cond(jnp.any(~settled), direct, lambda: x) * free
