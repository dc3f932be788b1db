"""Unit commitment with discrete actions: a unit is off or runs at one of a few scores; masks give the legal actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

from powerzoo_compat.pettingzoo_view import LEGAL, MASK, TaskPettingZooWrapper
from powerzoo_compat.powerzoo_api.tasks.multi_agent import MultiAgentTaskEnv

ON = 1.0  # second entry of the action of a unit with commitment
SCORE_AND_ON = 2


class LevelledTask(TaskPettingZooWrapper):
    """A commitment task with Discrete(1 + levels) actions: 0 is off, k is on with score k / levels.

    infos[agent]["action_mask"] (1 + levels,) int8 follows the minimum up and down times.
    Raises ValueError for a task without commitment, or for less than one level.
    """

    def __init__(self, env: MultiAgentTaskEnv, levels: int, max_cycles: int | None = None) -> None:
        super().__init__(env, max_cycles)
        boxes = list(env.action_spaces.values())
        if not env._host.sim.env.dims.choice or any(box.shape != (SCORE_AND_ON,) for box in boxes):
            raise ValueError(f"{env._host.sim.spec.id} commits no units. Use levels with marl_uc, or leave it out.")
        if levels < 1:
            raise ValueError(f"levels = {levels} must be at least 1.")
        self._levels = levels
        self._discrete = {agent: Discrete(1 + levels) for agent in self.possible_agents}

    @property
    def action_spaces(self) -> dict[str, Any]:  # type: ignore[override]
        """Action space of every agent."""
        return self._discrete

    def action_space(self, agent: str) -> Discrete:
        """The same object at every call."""
        return self._discrete[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode: (observations, infos with masks)."""
        obs, infos = super().reset(seed=seed, options=options)
        return obs, self._masked(infos)

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        """Advance one step by choices; ValueError for one that is no number from 0 to `levels`."""
        *out, infos = super().step({agent: self._command(agent, choice) for agent, choice in actions.items()})
        return (*out, self._masked(infos))

    def _command(self, agent: str, choice: Any) -> np.ndarray:
        space = self._discrete.get(agent)
        if space is not None and not space.contains(choice):
            raise ValueError(f"action {choice!r} of {agent} must be an integer from 0 to {self._levels}.")
        return np.array([choice / self._levels, ON if choice else 0.0], np.float32)

    def _masked(self, infos: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for info in infos.values():
            off, on = info[LEGAL]
            info[MASK] = np.array([off, *[on] * self._levels], np.int8)
        return infos
