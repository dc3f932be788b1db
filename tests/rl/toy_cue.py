"""A cue that is shown once and asked for at the end: who forgets it earns 0 in the mean, who recalls it 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from powerzoo_jax.base import Box, Dims, EnvState, Info, Purpose, Step, TaskSpec, purpose_key
from powerzoo_jax.base.random import uniform
from powerzoo_jax.envs.core import Sim

STEPS = 4
LOW, HIGH = np.float32([-1, 2]), np.float32([1, 4])  # of the cue, and of a clock that is never 0


@struct.dataclass(kw_only=True)
class CueParams:
    """horizon () int32; bank (1,), whose dtype is that of the task."""

    horizon: Array
    bank: Array


@struct.dataclass(kw_only=True)
class CueState(EnvState):
    """cue () [-] of the episode, -1 or 1."""

    cue: Array


@dataclass(frozen=True)
class CueEnv:
    """The frozen Env; every step shows the clock, the first one the cue, and the last action is paid action * cue."""

    dims: Dims

    def init(self, key: Array, params: CueParams) -> tuple[CueState, Array]:
        drawn = uniform(purpose_key(key, Purpose.DAY), (), params.bank.dtype)
        return self.begin(key, jnp.where(drawn < 0.5, -1.0, 1.0), params)

    def begin(self, key: Array, cue: Array, params: CueParams) -> tuple[CueState, Array]:
        state = CueState(t=jnp.zeros((), jnp.int32), key=key, cue=cue)
        return state, self.observe(state)

    def observe(self, state: CueState) -> Array:
        return jnp.stack([jnp.where(state.t == 0, state.cue, 0.0), 2.0 + 2.0 * state.t / STEPS])[None]

    def step(self, state: CueState, action: Array, params: CueParams) -> Step:
        state = state.replace(t=state.t + 1)
        ended = state.t >= STEPS
        paid = jnp.where(ended, jnp.clip(action[0], -1, 1) * state.cue, 0.0)
        info = Info(
            terminated=jnp.zeros((), bool),
            truncated=ended,
            pf_status=jnp.zeros((), jnp.int32),
            pf_residual=jnp.zeros(()),
            legal=jnp.zeros((1, 0), bool),
            terms=paid[None],
        )
        return Step(state, self.observe(state), paid, jnp.zeros(1), info)

    def spaces(self, params: CueParams) -> tuple[Box, Box]:
        one = np.ones((1, 1), np.float32)
        return Box(LOW[None], HIGH[None]), Box(-one, one)


def toy_cue() -> Sim:
    """The task."""
    dims = Dims(bus=0, branch=0, unit=1, agent=1, obs=2, act=1, choice=0, cost=1, term=1)
    fixed: dict[str, Any] = {"version": 0, "family": "toy", "case": "none", "split": "train"}
    spec = TaskSpec(
        id="toy_cue", horizon=STEPS, dt_hours=1.0, agents=("who",), cost_names=("none",), cost_budget=(np.inf,),
        term_names=("recall",), term_weights=(1.0,), **fixed,
    )  # fmt: skip
    return Sim(CueParams(horizon=jnp.asarray(STEPS, jnp.int32), bank=jnp.zeros(1)), CueEnv(dims), spec)


def keys(count: int) -> Array:
    """Keys of as many episodes."""
    return jax.random.split(jax.random.key(7), count)
