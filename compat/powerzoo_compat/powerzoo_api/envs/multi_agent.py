"""Multi-agent tasks as dicts of agents: the adapter behind framework 'auto', which every other view wraps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np

from powerzoo_compat._host import Host, Reading
from powerzoo_compat.powerzoo_api.envs.base import fresh, own_metadata
from powerzoo_compat.powerzoo_api.envs.episode import EpisodeOwner
from powerzoo_compat.powerzoo_api.envs.render import RENDER_MODES
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.envs.core import Sim

ALL = "__all__"
SIDES = ("low", "high")
Dicts = tuple[dict[str, np.ndarray], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]


class CallableDict(gymnasium.spaces.Dict):
    """Spaces by agent that answer to `space[agent]` and to `space(agent)` with the same object."""

    def __call__(self, agent: str) -> gymnasium.spaces.Space[Any]:
        return self[agent]


class SpacesByAgent:
    """`observation_space(agent)` and `action_space(agent)`: the same object at every call."""

    observation_spaces: Any
    action_spaces: Any

    def observation_space(self, agent: str) -> Any:
        """Observation space of an agent."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """Action space of an agent."""
        return self.action_spaces[agent]


class MultiAgentTaskEnv(EpisodeOwner):
    """Multi-agent task with dicts by agent: actions in, five dicts out, whose flags also hold "__all__".

    sim:           the task, from `powerzoo_jax.make`
    unit_actions:  take actions in [-1, 1] instead of the boxes of the contract
    pad:           give all agents the same spaces, with actions in [-1, 1]
    render_mode:   None, "human" (prints a line a step and fills a window where there is a display), "ansi" or
                   "rgb_array" (extra `viz`)

    possible_agents never changes; `agents` holds those that still act. An agent missing from an action dict leaves its
    unit alone. Horizon ends are truncations; a failed power flow terminates everyone. The env never resets itself.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": list(RENDER_MODES),
        "render_fps": 2,
        "is_parallelizable": True,
    }
    _moving: ClassVar[tuple[str, ...]] = ("agents",)

    def __init__(
        self, sim: Sim, *, unit_actions: bool = False, pad: bool = False, render_mode: str | None = None
    ) -> None:
        self.metadata = own_metadata(type(self), render_mode)  # type: ignore[misc]
        self.render_mode = render_mode
        self._own(Host(sim, unit_actions=unit_actions, pad=pad))
        self.possible_agents = list(sim.spec.agents)
        self.agents: list[str] = []
        rows = list(enumerate(self.possible_agents))
        self.observation_spaces = CallableDict({name: self._host.observation_box(a) for a, name in rows})
        self.action_spaces = CallableDict({name: self._host.boxes[a] for a, name in rows})
        self.observation_space, self.action_space = self.observation_spaces, self.action_spaces
        low, high = (np.concatenate([getattr(box, side) for box in self.observation_spaces.values()]) for side in SIDES)
        self.state_space = gymnasium.spaces.Box(low, high)
        self.delta_t_minutes = self._host.minutes

    @property
    def unwrapped(self) -> MultiAgentTaskEnv:
        """This env: nothing is wrapped here."""
        return self

    @property
    def num_agents(self) -> int:
        """Agents that still act."""
        return len(self.agents)

    @property
    def max_num_agents(self) -> int:
        """Agents of the task."""
        return len(self.possible_agents)

    @property
    def time_step(self) -> int:
        """Steps executed in this episode."""
        return 0 if self._episode is None else self._episode.steps

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
        """Begin an episode: (observations, infos of the state it starts from).

        seed:     fixes everything that follows; None continues the stream
        options:  day (ISO date) or day_id, soc (a value, or one a device id), randomize_soc (bool or (low, high))
        Raises ValueError for an unknown option or an unusable value; the running episode then stays as it is.
        """
        reading, info = self._begin(seed, self._host.choice(options), np.random.default_rng)
        self.agents = list(self.possible_agents)
        self._show()
        return self._seen(reading), self._told(info, reading)

    def step(self, actions: Mapping[str, Any]) -> Dicts:
        """Advance one step: observations, rewards, terminations, truncations and infos, by agent.

        Raises RuntimeError before the first reset, TypeError for no dict, KeyError for an unknown agent, ValueError for
        a NaN or a wrong shape.
        """
        episode = self._running("step")
        reading = self._host.step(self._host.kernel_action(self._by_row(actions)))
        info = self._infos.step(episode, reading)
        terminated, truncated = bool(reading.info.terminated), bool(reading.info.truncated)
        everyone = self.possible_agents
        if terminated or truncated:
            self.agents = []
        self._show(reading)
        return (
            self._seen(reading),
            {name: float(reading.reward[a]) for a, name in enumerate(everyone)},
            dict.fromkeys((*everyone, ALL), terminated),
            dict.fromkeys((*everyone, ALL), truncated),
            self._told(info, reading),
        )

    def state(self) -> np.ndarray:
        """Joint observation of all agents, inside `state_space`."""
        self._running("state")
        return fresh(self._host.seen.reshape(-1))

    def get_agent_ids(self) -> set[str]:
        """Names of all agents."""
        return set(self.possible_agents)

    def get_observation_fields(self, agent: str | None = None) -> tuple[str, ...]:
        """Names of an observation's entries, in order, the same for all agents. KeyError for an unknown agent."""
        if agent is not None and agent not in self.possible_agents:
            raise KeyError(unknown("agent", agent, self.possible_agents))
        return self._host.sim.env.fields.names

    def get_episode_data(self) -> dict[str, Any]:
        """Totals of the running episode: steps, reward (team mean), costs and money by name."""
        episode = self._running("get_episode_data")
        return {
            "steps": episode.steps,
            "reward": episode.reward,
            "costs": {name: float(x) for name, x in zip(self._infos.names, episode.costs, strict=True)},
            "terms": dict(episode.terms),
        }

    def _by_row(self, actions: Mapping[str, Any]) -> dict[int, Any]:
        if not isinstance(actions, Mapping):
            raise TypeError(f"actions must be a dict by agent, got {type(actions).__name__}.")
        for name in actions:
            if name not in self.possible_agents:
                raise KeyError(unknown("agent", name, self.possible_agents))
        return {self.possible_agents.index(name): value for name, value in actions.items()}

    def _seen(self, reading: Reading) -> dict[str, np.ndarray]:
        return {name: fresh(reading.obs[a]) for a, name in enumerate(self.possible_agents)}

    def _told(self, info: dict[str, Any], reading: Reading) -> dict[str, dict[str, Any]]:
        return {name: self._infos.of_agent(info, reading, a) for a, name in enumerate(self.possible_agents)}
