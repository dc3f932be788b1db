"""PV and wind: availability from a series, curtailment and reactive power over a unit axis."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base import struct
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
    columns,
    inverter,
    reactive,
)

PLANT = "plant_cf"  # prefix of the columns of a load table with the capacity factor of each plant


@struct.dataclass(kw_only=True)
class RenewableParams:
    """Ratings of a fleet of PV or wind plants.

    capacity_mw:          (G,)  [MW]    power at full availability
    s_mva:                (G,)  [MVA]   inverter rating
    curtail_usd_per_mwh:  (G,)  [$/MWh] price of curtailed energy
    mask:                 (G,)  bool
    """

    capacity_mw: Array
    s_mva: Array
    curtail_usd_per_mwh: Array
    mask: Array


@struct.dataclass(kw_only=True)
class RenewableState:
    """State of a fleet of PV or wind plants: the delivery of the last step.

    p_mw:    (G,)  [MW]
    q_mvar:  (G,)  [MVAr]
    curtail: (G,)  [-]    share of the available power held back
    """

    p_mw: Array
    q_mvar: Array
    curtail: Array


class RenewableDelivery(NamedTuple):
    """A `protocol.Delivery` and the energy held back, curtailed_mwh (G,) [MWh]. Nothing is ever undelivered."""

    p_mw: Array
    undelivered_mw: Array
    q_mvar: Array
    cost_usd: Array
    curtailed_mwh: Array


PADDING = {"capacity_mw": 1.0, "s_mva": 1.0}  # an observation divides by them

ACTIONS = (("curtailment", -1.0, 1.0), ("q_control", -1.0, 1.0))  # +1 curtails nothing, -1 everything
IDLE = (1.0, 0.0)


@checks_ranges("renewable")
def renewable_params(
    n_unit: Count,
    dtype: Any,
    *,
    capacity_mw: PositiveRating = 50.0,
    s_mva: PositiveRating | None = None,
    curtail_usd_per_mwh: SignlessRating = 0.0,
) -> RenewableParams:
    """Parameters of `n_unit` plants; each rating is one value for all, or one per unit.

    s_mva:  inverter rating, capacity_mw where none is given
    Raises ValueError for non-positive ratings, or an inverter below the capacity.
    """
    s_mva = capacity_mw if s_mva is None else s_mva
    inverter("renewable", s_mva, capacity_mw, "capacity_mw")
    made = columns(n_unit, dtype, capacity_mw=capacity_mw, s_mva=s_mva, curtail_usd_per_mwh=curtail_usd_per_mwh)
    return RenewableParams(**made, mask=jnp.ones(n_unit, bool))


def init(params: RenewableParams) -> RenewableState:
    """State of a fleet that has not delivered anything yet."""
    nothing = jnp.zeros_like(params.capacity_mw)
    return RenewableState(p_mw=nothing, q_mvar=nothing, curtail=nothing)


def command(params: RenewableParams, action: Array) -> tuple[Array, Array]:
    """Normalised action (G, 1 or 2) -> (share curtailed (G,), reactive power (G,) [MVAr])."""
    curtail = (1 - action[:, 0]) / 2
    return curtail, action[:, 1] * params.s_mva if action.shape[1] > 1 else jnp.zeros_like(curtail)


def available(params: RenewableParams, cf: Array) -> Array:
    """Power that sun or wind offers, (G,) [MW]: cf C with the capacity factor cf (G,) kept in [0, 1]."""
    return jnp.where(params.mask, jnp.clip(cf, 0, 1) * params.capacity_mw, 0)


def power_bounds(params: RenewableParams, state: RenewableState, dt_hours: float, cf: Array) -> tuple[Array, Array]:
    """Feasible terminal power of the coming step, (0, cf C) each (G,) [MW]."""
    del state, dt_hours
    high = available(params, cf)
    return jnp.zeros_like(high), high


def step(
    params: RenewableParams, state: RenewableState, ordered: tuple[Array, Array], dt_hours: float, cf: Array
) -> tuple[RenewableState, RenewableDelivery]:
    """Deliver the available power less the share curtailed, and what the inverter has left as reactive power.

    ordered:  (share curtailed (G,) [-], reactive power (G,) [MVAr])
    cf:       (G,)  capacity factor of the step
    P = cf C (1 - curtail);  |Q| <= sqrt(S^2 - P^2)
    """
    del state
    curtail, q_mvar = jnp.clip(ordered[0], 0, 1), ordered[1]
    offered = available(params, cf)
    p = offered * (1 - curtail)
    q = jnp.where(params.mask, reactive(params.s_mva, p, q_mvar), 0)
    curtailed = offered * curtail * dt_hours
    cost = params.curtail_usd_per_mwh * curtailed
    new = RenewableState(p_mw=p, q_mvar=q, curtail=jnp.where(params.mask, curtail, 0))
    return new, RenewableDelivery(p, jnp.zeros_like(p), q, cost, curtailed)


def _begin(params: RenewableParams, start: EpisodeStart) -> RenewableState:
    del start
    return init(params)


def _advance(
    params: RenewableParams, state: RenewableState, own: Array, exogenous: Exogenous
) -> tuple[RenewableState, RenewableDelivery, Array]:
    cf = exogenous.row[exogenous.columns.run(PLANT)]
    new, out = step(params, state, command(params, own), exogenous.dt_hours, cf)
    return new, out, out.p_mw


def _cf(units: SeenUnits) -> Array:
    """Capacity factor of the coming step, (G,)."""
    return units.scene.row[units.scene.columns.run(PLANT)]


def _unit_state(units: SeenUnits) -> Array:
    done, cf = units.state, units.once(_cf)
    parts = [cf, done.p_mw / units.params.capacity_mw, done.q_mvar / units.params.s_mva, done.curtail]
    return jnp.stack([*parts, jnp.zeros_like(cf)], -1)


KIND = DeviceKind(
    name="renewable",
    label="renewable",
    actions=ACTIONS,
    idle=IDLE,
    make=renewable_params,
    begin=_begin,
    advance=_advance,
    rating_mw=lambda params: params.capacity_mw,
    grid_fields=(
        Field("available_cf", "1", -1, 1, lambda units: units.once(_cf)),
        Field("p_norm", "1", -1, 1, lambda units: units.state.p_mw / units.params.capacity_mw),
    ),
    own_fields=(
        Field("available_cf", "1", 0, 1, lambda units: units.once(_cf)),
        Field("p_mw_norm", "1", 0, 1, lambda units: units.state.p_mw / units.params.capacity_mw),
        *TIME,
    ),
    unit_state=_unit_state,
    terms={"curtailed_energy": lambda unit: -jnp.maximum(unit.price_per_mwh, 0) * unit.out.curtailed_mwh},
    padding=PADDING,
    reactive=True,
    q_optional=True,
)
