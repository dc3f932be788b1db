"""Record of the joint family: what traces, stacks and views ask of a transmission grid with feeders below it."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jax import Array

from powerzoo_jax.envs.batch import factors_shared
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.family import Family
from powerzoo_jax.envs.surface import Stores, TaskSurface, soc_limits
from powerzoo_jax.envs.trace.names import case_of, network
from powerzoo_jax.envs.trace.readings import Readings, dc_flow, flow_of
from powerzoo_jax.envs.trace.types import TracedNetwork
from powerzoo_jax.families.feeder.family import feeder_readings, with_flows
from powerzoo_jax.families.joint.names import NAMES
from powerzoo_jax.families.transmission.family import units_surface

UPPER = "transmission"


def feeder_name(k: int) -> str:
    """Name of the k-th feeder of a joint task."""
    return f"feeder_{k + 1}"


def _read(sim: Sim, state: Any, action: Array, info: Any) -> Readings:
    env, params = sim.env, sim.params
    exogenous, flow = flow_of(dataclasses.replace(env, feeder=with_flows(env.feeder)), sim, state, action)
    found = {
        f"{UPPER}.{name}": value
        for name, value in {**dc_flow(params.grid, info.line_flow_mw), "bus_price_per_mwh": info.lmp}.items()
    }
    p_pu = exogenous.feeders[0]
    for k in range(env.n_feeder):
        one = jax.tree.map(lambda x, k=k: x[k], flow.feeders)
        below = feeder_readings(params.factors.feeder, one, p_pu[k], params.feeder.grid.base_mva)
        found |= {f"{feeder_name(k)}.{name}": value for name, value in below.items()}
    return found | {"unit_power_mw": info.unit_power_mw, "device_power_mw": info.battery_mw}


def _device_ids(sim: Sim) -> tuple[str, ...]:
    return tuple(sim.spec.agents)[sim.env.transmission.dims.unit :]


def _networks(sim: Sim) -> dict[str, TracedNetwork]:
    params, n_unit, ids = sim.params, sim.env.transmission.dims.unit, tuple(sim.spec.agents)
    found = {UPPER: network(params.grid, case_of(sim), ids[:n_unit], np.asarray(params.agent_bus)[:n_unit])}
    at = np.argmax(np.asarray(params.feeder.place_bus), axis=1)
    for k in range(sim.env.n_feeder):
        own = ids[n_unit + k * len(at) : n_unit + (k + 1) * len(at)]
        found[feeder_name(k)] = network(params.feeder.grid, None, own, at)
    return found


def _surface(sim: Sim) -> TaskSurface:
    env, params = sim.env, sim.params
    upper = units_surface(dataclasses.replace(sim, env=env.transmission, params=params.transmission))
    battery = np.ones((env.dims.agent - len(upper.low), env.dims.act))
    limits = (np.tile(limit, env.n_feeder) for limit in soc_limits(params.feeder.storage))
    return TaskSurface(
        np.concatenate([upper.low, -battery]),
        np.concatenate([upper.high, battery]),
        upper.series,
        Stores(sim.spec.agents[len(upper.low) :], *limits),
    )


JOINT = Family(
    name="joint",
    names=NAMES,
    read=_read,
    networks=_networks,
    device_ids=_device_ids,
    store_ids=_device_ids,
    shares_factors=lambda factors: factors_shared(factors.flow),
    surface=_surface,
)
