"""Central control of a multi-agent environment: one Gymnasium environment with vector rewards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np
from pettingzoo import AECEnv

from powerzoo_compat._replay import ShowsEpisode
from powerzoo_compat._seeds import checked_seed
from powerzoo_jax.base.errors import unknown

CENTRAL = "central_observation"
REWARDS: dict[str, Callable[..., Any]] = {"sum": np.sum, "mean": np.mean, "average": np.mean}


class CentraliseAgent(ShowsEpisode, gymnasium.Env[Any, Any]):
    """A multi-agent environment, parallel or AEC, as one Gymnasium environment.

    action_mapping:  for discrete actions, one number stands for a combination of all agents' actions
    reward_type:     "sum", "mean" or "average" of the agents' rewards, entry by entry

    The observation is `state()` where metadata["central_observation"] says so, else the agents' observations one after
    another. Actions follow one another in the same order: a Box of all entries, or a MultiDiscrete. Either flag of any
    agent ends the episode. Infos are the agents', by name. The wrapped environment is not changed.
    Raises ValueError for another reward_type, or for action_mapping with actions that are not discrete.
    """

    _runs_on = "env"
    _moving: ClassVar[tuple[str, ...]] = ("_seen", "_np_random", "_np_random_seed")

    def __init__(self, env: Any, action_mapping: bool = False, reward_type: str = "sum") -> None:
        if reward_type not in REWARDS:
            raise ValueError(unknown("reward_type", reward_type, REWARDS))
        self.env = env
        self.metadata = {**env.metadata}
        self.render_mode = getattr(env, "render_mode", None)
        self._pool = REWARDS[reward_type]
        self._agents = list(env.possible_agents)
        self._central = bool(env.metadata.get(CENTRAL))
        seen = [env.observation_space(agent) for agent in self._agents]
        self.observation_space = env.get_central_observation_space() if self._central else _joined(seen)
        self._parts = [env.action_space(agent) for agent in self._agents]
        self._mapping = action_mapping
        self.action_space = self._joint_actions()
        self.reward_space = env.reward_space(self._agents[0])
        self._seen: dict[str, np.ndarray] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode: (observation, infos by agent)."""
        super().reset(seed=None if seed is None else checked_seed(seed))
        if isinstance(self.env, AECEnv):
            self.env.reset(seed=seed, options=options)
            obs, infos = {a: self.env.observe(a) for a in self.env.agents}, dict(self.env.infos)
        else:
            obs, infos = self.env.reset(seed=seed, options=options)
        return self._observed(obs), infos

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:  # type: ignore[override]
        """Advance one step: (observation, vector reward, terminated, truncated, infos by agent)."""
        actions = self._by_agent(action)
        aec = isinstance(self.env, AECEnv)
        obs, rewards, terminations, truncations, infos = self._turns(actions) if aec else self.env.step(actions)
        reward = self._pool(list(rewards.values()), axis=0)
        ends = (any(map(bool, flags.values())) for flags in (terminations, truncations))
        return self._observed(obs), reward, *ends, infos  # type: ignore[return-value]

    def render(self) -> Any:
        """Picture of the multi-agent environment."""
        return self.env.render()

    def close(self) -> None:
        """Close the multi-agent environment."""
        self.env.close()

    def _turns(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        """Let every agent of an AEC environment take its turn, then let go of those that have ended."""
        env = self.env
        rewards: dict[str, Any] = dict.fromkeys(actions, 0.0)
        for _ in actions:
            env.step(actions[env.agent_selection])
            rewards = {agent: total + env.rewards.get(agent, 0.0) for agent, total in rewards.items()}
        obs = {agent: env.observe(agent) for agent in env.agents}
        told = obs, rewards, dict(env.terminations), dict(env.truncations), dict(env.infos)
        while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            env.step(None)
        return told

    def _observed(self, obs: Mapping[str, Any]) -> np.ndarray:
        self._seen.update({agent: np.ravel(x) for agent, x in obs.items()})  # who has left keeps its last one
        if self._central:
            return np.ravel(self.env.state())
        return np.concatenate([self._seen[agent] for agent in self._agents])

    def _joint_actions(self) -> gymnasium.spaces.Space[Any]:
        discrete = all(isinstance(part, gymnasium.spaces.Discrete) for part in self._parts)
        if self._mapping and not discrete:
            raise ValueError("action_mapping needs discrete actions. Leave it out: boxes are put one after another.")
        if not discrete:
            return _joined(self._parts)
        counts = [int(part.n) for part in self._parts]
        if self._mapping:
            return gymnasium.spaces.Discrete(int(np.prod(counts)))
        return gymnasium.spaces.MultiDiscrete(counts)

    def _by_agent(self, action: Any) -> dict[str, Any]:
        live = set(self.env.agents)
        if isinstance(self.action_space, gymnasium.spaces.Box):
            ends = np.cumsum([int(np.prod(part.shape)) for part in self._parts])[:-1]
            given: list[Any] = [
                np.reshape(x, p.shape) for x, p in zip(np.split(action, ends), self._parts, strict=True)
            ]
        else:
            digits = np.unravel_index(int(action), [p.n for p in self._parts]) if self._mapping else action
            given = [int(x) + int(p.start) for x, p in zip(digits, self._parts, strict=True)]
        return {agent: x for agent, x in zip(self._agents, given, strict=True) if agent in live}


def _joined(boxes: list[Any]) -> gymnasium.spaces.Box:
    """The box of all entries, one agent after another."""
    low, high = (np.concatenate([np.ravel(getattr(b, side)) for b in boxes]) for side in ("low", "high"))
    return gymnasium.spaces.Box(low, high, dtype=low.dtype.type)
