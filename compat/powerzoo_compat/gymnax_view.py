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
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array, lax

from powerzoo_jax.base.errors import missing_extra, unknown

try:
    from gymnax.environments.environment import Environment
    from gymnax.environments.spaces import Box, Discrete
except ImportError as err:
    raise ImportError(missing_extra("The view for gymnax", "gymnax", "gymnax")) from err

from powerzoo_jax.base.spaces import Box as KernelBox
from powerzoo_jax.base.tree import where_done
from powerzoo_jax.envs.core import Sim, as_array, taken

APIS = ("six", "five")
AGENTS = ("flat", "shared")


@struct.dataclass(kw_only=True)
class GymnaxParams:
    """The arrays of a task, and the length of its episodes (static)."""

    task: Any
    max_steps_in_episode: int = struct.field(pytree_node=False)


@struct.dataclass(kw_only=True)
class GymnaxState:
    """State of a lane.

    task:        pytree    state of the task
    time:        () int32  steps since reset
    terminated:  () bool   the power flow has failed
    """

    task: Any
    time: Array
    terminated: Array


@dataclass(frozen=True)
class Transitions:
    """Settings that the programs of a view depend on beside its arrays; views of equal ones share their programs.

    agents, levels, api:  see `GymnaxEnv`
    gradients:            let gradients pass from one step to the next
    extra_infos:          see `GymnaxEnv`
    """

    env: Any
    api: str
    agents: str
    levels: int | None
    gradients: bool = False
    extra_infos: bool = True

    def seen(self, obs: Array) -> Array:
        """Observations (A, O) as the view shows them."""
        return obs if self.agents == "shared" else obs.reshape(-1)

    def begin(self, key: Array, params: GymnaxParams) -> tuple[Array, GymnaxState]:
        """Begin an episode: (obs, state)."""
        inner, obs = self.env.init(key, params.task)
        start = GymnaxState(task=inner, time=jnp.zeros((), jnp.int32), terminated=jnp.zeros((), bool))
        return self.seen(obs), start

    def advance(self, key: Array, state: GymnaxState, action: Any, params: GymnaxParams) -> tuple[Any, ...]:
        """One step without restart or time limit: (obs, state, reward, terminated, info)."""
        out = self.env.step(dataclasses.replace(state.task, key=key), self._kernel(action, params), params.task)
        over = out.info.terminated
        # episodes of a world may be shorter than its longest one
        time = jnp.where(out.info.truncated, params.max_steps_in_episode, state.time + 1)
        new = GymnaxState(task=out.state, time=jnp.asarray(time, jnp.int32), terminated=over)
        obs, new = (self.seen(out.obs), new) if self.gradients else lax.stop_gradient((self.seen(out.obs), new))
        reward = out.reward if self.agents == "shared" else jnp.mean(out.reward)
        infos = {"discount": jnp.where(over, 0.0, 1.0)}
        return obs, new, reward, over, infos | {"cost": out.cost} if self.extra_infos else infos

    def _kernel(self, action: Any, params: GymnaxParams) -> Array:
        """The action as (A, U). Raises ValueError for a wrong shape, TypeError for what is no array of numbers."""
        action, dims = as_array(action), self.env.dims
        if self.levels is not None:
            action = 2 * action / (self.levels - 1) - 1
        shape = (dims.agent, dims.act)
        takes: tuple[int, ...] = shape if self.agents == "shared" else (dims.agent * dims.act,)
        if self.levels is not None:
            takes = takes[:-1]
        squeezed = takes == (1,) and action.shape == ()  # Rejax plays a single lane like this
        if action.shape not in (takes, shape) and not squeezed:
            raise ValueError(f"action: expected {takes}, got {action.shape}. Lanes are mapped by jax.vmap(env.step).")
        return taken(self.env, params.task, action.reshape(shape))


@functools.partial(jax.jit, static_argnums=0)
def open_lane(settings: Transitions, key: Array, params: GymnaxParams) -> tuple[Array, GymnaxState]:
    """Begin an episode: (obs, state)."""
    return settings.begin(key, params)


@functools.partial(jax.jit, static_argnums=0)
def step_lane(settings: Transitions, key: Array, state: GymnaxState, action: Array, params: GymnaxParams) -> Any:
    """One step; an ended episode is followed by the first observation of the next."""
    key_step, key_reset = jax.random.split(key)
    last, new, reward, terminated, info = settings.advance(key_step, state, action, params)
    truncated = (new.time >= params.max_steps_in_episode) & ~terminated
    done = terminated | truncated
    obs, new = where_done(done, settings.begin(key_reset, params), (last, new))
    if settings.extra_infos:
        info = {**info, "terminated": terminated, "truncated": truncated, "final_observation": last}
    terminated, truncated, done = (jnp.broadcast_to(x, reward.shape) for x in (terminated, truncated, done))
    if settings.api == "five":
        return obs, new, reward, done, info
    return obs, new, reward, terminated, truncated, info


class GymnaxEnv(Environment):  # type: ignore[misc]
    """A task as a gymnax environment.

    `api` "six" returns terminated and truncated apart, "five" one flag for learners of the former interface.
    `agents` "flat" puts the observations, and the actions, of all agents in one vector, with the team mean as reward;
    "shared" keeps the agents as a leading axis, also of rewards and flags, for one policy that all agents share.
    `levels` takes one of as many values from -1 to 1 as the action of an agent with one entry.
    An ended lane starts anew in the same step; infos hold "final_observation", "cost" (C,), "terminated", "truncated"
    and "discount", without `extra_infos` the last alone. Gradients pass from step to step in
    `with_transition_gradients()`, as gymnax has it.
    """

    _supports_transition_gradients = True

    def __init__(
        self,
        sim: Sim,
        api: Literal["six", "five"],
        agents: Literal["flat", "shared"] = "flat",
        levels: int | None = None,
        extra_infos: bool = True,
    ) -> None:
        self.extra_infos = extra_infos
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
        if self._chooses:
            return int(dims.choice)
        return int(dims.act if self.agents == "shared" else dims.agent * dims.act)

    @property
    def _chooses(self) -> bool:
        """Whether the task itself takes one of several actions."""
        return not isinstance(self.env.spaces(self._params.task)[1], KernelBox)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, api={self.api!r}, agents={self.agents!r})"

    @property
    def _settings(self) -> Transitions:
        gradients = self._transition_gradients_enabled
        return Transitions(self.env, self.api, self.agents, self.levels, gradients, self.extra_infos)

    def reset(self, key: Array, params: GymnaxParams | None = None) -> tuple[Array, GymnaxState]:
        """Begin an episode: (obs, state)."""
        return open_lane(self._settings, key, self._params if params is None else params)

    def reset_env(self, key: Array, params: GymnaxParams) -> tuple[Array, GymnaxState]:
        """The same, inside a program of the caller's."""
        return self._settings.begin(key, params)

    def step(self, key: Array, state: GymnaxState, action: Array, params: GymnaxParams | None = None) -> Any:
        """One step; an ended episode is followed by the first observation of the next.

        Raises ValueError for an action of a wrong shape, TypeError for one that is no array of numbers.
        """
        return step_lane(self._settings, key, state, action, self._params if params is None else params)

    def step_env(
        self, key: Array, state: GymnaxState, action: Array, params: GymnaxParams
    ) -> tuple[Array, GymnaxState, Array, Array, dict[str, Any]]:
        """One step without restart or time limit: (obs, state, reward, terminated, info)."""
        found: tuple[Array, GymnaxState, Array, Array, dict[str, Any]]
        found = self._settings.advance(key, state, action, params)
        return found

    def is_terminated(self, state: GymnaxState, params: GymnaxParams) -> Array:
        """True where the power flow has failed."""
        del params
        return state.terminated

    def action_space(self, params: GymnaxParams | None = None) -> Box | Discrete:
        """[-1, 1] for every entry, or the levels or actions of one agent."""
        if self.levels is not None or self._chooses:
            return Discrete(self.num_actions)
        dims = self.env.dims
        return Box(-1.0, 1.0, (dims.agent, dims.act) if self.agents == "shared" else (self.num_actions,))

    def observation_space(self, params: GymnaxParams | None = None) -> Box:
        """Declared bounds of the observation."""
        box = self.env.spaces((self._params if params is None else params).task)[0]
        low, high = (self._settings.seen(jnp.asarray(x)) for x in (box.low, box.high))
        return Box(low, high, low.shape)


def to_gymnax(
    sim: Sim,
    *,
    api: Literal["six", "five"] = "six",
    agents: Literal["flat", "shared"] = "flat",
    levels: int | None = None,
    extra_infos: bool = True,
) -> tuple[GymnaxEnv, GymnaxParams]:
    """A task as a gymnax environment, with its parameters.

    sim:          from `powerzoo_jax.make`
    api:          "six" values a step as gymnax 1.0 has them, or "five" for learners written for earlier versions
    agents:       "flat" puts all agents into one vector, "shared" keeps them as a leading axis
    levels:       discrete actions, as many values from -1 to 1 in the place of a policy's one entry; None keeps it real
    extra_infos:  False leaves "discount" alone in infos, for learners that keep the infos of a whole rollout
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
    env = GymnaxEnv(sim, api, agents, levels, extra_infos)
    return env, env.default_params
