"""Power flow of all-PQ feeders: Z-form chord, batched, exact, differentiable.

Textbook symbols: v = e + j f bus voltage, s = p + j q injection, i = conj(s / v) injected current; the iteration on the
buses that inject is that of `chord`, the last product maps its result to all buses and branches.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, NamedTuple

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base.numerics import matvec
from powerzoo_jax.base.ranges import FINITE, Count, Positive, axes, checks_ranges, unchecked
from powerzoo_jax.base.solver_mode import AUTO, told
from powerzoo_jax.powerflow.chord import MAX_STEPS, chord_state
from powerzoo_jax.powerflow.feeder.factors import FeederFactors
from powerzoo_jax.powerflow.result import PowerFlowResult, Status
from powerzoo_jax.powerflow.rows import TOL, ConstantPower, affine, finite

LAW = ConstantPower()


@checks_ranges("solve_feeder")
def solve_feeder(
    factors: FeederFactors,
    p_pu: Annotated[Array, FINITE, axes("N", told=True)],
    q_pu: Annotated[Array, FINITE, axes("N", told=True)],
    *,
    tol: Positive | None = None,
    max_steps: Count = MAX_STEPS,
    solver: str = AUTO,
) -> PowerFlowResult:
    """Solve the power flow of one scenario; vmap it for many (the core is batched).

    v_k = v_slack u_k + sum_j Z_kj conj(s_j / v_j), u the voltages that 1 pu at the slack makes without injection

    factors:    from `prepare_feeder`; share them (in_axes=None) or map them
    p_pu, q_pu: (N,) [pu] net injections on the case's base power; the slack entry is ignored
    tol:        [pu] voltage error at which a lane stops; None takes 4e-7 (float32), 8e-10 (float64)
    max_steps:  chord iterations before a lane goes to Newton-Raphson
    solver:     "adaptive" iterates until every lane is done; "fixed" takes the iterations that `prepare_feeder` found
                to be enough for its range of loads, and asks once whether lanes are left; "auto" is adaptive on a CPU
                and fixed elsewhere

    Returns a PowerFlowResult; nothing in the program raises and nothing is NaN: `status` and `residual` tell.
    Raises SettingsError for arrays of another length or type, for numbers at hand that are not finite, and ValueError
    for an unknown mode.
    Differentiable forward and reverse in injections and factors (implicit function theorem).
    """
    p = jnp.take(p_pu, factors.active, mode="fill", fill_value=0)
    q = jnp.take(q_pu, factors.active, mode="fill", fill_value=0)
    stray = jnp.any(factors.idle & ((p_pu != 0) | (q_pu != 0)))
    out = unchecked(solve_feeder_active)(factors, p, q, tol=tol, max_steps=max_steps, solver=solver)
    return dataclasses.replace(out, status=jnp.where(stray, jnp.int32(Status.BAD_INPUT), out.status))


@checks_ranges("solve_feeder_active")
def solve_feeder_active(
    factors: FeederFactors,
    p_pu: Annotated[Array, FINITE, axes("a", told=True)],
    q_pu: Annotated[Array, FINITE, axes("a", told=True)],
    *,
    tol: Positive | None = None,
    max_steps: Count = MAX_STEPS,
    flows: bool = True,
    solver: str = AUTO,
    stragglers: bool = True,
) -> PowerFlowResult:
    """`solve_feeder` for callers that hold injections (a,) in the order of `factors.active`: no gather, faster.

    Arguments, result and equation as in `solve_feeder`.
    flows:  False for a program that reads no branch: losses and the slack's power then come from injected currents,
            i^H Z i and -v_slack sum(i), and the product for the currents of branches is left out; a feeder
            with charging, ratios or shunts needs it either way
    stragglers: False for a caller that solves a batch again which has lanes left after the fixed iterations: these
                report OUT_OF_STEPS and the base state; adaptive solves leave none
    """
    limit = TOL[p_pu.dtype.name] if tol is None else float(tol)
    solve = chord_state(LAW, limit, max_steps, told(solver), stragglers)
    r, residual, steps, status = solve(factors.core, p_pu, q_pu)
    return _expand(factors, r, p_pu, q_pu, residual, steps, status, flows)


class _Totals(NamedTuple):
    """Losses and total injected current, () each [pu]."""

    p_loss: Array
    q_loss: Array
    i_re: Array
    i_im: Array


def _totals_of_branches(factors: FeederFactors, j: Array, v_from: Array) -> _Totals:
    """From currents of the branches and, last in each half, the total: j (2L+2,), and v_from (2L,)."""
    n_branch = factors.r_pu.shape[0]
    j_re, j_im = j[:n_branch], j[n_branch + 1 : -1]
    square = j_re * j_re + j_im * j_im
    q_loss = factors.x_pu * square
    if factors.half_charging is not None:
        u_re, u_im = v_from[:n_branch], v_from[n_branch:]
        w_re = u_re - factors.r_pu * j_re + factors.x_pu * j_im
        w_im = u_im - factors.r_pu * j_im - factors.x_pu * j_re
        q_loss = q_loss - factors.half_charging * (u_re * u_re + u_im * u_im + w_re * w_re + w_im * w_im)
    return _Totals(jnp.sum(factors.r_pu * square), jnp.sum(q_loss), j[n_branch], j[-1])


def _totals_of_buses(factors: FeederFactors, i: Array) -> _Totals:
    """From injected currents (2a,) alone: i^H Z i is a sum without cancellation, as losses must be."""
    re, im = jnp.split(i, 2)
    r_re, r_im, x_re, x_im = (matvec(z, part) for z in (factors.r_bus, factors.x_bus) for part in (re, im))
    return _Totals(jnp.sum(re * r_re + im * r_im), jnp.sum(re * x_re + im * x_im), jnp.sum(re), jnp.sum(im))


def _expand(
    factors: FeederFactors,
    r: Array,
    p: Array,
    q: Array,
    residual: Array,
    steps: Array,
    status: Array,
    flows: bool,
) -> PowerFlowResult:
    """From the converged r to all buses and branches: one more chord step, then currents from injections.

    Currents are primary: flows and losses follow from them, never from differences of rounded voltages. They are
    sums of i = conj(s / v) itself: i = D0 v + r would cancel to a tenth of its terms far below the base load.
    """
    p, q = finite(p, q)
    v = affine(factors.m_bus, factors.w_bus, r)
    a, n, n_branch, first = r.shape[0] // 2, v.shape[0] // 2, factors.r_pu.shape[0], factors.first
    v_from = affine(factors.m_from, factors.w_from, r)
    if first < 0:
        e, f = jnp.split(affine(factors.core.m, factors.core.w, r), 2)
    else:  # the active buses stand in one run
        e, f = v[first : first + a], v[n + first : n + first + a]
    i = jnp.concatenate(LAW.current((), e, f, p, q))
    idle = jnp.zeros((), i.dtype) if factors.w_flow is None else factors.w_flow
    j = affine(factors.m_flow, idle, i)
    by_bus = factors.w_flow is None and not flows
    total = _totals_of_buses(factors, i) if by_bus else _totals_of_branches(factors, j, v_from)
    from_re, from_im = v_from[:n_branch], v_from[n_branch:]
    j_re, j_im = j[:n_branch], j[n_branch + 1 : -1]
    q_from = from_im * j_re - from_re * j_im
    if factors.half_charging is not None:
        q_from = q_from - factors.half_charging * (from_re * from_re + from_im * from_im)
    return PowerFlowResult(
        v_re=v[:n],
        v_im=v[n:],
        i_re=j_re,
        i_im=j_im,
        p_from=from_re * j_re + from_im * j_im,
        q_from=q_from,
        p_loss=total.p_loss,
        q_loss=total.q_loss,
        p_slack=-factors.v_slack * total.i_re,
        q_slack=factors.v_slack * total.i_im,
        residual=residual,
        iterations=steps,
        status=status,
    )
