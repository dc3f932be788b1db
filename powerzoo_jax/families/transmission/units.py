"""Transmission grids in DC: units share the load by score or follow a schedule, with or without unit commitment."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base.numerics import matmul
from powerzoo_jax.base.ranges import unchecked
from powerzoo_jax.base.spaces import Field
from powerzoo_jax.envs.constraint import N_MINUS_1, outage_excess
from powerzoo_jax.envs.core import GridEnv, in_range
from powerzoo_jax.envs.observe import FieldBlock, FieldTable, Scene, block, field_block, name_values, observe, table
from powerzoo_jax.envs.series import Draw, current_row
from powerzoo_jax.families.transmission.names import RESERVE, SWITCHING_TERMS, TERMS
from powerzoo_jax.families.transmission.units_types import TransmissionInfo, TransmissionParams, TransmissionState
from powerzoo_jax.opf.allocate import Allocation, allocate_by_weight, balance_by_slack, score_weights
from powerzoo_jax.opf.commit import (
    RESERVE_SHARE,
    CommitmentRules,
    CommitmentState,
    advance_commitment,
    initial_commitment,
    legal_commitment,
    no_load_cost,
    output_window,
    project_commitment,
    reserve_shortfall,
    switching_cost,
)
from powerzoo_jax.opf.dispatch import economic_dispatch
from powerzoo_jax.opf.offers import cost_of
from powerzoo_jax.powerflow import Status

LOAD_SCALE = 5.0  # upper bound of loads over the peak
PRICE_SCALE = 100.0  # [USD/MWh] that observed marginal costs are relative to


@dataclass(frozen=True, eq=False)
class FlowScene(Scene):
    """Scene of units on a network; loads in `row` of units without feeders are over the peak.

    line_use:    (L,)  [-]  flows over the ratings, over the peak load where a line has none
    largest_mw:  ()         rating of the largest unit
    n_agent, per_day:       agents, and steps of a day
    """

    line_use: Array
    largest_mw: Array
    n_agent: int
    per_day: int


def _of_units(key: str, *fields: Field) -> FieldBlock:
    """Fields of every unit, (A, k); one agent for all sees those of the first unit."""
    return field_block(
        key, fields, lambda scene: jnp.stack([own.value(scene) for own in fields], axis=-1)[: scene.n_agent]
    )


UNIT = _of_units(
    "unit",
    Field(
        "unit_idx_norm",
        "1",
        0,
        1,
        lambda scene: jnp.arange(len(scene.params.slack), dtype=scene.row.dtype) / len(scene.params.slack),
    ),
    Field("p_min_norm", "1", 0, 1, lambda scene: scene.params.rules.p_min_mw / scene.largest_mw),
    Field("p_max_norm", "1", 0, 1, lambda scene: scene.params.rules.p_max_mw / scene.largest_mw),
)
CURVE = _of_units(  # marginal cost a p^2 + b p + c; a is 0, for costs are quadratic at most
    "cost_curve",
    Field("mc_a", "$/MW^3h", -10, 10, lambda scene: jnp.zeros_like(scene.params.slack, scene.row.dtype)),
    Field("mc_b_norm", "$/MW^2h", -10, 10, lambda scene: scene.params.offers.slope[:, 0]),
    Field(
        "mc_c_norm",
        f"{PRICE_SCALE:g} $/MWh",
        -10,
        10,
        lambda scene: (
            (scene.params.offers.price[:, 0] - scene.params.offers.slope[:, 0] * scene.params.offers.base_mw)
            / PRICE_SCALE
        ),
    ),
)
TOTAL_LOAD = block("total_load_norm", "1", 0, LOAD_SCALE, lambda scene: scene.row[:1])
BUS_LOAD = block(
    "bus_load_norm",
    "1",
    0,
    LOAD_SCALE,
    lambda scene: (scene.params.unit_share * scene.row[0])[: scene.n_agent, None],
)
LINE_USE = FieldBlock("line_use", (), -5, 5, "1", lambda scene: scene.line_use)
ADJACENT_USE = FieldBlock(
    "adjacent_use", (), -5, 5, "1", lambda scene: (scene.params.adjacent * scene.line_use[None, :])[: scene.n_agent]
)
TIME = field_block(
    "time",
    (
        Field(
            "time_of_day",
            "day",
            0,
            1,
            lambda scene: (scene.state.t % scene.per_day).astype(scene.row.dtype) / scene.per_day,
        ),
        Field(
            "episode_progress",
            "1",
            0,
            1,
            lambda scene: scene.state.t.astype(scene.row.dtype) / scene.params.horizon.astype(scene.row.dtype),
        ),
    ),
)
FORECAST = FieldBlock("forecast", (), 0, LOAD_SCALE, "1", lambda scene: scene.row[1:])
COMMITMENT = FieldBlock("commitment", (), 0, 1, "1", lambda scene: scene.state.units.on.astype(scene.row.dtype))
name_values(__name__)


def line_use(n_line: int) -> FieldBlock:
    """Use of every line of the network."""
    return LINE_USE.named(f"line_flow_util_{i}" for i in range(n_line))


def unit_fields(n_line: int, n_unit: int, *, local: bool, n_forecast: int, commitment: bool) -> FieldTable:
    """Observation of a unit, or of one agent for all units.

    local:       show the load of the unit's bus and the lines that touch it, in place of all load and lines
    n_forecast:  steps of load forecast
    commitment:  show which units run
    """
    lines = line_use(n_line)
    adjacent = ADJACENT_USE.named(f"adjacent_{name}" for name in lines.names)
    return table(
        [
            *((BUS_LOAD, adjacent) if local else (TOTAL_LOAD, lines)),
            TIME,
            UNIT,
            CURVE,
            FORECAST.named(f"load_forecast_t+{k}" for k in range(1, n_forecast + 1)),
            COMMITMENT.named(f"commitment_{i}" for i in range(n_unit if commitment else 0)),
        ]
    )


class UnitCommand(NamedTuple):
    """Commands of the agents for the units (G,): place in the range [0, 1], and whether to run."""

    place: Array
    intent: Array


class Operation(NamedTuple):
    """Operation of the units (G,): which run, between which limits, and how much is asked of each."""

    on: Array
    overridden: Array
    low_mw: Array
    high_mw: Array
    place: Array


def proportional_output(rules: CommitmentRules, load_mw: Array) -> Array:
    """Output (G,) [MW] of all units at the same place of their range, such that they serve a load () [MW]."""
    low, high = (jnp.where(rules.available, x, 0) for x in (rules.p_min_mw, rules.p_max_mw))
    room = jnp.sum(high - low)
    return low + (high - low) * jnp.clip((load_mw - jnp.sum(low)) / jnp.where(room > 0, room, 1), 0, 1)


def reserve_share(params: TransmissionParams) -> float | Array:
    """Share of the load [-] that running units must be able to deliver beyond it."""
    return RESERVE_SHARE if params.reserve_share is None else params.reserve_share


class DispatchOutcome(NamedTuple):
    """Step of the network: allocation, load () and flows (L,) [MW], and what the rules overrode."""

    allocation: Allocation
    load_mw: Array
    line_flow_mw: Array


@dataclass(frozen=True)
class TransmissionEnv(GridEnv):
    """Units of a DC network, one agent each or one agent for all.

    Observation: the blocks of `fields`. Action (A, U) in [-1, 1]. One agent a unit: U = 1 score or place, with
    commitment U = 2, the second entry >= 0 is on. One agent for all: (1, 2 G), first the intents (> 0 is on), then
    the scores.
    Scores share what is left above the lower limits (see `opf.allocate`); a schedule ("direct") maps -1 to the lower
    and 1 to the upper limit of the unit's window, and the slack units cover what it misses.
    Reward terms [USD]: generation, surplus, unserved_energy; with commitment no_load, startup, shutdown as well.
    Cost channels: thermal_overload [MW], voltage_violation (0), power_balance [MW], unserved_energy [MWh], resource
    (0); with commitment reserve_shortfall [MW]; where asked for n_minus_1 [MW], see `security.outage_excess`. The
    episode ends at the horizon only.

    Example:
        sim = powerzoo_jax.make("marl_opf")
        state, obs = sim.init(jax.random.key(0))
        state, obs, reward, cost, info = sim.step(state, jnp.zeros((5, 1)))
    """

    cost_names: tuple[str, ...]
    commitment: bool = False
    schedule: bool = False

    @property
    def single_agent(self) -> bool:
        return self.dims.agent == 1 and self.dims.unit > 1

    def start(self, key: Array, drawn: Draw, params: TransmissionParams) -> tuple[TransmissionState, Array]:
        """Start a given episode: all units on, at their share of the first load or at its economic dispatch."""
        load = params.bank.load_rows[drawn.load_row, 0] * params.full_load_mw + params.shunt_mw
        rules = params.rules
        if self.commitment:
            low, high = (jnp.where(rules.available, x, 0) for x in (rules.p_min_mw, rules.p_max_mw))
            running = rules.available.astype(load.dtype)
            p = unchecked(economic_dispatch)(params.offers, load, low, high, commitment=running).unit_power_mw
        else:
            p = proportional_output(rules, load)
        units = unchecked(initial_commitment)(rules, p)
        state = TransmissionState(t=jnp.zeros((), jnp.int32), key=key, units=units, load_row=drawn.load_row)
        return state, self._fields(state, self._line_flow(units.p_mw, load - params.shunt_mw, params), params)

    def decode(self, action: Array, params: TransmissionParams) -> UnitCommand:
        """(A, U) in [-1, 1] -> command for each unit; a NaN counts as 0."""
        n_unit = self.dims.unit
        value = in_range(action, params.masks.act)
        if self.single_agent:
            return UnitCommand(0.5 * (value[0, n_unit:] + 1), value[0, :n_unit] > 0)
        intent = value[:, 1] >= 0 if self.commitment else jnp.ones(n_unit, bool)
        return UnitCommand(0.5 * (value[:, 0] + 1), intent)

    def limit(
        self, state: TransmissionState, command: UnitCommand, params: TransmissionParams
    ) -> tuple[CommitmentState, Operation]:
        """Commitment of the units, and the limits between which they run."""
        rules = params.rules
        if self.commitment:
            on, overridden = unchecked(project_commitment)(rules, state.units, command.intent & rules.available)
            low, high = unchecked(output_window)(rules, state.units, on)
        else:
            on, overridden = rules.available, jnp.zeros(command.intent.shape, bool)
            low, high = jnp.where(on, rules.p_min_mw, 0), jnp.where(on, rules.p_max_mw, 0)
        return state.units, Operation(on, overridden, low, high, command.place)

    def dispatch(
        self, state: TransmissionState, delivery: Operation, params: TransmissionParams
    ) -> tuple[Allocation, Array]:
        """Share the load of row t among the units; shunts take their part first."""
        load = self._load(state, params)
        return self.share(load, delivery, params), load

    def share(self, load_mw: Array, delivery: Operation, params: TransmissionParams) -> Allocation:
        """Output of the units for a load () [MW], by score or by schedule."""
        low, high = delivery.low_mw, delivery.high_mw
        need = load_mw + params.shunt_mw
        if self.schedule:
            planned = low + delivery.place * (high - low)
            return unchecked(balance_by_slack)(planned, low, high, params.slack, need)
        return unchecked(allocate_by_weight)(unchecked(score_weights)(delivery.place), low, high, need)

    def flow(self, injection: tuple[Allocation, Array], params: TransmissionParams) -> DispatchOutcome:
        """DC flows; load that is not served leaves every bus in proportion, surplus is taken at the reference bus."""
        allocation, load = injection
        served = load - allocation.unserved_mw
        return DispatchOutcome(allocation, load, self._line_flow(allocation.p_mw, served, params))

    def account(
        self,
        state: TransmissionState,
        devices: CommitmentState,
        delivery: Operation,
        flow: DispatchOutcome,
        params: TransmissionParams,
    ) -> tuple[TransmissionState, Array, Array, TransmissionInfo]:
        """Money, cost channels and clock."""
        rules, on, dt, share = params.rules, delivery.on, self.dt_hours, flow.allocation
        units = unchecked(advance_commitment)(rules, devices, on, share.p_mw)
        new = dataclasses.replace(state, t=state.t + 1, units=units)
        starts, stops = unchecked(switching_cost)(rules, devices, on)
        running = jnp.where(on, unchecked(cost_of)(params.offers, share.p_mw), 0)
        money = {
            "generation": jnp.sum(running) * dt,
            "surplus": params.surplus_price * share.surplus_mw * dt,
            "unserved_energy": params.voll * share.unserved_mw * dt,
            "no_load": jnp.sum(unchecked(no_load_cost)(rules, on)) * dt,
            "startup": jnp.sum(starts),
            "shutdown": jnp.sum(stops),
        }
        names = TERMS + SWITCHING_TERMS if self.commitment else TERMS
        terms = -jnp.stack([money[name] for name in names])
        overload = self._overload(flow.line_flow_mw, params)
        short = unchecked(reserve_shortfall)(rules, on, flow.load_mw, reserve_share(params))
        shape = (self.dims.agent, len(names))
        info = TransmissionInfo(
            terminated=jnp.zeros((), bool),
            truncated=new.t >= params.horizon,
            pf_status=jnp.asarray(Status.CONVERGED, jnp.int32),
            pf_residual=jnp.zeros_like(overload),
            legal=self._legal(new, params),
            terms=jnp.broadcast_to(terms[None, :], shape),
            unit_power_mw=share.p_mw,
            committed=on,
            line_flow_mw=flow.line_flow_mw,
            load_mw=flow.load_mw,
            unserved_mw=share.unserved_mw,
            surplus_mw=share.surplus_mw,
            gen_cost_usd=money["generation"],
            no_load_cost_usd=money["no_load"],
            startup_cost_usd=money["startup"],
            shutdown_cost_usd=money["shutdown"],
            overload_mw=overload,
            reserve_shortfall_mw=short,
            uc_overrides=jnp.sum(delivery.overridden, dtype=jnp.int32),
        )
        reward = self.weighted(terms)
        zero = jnp.zeros_like(overload)
        # a schedule that cannot be balanced is out of balance either way; rules that shed load price it as unserved
        unbalanced = share.surplus_mw if self.commitment else share.surplus_mw + share.unserved_mw
        channels = {
            "thermal_overload": overload,
            "voltage_violation": zero,
            "power_balance": unbalanced,
            "unserved_energy": share.unserved_mw * dt,
            "resource": zero,
            RESERVE: short,
        }
        if params.factors.move is not None:
            channels[N_MINUS_1] = outage_excess(params.factors.move, params.rate_mw, flow.line_flow_mw)
        cost = jnp.stack([channels[name] for name in self.cost_names])
        return new, jnp.broadcast_to(reward, self.dims.agent), cost, info

    def observe(
        self, state: TransmissionState, new: TransmissionState, flow: DispatchOutcome, params: TransmissionParams
    ) -> Array:
        """Flows of the executed step, loads of the coming one, (A, O)."""
        del state
        return self._fields(new, flow.line_flow_mw, params)

    def _load(self, state: TransmissionState, params: TransmissionParams) -> Array:
        return current_row(state, params)[0] * params.full_load_mw

    def _line_flow(self, p_mw: Array, load_mw: Array, params: TransmissionParams) -> Array:
        factors = params.factors
        return matmul(factors.of_unit, p_mw) - factors.of_load * load_mw + factors.fixed

    def _overload(self, flow_mw: Array, params: TransmissionParams) -> Array:
        """Sum over branches of the flow beyond the rating, () [MW]."""
        rate = params.rate_mw
        return jnp.sum(jnp.where(rate > 0, jnp.maximum(jnp.abs(flow_mw) - rate, 0), 0))

    def _legal(self, state: TransmissionState, params: TransmissionParams) -> Array:
        """Action mask of commitment (A, M): whether off, and whether on, is legal next; M = 0 without commitment."""
        if not self.commitment:
            return jnp.ones((self.dims.agent, 0), bool)
        return unchecked(legal_commitment)(params.rules, state.units).reshape(self.dims.agent, self.dims.choice)

    def _fields(self, state: TransmissionState, flow_mw: Array, params: TransmissionParams) -> Array:
        """The observation at `state` with the given flows, (A, O)."""
        row = current_row(state, params) * (params.full_load_mw / params.peak_load_mw)
        use = flow_mw / jnp.where(params.rate_mw > 0, params.rate_mw, params.peak_load_mw)
        largest, per_day = jnp.max(params.rules.p_max_mw), round(24 / self.dt_hours)
        scene = FlowScene(self.dt_hours, params, state, row, use, largest, self.dims.agent, per_day)
        return observe(self.fields, scene, self.dims.agent)
