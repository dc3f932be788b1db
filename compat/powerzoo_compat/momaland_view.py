"""MOMAland: multi-agent tasks with vector rewards, one entry an objective, and wrappers that scalarize them.

The entries are the task's reward terms. MOMAland itself is used where it is installed (extra `mo`) and not needed for
the parallel environments.

Example:
    import numpy as np
    from powerzoo_compat import momaland_view as mo
    env = mo.parallel_env("marl_der_arbitrage")
    env = mo.LinearReward(env, weight=env.reward_weights)
    obs, infos = env.reset(seed=0)
    while env.agents:
        obs, rewards, terminations, truncations, infos = env.step({a: env.action_space(a).sample() for a in env.agents})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from powerzoo_jax.base.errors import missing_extra, unknown

try:
    from pettingzoo import ParallelEnv
except ImportError as err:
    raise ImportError(missing_extra("The view for MOMAland", "pettingzoo", "mo")) from err

from powerzoo_compat._replay import ShowsEpisode
from powerzoo_compat.momaland_central import CentraliseAgent as CentraliseAgent
from powerzoo_compat.momaland_wrappers import LinearizeReward as LinearizeReward
from powerzoo_compat.momaland_wrappers import LinearReward as LinearReward
from powerzoo_compat.momaland_wrappers import NormalizeReward as NormalizeReward
from powerzoo_compat.momaland_wrappers import RecordEpisodeStatistics as RecordEpisodeStatistics
from powerzoo_compat.powerzoo_api.envs.multi_agent import MultiAgentTaskEnv
from powerzoo_compat.powerzoo_api.envs.parallel import TaskPettingZooWrapper
from powerzoo_compat.powerzoo_api.envs.single_agent import SingleAgentEnv
from powerzoo_compat.powerzoo_api.tasks.adapters import task_agents
from powerzoo_compat.powerzoo_api.tasks.factory import make_task_env
from powerzoo_jax.base import TaskSpec

try:
    from momaland.utils.env import MOParallelEnv
except ImportError:

    class MOParallelEnv(ParallelEnv[str, Any, Any]):  # type: ignore[no-redef]
        """Stands for MOMAland's class where that is not installed: a ParallelEnv whose agents have reward spaces."""

        reward_spaces: dict[str, gymnasium.spaces.Space[Any]]


COST = "cost_"


class Objectives:
    """Objectives of a vector reward.

    names:    reward terms, in money (or their own unit) and positive when earned, or "cost_<channel>", whose entry is
              the channel's cost times -1, so that more is better everywhere
    weights:  (k,) the task's own; their product with the vector of all terms is the scalar reward. 0 for a channel

    Raises ValueError for an unknown name or none at all.
    """

    def __init__(self, spec: TaskSpec, names: Sequence[str] | None) -> None:
        declared = dict(zip(spec.term_names, spec.term_weights, strict=True))
        declared |= {COST + channel: 0.0 for channel in spec.cost_names}
        self.names = tuple(spec.term_names if names is None else names)
        if not self.names:
            raise ValueError(f"objectives must hold at least one of {', '.join(declared)}.")
        for name in self.names:
            if name not in declared:
                raise ValueError(unknown("objective", name, declared))
        self.weights = np.array([declared[name] for name in self.names])
        self.space = gymnasium.spaces.Box(-np.inf, np.inf, (len(self.names),), np.float32)

    def vector(self, terms: Mapping[str, float], info: Mapping[str, Any]) -> np.ndarray:
        """(k,) float32, a new array, from an agent's reward terms and what it is told."""
        return np.array([-info[n] if n.startswith(COST) else terms[n] for n in self.names], np.float32)


class TaskMOEnv(TaskPettingZooWrapper, MOParallelEnv):
    """A multi-agent task as a ParallelEnv with vector rewards.

    env:         the adapter behind framework 'auto'
    objectives:  see `Objectives.names`; None takes all reward terms
    max_cycles:  end episodes after so many steps (None: the task's horizon)

    objectives, reward_weights:  names of the entries and the task's own weights of them
    """

    def __init__(
        self, env: MultiAgentTaskEnv, objectives: Sequence[str] | None = None, max_cycles: int | None = None
    ) -> None:
        super().__init__(env, max_cycles)
        self._objectives = Objectives(env._host.sim.spec, objectives)
        self.metadata = {**self.metadata, "central_observation": True}
        self.objectives, self.reward_weights = self._objectives.names, self._objectives.weights
        self.reward_spaces = dict.fromkeys(self.possible_agents, self._objectives.space)

    def reward_space(self, agent: str) -> Any:
        """The same object at every call: (k,) float32."""
        return self.reward_spaces[agent]

    def get_central_observation_space(self) -> Any:
        """Space of `state()`."""
        return self.state_space

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:  # type: ignore[override]
        """Advance one step; rewards are vectors (k,)."""
        obs, rewards, terminations, truncations, infos = super().step(actions)
        vectors = {agent: self._objectives.vector(infos[agent]["reward_terms"], infos[agent]) for agent in rewards}
        return obs, vectors, terminations, truncations, infos


class MOTaskEnv(ShowsEpisode, gymnasium.Wrapper[Any, Any, Any, Any]):
    """A single-agent task with vector rewards, as MO-Gymnasium has them: `reward_space`, and `step` gives (k,) float32.

    env:         the task
    objectives:  see `Objectives.names`; None takes all reward terms
    """

    _runs_on = "env"

    def __init__(self, env: SingleAgentEnv, objectives: Sequence[str] | None = None) -> None:
        super().__init__(env)
        self._objectives = Objectives(env._host.sim.spec, objectives)
        self.objectives, self.reward_weights = self._objectives.names, self._objectives.weights
        self.reward_space = self._objectives.space

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Advance one step: (observation, vector reward, terminated, truncated, info)."""
        obs, _, terminated, truncated, info = self.env.step(action)
        return obs, self._objectives.vector(info["reward_components"], info), terminated, truncated, info


def parallel_env(
    task: str,
    *,
    split: str | None = None,
    objectives: Sequence[str] | None = None,
    max_cycles: int | None = None,
    **kwargs: Any,
) -> TaskMOEnv:
    """A multi-agent task as a parallel environment with vector rewards; see `TaskMOEnv`.

    split:   None takes the task's default
    kwargs:  task keywords, and `render_mode`
    Raises ValueError for a task with one agent or an unknown objective, else as `powerzoo.make_task_env`.
    """
    return TaskMOEnv(task_agents(task, split, **kwargs), objectives, max_cycles)


def env(task: str, **kwargs: Any) -> Any:
    """A multi-agent task as an AEC environment with vector rewards, by MOMAland's conversion; see `parallel_env`.

    Raises ImportError without MOMAland.
    """
    try:
        from momaland.utils.conversions import mo_parallel_to_aec
    except ImportError as err:
        raise ImportError(missing_extra("An AEC environment of MOMAland", "momaland", "mo")) from err
    return mo_parallel_to_aec(parallel_env(task, **kwargs))


def single_env(task: str, *, split: str = "train", objectives: Sequence[str] | None = None, **kwargs: Any) -> MOTaskEnv:
    """A single-agent task with vector rewards; see `MOTaskEnv`.

    Raises ValueError for a task with several agents or an unknown objective, else as `powerzoo.make_task_env`.
    """
    return MOTaskEnv(make_task_env(task, split, framework="gymnasium", **kwargs), objectives)
