"""Newton-Raphson in float64 for the lanes of a meshed network that a constant factor does not solve.

`newton_freed` solves a lane in which a PV bus has become a PQ bus by the loss of its unit.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.powerflow.meshed import equations as eqs
from powerzoo_jax.powerflow.meshed.blocks import border, solve_bordered
from powerzoo_jax.powerflow.meshed.factors import MeshedCore, MeshedLayout, MeshedNetwork, jacobian_entries
from powerzoo_jax.powerflow.result import Status

MAX_STEPS = 20
LONGEST = 0.3  # [rad, -] largest turn per step: keeps the iterate on the branch of solutions it started from
TOL = 1e-10  # [rad, -] turn at which Newton stops; quadratic convergence makes the error its square
LEFT = 1e-7  # [pu] power mismatch that a solution may leave: a stall on a short step is not one


def newton(
    layout: MeshedLayout, core: MeshedCore, aim: eqs.Aim, start: Array | None
) -> tuple[Array, Array, Array, Array]:
    """Solve a group of lanes from their start: e (N, 2, T), residual, steps, status (T,).

    aim:    of T lanes; one with a target that is not finite is told apart here
    start:  (N, 2, T) deviation to begin from, None for the base state

    Every arithmetic runs in float64 also inside a float32 program and the result returns in the program's dtype.
    """
    target, share = aim
    dtype = target.dtype
    with jax.enable_x64(True):
        net = core.wide
        free = layout.free[:, :, None].astype(jnp.float64)
        rows = eqs.rows(layout, shared=share is not None)[:, :, None].astype(jnp.float64)
        fine = jnp.isfinite(target) if start is None else jnp.isfinite(target) & jnp.isfinite(start)
        target = jnp.where(fine, target, 0).astype(jnp.float64)
        e = jnp.zeros_like(target) if start is None else jnp.where(fine, start, 0).astype(jnp.float64)
        # what is not finite where it is ignored does no harm
        good = jnp.all(fine | (rows == 0), (0, 1))
        if share is not None:
            good = good & jnp.all(jnp.isfinite(share), 0)
            share = eqs.finite(share).astype(jnp.float64)
        aim = eqs.Aim(target, share)
        lanes = e.shape[2]
        begin = (jnp.int32(0), e, jnp.full(lanes, jnp.inf, jnp.float64), jnp.zeros(lanes, jnp.int32))

        def advance(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
            k, e, size, steps = carry
            active = size > TOL
            zeta = newton_step(layout, net, e, eqs.unserved(layout, net, aim, e) * rows, aim.share) * free
            longest = eqs.largest(zeta)
            new = eqs.rotate(e, zeta * jnp.minimum(1.0, LONGEST / jnp.maximum(longest, LONGEST))[None, None])
            ok = jnp.all(jnp.isfinite(new), (0, 1))
            e = jnp.where((active & ok)[None, None], new, e)
            size = jnp.where(active, jnp.where(ok, longest, -1.0), size)
            return k + 1, e, size, steps + active.astype(jnp.int32)

        _, e, size, steps = lax.while_loop(lambda c: (c[0] < MAX_STEPS) & jnp.any(c[2] > TOL), advance, begin)
        left = eqs.unserved(layout, net, aim, e)
        residual = eqs.largest(left * rows)
        status = jnp.where(size < 0, jnp.int32(Status.SINGULAR), jnp.int32(Status.OUT_OF_STEPS))
        solved = (size >= 0) & (size <= TOL) & (residual < LEFT)
        status = jnp.where(solved, jnp.int32(Status.CONVERGED), status)
        status = jnp.where(good, status, jnp.int32(Status.BAD_INPUT))
        # the state goes out rounded to the program's dtype: a smaller mismatch would be a claim it cannot keep
        residual = jnp.maximum(residual, float(jnp.finfo(dtype).eps))
        return e.astype(dtype), residual.astype(dtype), steps, status


def newton_step(
    layout: MeshedLayout,
    net: MeshedNetwork,
    e: Array,
    right: Array,
    share: Array | None = None,
    *,
    transpose: bool = False,
) -> Array:
    """Solve J(e) zeta = right lane by lane with a fresh factorisation, (N, 2, T); with a share (N, T) the bordered

        [J, -a; j_s, -a_s] (zeta, power) = right

    where a is the share on active rows and j_s the active row of the slack bus (`meshed.equations.rows`).
    """
    s = eqs.power(layout, net, e)

    def one(e: Array, s: Array, *right: Array) -> tuple[Array, ...]:
        matrix = border(layout.plan, _entries(layout, net, e, s))
        if transpose:
            matrix = type(matrix)(*(x.swapaxes(-1, -2) for x in (matrix[0], matrix[2], matrix[1], matrix[3])))
        return tuple(solve_bordered(layout.plan, matrix, x.reshape(-1)).reshape(x.shape) for x in right)

    lanes = jax.vmap(one, in_axes=2, out_axes=2)
    if share is None:
        return lanes(e, s, right)[0]
    free = layout.free[:, :, None].astype(e.dtype)
    active = jnp.zeros_like(e).at[:, 0].set(share)
    slack = jnp.zeros_like(e).at[layout.slack, 0].set(1)
    row = eqs.slope_transposed_times(layout, net, e, s, slack)
    side = row if transpose else active
    plain, answer = (x * free for x in lanes(e, s, right * free, side * free))
    across = active if transpose else row
    here = jnp.sum(right * slack, (0, 1))
    gap = share[layout.slack] - jnp.sum(across * answer, (0, 1))
    if transpose:
        # the unknown of the slack row weighs it: J' w + j_s m = right, -a w - a_s m = right at its place
        unknown = -(here + jnp.sum(across * plain, (0, 1))) / gap
        return plain - answer * unknown[None, None] + slack * unknown[None, None]
    unknown = (jnp.sum(across * plain, (0, 1)) - here) / gap
    return plain + answer * unknown[None, None] + slack * unknown[None, None]


def _entries(layout: MeshedLayout, net: MeshedNetwork, e: Array, s: Array) -> Array:
    """Jacobian entries of one lane, e and s (N, 2)."""
    w = lax.complex(1 + e[:, 0], e[:, 1])
    cells: list[Any] = []
    begin = 0
    for nodes, table in zip(layout.neighbours, net.tables, strict=True):
        here = w[begin : begin + nodes.shape[0], None]
        cells.append((lax.complex(table.out_re, table.out_im) * here * jnp.conj(w[nodes])).reshape(-1))
        begin += nodes.shape[0]
    own = lax.complex(net.own[:, 0], net.own[:, 1]) * (w * jnp.conj(w))
    return jacobian_entries(jnp.concatenate(cells), own, lax.complex(s[:, 0], s[:, 1]))


def newton_freed(
    layout: MeshedLayout, net: MeshedNetwork, target: Array, start: Array, bus: Array, lost: Array
) -> tuple[Array, Array, Array, Array]:
    """Solve one lane (N, 2, 1) from its start: e, residual, steps, status (1,), as `meshed.newton.newton` does.

    bus, lost:  () position of the bus that is freed, and whether there is one
    """
    free = layout.free[:, :, None].astype(target.dtype)
    own = jnp.zeros_like(target).at[bus, 1].set(lost.astype(target.dtype))
    fine = jnp.isfinite(target) & jnp.isfinite(start)
    target, e = jnp.where(fine, target, 0), jnp.where(fine, start, 0)

    def left_at(e: Array) -> Array:
        return eqs.mismatch(layout, net, target, e) * (free + own)

    def advance(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        k, e, _ = carry
        zeta = _step(layout, net, e, left_at(e), free, own)
        longest = jnp.max(eqs.largest(zeta))
        new = eqs.rotate(e, zeta * jnp.minimum(1.0, LONGEST / jnp.maximum(longest, LONGEST)))
        ok = jnp.all(jnp.isfinite(new))
        return k + 1, jnp.where(ok, new, e), jnp.where(ok, longest, -1.0)

    begin = (jnp.int32(0), e, jnp.full((), jnp.inf, e.dtype))
    steps, e, size = lax.while_loop(lambda c: (c[0] < MAX_STEPS) & (c[2] > TOL), advance, begin)
    residual = eqs.largest(left_at(e))
    status = jnp.where(size < 0, jnp.int32(Status.SINGULAR), jnp.int32(Status.OUT_OF_STEPS))
    status = jnp.where((size >= 0) & (size <= TOL) & (residual < LEFT), jnp.int32(Status.CONVERGED), status)
    status = jnp.where(jnp.all(fine | (free + own == 0)), status, jnp.int32(Status.BAD_INPUT))
    return e, residual, steps[None], status


def _step(layout: MeshedLayout, net: MeshedNetwork, e: Array, left: Array, free: Array, own: Array) -> Array:
    """Newton step of the bordered Jacobian [J, c; r, d], from two solves with J."""
    s = eqs.power(layout, net, e)
    column = eqs.slope_times(layout, net, e, s, own)
    row = eqs.slope_transposed_times(layout, net, e, s, own)
    twice = jnp.concatenate([e, e], 2)
    plain, answer = jnp.split(newton_step(layout, net, twice, jnp.concatenate([left, column], 2) * free) * free, 2, 2)
    gap = jnp.sum(row * (own - answer))
    asked = jnp.sum(left * own) - jnp.sum(row * plain)
    return plain + (own - answer) * asked / jnp.where(gap == 0, 1.0, gap)
