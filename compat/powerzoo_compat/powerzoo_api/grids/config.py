"""Tasks out of dicts: a grid, devices, a reward and the agents, as `make_task_env` and YAML files take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from powerzoo_compat.powerzoo_api.envs.resources import ResourceEnv, create_resource
from powerzoo_compat.powerzoo_api.grids.build import Roles, feeder_sim, three_phase_sim, transgrid_sim
from powerzoo_compat.powerzoo_api.grids.cases import core_name
from powerzoo_compat.powerzoo_api.grids.envs import GRID_TYPES, GridEnv
from powerzoo_compat.powerzoo_api.tasks.base import ConstraintSpec, MultiAgentTask, SingleAgentTask, Task
from powerzoo_compat.powerzoo_api.tasks.multi_agent import Dicts, MultiAgentTaskEnv
from powerzoo_compat.powerzoo_api.tasks.rewards import RewardFn, get_reward_function
from powerzoo_compat.powerzoo_api.wrappers.agents import paid_by, unpaid
from powerzoo_compat.powerzoo_api.wrappers.flatten import RewardWrapper, TaskCMDPWrapper
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.tasks import make

SECTIONS: dict[str, tuple[str, ...] | None] = {
    "name": None,
    "grid": None,  # `type`, and the keywords of the grid
    "resources": None,  # a list, or a dict by id
    "reward": None,
    "episode": ("max_steps", "max_episode_steps", "delta_t_minutes"),
    "agents": ("agent_mode", "agent_type"),
    "observation": ("mode", "obs_mode", "forecast_horizon_steps"),
    "action": (),
    "constraints": ("selected_names", "thresholds", "fallback_weights"),
    "data": ("source", "start_date", "end_date"),
}
AGENT_MODES, AGENT_TYPES = ("single", "multi"), ("unit", "resource")
DEFAULT_REWARD = {"type": "zero"}
RLLIB = "rllib"
UNITS_TASK = "marl_opf"  # whose rules units follow that are agents


class ConfigTask(SingleAgentTask):
    """A task with one agent out of a config; `config` is the dict that it was made of."""

    name = "config"
    description = "A grid and devices out of a config."
    config: ClassVar[Mapping[str, Any]] = {}

    def build(self, split: str, **kwargs: Any) -> Sim:
        return build_sim(self.config, split, **kwargs)

    def create_single_agent_env(self) -> Any:
        env: Any = super().create_single_agent_env()
        if "constraints" in self.config:
            env = TaskCMDPWrapper(env, ConstraintSpec(**_tuples(self.config["constraints"])))
        return RewardWrapper(env, get_reward_function(self.config.get("reward", DEFAULT_REWARD)))


class ConfigMultiAgentTask(MultiAgentTask):
    """A task with an agent for every device or every unit out of a config; see `ConfigTask`."""

    name = "config"
    description = "A grid whose devices or units are agents, out of a config."
    config: ClassVar[Mapping[str, Any]] = {}

    def build(self, split: str, **kwargs: Any) -> Sim:
        return build_sim(self.config, split, **kwargs)

    @classmethod
    def check_framework(cls, framework: str) -> None:
        super().check_framework(framework)
        if framework == RLLIB:
            raise ValueError(
                f"{cls.name} comes out of a config: its reward is not RLlib's. Use 'auto' or 'pettingzoo'."
            )

    def create_env(self, framework: str = "auto") -> Any:
        return super().create_env(framework) if framework == "pettingzoo" else self.create_multi_agent_env()

    def create_multi_agent_env(self) -> MultiAgentTaskEnv:
        reward = get_reward_function(self.config.get("reward", DEFAULT_REWARD))
        return RewardedAgents(self.sim, reward, render_mode=self.render_mode)


class RewardedAgents(MultiAgentTaskEnv):
    """A task whose agents are paid by a function of their observation and info; infos keep `env_reward`."""

    def __init__(self, sim: Sim, reward: RewardFn, *, render_mode: str | None = None) -> None:
        super().__init__(sim, render_mode=render_mode)
        self._reward = reward

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
        obs, infos = super().reset(seed=seed, options=options)
        return obs, unpaid(infos)

    def step(self, actions: Mapping[str, Any]) -> Dicts:
        obs, rewards, terminations, truncations, infos = super().step(actions)
        rewards, infos = paid_by(self._reward, obs, rewards, infos)
        return obs, rewards, terminations, truncations, infos


def config_class(config: Mapping[str, Any]) -> type[Task]:
    """The class of a config's task. Raises ValueError for an unknown section, key or value, naming the nearest."""
    for section, content in config.items():
        if section not in SECTIONS:
            raise ValueError(unknown("section of a task's config", str(section), SECTIONS))
        keys = SECTIONS[section]
        if keys is not None:
            for key in content or ():
                if key not in keys:
                    raise ValueError(unknown(f"key of section {section!r}", str(key), keys))
    base = ConfigMultiAgentTask if _is_multi(config) else ConfigTask
    name = str(config.get("name", base.name))
    return type(f"Config_{name}", (base,), {"name": name, "config": dict(config)})


def _is_multi(config: Mapping[str, Any]) -> bool:
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
    keywords |= {"name": str(config.get("name", ConfigTask.name))} | kwargs
    devices = []
    for device, bus in devices_of(config).values():
        device.bus_id = bus
        devices.append(device)
    seen = dict(config.get("observation") or {})
    mode = obs_mode or seen.get("mode") or seen.get("obs_mode")
    try:
        if _is_multi(config):
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


def _tuples(given: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    return {key: tuple(value) for key, value in given.items()}
