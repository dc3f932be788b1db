"""Environment protocol: `Env` (static code), `EnvParams` (leaves of a lane), `Sim` (both, with its task spec)."""

from __future__ import annotations

import dataclasses
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import Box, Dims, EnvState, Masks, Space, Step, TaskSpec, struct
from powerzoo_jax.base.solver_mode import AUTO, one_form
from powerzoo_jax.devices.fleet import soc_range
from powerzoo_jax.envs.observe import FieldTable, bounds
from powerzoo_jax.envs.series import Draw, draw_episode


@struct.dataclass(kw_only=True)
class EnvParams:
    """Parameters of a lane, fixed for its life; leaves only. Families add leaves by subclass.

    grid:     cases.Grid       network of the lane
    factors:  pytree           what the solver prepared on the host
    masks:    base.Masks       padding
    horizon:  () int32         steps until truncation
    bank:     pytree           exogenous series, shared by all lanes
    """

    grid: Any
    factors: Any
    masks: Masks
    horizon: Array
    bank: Any


class Env(Protocol):
    """Static code of a family: frozen, hashable by value, owns no arrays, never jits, never resets itself."""

    @property
    def dims(self) -> Dims: ...

    def init(self, key: Array, params: Any) -> tuple[Any, Array]: ...

    def step(self, state: Any, action: Array, params: Any) -> Step: ...

    def spaces(self, params: Any) -> tuple[Box, Space]: ...


@struct.dataclass
class Sim:
    """A task ready to run: a pytree whose leaves are `params`; `env` and `spec` are static.

    `jax.vmap` over a stacked Sim is vmap over grids. Kernel actions lie in [-1, 1].

    Example:
        sim = powerzoo_jax.make("battery_arbitrage", split="train")
        state, obs = sim.init(jax.random.key(0))
        state, obs, reward, cost, info = sim.step(state, jnp.zeros((1, 1)))
    """

    params: Any
    env: Any = struct.field(pytree_node=False)
    spec: TaskSpec = struct.field(pytree_node=False)

    def __repr__(self) -> str:
        # the leaves are megabytes of series, which would fill every notebook cell and traceback
        return f"Sim({self.spec.id!r}, split={self.spec.split!r}, case={self.spec.case!r}, {self.env.dims})"

    def __hash__(self) -> int:
        raise TypeError("a Sim holds arrays and cannot be static. Pass it as an ordinary argument: jax.jit(f)(sim, x).")

    def init(self, key: Array) -> tuple[EnvState, Array]:
        """Draw an episode: (state, obs (A, O)). Runs one solve of the family.

        Raises TypeError for what is no key, ValueError for several keys or a stacked Sim outside of `jax.vmap`.
        """
        _refuse_stacked("init", self.params)
        _refuse_key(key)
        return self.env.init(key, self.params)

    def step(self, state: Any, action: Array) -> Step:
        """Advance one step: action (A, U) -> Step(state, obs (A, O), reward (A,), cost (C,), info).

        An action of other real numbers, or a list of the same shape, is taken in the dtype of the simulation.

        Raises TypeError for the pair that `init` returns in place of a state or for an action that is no array of
        numbers, ValueError for another shape of action or a stacked Sim outside of `jax.vmap`.
        """
        _refuse_stacked("step", self.params)
        tell_if_slow("sim.step", (state, action))
        if type(state) is tuple:
            raise TypeError(
                "step takes the state alone. Write state, obs = sim.init(key), then sim.step(state, action)."
            )
        return self.env.step(state, taken(self.env, self.params, action), self.params)

    def spaces(self) -> tuple[Box, Space]:
        """Observation and action space of the kernel, agent axis in front (NumPy bounds)."""
        return self.env.spaces(self.params)


def _refuse_stacked(method: str, params: Any) -> None:
    """Raise where several simulations are asked to act as one."""
    if jnp.ndim(getattr(params, "horizon", 0)):
        raise ValueError(
            f"this Sim is a stack of {jnp.shape(params.horizon)[0]}: map {method} over it, "
            f"jax.vmap(lambda sim, x: sim.{method}(...), in_axes=(lanes(sims), 0))(sims, x), or use vstep."
        )


def _refuse_key(key: Any) -> None:
    """Raise where a seed stands for a key, or a batch of keys for one."""
    typed = isinstance(key, Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    raw = isinstance(key, Array) and not typed and key.shape == (2,)  # jax.random.PRNGKey
    if not (typed or raw):
        raise TypeError(f"init takes a random key, got {key!r}. Write sim.init(jax.random.key(0)).")
    if typed and key.shape:
        raise ValueError(f"init takes one key, got {key.shape}. Map it over the lanes: jax.vmap(sim.init)(keys).")


_told = False


def tell_if_slow(function: str, arguments: Any) -> None:
    """Warn, once a process, where a step runs operation by operation: outside of `jax.jit` and of any other trace."""
    global _told
    if _told or jax.config.jax_disable_jit:  # type: ignore[attr-defined]
        return
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(arguments)):
        return
    # inside of a program whose step takes constants alone, an operation is traced all the same
    if isinstance(jnp.zeros(()), jax.core.Tracer):
        return
    _told = True
    warnings.warn(
        f"{function} was called outside of jax.jit, which runs it operation by operation, a hundred times slower. "
        f"Write step = jax.jit({function}) once, before the loop, and call step.",
        stacklevel=3,
    )


def as_array(action: Any) -> Array:
    """An action as an array: NumPy arrays and numbers, and lists of them, become one of JAX.

    Raises TypeError for what is none, also for lists of different lengths.
    """
    try:
        return jnp.asarray(action)
    except (TypeError, ValueError, OverflowError) as err:
        raise TypeError(
            f"action: expected an array of numbers, got {type(action).__name__} {str(action)[:60]!r}. "
            "Write jnp.asarray of rows of numbers, one row an agent."
        ) from err


def taken(env: Any, params: Any, action: Any) -> Array:
    """The action (A, U) in the dtype of the simulation; a wrong shape is refused before it broadcasts into a step.

    For views that call `env.step` themselves: its own argument is not looked at.
    Raises TypeError and ValueError as `Sim.step` does.
    """
    action = as_array(action)
    dims, space = env.dims, env.spaces(params)[1]
    expected = (dims.agent, dims.act)
    if action.shape != expected:
        raise ValueError(
            f"action: expected (A={dims.agent}, U={dims.act}), got {action.shape}. One row an agent; lanes are "
            "mapped, as in jax.vmap(sim.step) or vstep."
        )
    whole = jnp.issubdtype(action.dtype, jnp.integer)
    if isinstance(space, Box):
        if not whole and not jnp.issubdtype(action.dtype, jnp.floating):
            raise TypeError(f"action: expected {space.low.dtype} in [-1, 1], got {action.dtype}. Write real numbers.")
        # a wider action would widen every quantity behind it, and a step would return another state than it took
        return action.astype(space.low.dtype)
    if not whole:
        raise TypeError(f"action: expected whole numbers, the options that are chosen, got {action.dtype}.")
    return action.astype(jnp.int32)


@dataclass(frozen=True)
class GridEnv(ABC):
    """The step of every grid family: phases in one order. Families override phases, never the step.

    decode -> limit -> dispatch -> flow -> account -> observe -> finish; see each phase for what goes in and out.

    dims:          static sizes
    dt_hours:      [h]  length of a step
    term_weights:  (K,) of the reward terms, in their order
    fields:        blocks of the observation, in their order
    solver:        form of its iterative solvers: "auto", "adaptive" or "fixed", see `base.solver_mode`
    """

    dims: Dims
    dt_hours: float
    term_weights: tuple[float, ...]
    fields: FieldTable
    solver: str = field(default=AUTO, kw_only=True)
    ends_apart: ClassVar[bool] = False  # lanes of a batch end in different steps, so that few begin anew in each

    def init(self, key: Array, params: Any) -> tuple[Any, Array]:
        """Draw an episode: its first day, the price day that goes with it, and the initial states of charge."""
        return self.begin(key, draw_episode(key, params.starts, *self.soc_range(params)), params)

    def begin(self, key: Array, drawn: Draw, params: Any) -> tuple[Any, Array]:
        """Start a given episode; `init` with the draw chosen by the caller."""
        with one_form(self.solver):
            return self.start(key, drawn, params)

    @abstractmethod
    def start(self, key: Array, drawn: Draw, params: Any) -> tuple[Any, Array]:
        """Initial states of a given episode and its first observation."""

    def soc_range(self, params: Any) -> tuple[Array, Array]:
        """Ranges (S,), (S,) that initial states of charge are drawn from; empty where nothing stores."""
        return soc_range(params)

    def spaces(self, params: Any) -> tuple[Box, Box]:
        """Boxes with the agent axis in front."""
        # a lane computes in the float type of its series
        dtype = np.dtype(jax.tree.leaves(params.bank)[0].dtype)
        one = np.ones((self.dims.agent, self.dims.act), dtype)
        return bounds(self.fields, self.dims.agent, dtype), Box(-one, one)

    def step(self, state: Any, action: Array, params: Any) -> Step:
        """Advance one step; a pure function of its arguments."""
        with one_form(self.solver):
            command = self.decode(action, params)
            devices, delivery = self.limit(state, command, params)
            injection = self.dispatch(state, delivery, params)
            flow = self.flow(injection, params)
            new, reward, cost, info = self.account(state, devices, delivery, flow, params)
            obs = self.observe(state, new, flow, params)
            out = self.finish(Step(new, obs, reward, cost, info), state, devices, delivery, injection, params)
            return out._replace(info=dataclasses.replace(out.info, nan_actions=not_finite(action, params.masks.act)))

    @abstractmethod
    def decode(self, action: Array, params: Any) -> Any:
        """Mask and clip the action (A, U), scale it to physical set-points."""

    @abstractmethod
    def limit(self, state: Any, command: Any, params: Any) -> tuple[Any, Any]:
        """Feasible set-points: (new device states, delivery)."""

    @abstractmethod
    def dispatch(self, state: Any, delivery: Any, params: Any) -> Any:
        """Clear the market or the OPF if the family has one, and sum everything into bus injections."""

    @abstractmethod
    def flow(self, injection: Any, params: Any) -> Any:
        """Solve the power flow."""

    @abstractmethod
    def account(self, state: Any, devices: Any, delivery: Any, flow: Any, params: Any) -> tuple[Any, Array, Array, Any]:
        """Money, costs, clock and flags: (new state, reward (A,), cost (C,), info)."""

    def observe(self, state: Any, new: Any, flow: Any, params: Any) -> Array:
        """Observation before the next action, (A, O), inside the declared bounds: that of the new state."""
        del state, flow
        return self._fields(new, params)

    def finish(self, step: Step, state: Any, devices: Any, delivery: Any, injection: Any, params: Any) -> Step:
        """Take what a form of the solvers has left undone once more, with all that follows from it: nothing."""
        del state, devices, delivery, injection, params
        return step

    @abstractmethod
    def _fields(self, state: Any, *args: Any, **kwargs: Any) -> Array:
        """The observation at `state`, (A, O)."""

    def weighted(self, terms: Array) -> Array:
        """Reward of terms before weighting: (K,) -> () or (A, K) -> (A,)."""
        weights = jnp.asarray(self.term_weights, terms.dtype)
        return jnp.sum(terms * (weights if terms.ndim == 1 else weights[None]), axis=-1)


@dataclass(frozen=True)
class EnvAround:
    """Environment around another one; what a subclass does not say itself is as there."""

    env: Any

    def __getattr__(self, name: str) -> Any:
        # copying asks for attributes before there is an `env` to ask
        if name.startswith("__") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)


def in_range(action: Array, real: Array) -> Array:
    """Entries of an action (A, U) [-], clipped to [-1, 1]; 0 where `real` (A, U) bool is False: padding, or a NaN."""
    return jnp.where(real & jnp.isfinite(action), jnp.clip(action, -1, 1), 0)


def not_finite(action: Array, real: Array) -> Array:
    """Number of entries of an action (A, U) that are not finite, () int32; padding, where `real` is False, left out."""
    if not jnp.issubdtype(action.dtype, jnp.floating):
        return jnp.zeros((), jnp.int32)
    return jnp.sum(real & ~jnp.isfinite(action), dtype=jnp.int32)


def end_flags(t: Array, horizon: Array, failed: Array) -> dict[str, Any]:
    """End flags of `Info` where an episode ends as soon as a solve has failed () bool, else after step t = horizon."""
    return {"terminated": failed, "truncated": (t >= horizon) & ~failed}


def unless_settled(failed_before: Array, cost: Array) -> Array:
    """Cost channels (C,) of a step: the blackout has settled the whole rest of the horizon, nothing after it costs."""
    return jnp.where(failed_before, 0, cost)
