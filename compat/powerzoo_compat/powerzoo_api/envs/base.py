"""`BaseEnv`: common base class of the environments of the contract."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any, ClassVar

import gymnasium
import numpy as np

from powerzoo_compat._seeds import checked_seed
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.data.clock import steps_per_day

DEFAULT_DELTA_T_MINUTES = 30


class BaseEnv(gymnasium.Env[Any, Any]):
    """Abstract parent of all environments.

    time_step:        steps executed in this episode
    delta_t_minutes:  length of a step, a divisor of a day
    render_mode:      None or one of metadata["render_modes"]

    Raises ValueError for a step that does not divide a day or for a render mode that the class does not have.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": [], "render_fps": 2}  # type: ignore[misc]
    _moving: ClassVar[tuple[str, ...]] = ("time_step", "_np_random", "_np_random_seed")
    _spec: Any = None

    def __init__(self, delta_t_minutes: int = DEFAULT_DELTA_T_MINUTES, render_mode: str | None = None) -> None:
        steps_per_day(delta_t_minutes)
        self.metadata = own_metadata(type(self), render_mode)  # type: ignore[misc]
        self.delta_t_minutes = delta_t_minutes
        self.render_mode = render_mode
        self.time_step = 0

    @property
    def spec(self) -> Any:  # type: ignore[override]
        """Registration that made this environment, None for one made otherwise; it tells the length of an episode.

        The environment truncates by itself, so that the registration holds no limit, which would bind `max_steps`.
        """
        return self._spec

    @spec.setter
    def spec(self, given: Any) -> None:
        limit = self.episode_limit()
        if given is not None and given.max_episode_steps is None and limit is not None:
            given = dataclasses.replace(given, max_episode_steps=limit)
        self._spec = given

    def episode_limit(self) -> int | None:
        """Steps of an episode; None where it does not end by itself."""
        return None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; subclasses call this first, then return (observation, info).

        Raises ValueError for a negative seed, TypeError for one that is no integer.
        """
        super().reset(seed=None if seed is None else checked_seed(seed), options=options)
        self.time_step = 0
        return None, {}

    def obs(self) -> Any:
        """Last observation."""
        raise NotImplementedError

    def reward(self) -> float:
        """Reward of the last step."""
        raise NotImplementedError

    def cost(self) -> float:
        """Constraint cost of the last step; 0.0 where an environment has none."""
        return 0.0

    def constraint_names(self) -> tuple[str, ...]:
        """Names of the cost channels, in order."""
        return ()


def own_metadata(kind: type[Any], render_mode: str | None) -> dict[str, Any]:
    """Metadata of an environment class, as a copy. Raises ValueError for a render mode that the class does not have."""
    metadata: dict[str, Any] = copy.deepcopy(kind.metadata)  # wrappers append to render_modes through shallow copies
    if render_mode is not None and render_mode not in metadata["render_modes"]:
        raise ValueError(unknown("render mode", render_mode, metadata["render_modes"]))
    return metadata


def fresh(values: Any) -> np.ndarray:
    """A writable float32 copy that shares memory with nothing."""
    return np.array(values, np.float32)


def finite(x: Any) -> float:
    """A float that is never NaN or infinite: the largest number of its dtype, else of float32, stands for those."""
    value = float(x)
    if math.isfinite(value):
        return value
    largest = float(np.finfo(getattr(x, "dtype", np.float32)).max)
    return -largest if value < 0 else largest
