"""Record of the feeder family: what traces, scores, stacks and views ask of a distribution feeder with devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import Step, TaskSpec
from powerzoo_jax.devices.fleet import soc_range, storing_kinds
from powerzoo_jax.devices.trips import events
from powerzoo_jax.devices.vehicle import episode_trips
from powerzoo_jax.envs.batch import equal_lanes
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import Tally, site_energy
from powerzoo_jax.envs.family import Family
from powerzoo_jax.envs.surface import NO_STORES, Stores, TaskSurface
from powerzoo_jax.envs.trace.names import layout_action_ids
from powerzoo_jax.envs.trace.readings import Readings, flow_of
from powerzoo_jax.families.feeder.env import DistributionEnv
from powerzoo_jax.families.feeder.names import NAMES
from powerzoo_jax.families.feeder.padding import align_feeders
from powerzoo_jax.families.feeder.tasks.vehicles import SESSIONS
from powerzoo_jax.families.feeder.types import DistributionInfo
from powerzoo_jax.families.feeder.unbalanced import UnbalancedEnv
from powerzoo_jax.powerflow import FeederFactors

READY = 1e-5  # of a vehicle's capacity, that rounding may leave missing at a departure


def with_flows(env: DistributionEnv) -> DistributionEnv:
    """The same feeder with the currents of its branches computed."""
    return dataclasses.replace(env, rated=True, head_rated=False)


def feeder_readings(factors: Any, flow: Any, p_pu: Array, base_mva: Array) -> Readings:
    """Voltages, flows and injections of a solved feeder."""
    found = {
        "bus_voltage_pu": flow.v_pu,
        "branch_flow_mw": flow.p_from * base_mva,
        "branch_loading_mva": jnp.hypot(flow.p_from, flow.q_from) * base_mva,
    }
    if isinstance(factors, FeederFactors):
        found["bus_injection_mw"] = (
            jnp.zeros(factors.n_bus, p_pu.dtype).at[factors.active].add(p_pu * base_mva, mode="drop")
        )
    return found


def _read(sim: Sim, state: Any, action: Array, info: Any) -> Readings:
    (p_pu, _), flow = flow_of(with_flows(sim.env), sim, state, action, stragglers=True)
    found = feeder_readings(sim.params.factors, flow, p_pu, sim.params.grid.base_mva)
    return {**found, "device_power_mw": info.p_mw}


def _tally(state: Any, out: Step, params: Any, dt_hours: float) -> Tally:
    info: DistributionInfo = out.info
    found = {"loss_mwh": info.p_loss_mw * dt_hours}
    if info.renewable is not None:
        found["curtailed_mwh"] = jnp.sum(info.renewable.curtailed_mwh)
    if info.flexload is not None:
        units = out.state.flexload
        found["shed_mwh"] = jnp.sum(units.curtail_mw) * dt_hours
        found["deferred_mwh"] = jnp.sum(units.shift_mw) * dt_hours
        found["returned_mwh"] = jnp.sum(units.return_mw) * dt_hours
    if info.vehicle is not None:
        found |= _vehicles(state, info, params.vehicle, dt_hours)
    if info.datacenter is not None:
        found |= site_energy(-info.datacenter.p_mw, out.state.datacenter.it_mw, dt_hours)
    return found


def _vehicles(state: Any, info: DistributionInfo, fleet: Any, dt_hours: float) -> Tally:
    """Departures, those with the charge that the driver expects, net cost of energy [$], and energy sold [MWh]."""
    trips, minutes = episode_trips(fleet, state.vehicle), round(dt_hours * 60)
    leaves = fleet.mask & events(trips, state.t * minutes, minutes).departs
    report = info.vehicle
    assert report is not None
    ready = leaves & (report.shortfall_mwh <= READY * fleet.capacity_mwh)
    count = report.p_mw.dtype
    return {
        "departures": jnp.sum(leaves, dtype=count),
        "ready_departures": jnp.sum(ready, dtype=count),
        "energy_cost_usd": -info.price_per_mwh * jnp.sum(report.p_mw) * dt_hours,
        "v2g_mwh": jnp.sum(jnp.maximum(report.p_mw, 0)) * dt_hours,
    }


def _align(sims: Sequence[Sim]) -> tuple[Any, list[Any]]:
    """Padded feeders of all lanes; three-phase ones must agree in size."""
    if isinstance(sims[0].env, UnbalancedEnv):
        return equal_lanes(sims)
    return align_feeders([sim.env for sim in sims], [sim.params for sim in sims])


def _data_sets(spec: TaskSpec) -> tuple[str, ...]:
    return (SESSIONS,) if "ev_bus_ids" in dict(spec.overrides) else ()


def _surface(sim: Sim) -> TaskSurface:
    layout, params = sim.env.layout, sim.params
    given = dict(sim.spec.overrides)
    low = np.full((sim.env.dims.agent, sim.env.dims.act), -1.0)
    high = -low
    for block in layout.table.blocks:
        for unit, first in zip(block.units, block.first, strict=True):
            row, column = (unit, 0) if layout.per_device else (0, first)
            low[row, column : column + len(block.names)] = block.low
            high[row, column : column + len(block.names)] = block.high
    if not layout.per_device and layout.kinds == ("storage",):
        # the contract has MW for an agent that commands batteries alone, [-1, 1] for every other one
        rating = np.asarray(params.storage.power_mw, float)[None]
        low, high = low * rating, high * rating
    column = given.get("load_column") or given["feeder_shapes"][0]
    return TaskSurface(low, high, (given["load_set"], column), _stores(sim))


def _stores(sim: Sim) -> Stores:
    kinds = [kind for kind in storing_kinds() if getattr(sim.params, kind) is not None]
    if not kinds:
        return NO_STORES
    blocks = {block.kind: block for block in sim.env.layout.table.blocks}
    units = [unit for kind in kinds for unit in blocks[kind].units]
    named = sim.env.layout.per_device
    ids = tuple(sim.spec.agents[unit] if named else f"battery_{k}" for k, unit in enumerate(units))
    stacks = [getattr(sim.params, kind) for kind in kinds]
    drawn = (np.array(x) for x in soc_range(sim.params))
    return Stores(ids, *drawn, *(np.concatenate([getattr(s, x) for s in stacks]) for x in ("soc_min", "soc_max")))


FEEDER = Family(
    name="feeder",
    names=NAMES,
    read=_read,
    tally=_tally,
    action_ids=layout_action_ids,
    align=_align,
    data_sets=_data_sets,
    surface=_surface,
    baselines="powerzoo_jax.families.feeder.plan.policies:FLEET",
    priced="powerzoo_jax.families.feeder.plan.priced:FeederPlans",
)
