"""Ranges of settings: every number has one, and what lies outside is refused before anything compiles."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
import pkgutil
import types
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin

import jax
import numpy as np
import pytest

import powerzoo_jax.devices
import powerzoo_jax.rl
import powerzoo_jax.tasks
from powerzoo_jax.base.errors import SettingsError
from powerzoo_jax.base.ranges import MOST, Range, declared, fitted
from powerzoo_jax.base.types import TaskSpec
from powerzoo_jax.cli import main
from powerzoo_jax.devices.registry import KINDS
from powerzoo_jax.devices.trips import CommuteTrip, daily_trips
from powerzoo_jax.rl.training.config import ALGORITHMS, Config, PPOConfig, load
from powerzoo_jax.tasks import get_spec, list_presets, list_tasks, make
from powerzoo_jax.tasks.registry import SHIPPED
from powerzoo_jax.tasks.settings import TaskSettings
from powerzoo_jax.tasks.spec import from_toml

MADE = ("FeederTaskConfig", "StorageTaskConfig")  # blueprints that builders make of checked settings
NAMED = ("Settings", "Keywords", "Config", "Priced", "JobClass")
COUNTERS = ("n_unit", "dtype", "trips")
HUGE = 10**400  # beyond all floats
WRONG = (math.nan, math.inf, -math.inf, "0.5", True, 1j, [0.5], {}, HUGE, np.array([0.5, 0.5]), np.bool_(True), b"1")
WRONG_WHOLE = (0.5, np.float32(1.5), -0.5)


def modules(package: Any) -> list[Any]:
    return [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not found.name.endswith("__main__")
    ]


def found(package: Any) -> dict[str, Any]:
    """Dataclasses of settings and functions that take ratings, of a package, by name."""
    owners = {}
    for module in modules(package):
        for name, thing in vars(module).items():
            own = getattr(thing, "__module__", "") == module.__name__
            settings = dataclasses.is_dataclass(thing) and name.endswith(
                ("Settings", "Keywords", "Config", "Priced", "JobClass")
            )
            ratings = inspect.isfunction(thing) and name.endswith("_params") and "dtype" in declared(thing)
            if own and (settings or ratings) and not name.startswith("_") and name not in MADE:
                owners[name] = thing
    return owners


OWNERS = {
    **found(powerzoo_jax.tasks),
    **found(importlib.import_module("powerzoo_jax.families")),
    **found(powerzoo_jax.rl),
    **found(powerzoo_jax.devices),
    "TaskSpec": TaskSpec,
    "evaluate": importlib.import_module("powerzoo_jax.tasks.score").evaluate,
}


def test_the_walk_finds_what_it_is_for():
    kinds = {kind.make.__name__ for kind in KINDS.values()}
    settings = {cls.__name__ for cls in subclasses(TaskSettings)} | {cls.__name__ for cls in subclasses(Config)}
    assert kinds <= OWNERS.keys() and settings <= OWNERS.keys() and len(settings) >= 20


def subclasses(cls: type) -> set[type]:
    return {cls}.union(*(subclasses(sub) for sub in cls.__subclasses__()))


def numbers(kind: Any) -> Iterator[Any]:
    """Every number that a declared type consists of: Annotated with its range, or bare."""
    origin = get_origin(kind)
    if origin is Annotated or kind in (int, float):
        yield kind
    elif origin is not None and origin is not ClassVar:  # what all instances share is no setting
        for part in get_args(kind):
            yield from numbers(part)


@pytest.mark.parametrize("owner", OWNERS)
def test_every_numeric_setting_declares_its_range(owner):
    bare = {
        name
        for name, kind in declared(OWNERS[owner]).items()
        if name not in COUNTERS
        for number in numbers(kind)
        if get_origin(number) is not Annotated or not isinstance(get_args(number)[1], Range)
    }
    assert not bare, f"{owner}: no range beside {sorted(bare)}"


def outside(kind: Any) -> Iterator[Any]:
    """Values that a declared type refuses, at every place of it where a number stands."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        base, limits = parts[:2]
        endless = (math.inf, HUGE) if limits.infinite else ()
        yield from (x for x in WRONG if not any(x is y for y in endless) and not fits_table(base, x))
        yield from WRONG_WHOLE if base is int else ()
        yield from (x for x in (limits.low - 1, limits.high * 1.5 + 1) if math.isfinite(x))
        yield from (limits.low,) if limits.open_low else ()
    elif origin is tuple and len(parts) == 2 and parts[1] is ...:
        yield from ((x,) for x in outside(parts[0]))
    elif origin is tuple:
        for i, part in enumerate(parts):
            yield from ((*map(inside, parts[:i]), x, *map(inside, parts[i + 1 :])) for x in outside(part))
    elif origin in (Union, types.UnionType):
        # what one member refuses and another takes is no value outside
        rest = [part for part in parts if part is not types.NoneType]
        yield from (x for part in rest for x in outside(part) if not any(takes(other, x) for other in rest))


def fits_table(base: Any, x: Any) -> bool:
    """A rating may be a sequence, one number a unit."""
    return base not in (int, float) and isinstance(x, list | np.ndarray)


def takes(kind: Any, x: Any) -> bool:
    try:
        fitted("x", x, kind)
    except SettingsError:
        return False
    return True


def inside(kind: Any) -> Any:
    """A value that a declared type takes."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return next(x for x in (1, 0, parts[1].low + 0.5) if takes(kind, x))
    if origin is tuple:
        return () if parts[1:] == (...,) else tuple(map(inside, parts))
    return "a" if kind is str else None


def refusing(owner: str) -> Any:
    """What takes one setting of an owner by name and checks it."""
    thing = OWNERS[owner]
    if owner == "TaskSpec":
        return lambda **one: powerzoo_jax.tasks.register(
            dataclasses.replace(get_spec("dso"), id="a_task_of_the_test", **one), "a:b"
        )
    if owner == "evaluate":
        return partial(thing, None, None)
    if owner == "vehicle_params":
        return partial(thing, TRIPS, "float32")
    if inspect.isfunction(thing):
        return partial(thing, 1, "float32")
    if issubclass(thing, TaskSettings):
        return lambda **one: thing.merged("a task", one)
    if owner == "JobClass":
        return lambda **one: thing(**{"rate_per_h": 1, "gpus": (1, 2), "duration_min": (1, 2)} | REST | one)
    if issubclass(thing, Config) and owner in ("Config", "Priced"):  # bases of the learners
        return None
    return thing if issubclass(thing, Config) else None


REST = {"deadline_factor": 2, "eta": 0.5}
TRIPS = daily_trips([[CommuteTrip(8.0, 18.0, 15.0)]], 30, "float32")
CHECKED = [owner for owner in OWNERS if refusing(owner) is not None]


@pytest.fixture
def no_compiler(monkeypatch):
    """Fail where anything is compiled."""

    def compiled(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("something was compiled")

    monkeypatch.setattr(jax._src.compiler, "compile_or_get_cached", compiled)


@pytest.mark.parametrize("owner", CHECKED)
def test_what_lies_outside_a_range_is_refused_by_name_before_anything_compiles(owner, no_compiler):
    take, tried = refusing(owner), 0
    for name, kind in declared(OWNERS[owner]).items():
        if name in COUNTERS or name == "return":
            continue
        for value in outside(kind):
            tried += 1
            with pytest.raises(SettingsError) as err:
                take(**{name: value})
            assert name in str(err.value) and str(err.value).endswith(".")
    assert tried > 10


@pytest.mark.parametrize("owner", CHECKED)
def test_numpy_scalars_and_integers_for_floats_are_taken(owner):
    every = (number for kind in declared(OWNERS[owner]).values() for number in numbers(kind))
    for number in {str(number): number for number in every}.values():
        base, value = get_args(number)[0], inside(number)
        scalars = (np.int64, np.int32, np.float64, float, int) if base is int else (np.float64, np.float32)
        for scalar in scalars:
            taken = fitted("x", scalar(value), number)
            assert taken == scalar(value) and (base not in (int, float) or type(taken) is base)


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        (math.nan, Annotated[float, Range(0, 1)], r"x = nan must lie in \[0, 1\]\."),
        (2, Annotated[float, Range(0, 1)], r"x = 2 must lie in \[0, 1\]; the nearest valid value is 1\."),
        (-1.0, Annotated[float, Range(0, open_low=True)], r"x = -1\.0 must be positive and finite\."),
        (-3, Annotated[int, Range(1, MOST)], r"x = -3 must be a whole number of at least 1; the nearest .* is 1\."),
        (
            10**18,
            Annotated[int, Range(1, 2**24)],
            r"a whole number of at most 16777216; the nearest .* 16777216",
        ),
        (2.6, Annotated[int, Range(1, MOST)], r"x = 2\.6 must be a whole number; the nearest valid value is 3\."),
        (math.inf, Annotated[float, Range(0, 5)], r"x = inf must lie in \[0, 5\]; the nearest valid value is 5\."),
        (HUGE, Annotated[float, Range()], r"x = inf must be finite\."),
        ("a", Annotated[float, Range(0, 1)], r"x = 'a' must be a number\."),
        (True, Annotated[int, Range(0, 1)], r"x = True must be a whole number\."),
        (3, tuple[Annotated[int, Range(0, 9)], ...], r"x = 3 must be a list; write \[3\] for one value\."),
        ([1, 12], tuple[Annotated[int, Range(0, 9)], ...], r"x\[1\] = 12 must be a whole number of at most 9"),
    ],
)
def test_a_message_names_the_value_its_rule_and_the_nearest_valid_one(value, kind, words):
    with pytest.raises(SettingsError, match=words):
        fitted("x", value, kind)


def test_nan_falls_back_on_the_default_in_the_message():
    with pytest.raises(SettingsError, match=r"ppo: lr = nan must lie in \[0, 1\]; the default is 0\.001\."):
        PPOConfig(lr=math.nan)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("lr", "nan", math.nan),
        ("gamma", "2", 2.0),
        ("clip", "-1", -1.0),
        ("widths", "-3", [-3.0]),
        ("lanes", "1e18", 1e18),
    ],
)
def test_python_a_file_and_the_command_line_refuse_alike(key, text, value, tmp_path, capsys, no_compiler):
    with pytest.raises(SettingsError) as python:
        PPOConfig(**{key: value})
    path = tmp_path / "run.toml"
    path.write_text(f'task = "dso"\nalgorithm = "ppo"\n[ppo]\n{key} = {value!r}\n')
    with pytest.raises(SettingsError) as file:
        load(path)
    assert str(python.value) in str(file.value) and "run.toml" in str(file.value)
    assert main(["train", "dso", "--algorithm", "ppo", "--set", f"{key}={text}", "--out", str(tmp_path / "run")]) == 2
    assert str(python.value) in capsys.readouterr().err


def test_resolved_values_are_plain_and_the_settings_stay_hashable():
    cfg = PPOConfig(lanes=np.int64(64), lr=np.float64(1e-3), widths=np.array([8, 4]), start=[0], squash=np.bool_(True))
    assert cfg == PPOConfig(lanes=64, lr=1e-3, widths=(8, 4), start=(0.0,), squash=True)
    assert hash(cfg) == hash(PPOConfig(lanes=64, widths=(8, 4), start=(0.0,), squash=True))
    assert type(cfg.lanes) is int and type(cfg.start[0]) is float


def test_keywords_of_numpy_types_make_the_task_of_plain_ones():
    plain = make("battery_arbitrage", v_max=1.05, battery_bus_ids=(6, 18), max_steps=24)
    given = dict(v_max=np.float64(1.05), battery_bus_ids=np.array([6, 18]), max_steps=np.int64(24))
    assert make("battery_arbitrage", **given).spec == plain.spec and hash(make("battery_arbitrage", **given).spec)


def test_a_task_refuses_at_make_before_anything_compiles(no_compiler):
    with pytest.raises(SettingsError, match=r"dso: load_scale = nan must be positive and finite; the default is 1\.0"):
        make("dso", load_scale=math.nan)


def test_a_task_file_with_a_number_out_of_range_is_named(tmp_path):
    path = tmp_path / "my.toml"
    lines = {f.name: getattr(get_spec("dso"), f.name) for f in dataclasses.fields(TaskSpec) if f.name != "overrides"}
    lines |= {"horizon": -1, "id": "mine"}
    path.write_text("\n".join(f"{k} = {list(v) if isinstance(v, tuple) else v!r}" for k, v in lines.items()))
    with pytest.raises(SettingsError, match=r"my\.toml: horizon = -1 must be a whole number of at least 1"):
        from_toml(path)


@pytest.mark.parametrize("task", [*list_tasks(), *list_presets()])
def test_every_catalog_row_lies_within_its_ranges(task):
    spec = get_spec(task)
    for name, value in vars(spec).items():
        fitted(name, value, declared(TaskSpec)[name])


def test_the_catalog_is_what_the_registry_lists():
    assert {task.spec.id for task in SHIPPED} <= {*list_tasks(), *list_presets()}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_defaults_of_a_learner_are_valid(algorithm):
    assert ALGORITHMS[algorithm]() == ALGORITHMS[algorithm].from_dict({})
