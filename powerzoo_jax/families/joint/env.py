"""Transmission grid with distribution feeders below named buses: the draw of a feeder is the load of its bus.

The feeders are solved first, exactly and with losses; what their heads draw replaces the part of the bus's load that
they stand for. Then the units share the load, and the DC flows follow. Both levels are the environments that exist
alone (`transmission`, `distribution`), put together; any number of equal feeders is one batch of the feeder solver.

Also its types: parameters of a lane, state of an episode, info of a step.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base import EnvState, Info, struct
from powerzoo_jax.base.numerics import matmul
from powerzoo_jax.base.ranges import unchecked
from powerzoo_jax.base.spaces import Field
from powerzoo_jax.base.tree import where_done
from powerzoo_jax.devices import at_devices, storage
from powerzoo_jax.devices.fleet import FleetResult, soc_range
from powerzoo_jax.envs.core import EnvParams, GridEnv, end_flags, unless_settled
from powerzoo_jax.envs.observe import FieldTable, block, field_block, name_values, observe, table
from powerzoo_jax.envs.series import FACTOR, Draw, EpisodeStarts, step_row
from powerzoo_jax.families.feeder.env import DistributionEnv
from powerzoo_jax.families.feeder.types import DistributionInfo, DistributionParams, DistributionState
from powerzoo_jax.families.joint.names import COSTS, SETTLEMENT, TERMS
from powerzoo_jax.families.transmission.units import (
    LOAD_SCALE,
    TIME,
    DispatchOutcome,
    FlowScene,
    Operation,
    TransmissionEnv,
    UnitCommand,
    line_use,
    proportional_output,
)
from powerzoo_jax.families.transmission.units_types import TransmissionFlow, TransmissionParams, TransmissionState
from powerzoo_jax.opf.commit import CommitmentState
from powerzoo_jax.opf.dc.factors import DcOpfFactors
from powerzoo_jax.opf.dc.solve import DcOpfResult, dc_opf
from powerzoo_jax.opf.result import OpfStatus
from powerzoo_jax.powerflow import FeederFactors, PowerFlowResult, Status


@struct.dataclass(kw_only=True)
class JointFactors:
    """Factors that the solvers of both levels prepared.

    flow:      TransmissionFlow of units and of the load as scheduled
    of_bus:    (L, K)  [-]  flow per MW of load at each boundary bus
    feeder:    FeederFactors, the same for all feeders
    market:    DcOpfFactors of the prices
    """

    flow: TransmissionFlow
    of_bus: Array
    feeder: FeederFactors
    market: DcOpfFactors


@struct.dataclass(kw_only=True)
class JointParams(EnvParams):
    """One transmission grid with F equal feeders at K of its buses; `factors` is a JointFactors.

    transmission:   TransmissionParams  without bank and factors, which stand here
    feeder:         DistributionParams  likewise, one for all feeders
    load_share:     (N,)  [-]     of the scheduled load
    boundary_bus:   (K,)  int32   positions of the buses with feeders
    feeder_bus:     (F,)  int32   which of them each feeder hangs from
    feeder_scale:   ()    [-]     alike feeders that each stands for
    agent_bus:      (A,)  int32   bus whose price an agent sees
    voll, price_scale: () [USD/MWh]
    starts:         Starts
    stored_per_mwh: ()    [USD/MWh]  price at which stored energy settles; None where it does not
    """

    transmission: TransmissionParams
    feeder: DistributionParams
    load_share: Array
    boundary_bus: Array
    feeder_bus: Array
    feeder_scale: Array
    agent_bus: Array
    voll: Array
    price_scale: Array
    starts: EpisodeStarts
    stored_per_mwh: Array | None = None


@struct.dataclass(kw_only=True)
class Seen:
    """Last valid state of both networks.

    line_flow_mw:  (L,)            lmp:        (N,)    [USD/MWh]
    exchange_mw:   (K,)            local_v_pu: (F, S)  at the batteries
    """

    line_flow_mw: Array
    lmp: Array
    exchange_mw: Array
    local_v_pu: Array


@struct.dataclass(kw_only=True)
class JointState(EnvState):
    """State of an episode.

    transmission:  TransmissionState
    feeder:        DistributionState, every leaf (F, ...)
    seen:          Seen
    failed:        ()  bool  a feeder has failed: the episode is over
    """

    transmission: TransmissionState
    feeder: DistributionState
    seen: Seen
    failed: Array


@struct.dataclass(kw_only=True)
class JointInfo(Info):
    """Info of a joint step beside the base `Info`; of alike feeders, one.

    unit_power_mw: (G,)     line_flow_mw: (L,)     lmp: (N,) [USD/MWh] of the optimal dispatch of this load
    load_mw: ()             of the transmission grid, feeders as they drew
    exchange_mw: (K,)       drawn by all feeders of a boundary bus
    boundary_mismatch_pu: () largest difference of that and load, losses and batteries below, on the base power above
    unserved_mw, surplus_mw, overload_mw: ()       gen_cost_usd: () [USD] of the step
    p_loss_mw: (F,)         v_min_pu, v_max_pu: () extreme voltages of all feeders
    battery_mw: (F, S)      soc: (F, S) after the step
    collapsed: () bool      opf_status: () int32 `OpfStatus` of the prices
    """

    unit_power_mw: Array
    line_flow_mw: Array
    lmp: Array
    load_mw: Array
    exchange_mw: Array
    boundary_mismatch_pu: Array
    unserved_mw: Array
    surplus_mw: Array
    overload_mw: Array
    gen_cost_usd: Array
    p_loss_mw: Array
    v_min_pu: Array
    v_max_pu: Array
    battery_mw: Array
    soc: Array
    collapsed: Array
    opf_status: Array


@dataclass(frozen=True, eq=False)
class JointScene(FlowScene):
    """Scene of both levels: that of the units above with their number; batteries are the agents behind them."""

    n_unit: int


LOAD = field_block(
    "load",
    (
        Field(
            "total_load_norm",
            "1",
            0,
            LOAD_SCALE,
            lambda scene: (
                scene.row[FACTOR] * (scene.params.transmission.full_load_mw / scene.params.transmission.peak_load_mw)
            ),
        ),
        Field(
            "exchange_norm",
            "1",
            0,
            LOAD_SCALE,
            lambda scene: jnp.sum(scene.state.seen.exchange_mw) / scene.params.transmission.peak_load_mw,
        ),
    ),
)
PRICE = block(
    "price_norm",
    "1",
    -5,
    100,
    lambda scene: (scene.state.seen.lmp[scene.params.agent_bus] / scene.params.price_scale)[:, None],
)
UNIT = (
    Field(
        "unit_idx_norm",
        "1",
        -10,
        10,
        lambda scene: jnp.arange(scene.n_unit, dtype=scene.row.dtype) / scene.n_unit,
    ),
    Field("p_min_norm", "1", -10, 10, lambda scene: scene.params.transmission.rules.p_min_mw / scene.largest_mw),
    Field("p_max_norm", "1", -10, 10, lambda scene: scene.params.transmission.rules.p_max_mw / scene.largest_mw),
    Field("p_prev_norm", "1", -10, 10, lambda scene: scene.state.transmission.units.p_mw / scene.largest_mw),
    Field(
        "mc_norm",
        "1",
        -10,
        10,
        lambda scene: scene.params.transmission.offers.price[:, 0] / scene.params.price_scale,
    ),
    Field("mc_slope", "$/MW^2h", -10, 10, lambda scene: scene.params.transmission.offers.slope[:, 0]),
)
BATTERY = (
    Field("soc", "1", 0, 1, lambda scene: scene.state.feeder.storage.soc),
    Field(
        "p_mw_norm",
        "1",
        -1,
        1,
        lambda scene: scene.state.feeder.storage.p_mw / scene.params.feeder.storage.power_mw[None],
    ),
    Field(
        "power_limit_norm",
        "MW",
        0,
        10,
        lambda scene: scene.params.feeder.storage.power_mw[None] * jnp.ones_like(scene.state.feeder.storage.soc),
    ),
    Field(
        "capacity_norm",
        "MWh",
        0,
        10,
        lambda scene: scene.params.feeder.storage.capacity_mwh[None] * jnp.ones_like(scene.state.feeder.storage.soc),
    ),
    Field("local_bus_voltage", "pu", 0, 2, lambda scene: scene.state.seen.local_v_pu),
)
OF_UNITS = field_block(
    "unit",
    UNIT,
    lambda scene: jnp.pad(
        jnp.stack([own.value(scene) for own in UNIT], axis=-1), ((0, scene.n_agent - scene.n_unit), (0, 0))
    ),
)
OF_BATTERIES = field_block(
    "battery",
    BATTERY,
    lambda scene: jnp.pad(
        jnp.stack([own.value(scene) for own in BATTERY], axis=-1).reshape(-1, len(BATTERY)), ((scene.n_unit, 0), (0, 0))
    ),
)
name_values(__name__)


def joint_fields(n_line: int) -> FieldTable:
    """Observation of an agent: load, its price, use of the lines that are shown, time, its own unit or battery."""
    return table([LOAD, PRICE, line_use(n_line), TIME, OF_UNITS, OF_BATTERIES])


class Orders(NamedTuple):
    """Commands for the units, and for the batteries by kind (F, S, U)."""

    units: UnitCommand
    batteries: dict[str, Array]


class JointDelivery(NamedTuple):
    """Feasible operation of the units, and delivery of the batteries (F, ...)."""

    units: Operation
    batteries: FleetResult


class JointExogenous(NamedTuple):
    """Injections (F, a), (F, a) [pu] of the feeders, the limits of the units, and the load factor () of the step."""

    feeders: tuple[Array, Array]
    units: Operation
    factor: Array


class Boundary(NamedTuple):
    """Exchange at the boundary buses.

    drawn_mw, planned_mw:  (K,)  by the feeders, and what the scheduled load counts for them
    load_mw, rest_mw:      ()    whole load as scheduled, and the part of it that has no feeder
    """

    drawn_mw: Array
    planned_mw: Array
    load_mw: Array
    rest_mw: Array


class Joined(NamedTuple):
    """Solution of both levels."""

    feeders: PowerFlowResult
    boundary: Boundary
    upper: DispatchOutcome
    prices: DcOpfResult


@dataclass(frozen=True)
class JointEnv(GridEnv):
    """Units of a transmission grid and batteries of the feeders below it, one agent each, one shared reward.

    Observation: the blocks of `fields`; a unit reads 0 in the fields of batteries, and the other way round.
    Action (G + F S, 1) in [-1, 1]: units as in `TransmissionEnv`, then the batteries feeder by feeder (+ discharge).
    Reward terms [USD]: generation, surplus, unserved_energy, degradation; what feeders use is in the generation. Where
    `term_names` has it, settlement in the last step: what batteries store against the start, at a fixed price.
    Cost channels: thermal_overload [MW], unserved_energy [MWh]; voltage_violation [pu], resource [MW] of all feeders.
    Termination: the power flow of a feeder fails; the load of both levels to the horizon then is unserved.
    Load that cannot be served is taken from the buses in proportion to what has no feeder, so the exchange stays.

    Example:
        sim = powerzoo_jax.make("joint_trans_dist")
        state, obs = sim.init(jax.random.key(0))
        state, obs, reward, cost, info = sim.step(state, jnp.zeros((8, 1)))
    """

    transmission: TransmissionEnv
    feeder: DistributionEnv
    n_feeder: int
    term_names: tuple[str, ...] = TERMS

    def soc_range(self, params: JointParams) -> tuple[Array, Array]:
        """Ranges (F S,), (F S,) that initial states of charge are drawn from."""
        low, high = (jnp.tile(x, self.n_feeder) for x in soc_range(_lower(params)))
        return low, high

    def start(self, key: Array, drawn: Draw, params: JointParams) -> tuple[JointState, Array]:
        """Start a given episode with states of charge (F S,): batteries idle, units at one place of their range."""
        upper, _ = self.transmission.start(key, drawn, upper_params(params))
        below = _lower(params)
        charged = drawn.soc.reshape(self.n_feeder, -1)
        feeder = jax.vmap(lambda soc: self.feeder.start(key, drawn._replace(soc=soc), below)[0])(charged)
        state = JointState(
            t=upper.t,
            key=key,
            transmission=upper,
            feeder=feeder,
            seen=self._nothing_seen(params),
            failed=jnp.zeros((), bool),
        )
        idle = jnp.zeros((self.dims.agent, self.dims.act), params.voll.dtype)
        _, delivery = self.limit(state, self.decode(idle, params), params)
        meeting = self.dispatch(state, delivery, params)
        flow = self.flow(meeting, params)
        p = proportional_output(params.transmission.rules, flow.upper.load_mw + params.transmission.shunt_mw)
        lines = self._line_flow(p, jnp.zeros_like(flow.upper.load_mw), flow.boundary, params)
        flow = flow._replace(upper=flow.upper._replace(line_flow_mw=lines))
        units = dataclasses.replace(upper.units, p_mw=p)
        seen = self._seen(state, flow, params)
        state = dataclasses.replace(state, transmission=dataclasses.replace(upper, units=units), seen=seen)
        return state, self._fields(state, params)

    def decode(self, action: Array, params: JointParams) -> Orders:
        """Split the action between the levels."""
        n_unit = self.transmission.dims.unit
        below = _lower(params)
        batteries = action[n_unit:].reshape(self.n_feeder, -1, self.dims.act)
        orders = jax.vmap(lambda own: self.feeder.decode(own, below))(batteries)
        return Orders(self.transmission.decode(action[:n_unit], upper_params(params)), orders)

    def limit(
        self, state: JointState, command: Orders, params: JointParams
    ) -> tuple[tuple[CommitmentState, dict[str, Any]], JointDelivery]:
        """Feasible set-points: (new units and batteries, what they deliver)."""
        below = _lower(params)
        units, operation = self.transmission.limit(state.transmission, command.units, upper_params(params))
        devices, delivered = jax.vmap(lambda s, c: self.feeder.limit(s, c, below))(state.feeder, command.batteries)
        return (units, devices), JointDelivery(operation, delivered)

    def dispatch(self, state: JointState, delivery: JointDelivery, params: JointParams) -> JointExogenous:
        """Injections of the feeders; the units wait for what the feeders draw."""
        below = _lower(params)
        injections = jax.vmap(lambda s, d: self.feeder.dispatch(s, d, below))(state.feeder, delivery.batteries)
        return JointExogenous(injections, delivery.units, self._row(state, params)[FACTOR])

    def flow(self, injection: JointExogenous, params: JointParams) -> Joined:
        """Feeders, then the units and lines above them, and the prices at which that load could be served."""
        below, upper = _lower(params), upper_params(params)
        feeders = jax.vmap(lambda p, q: self.feeder.flow((p, q), below, stragglers=True))(*injection.feeders)
        boundary = self._boundary(feeders, injection.factor, params)
        load = boundary.rest_mw + jnp.sum(boundary.drawn_mw)
        allocation = self.transmission.share(load, injection.units, upper)
        lines = self._line_flow(allocation.p_mw, allocation.unserved_mw, boundary, params)
        change = boundary.drawn_mw - boundary.planned_mw
        prices = unchecked(dc_opf)(
            params.factors.market,
            (params.load_share * boundary.load_mw).at[params.boundary_bus].add(change),
            rate_mva=params.transmission.rate_mw,
            voll=params.voll,
            surplus_price=params.transmission.surplus_price,
            vertex=False,
            solver=self.solver,
        )
        return Joined(feeders, boundary, DispatchOutcome(allocation, load, lines), prices)

    def account(
        self,
        state: JointState,
        devices: tuple[CommitmentState, dict[str, Any]],
        delivery: JointDelivery,
        flow: Joined,
        params: JointParams,
    ) -> tuple[JointState, Array, Array, JointInfo]:
        """Money, cost channels, clock and flags of both levels."""
        below, row, dt = _lower(params), self._row(state, params), self.dt_hours
        feeder, _, local, told = jax.vmap(lambda s, new, out, pf: self.feeder.account(s, new, out, pf, below))(
            state.feeder, devices[1], delivery.batteries, flow.feeders
        )
        upper, _, wide, above = self.transmission.account(
            state.transmission, devices[0], delivery.units, flow.upper, upper_params(params)
        )
        failed = jnp.any(feeder.failed)
        blackout = jnp.where(failed & ~state.failed, self._remaining_mwh(state, row, params), 0)
        wear = params.feeder_scale * jnp.sum(told.terms[:, 0, self.feeder.term_names.index("degradation")])
        money = jnp.append(above.terms[0], wear)
        if SETTLEMENT in self.term_names:
            money = jnp.append(money, self._settled(state, feeder, params))
        terms = jnp.where(failed, 0, money)
        terms = terms.at[TERMS.index("unserved_energy")].add(-params.voll * blackout)
        by_name = {name: jnp.sum(local[:, k]) for k, name in enumerate(self.feeder.cost_names)}
        overload = wide[self.transmission.cost_names.index("thermal_overload")]
        by_name["thermal_overload"] += jnp.where(failed, 0, overload)
        by_name["unserved_energy"] = jnp.where(failed, blackout, flow.upper.allocation.unserved_mw * dt)
        cost = unless_settled(state.failed, jnp.stack([by_name[name] for name in COSTS]))
        new = JointState(
            t=upper.t,
            key=state.key,
            transmission=upper,
            feeder=feeder,
            seen=where_done(failed, state.seen, self._seen(state, flow, params)),
            failed=failed,
        )
        n_agent = self.dims.agent
        reward = self.weighted(terms)
        info = JointInfo(
            **end_flags(new.t, params.horizon, failed),
            pf_status=jnp.max(flow.feeders.status),
            pf_residual=jnp.max(flow.feeders.residual),
            legal=jnp.ones((n_agent, 0), bool),
            terms=jnp.broadcast_to(terms[None], (n_agent, len(self.term_names))),
            unit_power_mw=above.unit_power_mw,
            line_flow_mw=above.line_flow_mw,
            lmp=new.seen.lmp,
            load_mw=above.load_mw,
            exchange_mw=flow.boundary.drawn_mw,
            boundary_mismatch_pu=self._mismatch(flow, told, row, params),
            unserved_mw=above.unserved_mw,
            surplus_mw=above.surplus_mw,
            overload_mw=above.overload_mw,
            gen_cost_usd=above.gen_cost_usd,
            p_loss_mw=told.p_loss_mw,
            v_min_pu=jnp.min(told.v_min_pu),
            v_max_pu=jnp.max(told.v_max_pu),
            battery_mw=told.p_mw,
            soc=told.soc,
            collapsed=jnp.any(told.collapsed),
            opf_status=flow.prices.status,
        )
        return new, jnp.broadcast_to(reward, n_agent), cost, info

    def _settled(self, state: JointState, feeder: DistributionState, params: JointParams) -> Array:
        """Value of what all batteries store against the start, due in the last step, () [USD]."""
        price, fleet = params.stored_per_mwh, params.feeder.storage
        assert price is not None

        def of_feeder(soc: Array, start: Array) -> Array:
            return storage.settlement(soc, start, fleet.capacity_mwh, price, fleet.eta_charge, fleet.eta_discharge)

        left = jax.vmap(of_feeder)(feeder.storage.soc, state.feeder.soc_start)
        return jnp.where(state.t + 1 == params.horizon, params.feeder_scale * jnp.sum(left), 0)

    def storage_mw(self, info: JointInfo) -> Array:
        """Terminal power of all batteries in a step, both directions, () [MW]."""
        return jnp.sum(jnp.abs(info.battery_mw))

    def _row(self, state: JointState, params: JointParams) -> Array:
        return step_row(params.bank.load_rows, state.transmission.load_row, state.t, params.horizon)

    def _remaining_mwh(self, state: JointState, row: Array, params: JointParams) -> Array:
        """Scheduled load of this and all remaining steps [MWh]."""
        end = params.bank.load_rows[state.transmission.load_row + params.horizon]
        factors = self.feeder.columns.load_ahead(row, end)
        return factors * params.transmission.full_load_mw * self.dt_hours

    def _hung(self, of_feeder: Array, params: JointParams) -> Array:
        """Sum over the feeders of each boundary bus, those they stand for included, (F,) -> (K,)."""
        count = params.boundary_bus.shape[0]
        return params.feeder_scale * jax.ops.segment_sum(of_feeder, params.feeder_bus, count)

    def _boundary(self, feeders: PowerFlowResult, factor: Array, params: JointParams) -> Boundary:
        planned_each = factor * params.feeder.load_ratio * params.feeder.load_mw
        planned = self._hung(jnp.broadcast_to(planned_each, self.n_feeder), params)
        # a feeder without a solution counts as planned: the episode ends, and its numbers stay finite
        drawn = jnp.where(
            feeders.status == Status.CONVERGED, feeders.p_slack * params.feeder.grid.base_mva, planned_each
        )
        load = factor * params.transmission.full_load_mw
        return Boundary(self._hung(drawn, params), planned, load, load - jnp.sum(planned))

    def _line_flow(self, p_mw: Array, unserved_mw: Array, boundary: Boundary, params: JointParams) -> Array:
        """DC flows (L,) [MW]: the rest of the load goes short, the exchange stays."""
        at, of_bus = params.factors.flow, params.factors.of_bus
        some = boundary.rest_mw > 0
        kept = 1 - jnp.clip(unserved_mw / jnp.where(some, boundary.rest_mw, 1), 0, 1)
        rest = at.of_load * boundary.load_mw - matmul(of_bus, boundary.planned_mw)
        return matmul(at.of_unit, p_mw) - kept * rest - matmul(of_bus, boundary.drawn_mw) + at.fixed

    def _mismatch(self, flow: Joined, told: DistributionInfo, row: Array, params: JointParams) -> Array:
        """Largest difference at a boundary bus of what is drawn above and used below, () [pu of the base above]."""
        load = row[FACTOR] * params.feeder.load_ratio * params.feeder.load_mw
        used = self._hung(load + told.p_loss_mw - jnp.sum(told.p_mw, axis=1), params)
        gap = jnp.max(jnp.abs(flow.boundary.drawn_mw - used)) / params.grid.base_mva
        return jnp.where(jnp.all(flow.feeders.status == Status.CONVERGED), gap, 0)

    def _nothing_seen(self, params: JointParams) -> Seen:
        dtype = params.voll.dtype
        n_battery = params.feeder.place_bus.shape[0]
        return Seen(
            line_flow_mw=jnp.zeros(self.transmission.dims.branch, dtype),
            lmp=jnp.zeros(self.transmission.dims.bus, dtype),
            exchange_mw=jnp.zeros(params.boundary_bus.shape[0], dtype),
            local_v_pu=jnp.ones((self.n_feeder, n_battery), dtype),
        )

    def _seen(self, state: JointState, flow: Joined, params: JointParams) -> Seen:
        optimal = flow.prices.status == OpfStatus.OPTIMAL
        return Seen(
            line_flow_mw=flow.upper.line_flow_mw,
            lmp=jnp.where(optimal, flow.prices.lmp, state.seen.lmp),
            exchange_mw=flow.boundary.drawn_mw,
            local_v_pu=jax.vmap(unchecked(at_devices), in_axes=(None, 0))(params.feeder.place_bus, flow.feeders.v_pu),
        )

    def _fields(self, state: JointState, params: JointParams) -> Array:
        """The observation at `state`, (A, O)."""
        upper, flow_mw = params.transmission, state.seen.line_flow_mw
        use = flow_mw / jnp.where(upper.rate_mw > 0, upper.rate_mw, upper.peak_load_mw)
        largest, per_day = jnp.max(upper.rules.p_max_mw), round(24 / self.dt_hours)
        n_agent, n_unit, row = self.dims.agent, self.transmission.dims.unit, self._row(state, params)
        scene = JointScene(self.dt_hours, params, state, row, use, largest, n_agent, per_day, n_unit)
        return observe(self.fields, scene, n_agent)


def upper_params(params: JointParams) -> Any:
    """Parameters of the transmission grid with what both levels share."""
    return dataclasses.replace(params.transmission, bank=params.bank, factors=params.factors.flow)


def _lower(params: JointParams) -> DistributionParams:
    """Parameters of a feeder with what both levels share."""
    return dataclasses.replace(params.feeder, bank=params.bank, factors=params.factors.feeder)
