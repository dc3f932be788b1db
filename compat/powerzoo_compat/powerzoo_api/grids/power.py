"""A grid and its devices as dicts of spaces, and the wrapper that flattens them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from gymnasium.spaces import Box, Dict

from powerzoo_compat._host import checked_values
from powerzoo_compat._replay import ShowsEpisode
from powerzoo_compat._textfile import read_file
from powerzoo_compat.powerzoo_api.envs.base import BaseEnv, fresh
from powerzoo_compat.powerzoo_api.grids.config import create_grid
from powerzoo_compat.powerzoo_api.grids.envs import UNIT_MW, GridEnv, TransGridEnv
from powerzoo_compat.powerzoo_api.wrappers.flatten import Wrapper
from powerzoo_jax.base.errors import unknown

CLOCK = ("time_sin", "time_cos")
PARTS = ("grid", "resources", "time")


class PowerEnv(ShowsEpisode, BaseEnv):
    """A grid with devices: observations {grid, resources, time}, actions by device id.

    grid:  devices registered; a transmission grid takes the action `unit_power_mw` [MW]

    An array for a device is in the device's own space, a dict in physical units; who is left out idles.
    """

    _runs_on = "grid"

    def __init__(self, grid: GridEnv) -> None:
        if not isinstance(grid, GridEnv):
            raise TypeError(f"PowerEnv needs a grid, got {type(grid).__name__}. Give TransGridEnv or DistGridEnv.")
        super().__init__(grid.delta_t_minutes)
        self.grid, self.base_env, self.resources = grid, grid, grid.resources
        box, names = grid._env._host.observation_box(), grid.renamed(grid._env.get_observation_fields())
        self._own = {
            name: [k for k, field in enumerate(names) if field.startswith(f"{name}/")]
            for name in sorted(self.resources)  # as Gymnasium sorts the keys of a space
        }
        clock = [f"time/{x}" if f"time/{x}" in names else x for x in CLOCK]
        self._time = [names.index(x) for x in clock]
        self._names = names
        self.observation_space = Dict(
            {
                "grid": grid.obs_space,
                "resources": Dict({name: _part(box, rows) for name, rows in self._own.items()}),
                "time": _part(box, self._time),
            }
        )
        self.action_space = self._actions()
        self.constraint_names = grid.constraint_names  # type: ignore[method-assign]
        self.selected_constraint_names = grid.selected_constraint_names
        self.cost_thresholds = grid.cost_thresholds

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Out of the keys `grid`, `resources`, `episode` and `data` of a task's config. ValueError for another one."""
        return cls(create_grid(config))  # type: ignore[arg-type]

    @classmethod
    def from_yaml(cls, path: str | Path) -> Self:
        """The same out of a YAML or TOML file; YAML needs PyYAML (extra `dropin`)."""
        return cls.from_config(read_file(path))

    @property
    def _env(self) -> Any:
        return self.grid._env

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        _, info = self.grid.reset(seed=seed, options=options)
        return self.obs(), info

    def step(self, action: Mapping[str, Any]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Advance one step by a dict of devices. TypeError for no dict, else as `GridEnv.step`."""
        if not isinstance(action, Mapping):
            raise TypeError(f"action must be a dict of {', '.join(self.action_space)}, got {type(action).__name__}.")  # type: ignore[attr-defined]
        _, reward, terminated, truncated, info = self.grid.step(action)
        self.time_step = self.grid.time_step
        return self.obs(), reward, terminated, truncated, info

    def obs(self) -> dict[str, Any]:
        """Last observation."""
        values = self.grid._env.obs()
        return {
            "grid": fresh(values[: self.grid.obs_size]),
            "resources": {name: fresh(values[rows]) for name, rows in self._own.items()},
            "time": fresh(values[self._time]),
        }

    def reward(self) -> float:
        """Reward of the last step."""
        return self.grid.reward()

    def render(self) -> Any:
        """See `GridEnv.render`."""
        return self.grid.render()

    def close(self) -> None:
        """See `GridEnv.close`."""
        self.grid.close()

    def get_observation_fields(self) -> tuple[str, ...]:
        """Names of the entries of grid, devices and time, in this order."""
        rows = [row for part in self._own.values() for row in part]
        return (*self.grid.get_observation_fields(), *(self._names[row] for row in (*rows, *self._time)))

    def _actions(self) -> Dict:
        if isinstance(self.grid, TransGridEnv):
            low, high = (x.astype(np.float32) for x in self.grid.unit_limits_mw)
            return Dict({UNIT_MW: Box(low, high)})
        return Dict([(name, Box(slot.low, slot.high)) for name, slot in self.grid.slots.items()])  # type: ignore[attr-defined]


class FlattenWrapper(Wrapper):
    """A PowerEnv as vectors: grid, devices and time joined; actions in order of registration.

    resource_names:    devices that the action commands (None: all)
    obs_keys:          parts of the observation, of grid, resources and time
    custom_obs_fn:     dict observation -> vector;  custom_action_fn: vector -> dict action
    Batteries are commanded in MW, plants by the share that they curtail, others in their own space.
    Raises ValueError for an unknown device or part.
    """

    def __init__(
        self,
        env: Any,
        resource_names: list[str] | None = None,
        obs_keys: tuple[str, ...] = PARTS,
        custom_obs_fn: Callable[[dict[str, Any]], np.ndarray] | None = None,
        custom_action_fn: Callable[[np.ndarray], dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(env)
        self._names = list(env.action_space) if resource_names is None else list(resource_names)
        for kind, given, known in (("device", self._names, list(env.action_space)), ("part", obs_keys, PARTS)):
            for name in given:
                if name not in known:
                    raise ValueError(unknown(f"{kind} of a PowerEnv", name, known))
        self._keys, self._obs_fn, self._action_fn = tuple(obs_keys), custom_obs_fn, custom_action_fn
        space = env.observation_space
        low, high = (self._joined(_bounds(space, side)) for side in ("low", "high"))
        self.observation_space = Box(low, high)
        self._scale = {name: _scale(env.resources.get(name), env.action_space[name]) for name in self._names}
        empty = np.zeros(0, np.float32)
        low, high = (np.concatenate([empty, *(s[side] for s in self._scale.values())]) for side in (0, 1))
        self.action_space = Box(low, high)

    def step(self, action: Any) -> Any:
        """Advance one step by a vector."""
        obs, *rest = self.env.step(self._commands(action) if self._action_fn is None else self._action_fn(action))
        return (self._seen(obs), *rest)

    def _commands(self, action: Any) -> dict[str, np.ndarray]:
        values = checked_values(action, self.action_space)
        values = np.clip(values, self.action_space.low, self.action_space.high)  # type: ignore[attr-defined]
        cuts = np.cumsum([len(low) for low, _, _ in self._scale.values()])[:-1]
        parts = np.split(values, cuts) if self._scale else []
        return {name: to_own(part) for (name, (_, _, to_own)), part in zip(self._scale.items(), parts, strict=True)}

    def _seen(self, obs: dict[str, Any]) -> np.ndarray:
        return self._joined(obs) if self._obs_fn is None else self._obs_fn(obs)

    def _joined(self, obs: Mapping[str, Any]) -> np.ndarray:
        parts: list[np.ndarray] = []
        for key in self._keys:
            parts += list(obs[key].values()) if key == "resources" else [obs[key]]
        return fresh(np.concatenate(parts))


def _part(box: Box, rows: list[int]) -> Box:
    return Box(box.low[rows], box.high[rows])


def _bounds(space: Any, side: str) -> dict[str, Any]:
    inner = {name: getattr(box, side) for name, box in space["resources"].items()}
    return {"grid": getattr(space["grid"], side), "resources": inner, "time": getattr(space["time"], side)}


def _scale(device: Any, box: Box) -> tuple[np.ndarray, np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Bounds of a device's entries in an action vector, and the map from there to its own space."""
    if device is not None and device.kind == "storage":
        rated = np.array([device.ratings["power_mw"], device.core_ratings()["s_mva"]][: len(box.low)], np.float32)
        return -rated, rated, functools.partial(_over, rated)
    if device is not None and device.kind == "renewable":
        low, high = box.low.copy(), box.high.copy()
        low[0], high[0] = 0.0, 1.0
        return low, high, _curtailment
    return box.low, box.high, _as_given


def _over(rated: np.ndarray, values: np.ndarray) -> np.ndarray:
    return values / rated


def _curtailment(values: np.ndarray) -> np.ndarray:
    return np.concatenate([1 - 2 * values[:1], values[1:]])


def _as_given(values: np.ndarray) -> np.ndarray:
    return values
