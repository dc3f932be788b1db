"""Power flow of all-PQ feeders: Z-form chord, batched, exact, differentiable.

Textbook symbols: v = e + j f bus voltage, s = p + j q injection, i = conj(s / v) injected current,
D0 = di/dv at the base load, r(v) = i(v) - D0 v, M = (I - Z D0)^-1 Z.
Fixed point v = M r(v) + w, on the buses that inject; the last product maps r to all buses.

Scenarios are rows everywhere, (B, 2a): injections come in and voltages go out without a transpose, and the
constant matrix multiplies from the right.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.powerflow.batching import batched_shell
from powerzoo_jax.powerflow.factors import FeederCore, FeederFactors
from powerzoo_jax.powerflow.implicit import solve_tangent
from powerzoo_jax.powerflow.result import PowerFlowResult, Status
from powerzoo_jax.powerflow.stragglers import Solved, newton_stragglers

MAX_STEPS = 30
TOL = {"float32": 4e-7, "float64": 8e-10}  # [pu] estimate of the voltage error; promised are 1e-6 and 1e-9
STALL = 0.95  # a lane whose mismatch shrinks slower than this per iteration is left to Newton
V_BOUND = 1.5  # [pu] no feeder runs above: turns a current mismatch into a bound on the power mismatch
PACE = (0.02, 0.9)  # contraction assumed at least and at most when the error is estimated from the last change


def solve_feeder(
    factors: FeederFactors, p_pu: Array, q_pu: Array, *, tol: float | None = None, max_steps: int = MAX_STEPS
) -> PowerFlowResult:
    """Solve the power flow of one scenario; vmap it for many (the core is batched).

    v_k = v_slack + sum_j Z_kj conj(s_j / v_j)

    factors:    from `prepare_feeder`; share them (in_axes=None) or map them
    p_pu, q_pu: (N,) [pu] net injections on the case's base power; the slack entry is ignored
    tol:        [pu] voltage error at which a lane stops; None takes 4e-7 (float32), 8e-10 (float64)
    max_steps:  chord iterations before a lane goes to the float64 Newton fallback

    Returns a PowerFlowResult; nothing raises and nothing is NaN: `status` and `residual` tell.
    Differentiable forward and reverse in injections and factors (implicit function theorem).
    """
    p = jnp.take(p_pu, factors.active, mode="fill", fill_value=0)
    q = jnp.take(q_pu, factors.active, mode="fill", fill_value=0)
    stray = jnp.any(factors.idle & ((p_pu != 0) | (q_pu != 0)))
    out = solve_feeder_active(factors, p, q, tol=tol, max_steps=max_steps)
    return dataclasses.replace(out, status=jnp.where(stray, jnp.int32(Status.BAD_INPUT), out.status))


def solve_feeder_active(
    factors: FeederFactors, p_pu: Array, q_pu: Array, *, tol: float | None = None, max_steps: int = MAX_STEPS
) -> PowerFlowResult:
    """`solve_feeder` for callers that hold injections (a,) in the order of `factors.active`: no gather, faster.

    Arguments, result and equation as in `solve_feeder`.
    """
    limit = TOL[p_pu.dtype.name] if tol is None else float(tol)
    r, residual, steps, status = active_state(limit, max_steps)(factors.core, p_pu, q_pu)
    return _expand(factors, r, *_finite(p_pu, q_pu), residual, steps, status)


def _per_row(constant: Array, like: Array) -> Array:
    """A constant (..., a) against values (a,) or (B, a)."""
    return constant[..., None, :] if like.ndim == 2 else constant


def _injected_current(x: Array, p: Array, q: Array) -> tuple[Array, Array]:
    """i = conj(s / v), real and imaginary part."""
    a = p.shape[-1]
    e, f = x[..., :a], x[..., a:]
    g = 1 / (e * e + f * f)
    return (p * e + q * f) * g, (p * f - q * e) * g


def _residual_current(core: FeederCore, x: Array, p: Array, q: Array) -> Array:
    """r(x) = i(x) - D0 v: x (2a,), p and q (a,), or all of them with a first axis B."""
    a = p.shape[-1]
    e, f = x[..., :a], x[..., a:]
    d = _per_row(core.d_base, e)
    re, im = _injected_current(x, p, q)
    return jnp.concatenate([re - (d[0] * e + d[1] * f), im - (d[2] * e + d[3] * f)], axis=-1)


def _affine(matrix: Array, constant: Array, r: Array) -> Array:
    """matrix @ r + constant on the last axis of r (2a,) or (B, 2a).

    r stands on the left, so that scenarios are rows, also under vmap; full precision also where the hardware
    offers less.
    """
    product = lax.dot_general(r, matrix, (((r.ndim - 1,), (1,)), ((), ())), precision=lax.Precision.HIGHEST)
    return product + (constant[None] if r.ndim == 2 and constant.ndim == 1 else constant)


def _voltages(core: FeederCore, r: Array) -> Array:
    """M r + w, the voltages of the active buses."""
    return _affine(core.m, core.w, r)


def _distance(r_new: Array, r: Array) -> Array:
    """|r_new - r| over the buses, Euclidean [pu]: injected current that the iterate leaves unbalanced."""
    change = r_new - r
    return jnp.sqrt(jnp.sum(change * change, axis=-1))


def _iterate(core: FeederCore, p: Array, q: Array, tol: float, max_steps: int) -> tuple[Array, Array, Array, Array]:
    """Run the chord on a batch p, q (B, a) until every lane has stopped: (r (B, 2a), size, steps, settled).

    A lane that stops is frozen, so its value never depends on how long its neighbours take. The first two steps
    are taken by all: only two changes in a row tell how fast a lane contracts.
    """

    def step(r: Array) -> tuple[Array, Array]:
        new = _residual_current(core, _voltages(core, r), p, q)
        return new, _distance(new, r)

    def judge(size: Array, before: Array) -> tuple[Array, Array]:
        pace = size / jnp.maximum(before, jnp.finfo(before.dtype).tiny)
        slow = jnp.clip(pace, *PACE)
        reached = core.gain * size * slow / (1 - slow) <= tol
        return reached, reached | ~(pace < STALL)

    def advance(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        k, r, size, stopped, settled, steps = carry
        r_new, size_new = step(r)
        reached, ended = judge(size_new, size)
        r = jnp.where(stopped[:, None], r, r_new)
        size = jnp.where(stopped, size, size_new)
        settled = jnp.where(stopped, settled, reached)
        steps = jnp.where(stopped, steps, k + 1)
        return k + 1, r, size, stopped | ended, settled, steps

    def unfinished(carry: tuple[Any, ...]) -> Array:
        return (carry[0] < max_steps) & ~jnp.all(carry[3])

    x = jnp.broadcast_to(core.x_base[None], (p.shape[0], core.x_base.shape[0]))
    r, before = step(_residual_current(core, x, p, q))
    r, size = step(r)
    settled, stopped = judge(size, before)
    start = (jnp.int32(2), r, size, stopped, settled, jnp.full(size.shape, 2, jnp.int32))
    _, r, size, _, settled, steps = lax.while_loop(unfinished, advance, start)
    return r, size, steps, settled


def _finite(p: Array, q: Array) -> tuple[Array, Array]:
    """Injections with 0 at buses where either part is not finite: a bad lane must not poison shared gradients."""
    fine = jnp.isfinite(p) & jnp.isfinite(q)
    return jnp.where(fine, p, 0), jnp.where(fine, q, 0)


def _solve_batch(core: FeederCore, p: Array, q: Array, tol: float, max_steps: int) -> Solved:
    """The batched core: p, q (B, a) as the user gave them -> (r (B, 2a), residual, steps, status (B,)).

    A lane with an injection that is not finite never settles (lanes are rows, so it cannot reach the others):
    it is told from the rest where the failures are handled, at no cost to a batch without failures.
    """
    r, size, steps, settled = _iterate(core, p, q, tol, max_steps)
    status = jnp.where(settled, jnp.int32(Status.CONVERGED), jnp.int32(Status.OUT_OF_STEPS))
    # A loop that runs no round without failures, and no cond around it: that would copy every state.
    return newton_stragglers(_Equations(), core, p, q, (r, V_BOUND * size, steps, status))


@functools.lru_cache(maxsize=32)
def active_state(tol: float, max_steps: int) -> Callable[[FeederCore, Array, Array], Solved]:
    """Return the differentiable single-scenario solver (core, p (a,), q (a,)) -> (r (2a,), residual, steps, status)."""
    shell = batched_shell(lambda core, p, q: _solve_batch(core, p, q, tol, max_steps))

    @jax.custom_jvp
    def solve(core: FeederCore, p: Array, q: Array) -> Solved:
        return shell(core, p, q)

    @solve.defjvp
    def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Solved, Any]:
        out = solve(*primals)
        core, (p, q) = primals[0], _finite(*primals[1:])
        x = _voltages(core, out[0])

        def step(core: FeederCore, p: Array, q: Array) -> Array:
            return _affine(core.m, core.w, _residual_current(core, x, p, q))

        _, forcing = jax.jvp(step, (core, p, q), tangents)
        dx = solve_tangent(core.m, _local_slope(core, x, p, q), forcing)
        _, dr = jax.jvp(_residual_current, (core, x, p, q), (tangents[0], dx, *tangents[1:]))
        nothing = (jnp.zeros_like(out[1]), *(np.zeros(v.shape, jax.dtypes.float0) for v in out[2:]))
        return out, (dr, *nothing)

    return solve


def _local_slope(core: FeederCore, x: Array, p: Array, q: Array) -> Array:
    """D(x) - D0 (4, a): derivative of r, which is local to each bus, for one scenario."""
    a = p.shape[0]
    e, f = x[:a], x[a:]
    g = 1 / (e * e + f * f)
    re, im = (p * e + q * f) * g, (p * f - q * e) * g
    slope = jnp.stack([(p - 2 * e * re) * g, (q - 2 * f * re) * g, (-q - 2 * e * im) * g, (p - 2 * f * im) * g])
    return slope - core.d_base


class _Equations:
    """The fixed point in the form that the Newton fallback asks for, one scenario at a time."""

    def start(self, core: FeederCore) -> Array:
        return core.x_base

    def error(self, core: FeederCore, x: Array, p: Array, q: Array) -> Array:
        return x - _voltages(core, _residual_current(core, x, p, q))

    def slope(self, core: FeederCore, x: Array, p: Array, q: Array) -> Array:
        return _local_slope(core, x, p, q)

    def settle(self, core: FeederCore, x: Array, p: Array, q: Array) -> tuple[Array, Array]:
        before = _residual_current(core, x, p, q)
        x = _voltages(core, before)
        r = _residual_current(core, x, p, q)
        fine = jnp.all(jnp.isfinite(r))
        # so much power that r itself overflows: report the base state, the status says what happened
        return jnp.where(fine, r, core.r_base), jnp.where(fine, V_BOUND * _distance(r, before), jnp.max(jnp.abs(p)))


def _active_voltages(factors: FeederFactors, v: Array, r: Array) -> Array:
    """Voltages (2a,) of the active buses: read off v (2N,) where they stand in one run, else one more product."""
    first, a, n = factors.first, factors.n_active, factors.n_bus
    if first < 0:
        return _affine(factors.core.m, factors.core.w, r)
    return jnp.concatenate([v[first : first + a], v[n + first : n + first + a]])


def _expand(
    factors: FeederFactors, r: Array, p: Array, q: Array, residual: Array, steps: Array, status: Array
) -> PowerFlowResult:
    """From the converged r to all buses and branches: one more chord step, then currents from injections.

    Currents are primary: flows and losses follow from them, never from differences of rounded voltages. They are
    sums of i = conj(s / v) itself: i = D0 v + r would cancel to a tenth of its terms far below the base load.
    """
    n, n_branch = factors.n_bus, factors.r_pu.shape[0]
    v = _affine(factors.m_bus, factors.w_bus, r)
    v_from = _affine(factors.m_from, factors.w_from, r)
    i = jnp.concatenate(_injected_current(_active_voltages(factors, v, r), p, q))
    j = _affine(factors.m_flow, jnp.zeros((), i.dtype), i)
    from_re, from_im = v_from[:n_branch], v_from[n_branch:]
    j_re, j_im = j[:n_branch], j[n_branch + 1 : -1]
    square = j_re * j_re + j_im * j_im
    return PowerFlowResult(
        v_re=v[:n],
        v_im=v[n:],
        i_re=j_re,
        i_im=j_im,
        p_from=from_re * j_re + from_im * j_im,
        q_from=from_im * j_re - from_re * j_im,
        p_loss=jnp.sum(factors.r_pu * square),
        q_loss=jnp.sum(factors.x_pu * square),
        p_slack=-factors.v_slack * j[n_branch],
        q_slack=factors.v_slack * j[-1],
        residual=residual,
        iterations=steps,
        status=status,
    )
