"""Settings common to all learners: names and ranges checked, read from a section of a TOML file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, get_type_hints

from powerzoo_jax.base.errors import SettingsError, unknown
from powerzoo_jax.base.ranges import NotNegative, Positive, Range, Whole, check_settings
from powerzoo_jax.base.textfile import read_toml
from powerzoo_jax.data.augment import AS_RECORDED, KINDS, NONE, Years

ACTIVATIONS = ("relu", "silu", "tanh")

# what no machine holds, and what an axis of an array cannot be, is refused here and not by an allocation
Width = Annotated[int, Range(1, 2**20)]


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings common to all learners; the TOML file holds `task`, `split` and `algorithm` at its top level.

    The type of a number says its range, see `base.ranges`; SettingsError (a ValueError) names what lies outside.

    task, split:   what to train on, as in `powerzoo_jax.make(task, split=split)`
    widths:        hidden layers of every network
    activation:    relu, silu or tanh, after every hidden layer
    obs_floor:     least standard deviation of an observation field, as a share of its declared half range
    running_obs:   standardise observations by the moments seen in training, which the policy keeps and evaluation
                   uses; False scales by the declared bounds throughout
    reward_scale:  factor on the reward the learner sees; metrics stay in the units of the task
    cost_weights:  price of each cost channel in the learner's reward [reward/unit]; () = costs are only reported
    start:         action of an agent that policies start at, in [-1, 1], one number a column; () = the idle action
    select_every:  updates between looks at split val, the best policy of which is kept and scored; 0 = the last one is
    start_from:    folder of a run whose policies this one begins with, seed by seed, in place of random ones
    augment:       "blocks" or "synthetic" prices beside the recorded ones, as in `data.augment`: in training alone, of
                   tasks that take the keyword; "none" = recorded ones only
    augment_years: years of them; a start draws evenly among its recorded days of prices and one of each year
    history:       observations that a policy sees side by side, the last ones, the present one included
    """

    algorithm: ClassVar[str]

    task: str = "battery_arbitrage"
    split: str = "train"
    widths: tuple[Width, ...] = (128, 128)
    activation: str = "tanh"
    obs_floor: Positive = 0.05
    running_obs: bool = True
    reward_scale: Positive = 1.0
    cost_weights: tuple[NotNegative, ...] = ()
    start: tuple[Annotated[float, Range(-1, 1)], ...] = ()
    select_every: Whole = 0
    start_from: str = ""
    augment: str = NONE
    augment_years: Years = AS_RECORDED.years
    history: Annotated[int, Range(1, 2**10)] = 1

    def __post_init__(self) -> None:
        check_settings(f"{self.algorithm}: ", self)
        for name, known in (("activation", ACTIVATIONS), ("augment", KINDS)):
            if getattr(self, name) not in known:
                raise ValueError(unknown(name, getattr(self, name), known))

    @property
    def keywords(self) -> dict[str, Any]:
        """Keywords of the task that is trained on, and of no other split."""
        added = {"augment": self.augment, "augment_years": self.augment_years}
        return {} if self.augment == NONE else added

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Settings out of plain values, as TOML or JSON gives them; names are checked, the rest is the default."""
        types = types_of(cls)
        for name in values:
            if name not in types:
                raise ValueError(unknown(f"{cls.algorithm} setting", name, types))
        return cls(**values)

    @classmethod
    def from_toml(cls, path: str | Path) -> Self:
        """Read the top level and the section of this algorithm from a TOML file; SettingsError names what is wrong."""
        table = read_toml(path)
        try:
            return cls.from_dict(_section(table, cls.algorithm))
        except ValueError as err:
            raise SettingsError(f"settings file {path}: {err}") from err

    def to_dict(self) -> dict[str, Any]:
        """The resolved settings as plain values; `from_dict(to_dict())` without `algorithm` gives them back."""
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(self).items()}
        return {"algorithm": self.algorithm, **plain}


def types_of(cls: type[Config]) -> dict[str, Any]:
    """Type of every setting, with its range."""
    hints = get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls)}


def _section(table: Mapping[str, Any], algorithm: str) -> dict[str, Any]:
    """Merge the top level and one section; names the other sections may hold are not checked here."""
    known = {name for kind in _kinds(Config) if (name := getattr(kind, "algorithm", None))}
    top = {k: v for k, v in table.items() if k not in known and k != "algorithm"}
    own = table.get(algorithm, {})
    if not isinstance(own, dict):
        raise ValueError(f"{algorithm} = {own!r} must be a section: write [{algorithm}] and its settings below.")
    return {**top, **own}


def _kinds(cls: type[Config]) -> list[type[Config]]:
    """Settings of all learners, those that extend others included."""
    return [kind for own in cls.__subclasses__() for kind in (own, *_kinds(own))]
