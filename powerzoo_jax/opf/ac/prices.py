"""Parts of a nodal price of the AC-OPF: energy, losses, congestion, and the cost of reactive power and voltage.

At an optimum the Lagrangian is stationary over every angle that moves,

    sum_i lam_i dP_i/dtheta_j  =  - sum_i lam^q_i dQ_i/dtheta_j  -  sum_l mu_l d|S_l|/dtheta_j  -  angle limits,

which is linear in the prices lam. With the price at the reference bus given, each part of the right-hand side has its
part of the multipliers: nothing but the balance itself gives energy and losses, lam_i = lam_ref (1 - what one more MW
at i adds to the losses), limits of branches give congestion, and the rest is paid for reactive power and voltage.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.opf.ac import equations as eqs
from powerzoo_jax.opf.ac.equations import Flow, Unknowns
from powerzoo_jax.opf.ac.factors import AcLayout, AcOpfFactors
from powerzoo_jax.opf.ac.solve import AcOpfResult

LEAST_FLOW = 1e-9  # [pu] keeps the direction of a branch without flow finite


@struct.dataclass(kw_only=True)
class PriceParts:
    """Parts of the active price by bus; their sum is `AcOpfResult.lmp` as far as that is stationary.

    energy:     (N,)  [USD/MWh]  the price at the reference bus of the island
    loss:       (N,)  [USD/MWh]  what the losses of one more MW cost
    congestion: (N,)  [USD/MWh]  from limits of apparent power and of angle differences
    voltage:    (N,)  [USD/MWh]  from the reactive balances, and through them from limits of voltage and reactive output
    scarcity:   (N,)  [USD/MWh]  what the limit of shedding, which moves with the load, takes off it where load is shed
    """

    energy: Array
    loss: Array
    congestion: Array
    voltage: Array
    scarcity: Array


def split_prices(factors: AcOpfFactors, result: AcOpfResult) -> PriceParts:
    """Split the prices of one AC-OPF; vmap it for many.

    One dense system of N equations in float64, whatever the dtype of the result. Of a lane that is not OPTIMAL the
    parts are those of its multipliers, which prove nothing.
    """
    layout, dtype = factors.layout, result.lmp.dtype
    order = layout.plan.bus_at
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda x: x.astype(jnp.float64), result)
        # multipliers of the balances alone: the Lagrangian is stationary with these
        price, reactive = (wide.lmp - wide.lmp_scarcity)[order], (wide.lmp_reactive - wide.lmp_reactive_scarcity)[order]
        none = jnp.zeros((0, 1), jnp.float64)
        x = Unknowns(wide.angle_rad[order][:, None], jnp.log(wide.v_pu[order])[:, None], none, none, none)
        unlimited = jnp.full((layout.f.shape[0], 1), jnp.inf, jnp.float64)
        flow = jax.tree.map(lambda a: a[..., 0], eqs.branch_flow(factors.wide, layout, unlimited, x))
        held = ~layout.free[:, 0]
        limits = _limit_slope(layout, wide, flow, factors.base_mva.astype(jnp.float64))
        right = [
            jnp.where(held, price, 0),
            held.astype(jnp.float64),
            jnp.where(held, 0, -limits),
            jnp.where(held, 0, -_weighted(layout, flow.dq, reactive)),
        ]
        with_losses, delivered, congestion, voltage = jnp.linalg.solve(
            _angle_matrix(layout, flow), jnp.stack(right, 1)
        ).T
        energy = with_losses / delivered
        parts = (energy, with_losses - energy, congestion, voltage)
        energy, loss, congestion, voltage = (part[layout.plan.place].astype(dtype) for part in parts)
    return PriceParts(energy=energy, loss=loss, congestion=congestion, voltage=voltage, scarcity=result.lmp_scarcity)


def _angle_matrix(layout: AcLayout, flow: Flow) -> Array:
    """(N, N): row j holds dP_i / dtheta_j of every bus i, and 1 at j where the angle does not move."""
    n = layout.live.shape[0]
    matrix = jnp.diag((~layout.free[:, 0]).astype(flow.dp.dtype))
    for end, bus in enumerate((layout.f, layout.t)):
        for at, other in enumerate((layout.f, layout.t)):
            matrix = matrix + jnp.zeros((n, n), matrix.dtype).at[other, bus].add(flow.dp[:, end, 2 * at])
    return matrix


def _weighted(layout: AcLayout, slope: Array, weight: Array) -> Array:
    """Sum over buses of weight (N,) times the derivative of what leaves them, by angle, (N,)."""
    ends = weight[layout.f][:, None] * slope[:, 0] + weight[layout.t][:, None] * slope[:, 1]
    return _at_ends(layout, ends[:, 0], ends[:, 2])


def _limit_slope(layout: AcLayout, result: AcOpfResult, flow: Flow, base: Array) -> Array:
    """Derivative by angle (N,) of the branch limits, each times its price."""
    mu = jnp.where(layout.turned[:, None], 1, 0)
    ends = jnp.stack([result.line_price_from, result.line_price_to], 1)
    mu = jnp.take_along_axis(ends, jnp.stack([mu[:, 0], 1 - mu[:, 0]], 1), 1)
    loading = jnp.maximum(jnp.sqrt(jnp.square(flow.p) + jnp.square(flow.q)), LEAST_FLOW)
    along = (mu * flow.p / loading)[:, :, None] * flow.dp + (mu * flow.q / loading)[:, :, None] * flow.dq
    total = jnp.sum(along, 1)
    angle = jnp.where(layout.turned, -result.angle_price, result.angle_price) / base
    moves = layout.free[:, 0].astype(angle.dtype)
    return _at_ends(layout, total[:, 0] + moves[layout.f] * angle, total[:, 2] - moves[layout.t] * angle)


def _at_ends(layout: AcLayout, at_f: Array, at_t: Array) -> Array:
    return jnp.zeros(layout.live.shape[0], at_f.dtype).at[layout.f].add(at_f).at[layout.t].add(at_t)
