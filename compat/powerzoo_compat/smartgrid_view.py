"""SmartGrid: multi-agent tasks with several named rewards an agent, and aggregators that reduce them to one.

Example:
    from powerzoo_compat import smartgrid_view as sg
    env = sg.WeightedSumRewardAggregator(sg.parallel_env("marl_der_arbitrage"))
    obs, infos = env.reset(seed=0)
    obs, rewards, terminated, truncated, infos = env.step({a: env.action_space(a).sample() for a in env.agents})
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
from jax import Array

from powerzoo_jax.base.errors import missing_extra, unknown

try:
    from pettingzoo import ParallelEnv
except ImportError as err:
    raise ImportError(missing_extra("The view of smart grids", "pettingzoo", "smartgrid")) from err

from powerzoo_compat import aggregation
from powerzoo_compat._replay import ShowsEpisode
from powerzoo_compat._seeds import checked_seed
from powerzoo_compat.powerzoo_api.envs.multi_agent import ALL, MultiAgentTaskEnv, SpacesByAgent
from powerzoo_compat.powerzoo_api.envs.parallel import CHECKERS_OPTION
from powerzoo_compat.powerzoo_api.tasks.adapters import task_agents
from powerzoo_compat.smartgrid_world import Agent, AgentObservation, ObservationManager, RewardCollection, World
from powerzoo_compat.smartgrid_world import NamedReward as RewardFunction
from powerzoo_compat.smartgrid_world import term_reward as term_reward

ENDINGS = ("clear", "keep")
# what EthicalSmartGrid documents of its environments beside what is public; an aggregator has them too
SHARED = ("_get_info", "_get_obs", "_get_reward", "_np_random")
MINUTES_PER_HOUR = 60
Rewards = dict[str, dict[str, float]]
Observations = dict[str, AgentObservation]
Infos = dict[str, dict[str, Any]]


class SmartGrid(ShowsEpisode, SpacesByAgent, ParallelEnv[str, Any, Any]):
    """Multi-agent task without end: after an episode of the task comes the next one of its stream.

    env:                the adapter behind framework 'auto'
    rewards:            reward functions, or names of the task's terms; None takes all terms
    max_step:           `truncated` is True from step max_step - 1 on; None never truncates
    agents_after_done:  "clear" empties `agents` then, as PettingZoo asks; "keep" leaves them and lets steps go on

    reward_weights:  coefficients whose weighted sum is the task's own reward
    Rewards are {agent: {function: value}}; `infos[agent]` holds the same dict as "reward" beside what every view tells.
    Raises AssertionError without a reward function, ValueError for an unknown term or ending.
    """

    _runs_on = "_task"
    _moving: ClassVar[tuple[str, ...]] = ("agents", "_np_random", "_seen", "_told", "_progress")

    def __init__(
        self,
        env: MultiAgentTaskEnv,
        *,
        rewards: Sequence[str | RewardFunction] | None = None,
        max_step: int | None = None,
        agents_after_done: Literal["clear", "keep"] = "clear",
    ) -> None:
        if agents_after_done not in ENDINGS:
            raise ValueError(unknown("agents_after_done", agents_after_done, ENDINGS))
        self._task, self._after_done = env, agents_after_done
        spec = env._host.sim.spec
        self.metadata = {**env.metadata, "name": spec.id}
        self.render_mode = env.render_mode
        self.max_step = max_step
        self.reward_weights = dict(zip(spec.term_names, spec.term_weights, strict=True))
        names = spec.term_names if rewards is None else rewards
        self.reward_calculator = RewardCollection([self._function(given) for given in names])
        self.observation_manager = ObservationManager(env.get_observation_fields())
        self.observation_shape = self.observation_manager.shape
        self.possible_agents = list(env.possible_agents)
        self.agents = list(self.possible_agents)
        self.action_spaces: dict[str, Any] = dict(env.action_spaces.items())
        boxes: dict[str, Any] = dict(env.observation_spaces.items())
        self.observation_spaces: dict[str, Any] = {name: _double(box) for name, box in boxes.items()}
        self.state_space = env.state_space
        self.world = World(
            [Agent(a, k, self.observation_spaces[a], self.action_spaces[a]) for k, a in enumerate(self.possible_agents)]
        )
        self._np_random = np.random.default_rng()
        self._seen: dict[str, np.ndarray] = {}
        self._told: Infos = {name: {} for name in self.possible_agents}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observations, Infos]:
        """Begin: (observations, one empty dict an agent). Options are those of `MultiAgentTaskEnv.reset`."""
        if seed is not None:
            self._np_random = np.random.default_rng(checked_seed(seed))
        known = {key: value for key, value in (options or {}).items() if key != CHECKERS_OPTION}
        obs, _ = self._task.reset(seed=seed, options=known)
        self.world.begin()
        self.agents = list(self.possible_agents)
        self._seen, self._told = obs, {name: {} for name in self.possible_agents}
        return self._get_obs(), {name: {} for name in self.possible_agents}

    def step(self, actions: Mapping[str, Any]) -> tuple[Observations, Any, dict[str, bool], dict[str, bool], Infos]:  # type: ignore[override]
        """Advance one step: observations, rewards by function, terminations (never), truncations and infos.

        An agent missing from the actions leaves its unit alone. Warns past max_step. AssertionError for an unknown
        agent.
        """
        world = self.world
        if self.max_step is not None and world.current_step >= self.max_step:
            warnings.warn(f"max_step is {self.max_step}, but step {world.current_step} was requested.", stacklevel=2)
        if not self.agents:
            return {}, {}, {}, {}, {}
        for name, action in actions.items():
            assert name in world.agents_by_name, f"Agent {name} not found"
            world.agents_by_name[name].intended_action = np.array(action, np.float32)
        obs, _, terminations, truncations, infos = self._task.step(actions)
        ending = terminations[ALL] or truncations[ALL]
        world.advance(infos, self._task.delta_t_minutes / MINUTES_PER_HOUR, ending)
        if ending:
            obs, _ = self._task.reset()
        self._seen, self._told = obs, infos
        rewards = self._get_reward()
        over = self.max_step is not None and world.current_step >= self.max_step - 1
        if over and self._after_done == "clear":
            self.agents = []
        flags = (dict.fromkeys(self.possible_agents, flag) for flag in (False, over))
        return self._get_obs(), rewards, *flags, self._get_info(rewards)  # type: ignore[return-value]

    @property
    def np_random(self) -> np.random.Generator:
        """Generator of wrappers that draw; the seed of a reset fixes it."""
        return self._np_random

    def get_agent(self, agent_name: str) -> Agent:
        """An agent by its name. KeyError for an unknown one."""
        if agent_name not in self.world.agents_by_name:
            raise KeyError(unknown("agent", agent_name, self.possible_agents))
        return self.world.agents_by_name[agent_name]

    def state(self) -> np.ndarray:
        """Joint observation of all agents."""
        return self._task.state()

    def render(self, mode: str = "text") -> Any:
        """See `MultiAgentTaskEnv.render`; `mode` is taken for compatibility."""
        return self._task.render()

    def close(self) -> None:
        """Close the window of the episode, if there is one."""
        self._task.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._task._host.summary})"

    def __str__(self) -> str:
        return type(self).__name__

    @property
    def _progress(self) -> Any:
        """Events in the world since the reset."""
        return self.world.progress

    @_progress.setter
    def _progress(self, progress: Any) -> None:
        self.world.progress = progress

    def _function(self, given: str | RewardFunction) -> RewardFunction:
        if isinstance(given, RewardFunction):
            return given
        if given not in self.reward_weights:
            raise ValueError(unknown("reward term", given, self.reward_weights))
        return term_reward(given)

    def _get_obs(self) -> Observations:
        """Observations of all agents at the current step; none before the first reset."""
        return {name: self.observation_manager.observe(vector) for name, vector in self._seen.items()}

    def _get_reward(self) -> Rewards:
        """Rewards of the last step, by agent and by function."""
        return self.reward_calculator.compute(self.world)

    def _get_info(self, rewards: Rewards) -> Infos:
        """Infos of the last step, by agent, with its rewards as "reward"."""
        return {name: {**self._told[name], "reward": own} for name, own in rewards.items()}


def _double(box: gymnasium.spaces.Box) -> gymnasium.spaces.Box:
    """The same box for observations, whose entries are Python floats."""
    low, high = (np.asarray(side, np.float64) for side in (box.low, box.high))
    return gymnasium.spaces.Box(low, high, dtype=np.float64)  # type: ignore[arg-type]


class RewardAggregator(ABC, SmartGrid):
    """Base of reward aggregators: one number out of an agent's rewards, everything else as in the environment.

    env:  a SmartGrid; `infos[agent]["reward"]` keeps the rewards as they were
    """

    def __init__(self, env: SmartGrid) -> None:
        self.env = env

    @abstractmethod
    def reward(self, rewards: Rewards) -> dict[str, float]:
        """Rewards by agent and function -> one float an agent."""

    def step(self, actions: Mapping[str, Any]) -> tuple[Observations, Any, dict[str, bool], dict[str, bool], Infos]:  # type: ignore[override]
        """Advance one step; as `SmartGrid.step`, with one float an agent as reward."""
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        return obs, self.reward(rewards), terminated, truncated, infos

    @property
    def unwrapped(self) -> SmartGrid:
        """The environment under all aggregators."""
        return self.env.unwrapped

    def __getattribute__(self, name: str) -> Any:
        # what SmartGrid defines must not run on an aggregator, which has none of its state
        own = (name.startswith("_") and name not in SHARED) or name in object.__getattribute__(self, "__dict__")
        if own or any(name in vars(kind) for kind in _above_smartgrid(type(self))):
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "env"), name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.env!r})"

    def __str__(self) -> str:
        return f"{type(self).__name__}<{self.env}>"


def _above_smartgrid(kind: type) -> Sequence[type]:
    """The classes of an aggregator, down to the environment it wraps."""
    return kind.__mro__[: kind.__mro__.index(SmartGrid)]


class SingleRewardAggregator(RewardAggregator):
    """The first of an agent's rewards; warns if there are several functions."""

    def __init__(self, env: SmartGrid) -> None:
        super().__init__(env)
        count = len(env.reward_calculator.rewards)
        if count > 1:
            warnings.warn(f"one reward function expected, found {count}: the first is taken.", stacklevel=2)

    def reward(self, rewards: Rewards) -> dict[str, float]:
        """The first present one, 0.0 without any."""
        return {agent: float(next(iter(own.values()), 0.0)) for agent, own in rewards.items()}


class WeightedSumRewardAggregator(RewardAggregator):
    """Weighted sum of an agent's rewards.

    coefficients:  by function; None weighs each by 1 / n. A function without one counts 0; warns if names differ.
                   `env.reward_weights` gives the task's own reward
    """

    def __init__(self, env: SmartGrid, coefficients: Mapping[str, float] | None = None) -> None:
        super().__init__(env)
        names = [function.name for function in env.reward_calculator.rewards]
        given = dict.fromkeys(names, 1 / len(names)) if coefficients is None else dict(coefficients)
        if set(given) != set(names):
            warnings.warn(f"coefficients for {sorted(names)} expected, found {sorted(given)}.", stacklevel=2)
        self.coefficients = given

    def reward(self, rewards: Rewards) -> dict[str, float]:
        """Weighted sum over the present ones."""
        weight = self.coefficients
        return {a: float(sum(weight.get(name, 0.0) * x for name, x in own.items())) for a, own in rewards.items()}


class MinRewardAggregator(RewardAggregator):
    """The smallest of an agent's rewards."""

    def reward(self, rewards: Rewards) -> dict[str, float]:
        """Minimum over the present ones, 0.0 without any."""
        return {agent: float(min(own.values(), default=0.0)) for agent, own in rewards.items()}


class ProductRewardAggregator(RewardAggregator):
    """The product of an agent's rewards; signs multiply as well, so it suits positive rewards."""

    def reward(self, rewards: Rewards) -> dict[str, float]:
        """Product over the present ones, 0.0 without any."""
        return {agent: float(math.prod(own.values())) if own else 0.0 for agent, own in rewards.items()}


class FunctionRewardAggregator(RewardAggregator):
    """Any function of `powerzoo_compat.aggregation`, or one like it, on the host.

    function:  (rewards (A, K), present (A, K)) -> (A,)
    """

    def __init__(self, env: SmartGrid, function: Callable[[Array, Array], Array] = aggregation.minimum) -> None:
        super().__init__(env)
        self.function = function

    def reward(self, rewards: Rewards) -> dict[str, float]:
        """Value of the function at the rewards; absent ones are masked."""
        names = [function.name for function in self.env.reward_calculator.rewards]
        values = np.array([[own.get(n, 0.0) for n in names] for own in rewards.values()], np.float32)
        present = np.array([[n in own for n in names] for own in rewards.values()])
        scalars = np.asarray(self.function(values, present)) if rewards else ()  # type: ignore[arg-type]
        return {agent: float(x) for agent, x in zip(rewards, scalars, strict=True)}


def parallel_env(
    task: str,
    *,
    split: str | None = None,
    rewards: Sequence[str | RewardFunction] | None = None,
    max_step: int | None = None,
    agents_after_done: Literal["clear", "keep"] = "clear",
    **kwargs: Any,
) -> SmartGrid:
    """A multi-agent task as a SmartGrid; see there.

    split:   None takes the task's default
    kwargs:  task keywords, and `render_mode`
    Raises ValueError for a task with one agent, else as `powerzoo.make_task_env`.
    """
    env = task_agents(task, split, **kwargs)
    return SmartGrid(env, rewards=rewards, max_step=max_step, agents_after_done=agents_after_done)
