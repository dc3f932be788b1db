"""Balanced distribution feeders with devices: exact power flow in every step, one agent or one per device."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base import Step
from powerzoo_jax.base.numerics import anywhere
from powerzoo_jax.base.ranges import unchecked
from powerzoo_jax.base.solver_mode import by_mode, one_form
from powerzoo_jax.base.tree import where_done
from powerzoo_jax.devices import at_devices, bus_injection, fleet
from powerzoo_jax.devices.fleet import FleetResult, Layout
from powerzoo_jax.devices.protocol import Delivery, Exogenous, UnitAccount
from powerzoo_jax.devices.registry import KINDS
from powerzoo_jax.envs import constraint
from powerzoo_jax.envs.constraint import CONSTRAINTS, OUTAGE, VOLTAGE
from powerzoo_jax.envs.core import GridEnv, end_flags, unless_settled
from powerzoo_jax.envs.observe import observe
from powerzoo_jax.envs.series import MEAN_AHEAD, Draw, LoadColumns
from powerzoo_jax.envs.series import PRICE as PRICE
from powerzoo_jax.envs.series import SeriesBank as SeriesBank
from powerzoo_jax.families.feeder.fields import FleetScene
from powerzoo_jax.families.feeder.names import COSTS, LOSS, TERMS
from powerzoo_jax.families.feeder.types import DistributionInfo, DistributionParams, DistributionState
from powerzoo_jax.powerflow import PowerFlowResult, Status, solve_feeder_active
from powerzoo_jax.powerflow.result import COLLAPSE_PU


@dataclass(frozen=True)
class DistributionEnv(GridEnv):
    """A fleet of devices on a balanced feeder, commanded by one agent or by one agent per device.

    Observation: the blocks of `fields`. Action (A, U) in [-1, 1], mapped to each device's own space by `layout`.
    Reward terms and cost channels: those listed, nothing else is computed. Terms are money of one step [$], one entry a
    unit or one for the feeder, positive when earned; every task of this family counts unserved energy.
    Termination: the power flow fails or collapses; then the rest of the horizon is settled as a blackout.

    `pooling`: "sum" or "mean" of the units' money for every agent, or "individual".
    `rated`: some branch of some lane has a rating, else the thermal channel is constant 0 and costs nothing.
    `head_rated`: only the one branch that leaves the slack bus may have a rating.
    `padded`: some lane is smaller than `dims`, so its observation is masked.

    `solver`, in the fixed form: a step asks the host once, whether a lane has failed or needs more than the known
    number of iterations. A batch with such a lane takes the power flow and all behind it once more, and then in full.
    """

    layout: Layout
    columns: LoadColumns
    cost_names: tuple[str, ...] = COSTS
    term_names: tuple[str, ...] = TERMS
    pooling: str = "sum"
    flattened: bool = True
    rated: bool = False
    head_rated: bool = False
    padded: bool = False

    def start(self, key: Array, drawn: Draw, params: DistributionParams) -> tuple[DistributionState, Array]:
        """Start a given episode, devices idle; one solve."""
        devices = fleet.begin(self.layout, key, drawn.soc, params, self.dt_hours)
        state = DistributionState(
            t=jnp.zeros((), jnp.int32),
            key=key,
            soc_start=fleet.charge_of(devices, params.load_ratio),
            load_row=drawn.load_row,
            price_row=drawn.price_row,
            failed=jnp.zeros((), bool),
            **devices,
        )
        flow = self._idle_flow(self._load_row(state, params), state, params)
        return state, self._fields(state, self._electrical(flow), params)

    def opening(self, state: DistributionState, params: DistributionParams) -> tuple[Array, Array, DistributionInfo]:
        """Initial power flow of a started episode, devices idle: (obs (A, O), cost (C,), info); one solve.

        What a host view reports at reset. No step has been executed, so no energy is unserved yet.
        """
        action = jnp.zeros((self.dims.agent, self.dims.act), params.load_ratio.dtype)
        shapes = jax.eval_shape(lambda: self.limit(state, self.decode(action, params), params)[1])
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        devices = {kind: getattr(state, kind) for kind in self.layout.kinds}
        with one_form(self.solver):
            flow = self._idle_flow(self._load_row(state, params), state, params)
            _, _, cost, info = self.account(state, devices, nothing, flow, params)
            obs = self._fields(state, self.last_valid(state, state, flow, params), params)
        info = dataclasses.replace(info, nan_actions=jnp.zeros((), jnp.int32))
        return obs, cost.at[self.cost_names.index("unserved_energy")].set(0), info

    def storage_mw(self, info: DistributionInfo) -> Array:
        """Terminal power of all batteries and vehicles in a step, both directions, () [MW]."""
        table = self.layout.table
        units = [unit for block in table.blocks if block.kind in fleet.storing_kinds() for unit in block.units]
        p_mw = info.p_mw if len(units) == self.dims.unit else info.p_mw[np.asarray(units, np.int32)]
        return jnp.sum(jnp.abs(p_mw))

    def decode(self, action: Array, params: DistributionParams) -> dict[str, Array]:
        """(A, U) in [-1, 1] -> own actions of each kind; a masked or NaN entry leaves its unit alone."""
        return fleet.own_actions(self.layout, jnp.where(params.masks.act, action, jnp.nan))

    def limit(
        self, state: DistributionState, command: dict[str, Array], params: DistributionParams
    ) -> tuple[dict[str, Any], FleetResult]:
        """Deliver what stores, availability, schedules and queues allow."""
        return fleet.deliver(state, command, self._exogenous(state, params))

    def undelivered(self, state: DistributionState, action: Array, params: DistributionParams) -> Array:
        """Power () [MW] that an action (A, U) would ask for in vain, its channel `resource`; no network is solved."""
        _, delivery = self.limit(state, self.decode(action, params), params)
        return unless_settled(state.failed, constraint.undelivered(delivery.undelivered_mw))

    def _exogenous(self, state: DistributionState, params: DistributionParams) -> Exogenous:
        row = params.bank.load_rows[self._load_row(state, params)]
        return Exogenous(row, self.columns, state.t, state.key, self.dt_hours, self.layout, params)

    def dispatch(
        self, state: DistributionState, delivery: FleetResult, params: DistributionParams
    ) -> tuple[Array, Array]:
        """Net injection (a,), (a,) [pu] of the buses that inject at bank row t."""
        return self._net(self._load_row(state, params), delivery.p_mw, delivery.q_mvar, params)

    def flow(
        self, injection: tuple[Array, Array], params: DistributionParams, *, stragglers: bool = False
    ) -> PowerFlowResult:
        """Exact feeder power flow; the currents of branches only where an agent or a rating looks at them.

        stragglers: False leaves lanes that the fixed form of the solver does not finish at OUT_OF_STEPS, for `finish`
        """
        flows = self.flattened or (self.rated and not self.head_rated)
        return unchecked(solve_feeder_active)(
            params.factors, *injection, flows=flows, solver=self.solver, stragglers=stragglers
        )

    def account(
        self,
        state: DistributionState,
        devices: dict[str, Any],
        delivery: FleetResult,
        flow: PowerFlowResult,
        params: DistributionParams,
    ) -> tuple[DistributionState, Array, Array, DistributionInfo]:
        """Money, cost channels, clock and flags of the executed step."""
        v = flow.v_pu
        v_low, v_high = self._voltage_range(v, params)
        collapsed = v_low < COLLAPSE_PU
        failed = (flow.status != Status.CONVERGED) | collapsed
        price = params.bank.price_rows[self._price_index(state, params), PRICE]
        blackout = self._blackout_mwh(state, failed, price, params)
        new = dataclasses.replace(state, t=state.t + 1, failed=state.failed | failed, **devices)
        base = params.grid.base_mva
        terms = self._terms(state, devices, delivery, price, flow.p_loss * base, blackout, new.failed, params)
        cost = self._costs(v, flow, delivery, blackout, failed, params)
        cost, ends = unless_settled(state.failed, cost), end_flags(new.t, params.horizon, new.failed)
        terms = shaped(terms, self.term_names, cost, self.cost_names)
        info = DistributionInfo(
            **ends,
            pf_status=flow.status,
            pf_residual=flow.residual,
            legal=jnp.ones((self.dims.agent, self.dims.choice), bool),
            terms=terms,
            pf_iterations=flow.iterations,
            p_slack_mw=flow.p_slack * base,
            q_slack_mvar=flow.q_slack * base,
            p_loss_mw=flow.p_loss * base,
            v_min_pu=v_low,
            v_max_pu=v_high,
            collapsed=collapsed,
            price_per_mwh=price,
            soc=fleet.charge_of(devices, price),
            p_mw=delivery.p_mw,
            command_mw=delivery.command_mw,
            local_v_pu=unchecked(at_devices)(params.place_bus, v),
            q_mvar=delivery.q_mvar,
            **self.reported(flow),
            # a plain delivery says no more than the columns above
            **{kind: report for kind, report in delivery.reports.items() if type(report) is not Delivery},
        )
        return new, self.weighted(terms), cost, info

    def reported(self, flow: Any) -> dict[str, Any]:
        """Further info fields of a solved state that one kind of feeder reports."""
        del flow
        return {}

    def observe(
        self, state: DistributionState, new: DistributionState, flow: PowerFlowResult, params: DistributionParams
    ) -> Array:
        """Observation before the next action; after a failed solve the last valid electrical state."""

        def as_solved(state: Any, new: Any, flow: Any, params: Any) -> tuple[Array, ...]:
            return self._electrical(flow)  # a failed lane has its observation from `finish`

        return self._fields(new, by_mode(self.solver, self.last_valid, as_solved, state, new, flow, params), params)

    def finish(
        self,
        step: Step,
        state: DistributionState,
        devices: dict[str, Any],
        delivery: FleetResult,
        injection: tuple[Array, Array],
        params: DistributionParams,
    ) -> Step:
        """The step; of the fixed form its second half again, where a lane of the batch has failed or is left."""

        # derivatives compute it anew: what they would keep of it is many times what they keep of the step itself
        @jax.checkpoint
        def again(state: Any, devices: Any, delivery: Any, injection: tuple[Array, Array], params: Any) -> Step:
            flow = self.flow(injection, params, stragglers=True)
            new, reward, cost, info = self.account(state, devices, delivery, flow, params)
            return Step(new, self._fields(new, self.last_valid(state, new, flow, params), params), reward, cost, info)

        def unless_left(step: Step, *given: Any) -> Step:
            whole: Step = lax.cond(anywhere(step.state.failed), lambda: again(*given), lambda: step)
            return whole

        given = (step, state, devices, delivery, injection, params)
        whole: Step = by_mode(self.solver, lambda step, *_: step, unless_left, *given)
        return whole

    def last_valid(
        self, state: DistributionState, new: DistributionState, flow: PowerFlowResult, params: DistributionParams
    ) -> tuple[Array, ...]:
        """Electrical state that observations show: the solved one, or after a failed solve that of the step before."""
        seen = self._electrical(flow)

        def before() -> tuple[Array, ...]:
            row = jnp.maximum(self._load_row(state, params) - 1, state.load_row)
            earlier = self._idle_flow(row, state, params)
            valid: tuple[Array, ...] = where_done(new.failed, self._electrical(earlier), seen)
            return valid

        shown: tuple[Array, ...] = lax.cond(anywhere(new.failed), before, lambda: seen)
        return shown

    def _electrical(self, flow: PowerFlowResult) -> tuple[Array, ...]:
        """Electrical state that observations show; branch flows (one product) only if agents look at them."""
        return (flow.v_pu, flow.p_from, flow.q_from) if self.flattened else (flow.v_pu,)

    def _voltage_range(self, v: Array, params: DistributionParams) -> tuple[Array, Array]:
        """Extreme voltages of the real buses, () each [pu]."""
        if not self.padded:
            return jnp.min(v), jnp.max(v)
        real = params.grid.bus_mask
        return jnp.min(jnp.where(real, v, jnp.inf)), jnp.max(jnp.where(real, v, 0))

    def _costs(
        self,
        v: Array,
        flow: PowerFlowResult,
        delivery: FleetResult,
        blackout_mwh: Array,
        failed: Array,
        params: DistributionParams,
    ) -> Array:
        """(C,) in the order of `cost_names`, each in the unit of its channel."""
        found = self.limit_costs(v, flow, failed, params)
        found["unserved_energy"] = blackout_mwh
        found["resource"] = constraint.undelivered(delivery.undelivered_mw)
        for kind, report in delivery.reports.items():
            for name, of in KINDS[kind].costs.items():
                if name in self.cost_names:  # a channel that two kinds know is their sum
                    found[name] = found[name] + of(report) if name in found else of(report)
        return jnp.stack([found[name] for name in self.cost_names])

    def limit_costs(self, v: Array, flow: Any, failed: Array, params: DistributionParams) -> dict[str, Array]:
        """Channels of the network itself, () each."""
        grid, overload = params.grid, jnp.zeros_like(flow.p_loss)
        if self.rated and self.head_rated:
            # the substation's exchange is the flow of that branch: no product for all the others
            p, q, rate = flow.p_slack[None], flow.q_slack[None], jnp.max(grid.rate)[None]
            overload = constraint.thermal_overload(p, q, rate, grid.base_mva, failed)
        elif self.rated:
            overload = constraint.thermal_overload(flow.p_from, flow.q_from, grid.rate, grid.base_mva, failed)
        violation = constraint.voltage_violation(v, grid.v_min, grid.v_max, failed)
        return {"voltage_violation": violation, "thermal_overload": overload}

    def _load_row(self, state: DistributionState, params: DistributionParams) -> Array:
        return state.load_row + jnp.minimum(state.t, params.horizon - 1)

    def _price_index(self, state: DistributionState, params: DistributionParams) -> Array:
        return state.price_row + jnp.minimum(state.t, params.horizon - 1)

    def _idle_flow(self, row: Array, state: DistributionState, params: DistributionParams) -> Any:
        """Power flow of a load row beside the power that the devices delivered last."""
        injection = self._net(row, *fleet.power(self.layout, state, params), params)
        return self.flow(injection, params, stragglers=True)

    def _net(self, row: Array, p_mw: Array, q_mvar: Array | None, params: DistributionParams) -> tuple[Array, Array]:
        load = self.columns.level(params.bank.load_rows[row], params.shape_active) * params.load_ratio
        p = unchecked(bus_injection)(params.place_active, p_mw) / params.grid.base_mva - load * params.p_load
        q = -load * params.q_load
        if q_mvar is not None:
            q = unchecked(bus_injection)(params.place_active, q_mvar) / params.grid.base_mva + q
        if params.unit_p is None or params.unit_q is None:
            return p, q
        return p + params.unit_p, q + params.unit_q

    def _blackout_mwh(self, state: DistributionState, failed: Array, price: Array, params: DistributionParams) -> Array:
        """Load that a failure in this step leaves unserved, () [MWh]; a few sums, not worth a question to the host."""

        def unserved(state: DistributionState, failed: Array, params: DistributionParams) -> Array:
            return jnp.where(failed & ~state.failed, self._remaining_mwh(state, params), 0)

        def if_any(state: DistributionState, failed: Array, params: DistributionParams) -> Array:
            found: Array = lax.cond(
                anywhere(failed), lambda: unserved(state, failed, params), lambda: jnp.zeros_like(price)
            )
            return found

        found: Array = by_mode(self.solver, if_any, unserved, state, failed, params)
        return found

    def _remaining_mwh(self, state: DistributionState, params: DistributionParams) -> Array:
        """Scheduled load of this and all remaining steps [MWh]: two gathers from the running sums of the bank."""
        here = params.bank.load_rows[self._load_row(state, params)]
        end = params.bank.load_rows[state.load_row + params.horizon]
        steps = self.columns.load_ahead(here, end)
        load_mw = params.load_mw if params.shape_mw is None else params.shape_mw
        return jnp.sum(steps * params.load_ratio * load_mw) * self.dt_hours

    def _terms(
        self,
        state: DistributionState,
        devices: dict[str, Any],
        delivery: FleetResult,
        price: Array,
        p_loss_mw: Array,
        blackout_mwh: Array,
        failed: Array,
        params: DistributionParams,
    ) -> Array:
        """(A, K) [$] in the order of `term_names`; a blackout replaces all else, and every agent bears all of it.

        The terms that follow from the cost channels stay 0 until these are known, see `shaped`.
        """
        n_agent, units = self.dims.agent, self._unit_accounts(state, devices, delivery, price, params)
        columns = []
        for name in self.term_names:
            if name == OUTAGE:
                columns.append(jnp.broadcast_to(constraint.unserved(params.voll, blackout_mwh), (n_agent,)))
            elif name in (CONSTRAINTS, VOLTAGE):
                columns.append(jnp.zeros((n_agent,), price.dtype))
            else:
                if name == LOSS:
                    parts = [-(price * p_loss_mw * self.dt_hours)[None]]
                else:
                    parts = [KINDS[kind].terms[name](unit) for kind, unit in units.items() if name in KINDS[kind].terms]
                money = parts[0] if len(parts) == 1 else jnp.concatenate(parts)
                columns.append(jnp.where(failed, 0, self._pooled(money)))
        return jnp.stack(columns, axis=1)

    def _unit_accounts(
        self,
        state: DistributionState,
        devices: dict[str, Any],
        delivery: FleetResult,
        price: Array,
        params: DistributionParams,
    ) -> dict[str, UnitAccount]:
        """Account of every kind, in the order of the registry, in which `soc_start` lists those that store energy."""
        found: dict[str, UnitAccount] = {}
        exogenous = self._exogenous(state, params)
        first = 0
        for kind in (kind for kind in KINDS if kind in devices):
            last = first + devices[kind].soc.shape[0] if KINDS[kind].stores else first
            found[kind] = UnitAccount(
                params=getattr(params, kind),
                before=getattr(state, kind),
                after=devices[kind],
                out=delivery.reports[kind],
                soc_start=state.soc_start[first:last],
                price_per_mwh=price,
                mean_per_mwh=params.bank.price_rows[state.price_row, MEAN_AHEAD],
                last=state.t + 1 == params.horizon,
                exogenous=exogenous,
                dt_hours=self.dt_hours,
                task=params,
            )
            first = last
        return found

    def _pooled(self, money: Array) -> Array:
        """Money of units (units,) [$] as that of agents (A,): their sum, its mean over agents, or each its own."""
        if self.pooling == "individual":
            return money
        total = jnp.sum(money)
        return jnp.broadcast_to(total / self.dims.agent if self.pooling == "mean" else total, (self.dims.agent,))

    def _fields(self, state: DistributionState, electrical: tuple[Array, ...], params: DistributionParams) -> Array:
        """The observation at `state` with the given electrical state, (A, O)."""
        row = params.bank.load_rows[self._load_row(state, params)]
        price = params.bank.price_rows[self._price_index(state, params)]
        scene = FleetScene(self.dt_hours, params, state, row, self.layout, self.columns, price, electrical)
        if not self.flattened:
            return observe(self.fields, scene, self.dims.agent)
        obs = observe(self.fields, scene).reshape(1, -1)
        return jnp.where(params.masks.obs, obs, 0) if self.padded else obs


def shaped(terms: Array, names: tuple[str, ...], cost: Array, cost_names: tuple[str, ...]) -> Array:
    """The terms (A, K) with those filled in that follow from the cost channels (C,)."""
    if CONSTRAINTS in names:
        terms = terms.at[:, names.index(CONSTRAINTS)].set(-jnp.sum(cost))
    if VOLTAGE in names:
        terms = terms.at[:, names.index(VOLTAGE)].set(-cost[cost_names.index("voltage_violation")])
    return terms
