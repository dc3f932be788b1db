"""Newton-Raphson in float64 for the lanes of a meshed network that a constant factor does not solve.

A lane may stand for a network in which a PV bus has become a PQ bus by the loss of its unit: it has one unknown and one
equation more than the factors know of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.powerflow.admittances import jacobian_entries
from powerzoo_jax.powerflow.meshed import equations as eqs
from powerzoo_jax.powerflow.meshed.blocks import border, solve_bordered
from powerzoo_jax.powerflow.meshed.factors import MeshedNetwork
from powerzoo_jax.powerflow.meshed.layout import MeshedLayout
from powerzoo_jax.powerflow.newton import damping, newton_raphson, verdict

LONGEST = 0.3  # [rad, -] largest turn per step: keeps the iterate on the branch of solutions it started from


def newton(
    layout: MeshedLayout,
    net: MeshedNetwork,
    aim: eqs.Aim,
    start: Array | None,
    freed: tuple[Array, Array] | None = None,
) -> tuple[Array, Array, Array, Array]:
    """Newton solution of a group of lanes: e (N, 2, T), residual, steps, status (T,).

    net:    in float64
    aim:    of T lanes; one with a target that is not finite is told apart here
    start:  (N, 2, T) deviation to begin from, None for the base state
    freed:  () each: position of a bus that no longer holds its magnitude, and whether there is one; of all lanes alike

    Every arithmetic runs in float64 also inside a float32 program and the result returns in the program's dtype.
    """
    target, share = aim
    dtype = target.dtype
    with jax.enable_x64(True):
        free = layout.free[:, :, None].astype(jnp.float64)
        rows = eqs.rows(layout, shared=share is not None)[:, :, None].astype(jnp.float64)
        own = None
        if freed is not None:
            own = jnp.zeros_like(rows).at[freed[0], 1].set(freed[1].astype(jnp.float64))
            rows = rows + own
        fine = jnp.isfinite(target) if start is None else jnp.isfinite(target) & jnp.isfinite(start)
        target = jnp.where(fine, target, 0).astype(jnp.float64)
        e = jnp.zeros_like(target) if start is None else jnp.where(fine, start, 0).astype(jnp.float64)
        # what is not finite where it is ignored does no harm
        good = jnp.all(fine | (rows == 0), (0, 1))
        if share is not None:
            good = good & jnp.all(jnp.isfinite(share), 0)
            share = eqs.finite(share).astype(jnp.float64)
        aim = eqs.Aim(target, share)

        def step(e: Array) -> tuple[Array, Array]:
            left = eqs.unserved(layout, net, aim, e) * rows
            if own is None:
                zeta = newton_step(layout, net, e, left, aim.share) * free
            else:
                zeta = _freed_step(layout, net, e, left, free, own)
            longest = eqs.largest(zeta)
            return eqs.rotate(e, zeta * damping(longest, LONGEST)[None, None]), longest

        e, move, steps = newton_raphson(step, e)
        residual = eqs.largest(eqs.unserved(layout, net, aim, e) * rows)
        status = verdict(move, residual, good)
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
    """Newton step zeta (N, 2, T) of J(e) zeta = right, factorised anew in every lane.

    Where several buses share the slack power, share (N, T), the system is

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


def _freed_step(layout: MeshedLayout, net: MeshedNetwork, e: Array, left: Array, free: Array, own: Array) -> Array:
    """Newton step (N, 2, T) of the bordered Jacobian [J, c; r, d], from two solves with J; `own` marks its last row."""
    s = eqs.power(layout, net, e)
    own = jnp.broadcast_to(own, e.shape)
    column = eqs.slope_times(layout, net, e, s, own)
    row = eqs.slope_transposed_times(layout, net, e, s, own)
    twice = jnp.concatenate([e, e], 2)
    plain, answer = jnp.split(newton_step(layout, net, twice, jnp.concatenate([left, column], 2) * free) * free, 2, 2)
    gap = jnp.sum(row * (own - answer), (0, 1))
    asked = jnp.sum(left * own, (0, 1)) - jnp.sum(row * plain, (0, 1))
    return plain + (own - answer) * asked[None, None] / jnp.where(gap == 0, 1.0, gap)[None, None]


def jacobian_product(
    shared: Any, e: Array, s: Array, share: Array | None, *, transpose: bool = False
) -> Callable[[Array], Array]:
    """x -> J x or J' x at e, where the injections are s; bordered where power is shared. All (N, 2, B)."""
    layout, core = shared
    free = layout.free[:, :, None].astype(e.dtype)

    def forward(x: Array) -> Array:
        if share is None:
            return eqs.slope_times(layout, core.main, e, s, x)
        return eqs.distribute_slack(eqs.slope_times(layout, core.main, e, s, x * free), share, -x[layout.slack, 0])

    def backward(x: Array) -> Array:
        y = eqs.slope_transposed_times(layout, core.main, e, s, x)
        return y if share is None else (y * free).at[layout.slack, 0].add(-jnp.sum(share * x[:, 0], 0))

    return backward if transpose else forward


def preconditioner(
    layout: MeshedLayout, apply: Callable[[Array], Array], share: Array | None, *, transpose: bool = False
) -> Callable[[Array], Array]:
    """A constant inverse `apply`; where power is shared what all rows lack is given out first, as in the chord."""

    def forward(left: Array) -> Array:
        if share is None:
            return apply(left)
        power = eqs.shared_power(layout, left)
        return apply(eqs.distribute_slack(left, share, power)).at[layout.slack, 0].add(power)

    def backward(left: Array) -> Array:
        x = apply(left)
        if share is None:
            return x
        power = jnp.sum(share * x[:, 0], 0) + left[layout.slack, 0]
        active = eqs.rows(layout, shared=True)[:, :1].astype(x.dtype)
        return eqs.distribute_slack(x, active, -power)

    return backward if transpose else forward
