"""Keywords that tasks of all families share: how they merge, and the checks of their values.

Every family has its own dataclass of keywords on top of these; a default stands in the class, the catalog replaces it,
and the caller replaces both.
"""

from __future__ import annotations

import dataclasses
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

from powerzoo_jax.base import Dims, TaskSpec
from powerzoo_jax.base.errors import SettingsError, excerpt, listing, numbered, unexpected, unknown
from powerzoo_jax.base.ranges import MOST, Budget, Positive, PositiveShare, Range, Share, check_fields, declared, fitted
from powerzoo_jax.base.solver_mode import AUTO, MODES
from powerzoo_jax.data import Series
from powerzoo_jax.data.clock import steps_per_day
from powerzoo_jax.devices import StorageParams, storage_params
from powerzoo_jax.devices.protocol import Charge

MINUTES_PER_HOUR, MINUTES_PER_DAY = 60, 1440
TIGHTNESS = ("loose", STANDARD := "standard", "strict")  # standard budgets are those of a spec
# Keywords that a task accepts though they may change nothing, and why; any other one is used or refused.
WITHOUT_EFFECT = {
    "allow_static_load": "every task has a load series",
    "forecast_horizon_steps": "of observation modes with forecasts alone, in transmission tasks",
    "queue": "slots beyond those that jobs ever wait in are left out",
    "shifted_workload_source": "of the splits workload_swap and workload_shock alone",
    "stress_load": "of the split load_stress alone",
    "strict_workload": "of traces that are not there alone",
}

_LANES = "Lanes are no keyword: make one task and map it, jax.vmap(sim.init)(jax.random.split(key, n))."
_REWARD = "A reward of your own goes around a task: powerzoo_jax.envs.with_reward(sim, function)."
_FIELDS = "Observation fields of your own are added to a task: powerzoo_jax.envs.with_fields(sim, block(...))."
_KEYS = "A seed belongs to an episode: sim.init(jax.random.key(seed))."
ELSEWHERE = {
    **dict.fromkeys(("n_envs", "num_envs", "lanes", "envs", "batch_size"), _LANES),
    **dict.fromkeys(("seed", "random_seed", "key", "rng"), _KEYS),
    **dict.fromkeys(("reward", "reward_fn", "reward_function"), _REWARD),
    **dict.fromkeys(("obs_fn", "observation_fn", "observation_function"), _FIELDS),
    "render_mode": "An episode is drawn by `powerzoo-jax view TASK`.",
}  # what users of other libraries pass to `make`, and where it is done here

_taken: deque[TaskSettings] = deque(maxlen=8)  # settings of the tasks made last, for `keywords_of`

Voltage = Annotated[float, Range(0, 10, open_low=True)]  # [pu]
Celsius = Annotated[float, Range(-273.15, 1000)]
Budgets = tuple[tuple[str, tuple[Budget, Budget, Budget]], ...]  # by channel: loose, standard, strict


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """Keywords of every task; the type of a number says its range, see `base.ranges`.

    start_date, end_date: ISO dates that replace the split calendar
    delta_t_minutes:      length of a step (None: the task's); an episode keeps its hours unless max_steps is given
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
                raise TypeError(unexpected(owner, key, known, cls._idle_in(layers), ELSEWHERE.get(key, "")))
        values = {key: value for layer in layers for key, value in layer.items()}
        if wrong := [unknown("keyword", key, known) for key in values if key not in known]:
            raise SettingsError(numbered(f"{owner}: overrides", wrong))
        settings = cls(**check_fields(f"{owner}: ", cls, values))
        settings.check(owner, {"solver": MODES})
        settings._refuse_idle(owner, layers)
        _taken.append(settings)
        return settings

    @classmethod
    def _idle_in(cls, layers: tuple[Mapping[str, Any], ...]) -> Collection[str]:
        """Keywords that change nothing beside those of the layers which are valid; none where their values are not."""
        values = {k: v for layer in layers for k, v in layer.items() if k in cls.__dataclass_fields__}
        try:
            return cls(**check_fields("", cls, values)).idle()
        except (TypeError, ValueError):
            return ()

    def idle(self) -> dict[str, str]:
        """Keywords that change nothing beside the others, and what they need; see also `WITHOUT_EFFECT`."""
        return {}

    def _refuse_idle(self, owner: str, layers: tuple[Mapping[str, Any], ...]) -> None:
        """Raise ValueError for a keyword of the caller that changes nothing, unless its value is the one there was."""
        idle = self.idle()
        for key in idle.keys() & layers[-1].keys():
            before = [layer[key] for layer in layers[:-1] if key in layer] or [self.__dataclass_fields__[key].default]
            if fitted(key, before[-1], declared(type(self))[key]) != getattr(self, key):
                raise SettingsError(
                    f"{owner}: {key} = {excerpt(repr(getattr(self, key)))} changes nothing: it needs {idle[key]}. Give "
                    "that too, or leave it out."
                )

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


class Keyword(NamedTuple):
    """Keyword of a task: its name, its value in the task as made, and what it is for, as its class describes it."""

    name: str
    value: Any
    purpose: str


def keywords_of(build: Callable[[], Any]) -> tuple[Keyword, ...]:
    """Keywords of the task that `build` makes, by name; none where it takes its keywords without a `TaskSettings`.

    Example:
        from powerzoo_jax.tasks import make
        names = [keyword.name for keyword in keywords_of(lambda: make("battery_arbitrage"))]
    """
    _taken.clear()
    build()
    if not _taken:
        return ()
    settings = _taken[0]  # a task may build others inside
    told: dict[str, str] = {}
    for cls in type(settings).__mro__:
        told = _purposes(cls.__doc__ or "") | told
    names = sorted(f.name for f in dataclasses.fields(settings))
    return tuple(Keyword(name, getattr(settings, name), told.get(name, "")) for name in names)


_ENTRY = re.compile(r"^ *(\w+(?:, \w+)*):\s+(\S.*)$")


def _purposes(text: str) -> dict[str, str]:
    """First lines of the entries "name, name:  text" of a docstring, by name, with the lines that go on with them."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in text.splitlines():
        entry = _ENTRY.match(line)
        if entry:
            names = entry[1].split(", ")
            found |= dict.fromkeys(names, entry[2].strip())
        elif line.startswith(" " * 8) and names:
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
        else:
            names = []
    return found


@dataclass(frozen=True, kw_only=True)
class EpisodeSettings(TaskSettings):
    """Keywords of a task whose spec says how long an episode and its steps are.

    max_steps:  horizon in steps (None: the hours of the spec's)
    """

    max_steps: Annotated[int, Range(1, MOST)] | None = None


def step_minutes(spec: TaskSpec, settings: EpisodeSettings) -> int:
    """Length of a step."""
    given = settings.delta_t_minutes
    return round(spec.dt_hours * MINUTES_PER_HOUR if given is None else given)


def horizon_steps(spec: TaskSpec, settings: EpisodeSettings) -> int:
    """Steps of an episode: those given, else as many as the hours of the spec hold.

    Raises ValueError where that is no whole number, or where the step does not divide a day.
    """
    if settings.max_steps is not None:
        return int(settings.max_steps)
    if settings.delta_t_minutes is None:
        return spec.horizon
    minutes, whole = settings.delta_t_minutes, round(spec.horizon * spec.dt_hours * MINUTES_PER_HOUR)
    steps_per_day(minutes)
    if whole % minutes:
        raise ValueError(
            f"{spec.id}: an episode of {whole / MINUTES_PER_HOUR:g} h is no whole number of steps of {minutes} min. "
            "Give max_steps."
        )
    return whole // minutes


def scaled_weights(weights: tuple[float, ...], scale: float | None) -> tuple[float, ...]:
    """Weights of reward terms: those of the spec, or a scale in the place of the first that is not 0 and its equals."""
    if scale is None:
        return weights
    own = next((weight for weight in weights if weight), 1.0)
    return tuple(float(scale) * (1.0 if weight == own else weight / own) for weight in weights)


def agent_names(spec: TaskSpec, own: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the agents: those of the spec, or the family's own where a keyword changed how many there are.

    Raises ValueError for names of another number of agents that are not of the family.
    """
    if len(spec.agents) == len(own):
        return spec.agents
    kinds = {name.partition("_")[0] for name in own}
    if not spec.agents or not {name.partition("_")[0] for name in spec.agents} <= kinds:
        raise ValueError(f"{spec.id}: {len(spec.agents)} agents are named, there are {len(own)}. Name all of them.")
    return own


def refuse_names(spec: TaskSpec, field: str, known: tuple[str, ...]) -> None:
    """Raise ValueError for names of a spec other than those that its family has, in their order."""
    given = getattr(spec, field)
    if given != known:
        raise ValueError(f"{spec.id}: {field} is {listing(given)}; this family has {', '.join(known)}.")


def unknown_names(spec: TaskSpec, terms: Iterable[str], costs: Iterable[str]) -> list[str]:
    """Findings: the reward terms and cost channels of a spec that are not among the known ones."""
    asked = (("reward term", spec.term_names, set(terms)), ("cost channel", spec.cost_names, set(costs)))
    return [unknown(what, name, known) for what, names, known in asked for name in names if name not in known]


def refuse_unknown_names(spec: TaskSpec, terms: Iterable[str], costs: Iterable[str]) -> None:
    """Raise SettingsError (a ValueError) for reward terms and cost channels that are not among the known ones."""
    if wrong := unknown_names(spec, terms, costs):
        raise SettingsError(numbered(spec.id, wrong))


def resolve_source(
    spec: TaskSpec, overrides: Mapping[str, Any], sets: Callable[[Any, Mapping[str, Any]], Mapping[str, Any]]
) -> tuple[TaskSpec, dict[str, Any]]:
    """Put `data_source`, of the caller or else of the spec, in the place of the sets that it stands for.

    sets:  (source, keywords beside it) -> the keywords of these sets, such as load_set
    Raises ValueError where the caller names two sources of loads.
    """
    given, rest = dict(spec.overrides), dict(overrides)
    listed, named = given.pop("data_source", None), rest.pop("data_source", None)
    if named is not None:
        named = fitted(f"{spec.id}: data_source", named, str | Path | Series)
        if "load_set" in rest:
            raise ValueError(f"{spec.id}: data_source and load_set name the same thing. Give one of them.")
        rest = _beside(sets(named, {}), rest)
    elif listed is not None:
        own = _beside(sets(listed, given), {key: value for key, value in rest.items() if key.endswith("_set")})
        given |= {key: value for key, value in own.items() if key not in rest}
    return dataclasses.replace(spec, overrides=tuple(sorted(given.items()))), rest


def _beside(own: Mapping[str, Any], rest: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of a source that give way to what is named beside it: a set takes its column with it."""
    taken = {f"{key.removesuffix('_set')}_column" for key in rest if key.endswith("_set")}
    return {key: value for key, value in own.items() if key not in taken} | dict(rest)


def recorded(spec: TaskSpec, overrides: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Keywords of a task as built, for the record: the catalog's, and the caller's in their place."""
    return tuple(sorted((dict(spec.overrides) | dict(overrides)).items()))


def refuse_padding(owner: str, dims: Dims | None, own: Dims) -> None:
    """Raise ValueError for sizes other than the task's own, in a family whose grids are not padded."""
    if dims is not None and dims != own:
        raise ValueError(f"{owner}: this family has nothing to pad; leave dims out, or give {own}.")


BATTERY_RATINGS = ("battery_capacity_mwh", "battery_power_mw", "eta_roundtrip", "soc_min", "soc_max", "initial_soc")
DRAWN = ("initial_soc",)  # a pair of numbers is the range of all devices


@dataclass(frozen=True, kw_only=True)
class BatteryKeywords:
    """Keywords of batteries.

    battery_capacity_mwh: [MWh] energy from empty to full; a value for all, or a list of one each
    battery_power_mw:     [MW] largest power, both ways; likewise
    eta_roundtrip:        [-] share of the energy taken in that comes out again; likewise
    soc_min, soc_max:     [-] band of the state of charge; likewise
    initial_soc:          a value, or (low, high) to draw from, or such a pair of each
    """

    battery_capacity_mwh: Positive | tuple[Positive, ...] = 0.5
    battery_power_mw: Positive | tuple[Positive, ...] = 0.2
    eta_roundtrip: PositiveShare | tuple[PositiveShare, ...] = 0.95
    soc_min: Share | tuple[Share, ...] = 0.1
    soc_max: Share | tuple[Share, ...] = 0.9
    initial_soc: Charge = 0.5


def one_each(settings: Any, names: Iterable[str], count: int, devices: str) -> None:
    """Raise SettingsError, naming both numbers, for a keyword that lists values of another number of devices."""
    for name in names:
        value = getattr(settings, name)
        listed = isinstance(value, tuple) and (name not in DRAWN or not value or isinstance(value[0], tuple))
        if listed and len(value) != count:
            raise SettingsError(
                f"{name} has {len(value)} values for {count} {devices}. Give one value, or one for each."
            )


def storage_stack(
    settings: BatteryKeywords,
    count: int,
    degradation_per_mwh: float | tuple[float, ...],
    dtype: Any,
    s_mva: float | tuple[float, ...] | None = None,
) -> StorageParams:
    """Batteries as the keywords describe them, with their wear [$/MWh]; SettingsError for lists of another length."""
    one_each(settings, BATTERY_RATINGS, count, "batteries")
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
