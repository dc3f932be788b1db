"""Variants of a task as data: shifted splits, and budgets with limits by tightness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from powerzoo_jax.base.errors import unknown

CALENDAR = ("train", "val", "test")


@dataclass(frozen=True)
class Shift:
    """A named split that differs from training on purpose; it plays days of `base`.

    load:     factor on all loads
    plant:    factor on the capacity of all plants
    months:   months that an episode may start in, empty = all
    changes:  keywords that the shift replaces, unless the caller gives them
    """

    base: str = "test"
    load: float = 1.0
    plant: float = 1.0
    months: tuple[int, ...] = ()
    changes: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Tightness:
    """Budgets in the order of the cost channels, and the limits that come with them."""

    cost_budget: tuple[float, ...]
    limits: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Variants:
    """What a task offers beside its spec.

    shifts:     named splits beside train, val and test
    tightness:  loose, standard, strict
    modes:      observation modes, the default first
    """

    shifts: tuple[tuple[str, Shift], ...] = ()
    tightness: tuple[tuple[str, Tightness], ...] = ()
    modes: tuple[str, ...] = ("flattened",)

    def shift(self, split: str) -> Shift:
        """The shift of a split; plain splits are their own base. Raises ValueError naming the nearest split."""
        if split in CALENDAR:
            return Shift(base=split)
        named = dict(self.shifts)
        if split not in named:
            raise ValueError(unknown("split", split, (*CALENDAR, *named)))
        return named[split]

    def tight(self, name: str) -> Tightness:
        """Budgets and limits of a tightness. Raises ValueError naming the nearest."""
        named = dict(self.tightness)
        if name not in named:
            raise ValueError(unknown("constraint_tightness", name, named))
        return named[name]
