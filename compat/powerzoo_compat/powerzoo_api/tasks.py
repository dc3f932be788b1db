"""`make_task_env` and `list_tasks`: tasks by name."""

from __future__ import annotations

from typing import Any

from powerzoo_compat.powerzoo_api.observation import FLATTENED
from powerzoo_compat.powerzoo_api.registration import DROP_IN, GYM_NAMES, gym_id, register_ids
from powerzoo_compat.powerzoo_api.single_agent import SingleAgentEnv, with_spec
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.types import TaskSpec
from powerzoo_jax.data.bank import STRESS_SPLIT
from powerzoo_jax.data.splits import list_splits
from powerzoo_jax.tasks import get_spec, make
from powerzoo_jax.tasks import list_tasks as list_core_tasks
from powerzoo_jax.tasks.build import resolve_settings

SINGLE, MULTI = "single", "multi"
AGENT_MODES = (SINGLE, MULTI)
DIFFICULTIES = ("simple", "middle", "complex")
DIFFICULTY = dict.fromkeys(("battery_arbitrage", "dc_microgrid", "dc_microgrid_safe"), "simple")
FRAMEWORKS = ("auto", "gymnasium", "pettingzoo", "rllib")
MULTI_ONLY = ("pettingzoo", "rllib")
CORE_ONLY = ("dims", "dtype")  # keywords of powerzoo_jax.make that a host view has no use for

register_ids(DROP_IN, f"{__name__}:make_task_env")


def make_task_env(
    name: str, split: str = "train", framework: str = "auto", obs_mode: str | None = None, **kwargs: Any
) -> SingleAgentEnv:
    """Build the environment of a task.

    name:       see `list_tasks`
    split:      train, val, test or price_stress
    framework:  "auto" or "gymnasium" for single-agent tasks
    obs_mode:   None or "flattened" for single-agent tasks; `observation_mode` is an alias
    kwargs:     task keywords, and `render_mode`

    Raises ValueError for an unknown or unsupported name, split, framework or mode, or an unusable window,
    TypeError for an unknown keyword; each names the valid values and the nearest one.

    Example:
        env = make_task_env("battery_arbitrage", split="train")
        obs, info = env.reset(seed=0)
        obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
    """
    given = {"split": split, **kwargs}
    spec = _task(name)
    _check_split(spec, split)
    _check_framework(spec, framework)
    _check_mode(spec, obs_mode, kwargs)
    render_mode = kwargs.pop("render_mode", None)
    for key in CORE_ONLY:
        if key in kwargs:
            raise TypeError(f"make_task_env() takes no keyword {key!r}. Call powerzoo_jax.make for another layout.")
    env = SingleAgentEnv(make(name, split=split, **kwargs), render_mode=render_mode)
    if name not in GYM_NAMES:
        return env
    given.pop("observation_mode", None)
    return with_spec(env, gym_id(DROP_IN, name), given)


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
    return [
        task
        for task in list_core_tasks()
        if task in DIFFICULTY
        and difficulty in (None, DIFFICULTY.get(task)) and agent_mode in (None, _agent_mode(get_spec(task)))
    ]


def _agent_mode(spec: TaskSpec) -> str:
    return SINGLE if len(spec.agents) == 1 else MULTI


def _task(name: str) -> TaskSpec:
    if not isinstance(name, str):
        raise TypeError(f"name must be the id of a task, got {type(name).__name__}. See list_tasks().")
    spec = get_spec(name)
    if spec.id not in DIFFICULTY:
        raise ValueError(f"{spec.id} has no host view. Use powerzoo_jax.make({spec.id!r}), or one of list_tasks().")
    return spec


def _check_split(spec: TaskSpec, split: str) -> None:
    settings = resolve_settings(spec, {})
    valid = (*list_splits(str(settings.load_set)), STRESS_SPLIT)
    if split not in valid:
        raise ValueError(unknown(f"split of {spec.id}", split, valid))


def _check_framework(spec: TaskSpec, framework: str) -> None:
    if framework not in FRAMEWORKS:
        raise ValueError(unknown("framework", framework, FRAMEWORKS))
    if framework in MULTI_ONLY:
        raise ValueError(f"{spec.id} has one agent, framework={framework!r} needs several. Use 'auto' or 'gymnasium'.")


def _check_mode(spec: TaskSpec, obs_mode: str | None, kwargs: dict[str, Any]) -> None:
    """Check both spellings of the observation mode; the alias leaves `kwargs`."""
    alias = kwargs.pop("observation_mode", None)
    if obs_mode is not None and alias is not None and obs_mode != alias:
        raise ValueError(f"obs_mode={obs_mode!r} and observation_mode={alias!r} differ. Give one of them.")
    mode = alias if obs_mode is None else obs_mode
    if mode not in (None, FLATTENED):
        raise ValueError(unknown(f"observation mode of {spec.id}", mode, (FLATTENED,)))
