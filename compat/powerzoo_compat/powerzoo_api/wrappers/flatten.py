"""Wrappers over any environment of the contract; unknown attributes pass through to what they wrap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from powerzoo_compat._replay import ShowsEpisode
from powerzoo_compat.powerzoo_api.envs.base import fresh
from powerzoo_compat.powerzoo_api.envs.constraint import SCALAR_LIMIT, ConstraintSpec
from powerzoo_compat.powerzoo_api.wrappers.forecast import LoadForecast
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.envs.constraint import budget_scales


class Wrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Gymnasium wrapper that passes on every public attribute of the wrapped environment.

    Subclasses change observations by `_seen`, infos by `_told`, or whole steps.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"accessing private attribute {name!r} is prohibited")
        return getattr(self.env, name)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode: (observation, info)."""
        obs, info = self.env.reset(seed=seed, options=options)
        return self._seen(obs), self._told(info)

    def step(self, action: Any) -> Any:
        """Advance one step: (observation, reward, terminated, truncated, info)."""
        obs, *rest, info = self.env.step(action)
        return (self._seen(obs), *rest, self._told(info))

    def _seen(self, obs: Any) -> Any:
        return obs

    def _told(self, info: dict[str, Any]) -> dict[str, Any]:
        return info


class GymnasiumWrapper(Wrapper):
    """A grid as a standard environment: the vector `obs(state)` in the place of its dict of arrays.

    Attributes obs_names, action_names: the entries of both vectors. Raises TypeError for what has no `obs`.
    """

    def __init__(self, env: Any) -> None:
        if not callable(getattr(env, "obs", None)):
            raise TypeError(f"{type(env).__name__} has no method obs(state). Wrap a TransGridEnv or a DistGridEnv.")
        super().__init__(env)
        self.observation_space = env.obs_space

    def _seen(self, obs: Any) -> Any:
        return self.env.obs(obs)  # type: ignore[attr-defined]


class NormalizationWrapper(Wrapper):
    """Observations mapped from their declared bounds to [-1, 1]; nothing is learned from data.

    clip:  cut what lies outside the bounds
    Attributes obs_low, obs_high: the bounds of the wrapped environment.
    """

    def __init__(self, env: Any, clip: bool = True) -> None:
        super().__init__(env)
        self.obs_low, self.obs_high = fresh(env.observation_space.low), fresh(env.observation_space.high)
        self.clip = clip
        self.observation_space = unit_box(self.obs_low)

    def _seen(self, obs: Any) -> Any:
        return within_bounds(obs, self.obs_low, self.obs_high, self.clip)


class FlattenObservation(Wrapper):
    """Observations of a dict space joined into one vector, keys in the order of the space."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = gymnasium.spaces.flatten_space(env.observation_space)
        self._from = env.observation_space

    def _seen(self, obs: Any) -> Any:
        return gymnasium.spaces.flatten(self._from, obs)


class FlattenAction(Wrapper):
    """Actions of a dict space taken as one vector.

    action_keys, action_shapes, action_bounds:  name, shape and (low, high) of each part
    Raises ValueError for lists of different lengths.
    """

    def __init__(
        self,
        env: Any,
        action_keys: Sequence[str],
        action_shapes: Sequence[tuple[int, ...]],
        action_bounds: Sequence[tuple[float, float]],
    ) -> None:
        super().__init__(env)
        counts = len(action_keys), len(action_shapes), len(action_bounds)
        if len(set(counts)) > 1:
            raise ValueError(
                f"action_keys, action_shapes and action_bounds hold {counts} entries. Give as many of each."
            )
        self._parts = list(zip(action_keys, action_shapes, strict=True))
        sizes = [int(np.prod(shape)) for shape in action_shapes]
        low, high = (np.repeat([b[side] for b in action_bounds], sizes).astype(np.float32) for side in (0, 1))
        self.action_space = Box(low, high)
        self._cuts = np.cumsum(sizes)[:-1]

    def step(self, action: Any) -> Any:
        """Advance one step."""
        parts = np.split(np.asarray(action, np.float32), self._cuts)
        return self.env.step({k: part.reshape(shape) for (k, shape), part in zip(self._parts, parts, strict=True)})


class TaskCMDPWrapper(Wrapper):
    """Infos with the selected cost channels: names, costs, sum, `cost` and `costs`.

    constraint_spec:  which channels count, and their budgets
    Raises KeyError for a channel that the environment does not have.
    """

    def __init__(self, env: Any, constraint_spec: ConstraintSpec) -> None:
        super().__init__(env)
        self._all = tuple(env.constraint_names())
        for name in constraint_spec.selected_names:
            if name not in self._all:
                raise KeyError(unknown("cost channel", name, self._all))
        self._spec = constraint_spec
        self.cost_thresholds = constraint_spec.thresholds
        self.cost_threshold = constraint_spec.scalar_threshold
        self.fallback_weights = constraint_spec.fallback_weights

    def constraint_spec(self) -> ConstraintSpec:
        """Channels that count."""
        return self._spec

    def full_constraint_names(self) -> tuple[str, ...]:
        """All channels of the environment."""
        return self._all

    def constraint_names(self) -> tuple[str, ...]:
        """The same as `selected_constraint_names`."""
        return self._spec.selected_names

    def selected_constraint_names(self) -> tuple[str, ...]:
        """Channels that count."""
        return self._spec.selected_names

    def _told(self, info: dict[str, Any]) -> dict[str, Any]:
        costs = {name: float(info[f"cost_{name}"]) for name in self._spec.selected_names}
        return info | {
            "selected_constraint_names": self._spec.selected_names,
            "selected_constraint_costs": fresh(list(costs.values())),
            "selected_cost_sum": float(sum(costs.values())),
            "cost": float(sum(costs.values())),
            "costs": costs,
        }


class CMDPWrapper(Wrapper):
    """Six values a step: the vector of the selected costs beside the reward."""

    def step(self, action: Any) -> Any:
        """Advance one step: (observation, reward, costs, terminated, truncated, info)."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, selected_costs(info), terminated, truncated, info


class GymnasiumSafeWrapper(Wrapper):
    """Five values a step, with the scalar `cost` and the dict `costs` in every info.

    `cost` adds up shares of budgets, see `powerzoo_jax.envs.constraint.budget_scales`: within its limit of 1 every
    budget holds. `cost_sum`, `costs` and the `selected_*` keys stay in the units of the channels. Where the environment
    has no budgets, `cost` is `cost_sum`, without a limit of its own.

    cost_threshold:  limit of an episode's scalar cost; None takes 1
    """

    def __init__(self, env: Any, cost_threshold: float | None = None) -> None:
        super().__init__(env)
        budgets = getattr(env, "cost_thresholds", ())
        self._scales = budget_scales(env.selected_constraint_names(), budgets) if budgets else None
        own = SCALAR_LIMIT if budgets else getattr(env, "cost_threshold", None)
        self.cost_threshold = own if cost_threshold is None else float(cost_threshold)

    def _told(self, info: dict[str, Any]) -> dict[str, Any]:
        if self._scales is not None:
            return info | {"cost": float((info["selected_constraint_costs"] / self._scales).sum())}
        costs = dict(zip(info["constraint_names"], map(float, info["constraint_costs"]), strict=True))
        return info | {"cost": float(info["cost_sum"]), "costs": costs}


class SafeRLWrapper(GymnasiumSafeWrapper):
    """Six values a step: the scalar cost beside the reward; see `GymnasiumSafeWrapper`."""

    def step(self, action: Any) -> Any:
        """Advance one step: (observation, reward, cost, terminated, truncated, info)."""
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, info["cost"], terminated, truncated, info


class ForecastWrapper(ShowsEpisode, Wrapper):
    """Observations with the total loads of the next steps, as shares of the largest load of all data.

    horizon:    steps; beyond the end of the episode the last value repeats
    mode:       "perfect", "noisy" (times 1 + noise of standard deviation noise_std sqrt(k)) or "none" (zeros)
    normalize:  False gives MW
    Raises ValueError for another mode, or an environment without one load series.
    """

    _runs_on = "env"
    _moving: ClassVar[tuple[str, ...]] = ("_noise",)

    def __init__(
        self, env: Any, horizon: int = 6, mode: str = "perfect", noise_std: float = 0.02, normalize: bool = True
    ) -> None:
        super().__init__(env)
        self.forecast = LoadForecast(env.unwrapped, horizon, mode, noise_std, normalize)
        self.observation_space = self.forecast.extended(env.observation_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        obs, info = self.env.reset(seed=seed, options=options)
        self.forecast.begin(seed)  # before the first forecast, and not if the environment refuses the reset
        return self._seen(obs), info

    @property
    def _noise(self) -> np.random.Generator:
        """Generator of the forecasts' errors."""
        return self.forecast.noise

    @_noise.setter
    def _noise(self, generator: np.random.Generator) -> None:
        self.forecast.noise = generator

    def _seen(self, obs: Any) -> Any:
        return self.forecast.append(obs)


class RewardWrapper(Wrapper):
    """Reward by a function of the observation and the info; info keeps `env_reward`.

    fn:  (observation, info) -> float
    """

    def __init__(self, env: Any, fn: Any) -> None:
        super().__init__(env)
        self._fn = fn

    def reset(self, **keywords: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; `env_reward` is 0 before the first step."""
        obs, info = self.env.reset(**keywords)
        return obs, info | {"env_reward": 0.0}

    def step(self, action: Any) -> Any:
        """Advance one step."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, float(self._fn(obs, info)), terminated, truncated, info | {"env_reward": reward}


class MDPFallbackRewardWrapper(Wrapper):
    """Scalar reward r - sum_k w_k c_k of a constrained task; info keeps `env_reward` and `reward_fallback`.

    fallback_weights:  one price a selected channel, or one for all; None takes the environment's
    Raises ValueError for another number of weights.
    """

    def __init__(self, env: Any, fallback_weights: float | Sequence[float] | None = None) -> None:
        super().__init__(env)
        names = tuple(env.selected_constraint_names())
        own = getattr(env, "fallback_weights", (1.0,) * len(names))
        given = own if fallback_weights is None else fallback_weights
        weights = np.full(len(names), given, float) if np.ndim(given) == 0 else np.asarray(given, float)
        if len(weights) != len(names):
            raise ValueError(
                f"{len(weights)} fallback weights for {len(names)} channels {names}. Give one, or one each."
            )
        self.fallback_weights = tuple(weights.tolist())

    def reset(self, **keywords: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; both rewards are 0 before the first step."""
        obs, info = self.env.reset(**keywords)
        return obs, info | {"env_reward": 0.0, "reward_fallback": 0.0}

    def step(self, action: Any) -> Any:
        """Advance one step."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        priced = float(reward - np.dot(self.fallback_weights, selected_costs(info)))
        return obs, priced, terminated, truncated, info | {"env_reward": reward, "reward_fallback": priced}


def selected_costs(info: Mapping[str, Any]) -> np.ndarray:
    """Costs of the selected channels (S,), else of all."""
    return fresh(info.get("selected_constraint_costs", info["constraint_costs"]))


def unit_box(like: np.ndarray) -> Box:
    """[-1, 1] for every entry."""
    return Box(-np.ones_like(like), np.ones_like(like))


def within_bounds(obs: np.ndarray, low: np.ndarray, high: np.ndarray, clip: bool = True) -> np.ndarray:
    """Entries mapped from [low, high] to [-1, 1]; a field of no width becomes 0."""
    half = (high - low) / 2
    out = (obs - (high + low) / 2) / np.where(half > 0, half, 1)
    return fresh(np.clip(out, -1, 1) if clip else out)
