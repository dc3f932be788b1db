"""Wrappers of vector rewards, each for parallel environments and, under the same name, for AEC environments.

An AEC environment gets the twin `<Name>AEC`, which changes what `last` returns. All of them bear agents that leave
early.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium.wrappers.utils import RunningMeanStd
from pettingzoo import AECEnv
from pettingzoo.utils.wrappers import BaseParallelWrapper, BaseWrapper

VECTOR, STATS = "vector_reward", "episode"
Weights = Mapping[str, Any]


class _ParallelRewards(BaseParallelWrapper):
    """Base of the parallel wrappers: constructed with an AEC environment, they return their AEC twin."""

    twin: ClassVar[type]

    def __new__(cls, env: Any, *args: Any, **kwargs: Any) -> Any:
        return cls.twin(env, *args, **kwargs) if isinstance(env, AECEnv) else super().__new__(cls)


class _TurnRewards(BaseWrapper):
    """Base of the AEC wrappers: a turn's reward counts once, however often `last` is called in it."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin an episode."""
        super().reset(seed=seed, options=options)
        self._seen = False

    def step(self, action: Any) -> None:
        """End the selected agent's turn."""
        super().step(action)
        self._seen = False

    def _first_look(self) -> bool:
        seen, self._seen = self._seen, True
        return not seen


class _Weighted:
    """Weights by agent, and the scalarization of a reward vector by them."""

    env: Any

    def set_weight(self, weight: Any) -> None:
        """Change the weights: one vector for all agents, or a dict of vectors; agents without one keep their vector.

        Raises ValueError for a wrong length, naming both, KeyError for an unknown agent.
        """
        agents = self.env.possible_agents
        given = weight if isinstance(weight, Mapping) else dict.fromkeys(agents, weight)
        self.weights = {agent: np.asarray(vector, np.float64) for agent, vector in given.items()}
        for agent, vector in self.weights.items():
            if agent not in agents:
                raise KeyError(f"weights name agent {agent!r}; the environment has {', '.join(agents)}.")
            wanted = self.env.reward_space(agent).shape
            if vector.shape != wanted:
                raise ValueError(f"weight of {agent} has shape {vector.shape}, its reward has {wanted}.")

    def _scalar(self, agent: str, reward: Any, info: dict[str, Any]) -> Any:
        if agent not in self.weights:
            return reward
        info[VECTOR] = reward
        return np.float64(np.dot(reward, self.weights[agent]))


class LinearizeRewardAEC(_Weighted, BaseWrapper):
    """`LinearizeReward` of an AEC environment."""

    def __init__(self, env: Any, weights: Weights) -> None:
        super().__init__(env)
        self.set_weight(weights)

    def last(self, observe: bool = True) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As the environment's, with a scalar reward."""
        obs, reward, terminated, truncated, info = self.env.last(observe)
        return obs, self._scalar(self.env.agent_selection, reward, info), terminated, truncated, info


class LinearRewardAEC(LinearizeRewardAEC):
    """`LinearReward` of an AEC environment."""

    def __init__(self, env: Any, weight: Any) -> None:
        super().__init__(env, weight)


class LinearizeReward(_Weighted, _ParallelRewards):
    """Linear scalarization, reward = weight . vector (np.float64); info["vector_reward"] keeps the vector.

    weights:  a vector an agent; agents that are absent keep their vector
    Raises ValueError for a wrong length, KeyError for an unknown agent.
    """

    twin: ClassVar[type] = LinearizeRewardAEC

    def __init__(self, env: Any, weights: Weights) -> None:
        super().__init__(env)
        self.set_weight(weights)

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:  # type: ignore[override]
        """Advance one step; rewards of agents with weights are scalars."""
        obs, rewards, terminations, truncations, infos = self.env.step(actions)  # type: ignore[arg-type]
        rewards = {agent: self._scalar(agent, reward, infos[agent]) for agent, reward in rewards.items()}
        return obs, rewards, terminations, truncations, infos


class LinearReward(LinearizeReward):
    """`LinearizeReward` with one weight vector for all agents; a dict of vectors is taken as well."""

    twin: ClassVar[type] = LinearRewardAEC

    def __init__(self, env: Any, weight: Any) -> None:
        super().__init__(env, weight)


class _Scaled:
    """Normalisation of one objective of one agent by the deviation of its discounted return."""

    def _start(self, agent: str, idx: int, gamma: float, epsilon: float) -> None:
        self.agent, self.idx, self.gamma, self.epsilon = agent, idx, gamma, epsilon
        self.return_rms = RunningMeanStd(shape=())
        self.returns = 0.0

    def _scale(self, reward: Any, terminated: bool) -> Any:
        vector = isinstance(reward, np.ndarray)
        value = float(reward[self.idx] if vector else reward)
        self.returns = self.gamma * self.returns * (1 - terminated) + value
        self.return_rms.update(np.array([self.returns]))
        scaled = value / np.sqrt(self.return_rms.var + self.epsilon)
        if not vector:
            return scaled
        out = reward.copy()
        out[self.idx] = scaled
        return out


class NormalizeRewardAEC(_Scaled, _TurnRewards):
    """`NormalizeReward` of an AEC environment."""

    def __init__(self, env: Any, agent: str, idx: int, gamma: float = 0.99, epsilon: float = 1e-8) -> None:
        super().__init__(env)
        self._start(agent, idx, gamma, epsilon)

    def last(self, observe: bool = True) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As the environment's, with the objective scaled on the agent's turns."""
        obs, reward, terminated, truncated, info = self.env.last(observe)
        if self.env.agent_selection == self.agent:
            if self._first_look():
                self._told = self._scale(reward, terminated)
            reward = self._told
        return obs, reward, terminated, truncated, info


class NormalizeReward(_Scaled, _ParallelRewards):
    """Normalisation of one objective: r / sqrt(var(R) + epsilon) with R <- gamma R (1 - terminated) + r.

    The mean is not subtracted. The variance runs over everything seen since construction.

    agent, idx:  whose reward, and which entry of it
    """

    twin = NormalizeRewardAEC

    def __init__(self, env: Any, agent: str, idx: int, gamma: float = 0.99, epsilon: float = 1e-8) -> None:
        super().__init__(env)
        self._start(agent, idx, gamma, epsilon)

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:  # type: ignore[override]
        """Advance one step; the other entries stay as they are."""
        obs, rewards, terminations, truncations, infos = self.env.step(actions)  # type: ignore[arg-type]
        if self.agent in rewards:  # it may have left earlier
            rewards = {**rewards, self.agent: self._scale(rewards[self.agent], terminations[self.agent])}
        return obs, rewards, terminations, truncations, infos


class _Tally:
    """Sums of rewards and counts of steps, by agent."""

    env: Any

    def _clear(self) -> None:
        self.episode_rewards: dict[str, Any] = {agent: 0.0 for agent in self.env.possible_agents}
        self.episode_lengths = dict.fromkeys(self.env.possible_agents, 0)
        self._since = time.perf_counter()

    def _finish(self, agent: str, info: dict[str, Any]) -> None:
        """Write an agent's statistics, under the key of Gymnasium's wrapper; a task's own totals have another."""
        took = time.perf_counter() - self._since
        info[STATS] = {"r": np.array(self.episode_rewards[agent]), "l": self.episode_lengths[agent], "t": took}

    def _team(self) -> dict[str, Any]:
        return {
            "r": {a: np.array(x) for a, x in self.episode_rewards.items()},
            "l": dict(self.episode_lengths),
            "t": time.perf_counter() - self._since,
        }


class RecordEpisodeStatisticsAEC(_Tally, _TurnRewards):
    """`RecordEpisodeStatistics` of an AEC environment; `last` returns the statistics once an agent has ended."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._clear()

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin an episode."""
        super().reset(seed=seed, options=options)
        self._clear()

    def last(self, observe: bool = True) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As the environment's; info["episode"] once the agent has ended."""
        obs, reward, terminated, truncated, info = self.env.last(observe)
        agent = self.env.agent_selection
        if self._first_look():
            self.episode_rewards[agent] = self.episode_rewards[agent] + reward
            if terminated or truncated:
                self._finish(agent, info)
        return obs, reward, terminated, truncated, info

    def step(self, action: Any) -> None:
        """Count the step and take it."""
        if action is not None:
            self.episode_lengths[self.env.agent_selection] += 1
        super().step(action)


class RecordEpisodeStatistics(_Tally, _ParallelRewards):
    """Episode statistics in info["episode"] of an agent's last step: return r, length l, seconds t.

    team:  also put the statistics of all agents under infos["episode"] once the last of them has ended, as MOMAland
           does; PettingZoo's checkers refuse keys that are no agents
    """

    twin = RecordEpisodeStatisticsAEC

    def __init__(self, env: Any, *, team: bool = False) -> None:
        super().__init__(env)
        self.team = team
        self._clear()

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode."""
        self._clear()
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:  # type: ignore[override]
        """Advance one step."""
        obs, rewards, terminations, truncations, infos = self.env.step(actions)  # type: ignore[arg-type]
        for agent, reward in rewards.items():
            self.episode_rewards[agent] = self.episode_rewards[agent] + reward
            self.episode_lengths[agent] += 1
            if terminations[agent] or truncations[agent]:
                self._finish(agent, infos[agent])
        if self.team and rewards and not self.env.agents:
            infos = {**infos, STATS: self._team()}
        return obs, rewards, terminations, truncations, infos
