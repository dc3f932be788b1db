"""`BaseEnv`: common base class of the environments of the contract."""

from __future__ import annotations

import copy
import dataclasses
import math
import sys
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from powerzoo_compat._seeds import checked_seed
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.data.clock import steps_per_day

DEFAULT_DELTA_T_MINUTES = 30
BUILDERS = (gymnasium.make.__code__, gymnasium.make_vec.__code__)


class TaskEnvSpec(EnvSpec):
    """Registration of an environment that truncates its episodes by itself.

    length:             steps of an episode, None where that is not known
    max_episode_steps:  what it was set to, else the length. To Gymnasium, which builds a time limit from it, the length
                        is not told: the limit would end episodes of a longer `max_steps`
    """

    length: int | None = None

    @classmethod
    def of(cls, given: EnvSpec, length: int | None) -> TaskEnvSpec:
        """A registration with the length of its episodes; a limit that it has stays."""
        if isinstance(given, cls):
            found = copy.copy(given)
        else:
            found = cls(**{field.name: getattr(given, field.name) for field in dataclasses.fields(given) if field.init})
        found.length = length
        return found

    @property
    def max_episode_steps(self) -> int | None:  # type: ignore[override]
        if self._limit is None and sys._getframe(1).f_code not in BUILDERS:
            return self.length
        return self._limit

    @max_episode_steps.setter
    def max_episode_steps(self, steps: int | None) -> None:
        self._limit = steps


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
        """Registration that made this environment, with the length of its episodes; None for one made otherwise."""
        return self._spec

    @spec.setter
    def spec(self, given: Any) -> None:
        self._spec = None if given is None else TaskEnvSpec.of(given, self.episode_limit())

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
