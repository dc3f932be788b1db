"""Register, list and make tasks; builders are import strings, so that listing loads nothing."""

from __future__ import annotations

import importlib
from typing import Any

from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.ranges import check_fields, plain
from powerzoo_jax.base.types import Dims, TaskSpec
from powerzoo_jax.cases import list_cases
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.tasks.catalog import CATALOG, PRESETS

_TASKS: dict[str, tuple[TaskSpec, str]] = {}
_PRESETS: dict[str, tuple[TaskSpec, str]] = {spec.id: (spec, build) for spec, build in PRESETS}


def register(spec: TaskSpec, build: str) -> None:
    """Add a task. `build` is "module:function", called as build(spec, split=, dims=, dtype=, **overrides) -> Sim.

    Raises ValueError for a duplicate id, a malformed builder string or a number of the spec out of its range.

    Example:
        import dataclasses
        mine = dataclasses.replace(get_spec("battery_arbitrage"), id="battery_on_69_buses", case="case69")
        register(mine, "powerzoo_jax.tasks.feeder.storage:build_feeder_storage")
        sim = make("battery_on_69_buses")
    """
    if spec.id in _TASKS or spec.id in _PRESETS:
        raise ValueError(f"task {spec.id!r} is registered already. Choose another id, or raise its version in place.")
    if build.count(":") != 1:
        raise ValueError(f"builder {build!r} is not of the form 'module:function'.")
    check_fields(f"task {spec.id!r}: ", TaskSpec, vars(spec))
    _TASKS[spec.id] = (spec, build)


def list_tasks() -> tuple[str, ...]:
    """Return the ids of all registered tasks, sorted.

    Example:
        feeders = [task for task in list_tasks() if get_spec(task).family == "distribution"]
    """
    return tuple(sorted(_TASKS))


def list_presets() -> tuple[str, ...]:
    """Return the ids of what `make` also builds though it is no task: it has no budgets and no references; sorted."""
    return tuple(sorted(_PRESETS))


def get_spec(task_id: str) -> TaskSpec:
    """Return the spec of a task or preset. Raises ValueError naming the nearest id."""
    return _entry(task_id)[0]


def get_builder(task_id: str) -> str:
    """Return the builder of a task or preset, "module:function". Raises ValueError naming the nearest id."""
    return _entry(task_id)[1]


def _entry(task_id: str) -> tuple[TaskSpec, str]:
    if task_id in _PRESETS:
        return _PRESETS[task_id]
    if task_id not in _TASKS:
        if task_id in list_cases():
            raise ValueError(f"{task_id!r} is a grid, not a task. Write make('battery_arbitrage', case={task_id!r}).")
        raise ValueError(unknown("task", task_id, _TASKS))
    return _TASKS[task_id]


def make(
    task_id: str, *, split: str | None = None, dims: Dims | None = None, dtype: Any = None, **overrides: Any
) -> Sim:
    """Build a task into a Sim.

    task_id:    see `list_tasks` and `list_presets`
    split:      train, val, test or a named OOD split; None takes the task's default
    dims:       pad to these sizes (they must be at least the task's own); None pads nothing
    dtype:      float32 (None) or float64, which needs x64 mode
    overrides:  task keywords, listed by `powerzoo-jax show TASK`

    Raises ValueError for an unknown task or split, TypeError for an unknown keyword; each names the nearest valid one.

    Example:
        sim = make("battery_arbitrage", split="test")
        state, obs = sim.init(jax.random.key(0))
    """
    spec, build = _entry(task_id)
    module, function = build.split(":")
    builder = getattr(importlib.import_module(module), function)
    keywords = {name: plain(value) for name, value in overrides.items()}
    return builder(spec, split=spec.split if split is None else split, dims=dims, dtype=dtype, **keywords)


for _spec, _build in CATALOG:
    register(_spec, _build)
