"""Readings of one step inside a compiled program: network, devices, money and actions.

Power follows the sign rule of `devices.protocol`: positive is injection into the bus.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base import Info, Step
from powerzoo_jax.base.solver_mode import one_form
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.family import family_of

Readings = dict[str, Array]
"""name of a table -> its row of one step, (n,) or an array that ravels to it; the names of `Trace.tables`"""

BASE_INFO = frozenset(field.name for field in dataclasses.fields(Info))
PRICES = ("price_per_mwh", "mean_price", "lmp_bus")  # info fields that tell one price for the whole network


def read_step(sim: Sim, state: Any, action: Array, out: Step) -> Readings:
    """Measurements of the step that led from `state` by `action` to `out`; every table of a trace but the time.

    Families whose info holds no flows solve the network of the step once more, which a program without a trace does
    not pay for.
    """
    info = out.info
    found: Readings = {"action": action, "reward": out.reward, "reward_term": info.terms, "cost": out.cost}
    if not hasattr(sim.env, "env"):  # an environment around another one has states of its own
        found |= family_of(sim).read(sim, state, action, info)
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


def flow_of(env: Any, sim: Sim, state: Any, action: Array, **how: bool) -> tuple[Any, Any]:
    """Injection and solved network of a step, by the first phases of the environment; `how` goes to its `flow`."""
    params = sim.params
    with one_form(env.solver):
        _, delivery = env.limit(state, env.decode(action, params), params)
        injection = env.dispatch(state, delivery, params)
        return injection, env.flow(injection, params, **how)


def dc_flow(grid: Any, flow_mw: Array) -> Readings:
    """Flows (L,) [MW] without losses, and by Kirchhoff's current law the injection of every bus."""
    ends = jnp.zeros(grid.n_bus, flow_mw.dtype).at[grid.from_bus].add(flow_mw).at[grid.to_bus].add(-flow_mw)
    return {"branch_flow_mw": flow_mw, "branch_loading_mva": jnp.abs(flow_mw), "bus_injection_mw": ends}


class TracedSteps(NamedTuple):
    """Steps of a lane with leading axis T, and what `read_step` has measured in each."""

    steps: Step
    readings: Readings
