"""Single-agent tasks as Gymnasium environments: flat Box in, five values out."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np

from powerzoo_compat._host import Host
from powerzoo_compat.powerzoo_api.envs.base import BaseEnv, fresh
from powerzoo_compat.powerzoo_api.envs.info import InfoBuilder
from powerzoo_compat.powerzoo_api.envs.render import RENDER_MODES, render_episode
from powerzoo_compat.powerzoo_api.envs.reports import Episode
from powerzoo_jax.envs.core import Sim

SEED_BOUND = 2**32


class SingleAgentEnv(BaseEnv):
    """One task behind the Gymnasium interface.

    sim:           the task, from `powerzoo_jax.make`
    unit_actions:  take actions in [-1, 1] instead of MW
    render_mode:   None, "human" (prints a line a step), "ansi" or "rgb_array"

    Horizon ends are `truncated`; `terminated` tells that the power flow failed. The env never resets itself.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": list(RENDER_MODES), "render_fps": 2}  # type: ignore[misc]

    def __init__(self, sim: Sim, *, unit_actions: bool = False, render_mode: str | None = None) -> None:
        self._host = Host(sim, unit_actions=unit_actions)
        super().__init__(self._host.minutes, render_mode)
        self._infos = InfoBuilder(self._host)
        self.observation_space = self._host.observation_box()
        self.action_space = self._host.boxes[0]
        self.cost_thresholds = tuple(self._infos.thresholds.values())
        self.cost_threshold = float(sum(self.cost_thresholds))
        self._episode: Episode | None = None
        self._last: tuple[np.ndarray, float, float] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode: (observation, info of the initial power flow).

        seed:     fixes everything that follows; None continues the stream
        options:  day (ISO date) or day_id, soc (a value, or one a device id), randomize_soc (bool or (low, high))
        Raises ValueError for an unknown option or an unusable value; the running episode then stays as it is.
        """
        choice = self._host.choice(options)
        super().reset(seed=seed)
        if seed is None and not self._host.started:
            seed = int(self.np_random.integers(SEED_BOUND))
        reading, start_row = self._host.reset(seed, choice)
        self._episode, info = self._infos.opening(reading, start_row)
        self._last = fresh(reading.obs[0]), 0.0, info["cost"]
        self._show()
        return fresh(reading.obs[0]), info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Advance one step: (observation, reward, terminated, truncated, info of the executed step).

        Raises RuntimeError before the first reset, ValueError for a NaN or a wrong shape, TypeError for no array.
        """
        self._running("step")
        return self.play(self._host.kernel_action({0: action}))

    def play(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Advance one step by a checked action (1, U) in [-1, 1]; NaN leaves its unit alone."""
        episode = self._running("step")
        reading = self._host.step(action)
        info = self._infos.step(episode, reading)
        self.time_step = episode.steps
        reward = float(reading.reward[0])
        self._last = fresh(reading.obs[0]), reward, info["cost"]
        self._show()
        ends = bool(reading.info.terminated), bool(reading.info.truncated)
        return fresh(reading.obs[0]), reward, *ends, info

    def render(self) -> str | np.ndarray | None:  # type: ignore[override]
        """Show the episode: a line of text ("ansi"), an image ("rgb_array"), a printed line ("human").

        Raises RuntimeError before the first reset.
        """
        if self.render_mode is None:
            return None
        return render_episode(self._host, self._running("render"), self.obs(), self.render_mode)

    def _show(self) -> None:
        # "human" shows itself, as Gymnasium asks
        if self.render_mode == "human":
            self.render()

    def obs(self) -> np.ndarray:
        """Last observation, as a copy."""
        self._running("obs")
        assert self._last is not None
        return self._last[0].copy()

    def reward(self) -> float:
        """Reward of the last step, 0.0 after a reset."""
        self._running("reward")
        assert self._last is not None
        return self._last[1]

    def cost(self) -> float:
        """Sum of the selected channels in the last step."""
        self._running("cost")
        assert self._last is not None
        return self._last[2]

    def constraint_names(self) -> tuple[str, ...]:
        """Names of all cost channels, in the order of info["constraint_costs"]."""
        return self._infos.names

    def selected_constraint_names(self) -> tuple[str, ...]:
        """Names of the channels that have a budget, in the order of `cost_thresholds`."""
        return self._infos.selected

    def get_observation_fields(self) -> tuple[str, ...]:
        """Names of the observation's entries, in order."""
        return self._host.sim.env.fields.names

    def _running(self, method: str) -> Episode:
        if self._episode is None:
            raise RuntimeError(f"{method}() was called before reset(). Call env.reset(seed=...) first.")
        return self._episode


def with_spec(env: SingleAgentEnv, env_id: str, kwargs: dict[str, Any]) -> SingleAgentEnv:
    """Tell an env which registered id and keywords rebuild it, as `gymnasium.make` does."""
    spec = gymnasium.spec(env_id)
    env.spec = gymnasium.envs.registration.EnvSpec(spec.id, spec.entry_point, kwargs={**spec.kwargs, **kwargs})
    return env
