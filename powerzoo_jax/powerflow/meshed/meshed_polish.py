"""The last correction of a solved meshed network: what float32 rounds off voltages, and the flows that show it.

Flows are small differences times large admittances. e stays as it was solved; what is missing to the solution is kept
beside it, and the branches are read off both. A program that reads voltages only does not pay for this.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from powerzoo_jax.powerflow.meshed import chord
from powerzoo_jax.powerflow.meshed import equations as eqs
from powerzoo_jax.powerflow.meshed.branches import Ends, Grid, branch_ends
from powerzoo_jax.powerflow.meshed.chord import Lanes, Shared
from powerzoo_jax.powerflow.meshed.derivative import solve_linear
from powerzoo_jax.powerflow.result import Status

POLISH = 2e-4  # share of the last error that flows may keep


class Polished(NamedTuple):
    """Case order, (B, N) but the last two.

    d_re, d_im:      what is missing to the solution: e + d holds differences that e alone rounds away
    p_left, q_left:  injection left unserved by e + d
    p_shared:        (B,)    active power that the buses add together where they share it, else 0
    ends:            (B, L)  of the branches
    """

    d_re: Array
    d_im: Array
    p_left: Array
    q_left: Array
    p_shared: Array
    ends: Ends


class _Point(NamedTuple):
    """Where the lanes stand, (N, 2, B): e, injections and what is left there, the turn that brings held magnitudes to
    their set-points; shared power (B,), shares (N, B) or None, and which lanes are solved (B,).
    """

    e: Array
    s: Array
    left: Array
    held: Array
    power: Array
    share: Array | None
    solved: Array


def polish(grid: Grid, given: tuple[Array, ...], lanes: Lanes, *, own: bool) -> Polished:
    """Correct solved lanes once more and read the branches; lanes without a solution stay where they are.

    With `own` every lane has a grid of its own and arrays are (B, 1, ...).
    """
    over: Callable[..., Any] = jax.vmap if own else lambda part: part
    point = over(_standing)(grid.shared, given, lanes)
    worth = jnp.where(point.solved[..., None, None, :], point.left, 0)
    zeta = solve_linear(grid.shared, point.e, point.s, worth, point.share, tol=POLISH, own=own)
    return over(_turned)(grid, point, zeta)  # type: ignore[no-any-return]


def _standing(shared: Shared, given: tuple[Array, ...], lanes: Lanes) -> _Point:
    """What is left at e in float64: its rounding in float32, and that of held magnitudes, would show in flows."""
    layout, dtype = shared.layout, given[0].dtype
    e = chord.inside(layout, lanes.e_re, lanes.e_im)
    with jax.enable_x64(True):
        p, q, *rest = (eqs.finite(x).astype(jnp.float64) for x in given)
        rest = [jnp.take(x.T, layout.inward, axis=0, mode="clip") for x in rest]
        net, wide, wanted = shared.core.wide, e.astype(jnp.float64), chord.inside(layout, p, q)
        size = jnp.sqrt(jnp.square(1 + wide[:, 0]) + jnp.square(wide[:, 1]))
        goal = rest[0] / net.v_mag[:, None] if rest else jnp.ones_like(size)
        grow = jnp.where(layout.free[:, 1:] | (size == 0), 0, goal / jnp.where(size == 0, 1, size) - 1)
        held = grow[:, None] * jnp.stack([1 + wide[:, 0], wide[:, 1]], 1)
        left = eqs.mismatch(layout, net, wanted - net.s_base[:, :, None], wide + held)
        power = jnp.zeros_like(left[0, 0])
        for part in rest[1:]:
            power = eqs.shared_power(layout, left)
            left, wanted = eqs.give_out(left, part, power), eqs.give_out(wanted, part, power)
        s, left, held, power = (x.astype(dtype) for x in (wanted - left, left, held, power))
        share = rest[1].astype(dtype) if len(rest) > 1 else None
    return _Point(e, s, left, held, power, share, lanes.status == Status.CONVERGED)


def _turned(grid: Grid, point: _Point, zeta: Array) -> Polished:
    layout, core = grid.shared
    e, s, left, held, power, share, solved = point
    held, zeta = (jnp.where(solved[None, None], x, 0) for x in (held, zeta))
    if share is not None:
        more = zeta[layout.slack, 0]
        power, left = power + more, eqs.give_out(left, share, more)
        zeta = zeta * layout.free[:, :, None].astype(e.dtype)
    left = left - eqs.slope_times(layout, core.main, e, s, zeta)
    missing = held + eqs.turn(e, zeta)
    ends = jax.tree.map(jnp.transpose, branch_ends(grid, e, missing))
    outside = functools.partial(chord.outside, layout)
    return Polished(*outside(missing), *outside(left), power, ends)
