"""Tasks: the record of one, reading a spec from TOML, and variants of a task as data.

Variants are shifted splits, and budgets with limits by tightness.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from powerzoo_jax.base.errors import SettingsError, unknown
from powerzoo_jax.base.ranges import check_fields
from powerzoo_jax.base.textfile import read_toml
from powerzoo_jax.base.types import TaskSpec as TaskSpec
from powerzoo_jax.envs.family import family_name

CALENDAR = ("train", "val", "test")
SAFETY_WEIGHT = 10.0  # of a unit of any channel, in tasks that are paid by their costs alone


@dataclass(frozen=True)
class Task:
    """Task with all that is known of it; places are import strings "module:NAME", empty where there is nothing.

    spec:       what is simulated, on which data, judged how
    build:      builder, called as build(spec, split=, dims=, dtype=, **overrides) -> Sim
    baselines:  rules and oracle, an `oracle.Baselines`
    causal:     planner without foresight, (sim, draws, keys) -> policy
    priced:     planner with foresight at prices of the cost channels, (sim, draws, keys) -> planner
    splits:     named splits beside train, val and test; None takes those of the shipped tasks of its builder, or of its
                family
    modes:      observation modes, the default first; None takes those of the shipped tasks of its builder
    preset:     makeable, and not among the tasks: it has no budgets and no references
    """

    spec: TaskSpec
    build: str
    baselines: str = ""
    causal: str = ""
    priced: str = ""
    splits: tuple[str, ...] | None = None
    modes: tuple[str, ...] | None = None
    preset: bool = False


def day_task(id: str, **fields: Any) -> TaskSpec:
    """Spec of a task: version 1, a day of half hours on the training days, unless `fields` say otherwise."""
    default: dict[str, Any] = {"version": 1, "horizon": 48, "dt_hours": 0.5, "split": "train"}
    return TaskSpec(id=id, **(default | fields))


@dataclass(frozen=True)
class Shift:
    """A named split that differs from training on purpose; it plays days of `base`.

    load:     factor on all loads
    plant:    factor on the capacity of all plants
    months:   months that an episode may start in, empty = all
    highest_price: (above, up to) [$/MWh] of the highest price of an episode
    changes:  keywords that the shift replaces, unless the caller gives them
    """

    base: str = "test"
    load: float = 1.0
    plant: float = 1.0
    months: tuple[int, ...] = ()
    highest_price: tuple[float, float] = (-math.inf, math.inf)
    changes: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Tightness:
    """Budgets in the order of the cost channels, and the limits that come with them."""

    cost_budget: tuple[float, ...]
    limits: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Variants:
    """Variants that a task offers beside its spec.

    shifts:     named splits beside train, val and test, and those of these that play not all of their days
    tightness:  loose, standard, strict
    """

    shifts: tuple[tuple[str, Shift], ...] = ()
    tightness: tuple[tuple[str, Tightness], ...] = ()

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of all splits: train, val and test first."""
        return tuple(dict.fromkeys((*CALENDAR, *dict(self.shifts))))

    def shift(self, split: str) -> Shift:
        """The shift of a split; plain splits are their own base. Raises ValueError naming the nearest split."""
        named = dict(self.shifts)
        if split in CALENDAR and split not in named:
            return Shift(base=split)
        if split not in named:
            raise ValueError(unknown("split", split, self.splits))
        return named[split]

    def tight(self, name: str) -> Tightness:
        """Budgets and limits of a tightness. Raises ValueError naming the nearest."""
        named = dict(self.tightness)
        if name not in named:
            raise ValueError(unknown("constraint_tightness", name, named))
        return named[name]


# type of each key as TOML gives it
KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("id", "family", "case", "split"), (str,)),
    **dict.fromkeys(("version", "horizon"), (int,)),
    "dt_hours": (float, int),
    **dict.fromkeys(("agents", "cost_names", "cost_budget", "term_names", "term_weights"), (list,)),
    "overrides": (dict,),
}


def from_toml(path: str | Path) -> TaskSpec:
    """Read a TaskSpec from a TOML file whose keys are its fields; `overrides` is a table.

    Raises DataMissing when there is no such file, SettingsError (a ValueError) for a file that is no TOML and for an
    unknown or a missing key or a value of another type, naming it.
    """
    raw = read_toml(path, "task file")
    known = {f.name for f in fields(TaskSpec)}
    for key in raw:
        if key not in known:
            raise SettingsError(f"{path}: {unknown('key', key, known)}")
    missing = [f.name for f in fields(TaskSpec) if f.default is MISSING and f.name not in raw]
    if missing:
        raise SettingsError(f"{path}: missing key(s) {', '.join(missing)}. A task file gives every field of TaskSpec.")
    for key, value in raw.items():
        kinds = KINDS[key]
        if not isinstance(value, kinds) or isinstance(value, bool):
            names = " or ".join(kind.__name__ for kind in kinds)
            raise SettingsError(f"{path}: {key} = {value!r} must be of type {names}.")
        if isinstance(value, list):
            raw[key] = tuple(value)
    raw["family"] = family_name(raw["family"])
    raw["overrides"] = tuple(sorted(raw.get("overrides", {}).items()))
    return TaskSpec(**check_fields(f"{path}: ", TaskSpec, raw))
