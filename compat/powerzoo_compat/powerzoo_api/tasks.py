"""`make_task_env` and the lists of tasks: tasks by name."""

from __future__ import annotations

from typing import Any

from powerzoo_compat.powerzoo_api.multi_agent import MultiAgentTaskEnv
from powerzoo_compat.powerzoo_api.observation import FLATTENED
from powerzoo_compat.powerzoo_api.registration import DROP_IN, GYM_NAMES, gym_id, register_ids
from powerzoo_compat.powerzoo_api.single_agent import SingleAgentEnv, with_spec
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.types import TaskSpec
from powerzoo_jax.tasks import get_spec, make
from powerzoo_jax.tasks import list_tasks as list_core_tasks

SINGLE, MULTI = "single", "multi"
AGENT_MODES = (SINGLE, MULTI)
DIFFICULTIES = ("simple", "middle", "complex")
MIDDLE = ("marl_uc", "comparison_tso_centralized")
COMPLEX = ("opf_118", "opf_118_7d", "joint_trans_dist", "joint_trans_dist_7d")
ALIASES = {"tso": "comparison_tso_centralized"}
PUBLIC_ORDER = (
    *("marl_opf", "marl_uc", "opf_118", "opf_118_7d", "marl_der_arbitrage", "marl_ders_benchmark", "marl_ev_v2g"),
    *("battery_arbitrage", "dc_scheduling", "dc_microgrid", "dc_microgrid_safe", "gencos_bidding"),
    *("comparison_tso_centralized", "dso"),
)
PUBLIC_TASKS = tuple(task for task in PUBLIC_ORDER if task in list_core_tasks())
FRAMEWORKS = ("auto", "gymnasium", "pettingzoo", "rllib")
MULTI_ONLY = ("pettingzoo", "rllib")
CORE_ONLY = ("dims", "dtype")  # keywords of powerzoo_jax.make that a host view has no use for

register_ids(DROP_IN, f"{__name__}:make_task_env", f"{__name__}:make_task_vec_env")


def make_task_env(
    name: str, split: str = "train", framework: str = "auto", obs_mode: str | None = None, **kwargs: Any
) -> Any:
    """Build the environment of a task.

    name:       see `list_tasks`; "tso" is short for comparison_tso_centralized
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
    given = {"split": split, **kwargs}
    spec = _task(name)
    multi = _agent_mode(spec) == MULTI
    _check_framework(spec, framework)
    mode = _mode(spec, obs_mode, kwargs)
    render_mode = kwargs.pop("render_mode", None)
    for key in CORE_ONLY:
        if key in kwargs:
            raise TypeError(f"make_task_env() takes no keyword {key!r}. Call powerzoo_jax.make for another layout.")
    if multi:
        if mode is not None:
            kwargs["obs_mode"] = mode
        return _in_framework(
            MultiAgentTaskEnv(make(spec.id, split=split, **kwargs), render_mode=render_mode), framework
        )
    env = SingleAgentEnv(make(spec.id, split=split, **kwargs), render_mode=render_mode)
    if spec.id not in GYM_NAMES:
        return env
    given.pop("observation_mode", None)
    return with_spec(env, gym_id(DROP_IN, spec.id), given)


def make_task_vec_env(name: str, num_envs: int, split: str = "train", **kwargs: Any) -> Any:
    """Build many lanes of a single-agent task as a Gymnasium VectorEnv with the action box of the contract."""
    from powerzoo_compat.vector_view import make_vec_env

    return make_vec_env(_task(name).id, num_envs, split=split, unit_actions=False, **kwargs)


def _in_framework(adapter: MultiAgentTaskEnv, framework: str) -> Any:
    if framework != "pettingzoo":
        return adapter
    from powerzoo_compat.pettingzoo_view import TaskPettingZooWrapper

    return TaskPettingZooWrapper(adapter)


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
    return [
        task
        for task in list_core_tasks()
        if difficulty in (None, _difficulty(task)) and agent_mode in (None, _agent_mode(get_spec(task)))
    ]


def _difficulty(task: str) -> str:
    return "middle" if task in MIDDLE else "complex" if task in COMPLEX else "simple"


def _agent_mode(spec: TaskSpec) -> str:
    return SINGLE if len(spec.agents) == 1 else MULTI


def _task(name: str) -> TaskSpec:
    if not isinstance(name, str):
        raise TypeError(f"name must be the id of a task, got {type(name).__name__}. See list_tasks().")
    return get_spec(ALIASES.get(name, name))


def _check_framework(spec: TaskSpec, framework: str) -> None:
    if framework not in FRAMEWORKS:
        raise ValueError(unknown("framework", framework, FRAMEWORKS))
    multi = _agent_mode(spec) == MULTI
    if framework in MULTI_ONLY and not multi:
        raise ValueError(f"{spec.id} has one agent, framework={framework!r} needs several. Use 'auto' or 'gymnasium'.")
    if framework == "gymnasium" and multi:
        raise ValueError(
            f"{spec.id} has {len(spec.agents)} agents, a Gymnasium env has one. Use 'auto' or 'pettingzoo'."
        )
    if framework == "rllib":
        raise ValueError(
            "framework='rllib' is not offered yet. Use 'auto', whose env has RLlib's dicts, or 'pettingzoo'."
        )


def _mode(spec: TaskSpec, obs_mode: str | None, kwargs: dict[str, Any]) -> str | None:
    """The observation mode by either spelling; the alias leaves `kwargs`. The task itself checks a mode of several."""
    alias = kwargs.pop("observation_mode", None)
    if obs_mode is not None and alias is not None and obs_mode != alias:
        raise ValueError(f"obs_mode={obs_mode!r} and observation_mode={alias!r} differ. Give one of them.")
    mode = alias if obs_mode is None else obs_mode
    if _agent_mode(spec) == SINGLE and mode not in (None, FLATTENED):
        raise ValueError(unknown(f"observation mode of {spec.id}", mode, (FLATTENED,)))
    return mode
