"""RLlib's new API stack: multi-agent tasks as its `MultiAgentEnv`.

Example:
    from powerzoo_compat import rllib_view
    from ray.rllib.algorithms.ppo import PPOConfig
    rllib_view.register_all()
    config = PPOConfig().environment("powerzoo/marl_der_arbitrage", env_config={"split": "train"})
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from powerzoo_jax.base.errors import missing_extra

try:
    from ray.tune.registry import register_env
except ImportError as err:
    raise ImportError(missing_extra("The view for RLlib", "ray", "rllib")) from err

from powerzoo_compat.powerzoo_api.envs.rllib import RLlibTaskEnv as RLlibTaskEnv
from powerzoo_compat.powerzoo_api.tasks.adapters import task_agents
from powerzoo_compat.powerzoo_api.tasks.factory import list_tasks

PREFIX = "powerzoo/"
TASK = "task"


def parallel_env(task: str, *, split: str | None = None, **kwargs: Any) -> RLlibTaskEnv:
    """A multi-agent task as RLlib's MultiAgentEnv.

    split:   None takes the task's default
    kwargs:  task keywords, and `render_mode`
    Raises ValueError for a task with one agent, else as `powerzoo.make_task_env`.
    """
    return task_agents(task, split, framework="rllib", **kwargs)  # type: ignore[return-value]


def env_creator(config: Mapping[str, Any]) -> RLlibTaskEnv:
    """Build the environment that an `env_config` describes: {"task": ..., "split": ..., task keywords}.

    Raises KeyError without a task, else as `parallel_env`.
    """
    given = dict(config)
    if TASK not in given:
        raise KeyError(f"env_config names no {TASK!r}. Give one of {', '.join(list_tasks(agent_mode='multi'))}.")
    return parallel_env(given.pop(TASK), **given)


def _task_creator(config: Mapping[str, Any], *, task: str) -> RLlibTaskEnv:
    return env_creator({**config, TASK: task})


def register_all() -> tuple[str, ...]:
    """Register every multi-agent task as "powerzoo/<task>" with RLlib, and return the names."""
    names = []
    for task in list_tasks(agent_mode="multi"):
        register_env(PREFIX + task, functools.partial(_task_creator, task=task))
        names.append(PREFIX + task)
    return tuple(names)
