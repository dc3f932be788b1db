"""Power flow of all-PQ feeders: Z-form chord, batched, exact, differentiable.

Textbook symbols: v = e + j f bus voltage, s = p + j q injection, i = conj(s / v) injected current,
D0 = di/dv at the base load, r(v) = i(v) - D0 v, M = (I - Z D0)^-1 Z.
Fixed point v = M r(v) + w, on the buses that inject; the last product maps r to all buses.
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

from powerzoo_jax.base.numerics import anywhere
from powerzoo_jax.powerflow.batching import batched_shell
from powerzoo_jax.powerflow.factors import FeederCore, FeederFactors
from powerzoo_jax.powerflow.implicit import solve_tangent
from powerzoo_jax.powerflow.result import PowerFlowResult, Status
from powerzoo_jax.powerflow.stragglers import Solved, newton_stragglers

MAX_STEPS = 30
TOL = {"float32": 2e-7, "float64": 1e-11}  # [pu] voltage error; float32 cannot hold less around 1.0
STALL = 0.95  # a lane whose mismatch shrinks slower than this per iteration is left to Newton
PACE = (0.02, 0.9)  # contraction assumed at least and at most when the error is estimated from the last change


def solve_feeder(
    factors: FeederFactors, p_pu: Array, q_pu: Array, *, tol: float | None = None, max_steps: int = MAX_STEPS
) -> PowerFlowResult:
    """Solve the power flow of one scenario; vmap it for many (the core is batched).

    v_k = v_slack + sum_j Z_kj conj(s_j / v_j)

    factors:    from `prepare_feeder`; share them (in_axes=None) or map them
    p_pu, q_pu: (N,) [pu] net injections on the case's base power; the slack entry is ignored
    tol:        [pu] voltage error at which a lane stops; None takes 2e-7 (float32), 1e-11 (float64)
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
    fine = jnp.isfinite(p_pu) & jnp.isfinite(q_pu)
    p, q = jnp.where(fine, p_pu, 0), jnp.where(fine, q_pu, 0)
    x, residual, steps, status = active_state(limit, max_steps)(factors.core, p, q)
    status = jnp.where(jnp.all(fine), status, jnp.int32(Status.BAD_INPUT))
    return _expand(factors, x, p, q, residual, steps, status)


def _residual_current(core: FeederCore, x: Array, p: Array, q: Array) -> Array:
    """r(x) = conj(s / v) - D0 v on the last axis (..., 2a); zero where a lane has left all numbers."""
    a = p.shape[-1]
    e, f = x[..., :a], x[..., a:]
    g = 1 / (e * e + f * f)
    d = core.d_base
    re = (p * e + q * f) * g - (d[0] * e + d[1] * f)
    im = (p * f - q * e) * g - (d[2] * e + d[3] * f)
    return jnp.concatenate([re, im], -1)


def _affine(matrix: Array, constant: Array, r: Array) -> Array:
    """matrix @ r + constant on the last axis of r, in full precision also where the hardware offers less."""
    return lax.dot_general(r, matrix, (((r.ndim - 1,), (1,)), ((), ())), precision=lax.Precision.HIGHEST) + constant


def _mismatch(x: Array, change: Array) -> Array:
    """(B,) [pu]: largest |v conj(r_new - r_old)|, the exact power mismatch of the iterate x."""
    a = x.shape[-1] // 2
    e, f, u, w = x[..., :a], x[..., a:], change[..., :a], change[..., a:]
    return jnp.sqrt(jnp.max((e * e + f * f) * (u * u + w * w), axis=-1))


def _iterate(core: FeederCore, p: Array, q: Array, tol: float, max_steps: int) -> tuple[Array, Array, Array, Array]:
    """Run the chord on a batch (B, a) until every lane has stopped: (x, mismatch, steps, settled).

    A lane that stops is frozen, so its value never depends on how long its neighbours take.
    """
    x = jnp.broadcast_to(core.x_base, (p.shape[0], core.x_base.shape[-1]))
    r = _residual_current(core, x, p, q)
    first = jnp.max(jnp.abs(r - core.r_base), axis=-1)
    zero = jnp.zeros(p.shape[:1], jnp.int32)

    def advance(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        k, x, r, size, stopped, settled, steps, _ = carry
        x_new = _affine(core.m, core.w, r)
        r_new = _residual_current(core, x_new, p, q)
        mismatch = _mismatch(x_new, r_new - r)
        pace = jnp.where(size > 0, mismatch / jnp.where(size > 0, size, 1), 0)
        slow = jnp.clip(pace, *PACE)
        reached = core.gain * mismatch * slow / (1 - slow) <= tol
        stalled = ~(pace < STALL) & (k > 0) & ~reached
        keep = stopped[:, None]
        x, r = jnp.where(keep, x, x_new), jnp.where(keep, r, r_new)
        settled = jnp.where(stopped, settled, reached)
        steps = jnp.where(stopped, steps, k + 1)
        size = jnp.where(stopped, size, mismatch)
        return k + 1, x, r, size, stopped | reached | stalled, settled, steps, mismatch

    def unfinished(carry: tuple[Any, ...]) -> Array:
        return (carry[0] < max_steps) & ~jnp.all(carry[4])

    no = jnp.zeros(p.shape[:1], bool)
    start = (jnp.int32(0), x, r, first, no, no, zero, first)
    _, x, _, size, _, settled, steps, _ = lax.while_loop(unfinished, advance, start)
    return x, size, steps, settled


@functools.lru_cache(maxsize=32)
def active_state(tol: float, max_steps: int) -> Callable[[FeederCore, Array, Array], Solved]:
    """Return the differentiable single-scenario solver (core, p (a,), q (a,)) -> (x (2a,), residual, steps, status)."""

    def core_batch(core: FeederCore, p: Array, q: Array) -> Solved:
        x, residual, steps, settled = _iterate(core, p, q, tol, max_steps)
        status = jnp.where(settled, jnp.int32(Status.CONVERGED), jnp.int32(Status.OUT_OF_STEPS))

        def rescue(operand: Solved) -> Solved:
            return newton_stragglers(_Equations(), core, p, q, operand)

        return lax.cond(anywhere(~settled), rescue, lambda operand: operand, (x, residual, steps, status))

    shell = batched_shell(core_batch)

    @jax.custom_jvp
    def solve(core: FeederCore, p: Array, q: Array) -> Solved:
        return shell(core, p, q)

    @solve.defjvp
    def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Solved, Any]:
        core, p, q = primals
        out = solve(core, p, q)
        x = out[0]

        def step(core: FeederCore, p: Array, q: Array) -> Array:
            return _affine(core.m, core.w, _residual_current(core, x, p, q))

        _, forcing = jax.jvp(step, primals, tangents)
        dx = solve_tangent(core.m, _local_slope(core, x, p, q), forcing)
        nothing = (jnp.zeros_like(out[1]), *(np.zeros(v.shape, jax.dtypes.float0) for v in out[2:]))
        return out, (dx, *nothing)

    return solve


def _local_slope(core: FeederCore, x: Array, p: Array, q: Array) -> Array:
    """D(x) - D0 (4, a): derivative of r, which is local to each bus."""
    a = p.shape[-1]
    e, f = x[..., :a], x[..., a:]
    g = 1 / (e * e + f * f)
    re, im = (p * e + q * f) * g, (p * f - q * e) * g
    slope = jnp.stack(
        [(p - 2 * e * re) * g, (q - 2 * f * re) * g, (-q - 2 * e * im) * g, (p - 2 * f * im) * g], axis=-2
    )
    return slope - core.d_base


class _Equations:
    """The fixed point in the form that the Newton fallback asks for."""

    def error(self, core: FeederCore, x: Array, p: Array, q: Array) -> Array:
        return x - _affine(core.m, core.w, _residual_current(core, x, p, q))

    def slope(self, core: FeederCore, x: Array, p: Array, q: Array) -> Array:
        return _local_slope(core, x, p, q)

    def settle(self, core: FeederCore, x: Array, p: Array, q: Array) -> tuple[Array, Array]:
        r = _residual_current(core, x, p, q)
        x = _affine(core.m, core.w, r)
        return x, _mismatch(x, _residual_current(core, x, p, q) - r)


def _expand(
    factors: FeederFactors, x: Array, p: Array, q: Array, residual: Array, steps: Array, status: Array
) -> PowerFlowResult:
    """From the active voltages to all buses and branches: one more chord step, every quantity linear in its r.

    Currents are primary: flows and losses follow from them, never from differences of rounded voltages.
    """
    n, n_branch = factors.n_bus, factors.r_pu.shape[0]
    r = _residual_current(factors.core, x, p, q)
    v = _affine(factors.m_bus, factors.w_bus, r)
    v_from = _affine(factors.m_from, factors.w_from, r)
    j = _affine(factors.m_flow, factors.w_flow, r)
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
