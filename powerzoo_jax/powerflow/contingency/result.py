"""Results of outages of a meshed network: a summary of each, and the state after it."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.base import struct
from powerzoo_jax.powerflow.contingency.factors import OutageFactors
from powerzoo_jax.powerflow.contingency.woodbury import Parts, branch_power
from powerzoo_jax.powerflow.meshed import equations as eqs
from powerzoo_jax.powerflow.meshed.layout import MeshedLayout
from powerzoo_jax.powerflow.result import loading_excess, range_excess


@struct.dataclass(kw_only=True)
class OutageResult:
    """Effects of O outages on one state of a network.

    status:       (O,)  int32  `Status` of each outage; ISLANDED rows hold the state before it
    loading:      (O,)  [-]    largest apparent power over rating, both ends, surviving branches with a rating
    worst_branch: (O,)  int32  the branch that has it
    overload:     (O,)  [pu]   sum over the branches of apparent power beyond the rating
    violation:    (O,)  [pu]   sum over the buses of the distance from their voltage band
    v_min, v_max: (O,)  [pu]   lowest and highest voltage
    residual:     (O,)  [pu]   largest power mismatch          iterations:   (O,)  int32
    """

    status: Array
    loading: Array
    worst_branch: Array
    overload: Array
    violation: Array
    v_min: Array
    v_max: Array
    residual: Array
    iterations: Array


class OutageStates(NamedTuple):
    """State after each outage, in the order of the case.

    v_re, v_im:    (O, N)  [pu]  rectangular bus voltages
    p_from, q_from, p_to, q_to:  (O, L)  [pu]  power entering both ends of every branch
    """

    v_re: Array
    v_im: Array
    p_from: Array
    q_from: Array
    p_to: Array
    q_to: Array


def outage_reading(
    outages: OutageFactors, rows: Array, e: Array, rest: Array | None = None
) -> tuple[dict[str, Array], OutageStates]:
    """Report of lanes (B,) of outages `rows` from their deviations (N, 2, B), kept in two parts; differentiable."""
    layout = outages.meshed.layout
    whole, gap = e, _across(layout, e)
    if rest is not None:
        whole, gap = e + rest, gap + _across(layout, rest)
    w = lax.optimization_barrier((1 + whole[:, 0], whole[:, 1]))
    flows = _flows(outages, w, gap, jnp.where(outages.islanding[rows], -1, outages.branch[rows]))
    loading, worst_branch, overload = _loading(flows, outages.rate_pu[:, None])
    v = jnp.sqrt(w[0] * w[0] + w[1] * w[1]) * outages.meshed.core.main.v_mag[:, None]
    low, high = (x[layout.inward][:, None] for x in (outages.v_min, outages.v_max))
    summary = dict(
        loading=loading,
        worst_branch=worst_branch,
        overload=overload,
        violation=jnp.sum(range_excess(v, low, high), 0),
        v_min=jnp.min(v, 0),
        v_max=jnp.max(v, 0),
    )
    # voltages need no more digits than e has: a program that reads them alone does not pay for the rest
    return summary, _states(outages, (1 + e[:, 0], e[:, 1]), flows)


def _flows(outages: OutageFactors, w: Parts, gap: Array, lost: Array) -> tuple[Array, ...]:
    """(p_from, q_from, p_to, q_to) of every branch, (L, B) [pu]; nothing in branches out of service or lost."""
    layout = outages.meshed.layout
    near, far = ((eqs.pick(w[0], at), eqs.pick(w[1], at)) for at in (layout.f, layout.t))
    s_f, s_t = branch_power(near, far, (gap[:, 0], gap[:, 1]), outages.terms)
    mine = jnp.arange(layout.f.shape[0], dtype=jnp.int32)[:, None] == lost[None]
    carries = ~mine & (outages.meshed.branch.in_service > 0)[:, None]
    flows: tuple[Array, ...] = lax.optimization_barrier(tuple(jnp.where(carries, x, 0) for x in (*s_f, *s_t)))
    return flows


def _loading(flows: tuple[Array, ...], rate: Array) -> tuple[Array, Array, Array]:
    """Largest loading, the branch that has it, and the power beyond the ratings (L, 1): (B,) each."""
    p_f, q_f, p_t, q_t = flows
    square = jnp.maximum(p_f * p_f + q_f * q_f, p_t * p_t + q_t * q_t)
    # a root has no derivative at the 0 of a lost branch
    apparent = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
    rated = rate > 0
    loading = lax.optimization_barrier(apparent * jnp.where(rated, 1 / jnp.where(rated, rate, 1), 0))
    highest = jnp.max(loading, 0)
    # not argmax, which XLA does not vectorise on a CPU
    position = lax.broadcasted_iota(jnp.int32, loading.shape, 0)
    worst = jnp.min(jnp.where(loading == highest[None], position, loading.shape[0] - 1), 0)
    return highest, worst, jnp.sum(loading_excess(apparent, rate), 0)


def _across(layout: MeshedLayout, e: Array) -> Array:
    """e_to - e_from of the branches, (L, 2, B)."""
    return eqs.pick(e, layout.t) - eqs.pick(e, layout.f)


def _states(outages: OutageFactors, w: Parts, flows: tuple[Array, ...]) -> OutageStates:
    """Case order, lanes first."""
    base = outages.meshed.v_base
    re, im = (eqs.pick(x, outages.meshed.layout.outward).T for x in w)
    a, b = base[None, :, 0], base[None, :, 1]
    return OutageStates(a * re - b * im, a * im + b * re, *(x.T for x in flows))
