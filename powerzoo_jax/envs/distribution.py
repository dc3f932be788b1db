"""Balanced distribution feeders with storage: exact power flow in every step, one agent or one per device."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax

from powerzoo_jax.base import Box, Dims, EnvState, Info
from powerzoo_jax.base.numerics import anywhere
from powerzoo_jax.base.tree import where_done
from powerzoo_jax.data.bank import LOAD_FIELDS
from powerzoo_jax.devices import Delivery, StorageParams, StorageState, at_devices, bus_injection, idle, storage
from powerzoo_jax.envs import constraint, objective
from powerzoo_jax.envs.core import EnvParams, GridEnv
from powerzoo_jax.envs.draw import Draw, Starts, draw_episode
from powerzoo_jax.envs.observe import FieldTable, assemble, bounds
from powerzoo_jax.powerflow import PowerFlowResult, Status, solve_feeder_active
from powerzoo_jax.powerflow.limits import COLLAPSE_PU

COSTS = ("voltage_violation", "thermal_overload", "unserved_energy", "resource")
TERMS = ("energy_sales", "degradation", "settlement", "unserved_energy")
FACTOR, SIN, COS, AHEAD_HI, AHEAD_LO = (LOAD_FIELDS.index(name) for name in LOAD_FIELDS)
PRICE, SIGNAL, MEAN_AHEAD = 0, 1, -1  # columns of price_rows; the forecasts stand between SIGNAL and MEAN_AHEAD


@struct.dataclass(kw_only=True)
class SeriesBank:
    """Exogenous series shared by all lanes; columns as in `data.Bank`.

    load_rows:   (R_l, F_l)
    price_rows:  (R_p, F_p)
    """

    load_rows: Array
    price_rows: Array


@struct.dataclass(kw_only=True)
class DistributionParams(EnvParams):
    """One feeder, its devices and where its episodes start.

    storage:       StorageParams (G,)
    place_bus:     (G, N)  device-bus incidence
    place_active:  (G, a)  the same on the buses that inject
    p_load, q_load:(a,)    [pu] nominal load of the buses that inject
    load_ratio:    ()      [-]  scales the load factor of the bank
    load_mw:       ()      [MW] nominal load of the feeder
    voll:          ()      [$/MWh]
    starts:        Starts
    """

    storage: StorageParams
    place_bus: Array
    place_active: Array
    p_load: Array
    q_load: Array
    load_ratio: Array
    load_mw: Array
    voll: Array
    starts: Starts


@struct.dataclass(kw_only=True)
class DistributionState(EnvState):
    """State of an episode.

    storage:    StorageState (G,)
    soc_start:  (G,)  [-]   state of charge at reset, for the settlement
    load_row:   ()    int32 first row of the episode in bank.load_rows
    price_row:  ()    int32 the same in bank.price_rows
    failed:     ()    bool  a power flow has failed: the episode is over
    """

    storage: StorageState
    soc_start: Array
    load_row: Array
    price_row: Array
    failed: Array


@struct.dataclass(kw_only=True)
class DistributionInfo(Info):
    """What a feeder step reports beside the base `Info`; power in MW.

    pf_iterations: () int32       p_slack_mw, q_slack_mvar: () feeder-head exchange
    p_loss_mw: ()                 v_min_pu, v_max_pu: ()     extreme solved voltages
    collapsed: () bool            a solved voltage below 0.5 pu
    price_per_mwh: () [$/MWh]     price of the executed step
    soc, p_mw, command_mw: (G,)   storage after the step, delivered and commanded power
    local_v_pu: (G,)              voltage at the device's bus
    """

    pf_iterations: Array
    p_slack_mw: Array
    q_slack_mvar: Array
    p_loss_mw: Array
    v_min_pu: Array
    v_max_pu: Array
    collapsed: Array
    price_per_mwh: Array
    soc: Array
    p_mw: Array
    command_mw: Array
    local_v_pu: Array


@dataclass(frozen=True)
class DistributionEnv(GridEnv):
    """Storage on a balanced feeder, one agent that commands the whole fleet.

    Observation: the blocks of `fields`. Action (1, G) in [-1, 1], times the rating, positive = discharge.
    Reward terms: energy_sales, degradation, settlement (last step), unserved_energy (failed solve).
    Cost channels: voltage_violation [pu], thermal_overload [MVA], unserved_energy [MWh], resource [MW].
    Termination: the power flow fails or collapses; then the rest of the horizon is settled as a blackout.

    `rated`: some branch of some lane has a rating, else the thermal channel is constant 0 and costs nothing.
    `padded`: some lane is smaller than `dims`, so its observation is masked.
    """

    dims: Dims
    dt_hours: float
    term_weights: tuple[float, ...]
    fields: FieldTable
    rated: bool = False
    padded: bool = False

    def init(self, key: Array, params: DistributionParams) -> tuple[DistributionState, Array]:
        """Draw an episode; the first observation describes the drawn day with devices idle."""
        drawn = draw_episode(key, params.starts, params.storage.soc_low, params.storage.soc_high)
        return self.begin(key, drawn, params)

    def begin(self, key: Array, drawn: Draw, params: DistributionParams) -> tuple[DistributionState, Array]:
        """Start a given episode; `init` with the draw chosen by the caller."""
        devices = storage.init(params.storage, drawn.soc)
        state = DistributionState(
            t=jnp.zeros((), jnp.int32),
            key=key,
            storage=devices,
            soc_start=devices.soc,
            load_row=drawn.load_row,
            price_row=drawn.price_row,
            failed=jnp.zeros((), bool),
        )
        flow = self.flow(self.dispatch(state, idle(devices.p_mw), params), params)
        return state, self._fields(state, flow.v_pu, flow.p_from, flow.q_from, params)

    def opening(self, state: DistributionState, params: DistributionParams) -> tuple[Array, Array, DistributionInfo]:
        """Initial power flow of a started episode, devices idle: (obs (A, O), cost (C,), info); one solve.

        What a host view reports at reset. No step has been executed, so no energy is unserved yet.
        """
        nothing = idle(state.storage.p_mw)
        flow = self.flow(self.dispatch(state, nothing, params), params)
        _, _, cost, info = self.account(state, (state.storage, nothing.p_mw), nothing, flow, params)
        return self.observe(state, state, flow, params), cost.at[COSTS.index("unserved_energy")].set(0), info

    def spaces(self, params: DistributionParams) -> tuple[Box, Box]:
        """Boxes with the agent axis in front."""
        dtype = np.dtype(params.load_ratio.dtype)
        one = np.ones((self.dims.agent, self.dims.act), dtype)
        return bounds(self.fields, self.dims.agent, dtype), Box(-one, one)

    def decode(self, action: Array, params: DistributionParams) -> Array:
        """(1, G) in [-1, 1] -> commanded power (G,) [MW]; a NaN acts as idle."""
        command = jnp.where(params.masks.act & jnp.isfinite(action), jnp.clip(action, -1, 1), 0)
        return command.reshape(-1) * params.storage.power_mw

    def limit(
        self, state: DistributionState, command: Array, params: DistributionParams
    ) -> tuple[tuple[StorageState, Array], Delivery]:
        """Deliver what the state of charge allows."""
        devices, delivery = storage.step(params.storage, state.storage, command, self.dt_hours)
        return (devices, command), delivery

    def dispatch(self, state: DistributionState, delivery: Delivery, params: DistributionParams) -> tuple[Array, Array]:
        """Net injection (a,), (a,) [pu] of the buses that inject at bank row t."""
        row = self._load_row(state, params)
        return self._injection(row, delivery.p_mw, params)

    def flow(self, injection: tuple[Array, Array], params: DistributionParams) -> PowerFlowResult:
        """Exact feeder power flow."""
        return solve_feeder_active(params.factors, *injection)

    def account(
        self,
        state: DistributionState,
        devices: tuple[StorageState, Array],
        delivery: Delivery,
        flow: PowerFlowResult,
        params: DistributionParams,
    ) -> tuple[DistributionState, Array, Array, DistributionInfo]:
        """Money, cost channels, clock and flags of the executed step."""
        store, command = devices
        v = flow.v_pu
        v_low, v_high = self._voltage_range(v, params)
        collapsed = v_low < COLLAPSE_PU
        failed = (flow.status != Status.CONVERGED) | collapsed
        price = params.bank.price_rows[self._price_index(state, params), PRICE]
        blackout = lax.cond(
            anywhere(failed),
            lambda: jnp.where(failed & ~state.failed, self._remaining_mwh(state, params), 0),
            lambda: jnp.zeros_like(price),
        )
        new = dataclasses.replace(state, t=state.t + 1, storage=store, failed=state.failed | failed)
        terms = self._terms(state, store, price, blackout, new.failed, params)
        channels = [
            constraint.voltage_violation(v, params.grid.v_min, params.grid.v_max, failed),
            self._overload(flow, failed, params),
            blackout,
            constraint.undelivered(delivery.undelivered_mw),
        ]
        base = params.grid.base_mva
        info = DistributionInfo(
            terminated=new.failed,
            truncated=(new.t >= params.horizon) & ~new.failed,
            pf_status=flow.status,
            pf_residual=flow.residual,
            legal=jnp.ones((self.dims.agent, self.dims.choice), bool),
            terms=terms.reshape(1, -1),
            pf_iterations=flow.iterations,
            p_slack_mw=flow.p_slack * base,
            q_slack_mvar=flow.q_slack * base,
            p_loss_mw=flow.p_loss * base,
            v_min_pu=v_low,
            v_max_pu=v_high,
            collapsed=collapsed,
            price_per_mwh=price,
            soc=store.soc,
            p_mw=delivery.p_mw,
            command_mw=command,
            local_v_pu=at_devices(params.place_bus, v),
        )
        weights = jnp.asarray(self.term_weights, terms.dtype)
        # the blackout has settled the whole rest of the horizon: nothing after it costs again
        cost = jnp.where(state.failed, 0, jnp.stack(channels))
        return new, jnp.sum(terms * weights).reshape(1), cost, info

    def observe(
        self, state: DistributionState, new: DistributionState, flow: PowerFlowResult, params: DistributionParams
    ) -> Array:
        """What the next action meets; after a failed solve the last valid electrical state."""
        seen = flow.v_pu, flow.p_from, flow.q_from

        def last_valid() -> tuple[Array, Array, Array]:
            row = jnp.maximum(self._load_row(state, params) - 1, state.load_row)
            before = self.flow(self._injection(row, state.storage.p_mw, params), params)
            return where_done(new.failed, (before.v_pu, before.p_from, before.q_from), seen)

        v_pu, p_from, q_from = lax.cond(anywhere(new.failed), last_valid, lambda: seen)
        return self._fields(new, v_pu, p_from, q_from, params)

    def _voltage_range(self, v: Array, params: DistributionParams) -> tuple[Array, Array]:
        """Extreme voltages of the real buses, () each [pu]."""
        if not self.padded:
            return jnp.min(v), jnp.max(v)
        real = params.grid.bus_mask
        return jnp.min(jnp.where(real, v, jnp.inf)), jnp.max(jnp.where(real, v, 0))

    def _overload(self, flow: PowerFlowResult, failed: Array, params: DistributionParams) -> Array:
        if not self.rated:
            return jnp.zeros_like(flow.p_loss)
        grid = params.grid
        return constraint.thermal_overload(flow.p_from, flow.q_from, grid.rate, grid.base_mva, failed)

    def _load_row(self, state: DistributionState, params: DistributionParams) -> Array:
        return state.load_row + jnp.minimum(state.t, params.horizon - 1)

    def _price_index(self, state: DistributionState, params: DistributionParams) -> Array:
        return state.price_row + jnp.minimum(state.t, params.horizon - 1)

    def _injection(self, row: Array, p_mw: Array, params: DistributionParams) -> tuple[Array, Array]:
        factor = params.bank.load_rows[row, FACTOR] * params.load_ratio
        device = bus_injection(params.place_active, p_mw) / params.grid.base_mva
        return device - factor * params.p_load, -factor * params.q_load

    def _remaining_mwh(self, state: DistributionState, params: DistributionParams) -> Array:
        """Scheduled load of this and all remaining steps [MWh]: two gathers from the running sum of the bank."""
        here = params.bank.load_rows[self._load_row(state, params)]
        end = params.bank.load_rows[state.load_row + params.horizon]
        steps = (end[AHEAD_HI] - here[AHEAD_HI]) + (end[AHEAD_LO] - here[AHEAD_LO])
        return steps * params.load_ratio * params.load_mw * self.dt_hours

    def _terms(
        self,
        state: DistributionState,
        store: StorageState,
        price: Array,
        blackout_mwh: Array,
        failed: Array,
        params: DistributionParams,
    ) -> Array:
        """(K,) [$] in the order of TERMS; a blackout replaces everything else."""
        fleet, dt = params.storage, self.dt_hours
        mean = params.bank.price_rows[state.price_row, MEAN_AHEAD]
        left = objective.settlement(
            store.soc, state.soc_start, fleet.capacity_mwh, mean, fleet.eta_charge, fleet.eta_discharge
        )
        earned = jnp.stack(
            [
                jnp.sum(objective.energy_sales(price, store.p_mw, dt)),
                -jnp.sum(storage.degradation_usd(fleet, store.p_mw, dt)),
                jnp.where(state.t + 1 == params.horizon, jnp.sum(jnp.where(fleet.mask, left, 0)), 0),
            ]
        )
        outage = objective.unserved(params.voll, blackout_mwh)
        return jnp.concatenate([jnp.where(failed, 0, earned), outage[None]])

    def _fields(
        self, state: DistributionState, v_pu: Array, p_from: Array, q_from: Array, params: DistributionParams
    ) -> Array:
        """The observation at `state` with the given electrical state, (1, O)."""
        fleet = params.storage
        row = params.bank.load_rows[self._load_row(state, params)]
        price = params.bank.price_rows[self._price_index(state, params)]
        factor = row[FACTOR] * params.load_ratio
        device = bus_injection(params.place_bus, state.storage.p_mw) / params.grid.base_mva
        low, high = storage.power_bounds(fleet, state.storage, self.dt_hours)
        soc, p = state.storage.soc, state.storage.p_mw / fleet.power_mw
        charge, discharge = -low / fleet.power_mw, high / fleet.power_mw
        clock, alphabetical = row[SIN : COS + 1], row[SIN : COS + 1][::-1]
        values = {
            "node_v_norm": (v_pu - 1) * 10,
            "line_p_norm": p_from,
            "line_q_norm": q_from,
            "node_p_load_norm": factor * params.grid.p_load - device,
            "node_q_load_norm": factor * params.grid.q_load,
            "device_grid_obs": jnp.stack([soc, discharge, charge, p], -1).reshape(-1),
            "clock": clock,
            "device_obs": jnp.concatenate(
                [jnp.stack([charge, discharge, p, soc], -1), jnp.broadcast_to(alphabetical, (soc.shape[0], 2))], -1
            ).reshape(-1),
            "time": clock,
            "price": price[SIGNAL:MEAN_AHEAD],
        }
        obs = assemble(self.fields, values).reshape(1, -1)
        return jnp.where(params.masks.obs, obs, 0) if self.padded else obs
