"""gymnax: a task as an environment of pure functions, without a trip to the host.

Example:
    from powerzoo_compat.gymnax_view import to_gymnax
    env, params = to_gymnax(powerzoo_jax.make("battery_arbitrage"))
    obs, state = env.reset(key, params)
    obs, state, reward, terminated, truncated, info = env.step(key, state, env.action_space(params).sample(key), params)
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from powerzoo_jax.base.errors import missing_extra, unknown

try:
    from gymnax.environments.environment import Environment
    from gymnax.environments.spaces import Box, Discrete
except ImportError as err:
    raise ImportError(missing_extra("The view for gymnax", "gymnax", "gymnax")) from err

from powerzoo_jax.base.tree import where_done
from powerzoo_jax.envs.core import Sim

APIS = ("six", "five")
AGENTS = ("flat", "shared")


@struct.dataclass(kw_only=True)
class GymnaxParams:
    """The arrays of a task, and the length of its episodes (static)."""

    task: Any
    max_steps_in_episode: int = struct.field(pytree_node=False)


@struct.dataclass(kw_only=True)
class GymnaxState:
    """State of the task; time: () int32 steps since reset."""

    task: Any
    time: Array


class GymnaxEnv(Environment):  # type: ignore[misc]
    """A task as a gymnax environment.

    `api` "six" returns terminated and truncated apart, "five" one flag for learners of the former interface.
    `agents` "flat" puts the observations, and the actions, of all agents in one vector, with the team mean as reward;
    "shared" keeps the agents as a leading axis, also of rewards and flags, for one policy that all agents share.
    `levels` takes one of as many values from -1 to 1 as the action of an agent with one entry.
    An ended lane starts anew in the same step; infos hold "final_observation", "cost" (C,) and "truncated".
    """

    def __init__(
        self,
        sim: Sim,
        api: Literal["six", "five"],
        agents: Literal["flat", "shared"] = "flat",
        levels: int | None = None,
    ) -> None:
        self.env, self.spec, self.api, self.agents, self.levels = sim.env, sim.spec, api, agents, levels
        self._params = GymnaxParams(task=sim.params, max_steps_in_episode=int(sim.params.horizon))

    @property
    def default_params(self) -> GymnaxParams:
        """Parameters of the task that was given."""
        return self._params

    @property
    def name(self) -> str:
        """Id and version of the task."""
        return f"{self.spec.id}-v{self.spec.version}"

    @property
    def num_actions(self) -> int:
        """Levels, or entries of an action; of one agent's where agents share a policy."""
        if self.levels is not None:
            return self.levels
        dims = self.env.dims
        return int(dims.act if self.agents == "shared" else dims.agent * dims.act)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, api={self.api!r}, agents={self.agents!r})"

    def reset_env(self, key: Array, params: GymnaxParams) -> tuple[Array, GymnaxState]:
        """Begin an episode: (obs, state)."""
        inner, obs = self.env.init(key, params.task)
        return self._seen(obs), GymnaxState(task=inner, time=jnp.zeros((), jnp.int32))

    def step_env(
        self, key: Array, state: GymnaxState, action: Array, params: GymnaxParams
    ) -> tuple[Array, GymnaxState, Array, Array, dict[str, Any]]:
        """One step without restart or time limit: (obs, state, reward, terminated, info)."""
        dims = self.env.dims
        inner = dataclasses.replace(state.task, key=key)
        if self.levels is not None:
            action = 2 * jnp.asarray(action) / (self.levels - 1) - 1
        out = self.env.step(inner, jnp.reshape(action, (dims.agent, dims.act)), params.task)
        info = {"cost": out.cost, "discount": jnp.where(out.info.terminated, 0.0, 1.0)}
        new = GymnaxState(task=out.state, time=state.time + 1)
        reward = out.reward if self.agents == "shared" else jnp.mean(out.reward)
        return self._seen(out.obs), new, reward, out.info.terminated, info

    @functools.partial(jax.jit, static_argnames=("self",))
    def step(self, key: Array, state: GymnaxState, action: Array, params: GymnaxParams | None = None) -> Any:
        """One step; an ended episode is followed by the first observation of the next."""
        params = self._params if params is None else params
        key_step, key_reset = jax.random.split(key)
        last, new, reward, terminated, info = self.step_env(key_step, state, action, params)
        truncated = self.is_truncated(new, params) & ~terminated
        done = terminated | truncated
        obs, new = where_done(done, self.reset_env(key_reset, params), (last, new))
        info = {**info, "terminated": terminated, "truncated": truncated, "final_observation": last}
        terminated, truncated, done = (jnp.broadcast_to(x, reward.shape) for x in (terminated, truncated, done))
        if self.api == "five":
            return obs, new, reward, done, info
        return obs, new, reward, terminated, truncated, info

    def action_space(self, params: GymnaxParams | None = None) -> Box | Discrete:
        """[-1, 1] for every entry, or the levels of one agent."""
        if self.levels is not None:
            return Discrete(self.levels)
        dims = self.env.dims
        return Box(-1.0, 1.0, (dims.agent, dims.act) if self.agents == "shared" else (self.num_actions,))

    def observation_space(self, params: GymnaxParams | None = None) -> Box:
        """Declared bounds of the observation."""
        box = self.env.spaces((self._params if params is None else params).task)[0]
        low, high = (self._seen(jnp.asarray(x)) for x in (box.low, box.high))
        return Box(low, high, low.shape)

    def _seen(self, obs: Array) -> Array:
        return obs if self.agents == "shared" else obs.reshape(-1)


def to_gymnax(
    sim: Sim,
    *,
    api: Literal["six", "five"] = "six",
    agents: Literal["flat", "shared"] = "flat",
    levels: int | None = None,
) -> tuple[GymnaxEnv, GymnaxParams]:
    """A task as a gymnax environment, with its parameters.

    sim:     from `powerzoo_jax.make`
    api:     "six" values a step as gymnax 1.0 has them, or "five" for learners written for earlier versions
    agents:  "flat" puts all agents into one vector, "shared" keeps them as a leading axis
    levels:  discrete actions, as many values from -1 to 1 in the place of a policy's one entry; None keeps it real
    Raises ValueError for another api or arrangement, fewer than two levels, or levels where a policy has many entries.
    """
    if api not in APIS:
        raise ValueError(unknown("api", api, APIS))
    if agents not in AGENTS:
        raise ValueError(unknown("agents", agents, AGENTS))
    if levels is not None:
        entries = sim.env.dims.act * (1 if agents == "shared" else sim.env.dims.agent)
        if levels < 2:
            raise ValueError(f"levels = {levels} must be at least 2.")
        if entries != 1:
            raise ValueError(
                f"levels: a policy of {sim.spec.id} has {entries} entries and gymnax one discrete action. Leave levels "
                "out, or take powerzoo_compat.discrete_view."
            )
    env = GymnaxEnv(sim, api, agents, levels)
    return env, env.default_params
