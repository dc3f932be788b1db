"""Tasks by name: lists, classes, objects and environments."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from powerzoo_compat.powerzoo_api.tasks.base import MultiAgentTask, SingleAgentTask, Task
from powerzoo_compat.powerzoo_api.tasks.cards import card_of
from powerzoo_compat.powerzoo_api.tasks.catalog import (
    AGENT_MODES,
    ALIASES,
    ATOMIC,
    DIFFICULTIES,
    DROP_IN,
    PUBLIC_TASKS,
)
from powerzoo_compat.powerzoo_api.tasks.classes import BUILT_IN
from powerzoo_compat.powerzoo_api.tasks.registration import register_central_ids, register_grid_ids, register_ids
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.types import TaskSpec
from powerzoo_jax.tasks import get_spec, list_presets
from powerzoo_jax.tasks import list_tasks as list_core_tasks

CLASSES = 256  # kept for tasks of the core without one of their own, more than it has

_TASKS: dict[str, type[Task]] = {}


def register_task(name: str, cls: type[Task], force: bool = False) -> None:
    """Add a task to the registry, under the name that its class bears.

    Raises TypeError for what is no subclass of Task, ValueError for a name that is taken (unless `force`) or that
    differs from the class's own.
    """
    if not (isinstance(cls, type) and issubclass(cls, Task)):
        raise TypeError(f"cls must be a subclass of Task, got {cls!r}. Derive from SingleAgentTask or MultiAgentTask.")
    if getattr(cls, "name", None) != name:
        raise ValueError(f"the class is called {getattr(cls, 'name', None)!r}, not {name!r}. Set its attribute `name`.")
    if name in _TASKS and not force:
        raise ValueError(f"task {name!r} is registered already. Choose another name, or give force=True.")
    _TASKS[name] = cls


def get_task_class(name: str | Mapping[str, Any]) -> type[Task]:
    """Class of a task, of its short name or of a config.

    Raises ValueError naming the nearest task or key, TypeError for neither string nor dict.
    """
    if isinstance(name, Mapping):
        from powerzoo_compat.powerzoo_api.tasks.config import config_class

        return config_class(name)
    if not isinstance(name, str):
        raise TypeError(f"name must be the id of a task or a config, got {type(name).__name__}. See list_tasks().")
    full = ALIASES.get(name, name)
    if full in _TASKS:
        return _TASKS[full]
    # presets, and what the core was told of since by `powerzoo_jax.register`
    if full in list_presets() or full in list_core_tasks():
        return _plain_class(get_spec(full))
    raise ValueError(unknown("task", name, _TASKS))


def make_task(name: str | Mapping[str, Any], split: str = "train", **kwargs: Any) -> Task:
    """Build a task object; keywords and errors as `make_task_env`."""
    return get_task_class(name)(split, **kwargs)


def make_task_env(
    name: str | Mapping[str, Any],
    split: str = "train",
    framework: str = "auto",
    obs_mode: str | None = None,
    **kwargs: Any,
) -> Any:
    """Build the environment of a task.

    name:       see `list_tasks`; "tso" is short for comparison_tso_centralized; or a dict of grid, devices and reward,
                see `grid_config`
    split:      train, val, test or a named split of the task
    framework:  "auto" or "gymnasium" for single-agent tasks (a Gymnasium env), "auto" (dicts by agent) or "pettingzoo"
                (a ParallelEnv) for multi-agent tasks
    obs_mode:   observation mode of a multi-agent task, None or "flattened" for the others; `observation_mode` is an
                alias
    kwargs:     task keywords, and `render_mode`

    Raises ValueError for an unknown or unsupported name, split, framework or mode, or an unusable window, TypeError
    for an unknown keyword, ImportError for a framework that is not installed; each names the valid values and the
    nearest one.

    Example:
        env = make_task_env("battery_arbitrage", split="train")
        obs, info = env.reset(seed=0)
        obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
    """
    cls = get_task_class(name)
    cls.check_framework(framework)
    return cls(split, obs_mode, **kwargs).create_env(framework)


def make_task_vec_env(name: str, num_envs: int, split: str = "train", **kwargs: Any) -> Any:
    """Build many lanes of a single-agent task as a Gymnasium VectorEnv with the action box of the contract."""
    from powerzoo_compat.powerzoo_api.envs.vector import make_vec_env

    return make_vec_env(get_task_class(name).name, num_envs, split=split, unit_actions=False, **kwargs)


def get_public_task_info(name: str) -> dict[str, Any]:
    """Card of a public task. Raises ValueError for another name, naming the nearest task."""
    card = get_task_info(name)
    if not card["public"]:
        raise ValueError(f"{name} is registered, not public. Public tasks: {', '.join(PUBLIC_TASKS)}.")
    return card


def get_public_task_catalog(difficulty: str | None = None) -> list[dict[str, Any]]:
    """Cards of the public tasks, in their order, all or those of a difficulty."""
    return [get_public_task_info(name) for name in list_public_tasks(difficulty)]


def get_task_info(name: str) -> dict[str, Any]:
    """Card of any registered task or short name; a fresh copy that `json.dumps` takes."""
    return card_of(get_task_class(name))


def list_atomic_tasks() -> list[str]:
    """Sorted ids of the presets that validate one device on one feeder each; they have no budgets."""
    return [name for name in list_presets() if name.startswith(ATOMIC)]


def make_atomic_task_env(name: str, split: str = "test", **kwargs: Any) -> Any:
    """Build an atomic preset, with or without "atomic_" before its name; keywords and errors as `make_task_env`."""
    return make_task_env(name if name.startswith(ATOMIC) else ATOMIC + name, split, **kwargs)


def list_public_tasks(difficulty: str | None = None) -> list[str]:
    """Ids of the public benchmark set, in its order, all or those of a difficulty."""
    wanted = set(list_tasks(difficulty))
    return [task for task in PUBLIC_TASKS if task in wanted]


def list_tasks(difficulty: str | None = None, agent_mode: str | None = None) -> list[str]:
    """Sorted ids of the tasks, all or those of a difficulty or an agent mode ("single", "multi").

    Raises ValueError for an unknown difficulty or agent mode.
    """
    for kind, value, valid in (
        ("difficulty", difficulty, DIFFICULTIES),
        ("agent mode", agent_mode, AGENT_MODES),
    ):
        if value is not None and value not in valid:
            raise ValueError(unknown(kind, value, valid))
    return sorted(
        name
        for name, cls in _TASKS.items()
        if difficulty in (None, cls.difficulty) and agent_mode in (None, cls.agent_mode)
    )


@functools.lru_cache(maxsize=CLASSES)  # the same class at every call, whose card is then made once
def _plain_class(spec: TaskSpec) -> type[Task]:
    """Class of a task of the core that has none of its own here."""
    base = SingleAgentTask if len(spec.agents) == 1 else MultiAgentTask
    return type(f"Task_{spec.id}", (base,), {"name": spec.id, "description": spec.id.replace("_", " ")})


_CLASSES = {cls.name: cls for cls in BUILT_IN}
for _name in list_core_tasks():
    register_task(_name, _CLASSES.get(_name) or _plain_class(get_spec(_name)))
register_ids(DROP_IN, f"{__name__}:make_task_env", f"{__name__}:make_task_vec_env")
CENTRAL = "powerzoo_compat.powerzoo_api.tasks.central"
register_central_ids(f"{CENTRAL}:make_central_env", f"{CENTRAL}:make_central_vec_env")
register_grid_ids()
