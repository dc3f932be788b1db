"""Full Newton of a lane in which a bus has lost what held its magnitude, float64."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.powerflow.meshed import equations as eqs
from powerzoo_jax.powerflow.meshed.factors import MeshedLayout, MeshedNetwork
from powerzoo_jax.powerflow.meshed.newton import LEFT, LONGEST, MAX_STEPS, TOL, newton_step
from powerzoo_jax.powerflow.result import Status


def newton_freed(
    layout: MeshedLayout, net: MeshedNetwork, target: Array, start: Array, bus: Array, lost: Array
) -> tuple[Array, Array, Array, Array]:
    """Solve one lane (N, 2, 1) from its start: e, residual, steps, status (1,), as `meshed_newton.newton` does.

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
