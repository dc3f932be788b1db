"""Names and units of the tables of a trace, and the networks that they belong to."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import jax
import numpy as np

from powerzoo_jax.cases import load_case
from powerzoo_jax.devices.registry import KINDS
from powerzoo_jax.envs.constraint import UNITS
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.trace.readings import UPPER, feeder_name, scalar_names
from powerzoo_jax.envs.trace.types import TracedNetwork
from powerzoo_jax.families.joint.env import JointEnv
from powerzoo_jax.families.market.bidding import MarketEnv
from powerzoo_jax.families.market.storage import StorageMarketEnv
from powerzoo_jax.families.microgrid.env import ACTIONS, MicrogridEnv
from powerzoo_jax.families.transmission.operator import TransGridEnv
from powerzoo_jax.families.transmission.units import TransmissionEnv

SUFFIXES = {
    "_per_mwh": "USD/MWh",
    "_price": "USD/MWh",
    "lmp_bus": "USD/MWh",
    "_gpu_h": "GPU h",
    "_mwh": "MWh",
    "_mvar": "Mvar",
    "_mw": "MW",
    "_pu": "pu",
    "_residual": "pu",
    "_usd": "USD",
    "_cost": "USD",
    "_kg": "kg",
    "_percent": "%",
    "t_outdoor": "degC",
    "t_zone": "degC",
    "_violations": "jobs",
}  # end of a scalar's name -> its unit
TABLE_UNITS = {
    "price_per_mwh": "USD/MWh",
    "bus_price_per_mwh": "USD/MWh",
    "bus_voltage_pu": "pu",
    "bus_injection_mw": "MW",
    "branch_flow_mw": "MW",
    "branch_loading_percent": "%",
    "unit_power_mw": "MW",
    "device_power_mw": "MW",
    "soc": "-",
    "action": "-",
}


def columns_of(
    sim: Sim, name: str, count: int, network: TracedNetwork | None, info: Any
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ids and units of the columns of a table."""
    spec = sim.spec
    if name == "cost":
        return tuple(spec.cost_names), tuple(UNITS.get(channel, "-") for channel in spec.cost_names)
    if name == "info":
        scalars = scalar_names(jax.tree.map(lambda x: x[0], info))
        return scalars, tuple(_unit_of(scalar) for scalar in scalars)
    if name == "reward_term":
        pairs = tuple(f"{agent}.{term}" for agent in spec.agents for term in spec.term_names)
        return pairs, ("-",) * count
    if name == "action":
        ids = action_ids(sim)
    elif name == "reward":
        ids = tuple(spec.agents)
    elif name == "price_per_mwh":
        ids = ("price",)
    elif name.startswith("bus_") and network is not None:
        ids = network.bus_ids
    elif name.startswith("branch_") and network is not None:
        ends = zip(network.from_bus, network.to_bus, strict=True)
        ids = tuple(f"{k + 1}: {network.bus_ids[a]}-{network.bus_ids[b]}" for k, (a, b) in enumerate(ends))
    elif name == "device_power_mw":
        ids = _device_ids(sim)
    elif name == "soc":
        ids = _store_ids(sim, count)
    else:
        ids = _unit_ids(sim, count)
    reward = "USD" if set(spec.term_weights) == {1.0} else "-"
    return ids, (TABLE_UNITS.get(name, reward),) * count


def _unit_of(scalar: str) -> str:
    return next((unit for end, unit in SUFFIXES.items() if scalar.endswith(end)), "-")


def _unit_ids(sim: Sim, count: int) -> tuple[str, ...]:
    """Ids of the units of a transmission grid or market."""
    agents = sim.spec.agents
    return tuple(agents) if len(agents) == count else tuple(f"unit_{k}" for k in range(count))


def _device_ids(sim: Sim) -> tuple[str, ...]:
    """Ids of the devices in the order of their powers: the agents where each commands one."""
    env, agents = sim.env, tuple(sim.spec.agents)
    if isinstance(env, JointEnv):
        return agents[env.transmission.dims.unit :]
    layout = getattr(env, "layout", None)
    count = 0 if layout is None else sum(len(block.units) for block in layout.table.blocks)
    if layout is None or len(agents) == count:
        return agents
    names = [""] * count
    for block in layout.table.blocks:
        for k, unit in enumerate(block.units):
            names[unit] = f"{block.kind}_{k}"
    return tuple(names)


def _store_ids(sim: Sim, count: int) -> tuple[str, ...]:
    """Ids of what stores energy, kind after kind as `fleet.charge_of` lists it."""
    layout = getattr(sim.env, "layout", None)
    if layout is not None:
        devices, blocks = _device_ids(sim), {block.kind: block for block in layout.table.blocks}
        ids = tuple(
            devices[unit] for kind in KINDS if kind in blocks and KINDS[kind].stores for unit in blocks[kind].units
        )
    else:
        ids = _device_ids(sim) if isinstance(sim.env, JointEnv) else ()
    return ids if len(ids) == count else tuple(f"storage_{k}" for k in range(count))


def action_ids(sim: Sim) -> tuple[str, ...]:
    """Name of every entry of an action (A, U), row after row: "agent", or "agent.entry" where it has several."""
    env, agents, width = sim.env, sim.spec.agents, sim.env.dims.act
    n_unit = env.dims.unit
    if isinstance(env, MicrogridEnv):
        return tuple(name for name, _, _ in ACTIONS)
    layout = getattr(env, "layout", None)
    if layout is not None and not layout.per_device:
        names, devices = [f"entry_{k}" for k in range(width)], _device_ids(sim)
        for block in layout.table.blocks:
            for unit, first in zip(block.units, block.first, strict=True):
                for k, entry in enumerate(block.names):
                    names[first + k] = devices[unit] if len(block.names) == 1 else f"{devices[unit]}.{entry}"
        return tuple(names)
    if isinstance(env, TransGridEnv):
        switches = (f"switch_{k}.closed" for k in range(width - n_unit))
        return (*(f"unit_{k}.place" for k in range(n_unit)), *switches)
    if isinstance(env, TransmissionEnv) and env.single_agent:
        return tuple(f"unit_{k}.{entry}" for entry in ("on", "score") for k in range(n_unit))
    if width == 1:
        return tuple(agents)
    entries = [tuple(f"{k + 1}" for k in range(width))] * len(agents)
    if isinstance(env, MarketEnv):
        entries = [tuple(f"markup_{k + 1}" for k in range(width))] * len(agents)
    elif isinstance(env, TransmissionEnv):
        entries = [("schedule" if env.schedule else "score", "on")] * len(agents)
    elif layout is not None:
        for block in layout.table.blocks:
            padded = (*block.names, *(f"unused_{k}" for k in range(width - len(block.names))))
            for unit in block.units:
                entries[unit] = padded
    return tuple(f"{agent}.{entry}" for agent, own in zip(agents, entries, strict=True) for entry in own)


def networks_of(sim: Sim) -> dict[str, TracedNetwork]:
    """Networks of a task, none for one on a single bus."""
    env, params = sim.env, sim.params
    if not hasattr(getattr(params, "grid", None), "from_bus"):
        return {}
    case = _case_of(sim)
    if isinstance(env, JointEnv):
        n_unit, ids = env.transmission.dims.unit, tuple(sim.spec.agents)
        found = {UPPER: _network(params.grid, case, ids[:n_unit], np.asarray(params.agent_bus)[:n_unit])}
        at = np.argmax(np.asarray(params.feeder.place_bus), axis=1)
        for k in range(env.n_feeder):
            own = ids[n_unit + k * len(at) : n_unit + (k + 1) * len(at)]
            found[feeder_name(k)] = _network(params.feeder.grid, None, own, at)
        return found
    if hasattr(params, "place_bus"):
        return {"": _network(params.grid, case, _device_ids(sim), np.argmax(np.asarray(params.place_bus), axis=1))}
    if isinstance(env, StorageMarketEnv):
        return {"": _network(params.grid, case, tuple(sim.spec.agents), np.asarray(params.battery_bus)[None])}
    if isinstance(env, MarketEnv):
        return {"": _network(params.grid, case, tuple(sim.spec.agents), np.asarray(params.factors.unit_bus))}
    units = np.zeros(0, np.int64) if case is None else case.positions(case.unit.bus_id)
    return {"": _network(params.grid, case, _unit_ids(sim, len(units)), units)}


def _case_of(sim: Sim) -> Any:
    """The case of a task; None where it is no shipped case or no file that can be read, or has other buses."""
    case = None
    with suppress(ValueError, OSError):  # a file that has moved since, a three-phase feeder
        case = load_case(dict(sim.spec.overrides).get("case") or sim.spec.case)
    return case if case is not None and case.n_bus == sim.params.grid.n_bus else None


def _network(grid: Any, case: Any, device_ids: tuple[str, ...], device_bus: np.ndarray) -> TracedNetwork:
    ids = range(1, grid.n_bus + 1) if case is None else case.bus.id.tolist()
    return TracedNetwork(
        bus_ids=tuple(map(str, ids)),
        from_bus=np.asarray(grid.from_bus),
        to_bus=np.asarray(grid.to_bus),
        in_service=np.asarray(grid.branch_mask),
        v_min_pu=np.asarray(grid.v_min, np.float64),
        v_max_pu=np.asarray(grid.v_max, np.float64),
        rate_mva=np.asarray(grid.rate, np.float64) * float(grid.base_mva),
        root=0 if case is None else int(case.slack_bus[0]),
        device_ids=device_ids,
        device_bus=np.asarray(device_bus, np.int64),
    )
