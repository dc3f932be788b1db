"""Tasks out of dicts: a grid, devices, a reward and the agents, as `make_task_env` and YAML files take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from powerzoo_compat._apart import built_apart
from powerzoo_compat.powerzoo_api.envs.constraint import ConstraintSpec
from powerzoo_compat.powerzoo_api.envs.multi_agent import Dicts, MultiAgentTaskEnv
from powerzoo_compat.powerzoo_api.grids.config import DEFAULT_NAME, build_sim, has_many_agents
from powerzoo_compat.powerzoo_api.tasks.base import MultiAgentTask, SingleAgentTask, Task
from powerzoo_compat.powerzoo_api.tasks.rewards import RewardFn, get_reward_function
from powerzoo_compat.powerzoo_api.wrappers.agents import paid_by, unpaid
from powerzoo_compat.powerzoo_api.wrappers.flatten import RewardWrapper, TaskCMDPWrapper
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.envs.core import Sim

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
DEFAULT_REWARD = {"type": "zero"}
RLLIB = "rllib"


class Configured(Task):
    """Base of the tasks out of a config; `config` is the dict that a task is made of."""

    name = DEFAULT_NAME
    config: ClassVar[Mapping[str, Any]] = {}

    def build(self, split: str, **kwargs: Any) -> Sim:
        return built_apart(lambda: build_sim(self.config, split, **kwargs))

    def reward_function(self) -> RewardFn:
        """Reward function of the config."""
        return get_reward_function(self.config.get("reward", DEFAULT_REWARD))


class ConfigTask(Configured, SingleAgentTask):
    """A task with one agent out of a config."""

    description = "A grid and devices out of a config."

    def create_single_agent_env(self) -> Any:
        env: Any = super().create_single_agent_env()
        if "constraints" in self.config:
            env = TaskCMDPWrapper(env, ConstraintSpec(**_tuples(self.config["constraints"])))
        return RewardWrapper(env, self.reward_function())


class ConfigMultiAgentTask(Configured, MultiAgentTask):
    """A task with an agent for every device or every unit out of a config."""

    description = "A grid whose devices or units are agents, out of a config."

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
        return RewardedAgents(self._built, self.reward_function(), render_mode=self.render_mode)


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
    base: type[Configured] = ConfigMultiAgentTask if has_many_agents(config) else ConfigTask
    name = str(config.get("name", base.name))
    return type(f"Config_{name}", (base,), {"name": name, "config": dict(config)})


def _tuples(given: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    return {key: tuple(value) for key, value in given.items()}
