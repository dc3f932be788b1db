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

from powerzoo_jax.base.errors import missing_extra

try:
    from jaxmarl.environments.multi_agent_env import MultiAgentEnv
    from jaxmarl.environments.spaces import Box
except ImportError as err:
    raise ImportError(missing_extra("The view for JaxMARL", "jaxmarl", "jaxmarl")) from err

from powerzoo_jax.base.tree import where_done
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.tasks import make

ALL = "__all__"
NUMBER = re.compile(r"_\d+$")


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
    """

    def __init__(self, sim: Sim, *, extra_infos: bool = True) -> None:
        super().__init__(num_agents=len(sim.spec.agents))
        self.sim, self.extra_infos = sim, extra_infos
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

    @functools.partial(jax.jit, static_argnums=0)
    def reset(self, key: Array) -> tuple[dict[str, Array], TaskState]:
        """Begin an episode: (observations, state)."""
        task, obs = self.sim.init(key)
        dims = self.sim.env.dims
        state = TaskState(
            task=task,
            obs=obs,
            legal=jnp.ones((dims.agent, dims.choice), bool),
            done=jnp.zeros((), bool),
            step=jnp.zeros((), jnp.int32),
        )
        return self.get_obs(state), state

    @functools.partial(jax.jit, static_argnums=0)
    def step(
        self, key: Array, state: TaskState, actions: Mapping[str, Array], reset_state: TaskState | None = None
    ) -> tuple[dict[str, Array], TaskState, dict[str, Array], dict[str, Array], dict[str, Any]]:
        """One step; an ended episode is followed by a new one, or by `reset_state`."""
        key, key_reset = jax.random.split(key)
        obs, after, rewards, dones, infos = self.step_env(key, state, actions)
        begun = self.reset(key_reset)[1] if reset_state is None else reset_state
        if self.extra_infos:
            infos = {**infos, "final_observation": obs}
        state = where_done(dones[ALL], begun, after)
        return self.get_obs(state), state, rewards, dones, infos

    def step_env(
        self, key: Array, state: TaskState, actions: Mapping[str, Array]
    ) -> tuple[dict[str, Array], TaskState, dict[str, Array], dict[str, Array], dict[str, Any]]:
        """One step without restart."""
        rows = [self._row(actions[agent]) for agent in self.agents]
        out = self.sim.step(dataclasses.replace(state.task, key=key), jnp.stack(rows))
        done = out.info.terminated | out.info.truncated
        after = TaskState(task=out.state, obs=out.obs, legal=out.info.legal, done=done, step=state.step + 1)
        rewards = {agent: out.reward[a] for a, agent in enumerate(self.agents)}
        infos: dict[str, Any] = {}
        if self.extra_infos:
            infos = {"cost": out.cost, "terminated": out.info.terminated, "truncated": out.info.truncated}
        return self.get_obs(after), after, rewards, dict.fromkeys((*self.agents, ALL), done), infos

    def get_obs(self, state: TaskState) -> dict[str, Array]:
        """Observations by agent, (O,) each."""
        return {agent: state.obs[a] for a, agent in enumerate(self.agents)}

    @functools.partial(jax.jit, static_argnums=0)
    def get_avail_actions(self, state: TaskState) -> dict[str, Array]:
        """Masks by agent: legal discrete choices (M,), or every entry of a continuous action (U,)."""
        if state.legal.shape[-1]:
            return {agent: state.legal[a] for a, agent in enumerate(self.agents)}
        return {agent: jnp.ones(width, bool) for agent, width in zip(self.agents, self.widths, strict=True)}

    def _row(self, action: Array) -> Array:
        """An agent's action (U_a,) as a row (U,) of the kernel's."""
        flat = jnp.ravel(action)
        return jnp.pad(flat, (0, self.sim.env.dims.act - flat.shape[0]))


def to_jaxmarl(sim: Sim, *, extra_infos: bool = True) -> TaskJaxMARLEnv:
    """A multi-agent task as a JaxMARL environment; see `TaskJaxMARLEnv`.

    sim:  from `powerzoo_jax.make`
    Raises ValueError for a task with one agent.
    """
    if len(sim.spec.agents) == 1:
        raise ValueError(f"{sim.spec.id} has one agent. Use powerzoo_compat.gymnax_view.to_gymnax.")
    return TaskJaxMARLEnv(sim, extra_infos=extra_infos)


def parallel_env(task: str, *, split: str | None = None, extra_infos: bool = True, **kwargs: Any) -> TaskJaxMARLEnv:
    """A multi-agent task by name; see `to_jaxmarl`.

    kwargs:  task keywords
    Raises ValueError for a task with one agent, else as `powerzoo_jax.make`.
    """
    return to_jaxmarl(make(task, split=split, **kwargs), extra_infos=extra_infos)
