"""The parts of a SmartGrid: observations as dataclasses, the world and its agents, named reward functions."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np

# what all agents see alike; a trailing number (a forecast step, a line, a bus) does not change that
GLOBAL_FIELDS = frozenset(
    (
        *("time_of_day", "hour_norm", "is_peak", "is_offpeak", "time_sin", "time_cos", "episode_progress"),
        *("price_signal", "price_forecast", "load_forecast", "total_load_norm", "mean_voltage_dev", "grid_stress"),
        *("line_flow_util", "commitment", "mean_lmp"),
    )
)
INDEX = re.compile(r"(_t\+\d+|_\d+)+$")
DUE_AT_THE_END = frozenset(("settlement", "terminal_buffer", "backlog"))  # paid once, in an episode's last step


class BaseObservation:
    """Base class of observations; subclasses are frozen dataclasses of floats."""

    @classmethod
    def fields(cls) -> list[str]:
        """Names of the entries, in order."""
        return [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]

    def asdict(self) -> dict[str, float]:
        """Entries by name."""
        return dataclasses.asdict(self)  # type: ignore[call-overload, no-any-return]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("an observation holds no array, so one has to be made. Give copy=None.")
        return np.array([getattr(self, name) for name in self.fields()], dtype or np.float64)


class AgentObservation(BaseObservation):
    """Observation of one agent.

    names:                      of the entries, before signs become underscores
    global_class, local_class:  the dataclasses of what all agents see alike, and of what is the agent's own
    """

    names: ClassVar[tuple[str, ...]]
    global_class: ClassVar[type[BaseObservation]]
    local_class: ClassVar[type[BaseObservation]]

    def get_global_observation(self) -> Any:
        """Entries of the observation that all agents share."""
        return self._part(self.global_class)

    def get_local_observation(self) -> Any:
        """Entries of the observation that only this agent sees."""
        return self._part(self.local_class)

    def __reduce__(self) -> Any:
        # its class is made while the program runs, so that no pickle finds it by name
        return _observed, (self.names, *(getattr(self, name) for name in self.fields()))

    def _part(self, kind: type[BaseObservation]) -> BaseObservation:
        return kind(**{name: getattr(self, name) for name in kind.fields()})


def is_global(field: str) -> bool:
    """True for an entry whose value is the same for all agents."""
    return field in GLOBAL_FIELDS or INDEX.sub("", field) in GLOBAL_FIELDS


@functools.lru_cache(maxsize=32)
def observation_class(names: tuple[str, ...]) -> type[AgentObservation]:
    """The frozen dataclass of an observation with these entries; signs such as "+" become underscores."""
    parts = {"Global": [n for n in names if is_global(n)], "Local": [n for n in names if not is_global(n)]}
    made = {kind: _dataclass(f"{kind}Observation", own, BaseObservation) for kind, own in parts.items()}
    whole = _dataclass("Observation", names, AgentObservation)
    whole.names, whole.global_class, whole.local_class = names, made["Global"], made["Local"]
    return whole


def _observed(names: tuple[str, ...], *values: float) -> AgentObservation:
    return observation_class(names)(*values)


def _dataclass(title: str, names: Sequence[str], base: type) -> Any:
    return dataclasses.make_dataclass(
        title, [(re.sub(r"\W", "_", name), float) for name in names], bases=(base,), frozen=True
    )


class ObservationManager:
    """Observations of agents as dataclasses, made from their vectors.

    shape:  entries an agent sees, of which are its own and common to all
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.observation_class = observation_class(tuple(names))
        common = len(self.observation_class.global_class.fields())
        self.shape = {"agent_state": len(names), "local_state": len(names) - common, "global_state": common}

    def __reduce__(self) -> Any:
        return ObservationManager, (self.observation_class.names,)

    def observe(self, vector: np.ndarray) -> AgentObservation:
        """One agent's entries (O,) as its observation."""
        return self.observation_class(*(float(x) for x in vector))


@dataclasses.dataclass
class Agent:
    """One agent: its name, its row, its spaces, and the action it was last told to take."""

    name: str
    index: int
    observation_space: gymnasium.spaces.Box
    action_space: gymnasium.spaces.Box
    intended_action: np.ndarray | None = None


class World:
    """Argument of the reward functions: the agents, and energy and reward terms of the last step.

    agents, agents_by_name:  all agents, in order and by name
    current_step:            steps since reset
    available_energy:        [MWh] fed into the network in the last step, by the grid above and by units
    terms:                   by agent: reward terms of the task in the last step, before weighting
    ending:                  the last step was the last of a task's episode
    """

    def __init__(self, agents: Sequence[Agent]) -> None:
        self.agents = list(agents)
        self.agents_by_name = {agent.name: agent for agent in self.agents}
        self.begin()

    def begin(self) -> None:
        """Forget everything that happened."""
        self.current_step = 0
        self.available_energy = 0.0
        self.terms: dict[str, dict[str, float]] = {agent.name: {} for agent in self.agents}
        self.ending = False

    def advance(self, infos: dict[str, dict[str, Any]], dt_hours: float, ending: bool) -> None:
        """Take in what a step reported."""
        self.current_step += 1
        self.terms = {name: info["reward_terms"] for name, info in infos.items()}
        self.ending = ending
        info = next(iter(infos.values()))
        units = np.concatenate([np.ravel(info.get(key, 0.0)) for key in ("power", "unit_power_mw")])
        fed_in = max(info["p_slack_MW"], 0.0) + float(np.maximum(units, 0.0).sum())
        self.available_energy = fed_in * dt_hours

    @property
    def progress(self) -> tuple[dict[str, Any], list[np.ndarray | None]]:
        """Events since the reset, and the agents' intended actions; both may be set back."""
        kept = {name: value for name, value in vars(self).items() if name not in ("agents", "agents_by_name")}
        return kept, [agent.intended_action for agent in self.agents]

    @progress.setter
    def progress(self, progress: tuple[dict[str, Any], list[np.ndarray | None]]) -> None:
        kept, intended = progress
        vars(self).update(kept)
        for agent, action in zip(self.agents, intended, strict=True):
            agent.intended_action = action


Rule = Callable[[World, Agent], Any]


def always(world: World, agent: Agent) -> bool:
    """Every agent, every step."""
    return True


@dataclasses.dataclass(frozen=True)
class NamedReward:
    """A named reward.

    calculate(world, agent):     what the last step is worth to an agent
    is_activated(world, agent):  whether it applies; where it does not, the agent's dict has no such key
    """

    name: str
    calculate: Rule
    is_activated: Rule = always


def term_reward(name: str) -> NamedReward:
    """A reward term of the task as a reward function; what falls due at the end is active there only."""
    # no functions of this call: an environment that holds such ones cannot be pickled
    return NamedReward(name, functools.partial(_term, name), _at_the_end if name in DUE_AT_THE_END else always)


def _term(name: str, world: World, agent: Agent) -> float:
    return world.terms[agent.name][name]


def _at_the_end(world: World, agent: Agent) -> bool:
    return world.ending


class RewardCollection:
    """The reward functions of an environment.

    rewards:  at least one, with different names (AssertionError, ValueError)
    """

    def __init__(self, rewards: Sequence[NamedReward]) -> None:
        self.rewards = list(rewards)
        assert self.rewards, "an environment needs at least one reward function"
        names = [reward.name for reward in self.rewards]
        if len(set(names)) < len(names):
            raise ValueError(f"reward functions {names} must have different names.")

    def compute(self, world: World) -> dict[str, dict[str, float]]:
        """Rewards of all agents, by agent and by function."""
        return {
            agent.name: {r.name: float(r.calculate(world, agent)) for r in self.rewards if r.is_activated(world, agent)}
            for agent in world.agents
        }
