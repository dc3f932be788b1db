"""A transmission grid dispatched by the DC optimum, with devices of any kind that one agent commands."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import struct
from jax import Array

from powerzoo_jax.devices import (
    action_table,
    bus_injection,
)
from powerzoo_jax.envs.constraint import undelivered
from powerzoo_jax.envs.feeder import fleet as stacks
from powerzoo_jax.envs.feeder.fleet import Exogenous, FleetResult, Layout
from powerzoo_jax.envs.feeder.observation import Scene, view
from powerzoo_jax.envs.feeder.types import DeviceStacks, DeviceStates
from powerzoo_jax.envs.observe import assemble
from powerzoo_jax.envs.series import FACTOR, PLANT, Draw, LoadColumns, current_row
from powerzoo_jax.envs.transmission.flow import Setpoints
from powerzoo_jax.envs.transmission.operator import Dispatched, OperatorStep, Setting, TransGridEnv
from powerzoo_jax.envs.transmission.operator_types import Electrical, TransGridInfo, TransGridParams, TransGridState

GRID_KEYS = ("line_flow", "load", "unit")
NO_DEVICES, LOAD_ONLY = Layout(action_table(())), LoadColumns()


@struct.dataclass(kw_only=True)
class FleetGridParams(DeviceStacks, TransGridParams):
    """A grid with its units and devices. Bank columns as in `LoadColumns`.

    place_bus:   (D, N)  device-bus incidence
    load_ratio:  ()      1: the load of a bus follows the factors of the bank alone
    """

    place_bus: Array
    load_ratio: Array


@struct.dataclass(kw_only=True)
class FleetGridState(DeviceStates, TransGridState):
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

    def begin(self, key: Array, drawn: Draw, params: FleetGridParams) -> tuple[FleetGridState, Array]:  # type: ignore[override]
        """Start a given episode, devices idle."""
        dtype, dims = params.voll.dtype, self.dims
        made: Any = params
        state = FleetGridState(
            t=jnp.zeros((), jnp.int32),
            key=key,
            load_row=drawn.load_row,
            closed=jnp.ones(0, bool),
            seen=Electrical(jnp.zeros(dims.branch, dtype), jnp.zeros(dims.unit, dtype)),
            failed=jnp.zeros((), bool),
            **stacks.begin(self.layout, key, drawn.soc, made, self.dt_hours),
        )
        met = self.flow(super().dispatch(state, self._setting(state), params), params)
        state = dataclasses.replace(state, seen=self._electrical(met.solved, params))
        return state, self._fields(state, params)

    def decode(self, action: Array, params: FleetGridParams) -> dict[str, Array]:  # type: ignore[override]
        """(1, U) in [-1, 1] -> own actions of each kind; a NaN entry leaves its unit alone."""
        del params
        return stacks.own_actions(self.layout, action)

    def limit(  # type: ignore[override]
        self, state: FleetGridState, command: dict[str, Array], params: FleetGridParams
    ) -> tuple[FleetGridState, NetworkAndFleet]:
        """Deliver what stores, availability and queues allow."""
        row = current_row(state, params)
        meeting = Exogenous(
            factors=row[FACTOR],
            cf=row[self.columns.run(PLANT)],
            minute=state.t * round(self.dt_hours * 60),
            weather=None,
            key=state.key,
        )
        known: Any = state, params
        new, delivered = stacks.deliver(self.layout, known[0], command, meeting, known[1], self.dt_hours)
        return dataclasses.replace(state, **new), NetworkAndFleet(self._setting(state), delivered)

    def dispatch(self, state: FleetGridState, delivery: NetworkAndFleet, params: FleetGridParams) -> Dispatched:  # type: ignore[override]
        """The optimum for the load less what the devices inject."""
        total = current_row(state, params)[FACTOR] * params.full_load_mw
        injected = bus_injection(params.place_bus, delivery.delivered.p_mw)
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
        cost = cost.at[self.cost_names.index("resource")].set(asked)
        terms = -jnp.sum(cost)[None, None]
        fields = {f.name: getattr(info, f.name) for f in dataclasses.fields(info)} | {"terms": terms}
        after: Any = dataclasses.replace(new, **{kind: getattr(devices, kind) for kind in self.layout.kinds})
        return after, self.term_weights[0] * terms[:, 0], cost, FleetGridInfo(**fields, p_mw=delivery.delivered.p_mw)

    def _setting(self, state: TransGridState) -> Setting:
        """No schedule, no switches."""
        wish = Setpoints(jnp.zeros(self.dims.unit, state.seen.p_mw.dtype), jnp.zeros((), bool), state.closed)
        return Setting(wish, state.closed, jnp.zeros((), jnp.int32))

    def _fields(self, state: TransGridState, params: TransGridParams) -> Array:
        """The observation at `state`, (1, O)."""
        row, p_max = current_row(state, params), params.rules.p_max_mw
        known: Any = state, params
        scene = Scene(
            layout=self.layout,
            columns=self.columns,
            dt_hours=self.dt_hours,
            params=known[1],
            state=known[0],
            row=row,
            price=jnp.zeros(1, row.dtype),
            v_pu=row[:0],
            flows=(),
        )
        grid = {
            "line_flow": state.seen.line_use,
            "load": params.load_share * (row[FACTOR] * params.full_load_mw / jnp.sum(p_max)),
            "unit": state.seen.p_mw / jnp.where(p_max > 0, p_max, 1),
        }
        own = view(scene, {block.key for block in self.fields.blocks} - set(GRID_KEYS))
        return assemble(self.fields, grid | own, 1)
