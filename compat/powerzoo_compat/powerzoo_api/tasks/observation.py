"""Observation modes of the contract, and their settings in a config."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.ranges import Whole, check_settings

OBSERVATION_MODES = ("global", "local", "local_plus_forecast", "local_plus_voltage", "ders_local")
FLATTENED = "flattened"  # the one mode of single-agent tasks
FORECAST_STEPS = 4


@dataclass(frozen=True)
class ObservationConfig:
    """Observation settings of an agent: `task_keywords` are those of `make_task_env`.

    mode:                    one of OBSERVATION_MODES
    supported:               modes that the task offers
    forecast_horizon_steps:  steps that local_plus_forecast shows
    Raises ValueError for a mode that is not supported, or a negative horizon.
    """

    mode: str = "local"
    supported: tuple[str, ...] = OBSERVATION_MODES
    forecast_horizon_steps: Whole = FORECAST_STEPS

    def __post_init__(self) -> None:
        check_settings("", self)
        for name in (*self.supported, self.mode):
            if name not in OBSERVATION_MODES:
                raise ValueError(unknown("observation mode", name, OBSERVATION_MODES))
        if self.mode not in self.supported:
            raise ValueError(unknown("supported observation mode", self.mode, self.supported))

    @property
    def task_keywords(self) -> dict[str, Any]:
        """Observation settings as keywords of a task."""
        return {"obs_mode": self.mode, "forecast_horizon_steps": self.forecast_horizon_steps}


def make_observation_config(
    mode: str = "local",
    supported: Iterable[str] = OBSERVATION_MODES,
    forecast_horizon_steps: int = FORECAST_STEPS,
) -> ObservationConfig:
    """An ObservationConfig, checked."""
    return ObservationConfig(mode, tuple(supported), forecast_horizon_steps)


def normalize_observation_config(given: ObservationConfig | Mapping[str, Any] | str | None) -> ObservationConfig:
    """An ObservationConfig out of itself, its fields as a dict, the name of a mode, or nothing.

    Raises ValueError for an unknown field, TypeError for anything else.
    """
    if given is None:
        return ObservationConfig()
    if isinstance(given, ObservationConfig):
        return given
    if isinstance(given, str):
        return ObservationConfig(given)
    if not isinstance(given, Mapping):
        raise TypeError(f"an observation config is a dict or the name of a mode, got {type(given).__name__}.")
    fields = ObservationConfig.__dataclass_fields__
    for name in given:
        if name not in fields:
            raise ValueError(unknown("field of an observation config", str(name), fields))
    return make_observation_config(**given)


def normalize_agents_observation_configs(given: Any, agents: Iterable[str]) -> dict[str, ObservationConfig]:
    """An ObservationConfig for each agent, out of one for all or a dict by agent."""
    names = list(agents)
    if isinstance(given, Mapping) and set(given) <= set(names):
        return {name: normalize_observation_config(given.get(name)) for name in names}
    return dict.fromkeys(names, normalize_observation_config(given))
