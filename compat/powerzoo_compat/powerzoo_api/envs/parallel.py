"""Multi-agent tasks as PettingZoo ParallelEnvs, with the actions of the task or, for unit commitment, discrete ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Discrete

from powerzoo_jax.base.errors import missing_extra

try:
    from pettingzoo import ParallelEnv as ParallelEnv
except ImportError as err:
    told = missing_extra("framework='pettingzoo'", "pettingzoo", "pettingzoo")
    raise ImportError(f"{told} framework='auto' needs nothing more.") from err

from powerzoo_compat._replay import ShowsEpisode
from powerzoo_compat.powerzoo_api.envs.multi_agent import ALL, MultiAgentTaskEnv, SpacesByAgent

MASK, LEGAL = "action_mask", "legal_commitment"
CHECKERS_OPTION = "options"  # what PettingZoo's checkers pass to see whether options are taken
ON = 1.0  # second entry of the action of a unit with commitment
SCORE_AND_ON = 2


class TaskPettingZooWrapper(ShowsEpisode, SpacesByAgent, ParallelEnv[str, np.ndarray, np.ndarray]):
    """A multi-agent task as a PettingZoo ParallelEnv: no "__all__", agents empty once the episode has ended.

    env:         the adapter behind framework 'auto'
    max_cycles:  end episodes after so many steps (None: the task's horizon)

    np_random:  generator of wrappers that draw, such as SuperSuit's frame_skip_v0; the seed of a reset fixes it
    """

    _runs_on = "_env"
    _moving: ClassVar[tuple[str, ...]] = ("agents", "np_random")

    def __init__(self, env: MultiAgentTaskEnv, max_cycles: int | None = None) -> None:
        self._env = env
        self.metadata = {**env.metadata, "name": env._host.sim.spec.id}
        self.render_mode = env.render_mode
        self.possible_agents = list(env.possible_agents)
        self.agents: list[str] = []
        self.state_space = env.state_space
        self.cost_thresholds, self.cost_threshold = env.cost_thresholds, env.cost_threshold
        self.np_random = np.random.default_rng()
        self.max_cycles = max_cycles
        self._limit = max_cycles

    @property
    def observation_spaces(self) -> dict[str, Any]:  # type: ignore[override]
        """Observation space of every agent."""
        return self._env.observation_spaces  # type: ignore[return-value]

    @property
    def action_spaces(self) -> dict[str, Any]:  # type: ignore[override]
        """Action space of every agent."""
        return self._env.action_spaces  # type: ignore[return-value]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode: (observations, infos)."""
        known = {key: value for key, value in (options or {}).items() if key != CHECKERS_OPTION}
        obs, infos = self._env.reset(seed=seed, options=known)
        if seed is not None:
            self.np_random = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        return obs, _without_sampling_masks(infos)

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:  # type: ignore[override]
        """Advance one step: five dicts by agent; the last one still holds every agent's observation."""
        if not self.agents:
            self._env._running("step")
            return {}, {}, {}, {}, {}
        obs, rewards, terminations, truncations, infos = self._env.step(actions)
        terminations.pop(ALL)
        ended = truncations.pop(ALL)
        if self._limit is not None and self._env.time_step >= self._limit and not any(terminations.values()):
            truncations, ended = dict.fromkeys(self.possible_agents, True), True
        if ended or any(terminations.values()):
            self.agents = []
        return obs, rewards, terminations, truncations, _without_sampling_masks(infos)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._env._host.summary})"

    def state(self) -> np.ndarray:
        """Joint observation of all agents."""
        return self._env.state()

    def render(self) -> Any:
        """See `MultiAgentTaskEnv.render`."""
        return self._env.render()

    def close(self) -> None:
        """Close the window of the episode, if there is one."""
        self._env.close()

    def get_observation_fields(self, agent: str | None = None) -> tuple[str, ...]:
        """Names of an observation's entries, in order."""
        return self._env.get_observation_fields(agent)

    def constraint_names(self) -> tuple[str, ...]:
        """Names of all cost channels."""
        return self._env.constraint_names()

    def selected_constraint_names(self) -> tuple[str, ...]:
        """Names of the channels that have a budget, in the order of `cost_thresholds`."""
        return self._env.selected_constraint_names()

    def get_episode_data(self) -> dict[str, Any]:
        """Totals of the running episode."""
        return self._env.get_episode_data()


def _without_sampling_masks(infos: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Rename "action_mask", which PettingZoo hands to the sampler of the action space: a Box takes none."""
    for info in infos.values():
        if MASK in info:
            info[LEGAL] = info.pop(MASK)
    return infos


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
