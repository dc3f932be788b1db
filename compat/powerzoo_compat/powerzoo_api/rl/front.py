"""Environments for learners: a task with its wrappers, in one call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from powerzoo_compat._textfile import TOML, YAML, read_file
from powerzoo_compat.powerzoo_api.rl.config import GRID, RLConfig
from powerzoo_compat.powerzoo_api.tasks.catalog import MULTI
from powerzoo_compat.powerzoo_api.tasks.factory import get_task_class, make_task_env
from powerzoo_compat.powerzoo_api.tasks.rewards import RewardFn, get_reward_function
from powerzoo_compat.powerzoo_api.wrappers.agents import NormalizeAgents, RewardAgents
from powerzoo_compat.powerzoo_api.wrappers.flatten import (
    ForecastWrapper,
    NormalizationWrapper,
    RewardWrapper,
    SafeRLWrapper,
    Wrapper,
)


class FirstSeed(Wrapper):
    """Environment whose first reset takes a given seed, unless it comes with one of its own."""

    def __init__(self, env: Any, seed: int) -> None:
        super().__init__(env)
        self._seed: int | None = seed

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        seed, self._seed = self._seed if seed is None else seed, None
        return self.env.reset(seed=seed, options=options)


def make_env(
    config: Any,
    *,
    split: str | None = None,
    framework: str | None = None,
    reward: Mapping[str, Any] | RewardFn | None = None,
    normalize: bool = False,
    forecast_horizon: int = 0,
    safe_rl: bool = False,
    cost_threshold: float | None = None,
    seed: int | None = None,
    **task_kwargs: Any,
) -> Any:
    """Build a task with its wrappers, in the order reward, forecast, normalisation, safety.

    config:            a task name, the path of a .yaml, .yml or .toml file, a dict or an RLConfig
    split:             None takes the config's, else train
    reward:            {"type": ..., parameters} or a function of (observation, info); info keeps `env_reward`
    normalize:         observations in [-1, 1] by their bounds, each agent's apart
    forecast_horizon:  steps of load forecast to append; single-agent tasks only, the others have an obs_mode for it
    safe_rl:           steps of six values with the scalar cost; agents find theirs in their infos anyway
    cost_threshold:    limit of that cost in an episode; None takes 1, within which every budget holds
    seed:              of the first reset of a single-agent task
    Raises ValueError for what is no config or cannot be built.

    Example:
        env = make_env("battery_arbitrage", normalize=True, reward={"type": "safety_only"})
    """
    given = resolve(config)
    task_kwargs = {**given.task_kwargs, **task_kwargs}
    if given.obs_mode is not None:
        task_kwargs.setdefault("obs_mode", given.obs_mode)
    env = make_task_env(given.task, split or given.split, framework or given.framework, **task_kwargs)
    chosen = reward if reward is not None else given.custom_reward_fn or given.reward
    ahead, scaled = forecast_horizon or given.forecast_horizon, normalize or given.normalize
    if get_task_class(given.task).agent_mode == MULTI:
        if ahead:
            raise ValueError(f"{given.task} has several agents: give obs_mode='local_plus_forecast' instead.")
        env = env if chosen is None else RewardAgents(env, get_reward_function(chosen))
        return NormalizeAgents(env) if scaled else env
    env = env if chosen is None else RewardWrapper(env, get_reward_function(chosen))
    env = ForecastWrapper(env, ahead) if ahead else env
    env = NormalizationWrapper(env) if scaled else env
    threshold = given.cost_threshold if cost_threshold is None else cost_threshold
    env = SafeRLWrapper(env, threshold) if safe_rl or given.safe_rl else env
    start = given.seed if seed is None else seed
    return env if start is None else FirstSeed(env, start)


def resolve(config: Any) -> RLConfig:
    """An RLConfig out of a task name, a path, a dict or itself. Raises ValueError for anything else."""
    if isinstance(config, RLConfig):
        return config
    if isinstance(config, str | Path) and Path(config).suffix in (TOML, *YAML):
        config = read_file(config)
    if isinstance(config, Mapping):
        return RLConfig(task_config=dict(config)) if GRID in config else RLConfig.from_dict(config)
    if isinstance(config, str):
        return RLConfig(task_name=get_task_class(config).name)
    raise ValueError(f"config must be a task name, a path, a dict or an RLConfig, got {type(config).__name__}.")
