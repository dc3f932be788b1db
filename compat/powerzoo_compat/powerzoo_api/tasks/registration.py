"""Registration of tasks and grids with Gymnasium; a second call of a function changes nothing.

The ids of version 0 stay as other names of version 1: Gymnasium itself warns of an id that has a later version.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import gymnasium

from powerzoo_compat.powerzoo_api.envs.base import BaseEnv, TaskEnvSpec
from powerzoo_compat.powerzoo_api.tasks.catalog import CENTRAL_NAMES, DROP_IN, GYM_NAMES, gym_id
from powerzoo_jax.tasks import get_spec, list_tasks

GRIDS = {"TransGrid": "TransGridEnv", "DistGrid": "DistGridEnv"}
DIFFICULTIES = ("easy", "medium", "hard")

Env = TypeVar("Env", bound=BaseEnv)


def register_ids(namespace: str, entry_point: str, vector_entry_point: str) -> None:
    """Register every single-agent task that has a Gymnasium name."""
    for task in sorted(set(GYM_NAMES) & set(list_tasks())):
        _register_task(namespace, task, entry_point, vector_entry_point=vector_entry_point)


def register_central_ids(entry_point: str, vector_entry_point: str) -> None:
    """Register the centralised view of every multi-agent task that has a Gymnasium name."""
    for task in sorted(set(CENTRAL_NAMES) & set(list_tasks())):
        _register_task(DROP_IN, task, entry_point, vector_entry_point=vector_entry_point)


def register_grid_ids() -> None:
    """Register the grids as environments of their own, one id a difficulty."""
    for name in GRIDS:
        for difficulty in DIFFICULTIES:
            given = {"grid": name, "difficulty": difficulty}
            _register(f"{DROP_IN}/{name}-{difficulty}-v0", f"{__name__}:make_grid", kwargs=given)


def with_id(env: Env, namespace: str, task: str, keywords: dict[str, Any]) -> Env:
    """The environment with the registered id and the keywords that rebuild it, as `gymnasium.make` sets them.

    A task without an id leaves it without.
    """
    if task in GYM_NAMES | CENTRAL_NAMES:
        spec = gymnasium.spec(gym_id(namespace, task))
        shown = {} if env.render_mode is None else {"render_mode": env.render_mode}
        env.spec = dataclasses.replace(spec, max_episode_steps=None, kwargs={**spec.kwargs, **keywords, **shown})
    return env


def make_grid(grid: str, **keywords: Any) -> Any:
    """A grid as a standard environment; keywords and errors are those of its class."""
    # on the first use of such an id: `import powerzoo` registers all of them and builds none
    from powerzoo_compat.powerzoo_api.grids import envs as grids
    from powerzoo_compat.powerzoo_api.wrappers.flatten import GymnasiumWrapper

    return GymnasiumWrapper(getattr(grids, GRIDS[grid])(**keywords))


def _register_task(namespace: str, task: str, entry_point: str, **given: Any) -> None:
    env_id = gym_id(namespace, task)
    for name in (f"{env_id.rpartition('-v')[0]}-v0", env_id):
        _register(name, entry_point, kwargs={"name": task}, **given)
        gymnasium.registry[name] = TaskEnvSpec.of(gymnasium.registry[name], get_spec(task).horizon)


def _register(env_id: str, entry_point: str, **given: Any) -> None:
    if env_id not in gymnasium.registry:
        gymnasium.register(env_id, entry_point, **given)
