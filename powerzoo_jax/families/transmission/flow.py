"""Dispatch and flow of a transmission grid in DC and AC, as functions of loads, a schedule and switches."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base import elimination
from powerzoo_jax.base.numerics import matmul
from powerzoo_jax.base.ranges import unchecked
from powerzoo_jax.base.solver_mode import AUTO, by_mode
from powerzoo_jax.families.transmission.operator_types import ReactiveRanges, Switches, TransGridParams
from powerzoo_jax.families.transmission.units import proportional_output
from powerzoo_jax.opf.ac.solve import AcOpfResult, ac_opf
from powerzoo_jax.opf.allocate import Allocation, balance_by_slack, shed_by_load
from powerzoo_jax.opf.dc.factors import DcOpfFactors
from powerzoo_jax.opf.dc.solve import dc_opf, sum_at_buses
from powerzoo_jax.opf.result import OpfStatus
from powerzoo_jax.powerflow import (
    MeshedResult,
    ReactiveResult,
    Status,
    solve_meshed,
    solve_within_reactive_limits,
)
from powerzoo_jax.powerflow.result import range_excess

FEASIBLE = {"float32": 1e-4, "float64": 1e-6}  # [pu] mismatch at which the point of an AC-OPF is a power flow


class Setpoints(NamedTuple):
    """Place of each unit in its range (G,) in [0, 1], whether any was given (), switches to be closed (S,)."""

    place: Array
    given: Array
    close: Array


class Plan(NamedTuple):
    """A dispatch.

    p_mw:      (G,)  [MW]      load_mw, shed_mw, spill_mw: (N,) [MW]
    lmp:       (N,)  [USD/MWh] where `priced` () bool
    status:    ()    int32     `OpfStatus`
    optimum:   AcOpfResult     of an AC-OPF, None in other modes
    """

    p_mw: Array
    load_mw: Array
    shed_mw: Array
    spill_mw: Array
    lmp: Array
    priced: Array
    status: Array
    optimum: AcOpfResult | None


class SolvedNetwork(NamedTuple):
    """A solved network; fields as in `TransGridInfo`, p_mw with what the slack units cover.

    q_short_mvar:  ()  reactive power beyond the limits of units, summed over buses
    """

    p_mw: Array
    line_flow_mw: Array
    loading_mva: Array
    vm_pu: Array
    va_rad: Array
    loss_mw: Array
    p_slack_mw: Array
    q_slack_mvar: Array
    at_q_limit: Array
    q_short_mvar: Array
    unserved_mw: Array
    surplus_mw: Array
    residual: Array
    iterations: Array
    status: Array


def switched(dc: DcOpfFactors, switches: Switches, closed: Array) -> DcOpfFactors:
    """Factors with some switches (S,) open, exactly; every bus must stay connected.

    An open switch k is closed again with a power D_k entering at one end and leaving at the other that equals its own
    flow: D = (I - diag(open) H_SS)^-1 diag(open) f_S, f' = f + H D, and 0 on open branches.
    Source: Wood, Wollenberg, Sheble, Power Generation, Operation, and Control, 3rd ed., section 7.3.
    """
    at, opened = switches.loops.branch, (~closed).astype(dc.flow_0.dtype)
    own = jnp.eye(at.shape[0], dtype=dc.flow_0.dtype) - opened[:, None] * switches.across[at]
    moved = matmul(switches.across, by_mode(AUTO, jnp.linalg.solve, _undo, own, jnp.diag(opened)))
    carries = jnp.ones_like(dc.flow_0).at[at].set(1 - opened)
    return replace(
        dc,
        ptdf=carries[:, None] * (dc.ptdf + matmul(moved, dc.ptdf[at])),
        flow_0=carries * (dc.flow_0 + matmul(moved, dc.flow_0[at])),
    )


def _undo(matrix: Array, right: Array) -> Array:
    """matrix^-1 right, (S, S) each, in array operations."""
    return matmul(elimination.inverse(matrix), right)


def scheduled(load_mw: Array, need_mw: Array, setpoints: Setpoints, params: TransGridParams) -> Plan:
    """Follow the schedule, else run all units at the same place, and let the slack units balance `need_mw` ()."""
    low, high = unit_range(params)
    asked = low + setpoints.place * (high - low)
    planned = jnp.where(setpoints.given, asked, proportional_output(params.rules, need_mw))
    share = unchecked(balance_by_slack)(planned, low, high, params.slack, need_mw)
    none = jnp.zeros_like(load_mw)
    return Plan(
        p_mw=share.p_mw,
        load_mw=load_mw,
        shed_mw=unchecked(shed_by_load)(load_mw, share.unserved_mw),
        spill_mw=none.at[params.slack_bus].set(share.surplus_mw),
        lmp=none,
        priced=jnp.zeros((), bool),
        status=jnp.asarray(OpfStatus.OPTIMAL, jnp.int32),
        optimum=None,
    )


def dc_optimum(follow: Plan, dc: DcOpfFactors, params: TransGridParams, solver: str = AUTO) -> Plan:
    """The DC-OPF of the loads of a plan, on the network as it is switched."""
    out = unchecked(dc_opf)(
        dc, follow.load_mw, voll=params.voll, surplus_price=params.surplus_price, vertex=False, solver=solver
    )
    return follow._replace(
        p_mw=out.unit_power_mw,
        shed_mw=out.shed_mw,
        spill_mw=out.spill_mw,
        lmp=out.lmp,
        priced=out.optimal,
        status=out.status,
    )


def ac_optimum(load_mw: Array, params: TransGridParams) -> Plan:
    """The AC-OPF of given loads (N,)."""
    factors = params.factors.ac
    out = unchecked(ac_opf)(factors, load_mw, params.reactive_share * jnp.sum(load_mw), voll=params.voll)
    return Plan(
        p_mw=out.unit_power_mw,
        load_mw=load_mw,
        shed_mw=out.shed_mw,
        spill_mw=jnp.zeros_like(load_mw),
        lmp=out.lmp,
        priced=out.optimal,
        status=out.status,
        optimum=out,
    )


def unit_range(params: TransGridParams) -> tuple[Array, Array]:
    """Limits of the units in service, (G,) each [MW]."""
    rules = params.rules
    low, high = (jnp.where(rules.available, x, 0) for x in (rules.p_min_mw, rules.p_max_mw))
    return low, high


def net_injection(plan: Plan, params: TransGridParams) -> Array:
    """Power into every bus, (N,) [MW]."""
    dc = params.factors.dc
    return sum_at_buses(dc, dc.unit_bus, plan.p_mw) - plan.load_mw + plan.shed_mw - plan.spill_mw


def dc_flow(plan: Plan, dc: DcOpfFactors, params: TransGridParams) -> SolvedNetwork:
    """DC flows; a dispatch that is not optimal counts as a flow without a solution."""
    net = net_injection(plan, params)
    lines = matmul(dc.ptdf, net) + dc.flow_0
    zero, ones = jnp.zeros((), net.dtype), jnp.ones_like(net)
    fine = plan.status == OpfStatus.OPTIMAL
    return SolvedNetwork(
        p_mw=plan.p_mw,
        line_flow_mw=lines,
        loading_mva=jnp.abs(lines),
        vm_pu=ones,
        va_rad=jnp.zeros_like(net),
        loss_mw=zero,
        p_slack_mw=net[params.slack_bus],
        q_slack_mvar=zero,
        at_q_limit=jnp.zeros(0, jnp.int32),
        q_short_mvar=zero,
        unserved_mw=jnp.sum(plan.shed_mw),
        surplus_mw=jnp.sum(plan.spill_mw),
        residual=zero,
        iterations=jnp.zeros((), jnp.int32),
        status=jnp.where(fine, jnp.int32(Status.CONVERGED), jnp.int32(Status.OUT_OF_STEPS)),
    )


def ac_flow(plan: Plan, params: TransGridParams, solver: str = AUTO) -> SolvedNetwork:
    """AC flows; reactive load follows active load, units hold the voltages of the case within their reactive limits."""
    base, ranges = params.grid.base_mva, params.factors.reactive
    served = plan.load_mw - plan.shed_mw
    reactive = params.reactive_share * jnp.sum(served)
    given = params.factors.meshed, net_injection(plan, params) / base, -reactive / base
    at_limit, short = jnp.zeros(reactive.shape, jnp.int32), jnp.zeros_like(base)
    if ranges is None:
        found = unchecked(solve_meshed)(*given, solver=solver)
    else:
        kept = unchecked(solve_within_reactive_limits)(given[0], ranges.pv, *given[1:], solver=solver)
        at_limit = at_limit.at[ranges.pv.bus].set(kept.at_limit)
        short = _reactive_shortfall(kept, kept.flow.q_slack - given[2][params.slack_bus], ranges)
        found = _power_flow(kept)
    share = _slack_output(plan, found.p_slack * base + (served + plan.spill_mw)[params.slack_bus], params)
    ends = jnp.maximum(found.p_from**2 + found.q_from**2, found.p_to**2 + found.q_to**2)
    return SolvedNetwork(
        p_mw=jnp.where(params.slack, share.p_mw, plan.p_mw),
        line_flow_mw=found.p_from * base,
        loading_mva=jnp.sqrt(ends) * base,
        vm_pu=found.v_pu,
        va_rad=found.angle_rad,
        loss_mw=found.p_loss * base,
        p_slack_mw=found.p_slack * base,
        q_slack_mvar=found.q_slack * base,
        at_q_limit=at_limit,
        q_short_mvar=short * base,
        unserved_mw=jnp.sum(plan.shed_mw) + share.unserved_mw,
        surplus_mw=jnp.sum(plan.spill_mw) + share.surplus_mw,
        residual=found.residual,
        iterations=found.iterations,
        status=found.status,
    )


def _power_flow(kept: ReactiveResult) -> MeshedResult:
    """Power flow, also where limits are not settled: an excess over them is a shortfall, not a failure."""
    status = jnp.where(kept.solved, jnp.int32(Status.CONVERGED), kept.flow.status)
    return replace(kept.flow, status=status)


def _reactive_shortfall(kept: ReactiveResult, q_slack: Array, ranges: ReactiveRanges) -> Array:
    """Reactive power beyond the limits of the units at the reference bus and at buses that did not settle, () [pu]."""
    beyond = jnp.sum(range_excess(kept.q_pv, ranges.pv.q_min, ranges.pv.q_max))
    unsettled = jnp.where(kept.flow.status == Status.CONVERGED, 0, beyond)
    return unsettled + range_excess(q_slack, ranges.slack_q_min, ranges.slack_q_max)


def _slack_output(plan: Plan, needed_mw: Array, params: TransGridParams) -> Allocation:
    """Output of the slack units for the power needed at their bus; the others read 0."""
    low, high, planned = (jnp.where(params.slack, x, 0) for x in (*unit_range(params), plan.p_mw))
    return unchecked(balance_by_slack)(planned, low, high, params.slack, needed_mw)


def optimum_flow(plan: Plan, out: AcOpfResult, params: TransGridParams) -> SolvedNetwork:
    """Power flow at the point of an AC-OPF; one that breaks a balance or limit counts as without a solution."""
    feasible = out.primal_residual <= FEASIBLE[out.v_pu.dtype.name]
    ends = jnp.maximum(out.p_from_mw**2 + out.q_from_mvar**2, out.p_to_mw**2 + out.q_to_mvar**2)
    reactive = jnp.sum(jnp.where(params.slack, out.unit_reactive_mvar, 0))
    zero = jnp.zeros_like(out.p_loss_mw)
    return SolvedNetwork(
        p_mw=out.unit_power_mw,
        line_flow_mw=out.p_from_mw,
        loading_mva=jnp.sqrt(ends),
        vm_pu=out.v_pu,
        va_rad=out.angle_rad,
        loss_mw=out.p_loss_mw,
        p_slack_mw=net_injection(plan, params)[params.slack_bus],
        q_slack_mvar=reactive - (params.reactive_share * jnp.sum(plan.load_mw) - out.shed_mvar)[params.slack_bus],
        at_q_limit=jnp.zeros(out.v_pu.shape, jnp.int32),
        q_short_mvar=zero,
        unserved_mw=jnp.sum(out.shed_mw),
        surplus_mw=zero,
        residual=out.primal_residual,
        iterations=out.iterations,
        status=jnp.where(feasible, jnp.int32(Status.CONVERGED), jnp.int32(Status.OUT_OF_STEPS)),
    )
