"""Readings of one step inside a compiled program: network, devices, money and actions.

Power follows the sign rule of `devices.protocol`: positive is injection into the bus.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base import Info, Step
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.families.feeder.env import DistributionEnv
from powerzoo_jax.families.joint.env import JointEnv
from powerzoo_jax.families.market.bidding import MarketEnv
from powerzoo_jax.families.market.storage import StorageMarketEnv
from powerzoo_jax.families.transmission.operator import TransGridEnv
from powerzoo_jax.families.transmission.operator_fleet import FleetGridEnv
from powerzoo_jax.families.transmission.units import TransmissionEnv
from powerzoo_jax.powerflow import FeederFactors

Readings = dict[str, Array]
"""name of a table -> its row of one step, (n,) or an array that ravels to it; the names of `Trace.tables`"""

BASE_INFO = frozenset(field.name for field in dataclasses.fields(Info))
PRICES = ("price_per_mwh", "mean_price", "lmp_bus")  # info fields that tell one price for the whole network


def read_step(sim: Sim, state: Any, action: Array, out: Step) -> Readings:
    """Measurements of the step that led from `state` by `action` to `out`; every table of a trace but the time.

    Families whose info holds no flows solve the network of the step once more, which a program without a trace does
    not pay for.
    """
    info, env = out.info, sim.env
    found: Readings = {"action": action, "reward": out.reward, "reward_term": info.terms, "cost": out.cost}
    for kind, read in READERS:
        if isinstance(env, kind):
            found |= read(sim, state, action, info)
    if hasattr(info, "soc") and jnp.size(info.soc):
        found["soc"] = info.soc
    for name in PRICES:
        if hasattr(info, name):
            found["price_per_mwh"] = getattr(info, name)
    scalars = [getattr(info, name) for name in scalar_names(info)]
    if scalars:
        found["info"] = jnp.stack([jnp.asarray(x, out.reward.dtype) for x in scalars])
    return {name: value for name, value in found.items() if value is not None and jnp.size(value)}


def scalar_names(info: Any) -> tuple[str, ...]:
    """Names of the numbers that a family reports beside the base info, one a step."""
    named = ((field.name, getattr(info, field.name)) for field in dataclasses.fields(info))
    steps = ((name, value) for name, value in named if name not in BASE_INFO and isinstance(value, jax.Array))
    return tuple(name for name, value in steps if value.ndim == 0)


def _flow_of(env: Any, sim: Sim, state: Any, action: Array) -> tuple[Any, Any]:
    """Injection and solved network of a step, by the first phases of the environment."""
    params = sim.params
    _, delivery = env.limit(state, env.decode(action, params), params)
    injection = env.dispatch(state, delivery, params)
    return injection, env.flow(injection, params)


def _with_flows(env: DistributionEnv) -> DistributionEnv:
    """The same feeder with the currents of its branches computed."""
    return dataclasses.replace(env, rated=True, head_rated=False)


def _at_feeder(factors: Any, flow: Any, p_pu: Array, base_mva: Array) -> Readings:
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


def _feeder(sim: Sim, state: Any, action: Array, info: Any) -> Readings:
    (p_pu, _), flow = _flow_of(_with_flows(sim.env), sim, state, action)
    found = _at_feeder(sim.params.factors, flow, p_pu, sim.params.grid.base_mva)
    return {**found, "device_power_mw": info.p_mw}


def _dc_flow(grid: Any, flow_mw: Array) -> Readings:
    """Flows (L,) [MW] without losses, and by Kirchhoff's current law the injection of every bus."""
    ends = jnp.zeros(grid.n_bus, flow_mw.dtype).at[grid.from_bus].add(flow_mw).at[grid.to_bus].add(-flow_mw)
    return {"branch_flow_mw": flow_mw, "branch_loading_mva": jnp.abs(flow_mw), "bus_injection_mw": ends}


def _market(sim: Sim, state: Any, action: Array, info: Any) -> Readings:
    _, cleared = _flow_of(sim.env, sim, state, action)
    found = _dc_flow(sim.params.grid, cleared.dispatch.line_flow_mw)
    found |= {"bus_price_per_mwh": info.lmp, "unit_power_mw": info.unit_power_mw}
    return found | ({"device_power_mw": info.realized_p_mw} if hasattr(info, "realized_p_mw") else {})


def _units(sim: Sim, state: Any, action: Array, info: Any) -> Readings:
    del state, action
    return {**_dc_flow(sim.params.grid, info.line_flow_mw), "unit_power_mw": info.unit_power_mw}


def _operator(sim: Sim, state: Any, action: Array, info: Any) -> Readings:
    del state, action
    found = {
        "branch_flow_mw": info.line_flow_mw,
        "branch_loading_mva": info.line_loading_mva,
        "unit_power_mw": info.unit_power_mw,
        "device_power_mw": info.p_mw if isinstance(sim.env, FleetGridEnv) else None,
    }
    if sim.env.physics == "ac":
        found["bus_voltage_pu"] = info.vm_pu
    else:
        found |= _dc_flow(sim.params.grid, info.line_flow_mw)
    if sim.env.solver_mode == "opf":
        found["bus_price_per_mwh"] = info.lmp
    return found


UPPER = "transmission"


def feeder_name(k: int) -> str:
    """Name of the k-th feeder of a joint task."""
    return f"feeder_{k + 1}"


def _joint(sim: Sim, state: Any, action: Array, info: Any) -> Readings:
    env, params = sim.env, sim.params
    exogenous, flow = _flow_of(dataclasses.replace(env, feeder=_with_flows(env.feeder)), sim, state, action)
    found = {
        f"{UPPER}.{name}": value
        for name, value in {**_dc_flow(params.grid, info.line_flow_mw), "bus_price_per_mwh": info.lmp}.items()
    }
    p_pu = exogenous.feeders[0]
    for k in range(env.n_feeder):
        one = jax.tree.map(lambda x, k=k: x[k], flow.feeders)
        below = _at_feeder(params.factors.feeder, one, p_pu[k], params.feeder.grid.base_mva)
        found |= {f"{feeder_name(k)}.{name}": value for name, value in below.items()}
    return found | {"unit_power_mw": info.unit_power_mw, "device_power_mw": info.battery_mw}


READERS: tuple[tuple[type, Callable[[Sim, Any, Array, Any], Readings]], ...] = (
    (DistributionEnv, _feeder),
    (MarketEnv, _market),
    (StorageMarketEnv, _market),
    (TransmissionEnv, _units),
    (TransGridEnv, _operator),
    (JointEnv, _joint),
)
"""Families and what is read from a step of theirs; another family shows its info alone"""


class TracedSteps(NamedTuple):
    """Steps of a lane with leading axis T, and what `read_step` has measured in each."""

    steps: Step
    readings: Readings
