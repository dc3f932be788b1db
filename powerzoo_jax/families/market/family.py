"""Record of the market family: units that bid against each other, and a battery that trades."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jax import Array

from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import Totals
from powerzoo_jax.envs.family import Family
from powerzoo_jax.envs.surface import Stores, TaskSurface, soc_limits
from powerzoo_jax.envs.trace.names import entry_ids, one_network
from powerzoo_jax.envs.trace.readings import Readings, dc_flow, flow_of
from powerzoo_jax.envs.trace.types import TracedNetwork
from powerzoo_jax.families.market.names import NAMES
from powerzoo_jax.families.market.storage import StorageMarketEnv
from powerzoo_jax.families.market.tasks.bidding import ALIASES, SHIFTS
from powerzoo_jax.families.transmission.tasks.series import DEMAND


def _read(sim: Sim, state: Any, action: Array, info: Any) -> Readings:
    _, cleared = flow_of(sim.env, sim, state, action)
    found = dc_flow(sim.params.grid, cleared.dispatch.line_flow_mw)
    return found | {"bus_price_per_mwh": info.lmp, "unit_power_mw": info.unit_power_mw}


def _read_battery(sim: Sim, state: Any, action: Array, info: Any) -> Readings:
    return {**_read(sim, state, action, info), "device_power_mw": info.realized_p_mw}


def _figures(sim: Sim, totals: Totals) -> Mapping[str, tuple[Any, Any]]:
    del sim
    one = np.ones(len(totals.total))
    return {
        "mean_lmp_per_mwh": (np.asarray(totals.price_per_mwh) / np.maximum(totals.length, 1), one),
        "consumer_cost_usd": (np.asarray(totals.consumer_usd), one),
    }


def _networks(sim: Sim) -> dict[str, TracedNetwork]:
    return one_network(sim, tuple(sim.spec.agents), np.asarray(sim.params.factors.unit_bus))


def _battery_networks(sim: Sim) -> dict[str, TracedNetwork]:
    return one_network(sim, tuple(sim.spec.agents), np.asarray(sim.params.battery_bus)[None])


def _action_ids(sim: Sim) -> tuple[str, ...]:
    return entry_ids(sim, [tuple(f"markup_{k + 1}" for k in range(sim.env.dims.act))] * len(sim.spec.agents))


def _surface(sim: Sim) -> TaskSurface:
    high = np.ones((sim.env.dims.agent, sim.env.dims.act))
    return TaskSurface(-high, high, (dict(sim.spec.overrides)["load_set"], DEMAND))


def _battery_surface(sim: Sim) -> TaskSurface:
    return _surface(sim)._replace(stores=Stores(sim.spec.agents, *soc_limits(sim.params.storage)))


MARKET = Family(
    name="market",
    names=NAMES,
    rivals=True,
    read=_read,
    figures=_figures,
    networks=_networks,
    action_ids=_action_ids,
    splits=(*SHIFTS, *ALIASES),
    surface=_surface,
    unit_fields=("unit_power_mw", "own_lmp", "profit_usd", "gen_cost_usd"),
    dc_flow=lambda spec: True,
    environments={
        StorageMarketEnv: {
            "rivals": False,
            "read": _read_battery,
            "figures": Family.figures,
            "networks": _battery_networks,
            "action_ids": None,
            "surface": _battery_surface,
            "unit_fields": (),
        }
    },
)
