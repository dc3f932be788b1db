"""A transmission grid under one operator, in DC or AC, by optimal power flow or by schedule and power flow.

    mode     dispatch                                             flow
    dc, opf  DC-OPF; a schedule that is given takes its place     DC
    dc, pf   the schedule, else all units at the same place       DC
    ac, opf  AC-OPF                                               AC at the optimum
    ac, pf   as dc, pf                                            AC, the slack units cover the losses

In AC units keep their reactive limits: the optimum as a constraint; in the power flow a bus whose units have reached a
limit gives up its voltage. The reference bus holds its voltage in any case.

Lines that the operator may switch change the distribution factors by a low rank, exactly; a request that would cut a
bus off is not carried out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.base.numerics import anywhere
from powerzoo_jax.base.ranges import unchecked
from powerzoo_jax.base.tree import where_done
from powerzoo_jax.envs.constraint import N_MINUS_1, outage_excess
from powerzoo_jax.envs.core import GridEnv, end_flags, unless_settled
from powerzoo_jax.envs.observe import FieldBlock, FieldTable, Scene, name_values, observe, table
from powerzoo_jax.envs.series import CLOCK, FACTOR, Draw, current_row, remaining_load
from powerzoo_jax.families.transmission import flow as solve
from powerzoo_jax.families.transmission.flow import Plan, Setpoints, SolvedNetwork
from powerzoo_jax.families.transmission.names import REACTIVE_SHORTFALL
from powerzoo_jax.families.transmission.operator_types import Electrical, TransGridInfo, TransGridParams, TransGridState
from powerzoo_jax.opf.dc.factors import DcOpfFactors
from powerzoo_jax.opf.offers import cost_of
from powerzoo_jax.powerflow import Status, legality, open_switches, stays_connected
from powerzoo_jax.powerflow.result import COLLAPSE_PU, range_excess

"""Name of the cost channel."""

LINE_USE = FieldBlock("line_flow", (), -5, 5, "1", lambda scene: scene.state.seen.line_use)
LOADS = FieldBlock(
    "load",
    (),
    -5,
    5,
    "1",
    lambda scene: (
        scene.params.load_share * (scene.row[FACTOR] * scene.params.full_load_mw / jnp.sum(scene.params.rules.p_max_mw))
    ),
)
OUTPUTS = FieldBlock(
    "unit",
    (),
    -5,
    5,
    "1",
    lambda scene: scene.state.seen.p_mw / jnp.where(scene.params.rules.p_max_mw > 0, scene.params.rules.p_max_mw, 1),
)
SWITCHES = FieldBlock("switch", (), 0, 1, "1", lambda scene: scene.state.closed.astype(scene.row.dtype))
name_values(__name__)


def network_blocks(n_line: int, bus_ids: Sequence[int], n_unit: int) -> list[FieldBlock]:
    """Use of the lines, loads over the capacity of all units, and outputs over that of the unit."""
    return [
        LINE_USE.named(f"line_{i}_flow_norm" for i in range(1, n_line + 1)),
        LOADS.named(f"load_{i}_norm" for i in bus_ids),
        OUTPUTS.named(f"unit_{i}_p_norm" for i in range(1, n_unit + 1)),
    ]


def operator_fields(n_line: int, bus_ids: Sequence[int], n_unit: int, switch_lines: Sequence[int]) -> FieldTable:
    """Observation of an operator: the network, the clock, and the state of the lines that may be switched."""
    switches = SWITCHES.named(f"switch_{i}_closed" for i in switch_lines)
    return table([*network_blocks(n_line, bus_ids, n_unit), CLOCK, switches])


class Setting(NamedTuple):
    """Set-points with the switches (S,) that are closed in the step, and how many requests () were not carried out."""

    setpoints: Setpoints
    closed: Array
    overrides: Array


class Dispatched(NamedTuple):
    """A setting, the dispatch that follows, and the factors of the network as it is switched."""

    setting: Setting
    plan: Plan
    dc: DcOpfFactors


class OperatorStep(NamedTuple):
    """Step of the network: the setting, the dispatch and the flow that follows."""

    setting: Setting
    plan: Plan
    solved: SolvedNetwork


@dataclass(frozen=True)
class TransGridEnv(GridEnv):
    """One operator of a transmission grid.

    Observation: the blocks of `fields`. Action (1, G + S) in [-1, 1]: place of each unit in its range, then the
    switches (>= 0 is closed). In OPF modes units that are all NaN are left to the optimum; AC-OPF takes no schedule.
    Reward terms [USD]: generation, surplus, unserved_energy.
    Cost channels: thermal_overload [MW], in AC [MVA]; voltage_violation [pu], 0 in DC; power_balance [MW];
    unserved_energy [MWh]; resource (0); in AC reactive_shortfall [Mvar], reactive power beyond limits that could not
    be kept; n_minus_1 [MW] where asked for, see `security.outage_excess`.
    Termination: a solve fails or a voltage falls below 0.5 pu; all load to the horizon then is unserved.

    Example:
        from powerzoo_jax.families.transmission.tasks.operator import make_transgrid
        sim = make_transgrid("pz_case5", physics="ac", solver_mode="pf")
        state, obs = sim.init(jax.random.key(0))
        state, obs, reward, cost, info = sim.step(state, jnp.zeros((1, 5)))
    """

    cost_names: tuple[str, ...]
    physics: str = "dc"
    solver_mode: str = "opf"
    n_switch: int = 0

    def start(self, key: Array, drawn: Draw, params: TransGridParams) -> tuple[TransGridState, Array]:
        """Start a given episode with all switches closed."""
        dtype, dims = params.voll.dtype, self.dims
        state = TransGridState(
            t=jnp.zeros((), jnp.int32),
            key=key,
            load_row=drawn.load_row,
            closed=jnp.ones(self.n_switch, bool),
            seen=Electrical(jnp.zeros(dims.branch, dtype), jnp.zeros(dims.unit, dtype)),
            failed=jnp.zeros((), bool),
        )
        setpoints = Setpoints(jnp.zeros(dims.unit, dtype), jnp.zeros((), bool), state.closed)
        _, setting = self.limit(state, setpoints, params)
        first = self.flow(self.dispatch(state, setting, params), params)
        state = dataclasses.replace(state, seen=self._electrical(first.solved, params))
        return state, self._fields(state, params)

    def decode(self, action: Array, params: TransGridParams) -> Setpoints:
        """(1, G + S) in [-1, 1] -> schedule and switches; one NaN among numbers counts as 0, a NaN switch is closed."""
        del params
        flat, n_unit = action[0], self.dims.unit
        known = jnp.isfinite(flat)
        value = jnp.where(known, jnp.clip(flat, -1, 1), 0)
        return Setpoints(0.5 * (value[:n_unit] + 1), jnp.any(known[:n_unit]), value[n_unit:] >= 0)

    def limit(
        self, state: TransGridState, command: Setpoints, params: TransGridParams
    ) -> tuple[TransGridState, Setting]:
        """Switch where every bus stays connected, else leave all switches as they are."""
        none = jnp.zeros((), jnp.int32)
        if not self.n_switch:
            return state, Setting(command, state.closed, none)
        legal = unchecked(stays_connected)(params.factors.switches.loops, _opened(command.close))
        closed = jnp.where(legal, command.close, state.closed)
        overrides = jnp.sum((closed != command.close).astype(jnp.int32))
        return state, Setting(command, closed, overrides)

    def dispatch(self, state: TransGridState, delivery: Setting, params: TransGridParams) -> Dispatched:
        """Optimal dispatch, or a schedule that the slack units balance."""
        total = current_row(state, params)[FACTOR] * params.full_load_mw
        load, dc = params.load_share * total, params.factors.dc
        if self.n_switch:
            dc = solve.switched(dc, params.factors.switches, delivery.closed)
        if self.physics == "ac" and self.solver_mode == "opf":
            return Dispatched(delivery, solve.ac_optimum(load, params), dc)
        # an AC power flow finds by itself what the shunts take
        need = total + params.shunt_mw if self.physics == "dc" else total
        follow = solve.scheduled(load, need, delivery.setpoints, params)
        if self.solver_mode == "pf":
            return Dispatched(delivery, follow, dc)
        given = delivery.setpoints.given
        best = lax.cond(anywhere(~given), lambda: solve.dc_optimum(follow, dc, params, self.solver), lambda: follow)
        return Dispatched(delivery, where_done(given, follow, best), dc)

    def flow(self, injection: Dispatched, params: TransGridParams) -> OperatorStep:
        """DC or AC power flow of the plan."""
        setting, plan, dc = injection
        if plan.optimum is not None:
            solved = solve.optimum_flow(plan, plan.optimum, params)
        elif self.physics == "ac":
            solved = solve.ac_flow(plan, params, self.solver)
        else:
            solved = solve.dc_flow(plan, dc, params)
        return OperatorStep(setting, plan, solved)

    def account(
        self,
        state: TransGridState,
        devices: TransGridState,
        delivery: Setting,
        flow: OperatorStep,
        params: TransGridParams,
    ) -> tuple[TransGridState, Array, Array, TransGridInfo]:
        """Money, cost channels, clock and flags."""
        del delivery
        dt, found, plan = self.dt_hours, flow.solved, flow.plan
        failed = devices.failed | (found.status != Status.CONVERGED) | (jnp.min(found.vm_pu) < COLLAPSE_PU)
        running = jnp.where(params.rules.available, unchecked(cost_of)(params.offers, found.p_mw), 0)
        generation = jnp.sum(running) * dt
        blackout = jnp.where(failed & ~state.failed, remaining_load(state, params) * params.full_load_mw * dt, 0)
        energy = jnp.where(failed, blackout, found.unserved_mw * dt)
        money = jnp.stack([generation, params.surplus_price * found.surplus_mw * dt])
        terms = -jnp.append(jnp.where(failed, 0, money), params.voll * energy)
        overload = self._overload(found, params)
        cost = self._costs(flow, overload, energy, failed, params)
        new = dataclasses.replace(
            state,
            t=state.t + 1,
            closed=flow.setting.closed,
            seen=where_done(failed, state.seen, self._electrical(found, params)),
            failed=failed,
        )
        info = TransGridInfo(
            **end_flags(new.t, params.horizon, failed),
            pf_status=found.status,
            pf_residual=found.residual,
            legal=self._legal(new, params),
            terms=terms[None, :],
            unit_power_mw=found.p_mw,
            line_flow_mw=found.line_flow_mw,
            line_loading_mva=found.loading_mva,
            vm_pu=found.vm_pu,
            va_rad=found.va_rad,
            lmp=plan.lmp,
            lmp_available=plan.priced,
            load_mw=jnp.sum(plan.load_mw),
            p_loss_mw=found.loss_mw,
            unserved_mw=found.unserved_mw,
            surplus_mw=found.surplus_mw,
            overload_mw=overload,
            gen_cost_usd=generation,
            p_slack_mw=found.p_slack_mw,
            q_slack_mvar=found.q_slack_mvar,
            at_q_limit=found.at_q_limit,
            closed=flow.setting.closed,
            switch_overrides=flow.setting.overrides,
            pf_iterations=found.iterations,
            opf_status=plan.status,
        )
        return new, self.weighted(terms)[None], unless_settled(state.failed, cost), info

    def _overload(self, found: SolvedNetwork, params: TransGridParams) -> Array:
        """Sum over branches of the flow beyond the rating, () [MW], in AC [MVA]."""
        rate = params.factors.dc.rate_mva
        return jnp.sum(jnp.where(rate > 0, jnp.maximum(found.loading_mva - rate, 0), 0))

    def _costs(
        self, flow: OperatorStep, overload: Array, energy_mwh: Array, failed: Array, params: TransGridParams
    ) -> Array:
        """(C,) in the order of `cost_names`."""
        found, grid, zero = flow.solved, params.grid, jnp.zeros_like(energy_mwh)
        violation = zero
        if self.physics == "ac":
            outside = jnp.sum(range_excess(found.vm_pu, grid.v_min, grid.v_max))
            violation = jnp.where(failed, jnp.sum(grid.v_min), outside)
        channels = {
            "thermal_overload": jnp.where(failed, 0, overload),
            "voltage_violation": violation,
            # load that an optimum sheds is balanced, what a schedule lacks is not
            "power_balance": jnp.where(failed | flow.plan.priced, 0, found.unserved_mw + found.surplus_mw),
            "unserved_energy": energy_mwh,
            "resource": zero,
        }
        if REACTIVE_SHORTFALL in self.cost_names:
            channels[REACTIVE_SHORTFALL] = jnp.where(failed, 0, found.q_short_mvar)
        if N_MINUS_1 in self.cost_names:
            screened = outage_excess(params.factors.move, params.factors.dc.rate_mva, found.line_flow_mw)
            channels[N_MINUS_1] = jnp.where(failed, 0, screened)
        return jnp.stack([channels[name] for name in self.cost_names])

    def _electrical(self, found: SolvedNetwork, params: TransGridParams) -> Electrical:
        rate = params.factors.dc.rate_mva
        size = found.line_flow_mw if self.physics == "dc" else found.loading_mva
        return Electrical(size / jnp.where(rate > 0, rate, params.peak_load_mw), found.p_mw)

    def _legal(self, state: TransGridState, params: TransGridParams) -> Array:
        """Action mask of the switches (1, 2 S): whether each alone may be open next, and may be closed."""
        if not self.n_switch:
            return jnp.ones((1, 0), bool)
        found = unchecked(legality)(params.factors.switches.loops, _opened(state.closed))
        may_open = found.may_open | ~state.closed
        return jnp.stack([may_open, jnp.ones_like(may_open)], axis=-1).reshape(1, -1)

    def _fields(self, state: TransGridState, params: TransGridParams) -> Array:
        """The observation at `state`, (1, O)."""
        return observe(self.fields, Scene(self.dt_hours, params, state, current_row(state, params)), 1)


def _opened(closed: Array) -> Array:
    """Open switches (S,) int32 of a status (S,) bool, filled up with -1."""
    return unchecked(open_switches)(closed.astype(jnp.int32), closed.shape[0])
