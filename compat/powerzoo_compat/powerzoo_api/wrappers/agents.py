"""Wrappers over dicts by agent, for frameworks 'auto' and 'pettingzoo': each agent's observation and reward apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from powerzoo_compat.powerzoo_api.envs.multi_agent import CallableDict
from powerzoo_compat.powerzoo_api.wrappers.flatten import unit_box, within_bounds

Fn = Callable[[np.ndarray, dict[str, Any]], float]


class AgentsWrapper:
    """Base of wrappers over agents; subclasses change observations or rewards, everything else passes through."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"accessing private attribute {name!r} is prohibited")
        return getattr(self.env, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.env!r})"

    @property
    def unwrapped(self) -> Any:
        """The innermost environment."""
        return self.env.unwrapped

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Begin an episode."""
        obs, infos = self.env.reset(seed=seed, options=options)
        return self.seen(obs), infos

    def step(self, actions: Mapping[str, Any]) -> tuple[Any, ...]:
        """Advance one step."""
        obs, rewards, terminations, truncations, infos = self.env.step(actions)
        rewards, infos = self.earned(obs, rewards, infos)
        return self.seen(obs), rewards, terminations, truncations, infos

    def seen(self, obs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Observations after the wrapper."""
        return obs

    def earned(self, obs: dict[str, Any], rewards: dict[str, float], infos: dict[str, Any]) -> tuple[Any, Any]:
        """Rewards and infos after the wrapper."""
        return rewards, infos


class NormalizeAgents(AgentsWrapper):
    """Every agent's observation in [-1, 1], by its declared bounds."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        boxes = {agent: _space(env, agent) for agent in env.possible_agents}
        self._bounds = {agent: (box.low, box.high) for agent, box in boxes.items()}
        self.observation_spaces = CallableDict({agent: unit_box(box.low) for agent, box in boxes.items()})
        self.observation_space = self.observation_spaces

    def seen(self, obs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {agent: within_bounds(values, *self._bounds[agent]) for agent, values in obs.items()}


class RewardAgents(AgentsWrapper):
    """Every agent's reward replaced by a function of its observation and info; infos keep `env_reward`."""

    def __init__(self, env: Any, fn: Fn) -> None:
        super().__init__(env)
        self._fn = fn

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Begin an episode; `env_reward` is 0 before the first step."""
        obs, infos = super().reset(seed=seed, options=options)
        return obs, unpaid(infos)

    def earned(self, obs: dict[str, Any], rewards: dict[str, float], infos: dict[str, Any]) -> tuple[Any, Any]:
        return paid_by(self._fn, obs, rewards, infos)


def unpaid(infos: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Infos of a reset with the keys that `paid_by` adds to those of a step."""
    return {agent: info | {"env_reward": 0.0} for agent, info in infos.items()}


def paid_by(
    fn: Fn, obs: dict[str, Any], rewards: dict[str, float], infos: dict[str, dict[str, Any]]
) -> tuple[dict[str, float], dict[str, dict[str, Any]]]:
    """Rewards by a function of each agent's observation and info; infos keep `env_reward`."""
    told = {agent: info | {"env_reward": rewards[agent]} for agent, info in infos.items()}
    return {agent: float(fn(obs[agent], told[agent])) for agent in rewards}, told


def _space(env: Any, agent: str) -> Any:
    return env.observation_space(agent)
