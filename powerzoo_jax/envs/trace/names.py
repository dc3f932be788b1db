"""Names and units of the tables of a trace, and the networks that they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import jax
import numpy as np

from powerzoo_jax.cases import load_case
from powerzoo_jax.devices.fleet import storing
from powerzoo_jax.devices.registry import KINDS
from powerzoo_jax.envs.constraint import UNITS
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.family import family_of
from powerzoo_jax.envs.trace.readings import scalar_names
from powerzoo_jax.envs.trace.types import TracedNetwork

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
    "bus_second_voltage_pu": "pu",
    "branch_flow_mw": "MW",
    "branch_loading_percent": "%",
    "branch_from_busbar": "-",
    "branch_to_busbar": "-",
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
        ids = device_ids(sim)
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


def device_ids(sim: Sim) -> tuple[str, ...]:
    """Ids of the devices in the order of their powers: the agents where each commands one."""
    own = family_of(sim).device_ids
    if own is not None:
        return own(sim)
    layout, agents = getattr(sim.env, "layout", None), tuple(sim.spec.agents)
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
    layout, own = getattr(sim.env, "layout", None), family_of(sim).store_ids
    if layout is not None:
        devices, blocks = device_ids(sim), {block.kind: block for block in layout.table.blocks}
        ids = tuple(
            devices[unit] for kind in KINDS if kind in blocks and KINDS[kind].stores for unit in blocks[kind].units
        )
    else:
        ids = own(sim) if own else ()
    return ids if len(ids) == count else tuple(f"storage_{k}" for k in range(count))


def store_limits(sim: Sim) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Lowest and highest feasible states of charge (S,) [-] in the order of `_store_ids`; empty where none is told."""
    stacks, describe = storing(sim.params), family_of(sim).surface
    if not stacks and describe is not None:
        stacks = [describe(sim).stores]
    low, high = ([float(x) for stack in stacks for x in getattr(stack, name)] for name in ("soc_min", "soc_max"))
    return tuple(low), tuple(high)


def action_ids(sim: Sim) -> tuple[str, ...]:
    """Name of every entry of an action (A, U), row after row: "agent", or "agent.entry" where it has several."""
    own = family_of(sim).action_ids
    if own is not None:
        return own(sim)
    agents, width = sim.spec.agents, sim.env.dims.act
    return entry_ids(sim, [tuple(f"{k + 1}" for k in range(width))] * len(agents))


def entry_ids(sim: Sim, entries: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Names of all entries of actions where each agent has its own: (A,) lists of the same length."""
    agents = sim.spec.agents
    if sim.env.dims.act == 1:
        return tuple(agents)
    return tuple(f"{agent}.{entry}" for agent, own in zip(agents, entries, strict=True) for entry in own)


def layout_action_ids(sim: Sim) -> tuple[str, ...]:
    """Names of the entries of actions of a fleet, by its layout."""
    width, layout = sim.env.dims.act, sim.env.layout
    if not layout.per_device:
        names, devices = [f"entry_{k}" for k in range(width)], device_ids(sim)
        for block in layout.table.blocks:
            for unit, first in zip(block.units, block.first, strict=True):
                for k, entry in enumerate(block.names):
                    names[first + k] = devices[unit] if len(block.names) == 1 else f"{devices[unit]}.{entry}"
        return tuple(names)
    entries = [tuple(f"{k + 1}" for k in range(width))] * len(sim.spec.agents)
    for block in layout.table.blocks:
        padded = (*block.names, *(f"unused_{k}" for k in range(width - len(block.names))))
        for unit in block.units:
            entries[unit] = padded
    return entry_ids(sim, entries)


def networks_of(sim: Sim) -> dict[str, TracedNetwork]:
    """Networks of a task by the prefix of their tables, none for one on a single bus."""
    own = family_of(sim).networks
    if own is not None:
        return dict(own(sim))
    if not hasattr(getattr(sim.params, "grid", None), "from_bus"):
        return {}
    if hasattr(sim.params, "place_bus"):
        return one_network(sim, device_ids(sim), np.argmax(np.asarray(sim.params.place_bus), axis=1))
    case = case_of(sim)
    units = np.zeros(0, np.int64) if case is None else case.positions(case.unit.bus_id)
    return one_network(sim, _unit_ids(sim, len(units)), units)


def one_network(sim: Sim, ids: tuple[str, ...], at: np.ndarray) -> dict[str, TracedNetwork]:
    """The grid of a task as its only network, with what stands at positions `at` of its buses."""
    return {"": network(sim.params.grid, case_of(sim), ids, at)}


def case_of(sim: Sim) -> Any:
    """The case of a task; None where it is no shipped case or no file that can be read, or has other buses."""
    case = None
    with suppress(ValueError, OSError):  # a file that has moved since, a three-phase feeder
        case = load_case(dict(sim.spec.overrides).get("case") or sim.spec.case)
    return case if case is not None and case.n_bus == sim.params.grid.n_bus else None


def network(grid: Any, case: Any, ids: tuple[str, ...], at: np.ndarray) -> TracedNetwork:
    """A grid with the external ids of its case (None numbers the buses), and devices `ids` at positions `at`."""
    buses = range(1, grid.n_bus + 1) if case is None else case.bus.id.tolist()
    return TracedNetwork(
        bus_ids=tuple(map(str, buses)),
        from_bus=np.asarray(grid.from_bus),
        to_bus=np.asarray(grid.to_bus),
        in_service=np.asarray(grid.branch_mask),
        v_min_pu=np.asarray(grid.v_min, np.float64),
        v_max_pu=np.asarray(grid.v_max, np.float64),
        rate_mva=np.asarray(grid.rate, np.float64) * float(grid.base_mva),
        root=0 if case is None else int(case.slack_bus[0]),
        device_ids=ids,
        device_bus=np.asarray(at, np.int64),
    )
