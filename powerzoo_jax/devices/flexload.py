"""Flexible load: curtailment, and deferral with an overlapping return buffer, over a unit axis."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import struct
from jax import Array

from powerzoo_jax.base.numerics import safe_divide
from powerzoo_jax.devices.protocol import Rating, columns, not_negative, positive


@struct.dataclass(kw_only=True)
class FlexLoadParams:
    """Limits and comfort costs of a fleet of flexible loads.

    curtail_cap_mw, shift_cap_mw:  (G,)  [MW]    most that is shed, and deferred, in one step
    curtail_usd_per_mwh:           (G,)  [$/MWh] comfort lost with shed energy
    shift_usd_per_mwh:             (G,)  [$/MWh] nuisance of deferred energy
    both_usd_per_mwh:              (G,)  [$/MWh] penalty on min(shed, deferred); 0 = none
    mask:                          (G,)  bool
    """

    curtail_cap_mw: Array
    shift_cap_mw: Array
    curtail_usd_per_mwh: Array
    shift_usd_per_mwh: Array
    both_usd_per_mwh: Array
    mask: Array


@struct.dataclass(kw_only=True)
class FlexLoadState:
    """State of a fleet of flexible loads: deferred energy still to return, and the last step.

    due_mw:      (G, H)  [MW]  returning in each of the next H steps
    curtail_mw:  (G,)    [MW]  shed, deferred and returned in the last step
    shift_mw:    (G,)    [MW]
    return_mw:   (G,)    [MW]
    """

    due_mw: Array
    curtail_mw: Array
    shift_mw: Array
    return_mw: Array


class FlexLoadDelivery(NamedTuple):
    """A `protocol.Delivery` and the two parts of its cost, (G,) [$] each."""

    p_mw: Array
    undelivered_mw: Array
    q_mvar: Array
    cost_usd: Array
    comfort_usd: Array
    deferral_usd: Array


PADDING = {"curtail_cap_mw": 1.0, "shift_cap_mw": 1.0}  # an observation divides by them

ACTIONS = (("curtail", 0.0, 1.0), ("defer", 0.0, 1.0))
IDLE = (0.0, 0.0)


def flexload_params(
    n_unit: int,
    dtype: Any,
    *,
    curtail_cap_mw: Rating = 10.0,
    shift_cap_mw: Rating = 10.0,
    curtail_usd_per_mwh: Rating = 50.0,
    shift_usd_per_mwh: Rating = 10.0,
    both_usd_per_mwh: Rating = 0.0,
) -> FlexLoadParams:
    """Parameters of `n_unit` flexible loads; each is one value for all, or one per unit.

    Raises ValueError for non-positive caps or negative prices.
    """
    positive("flexible load", curtail_cap_mw=curtail_cap_mw, shift_cap_mw=shift_cap_mw)
    prices = {
        "curtail_usd_per_mwh": curtail_usd_per_mwh,
        "shift_usd_per_mwh": shift_usd_per_mwh,
        "both_usd_per_mwh": both_usd_per_mwh,
    }
    not_negative("flexible load", **prices)
    made = columns(n_unit, dtype, curtail_cap_mw=curtail_cap_mw, shift_cap_mw=shift_cap_mw, **prices)
    return FlexLoadParams(**made, mask=jnp.ones(n_unit, bool))


def init(params: FlexLoadParams, horizon: int) -> FlexLoadState:
    """Nothing deferred. `horizon` H (static, at least 1) is the number of steps over which a deferral returns."""
    nothing = jnp.zeros_like(params.shift_cap_mw)
    due = jnp.zeros((*nothing.shape, horizon), nothing.dtype)
    return FlexLoadState(due_mw=due, curtail_mw=nothing, shift_mw=nothing, return_mw=nothing)


def command(params: FlexLoadParams, action: Array) -> tuple[Array, Array]:
    """Action (G, 2) in [0, 1] -> (shed (G,), deferred (G,)) [MW], fractions of the caps."""
    return action[:, 0] * params.curtail_cap_mw, action[:, 1] * params.shift_cap_mw


def power_bounds(params: FlexLoadParams, state: FlexLoadState, dt_hours: float, load_mw: Array) -> tuple[Array, Array]:
    """Feasible terminal power of the coming step, (low, high) each (G,) [MW].

    Low is the return that is due, high adds all that may be shed and deferred of the scheduled load (G,).
    """
    del dt_hours
    low = -state.due_mw[:, 0]
    most = jnp.minimum(params.curtail_cap_mw + params.shift_cap_mw, jnp.maximum(load_mw, 0))
    return jnp.where(params.mask, low, 0), jnp.where(params.mask, low + most, 0)


def step(
    params: FlexLoadParams,
    state: FlexLoadState,
    ordered: tuple[Array, Array],
    dt_hours: float,
    load_mw: Array,
    load_mvar: Array,
) -> tuple[FlexLoadState, FlexLoadDelivery]:
    """Shed, defer and take back load; the result is the reduction of load, an injection.

    ordered:             (shed (G,), deferred (G,)) [MW]
    load_mw, load_mvar:  (G,)  scheduled load at the bus; reactive power follows at its power factor
    c = min(c_des, L);  s = min(s_des, L - c);  P = c + s - r_0;  each of the next H steps takes back s / H more.
    """
    shed_des = jnp.where(params.mask, jnp.clip(ordered[0], 0, params.curtail_cap_mw), 0)
    defer_des = jnp.where(params.mask, jnp.clip(ordered[1], 0, params.shift_cap_mw), 0)
    load = jnp.maximum(load_mw, 0)
    shed = jnp.minimum(shed_des, load)
    defer = jnp.minimum(defer_des, load - shed)
    back = state.due_mw[:, 0]
    due = jnp.concatenate([state.due_mw[:, 1:], jnp.zeros_like(state.due_mw[:, :1])], axis=1)
    due = due + (defer / due.shape[1])[:, None]
    p = shed + defer - back
    comfort = params.curtail_usd_per_mwh * shed * dt_hours
    deferral = (params.shift_usd_per_mwh * defer + params.both_usd_per_mwh * jnp.minimum(shed, defer)) * dt_hours
    lost = (shed_des - shed) + (defer_des - defer)
    q = p * safe_divide(load_mvar, load)
    new = FlexLoadState(due_mw=due, curtail_mw=shed, shift_mw=defer, return_mw=back)
    return new, FlexLoadDelivery(p, lost, q, comfort + deferral, comfort, deferral)


def buffer_mwh(state: FlexLoadState, dt_hours: float) -> Array:
    """Energy still to be taken back, (G,) [MWh]."""
    return jnp.sum(state.due_mw, axis=1) * dt_hours


def terminal_usd(params: FlexLoadParams, state: FlexLoadState, dt_hours: float) -> Array:
    """Cost of the buffer left at the horizon, (G,) [$]: it counts as energy shed."""
    return params.curtail_usd_per_mwh * buffer_mwh(state, dt_hours)
