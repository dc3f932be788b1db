"""Observations of the last k steps side by side: a task for policies that remember nothing themselves.

The oldest step stands first, the present one last. Before an episode began every field is in the middle of its declared
range, which is zero once an observation is standardised by its bounds; a zero of the field itself may lie far outside
of them (no voltage is 0 pu). What was seen belongs to the state, so that a fresh episode begins without any.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import Box, Dims, Space, Step, struct
from powerzoo_jax.envs.core import EnvAround, Sim


@struct.dataclass(kw_only=True)
class HistoryState:
    """State of a task that shows its last k steps; its other fields are those of `inner`.

    inner:  pytree          state of the task
    past:   (A, (k - 1) O)  observations before the present one, less the middle of their declared ranges
    """

    inner: Any
    past: Array

    def __getattr__(self, name: str) -> Any:
        # copying asks for attributes before there is an `inner` to ask
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


@dataclass(frozen=True)
class HistoryEnv(EnvAround):
    """An environment whose observations (A, k O) are the last k of another one (A, O); all else is as there."""

    steps: int

    fields = None  # names and bounds of a field would have to stand k times; nothing that learns reads them

    @property
    def dims(self) -> Dims:
        """Sizes of the environment."""
        return dataclasses.replace(self.env.dims, obs=self.steps * self.env.dims.obs)

    def init(self, key: Array, params: Any) -> tuple[HistoryState, Array]:
        """Draw an episode."""
        return self._first(self.env.init(key, params), params)

    def begin(self, key: Array, drawn: Any, params: Any) -> tuple[HistoryState, Array]:
        """Begin a chosen episode."""
        return self._first(self.env.begin(key, drawn, params), params)

    def _first(self, begun: tuple[Any, Array], params: Any) -> tuple[HistoryState, Array]:
        state, obs = begun
        middle = middle_of(self.env.spaces(params)[0])
        past, seen = push(no_past(middle, self.steps), obs, middle)
        return HistoryState(inner=state, past=past), seen

    def step(self, state: HistoryState, action: Array, params: Any) -> Step:
        """Advance one step."""
        out: Step = self.env.step(state.inner, action, params)
        past, seen = push(state.past, out.obs, middle_of(self.env.spaces(params)[0]))
        return out._replace(state=HistoryState(inner=out.state, past=past), obs=seen)

    def spaces(self, params: Any) -> tuple[Box, Space]:
        """Spaces of the environment, the bounds of observations once for every step."""
        seen, moves = self.env.spaces(params)
        return Box(*(np.tile(bound, (1, self.steps)) for bound in seen)), moves


def with_history(sim: Sim, steps: int) -> Sim:
    """The same task with observations (A, steps O): the last ones side by side, the present one included.

    One step is the task itself; so is a task that shows its history already.

    Example:
        sim = with_history(powerzoo_jax.make("battery_arbitrage"), 4)
        state, obs = jax.jit(sim.init)(jax.random.key(0))
    """
    if steps == 1 or isinstance(sim.env, HistoryEnv):
        return sim
    return Sim(params=sim.params, env=HistoryEnv(sim.env, steps), spec=sim.spec)


def without_history(sim: Sim) -> Sim:
    """The task behind `with_history`; another one is given back as it is."""
    return Sim(params=sim.params, env=sim.env.env, spec=sim.spec) if isinstance(sim.env, HistoryEnv) else sim


def middle_of(box: Box) -> np.ndarray:
    """Middle of the declared range of every field, (A, O) in its unit."""
    middle: np.ndarray = (box.low + box.high) / 2
    return middle


def no_past(middle: np.ndarray, steps: int) -> Array:
    """Past (A, (steps - 1) O) before an episode: zeros."""
    return jnp.zeros((middle.shape[0], (steps - 1) * middle.shape[1]), middle.dtype)


def push(past: Array, obs: Array, middle: np.ndarray) -> tuple[Array, Array]:
    """Past (A, (k - 1) O) with one more observation (A, O) and without its oldest, and all k of them, (A, k O)."""
    size = middle.shape[1]
    longer = jnp.concatenate([past, obs - middle], axis=-1)
    seen = past + np.tile(middle, (1, past.shape[-1] // size))
    return longer[..., size:], jnp.concatenate([seen, obs], axis=-1)
