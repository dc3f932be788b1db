"""Environments of task objects under the names of the contract; one adapter serves every family of agents."""

from __future__ import annotations

from typing import Any

from powerzoo_compat.powerzoo_api.envs.multi_agent import MultiAgentTaskEnv
from powerzoo_compat.powerzoo_api.tasks.base import Task
from powerzoo_compat.powerzoo_api.tasks.catalog import MULTI
from powerzoo_compat.powerzoo_api.tasks.factory import make_task, make_task_env

TaskOPFMultiAgentEnv = TaskUCMultiAgentEnv = TaskResourceMultiAgentEnv = TaskEVMultiAgentEnv = MultiAgentTaskEnv


def create_task_env(task: Task | str, framework: str = "auto", **kwargs: Any) -> Any:
    """Environment of a task object, or of a name with the keywords of `make_task`."""
    return _task(task, kwargs).create_env(framework)


def create_multi_agent_env(task: Task | str, **kwargs: Any) -> MultiAgentTaskEnv:
    """Adapter of a task with several agents. Raises ValueError for one agent."""
    made = _task(task, kwargs)
    if made.agent_mode != MULTI:
        raise ValueError(f"{made.name} has one agent. Use create_task_env.")
    return made.create_multi_agent_env()  # type: ignore[attr-defined]


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


def _task(task: Task | str, kwargs: dict[str, Any]) -> Task:
    if not isinstance(task, Task):
        return make_task(task, **kwargs)
    if kwargs:
        raise TypeError(f"a task object has its keywords already: {', '.join(kwargs)}. Give them to make_task.")
    return task
