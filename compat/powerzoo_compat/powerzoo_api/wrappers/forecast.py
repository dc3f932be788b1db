"""Forecasts of the total load, read from the series that the episode plays."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box

from powerzoo_compat._host import Host
from powerzoo_compat.powerzoo_api.envs.base import fresh
from powerzoo_jax.base.errors import unknown

MODES = ("perfect", "noisy", "none")
HEADROOM = 2.0  # noise may pass the largest load
FULL_LOAD = ("full_load_mw", "load_mw")  # [MW] of a row of 1


def load_series(host: Host) -> np.ndarray:
    """Total load [MW] of every row (R,) that an episode may play.

    Raises ValueError for a task without a load series, or with several.
    """
    params = host.sim.params
    rows = getattr(getattr(params, "bank", None), "load_rows", None)
    if rows is None or getattr(params, "shape_mw", None) is not None:
        raise ValueError(f"{host.sim.spec.id} has not one load series to forecast. Use a task whose buses share one.")
    full = next((float(getattr(params, name)) for name in FULL_LOAD if hasattr(params, name)), 1.0)
    return np.asarray(rows[:, 0], float) * full


class LoadForecast:
    """Loads of the steps after the coming one; see `ForecastWrapper`.

    noise:  generator of the forecasts' errors
    """

    def __init__(self, env: Any, horizon: int, mode: str, noise_std: float, normalize: bool) -> None:
        if mode not in MODES:
            raise ValueError(unknown("forecast mode", mode, MODES))
        if not hasattr(env, "_host"):
            raise ValueError(f"{env} plays no load series. Wrap the environment of a task.")
        self._env, self._series = env, load_series(env._host)
        self.horizon, self.mode, self.noise_std = horizon, mode, noise_std
        self._peak = float(self._series.max())
        self._unit = self._peak if normalize else 1.0
        self._top = HEADROOM * self._peak / self._unit
        self.noise = np.random.default_rng()

    def begin(self, seed: int | None) -> None:
        """Fix the noise of the episodes that follow."""
        if seed is not None:
            self.noise = np.random.default_rng(seed)

    def extended(self, box: Box) -> Box:
        """The space with the forecast behind it."""
        more = np.full(self.horizon, self._top, np.float32)
        return Box(np.append(box.low, 0 * more), np.append(box.high, more), dtype=np.float32)

    def append(self, obs: np.ndarray) -> np.ndarray:
        """The observation with the forecast behind it."""
        episode, steps = self._env._episode, self._env._host.sim.spec.horizon
        ahead = np.minimum(episode.steps + 1 + np.arange(self.horizon), steps - 1)
        values = self._series[episode.start_row + ahead] * (self.mode != "none")
        if self.mode == "noisy":
            values = values * (1 + self.noise.normal(0, self.noise_std * np.sqrt(1 + np.arange(self.horizon))))
        return fresh(np.append(obs, np.clip(values / self._unit, 0, self._top)))
