"""HERON: its abstract `BaseEnv`, a registry of environments by name, and single agents as Gymnasium environments.

HERON itself is not needed.

Example:
    from powerzoo_compat import heron_view
    env = heron_view.SingleAgentWrapper(heron_view.parallel_env("marl_opf"), "unit_0")
    obs, info = env.reset(seed=0)
    obs, reward, terminated, truncated, info = env.step(env.action_space.sample())

A creator for RLlib returns the multi-agent environment itself:

    from ray.tune.registry import register_env
    register_env("my_heron_env", lambda config: heron_view.parallel_env("marl_opf", **config))
"""

from __future__ import annotations

import functools
import sys
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import cloudpickle
import gymnasium
import numpy as np

from powerzoo_compat._replay import ShowsEpisode
from powerzoo_compat._seeds import checked_seed
from powerzoo_compat.powerzoo_api.envs.multi_agent import ALL, CallableDict, Dicts, MultiAgentTaskEnv, SpacesByAgent
from powerzoo_compat.powerzoo_api.tasks.adapters import task_agents
from powerzoo_jax.base.errors import unknown

SEMANTICS = {"all": all, "any": any}
SEED_BOUND = 2**31
RLLIB = "ray.rllib"
Policy = Callable[[Any], Any]


class BaseEnv(SpacesByAgent, ABC):
    """Abstract multi-agent environment: dicts by agent, whose flags also hold "__all__".

    possible_agents, agents:          all agents, and those that act now
    observation_spaces, action_spaces: by agent
    """

    possible_agents: list[str]
    agents: list[str]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """In a process that runs RLlib, also an instance of its `MultiAgentEnv`: `register_env` takes no other."""
        return super().__new__(_for_rllib(cls) if RLLIB in sys.modules else cls)

    @abstractmethod
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None, **ignored: Any) -> Any:
        """Begin an episode: (observations, infos)."""

    @abstractmethod
    def step(self, actions: Mapping[str, Any]) -> Any:
        """Advance one step: (observations, rewards, terminateds, truncateds, infos)."""


@functools.cache
def _for_rllib(kind: type[Any]) -> type[Any]:
    from ray.rllib.env.multi_agent_env import MultiAgentEnv

    if issubclass(kind, MultiAgentEnv):
        return kind
    return types.new_class(
        kind.__name__,
        (kind, MultiAgentEnv),
        exec_body=lambda body: body.update(__module__=kind.__module__, __doc__=kind.__doc__),
    )


class HeronAgent:
    """An agent by name, with its spaces."""

    def __init__(self, env: BaseEnv, agent_id: str) -> None:
        self.agent_id = agent_id
        self.observation_space, self.action_space = env.observation_space(agent_id), env.action_space(agent_id)


class HeronTaskEnv(ShowsEpisode, BaseEnv):
    """A multi-agent task as a `BaseEnv`; `agents` is the same list from beginning to end.

    env:            the adapter behind framework 'auto'
    all_semantics:  whether "__all__" tells that all agents have ended, or any
    """

    _runs_on = "_task"

    def __init__(self, env: MultiAgentTaskEnv, all_semantics: Literal["all", "any"] = "all") -> None:
        if all_semantics not in SEMANTICS:
            raise ValueError(unknown("all_semantics", all_semantics, SEMANTICS))
        self._task, self._every = env, SEMANTICS[all_semantics]
        self.all_semantics = all_semantics
        self.metadata, self.render_mode = env.metadata, env.render_mode
        self.possible_agents, self.agents = list(env.possible_agents), list(env.possible_agents)
        # by attribute or by call, whichever a caller uses
        self.observation_space: CallableDict = env.observation_space  # type: ignore[assignment]
        self.action_space: CallableDict = env.action_space  # type: ignore[assignment]
        # Gymnasium's Dict sorts unit_10 before unit_2; RLlib is given the agents' own order
        self.observation_spaces, self.action_spaces = (
            {agent: spaces[agent] for agent in self.possible_agents}
            for spaces in (env.observation_space, env.action_space)
        )

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None, **ignored: Any
    ) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
        """Begin an episode. Options as in `MultiAgentTaskEnv.reset`; `jitter_seed` and other keywords do nothing."""
        return self._task.reset(seed=seed, options=options)

    def step(self, actions: Mapping[str, Any]) -> Dicts:
        """Advance one step; errors as in `MultiAgentTaskEnv.step`."""
        obs, rewards, *flags, infos = self._task.step(actions)
        for ended in flags:
            ended[ALL] = self._every(ended[agent] for agent in self.possible_agents)
        return obs, rewards, *flags, infos  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._task._host.summary})"

    @property
    def unwrapped(self) -> HeronTaskEnv:
        """This environment: nothing is wrapped here."""
        return self

    def get_agent(self, agent_id: str) -> HeronAgent | None:
        """An agent by its name, None for an unknown one."""
        return HeronAgent(self, agent_id) if agent_id in self.possible_agents else None

    def state(self) -> np.ndarray:
        """Joint observation of all agents."""
        return self._task.state()

    def render(self) -> Any:
        """See `MultiAgentTaskEnv.render`."""
        return self._task.render()

    def close(self) -> None:
        """Close the window of the episode, if there is one."""
        self._task.close()


class SingleAgentWrapper(ShowsEpisode, gymnasium.Env[Any, Any]):
    """One agent of a multi-agent environment as a Gymnasium environment.

    multi_env:       a `BaseEnv`, or whatever has its methods
    agent_id:        the agent
    other_policies:  how others act, by name: observation -> action; who has none samples its action space

    When the agent has left before the episode ends, the last observation comes again and the episode is truncated.
    Raises KeyError for an unknown agent.
    """

    _runs_on = "env"
    _moving: ClassVar[tuple[str, ...]] = ("_seen", "_last", "_np_random", "_np_random_seed", "_drawing")

    def __init__(self, multi_env: Any, agent_id: str, other_policies: Mapping[str, Policy] | None = None) -> None:
        self._policies = dict(other_policies or {})
        for name in (agent_id, *self._policies):
            if name not in multi_env.possible_agents:
                raise KeyError(unknown("agent", name, multi_env.possible_agents))
        self.env, self.agent_id = multi_env, agent_id
        self.metadata = {"render_modes": [], **getattr(multi_env, "metadata", {})}
        self.render_mode = getattr(multi_env, "render_mode", None)
        self.observation_space = multi_env.observation_space(agent_id)
        self.action_space = multi_env.action_space(agent_id)
        self._others = [name for name in multi_env.possible_agents if name != agent_id]
        self._seen: dict[str, Any] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode: (observation, info); a seed also fixes what the others sample."""
        super().reset(seed=None if seed is None else checked_seed(seed))
        if seed is not None:
            for name in self._others:
                self.env.action_space(name).seed(int(self.np_random.integers(SEED_BOUND)))
        self._seen, infos = self.env.reset(seed=seed, options=options)
        self._last = self._seen[self.agent_id]
        return self._last, infos.get(self.agent_id, {})

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Advance one step: (observation, reward, terminated, truncated, info)."""
        if self.agent_id not in self.env.agents:
            return self._last, 0.0, False, True, {}
        actions = {name: self._act(name) for name in self._others if name in self.env.agents}
        self._seen, rewards, terminated, truncated, infos = self.env.step({**actions, self.agent_id: action})
        left = self.agent_id not in self._seen
        self._last = self._seen.get(self.agent_id, self._last)
        ends = bool(terminated.get(self.agent_id, False)), bool(truncated.get(self.agent_id, left))
        return self._last, float(rewards.get(self.agent_id, 0.0)), *ends, infos.get(self.agent_id, {})

    @property
    def _drawing(self) -> dict[str, Any]:
        """Generators that the others' actions are drawn from."""
        return {name: self.env.action_space(name).np_random for name in self._others}

    @_drawing.setter
    def _drawing(self, generators: dict[str, Any]) -> None:
        for name, generator in generators.items():
            self.env.action_space(name)._np_random = generator

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.agent_id!r} of {self.env!r})"

    def render(self) -> Any:
        """Picture of the multi-agent environment."""
        return self.env.render()

    def close(self) -> None:
        """Close the multi-agent environment."""
        self.env.close()

    def _act(self, name: str) -> Any:
        policy = self._policies.get(name)
        return self.env.action_space(name).sample() if policy is None else policy(self._seen[name])


def parallel_env(
    task: str, *, split: str | None = None, all_semantics: Literal["all", "any"] = "all", **kwargs: Any
) -> HeronTaskEnv:
    """A multi-agent task as a `BaseEnv`; see `HeronTaskEnv`.

    split:   None takes the task's default
    kwargs:  task keywords, and `render_mode`
    Raises ValueError for a task with one agent, else as `powerzoo.make_task_env`.
    """
    return HeronTaskEnv(task_agents(task, split, **kwargs), all_semantics)


class Context(dict[str, Any]):
    """Arguments of an environment creator: the configuration, and the calling worker (None outside of workers)."""

    worker_index: int | None = None
    vector_index: int | None = None
    num_workers: int | None = None
    remote: bool = False


_CREATORS: dict[str, Callable[[Any], Any]] = {}


def register_env(name: str, creator: Callable[[Any], Any]) -> None:
    """Make an environment known by name, to `make` and, in a process that has imported ray, to RLlib.

    creator:  context -> environment; called once an environment, in the process that runs it
    Raises ValueError for a name that is taken, TypeError for a creator that cannot be sent to another process.
    """
    if name in _CREATORS:
        raise ValueError(f"environment {name!r} is registered. Take another name, or call unregister({name!r}) first.")
    try:
        cloudpickle.dumps(creator)
    except Exception as err:
        raise TypeError(f"the creator of {name!r} cannot be pickled ({err}). Build the environment inside it.") from err
    _CREATORS[name] = creator
    if "ray" in sys.modules:
        from ray.tune.registry import register_env as register_in_ray

        register_in_ray(name, creator)


def unregister(name: str) -> None:
    """Forget a name. KeyError for an unknown one."""
    _creator(name)
    del _CREATORS[name]


def make(name: str, config: Mapping[str, Any] | None = None) -> Any:
    """Build a registered environment from its configuration. KeyError for an unknown name, listing all."""
    return _creator(name)(Context(config or {}))


def list_envs() -> list[str]:
    """Sorted names of the registered environments."""
    return sorted(_CREATORS)


def _creator(name: str) -> Callable[[Any], Any]:
    if name not in _CREATORS:
        raise KeyError(unknown("environment", name, list_envs() or ("none",)))
    return _CREATORS[name]
