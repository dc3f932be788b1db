"""Device stacks of a feeder in one step: exogenous inputs, deliveries, and the fleet as one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import Purpose, purpose_key
from powerzoo_jax.base.numerics import safe_divide
from powerzoo_jax.base.random import integers
from powerzoo_jax.devices import ActionTable, datacenter, flexload, renewable, storage, vehicle
from powerzoo_jax.devices.datacenter import DataCenterExogenous
from powerzoo_jax.devices.facility import QueueSizes
from powerzoo_jax.devices.fleet import UnitBlock
from powerzoo_jax.devices.trips import jittered, rotated
from powerzoo_jax.envs.feeder.types import DistributionParams, DistributionState
from powerzoo_jax.envs.series import STORING as STORING
from powerzoo_jax.envs.series import soc_range as soc_range
from powerzoo_jax.envs.series import spread

REACTIVE = ("renewable", "flexload")  # kinds that always carry reactive power; storage does when asked to


class Layout(NamedTuple):
    """Static facts of a fleet.

    table:         which entries of an action belong to which units
    per_device:    one agent a unit (action (A, U)), else one agent for all (action (1, width))
    return_steps:  steps over which deferred load returns
    jitter_steps:  most steps that a trip moves in an episode
    sizes:         queues of data centres, None without any
    trip_days:     days by which the trips of an episode are moved at random, all together; 1 = not
    """

    table: ActionTable
    per_device: bool = False
    return_steps: int = 1
    jitter_steps: int = 0
    sizes: QueueSizes | None = None
    trip_days: int = 1

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(block.kind for block in self.table.blocks)

    @property
    def with_q(self) -> bool:
        """True where any unit delivers reactive power."""
        names = {name for block in self.table.blocks for name in block.names}
        return "q_control" in names or not set(REACTIVE).isdisjoint(self.kinds)


class Exogenous(NamedTuple):
    """Exogenous inputs of a step: bank row, load factors () or (Z,), minute of the episode () int32, key."""

    factors: Array
    cf: Array
    minute: Array
    weather: DataCenterExogenous | None
    key: Array


class FleetResult(NamedTuple):
    """Delivery of the fleet in a step, roster order; `reports` are the deliveries of each kind.

    p_mw, command_mw:  (G,)  [MW]
    q_mvar:            (G,)  [MVAr], None where no unit has any
    undelivered_mw:    (G,)  [MW]
    """

    p_mw: Array
    q_mvar: Array | None
    undelivered_mw: Array
    command_mw: Array
    reports: dict[str, Any]


def own_actions(layout: Layout, action: Array) -> dict[str, Array]:
    """Kernel action -> own actions (G_kind, n_kind) of each kind; NaN entries leave their units alone."""
    table = layout.table
    if layout.per_device:
        return table.rows(action)
    flat = action[0]
    return {block.kind: block.own(_entries(block, flat)) for block in table.blocks}


def _entries(block: UnitBlock, flat: Array) -> Array:
    width, first = len(block.names), np.asarray(block.first)
    if np.array_equal(first, first[0] + width * np.arange(len(first))):
        return flat[first[0] : first[0] + width * len(first)].reshape(len(first), width)
    return flat[first[:, None] + np.arange(width)]


def joined(layout: Layout, parts: Mapping[str, Array]) -> Array:
    """Columns of the kinds, (G_kind, ...) each, as one in roster order."""
    blocks = layout.table.blocks
    whole = parts[blocks[0].kind] if len(blocks) == 1 else jnp.concatenate([parts[b.kind] for b in blocks])
    order = layout.table.order
    return whole if order == tuple(range(len(order))) else whole[np.argsort(order)]


def charge_of(states: Mapping[str, Any], like: Array) -> Array:
    """State of charge (S,) of storage, then of vehicles."""
    found = [states[kind].soc for kind in STORING if states.get(kind) is not None]
    if len(found) == 1:
        return found[0]
    return jnp.concatenate([jnp.zeros((0,), like.dtype), *found])


def begin(layout: Layout, key: Array, soc: Array, params: DistributionParams, dt_hours: float) -> dict[str, Any]:
    """States of all stacks at the start of an episode: idle, charged as drawn, with the trips of the day."""
    made: dict[str, Any] = {}
    first = 0
    if params.storage is not None:
        first = params.storage.capacity_mwh.shape[0]
        made["storage"] = storage.init(params.storage, soc[:first])
    if params.renewable is not None:
        made["renewable"] = renewable.init(params.renewable)
    if params.flexload is not None:
        made["flexload"] = flexload.init(params.flexload, layout.return_steps)
    if params.vehicle is not None:
        made["vehicle"] = vehicle.init(params.vehicle, soc[first:], _draw_trips(layout, key, params, dt_hours))
    if params.datacenter is not None:
        assert layout.sizes is not None
        made["datacenter"] = datacenter.init(params.datacenter, layout.sizes)
    return made


def _draw_trips(layout: Layout, key: Array, params: DistributionParams, dt_hours: float) -> Any:
    """Trips of an episode: shifted by whole steps, their energy times a factor of the recorded sessions."""
    assert params.vehicle is not None and params.trip_factor is not None
    trips = params.vehicle.trips
    if layout.trip_days > 1:
        return rotated(purpose_key(key, Purpose.TRIPS), trips, layout.trip_days)
    shift, energy = jax.random.split(purpose_key(key, Purpose.TRIPS))
    at = integers(energy, trips.mask.shape, 0, params.trip_factor.shape[0])
    return jittered(shift, trips, layout.jitter_steps, round(dt_hours * 60), params.trip_factor[at])


def deliver(
    layout: Layout,
    state: DistributionState,
    own: Mapping[str, Array],
    meeting: Exogenous,
    params: DistributionParams,
    dt_hours: float,
) -> tuple[dict[str, Any], FleetResult]:
    """Step every stack: (new states by kind, delivery of the fleet)."""
    if not layout.kinds:
        nothing = jnp.zeros((0,), params.load_ratio.dtype)
        return {}, FleetResult(nothing, None, nothing, nothing, {})
    new: dict[str, Any] = {}
    out: dict[str, Any] = {}
    asked: dict[str, Array] = {}
    for kind in layout.kinds:
        new[kind], out[kind], asked[kind] = STEPS[kind](layout, state, own[kind], meeting, params, dt_hours)
    q = joined(layout, {kind: out[kind].q_mvar for kind in out}) if layout.with_q else None
    return new, FleetResult(
        p_mw=joined(layout, {kind: out[kind].p_mw for kind in out}),
        q_mvar=q,
        undelivered_mw=joined(layout, {kind: out[kind].undelivered_mw for kind in out}),
        command_mw=joined(layout, asked),
        reports=out,
    )


def _storage(
    layout: Layout, state: DistributionState, own: Array, meeting: Exogenous, params: DistributionParams, dt: float
) -> tuple[Any, Any, Array]:
    assert params.storage is not None and state.storage is not None
    p, q = storage.command(params.storage, own)
    return *storage.step(params.storage, state.storage, p, dt, q), p


def _renewable(
    layout: Layout, state: DistributionState, own: Array, meeting: Exogenous, params: DistributionParams, dt: float
) -> tuple[Any, Any, Array]:
    assert params.renewable is not None and state.renewable is not None
    ordered = renewable.command(params.renewable, own)
    new, out = renewable.step(params.renewable, state.renewable, ordered, dt, meeting.cf)
    return new, out, out.p_mw


def _flexload(
    layout: Layout, state: DistributionState, own: Array, meeting: Exogenous, params: DistributionParams, dt: float
) -> tuple[Any, Any, Array]:
    assert params.flexload is not None and state.flexload is not None
    ordered = flexload.command(params.flexload, own)
    load_mw, load_mvar = flexible_load(meeting.factors, params)
    new, out = flexload.step(params.flexload, state.flexload, ordered, dt, load_mw, load_mvar)
    return new, out, out.p_mw + out.undelivered_mw


def _vehicle(
    layout: Layout, state: DistributionState, own: Array, meeting: Exogenous, params: DistributionParams, dt: float
) -> tuple[Any, Any, Array]:
    assert params.vehicle is not None and state.vehicle is not None
    p = vehicle.command(params.vehicle, own)
    return *vehicle.step(params.vehicle, state.vehicle, p, dt, meeting.minute), p


def _datacenter(
    layout: Layout, state: DistributionState, own: Array, meeting: Exogenous, params: DistributionParams, dt: float
) -> tuple[Any, Any, Array]:
    assert params.datacenter is not None and state.datacenter is not None and layout.sizes is not None
    assert meeting.weather is not None
    order = datacenter.command(params.datacenter, own)
    jobs = datacenter.draw_arrivals(meeting.key, params.datacenter, layout.sizes, dt, meeting.minute)
    new, out = datacenter.step(params.datacenter, state.datacenter, order, dt, meeting.minute, jobs, meeting.weather)
    return new, out, out.p_mw


STEPS = {
    "storage": _storage,
    "renewable": _renewable,
    "flexload": _flexload,
    "vehicle": _vehicle,
    "datacenter": _datacenter,
}


def flexible_load(factors: Array, params: DistributionParams) -> tuple[Array, Array]:
    """Scheduled load at the buses of the flexible loads, (F,) [MW] and (F,) [MVAr]."""
    assert params.flex_p_mw is not None and params.flex_q_mvar is not None
    level = spread(factors, params.flex_shape) * params.load_ratio
    return level * params.flex_p_mw, level * params.flex_q_mvar


def power(layout: Layout, state: DistributionState, params: DistributionParams) -> tuple[Array, Array | None]:
    """Power (G,) [MW] and (G,) [MVAr] that the fleet delivered in the last step, in roster order."""
    if not layout.kinds:
        return jnp.zeros((0,), params.load_ratio.dtype), None
    p: dict[str, Array] = {}
    q: dict[str, Array] = {}
    for kind in layout.kinds:
        stack = getattr(state, kind)
        if kind == "flexload":
            assert params.flex_p_mw is not None and params.flex_q_mvar is not None
            p[kind] = stack.curtail_mw + stack.shift_mw - stack.return_mw
            q[kind] = p[kind] * safe_divide(params.flex_q_mvar, params.flex_p_mw)
        elif kind == "datacenter":
            assert params.datacenter is not None
            p[kind] = -(stack.it_mw * (1 + params.datacenter.aux_share) + stack.cool_mw)
        else:
            p[kind] = stack.p_mw
        q.setdefault(kind, stack.q_mvar if hasattr(stack, "q_mvar") else jnp.zeros_like(p[kind]))
    return joined(layout, p), joined(layout, q) if layout.with_q else None
