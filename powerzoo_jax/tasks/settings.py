"""Keywords that tasks of all families share: how they merge, and the checks of their values.

Every family has its own dataclass of keywords on top of these; a default stands in the class, the catalog replaces it,
and the caller replaces both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

from powerzoo_jax.base import Dims, TaskSpec
from powerzoo_jax.base.errors import unexpected, unknown
from powerzoo_jax.base.ranges import MOST, Budget, Positive, PositiveShare, Range, Share, check_fields
from powerzoo_jax.base.solver_mode import AUTO, MODES
from powerzoo_jax.devices import StorageParams, storage_params

MINUTES_PER_HOUR, MINUTES_PER_DAY = 60, 1440
TIGHTNESS = ("loose", "standard", "strict")

Voltage = Annotated[float, Range(0, 10, open_low=True)]  # [pu]
Celsius = Annotated[float, Range(-273.15, 1000)]
Budgets = tuple[tuple[str, tuple[Budget, Budget, Budget]], ...]  # by channel: loose, standard, strict


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """Keywords of every task; the type of a number says its range, see `base.ranges`.

    start_date, end_date: ISO dates that replace the split calendar
    delta_t_minutes:      length of a step (None: the task's)
    solver:               form of the iterative solvers of a step: "adaptive" stops when every lane is done, "fixed"
                          takes a known number of iterations, as accelerators prefer, "auto" is adaptive on a CPU and
                          fixed elsewhere; a family whose step iterates nothing takes the keyword and has one form only
    """

    start_date: str | None = None
    end_date: str | None = None
    delta_t_minutes: Annotated[int, Range(1, MINUTES_PER_DAY)] | None = None
    solver: str = AUTO

    @classmethod
    def merged(cls, owner: str, *layers: Mapping[str, Any]) -> Self:
        """Settings out of layers of keywords, later ones first in rank.

        owner: task that an error names
        Raises TypeError for a keyword of the last layer, the caller's, that there is not, and SettingsError (a
        ValueError) for a value outside its range or a mode of the solvers that there is not, naming the nearest.
        """
        known = {f.name for f in dataclasses.fields(cls)}
        for key in layers[-1]:
            if key not in known:
                raise TypeError(unexpected(owner, key, known))
        values = {key: value for layer in layers for key, value in layer.items()}
        settings = cls(**check_fields(f"{owner}: ", cls, values))
        settings.check(owner, {"solver": MODES})
        return settings

    @property
    def dates(self) -> tuple[str | None, str | None]:
        return self.start_date, self.end_date

    def check(self, owner: str, choices: Mapping[str, Iterable[str | None]]) -> None:
        """Refuse names that a keyword does not take: `choices` are those it takes.

        Raises ValueError naming the task, the keyword, its value and the nearest.
        """
        for name, options in choices.items():
            if getattr(self, name) not in tuple(options):
                raise ValueError(f"{owner}: {unknown(name, getattr(self, name), [x for x in options if x])}")


@dataclass(frozen=True, kw_only=True)
class EpisodeSettings(TaskSettings):
    """Keywords of a task whose spec says how long an episode and its steps are.

    max_steps:  horizon in steps (None: the spec's)
    """

    max_steps: Annotated[int, Range(1, MOST)] | None = None


def step_minutes(spec: TaskSpec, settings: EpisodeSettings) -> int:
    """Length of a step."""
    given = settings.delta_t_minutes
    return round(spec.dt_hours * MINUTES_PER_HOUR if given is None else given)


def horizon_steps(spec: TaskSpec, settings: EpisodeSettings) -> int:
    """Steps of an episode."""
    return spec.horizon if settings.max_steps is None else int(settings.max_steps)


def recorded(spec: TaskSpec, overrides: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Keywords of a task as built, for the record: the catalog's, and the caller's in their place."""
    return tuple(sorted((dict(spec.overrides) | dict(overrides)).items()))


def refuse_padding(owner: str, dims: Dims | None, own: Dims) -> None:
    """Raise ValueError for sizes other than the task's own, in a family whose grids are not padded."""
    if dims is not None and dims != own:
        raise ValueError(f"{owner}: this family has nothing to pad; leave dims out, or give {own}.")


@dataclass(frozen=True, kw_only=True)
class BatteryKeywords:
    """Keywords of batteries, all alike.

    battery_capacity_mwh, battery_power_mw, eta_roundtrip, soc_min, soc_max
    initial_soc:  a value, or (low, high) to draw from
    """

    battery_capacity_mwh: Positive = 0.5
    battery_power_mw: Positive = 0.2
    eta_roundtrip: PositiveShare = 0.95
    soc_min: Share = 0.1
    soc_max: Share = 0.9
    initial_soc: Share | tuple[Share, Share] = 0.5


def storage_stack(
    settings: BatteryKeywords, count: int, degradation_per_mwh: float, dtype: Any, s_mva: float | None = None
) -> StorageParams:
    """Batteries as the keywords describe them, with their wear [$/MWh]."""
    return storage_params(
        count,
        dtype,
        capacity_mwh=settings.battery_capacity_mwh,
        power_mw=settings.battery_power_mw,
        s_mva=s_mva,
        eta_roundtrip=settings.eta_roundtrip,
        soc_min=settings.soc_min,
        soc_max=settings.soc_max,
        initial_soc=settings.initial_soc,
        degradation_per_mwh=degradation_per_mwh,
    )
