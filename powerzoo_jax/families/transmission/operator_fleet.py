"""A transmission grid dispatched by the DC optimum, with devices of any kind that one agent commands."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.ranges import unchecked
from powerzoo_jax.devices import action_table, bus_injection, fleet
from powerzoo_jax.devices.fleet import FleetResult, Layout
from powerzoo_jax.devices.protocol import Exogenous
from powerzoo_jax.envs.constraint import undelivered
from powerzoo_jax.envs.observe import observe
from powerzoo_jax.envs.series import FACTOR, Draw, LoadColumns, current_row
from powerzoo_jax.families.feeder.fields import FleetScene
from powerzoo_jax.families.feeder.types import OfKinds
from powerzoo_jax.families.transmission.flow import Setpoints
from powerzoo_jax.families.transmission.operator import Dispatched, OperatorStep, Setting, TransGridEnv
from powerzoo_jax.families.transmission.operator_types import Electrical, TransGridInfo, TransGridParams, TransGridState

NO_DEVICES, LOAD_ONLY = Layout(action_table(())), LoadColumns()


@struct.dataclass(kw_only=True)
class FleetGridParams(TransGridParams, OfKinds):
    """A grid with its units and devices; a kind of device that it lacks is None. Bank columns as in `LoadColumns`.

    place_bus:   (D, N)  device-bus incidence
    load_ratio:  ()      1: the load of a bus follows the factors of the bank alone
    """

    place_bus: Array
    load_ratio: Array
    flex_p_mw: Array | None = None
    flex_q_mvar: Array | None = None
    flex_shape: Array | None = None
    trip_factor: Array | None = None


@struct.dataclass(kw_only=True)
class FleetGridState(TransGridState, OfKinds):
    """State of an episode with the stacks of the parameters."""


@struct.dataclass(kw_only=True)
class FleetGridInfo(TransGridInfo):
    """Info of a step beside that of a grid without devices: delivered power (D,) [MW]."""

    p_mw: Array


class NetworkAndFleet(NamedTuple):
    """The setting of the network, and what the devices delivered."""

    setting: Setting
    delivered: FleetResult


@dataclass(frozen=True)
class FleetGridEnv(TransGridEnv):
    """One agent with devices on a grid whose units follow the DC optimum of what load the devices leave.

    Observation: line flows, loads and units of the grid, its devices, the clock, the devices' own fields, the time.
    Action (1, U) in [-1, 1], mapped to each device's own space by `layout`.
    Reward term: cost_sum, less the sum of all channels. Channels and ends as in `TransGridEnv`; resource [MW] is what
    the devices were asked for and could not do.

    Example:
        sim = powerzoo_jax.make("atomic_solar")
        state, obs = sim.init(jax.random.key(0))
        state, obs, reward, cost, info = sim.step(state, jnp.ones((1, 1)))
    """

    layout: Layout = NO_DEVICES
    columns: LoadColumns = LOAD_ONLY

    def start(self, key: Array, drawn: Draw, params: FleetGridParams) -> tuple[FleetGridState, Array]:  # type: ignore[override]
        """Start a given episode, devices idle."""
        dtype, dims = params.voll.dtype, self.dims
        state = FleetGridState(
            t=jnp.zeros((), jnp.int32),
            key=key,
            load_row=drawn.load_row,
            closed=jnp.ones(0, bool),
            seen=Electrical(jnp.zeros(dims.branch, dtype), jnp.zeros(dims.unit, dtype)),
            failed=jnp.zeros((), bool),
            **fleet.begin(self.layout, key, drawn.soc, params, self.dt_hours),
        )
        first = self.flow(super().dispatch(state, self._setting(state), params), params)
        state = dataclasses.replace(state, seen=self._electrical(first.solved, params))
        return state, self._fields(state, params)

    def decode(self, action: Array, params: FleetGridParams) -> dict[str, Array]:  # type: ignore[override]
        """(1, U) in [-1, 1] -> own actions of each kind; a NaN entry leaves its unit alone."""
        del params
        return fleet.own_actions(self.layout, action)

    def limit(  # type: ignore[override]
        self, state: FleetGridState, command: dict[str, Array], params: FleetGridParams
    ) -> tuple[FleetGridState, NetworkAndFleet]:
        """Deliver what stores, availability and queues allow."""
        row = current_row(state, params)
        exogenous = Exogenous(row, self.columns, state.t, state.key, self.dt_hours, self.layout, params)
        new, delivered = fleet.deliver(state, command, exogenous)
        return dataclasses.replace(state, **new), NetworkAndFleet(self._setting(state), delivered)

    def dispatch(self, state: FleetGridState, delivery: NetworkAndFleet, params: FleetGridParams) -> Dispatched:  # type: ignore[override]
        """The optimum for the load less what the devices inject."""
        total = current_row(state, params)[FACTOR] * params.full_load_mw
        injected = unchecked(bus_injection)(params.place_bus, delivery.delivered.p_mw)
        net = dataclasses.replace(params, load_share=params.load_share - injected / total)
        return super().dispatch(state, delivery.setting, net)

    def account(  # type: ignore[override]
        self,
        state: FleetGridState,
        devices: FleetGridState,
        delivery: NetworkAndFleet,
        flow: OperatorStep,
        params: FleetGridParams,
    ) -> tuple[FleetGridState, Array, Array, FleetGridInfo]:
        """Cost channels, clock and flags; the reward is less their sum."""
        new, _, cost, info = super().account(state, devices, delivery.setting, flow, params)
        asked = jnp.where(new.failed, 0, undelivered(delivery.delivered.undelivered_mw))
        if "resource" in self.cost_names:
            cost = cost.at[self.cost_names.index("resource")].set(asked)
        terms = -jnp.sum(cost)[None, None]
        fields = {f.name: getattr(info, f.name) for f in dataclasses.fields(info)} | {"terms": terms}
        after: Any = dataclasses.replace(new, **{kind: getattr(devices, kind) for kind in self.layout.kinds})
        return after, self.term_weights[0] * terms[:, 0], cost, FleetGridInfo(**fields, p_mw=delivery.delivered.p_mw)

    def _setting(self, state: TransGridState) -> Setting:
        """No schedule, no switches."""
        setpoints = Setpoints(jnp.zeros(self.dims.unit, state.seen.p_mw.dtype), jnp.zeros((), bool), state.closed)
        return Setting(setpoints, state.closed, jnp.zeros((), jnp.int32))

    def _fields(self, state: TransGridState, params: TransGridParams) -> Array:
        """The observation at `state`, (1, O)."""
        row = current_row(state, params)
        scene = FleetScene(self.dt_hours, params, state, row, self.layout, self.columns, jnp.zeros(1, row.dtype), ())
        return observe(self.fields, scene, 1)
