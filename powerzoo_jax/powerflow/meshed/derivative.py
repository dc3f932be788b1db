"""Derivatives of a solved meshed power flow by the implicit function theorem, forward and reverse.

F(e; p, q, v, network) = 0 on the unknowns gives J zeta = dF for the turn zeta of the solution; J is the true Jacobian
at the solution, applied with the chord's blocked inverse as a preconditioner. The ends of the branches are linear in
the change of e and belong to the same linear system, so that its transpose is solved with the batch standing last too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from powerzoo_jax.base.solver_mode import AUTO, NATIVE, by_mode
from powerzoo_jax.powerflow.batching import batched_shell, in_groups, in_tiles
from powerzoo_jax.powerflow.implicit import MAX_SWEEPS, SWEEP_TOL
from powerzoo_jax.powerflow.meshed import equations as eqs
from powerzoo_jax.powerflow.meshed.blocks import transposed
from powerzoo_jax.powerflow.meshed.branches import (
    Ends,
    NetworkData,
    Polished,
    SolvedState,
    ends_change,
    ends_turned,
    parameter_change,
)
from powerzoo_jax.powerflow.meshed.chord import inside, outside
from powerzoo_jax.powerflow.meshed.fixed import solve_linear_fixed
from powerzoo_jax.powerflow.meshed.newton import jacobian_product, newton_step, preconditioner
from powerzoo_jax.powerflow.native.library import in_kernel
from powerzoo_jax.powerflow.native.solve import linear_solver

PACE = (0.05, 0.9)  # contraction assumed at least and at most when the last two sweeps tell what is left
GROUP = 8  # lanes factored together where the sweeps stall


class LinearMode(NamedTuple):
    """Mode of the linear solver, and the number of sweeps that it takes where that is fixed; static."""

    mode: str
    sweeps: int


def state_tangent(
    primals: tuple[Any, ...], tangents: tuple[Any, ...], out: SolvedState, mode: LinearMode
) -> SolvedState:
    """Tangents of the solution of one scenario; those of its last correction are counted with e.

    primals:  (grid, p, q[, v_set[, share]]) as the solver takes them
    tangents: alike, SymbolicZero where nothing varies
    """
    grid, *given = primals
    layout, core = grid.shared
    share, last = given[3:], out.polished
    e = jnp.stack([out.e_re + last.d_re, out.e_im + last.d_im], 1)
    s = jnp.stack([eqs.finite(given[0]) - last.p_left, eqs.finite(given[1]) - last.q_left], 1)
    for part in share:
        s = s.at[:, 0].add(part * last.p_shared)
    free, rows = (x[layout.outward].astype(e.dtype) for x in (layout.free, eqs.rows(layout, shared=bool(share))))
    forcing = jnp.stack([_given(t, x) for t, x in zip(tangents[1:3], given, strict=False)], 1)
    held = None
    if len(given) >= 3 and not isinstance(tangents[3], SymbolicZero):
        grow = jnp.where(~layout.free[layout.outward, 1], tangents[3] / given[2], 0)
        held = jnp.stack([jnp.zeros_like(grow), grow], 1)
        forcing = forcing - _turned(grid, e, held)
    d_net = _varied(tangents[0].shared.core.main, core.main, ("s_base", "own", "tables"))
    if d_net is not None:
        target = jnp.stack([eqs.finite(x) for x in given[:2]], 1)[layout.inward][:, :, None]
        there = e[layout.inward][:, :, None]

        def left(net: Any) -> Array:
            return eqs.mismatch(layout, net, target - net.s_base[:, :, None], there)

        forcing = forcing + jax.jvp(left, (core.main,), (d_net,))[1][layout.outward, :, 0]
    if share:
        forcing = forcing.at[:, 0].add(_given(tangents[4], given[3]) * last.p_shared)
    zeta, d_ends = _implicit(mode, grid, e, s, forcing * rows, *share)
    d_shared = zeta[layout.inward[layout.slack], 0] if share else jnp.zeros_like(last.p_shared)
    for part in share:
        forcing = forcing.at[:, 0].add(part * d_shared)
    zeta = zeta * free
    d_left = (forcing - _turned(grid, e, zeta)) * (1 - free)
    if held is not None:
        more = eqs.turn(e, held)
        d_ends = _sum(d_ends, ends_change(grid, more[grid.flow.f], more[grid.flow.t]))
        zeta = zeta + held
    d_flow = _varied(tangents[0].flow, grid.flow, ("i_base", "slope", "ratio"))
    if d_flow is not None:
        d_ends = _sum(d_ends, parameter_change(grid, d_flow, e))
    d_e = eqs.turn(e, zeta)
    zero = jnp.zeros_like(out.e_re)
    moved = Polished(zero, zero, d_left[:, 0], d_left[:, 1], d_shared, d_ends)
    whole: Any = [np.zeros(x.shape, jax.dtypes.float0) for x in (out.iterations, out.status)]
    return SolvedState(d_e[:, 0], d_e[:, 1], moved, jnp.zeros_like(out.residual), *whole)


def _given(tangent: Any, like: Array) -> Array:
    return jnp.zeros_like(like) if isinstance(tangent, SymbolicZero) else tangent


def _varied(tangent: Any, like: Any, names: tuple[str, ...]) -> Any:
    """Tangent of a table of numbers, None when none of the fields named varies."""
    leaves = jax.tree.leaves([getattr(tangent, name) for name in names])
    if all(isinstance(t, SymbolicZero) for t in leaves):
        return None
    return jax.tree.map(_given, tangent, like, is_leaf=lambda t: isinstance(t, SymbolicZero))


def _sum(a: Ends, b: Ends) -> Ends:
    return Ends(*(x + y for x, y in zip(a, b, strict=True)))


def _turned(grid: NetworkData, e: Array, zeta: Array) -> Array:
    """dS for a turn, by the linearised equations themselves, all (N, 2) in case order."""
    layout, core = grid.shared
    e, zeta = (x[layout.inward][:, :, None] for x in (e, zeta))

    def left(zeta: Array) -> Array:
        return eqs.mismatch(layout, core.main, jnp.zeros_like(e), eqs.rotate(e, zeta))

    return -jax.jvp(left, (0 * e,), (zeta,))[1][layout.outward, :, 0]


def _implicit(
    mode: LinearMode, grid: NetworkData, e: Array, s: Array, right: Array, *share: Array
) -> tuple[Array, Ends]:
    """Solution of J(e) zeta = right (N, 2) on the unknowns, and the change of the branch ends that the turn brings.

    One system, [J, 0; -G, 1] (zeta, ends) = (right, 0): linear in `right`, transposable, batched. Case order.
    """
    layout, n_branch = grid.shared.layout, grid.flow.f.shape[0]
    rows = eqs.rows(layout, shared=bool(share))[layout.outward].astype(e.dtype)
    free = layout.free[layout.outward].astype(e.dtype)

    def apply(x: tuple[Array, ...]) -> tuple[Array, ...]:
        zeta = jnp.stack(x[:2], 1)
        turned = _turned(grid, e, zeta * free)
        for part in share:
            turned = turned.at[:, 0].add(-part * zeta[layout.inward[layout.slack], 0])
        y = turned * rows + zeta * (1 - rows)
        change = eqs.turn(e, zeta * free)
        moved = ends_change(grid, change[grid.flow.f], change[grid.flow.t])
        return (y[:, 0], y[:, 1], *(a - b for a, b in zip(x[2:], moved, strict=True)))

    # all of the right side must be linear in `right`: a constant part has no transpose
    none = jnp.pad(0 * right[:1, 0], (0, max(n_branch - 1, 0)))[:n_branch]
    at = (e[:, 0], e[:, 1], s[:, 0], s[:, 1])
    x = lax.custom_linear_solve(
        apply,
        (right[:, 0], right[:, 1], *(none for _ in Ends._fields)),
        solve=lambda _, b: _shell(mode, False)(grid, *at, *b, *share),
        transpose_solve=lambda _, b: _shell(mode, True)(grid, *at, *b, *share),
    )
    return jnp.stack(x[:2], 1), Ends(*x[2:])


@functools.lru_cache(maxsize=32)
def _shell(mode: LinearMode, transpose: bool) -> Any:
    sweeps = functools.partial(solve_linear_fixed, count=mode.sweeps, rest=mode.mode == AUTO)

    def adaptive(grid: NetworkData, *arrays: Array) -> tuple[Array, ...]:
        solve = functools.partial(_answer, solve_linear, grid, transpose=transpose, own=False)
        found: tuple[Array, ...] = in_tiles(solve, arrays, cpu=mode.mode == AUTO)
        return found

    def native(grid: NetworkData, *arrays: Array) -> tuple[Array, ...]:
        def solve(grid: NetworkData, *arrays: Array) -> tuple[Array, ...]:
            assert grid.native is not None
            return _answer(linear_solver(grid.native), grid, arrays, transpose=transpose, own=False)

        found: tuple[Array, ...] = in_kernel(solve, None if mode.mode == NATIVE else adaptive, grid, *arrays)
        return found

    def fixed(grid: NetworkData, *arrays: Array) -> tuple[Array, ...]:
        return _answer(sweeps, grid, arrays, transpose=transpose, own=False)

    def shared(grid: NetworkData, *arrays: Array) -> tuple[Array, ...]:
        if mode.mode == NATIVE:
            return native(grid, *arrays)
        return by_mode(mode.mode, adaptive if grid.native is None else native, fixed, grid, *arrays)  # type: ignore[no-any-return]

    def each(linear: Callable[..., Array], grid: NetworkData, *arrays: Array) -> tuple[Array, ...]:
        found = _answer(linear, grid, tuple(x[:, None] for x in arrays), transpose=transpose, own=True)
        return tuple(x[:, 0] for x in found)

    def own(grid: NetworkData, *arrays: Array) -> tuple[Array, ...]:
        forms = (functools.partial(each, linear) for linear in (solve_linear, sweeps))
        return by_mode(mode.mode, *forms, grid, *arrays)  # type: ignore[no-any-return]

    return batched_shell(shared, own)


def _answer(
    linear: Callable[..., Array], grid: NetworkData, arrays: tuple[Array, ...], *, transpose: bool, own: bool
) -> tuple[Array, ...]:
    """Solution of the system of `_implicit` or its transpose; arrays (B, ...), or (B, 1, ...) with a grid per lane."""
    over: Callable[..., Any] = jax.vmap if own else lambda part: part
    e, s, right, share = over(functools.partial(_given_to, transpose))(grid, arrays)
    x = linear(grid.shared, e, s, right, share, tol=SWEEP_TOL[e.dtype.name], transpose=transpose, own=own)
    if transpose:
        return (*over(_zeta_from)(grid, x), *arrays[6:12])
    ends = over(_ends_from)(grid, e, x)
    return (*over(_zeta_from)(grid, x), *(a + b for a, b in zip(ends, arrays[6:12], strict=True)))


def _given_to(
    transpose: bool, grid: NetworkData, arrays: tuple[Array, ...]
) -> tuple[Array, Array, Array, Array | None]:
    """e, s, right side (N, 2, B) and share (N, B) of the system in zeta; its transpose collects from the ends."""
    layout = grid.shared.layout
    e, s, right = (inside(layout, *arrays[k : k + 2]) for k in (0, 2, 4))
    share = jnp.take(arrays[12].T, layout.inward, axis=0, mode="clip") if len(arrays) > 12 else None
    if transpose:
        weight = Ends(*(x.T for x in arrays[6:12]))
        right = right + jax.linear_transpose(lambda zeta: _ends_of_turn(grid, e, zeta), right)(weight)[0]
    return e, s, right, share


def _zeta_from(grid: NetworkData, x: Array) -> tuple[Array, Array]:
    return outside(grid.shared.layout, x)


def _ends_from(grid: NetworkData, e: Array, x: Array) -> tuple[Array, ...]:
    return tuple(end.T for end in _ends_of_turn(grid, e, x))


def _ends_of_turn(grid: NetworkData, e: Array, zeta: Array) -> Ends:
    return ends_turned(grid, eqs.turn(e, zeta * grid.shared.layout.free[:, :, None].astype(e.dtype)))


def solve_linear(
    shared: Any,
    e: Array,
    s: Array,
    right: Array,
    share: Array | None = None,
    *,
    tol: float,
    transpose: bool = False,
    own: bool = False,
) -> Array:
    """Solution of J(e) x = right (N, 2, B) on the unknowns, or of its transpose, until `tol` of x is left.

    e, s:   (N, 2, B) deviation and the injections there      share: (N, B), where the system is that of `newton_step`
    own:    every lane has a network of its own; all arrays then are (B, ..., 1)

    x <- x + (blocked inverse)(right - J x) contracts as fast as the chord itself; lanes where that stalls (near
    collapse) get a fresh factorisation.
    """
    sweep = functools.partial(_sweep, tol, transpose)
    fresh: Callable[..., Any] = functools.partial(_fresh, transpose)
    if not own:
        x, settled = sweep(shared, e, s, right, share)
        return in_groups(~settled, GROUP, fresh, shared, (e, right, share), x, last=True)  # type: ignore[no-any-return]
    x, settled = jax.vmap(sweep)(shared, e, s, right, share)
    each = jax.vmap(lambda _, given, x: fresh(given[0], given[1:], x), in_axes=(None, 0, 0))
    return in_groups(~settled[:, 0], GROUP, each, (), (shared, e, right, share), x)  # type: ignore[no-any-return]


def _sweep(
    tol: float, transpose: bool, shared: Any, e: Array, s: Array, right: Array, share: Array | None
) -> tuple[Array, Array]:
    """x (N, 2, B), and the lanes (B,) in which the sweeps settled. A lane that is done keeps its value."""
    layout, core = shared
    rows = eqs.rows(layout, shared=share is not None)[:, :, None].astype(e.dtype)
    blocks = transposed(layout.plan, core.blocks) if transpose else core.blocks
    product = jacobian_product(shared, e, s, share, transpose=transpose)
    apply = functools.partial(eqs.correction, layout, blocks)
    precondition = preconditioner(layout, apply, share, transpose=transpose)

    def advance(carry: Any) -> Any:
        k, x, left, step, size, settled = carry
        left = (left - product(step)) * rows
        step = jnp.where(settled[None, None], 0, precondition(left))
        x, new = x + step, eqs.largest(step)
        pace = jnp.clip(new / jnp.maximum(size, jnp.finfo(size.dtype).tiny), *PACE)
        ahead = new * jnp.minimum(pace / (1 - pace), 1)
        return k + 1, x, left, step, new, settled | (ahead <= tol * jnp.max(jnp.abs(x), (0, 1)))

    left = right * rows
    first = precondition(left)
    # of a lane with nothing to solve for the inverse may be that of an islanded grid
    begin = (jnp.int32(0), first, left, first, eqs.largest(first), jnp.all(left == 0, (0, 1)))
    end = lax.while_loop(lambda c: (c[0] < MAX_SWEEPS) & ~jnp.all(c[-1]), advance, begin)
    return end[1], end[-1]


def _fresh(transpose: bool, shared: Any, given: Any, x: Array) -> Array:
    """x of a group of lanes by a factorisation of their own Jacobian, in float64."""
    layout, core = shared
    rows = eqs.rows(layout, shared=given[2] is not None)[:, :, None].astype(x.dtype)
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda v: v.astype(jnp.float64), tuple(given))
        exact = newton_step(layout, core.wide, *wide, transpose=transpose).astype(x.dtype)
    return exact * rows
