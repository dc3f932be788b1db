"""A toy with vector rewards whose agents leave at different times: what wrappers must bear and tasks never do."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv


class LeavingAgents(ParallelEnv):
    """Agent k leaves after 2 + k steps; it earns (action, -k) a step and sees (k, steps). Three agents."""

    def __init__(self) -> None:
        self.metadata = {"name": "leaving_agents", "is_parallelizable": True, "render_modes": []}
        self.render_mode = None
        self.possible_agents = ["toy_0", "toy_1", "toy_2"]
        self.agents: list[str] = []
        self.observation_spaces = {a: spaces.Box(0, 9, (2,), np.float32) for a in self.possible_agents}
        self.action_spaces = {a: spaces.Discrete(3) for a in self.possible_agents}
        self.reward_spaces = {a: spaces.Box(-9, 9, (2,), np.float32) for a in self.possible_agents}

    def observation_space(self, agent):
        return self.observation_spaces[agent]

    def action_space(self, agent):
        return self.action_spaces[agent]

    def reward_space(self, agent):
        return self.reward_spaces[agent]

    def reset(self, seed=None, options=None):
        self.agents, self.steps = list(self.possible_agents), 0
        return self._obs(), {a: {} for a in self.agents}

    def step(self, actions):
        self.steps += 1
        acting = list(self.agents)
        rewards = {a: np.array([actions[a], -self._row(a)], np.float32) for a in acting}
        ended = {a: self.steps >= 2 + self._row(a) for a in acting}
        obs = self._obs()
        self.agents = [a for a in acting if not ended[a]]
        return obs, rewards, ended, dict.fromkeys(acting, False), {a: {} for a in acting}

    def _row(self, agent):
        return self.possible_agents.index(agent)

    def _obs(self):
        return {a: np.array([self._row(a), self.steps], np.float32) for a in self.agents}
