"""Derivatives of a solved meshed power flow by the implicit function theorem, forward and reverse.

F(e; p, q, v, network) = 0 on the unknowns gives J zeta = dF for the turn zeta of the solution; J is the true Jacobian
at the solution, applied with the chord's blocked inverse as a preconditioner.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from powerzoo_jax.powerflow import meshed_equations as eqs
from powerzoo_jax.powerflow.batching import batched_shell, in_groups
from powerzoo_jax.powerflow.blocks import transposed
from powerzoo_jax.powerflow.meshed_newton import newton_step

MAX_SWEEPS = 40
TOL = {"float32": 1e-6, "float64": 1e-13}  # relative change at which the sweeps stop
GROUP = 8  # lanes factored together where the sweeps stall


def state_tangent(primals: tuple[Any, ...], tangents: tuple[Any, ...], out: Any) -> tuple[Any, ...]:
    """Tangents of `meshed.State` for one scenario: deviations, what is left, shared power, nothing for the rest.

    primals:  (shared, p, q[, v_set[, share]]) as the solver takes them
    tangents: alike, SymbolicZero where nothing varies
    out:      the solved State
    """
    shared, *given = primals
    layout, core = shared
    share = [x[layout.inward] for x in given[3:]]
    e = jnp.stack([out.e_re, out.e_im], 1)[layout.inward][:, :, None]
    free = layout.free[:, :, None].astype(e.dtype)
    rows = eqs.rows(layout, shared=bool(share))[:, :, None].astype(e.dtype)
    d_target = jnp.stack([_given(t, x) for t, x in zip(tangents[1:3], given, strict=False)], 1)[layout.inward]
    forcing = d_target[:, :, None]
    held = jnp.zeros_like(e)
    if len(given) >= 3 and not isinstance(tangents[3], SymbolicZero):
        grow = jnp.where(~layout.free[:, 1], (tangents[3] / given[2])[layout.inward], 0)
        held = jnp.stack([jnp.zeros_like(grow), grow], 1)[:, :, None]
        forcing = forcing - _turned(layout, core.main, e, held)
    d_net = _network_tangent(tangents[0].core.main, core.main)
    if d_net is not None:
        target = jnp.stack([eqs.finite(x) for x in given[:2]], 1)[layout.inward][:, :, None]

        def left(net: Any) -> Array:
            return eqs.mismatch(layout, net, target - net.s_base[:, :, None], e)

        forcing = forcing + jax.jvp(left, (core.main,), (d_net,))[1]
    if share:
        forcing = forcing.at[:, 0, 0].add(_given(tangents[4], given[3])[layout.inward] * out.p_shared)
    zeta = _implicit(shared, e[:, :, 0], (forcing * rows)[:, :, 0], *share)[:, :, None]
    d_shared = zeta[layout.slack, 0, 0] if share else jnp.zeros_like(out.p_shared)
    for part in share:
        forcing = forcing.at[:, 0, 0].add(part * d_shared)
    zeta = zeta * free
    d_left = (forcing - _turned(layout, core.main, e, zeta)) * (1 - free)
    d_e = eqs.turn(e, zeta + held)
    parts = [x[layout.outward, c, 0] for x in (d_e, 0 * d_e, d_left) for c in (0, 1)]
    whole = (np.zeros(x.shape, jax.dtypes.float0) for x in (out.iterations, out.status))
    return (*parts, d_shared, jnp.zeros_like(out.residual), *whole)


def _given(tangent: Any, like: Array) -> Array:
    return jnp.zeros_like(like) if isinstance(tangent, SymbolicZero) else tangent


def _network_tangent(tangent: Any, net: Any) -> Any:
    """Tangent of the network's numbers, None when none varies."""
    leaves = jax.tree.leaves((tangent.s_base, tangent.own, tangent.tables))
    if all(isinstance(t, SymbolicZero) for t in leaves):
        return None
    return jax.tree.map(_given, tangent, net, is_leaf=lambda t: isinstance(t, SymbolicZero))


def _turned(layout: Any, net: Any, e: Array, zeta: Array) -> Array:
    """dS for a turn, by the linearised equations themselves."""
    return -jax.jvp(lambda z: eqs.mismatch(layout, net, jnp.zeros_like(e), eqs.rotate(e, z)), (0 * e,), (zeta,))[1]


def _implicit(shared: Any, e: Array, right: Array, *share: Array) -> Array:
    """Solve J(e) zeta = right (N, 2) on the unknowns; linear in `right`, transposable, batched."""
    layout, core = shared
    rows = eqs.rows(layout, shared=bool(share)).astype(e.dtype)

    def apply(zeta: Array) -> Array:
        free = zeta * layout.free.astype(e.dtype)
        turned = _turned(layout, core.main, e[:, :, None], free[:, :, None])[:, :, 0]
        for part in share:
            turned = turned.at[:, 0].add(-part * zeta[layout.slack, 0])
        return turned * rows + zeta * (1 - rows)

    return lax.custom_linear_solve(
        apply,
        right,
        solve=lambda _, b: _shell(False)(shared, e, b, *share),
        transpose_solve=lambda _, b: _shell(True)(shared, e, b, *share),
    )


@functools.cache
def _shell(transpose: bool) -> Any:
    shared, own = (functools.partial(f, transpose) for f in (_solve_shared, _solve_own))
    return batched_shell(shared, own)


def _solve_shared(transpose: bool, shared: Any, e: Array, right: Array, *share: Array) -> Array:
    """`solve_linear` with the batch first, (B, N, 2)."""
    e, right = jnp.moveaxis(e, 0, 2), jnp.moveaxis(right, 0, 2)
    x = solve_linear(shared, e, right, *(a.T for a in share), tol=TOL[right.dtype.name], transpose=transpose)
    return jnp.moveaxis(x, 2, 0)


def _solve_own(transpose: bool, shared: Any, e: Array, right: Array, *share: Array) -> Array:
    return solve_linear_own(shared, e, right, *share, tol=TOL[right.dtype.name], transpose=transpose)


def solve_linear(
    shared: Any, e: Array, right: Array, share: Array | None = None, *, tol: float, transpose: bool = False
) -> Array:
    """Solve J(e) x = right (N, 2, B) on the unknowns, or its transpose, to a relative change of `tol`.

    x <- x + (blocked inverse)(right - J x) contracts as fast as the chord itself; lanes where that stalls (near
    collapse) get a fresh factorisation. With a share (N, B) the system is the bordered one of `newton_step`.
    """
    x, settled = _sweep(shared, e, right, share, tol=tol, transpose=transpose)
    fresh = functools.partial(_fresh, transpose)
    return in_groups(~settled, GROUP, fresh, shared, (e, right, share), x, last=True)  # type: ignore[no-any-return]


def solve_linear_own(
    shared: Any, e: Array, right: Array, share: Array | None = None, *, tol: float, transpose: bool = False
) -> Array:
    """The same with a network per lane, and the batch first: (B, N, 2), share (B, N)."""

    def sweep(shared: Any, *given: Array) -> tuple[Array, Array]:
        x, settled = _sweep(shared, *(g[..., None] for g in given), tol=tol, transpose=transpose)
        return x[..., 0], settled[0]

    def fresh(_: Any, given: Any, x: Array) -> Array:
        shared, *rest = given
        return _fresh(transpose, shared, [g[..., None] for g in rest], x[..., None])[..., 0]

    given = (e, right) if share is None else (e, right, share)
    x, settled = jax.vmap(sweep)(shared, *given)
    own = jax.vmap(fresh, in_axes=(None, 0, 0))
    return in_groups(~settled, GROUP, own, (), (shared, *given), x)  # type: ignore[no-any-return]


def _sweep(
    shared: Any, e: Array, right: Array, share: Array | None = None, *, tol: float, transpose: bool
) -> tuple[Array, Array]:
    """x (N, 2, B), and the lanes (B,) in which the sweeps settled. A lane that is done keeps its value."""
    layout, core = shared
    rows = eqs.rows(layout, shared=share is not None)[:, :, None].astype(e.dtype)
    right = right * rows
    s = eqs.power(layout, core.main, e)
    blocks = transposed(layout.plan, core.blocks) if transpose else core.blocks
    product = _product(shared, e, s, share, transpose)
    precondition = _precondition(layout, blocks, share, transpose)

    def advance(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        k, x, settled = carry
        step = precondition((right - product(x)) * rows)
        x = jnp.where(settled[None, None], x, x + step)
        return k + 1, x, settled | (eqs.largest(step) <= tol * jnp.max(jnp.abs(x), (0, 1)))

    first = precondition(right)
    # of a lane with nothing to solve for the inverse may be that of an islanded grid
    begin = (jnp.int32(0), first, jnp.all(right == 0, (0, 1)))
    _, x, settled = lax.while_loop(lambda c: (c[0] < MAX_SWEEPS) & ~jnp.all(c[2]), advance, begin)
    return x, settled


def _fresh(transpose: bool, shared: Any, given: Any, x: Array) -> Array:
    """x of a group of lanes by a factorisation of their own Jacobian, in float64."""
    layout, core = shared
    rows = eqs.rows(layout, shared=len(given) > 2 and given[2] is not None)[:, :, None].astype(x.dtype)
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda v: v.astype(jnp.float64), tuple(given))
        exact = newton_step(layout, core.wide, *wide, transpose=transpose).astype(x.dtype)
    return exact * rows


def _product(shared: Any, e: Array, s: Array, share: Array | None, transpose: bool) -> Callable[[Array], Array]:
    """x -> J x or J' x, bordered where power is shared."""
    layout, core = shared
    free = layout.free[:, :, None].astype(e.dtype)

    def forward(x: Array) -> Array:
        if share is None:
            return eqs.slope_times(layout, core.main, e, s, x)
        return eqs.give_out(eqs.slope_times(layout, core.main, e, s, x * free), share, -x[layout.slack, 0])

    def backward(x: Array) -> Array:
        y = eqs.slope_transposed_times(layout, core.main, e, s, x)
        return y if share is None else (y * free).at[layout.slack, 0].add(-jnp.sum(share * x[:, 0], 0))

    return backward if transpose else forward


def _precondition(layout: Any, blocks: Any, share: Array | None, transpose: bool) -> Callable[[Array], Array]:
    """The blocked inverse; where power is shared what all rows lack is given out first, as in the chord."""

    def forward(left: Array) -> Array:
        if share is None:
            return eqs.correction(layout, blocks, left)
        power = eqs.shared_power(layout, left)
        return eqs.correction(layout, blocks, eqs.give_out(left, share, power)).at[layout.slack, 0].add(power)

    def backward(left: Array) -> Array:
        x = eqs.correction(layout, blocks, left)
        if share is None:
            return x
        power = jnp.sum(share * x[:, 0], 0) + left[layout.slack, 0]
        active = eqs.rows(layout, shared=True)[:, :1].astype(x.dtype)
        return eqs.give_out(x, active, -power)

    return backward if transpose else forward
