"""Single-agent tasks as Gymnasium environments: flat Box in, five values out."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from powerzoo_compat._host import Host, of_one_agent
from powerzoo_compat.powerzoo_api.envs.base import BaseEnv, fresh
from powerzoo_compat.powerzoo_api.envs.episode import EpisodeOwner
from powerzoo_compat.powerzoo_api.envs.render import RENDER_MODES
from powerzoo_jax.envs.core import Sim


class SingleAgentEnv(EpisodeOwner, BaseEnv):
    """Single-agent task as a Gymnasium environment.

    sim:           the task, from `powerzoo_jax.make`
    unit_actions:  take actions in [-1, 1] instead of MW
    render_mode:   None, "human" (prints a line a step and fills a window where there is a display), "ansi" or
                   "rgb_array" (extra `viz`)

    Horizon ends are `truncated`; `terminated` tells that the power flow failed. The env never resets itself.
    Raises ValueError for a task of several agents.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": list(RENDER_MODES), "render_fps": 2}  # type: ignore[misc]
    _moving: ClassVar[tuple[str, ...]] = ("_last",)

    def __init__(self, sim: Sim, *, unit_actions: bool = False, render_mode: str | None = None) -> None:
        self._own(Host(of_one_agent(sim), unit_actions=unit_actions))
        super().__init__(self._host.minutes, render_mode)
        self.observation_space = self._host.observation_box()
        self.action_space = self._host.boxes[0]
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
        reading, info = self._begin(seed, choice, lambda: self.np_random)
        self._last = reading.obs[0], 0.0, info["cost"]
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
        self._last = reading.obs[0], reward, info["cost"]
        self._show(reading)
        ends = bool(reading.info.terminated), bool(reading.info.truncated)
        return fresh(reading.obs[0]), reward, *ends, info

    def episode_limit(self) -> int:
        """Steps of an episode."""
        return self._host.sim.spec.horizon

    def obs(self) -> np.ndarray:
        """Last observation, as a copy."""
        self._running("obs")
        assert self._last is not None
        return fresh(self._last[0])

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

    def get_observation_fields(self) -> tuple[str, ...]:
        """Names of the observation's entries, in order."""
        return self._host.sim.env.fields.names
