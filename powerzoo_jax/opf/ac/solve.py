"""AC optimal power flow: full network equations, apparent power limits, prices of active and reactive power.

    minimise cost   subject to   P_i(v, theta) + load_i - shed_i = units_i,   Q_i(v, theta) + ... likewise,
    |S| <= rate at both ends of a branch, angle limits, boxes of voltages and of active and reactive output

Unserved load keeps the power factor of its bus. A local optimum of a non-convex programme: on the networks of the tests
it is the published one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from powerzoo_jax.opf.ac.ac_core import Given, Report, solve_lane
from powerzoo_jax.opf.ac.factors import AcOpfFactors
from powerzoo_jax.opf.dc.program import Columns, Running, running_units, unit_columns
from powerzoo_jax.opf.dc.solve import VOLL
from powerzoo_jax.opf.offers import Offers
from powerzoo_jax.opf.result import OpfStatus

MAX_STEPS = 100


@struct.dataclass(kw_only=True)
class AcOpfResult:
    """Optimal operating point of one network with its prices and residuals; case order.

    unit_power_mw, unit_reactive_mvar: (G,)
    block_mw:          (G, K)  [MW]         sold of each block, above the minimum output
    v_pu:              (N,)    [pu]
    angle_rad:         (N,)    [rad]
    p_from_mw, q_from_mvar, p_to_mw, q_to_mvar: (L,)  power entering each end of a branch
    shed_mw, shed_mvar: (N,)   unserved load
    lmp:               (N,)    [USD/MWh]    d(objective) / d(active load)
    lmp_reactive:      (N,)    [USD/Mvarh]  d(objective) / d(reactive load)
    line_price_from, line_price_to: (L,) [USD/MVAh]  value of one more MVA of rating, by end, >= 0
    angle_price:       (L,)    [USD/rad h]  of theta_from - theta_to: > 0 at its upper limit, < 0 at its lower one
    p_loss_mw:         ()      [MW]         of all branches
    generation_cost:   ()      [USD/h]      of the offers
    objective:         ()      [USD/h]      with unserved load
    overload_mva:      ()      [MVA]        largest excess over a rating
    primal_residual:   ()      [pu]         largest violation of a balance or limit
    dual_residual:     ()      [-]          of stationarity, relative to the largest price
    gap:               ()      [-]          what complementarity leaves, relative to the objective
    iterations:        ()      int32
    status:            ()      int32        `OpfStatus`
    """

    unit_power_mw: Array
    unit_reactive_mvar: Array
    block_mw: Array
    v_pu: Array
    angle_rad: Array
    p_from_mw: Array
    q_from_mvar: Array
    p_to_mw: Array
    q_to_mvar: Array
    shed_mw: Array
    shed_mvar: Array
    lmp: Array
    lmp_reactive: Array
    line_price_from: Array
    line_price_to: Array
    angle_price: Array
    p_loss_mw: Array
    generation_cost: Array
    objective: Array
    overload_mva: Array
    primal_residual: Array
    dual_residual: Array
    gap: Array
    iterations: Array
    status: Array

    @property
    def optimal(self) -> Array:
        """() bool."""
        return self.status == OpfStatus.OPTIMAL


def ac_opf(
    factors: AcOpfFactors,
    p_load_mw: Array,
    q_load_mvar: Array,
    *,
    offers: Offers | None = None,
    commitment: Array | None = None,
    p_min_mw: Array | None = None,
    p_max_mw: Array | None = None,
    rate_mva: Array | None = None,
    voll: float | Array = VOLL,
    shedding: bool = True,
    max_steps: int = MAX_STEPS,
) -> AcOpfResult:
    """Find the cheapest operating point that the network allows; vmap it for many scenarios.

    factors:            from `prepare_ac_opf`; share them (in_axes=None)
    p_load_mw:          (N,) [MW]
    q_load_mvar:        (N,) [Mvar]
    offers:             what units ask; None takes the true costs of the case
    commitment:         (G,) bool or 0/1: units that run; one that does not gives no reactive power either
    p_min_mw, p_max_mw: (G,) [MW] limits inside those of the case, such as ramp windows
    rate_mva:           (L,) [MVA] ratings instead of those of the factors, 0 = unlimited
    voll:               () [USD/MWh]
    shedding:           False leaves out unserved load: what cannot be served is INFEASIBLE
    max_steps:          interior point steps at most

    Every arithmetic of the solver runs in float64, also in a float32 program. Returns an AcOpfResult; nothing raises
    and nothing is NaN. Differentiable once, forward and reverse, in loads, offers, limits and ratings (implicit
    function theorem). INFEASIBLE is a statement about the neighbourhood of the last point: multipliers that no move
    within reach can satisfy.
    """
    limits = (commitment, p_min_mw, p_max_mw)
    options = offers, limits, rate_mva, jnp.asarray(voll, p_load_mw.dtype)
    fine, p_load, q_load, options = _cleaned(p_load_mw, q_load_mvar, options)
    plan = _plan(factors, p_load, q_load, *options)
    report = solve_lane(factors, plan.given, shedding, max_steps)
    return _result(factors, plan, report, fine)


def _cleaned(p_load: Array, q_load: Array, options: Any) -> tuple[Array, Array, Array, Any]:
    """Whether every input is a number, and the inputs with 0 for those that are not: NaN would spread."""
    finite = [jnp.isfinite(p_load), jnp.isfinite(q_load)]
    leaves, form = jax.tree.flatten(options)
    floats = [jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves]
    good = [~jnp.isnan(leaf) if is_float else jnp.asarray(True) for leaf, is_float in zip(leaves, floats, strict=True)]
    fine = jnp.all(jnp.stack([jnp.all(ok) for ok in finite + good]))
    kept = [
        jnp.where(ok, leaf, 0) if is_float else leaf for ok, leaf, is_float in zip(good, leaves, floats, strict=True)
    ]
    p_load, q_load = (jnp.where(ok, load, 0) for ok, load in zip(finite, (p_load, q_load), strict=True))
    return fine, p_load, q_load, jax.tree.unflatten(form, kept)


class _Plan(NamedTuple):
    given: Given
    units: Running
    offers: Offers
    columns: Columns
    rate: Array
    scale: Array  # [USD/h] of one unit of scaled cost


def _plan(
    factors: AcOpfFactors,
    p_load: Array,
    q_load: Array,
    offers: Offers | None,
    limits: tuple[Array | None, Array | None, Array | None],
    rate_mva: Array | None,
    voll: Array,
) -> _Plan:
    """Scale to per unit and to costs around one."""
    base = factors.base_mva
    offers = factors.offers if offers is None else offers
    units = running_units(factors, offers, *limits)
    columns = unit_columns(factors, offers, units)
    rate = factors.rate_mva if rate_mva is None else rate_mva
    dearest = jnp.max(jnp.abs(columns.price) + columns.slope * columns.hi, initial=0)
    scale = jax.lax.stop_gradient(jnp.maximum(dearest, 1e-3) * base)
    given = Given(
        p_load=p_load / base,
        q_load=q_load / base,
        must_run=units.must_run / base,
        low=columns.lo / base,
        high=columns.hi / base,
        price=columns.price * base / scale,
        slope=columns.slope * base * base / scale,
        unit_on=units.on,
        q_low=factors.q_min_mvar / base,
        q_high=factors.q_max_mvar / base,
        rate=jnp.where(rate > 0, rate / base, jnp.inf),
        shed_price=voll * base / scale,
    )
    return _Plan(given, units, offers, columns, rate, scale)


def _result(factors: AcOpfFactors, plan: _Plan, report: Report, fine: Array) -> AcOpfResult:
    base, offers = factors.base_mva, plan.offers
    price = plan.scale / base
    blocks = (report.p * base).reshape(offers.price.shape)
    status = jnp.round(report.status).astype(jnp.int32)
    running_cost = jnp.sum(plan.units.on * offers.base_cost)
    power = {
        name: getattr(report, name.rsplit("_", 1)[0]) * base
        for name in ("p_from_mw", "q_from_mvar", "p_to_mw", "q_to_mvar", "shed_mw", "p_loss_mw", "overload_mva")
    }
    return AcOpfResult(
        unit_power_mw=plan.units.must_run + jnp.sum(blocks, axis=1),
        unit_reactive_mvar=report.q * base,
        block_mw=blocks,
        v_pu=report.v,
        angle_rad=report.theta,
        shed_mvar=report.shed_q * base,
        lmp=report.lam_p * price,
        lmp_reactive=report.lam_q * price,
        line_price_from=report.mu_from * price,
        line_price_to=report.mu_to * price,
        angle_price=report.mu_angle * plan.scale,
        generation_cost=running_cost + report.cost * plan.scale,
        objective=running_cost + (report.cost + report.shed_cost) * plan.scale,
        primal_residual=report.primal,
        dual_residual=report.dual,
        gap=report.gap,
        iterations=jnp.round(report.steps).astype(jnp.int32),
        status=jnp.where(fine, status, jnp.int32(OpfStatus.BAD_INPUT)),
        **power,
    )
