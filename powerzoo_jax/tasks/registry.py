"""Register, list and make tasks; builders are import strings, so that listing loads nothing."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

from powerzoo_jax.base.errors import SettingsError, numbered, unknown
from powerzoo_jax.base.exports import load_object
from powerzoo_jax.base.host import use_compilation_cache
from powerzoo_jax.base.ranges import Whole, check_fields, fitted, plain
from powerzoo_jax.base.types import Dims, TaskSpec
from powerzoo_jax.cases import list_cases, load_case
from powerzoo_jax.cases.library import is_net
from powerzoo_jax.devices.registry import KINDS
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.family import family_name, get_family, names_of
from powerzoo_jax.tasks.settings import unknown_names
from powerzoo_jax.tasks.spec import Task

LAST_OF_VERSION_0 = "8c665c5"  # commit
_FAMILIES = "powerzoo_jax.families"
CATALOGS = (
    "feeder.tasks.catalog:TASKS",
    "feeder.tasks.presets:PRESETS",
    "microgrid.tasks.catalog:TASKS",
    "transmission.tasks.catalog:TASKS",
    "market.tasks.catalog:TASKS",
    "joint.catalog:TASKS",
)
_TASKS: dict[str, dict[int, Task]] = {}
_PRESETS: dict[str, dict[int, Task]] = {}


def register(spec: TaskSpec, build: str) -> None:
    """Add a task, or another version of one.

    build:  "module:function", called as build(spec, split=, dims=, dtype=, **overrides) -> Sim
    Raises ValueError for a duplicate id and version, the id of a preset, a malformed builder string, or a number of the
    spec out of its range; and SettingsError (a ValueError), which lists all findings at once, for reward terms, cost
    channels, devices and ratings that the family of a shipped builder does not know. Kinds of devices of one's own are
    registered before.

    Example:
        import dataclasses
        mine = dataclasses.replace(get_spec("battery_arbitrage"), id="battery_on_69_buses", case="case69")
        register(mine, "powerzoo_jax.families.feeder.tasks.storage:build_feeder_storage")
        sim = make("battery_on_69_buses")
    """
    register_task(Task(spec, build))


def register_task(task: Task) -> None:
    """Add a task with all that is known of it, or another version of one. Raises ValueError as `register` does.

    Example:
        import dataclasses
        mine = dataclasses.replace(get_spec("battery_arbitrage"), id="storage_on_69_buses", case="case69")
        register_task(dataclasses.replace(get_task("battery_arbitrage"), spec=mine))
    """
    task = replace(task, spec=replace(task.spec, family=family_name(task.spec.family)))
    spec = task.spec
    if spec.id in _PRESETS or spec.version in _TASKS.get(spec.id, ()):
        raise ValueError(f"task {spec.id!r} is registered already. Choose another id, or raise its version in place.")
    check_fields(f"task {spec.id!r}: ", TaskSpec, vars(spec))
    if found := findings(task):
        raise SettingsError(numbered(f"task {spec.id!r}", found))
    _add(task)


def _add(task: Task) -> None:
    table = _PRESETS if task.preset else _TASKS
    table[task.spec.id] = table.get(task.spec.id, {}) | {task.spec.version: task}


def findings(task: Task) -> list[str]:
    """Findings about the record of a task, a sentence each, before anything is built: names, places and lengths."""
    spec, found = task.spec, []
    if task.build.count(":") != 1:
        found.append(f"builder {task.build!r} is not of the form 'module:function'.")
    for name in ("baselines", "causal", "priced"):
        if (place := getattr(task, name)) and place.count(":") != 1:
            found.append(f"{name} = {place!r} is not of the form 'module:NAME'.")
    for names, values in (("cost_names", "cost_budget"), ("term_names", "term_weights")):
        if len(getattr(spec, names)) != len(getattr(spec, values)):
            found.append(
                f"{values} has {len(getattr(spec, values))} entries, {names} names {len(getattr(spec, names))}. "
                "Give one for each."
            )
    known = names_of(spec.family, task.build)
    if known is None:
        return found
    kinds = KINDS.values() if known.of_devices else ()
    terms, costs = set(known.terms).union(*(kind.terms for kind in kinds)), set(known.costs)
    found += unknown_names(spec, terms, costs.union(*(kind.costs for kind in kinds)))
    return found + (_device_findings(dict(spec.overrides).get("devices", ())) if known.devices else [])


def _device_findings(rows: Any) -> list[str]:
    """Unknown kinds and ratings in rows (kind, bus, ratings); rows of another form are left to the builder."""
    found = []
    for k, row in enumerate(rows if isinstance(rows, list | tuple) else ()):
        match row:
            case [str(kind), _, _] if kind not in KINDS:
                found.append(f"devices[{k}]: {unknown('device kind', kind, KINDS)}")
            case [str(kind), _, dict() | list() | tuple() as ratings] if KINDS[kind].stack is None:
                taken = inspect.signature(KINDS[kind].make).parameters
                if any(one.kind is one.VAR_KEYWORD for one in taken.values()):
                    continue
                valid = {*list(taken)[2:], "phases"}  # behind the number of units and the dtype
                wrong = [name for name in dict(ratings) if name not in valid]
                found += [f"devices[{k}]: {unknown(f'rating of {kind}', name, valid)}" for name in wrong]
    return found


def list_tasks() -> tuple[str, ...]:
    """Return the ids of all registered tasks, sorted.

    Example:
        weeks = [task for task in list_tasks() if get_spec(task).horizon > 48]
    """
    return tuple(sorted(_TASKS))


def list_presets() -> tuple[str, ...]:
    """Return the ids of presets, sorted: environments that `make` builds, without budgets or reference returns."""
    return tuple(sorted(_PRESETS))


def list_versions(task_id: str) -> tuple[int, ...]:
    """Return the versions of a task or preset that `make` builds, in order. Raises ValueError naming the nearest id."""
    return tuple(sorted(_versions(task_id)))


def get_spec(task_id: str, version: int | None = None) -> TaskSpec:
    """Return the spec of a task or preset. Raises ValueError naming the nearest id, or the versions there are.

    version:  None takes the latest
    """
    return get_task(task_id, version).spec


def get_builder(task_id: str, version: int | None = None) -> str:
    """Return the builder of a task or preset, "module:function"; arguments and errors as in `get_spec`."""
    return get_task(task_id, version).build


def get_task(task_id: str, version: int | None = None) -> Task:
    """Return the record of a task or preset; arguments and errors as in `get_spec`."""
    known = _versions(task_id)
    if version is None:
        version = max(known)
    if version not in known:
        if version == 0 and any(task_id == task.spec.id for task in SHIPPED):
            raise ValueError(
                f"task {task_id!r} is no longer built in version 0, whose scores were anchored at a random policy and "
                "whose references had played other days. Leave `version` out; to reproduce old numbers, install the "
                f"last sources that had it: git checkout {LAST_OF_VERSION_0} && pip install ."
            )
        raise ValueError(f"task {task_id!r} has no version {version!r}. Valid: {', '.join(map(str, sorted(known)))}.")
    return known[version]


def relatives(task_id: str) -> tuple[TaskSpec, ...]:
    """Shipped tasks that a task is a variant of, the nearest first; errors as in `get_spec`.

    They are those of its builder, or else of its family: where terms tell what a task of the family is about, those
    that pay for the same. First come those that pay for the same and, like it, have one agent or several, then those on
    its grid.
    """
    mine, builder = get_spec(task_id), get_builder(task_id)
    shipped = [task for task in SHIPPED if not task.preset]
    alike = [task.spec for task in shipped if get_builder(task.spec.id) == builder]
    if not alike:
        family = get_family(mine.family)
        alike = [task.spec for task in shipped if task.spec.family == family.name]
        if family.environments:
            alike = [other for other in alike if kind_of(other) == kind_of(mine)]
    return tuple(sorted(alike, key=lambda other: (kind_of(other) != kind_of(mine), other.case != mine.case)))


def kind_of(spec: TaskSpec) -> tuple[bool, tuple[str, ...]]:
    """Whether a task has one agent, and what it pays for: what tells the tasks of a builder or a family apart."""
    return len(spec.agents) == 1, spec.term_names


def named_splits(spec: TaskSpec) -> tuple[str, ...]:
    """Names of the splits of a task beside train, val and test: its own, those of its builder, or of its family."""
    found = _told(spec, "splits")
    return get_family(spec.family).splits if found is None else found


def observation_modes(spec: TaskSpec) -> tuple[str, ...]:
    """Observation modes of a task, the default first: its own, those of its builder, or the one of its keywords."""
    return _told(spec, "modes") or (dict(spec.overrides).get("obs_mode", "flattened"),)


def _told(spec: TaskSpec, what: str) -> tuple[str, ...] | None:
    """Splits or modes of a task: as its record says, or else all shipped tasks of its builder alike."""
    known = _TASKS.get(spec.id) or _PRESETS.get(spec.id)
    if not known:
        return None
    task = known[max(known)]
    alike = {getattr(other, what) for other in SHIPPED if other.build == task.build}
    own: tuple[str, ...] | None = getattr(task, what)
    return alike.pop() if own is None and len(alike) == 1 else own


def _versions(task_id: str) -> dict[int, Task]:
    if task_id in _PRESETS:
        return _PRESETS[task_id]
    if task_id not in _TASKS:
        if task_id in list_cases():
            raise ValueError(f"{task_id!r} is a grid, not a task. Write make('battery_arbitrage', case={task_id!r}).")
        raise ValueError(unknown("task", task_id, _TASKS))
    return _TASKS[task_id]


def make(
    task_id: str,
    *,
    version: int | None = None,
    split: str | None = None,
    dims: Dims | None = None,
    dtype: Any = None,
    **overrides: Any,
) -> Sim:
    """Build a task into a Sim.

    task_id:    see `list_tasks` and `list_presets`
    version:    of the task, see `list_versions`; None takes the latest, which scores are published for
    split:      train, val, test or a named OOD split; None takes the task's default
    dims:       pad to these sizes (they must be at least the task's own); None pads nothing
    dtype:      float32 (None) or float64, which needs x64 mode
    overrides:  task keywords, listed by `powerzoo-jax show TASK`

    Raises ValueError for an unknown task, version or split, TypeError for an unknown keyword; each names the nearest
    valid one. A value of another kind than a keyword takes raises SettingsError (a ValueError), which names the keyword
    and what it takes.

    Example:
        sim = make("battery_arbitrage", split="test")
        state, obs = sim.init(jax.random.key(0))
    """
    use_compilation_cache()
    fitted("task_id", task_id, str)
    fitted(f"{task_id}: version", version, Whole | None)
    task = get_task(task_id, version)
    spec = task.spec
    fitted(f"{task_id}: split", split, str | None)
    fitted(f"{task_id}: dims", dims, Dims | None)
    builder = load_object(task.build)
    keywords = {name: load_case(value) if is_net(value) else plain(value) for name, value in overrides.items()}
    return builder(spec, split=spec.split if split is None else split, dims=dims, dtype=dtype, **keywords)


SHIPPED: tuple[Task, ...] = tuple(task for catalog in CATALOGS for task in load_object(f"{_FAMILIES}.{catalog}"))
for _task in SHIPPED:  # tests look for findings, so that an import does not
    _add(_task)
