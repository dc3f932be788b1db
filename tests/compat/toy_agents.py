"""A toy whose agents may leave at different times, in a box or with a mask; it costs nothing to step."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

AGENTS = ("toy_0", "toy_1", "toy_2")
CHOICES = 3


class ToyAgents(ParallelEnv):
    """Agent k ends after lives[k] steps and earns the sum of its action plus k; choice 1 + step % 2 is forbidden."""

    def __init__(self, lives=(4, 4, 4), discrete=False, render_mode=None):
        self.metadata = {"name": "toy", "is_parallelizable": True, "render_modes": ["human", "ansi"]}
        self.render_mode, self.lives, self.discrete = render_mode, lives, discrete
        self.possible_agents, self.agents = list(AGENTS), []
        self.state_space = spaces.Box(0, 9, (1,), np.float32)
        self._seen = {a: spaces.Box(0, 9, (2,), np.float32) for a in AGENTS}
        self._done = {a: spaces.Discrete(CHOICES) if discrete else spaces.Box(-1, 1, (2,), np.float32) for a in AGENTS}

    def observation_space(self, agent):
        return self._seen[agent]

    def action_space(self, agent):
        return self._done[agent]

    def reset(self, seed=None, options=None):
        self.agents, self.steps = list(AGENTS), 0
        return self._told()

    def step(self, actions):
        self.steps += 1
        acting = list(self.agents)
        rewards = {a: float(np.sum(actions[a]) + AGENTS.index(a)) for a in acting}
        ended = {a: self.steps >= self.lives[AGENTS.index(a)] for a in acting}
        obs, infos = self._told()
        self.agents = [a for a in acting if not ended[a]]
        return obs, rewards, ended, dict.fromkeys(acting, False), infos

    def state(self):
        return np.full(1, self.steps, np.float32)

    def render(self):
        line = f"step {self.steps}"
        return print(line) if self.render_mode == "human" else line

    def _told(self):
        mask = np.ones(CHOICES, np.int8)
        mask[1 + self.steps % 2] = 0
        obs = {a: np.array([1 + AGENTS.index(a), self.steps], np.float32) for a in self.agents}
        return obs, {a: {"action_mask": mask.copy()} if self.discrete else {} for a in self.agents}
