"""Both ends of every branch of a meshed network, read off the deviation of its buses: i, u, w in textbook symbols.

    i = i_base (1 + e_t) + slope (e_f - e_t),    u = Vb_f (1 + e_f) / a,    w = Vb_t (1 + e_t)

All three are linear in e, so a change of e moves them by the same coefficients. The batch stands last.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from powerzoo_jax.powerflow.meshed import equations as eqs
from powerzoo_jax.powerflow.meshed.chord import Shared
from powerzoo_jax.powerflow.meshed.factors import BranchFlow
from powerzoo_jax.powerflow.native.factors import NativeFactors

Pair = tuple[Array, Array]


class NetworkData(NamedTuple):
    """The part of the factors that a solve and its derivatives read; v_base (N, 2) [pu] in case order.

    native:  operands of the compiled kernel, None where the JAX form solves
    """

    shared: Shared
    flow: BranchFlow
    v_base: Array
    native: NativeFactors | None = None


class Ends(NamedTuple):
    """Current of the series element, voltage at its from end behind the ratio and at its to end, (L,) each [pu]."""

    i_re: Array
    i_im: Array
    u_re: Array
    u_im: Array
    w_re: Array
    w_im: Array


class Polished(NamedTuple):
    """Last correction of lanes and what follows from it; case order, (B, N) but the last two.

    d_re, d_im:      what is missing to the solution: e + d holds differences that e alone rounds away
    p_left, q_left:  injection left unserved by e + d
    p_shared:        (B,)    active power that the buses add together where they share it, else 0
    ends:            (B, L)  of the branches at e + d
    """

    d_re: Array
    d_im: Array
    p_left: Array
    q_left: Array
    p_shared: Array
    ends: Ends


class SolvedState(NamedTuple):
    """Solution in case order: deviation (B, N) solved to the tolerance, its last correction, and its proof (B,).

    The batched core has it with the axis B, the solver of one scenario without.
    """

    e_re: Array
    e_im: Array
    polished: Polished
    residual: Array
    iterations: Array
    status: Array


def branch_ends(grid: NetworkData, e: Array, rest: Array) -> Ends:
    """The ends at e + rest, both (N, 2, B) internal; currents are computed in float64.

    What a branch carries may be a small part of what it carries at the base state, and e + rest, rounded, would show.
    """
    layout, flow = grid.shared.layout, grid.flow
    dtype = e.dtype
    (e_f, e_t), (d_f, d_t) = ((eqs.pick(x, layout.f), eqs.pick(x, layout.t)) for x in (e, rest))
    with jax.enable_x64(True):
        i_base, i_rest, slope, slope_rest, *wide = (
            x.astype(jnp.float64) for x in (flow.i_base, flow.i_rest, flow.slope, flow.slope_rest, e_f, e_t, d_f, d_t)
        )
        i_base, slope = i_base + i_rest, slope + slope_rest
        a, b = _times(i_base, wide[1] + wide[3]), _times(slope, (wide[0] - wide[1]) + (wide[2] - wide[3]))
        i = tuple((i_base[:, c, None] + (a[c] + b[c])).astype(dtype) for c in (0, 1))
    near, far = end_voltages(grid)
    u, w = _times(near, e_f + d_f), _times(far, e_t + d_t)
    return Ends(*i, *(near[:, c, None] + u[c] for c in (0, 1)), *(far[:, c, None] + w[c] for c in (0, 1)))


def ends_change(grid: NetworkData, d_from: Array, d_to: Array) -> Ends:
    """Change of the ends for a change of e at both, (L, 2, B) or (L, 2); linear."""
    near, far = end_voltages(grid)
    a, b = _times(grid.flow.i_base, d_to), _times(grid.flow.slope, d_from - d_to)
    return Ends(a[0] + b[0], a[1] + b[1], *_times(near, d_from), *_times(far, d_to))


def ends_turned(grid: NetworkData, change: Array) -> Ends:
    """`ends_change` for a change of e (N, 2, B), internal."""
    layout = grid.shared.layout
    return ends_change(grid, eqs.pick(change, layout.f), eqs.pick(change, layout.t))


def parameter_change(grid: NetworkData, tangent: BranchFlow, e: Array) -> Ends:
    """Change of the ends for one of the branch parameters, e (N, 2) in case order."""
    flow = grid.flow
    e_f, e_t = e[flow.f], e[flow.t]
    a, b = _times(tangent.i_base, e_t), _times(tangent.slope, e_f - e_t)
    turn = jnp.stack(_times(tangent.ratio, grid.v_base[flow.f]), 1)
    u = _times(turn, e_f)
    none = jnp.zeros_like(u[0])
    i_re, i_im = (tangent.i_base[:, c] + a[c] + b[c] for c in (0, 1))
    return Ends(i_re, i_im, turn[:, 0] + u[0], turn[:, 1] + u[1], none, none)


def end_voltages(grid: NetworkData) -> Pair:
    """Base voltage of both ends, that of the from end behind the ratio, (L, 2) each."""
    flow, v = grid.flow, grid.v_base
    return jnp.stack(_times(flow.ratio, v[flow.f]), 1), v[flow.t]


def _times(a: Array, x: Array) -> Pair:
    """Complex product of (L, 2) and (L, 2, B) or (L, 2), as two parts."""
    if x.ndim == 3:
        a = a[:, :, None]
    return a[:, 0] * x[:, 0] - a[:, 1] * x[:, 1], a[:, 0] * x[:, 1] + a[:, 1] * x[:, 0]
