"""Multi-agent tasks by name, for the views that present their agents through another interface."""

from __future__ import annotations

from typing import Any

from powerzoo_compat.powerzoo_api.tasks.factory import make_task_env
from powerzoo_compat.powerzoo_api.tasks.multi_agent import MultiAgentTaskEnv


def task_agents(task: str, split: str | None = None, **kwargs: Any) -> MultiAgentTaskEnv:
    """The adapter of a multi-agent task, built as `make_task_env` builds it.

    split:   None takes the default of `make_task_env`
    kwargs:  task keywords, and `render_mode`
    Raises ValueError for a task with one agent, else as `make_task_env`.
    """
    env = make_task_env(task, **kwargs) if split is None else make_task_env(task, split, **kwargs)
    if not isinstance(env, MultiAgentTaskEnv):
        raise ValueError(f"{task} has one agent. Use powerzoo.make_task_env({task!r}), a Gymnasium environment.")
    return env
