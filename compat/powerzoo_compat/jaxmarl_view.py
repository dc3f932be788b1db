"""JaxMARL: a multi-agent task as a `MultiAgentEnv` of pure functions, without a trip to the host.

Example:
    from powerzoo_compat.jaxmarl_view import parallel_env
    env = parallel_env("marl_der_arbitrage")
    obs, state = env.reset(key)
    actions = {agent: env.action_space(agent).sample(key) for agent in env.agents}
    obs, state, rewards, dones, infos = env.step(key, state, actions)
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from powerzoo_jax.base.errors import missing_extra, unknown

try:
    from jaxmarl.environments.multi_agent_env import MultiAgentEnv
    from jaxmarl.environments.spaces import Box, Discrete
except ImportError as err:
    raise ImportError(missing_extra("The view for JaxMARL", "jaxmarl", "jaxmarl")) from err

from powerzoo_compat._host import RESOURCE, undelivered
from powerzoo_jax.base.tree import where_done
from powerzoo_jax.envs.core import Sim, as_array
from powerzoo_jax.tasks import make

ALL = "__all__"
NUMBER = re.compile(r"_\d+$")
ROUNDING = 1e-5  # [MW] of what a device can follow, in float32
SCORE_AND_ON = 2  # entries of the action of a unit with commitment


@struct.dataclass(kw_only=True)
class TaskState:
    """State of a lane; obs and legal are the observation and the action mask before the next action.

    task:   pytree  state of the task
    obs:    (A, O)
    legal:  (A, M)  bool
    done:   ()      bool   the episode has ended; the step that ends it starts the next one
    step:   ()      int32  steps taken in this episode
    """

    task: Any
    obs: Array
    legal: Array
    done: Array
    step: Array


class TaskJaxMARLEnv(MultiAgentEnv):  # type: ignore[misc]
    """A multi-agent task as JaxMARL's MultiAgentEnv: actions in [-1, 1], an ended lane starts anew in the same step.

    sim:          the task, from `powerzoo_jax.make`
    extra_infos:  tell "cost" (C,), "terminated" and "truncated" (), and "final_observation" by agent, from before the
                  restart. False leaves infos empty, for learners that reshape all of them to one entry an agent
    levels:       discrete actions: as many values from -1 to 1 of an agent's one entry; of a unit with commitment 0 is
                  off, and 1 ... levels is on with score k / levels. None keeps actions real

    Raises ValueError for fewer than two levels (one of units with commitment), or levels of agents with more entries.
    """

    def __init__(self, sim: Sim, *, extra_infos: bool = True, levels: int | None = None) -> None:
        super().__init__(num_agents=len(sim.spec.agents))
        self.sim, self.extra_infos, self.levels = sim, extra_infos, levels
        self.agents = list(sim.spec.agents)
        self.possible_agents = list(sim.spec.agents)
        self.widths = tuple(int(n) for n in np.asarray(sim.params.masks.act).sum(axis=1))
        box = sim.spaces()[0]
        self.observation_spaces = {
            name: Box(box.low[a], box.high[a], box.low[a].shape, jnp.float32) for a, name in enumerate(self.agents)
        }
        self.action_spaces = {
            name: Box(-1.0, 1.0, (width,)) for name, width in zip(self.agents, self.widths, strict=True)
        }
        self._commits = bool(sim.env.dims.choice) and set(self.widths) == {SCORE_AND_ON}
        if levels is not None:
            if set(self.widths) != {1} and not self._commits:
                raise ValueError(
                    f"levels: agents of {sim.spec.id} have {max(self.widths)} entries and JaxMARL one discrete action. "
                    "Leave levels out, or take powerzoo_compat.discrete_view."
                )
            if levels < 2 - self._commits:
                raise ValueError(f"levels = {levels} must be at least {2 - self._commits}.")
            self.action_spaces = {name: Discrete(levels + self._commits) for name in self.agents}

    @property
    def name(self) -> str:
        """Id and version of the task."""
        return f"{self.sim.spec.id}-v{self.sim.spec.version}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, {len(self.agents)} agents)"

    @property
    def agent_classes(self) -> dict[str, list[str]]:
        """Agents by the word before their number."""
        kinds: dict[str, list[str]] = {}
        for agent in self.agents:
            kinds.setdefault(NUMBER.sub("", agent), []).append(agent)
        return kinds

    def reset(self, key: Array) -> tuple[dict[str, Array], TaskState]:
        """Begin an episode: (observations, state)."""
        state = open_lane(self.sim, key)
        return self.get_obs(state), state

    def step(
        self, key: Array, state: TaskState, actions: Mapping[str, Array], reset_state: TaskState | None = None
    ) -> tuple[dict[str, Array], TaskState, dict[str, Array], dict[str, Array], dict[str, Any]]:
        """One step; an ended episode is followed by a new one, or by `reset_state`.

        Raises KeyError for a missing or an unknown agent, ValueError for an action of a wrong shape.
        """
        key, key_reset = jax.random.split(key)
        rows = self._rows(actions)
        last, new, reward, cost, ends = step_lane(self.sim, key, key_reset, state, rows, reset_state)
        return self._told(new, last, reward, cost, ends)

    def step_env(
        self, key: Array, state: TaskState, actions: Mapping[str, Array]
    ) -> tuple[dict[str, Array], TaskState, dict[str, Array], dict[str, Array], dict[str, Any]]:
        """One step without restart."""
        new, reward, cost, ends = _advance(self.sim, key, state, self._rows(actions))
        return self._told(new, None, reward, cost, ends)

    def _told(self, new: TaskState, last: Array | None, reward: Array, cost: Array, ends: tuple[Array, Array]) -> Any:
        """(observations, state, rewards, dones, infos); `last` (A, O) are the observations before a restart."""
        rewards = {agent: reward[a] for a, agent in enumerate(self.agents)}
        infos: dict[str, Any] = {}
        if self.extra_infos:
            infos = {"cost": cost, "terminated": ends[0], "truncated": ends[1]}
            if last is not None:
                infos["final_observation"] = dict(zip(self.agents, last, strict=True))
        dones = dict.fromkeys((*self.agents, ALL), ends[0] | ends[1])
        return self.get_obs(new), new, rewards, dones, infos

    def get_obs(self, state: TaskState) -> dict[str, Array]:
        """Observations by agent, (O,) each."""
        return {agent: state.obs[a] for a, agent in enumerate(self.agents)}

    def get_avail_actions(self, state: TaskState) -> dict[str, Array]:
        """Masks by agent: legal discrete choices (M,), or every entry of a continuous action (U,).

        With levels, those (M,) that a device can follow when the others are left alone, and the one nearest to idle; of
        units with commitment those that their minimum times allow.
        """
        if self.levels is not None:
            return dict(zip(self.agents, self._allowed(state), strict=True))
        if state.legal.shape[-1]:
            return {agent: state.legal[a] for a, agent in enumerate(self.agents)}
        return {agent: jnp.ones(width, bool) for agent, width in zip(self.agents, self.widths, strict=True)}

    def _rows(self, actions: Mapping[str, Array]) -> Array:
        """Actions by agent, (U_a,) each, as (A, U)."""
        for name in (*self.agents, *actions):
            if name not in actions or name not in self.agents:
                raise KeyError(unknown("agent", name, self.agents if name in actions else tuple(actions)))
        width, rows = self.sim.env.dims.act, []
        for agent, own in zip(self.agents, self.widths, strict=True):
            row = as_array(actions[agent])
            takes = (own,) if self.levels is None else ()
            if row.shape != takes and (row.shape != () or own != 1):
                raise ValueError(
                    f"action of {agent!r}: expected {takes}, got {row.shape}. Lanes are mapped by jax.vmap(env.step)."
                )
            rows.append(jnp.pad(jnp.ravel(row if self.levels is None else self._values(row)), (0, width - own)))
        return jnp.stack(rows)

    def _values(self, level: Array) -> Array:
        """Entries (U,) in [-1, 1] of a level ()."""
        if self._commits:
            return 2 * jnp.stack([level / self.levels, level > 0]) - 1  # type: ignore[operator]
        return 2 * level[None] / (self.levels - 1) - 1  # type: ignore[operator]

    def _allowed(self, state: TaskState) -> Array:
        """Mask (A, M) of the levels."""
        assert self.levels is not None
        if self._commits:
            return jnp.concatenate([state.legal[:, :1], jnp.repeat(state.legal[:, 1:], self.levels, axis=1)], axis=1)
        if RESOURCE not in self.sim.spec.cost_names:
            return jnp.ones((len(self.agents), self.levels), bool)
        return followed_levels(self.sim, state, self.levels)


@functools.partial(jax.jit, static_argnums=2)
def followed_levels(sim: Sim, state: TaskState, levels: int) -> Array:
    """Mask (A, M) of the levels of each agent's entry that its device can follow next, all others left alone."""
    dims = sim.env.dims
    values, agents = jnp.linspace(-1, 1, levels, dtype=state.obs.dtype), jnp.arange(dims.agent)
    tried = jnp.full((dims.agent, levels, dims.agent, dims.act), jnp.nan, values.dtype)
    tried = tried.at[agents, :, agents, 0].set(values).reshape(-1, dims.agent, dims.act)
    channel = sim.spec.cost_names.index(RESOURCE)
    short = undelivered(sim.env, channel, state.task, tried, sim.params).reshape(dims.agent, levels)
    return (short <= ROUNDING).at[:, jnp.abs(values).argmin()].set(True)


@jax.jit
def open_lane(sim: Sim, key: Array) -> TaskState:
    """Begin an episode."""
    task, obs = sim.init(key)
    dims = sim.env.dims
    return TaskState(
        task=task,
        obs=obs,
        legal=jnp.ones((dims.agent, dims.choice), bool),
        done=jnp.zeros((), bool),
        step=jnp.zeros((), jnp.int32),
    )


@jax.jit
def step_lane(
    sim: Sim, key: Array, key_reset: Array, state: TaskState, action: Array, reset_state: TaskState | None
) -> tuple[Array, TaskState, Array, Array, tuple[Array, Array]]:
    """One step, and a restart where it ends: (last obs (A, O), state, reward (A,), cost (C,), ends)."""
    after, reward, cost, ends = _advance(sim, key, state, action)
    begun = open_lane(sim, key_reset) if reset_state is None else reset_state
    return after.obs, where_done(after.done, begun, after), reward, cost, ends


@jax.jit
def _advance(
    sim: Sim, key: Array, state: TaskState, action: Array
) -> tuple[TaskState, Array, Array, tuple[Array, Array]]:
    """One step: (state, reward (A,), cost (C,), (terminated, truncated))."""
    out = sim.step(dataclasses.replace(state.task, key=key), action)
    ends = out.info.terminated, out.info.truncated
    after = TaskState(task=out.state, obs=out.obs, legal=out.info.legal, done=ends[0] | ends[1], step=state.step + 1)
    return after, out.reward, out.cost, ends


def to_jaxmarl(sim: Sim, *, extra_infos: bool = True, levels: int | None = None) -> TaskJaxMARLEnv:
    """A multi-agent task as a JaxMARL environment; see `TaskJaxMARLEnv`.

    sim:  from `powerzoo_jax.make`
    Raises ValueError for a task with one agent, or as `TaskJaxMARLEnv`.
    """
    if len(sim.spec.agents) == 1:
        raise ValueError(f"{sim.spec.id} has one agent. Use powerzoo_compat.gymnax_view.to_gymnax.")
    return TaskJaxMARLEnv(sim, extra_infos=extra_infos, levels=levels)


def parallel_env(
    task: str, *, split: str | None = None, extra_infos: bool = True, levels: int | None = None, **kwargs: Any
) -> TaskJaxMARLEnv:
    """A multi-agent task by name; see `to_jaxmarl`.

    kwargs:  task keywords
    Raises ValueError for a task with one agent, else as `powerzoo_jax.make`.
    """
    return to_jaxmarl(make(task, split=split, **kwargs), extra_infos=extra_infos, levels=levels)
