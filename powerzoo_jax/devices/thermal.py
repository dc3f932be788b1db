"""Diesel and other small generators: cost curve, minimum load, ramps and start cost over a unit axis."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.ranges import Count, Range, checks_ranges
from powerzoo_jax.devices.protocol import PositiveRating, Rating, ShareRating, SignlessRating, columns


@struct.dataclass(kw_only=True)
class ThermalParams:
    """Ratings of a fleet of generators.

    p_max_mw, p_min_mw:     (G,)  [MW]      0 <= p_min <= p_max
    mc_a, mc_b, mc_c:       (G,)  marginal cost a P^2 + b P + c [$/MWh]
    no_load_usd_per_h:      (G,)  [$/h]     paid while the unit runs
    start_usd:              (G,)  [$]
    ramp_mw_per_h:          (G,)  [MW/h]    both directions while running; inf = none
    carbon_kg_per_mwh:      (G,)  [kg/MWh]
    mask:                   (G,)  bool
    """

    p_max_mw: Array
    p_min_mw: Array
    mc_a: Array
    mc_b: Array
    mc_c: Array
    no_load_usd_per_h: Array
    start_usd: Array
    ramp_mw_per_h: Array
    carbon_kg_per_mwh: Array
    mask: Array


@struct.dataclass(kw_only=True)
class ThermalState:
    """Power of the last step, p_mw (G,) [MW]; 0 is off."""

    p_mw: Array


class ThermalDelivery(NamedTuple):
    """A `protocol.Delivery`, the two parts of its cost (G,) [$], and the emission (G,) [kg].

    Only a ramp leaves a command undelivered; rounding to off or to the minimum is what the unit is asked for.
    """

    p_mw: Array
    undelivered_mw: Array
    q_mvar: Array
    cost_usd: Array
    fuel_usd: Array
    start_usd: Array
    carbon_kg: Array


PADDING = {"p_max_mw": 1.0}  # an observation divides by it

ACTIONS = (("power", 0.0, 1.0),)
IDLE = (0.0,)

UNLIMITED = Range(0, open_low=True, infinite=True)

NEAR = 1e-5  # of the rating: a ramp that ends this near to the minimum has reached it, in float32 too


@checks_ranges("generator")
def thermal_params(
    n_unit: Count,
    dtype: Any,
    *,
    p_max_mw: PositiveRating = 0.6,
    p_min_norm: ShareRating = 0.0,
    fuel_usd_per_mwh: SignlessRating = 300.0,
    mc_a: SignlessRating = 0.0,
    mc_b: SignlessRating = 0.0,
    no_load_usd_per_h: SignlessRating = 0.0,
    start_usd: SignlessRating = 0.0,
    ramp_mw_per_h: Annotated[Rating, UNLIMITED] = np.inf,
    carbon_kg_per_mwh: SignlessRating = 800.0,
) -> ThermalParams:
    """Parameters of `n_unit` generators, by default diesel; each is one value for all, or one per unit.

    p_min_norm:        minimum load over p_max_mw
    fuel_usd_per_mwh:  the constant part of the marginal cost
    Raises ValueError for non-positive ratings or ramps, negative costs, p_min_norm outside [0, 1].
    """
    costs = {"mc_a": mc_a, "mc_b": mc_b, "no_load_usd_per_h": no_load_usd_per_h, "start_usd": start_usd}
    made = columns(
        n_unit,
        dtype,
        p_max_mw=p_max_mw,
        p_min_mw=np.asarray(p_min_norm) * np.asarray(p_max_mw),
        mc_c=fuel_usd_per_mwh,
        ramp_mw_per_h=ramp_mw_per_h,
        carbon_kg_per_mwh=carbon_kg_per_mwh,
        **costs,
    )
    return ThermalParams(**made, mask=jnp.ones(n_unit, bool))


def init(params: ThermalParams) -> ThermalState:
    """All units off."""
    return ThermalState(p_mw=jnp.zeros_like(params.p_max_mw))


def command(params: ThermalParams, action: Array) -> Array:
    """Action (G, 1) in [0, 1] -> commanded power (G,) [MW]."""
    return action[:, 0] * params.p_max_mw


def power_bounds(params: ThermalParams, state: ThermalState, dt_hours: float) -> tuple[Array, Array]:
    """Feasible power of the coming step, (low, high) each (G,) [MW]; values between 0 and p_min are rounded.

    A unit that is off or at its minimum starts from, and stops to, p_min at once; the ramp counts from there.
    """
    reach = params.ramp_mw_per_h * dt_hours
    low = state.p_mw - reach
    low = jnp.where(low <= params.p_min_mw + NEAR * params.p_max_mw, 0, low)
    high = jnp.minimum(jnp.maximum(state.p_mw, params.p_min_mw) + reach, params.p_max_mw)
    return jnp.where(params.mask, low, 0), jnp.where(params.mask, high, 0)


def whole(params: ThermalParams, p_mw: Array) -> Array:
    """Round to a power at which the unit can run, (G,) [MW]: off below p_min / 2, else at least p_min."""
    p = jnp.clip(p_mw, 0, params.p_max_mw)
    return jnp.where(p < params.p_min_mw / 2, 0, jnp.maximum(p, params.p_min_mw))


def fuel_usd_per_h(params: ThermalParams, p_mw: Array) -> Array:
    """Running cost, (G,) [$/h]: a/3 P^3 + b/2 P^2 + c P + c0, and 0 for a unit that is off."""
    variable = ((params.mc_a / 3 * p_mw + params.mc_b / 2) * p_mw + params.mc_c) * p_mw
    return jnp.where(p_mw > 0, variable + params.no_load_usd_per_h, 0)


def step(
    params: ThermalParams, state: ThermalState, command_mw: Array, dt_hours: float
) -> tuple[ThermalState, ThermalDelivery]:
    """Run each unit as near to `command_mw` (G,) as minimum load and ramp allow; reactive power is 0."""
    low, high = power_bounds(params, state, dt_hours)
    asked = jnp.where(params.mask, whole(params, command_mw), 0)
    p = jnp.clip(asked, low, high)
    fuel = fuel_usd_per_h(params, p) * dt_hours
    start = jnp.where((p > 0) & (state.p_mw <= 0), params.start_usd, 0)
    carbon = params.carbon_kg_per_mwh * p * dt_hours
    out = ThermalDelivery(p, jnp.abs(asked - p), jnp.zeros_like(p), fuel + start, fuel, start, carbon)
    return ThermalState(p_mw=p), out
