"""Grids and simulations out of dicts: a grid, its devices and its agents, as task configs and YAML files hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from powerzoo_compat.powerzoo_api.envs.resources import ResourceEnv, create_resource
from powerzoo_compat.powerzoo_api.grids.build import Roles, feeder_sim, three_phase_sim, transgrid_sim
from powerzoo_compat.powerzoo_api.grids.cases import core_name
from powerzoo_compat.powerzoo_api.grids.envs import GRID_TYPES, GridEnv
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.tasks import make

AGENT_MODES, AGENT_TYPES = ("single", "multi"), ("unit", "resource")
DEFAULT_NAME = "config"
UNITS_TASK = "marl_opf"  # whose rules units follow that are agents


def has_many_agents(config: Mapping[str, Any]) -> bool:
    """True where units or devices are agents of their own. Raises ValueError for an unknown mode or type."""
    agents = config.get("agents") or {}
    for key, valid in (("agent_mode", AGENT_MODES), ("agent_type", AGENT_TYPES)):
        if key in agents and agents[key] not in valid:
            raise ValueError(unknown(key, str(agents[key]), valid))
    return agents.get("agent_mode") == "multi" or ("agent_mode" not in agents and "agent_type" in agents)


def grid_keywords(config: Mapping[str, Any], split: str = "train") -> tuple[str, dict[str, Any]]:
    """(grid type, keywords of the grid) out of the sections grid, episode and data."""
    grid = dict(config.get("grid") or {})
    kind = str(grid.pop("type", None))
    if kind not in GRID_TYPES:
        raise ValueError(unknown("grid type", kind, GRID_TYPES))
    episode, data = dict(config.get("episode") or {}), dict(config.get("data") or {})
    if "max_steps" in episode:
        episode["max_episode_steps"] = episode.pop("max_steps")
    if "source" in data:
        data["data_source"] = data.pop("source")
    return kind, {"split": split, **grid, **episode, **data}


def devices_of(config: Mapping[str, Any]) -> dict[str, tuple[ResourceEnv, Any]]:
    """(device, bus) by id out of the section resources."""
    given = config.get("resources") or []
    named = given.items() if isinstance(given, Mapping) else ((item.get("name"), item) for item in given)
    found: dict[str, tuple[ResourceEnv, Any]] = {}
    for name, item in named:
        device, bus = create_resource(item)
        count = sum(other.stem == device.stem for other, _ in found.values())
        chosen = str(name) if name else f"{device.stem}_{count}"
        if chosen in found:
            raise ValueError(f"two resources are called {chosen!r}. Give each a name of its own.")
        found[chosen] = device, bus
    return found


def create_grid(config: Mapping[str, Any]) -> GridEnv:
    """A grid with its devices out of a config. Raises ValueError for an unknown key or value."""
    kind, keywords = grid_keywords(config)
    try:
        grid = GRID_TYPES[kind](**keywords)
    except TypeError as err:  # a key of a file is data
        raise ValueError(str(err)) from err
    for name, (device, bus) in devices_of(config).items():
        grid.register_resource(device, bus, name)
    return grid


def build_sim(config: Mapping[str, Any], split: str, obs_mode: str | None = None, **kwargs: Any) -> Sim:
    """The simulation of a config on a split; kwargs replace keywords of its grid."""
    kind, keywords = grid_keywords(config, split)
    keywords |= {"name": str(config.get("name", DEFAULT_NAME))} | kwargs
    devices = []
    for device, bus in devices_of(config).values():
        device.bus_id = bus
        devices.append(device)
    seen = dict(config.get("observation") or {})
    mode = obs_mode or seen.get("mode") or seen.get("obs_mode")
    try:
        if has_many_agents(config):
            return _agents_sim(config, kind, devices, keywords, mode, seen)
        if mode not in (None, "flattened"):
            raise ValueError(unknown("obs_mode of a task with one agent", mode, ("flattened",)))
        if kind == "transmission":
            if devices:
                raise ValueError("a transmission grid takes no devices. Use a feeder, or CostBasedMarketEnv.")
            return transgrid_sim(**keywords)
        return (feeder_sim if kind == "distribution" else three_phase_sim)(devices, **keywords)
    except TypeError as err:  # a key of a config is data
        raise ValueError(str(err)) from err


def _agents_sim(
    config: Mapping[str, Any],
    kind: str,
    devices: list[ResourceEnv],
    keywords: dict[str, Any],
    mode: str | None,
    seen: dict[str, Any],
) -> Sim:
    """The same with many agents: the units of a transmission grid, or the devices of a balanced feeder."""
    ahead = {"forecast_horizon_steps": seen["forecast_horizon_steps"]} if "forecast_horizon_steps" in seen else {}
    if kind == "transmission":
        if devices or (config.get("agents") or {}).get("agent_type") == "resource":
            raise ValueError("agents of a transmission grid are its units. Leave out resources, or take a feeder.")
        keywords.pop("name")
        if "max_episode_steps" in keywords:
            keywords["max_steps"] = keywords.pop("max_episode_steps")
        if "case" in keywords:
            keywords["case"] = core_name(keywords["case"])
        return make(UNITS_TASK, **({} if mode is None else {"obs_mode": mode}) | ahead | keywords)
    if kind != "distribution":
        raise ValueError("agents of their own have the devices of a balanced feeder. Choose type 'distribution'.")
    if not devices:
        raise ValueError("agents are devices here, and there are none. Fill the section resources.")
    return feeder_sim(devices, roles=Roles(mode, *ahead.values()), **keywords)
