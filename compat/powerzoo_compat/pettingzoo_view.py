"""PettingZoo: multi-agent tasks as Parallel and native AEC environments, and PettingZoo's own wrappers by name.

Example:
    from powerzoo_compat.pettingzoo_view import parallel_env
    env = parallel_env("marl_der_arbitrage")
    obs, infos = env.reset(seed=0)
    while env.agents:
        actions = {agent: env.action_space(agent).sample() for agent in env.agents}
        obs, rewards, terminations, truncations, infos = env.step(actions)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

try:
    from pettingzoo import AECEnv
    from pettingzoo import ParallelEnv as ParallelEnv
    from pettingzoo.utils.conversions import aec_to_parallel as aec_to_parallel
    from pettingzoo.utils.conversions import parallel_to_aec as parallel_to_aec
    from pettingzoo.utils.wrappers import AssertOutOfBoundsWrapper as AssertOutOfBoundsWrapper
    from pettingzoo.utils.wrappers import BaseParallelWrapper as BaseParallelWrapper
    from pettingzoo.utils.wrappers import BaseWrapper as BaseWrapper
    from pettingzoo.utils.wrappers import CaptureStdoutWrapper as CaptureStdoutWrapper
    from pettingzoo.utils.wrappers import ClipOutOfBoundsWrapper as ClipOutOfBoundsWrapper
    from pettingzoo.utils.wrappers import OrderEnforcingWrapper as OrderEnforcingWrapper
    from pettingzoo.utils.wrappers import TerminateIllegalWrapper as TerminateIllegalWrapper
except ImportError as err:
    raise ImportError(
        "PettingZoo is not installed. Run `pip install 'powerzoo-jax[pettingzoo]'`, or use framework='auto'."
    ) from err

from powerzoo_compat.pettingzoo_aec import TaskAECEnv
from powerzoo_compat.powerzoo_api.tasks.multi_agent import ALL, MultiAgentTaskEnv
from powerzoo_jax.tasks import make

MASK, LEGAL = "action_mask", "legal_commitment"
CHECKERS_OPTION = "options"  # what PettingZoo's checkers pass to see whether options are taken


class TaskPettingZooWrapper(ParallelEnv[str, np.ndarray, np.ndarray]):
    """A multi-agent task as a PettingZoo ParallelEnv: no "__all__", agents empty once the episode has ended.

    env:         the adapter behind framework 'auto'
    max_cycles:  end episodes after so many steps (None: the task's horizon)
    """

    def __init__(self, env: MultiAgentTaskEnv, max_cycles: int | None = None) -> None:
        self._env = env
        self.metadata = {**env.metadata, "name": env._host.sim.spec.id}
        self.render_mode = env.render_mode
        self.possible_agents = list(env.possible_agents)
        self.agents: list[str] = []
        self.state_space = env.state_space
        self.cost_thresholds, self.cost_threshold = env.cost_thresholds, env.cost_threshold
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

    def observation_space(self, agent: str) -> Any:
        """The same object at every call."""
        return self._env.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """The same object at every call."""
        return self._env.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode: (observations, infos)."""
        known = {key: value for key, value in (options or {}).items() if key != CHECKERS_OPTION}
        obs, infos = self._env.reset(seed=seed, options=known)
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

    def state(self) -> np.ndarray:
        """Joint observation of all agents."""
        return self._env.state()

    def render(self) -> Any:
        """See `MultiAgentTaskEnv.render`."""
        return self._env.render()

    def close(self) -> None:
        """Nothing to release."""

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


def parallel_env(
    task: str,
    *,
    split: str | None = None,
    max_cycles: int | None = None,
    render_mode: str | None = None,
    pad: bool = False,
    levels: int | None = None,
    **kwargs: Any,
) -> TaskPettingZooWrapper:
    """A multi-agent task as a ParallelEnv.

    split:       None takes the task's default
    max_cycles:  end episodes after so many steps
    pad:         give all agents the same spaces, with actions in [-1, 1]
    levels:      replace the actions of a commitment task by Discrete(1 + levels), see `LevelledTask`
    kwargs:      task keywords
    Raises ValueError for an unknown task or one with a single agent, else as `powerzoo_jax.make`.
    """
    sim = make(task, split=split, **kwargs)
    if len(sim.spec.agents) == 1:
        raise ValueError(f"{task} has one agent. Use gymnasium: make_task_env({task!r}).")
    adapter = MultiAgentTaskEnv(sim, pad=pad, render_mode=render_mode)
    if levels is None:
        return TaskPettingZooWrapper(adapter, max_cycles)
    from powerzoo_compat.pettingzoo_levels import LevelledTask

    return LevelledTask(adapter, levels, max_cycles)


def raw_env(task: str, **kwargs: Any) -> TaskAECEnv:
    """A multi-agent task as an AEC environment without the checks on the order of calls; see `parallel_env`."""
    return TaskAECEnv(parallel_env(task, **kwargs))


def env(task: str, **kwargs: Any) -> AECEnv[str, Any, Any]:
    """A multi-agent task as an AEC environment; see `parallel_env`."""
    return OrderEnforcingWrapper(raw_env(task, **kwargs))
