"""Action bounds, calendar and stores of a task in physical units, which the arrays of its Sim do not hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from powerzoo_jax.data.manifest import TMY_SITES
from powerzoo_jax.devices.fleet import STORING, soc_range
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.families.microgrid.env import ACTIONS
from powerzoo_jax.families.microgrid.tasks.series import WEATHER_SET
from powerzoo_jax.families.transmission.tasks.series import DEMAND

Bounds = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Stores:
    """Devices with a state of charge: their ids, the range (S,) that a reset draws from and the feasible range (S,)."""

    ids: tuple[str, ...]
    soc_low: np.ndarray
    soc_high: np.ndarray
    soc_min: np.ndarray
    soc_max: np.ndarray


NO_STORES = Stores((), *(np.zeros(0, np.float32) for _ in range(4)))


@dataclass(frozen=True)
class Surface:
    """Host-side description of one task.

    low, high:  per agent (U_a,)  bounds of its action in the units of the contract
    series:     dataset and signal whose days the episodes start on
    stores:     devices with a state of charge
    """

    low: tuple[np.ndarray, ...]
    high: tuple[np.ndarray, ...]
    series: tuple[Any, str]
    stores: Stores


def surface_of(sim: Sim) -> Surface:
    """Host-side description of a task, by its family."""
    (low, high), series, stores = FAMILIES[sim.spec.family](sim)
    widths = np.asarray(sim.params.masks.act).sum(axis=1)
    rows = range(sim.env.dims.agent)
    return Surface(
        low=tuple(low[a, : widths[a]].astype(np.float32) for a in rows),
        high=tuple(high[a, : widths[a]].astype(np.float32) for a in rows),
        series=series,
        stores=stores,
    )


def _feeder(sim: Sim) -> tuple[Bounds, tuple[Any, str], Stores]:
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
    return (low, high), (given["load_set"], column), _stores(sim)


def _stores(sim: Sim) -> Stores:
    kinds = [kind for kind in STORING if getattr(sim.params, kind) is not None]
    if not kinds:
        return NO_STORES
    blocks = {block.kind: block for block in sim.env.layout.table.blocks}
    units = [unit for kind in kinds for unit in blocks[kind].units]
    named = sim.env.layout.per_device
    ids = tuple(sim.spec.agents[unit] if named else f"battery_{k}" for k, unit in enumerate(units))
    stacks = [getattr(sim.params, kind) for kind in kinds]
    drawn = (np.array(x) for x in soc_range(sim.params))
    return Stores(ids, *drawn, *(np.concatenate([getattr(s, x) for s in stacks]) for x in ("soc_min", "soc_max")))


def _microgrid(sim: Sim) -> tuple[Bounds, tuple[Any, str], Stores]:
    limits = _soc_limits(sim.params.storage)
    low, high = (np.array([[action[k] for action in ACTIONS]]) for k in (1, 2))
    site = dict(sim.spec.overrides).get("weather_site", TMY_SITES[0])
    return (low, high), (WEATHER_SET, f"weather.{site}_temperature_c"), Stores(("battery_0",), *limits)


def _transmission(sim: Sim) -> tuple[Bounds, tuple[Any, str], Stores]:
    env = sim.env
    shape = env.dims.agent, env.dims.act
    low = np.full(shape, -1.0 if env.single_agent else 0.0)
    high = np.ones(shape)
    if env.schedule:
        rules = sim.params.rules
        low[:, 0], high[:, 0] = np.asarray(rules.p_min_mw), np.asarray(rules.p_max_mw)
    return (low, high), (dict(sim.spec.overrides)["load_set"], DEMAND), NO_STORES


def _market(sim: Sim) -> tuple[Bounds, tuple[Any, str], Stores]:
    high = np.ones((sim.env.dims.agent, sim.env.dims.act))
    return (-high, high), (dict(sim.spec.overrides)["load_set"], DEMAND), NO_STORES


def _storage_market(sim: Sim) -> tuple[Bounds, tuple[Any, str], Stores]:
    bounds, series, _ = _market(sim)
    return bounds, series, Stores(sim.spec.agents, *_soc_limits(sim.params.storage))


def _soc_limits(fleet: Any) -> list[np.ndarray]:
    return [np.array(getattr(fleet, name)) for name in ("soc_low", "soc_high", "soc_min", "soc_max")]


def _joint(sim: Sim) -> tuple[Bounds, tuple[Any, str], Stores]:
    env, params = sim.env, sim.params
    upper = dataclasses.replace(sim, env=env.transmission, params=params.transmission)
    (low, high), series, _ = _transmission(upper)
    battery = np.ones((env.dims.agent - len(low), env.dims.act))
    limits = (np.tile(limit, env.n_feeder) for limit in _soc_limits(params.feeder.storage))
    bounds = np.concatenate([low, -battery]), np.concatenate([high, battery])
    return bounds, series, Stores(sim.spec.agents[len(low) :], *limits)


FAMILIES: dict[str, Callable[[Sim], tuple[Bounds, tuple[Any, str], Stores]]] = {
    "distribution": _feeder,
    "joint": _joint,
    "market": _market,
    "microgrid": _microgrid,
    "storage_market": _storage_market,
    "transgrid": _market,
    "transmission": _transmission,
}
