"""Flexible load: curtailment, and deferral with an overlapping return buffer, over a unit axis."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.numerics import safe_divide
from powerzoo_jax.base.ranges import Count, checks_ranges
from powerzoo_jax.base.spaces import Field
from powerzoo_jax.devices.protocol import (
    TIME,
    DeviceKind,
    EpisodeStart,
    Exogenous,
    PositiveRating,
    SeenUnits,
    SignlessRating,
    UnitAccount,
    columns,
)

PRICE_REF = 100.0  # [$/MWh] that a flexible load compares prices with


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


@checks_ranges("flexible load")
def flexload_params(
    n_unit: Count,
    dtype: Any,
    *,
    curtail_cap_mw: PositiveRating = 10.0,
    shift_cap_mw: PositiveRating = 10.0,
    curtail_usd_per_mwh: SignlessRating = 50.0,
    shift_usd_per_mwh: SignlessRating = 10.0,
    both_usd_per_mwh: SignlessRating = 0.0,
) -> FlexLoadParams:
    """Parameters of `n_unit` flexible loads; each is one value for all, or one per unit.

    Raises ValueError for non-positive caps or negative prices.
    """
    prices = {
        "curtail_usd_per_mwh": curtail_usd_per_mwh,
        "shift_usd_per_mwh": shift_usd_per_mwh,
        "both_usd_per_mwh": both_usd_per_mwh,
    }
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


def _begin(params: FlexLoadParams, start: EpisodeStart) -> FlexLoadState:
    return init(params, start.layout.return_steps)


def _advance(
    params: FlexLoadParams, state: FlexLoadState, own: Array, exogenous: Exogenous
) -> tuple[FlexLoadState, FlexLoadDelivery, Array]:
    ordered = command(params, own)
    level = exogenous.columns.level(exogenous.row, exogenous.task.flex_shape) * exogenous.task.load_ratio
    load_mw, load_mvar = level * exogenous.task.flex_p_mw, level * exogenous.task.flex_q_mvar
    new, out = step(params, state, ordered, exogenous.dt_hours, load_mw, load_mvar)
    return new, out, out.p_mw + out.undelivered_mw


def _power(params: FlexLoadParams, state: FlexLoadState, task: Any) -> tuple[Array, Array]:
    """Reduction of load in the last step; reactive power at the power factor of the bus."""
    del params
    p = state.curtail_mw + state.shift_mw - state.return_mw
    return p, p * safe_divide(task.flex_q_mvar, task.flex_p_mw)


def _reduction(units: SeenUnits) -> Array:
    state, fleet = units.state, units.params
    return (state.curtail_mw + state.shift_mw - state.return_mw) / (fleet.curtail_cap_mw + fleet.shift_cap_mw)


def _fill(units: SeenUnits) -> Array:
    """Energy in the return buffer over what it can hold, (G,)."""
    dt_hours = units.scene.dt_hours
    room = units.params.shift_cap_mw * units.scene.layout.return_steps
    return buffer_mwh(units.state, dt_hours) / (room * dt_hours)


CURTAILED = Field("curtail_norm", "1", 0, 1, lambda units: units.state.curtail_mw / units.params.curtail_cap_mw)
FILL = Field("buffer_fill_ratio", "1", 0, 1, lambda units: units.once(_fill))
NEXT = Field("buffer_energy_norm", "1", 0, 1, lambda units: units.state.due_mw[:, 0] / units.params.shift_cap_mw)
RETURNED = Field("shift_in_norm", "1", 0, 1, lambda units: units.state.return_mw / units.params.shift_cap_mw)
SHIFTED = Field("shift_out_norm", "1", 0, 1, lambda units: units.state.shift_mw / units.params.shift_cap_mw)


def _left_in_buffer(unit: UnitAccount) -> Array:
    return -jnp.where(unit.last, terminal_usd(unit.params, unit.after, unit.dt_hours), 0)


KIND = DeviceKind(
    name="flexload",
    label="flexload",
    actions=ACTIONS,
    idle=IDLE,
    make=flexload_params,
    begin=_begin,
    advance=_advance,
    rating_mw=lambda params: params.curtail_cap_mw + params.shift_cap_mw,
    power=_power,
    grid_fields=(Field("p_norm", "1", -1, 1, _reduction),),
    own_fields=(
        NEXT,
        FILL,
        CURTAILED,
        Field("price_norm", "1", -1, 2, lambda units: units.scene.price[0] / PRICE_REF),
        RETURNED,
        SHIFTED,
        *TIME,
    ),
    unit_state=lambda units: jnp.stack([f.value(units) for f in (CURTAILED, SHIFTED, RETURNED, FILL, NEXT)], -1),
    terms={
        "comfort": lambda unit: -unit.out.comfort_usd,
        "deferral": lambda unit: -unit.out.deferral_usd,
        "terminal_buffer": _left_in_buffer,
    },
    padding=PADDING,
    reactive=True,
)
