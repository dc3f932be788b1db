"""Three agents of two kinds who should say what they hear, or the opposite of it: a task that a few updates learn."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from powerzoo_jax.base import Box, Dims, EnvState, Info, Masks, Step, TaskSpec, no_padding
from powerzoo_jax.base.spaces import MultiDiscrete
from powerzoo_jax.envs.core import Sim

STEPS = 6
AGENTS = ("bat_0", "pv_0", "bat_1")  # kinds interleaved, so that putting agents back in order is seen
SIGN = np.array([1.0, -1.0, 1.0], np.float32)
LEVELS = 3


@struct.dataclass(kw_only=True)
class TeamParams:
    """horizon () int32, masks."""

    horizon: Array
    masks: Masks


@struct.dataclass(kw_only=True)
class TeamState(EnvState):
    """heard (3,) in [-1, 1]."""

    heard: Array


@dataclass(frozen=True)
class Team:
    """Batteries are paid for repeating what they hear, sun panels for the opposite; speaking up costs.

    reward -(a - sign heard)^2, cost: mean of max(a, 0). With `choice`, agents pick one of three levels -1, 0, 1, of
    which the middle one is illegal after odd steps, and the environment then takes the level 0 for the level -1.
    """

    dims: Dims
    choice: bool = False

    def init(self, key: Array, params: TeamParams) -> tuple[TeamState, Array]:
        del params
        zero = jnp.zeros((), jnp.int32)
        state = TeamState(t=zero, key=key, heard=jax.random.uniform(jax.random.fold_in(key, 0), (3,), minval=-1.0))
        return state, self.observe(state)

    def observe(self, state: TeamState) -> Array:
        return jnp.stack([state.heard, jnp.full(3, state.t / STEPS, state.heard.dtype)], axis=1)

    def legal(self, t: Array) -> Array:
        if not self.choice:
            return jnp.ones((3, 0), bool)
        return jnp.broadcast_to(jnp.stack([t >= 0, t % 2 == 0, t >= 0]), (3, LEVELS))

    def step(self, state: TeamState, action: Array, params: TeamParams) -> Step:
        if self.choice:
            barred = (action[:, 0] == 1) & ~self.legal(state.t)[:, 1] if self.choice else False
            said = jnp.where(barred, -1.0, action[:, 0] - 1.0).astype(state.heard.dtype)
        else:
            barred, said = jnp.zeros(3, bool), jnp.clip(action[:, 0], -1.0, 1.0)
        reward = -((said - SIGN * state.heard) ** 2)
        t = state.t + 1
        new = TeamState(
            t=t, key=state.key, heard=jax.random.uniform(jax.random.fold_in(state.key, t), (3,), minval=-1.0)
        )
        info = Info(
            terminated=jnp.zeros((), bool),
            truncated=t >= params.horizon,
            pf_status=jnp.zeros((), jnp.int32),
            pf_residual=jnp.zeros((), reward.dtype),
            legal=self.legal(t),
            terms=reward[:, None],
        )
        cost = jnp.stack([jnp.mean(jnp.maximum(said, 0.0)), jnp.sum(barred.astype(reward.dtype))])
        return Step(new, self.observe(new), reward, cost, info)

    def spaces(self, params: TeamParams) -> tuple[Box, Box | MultiDiscrete]:
        del params
        one = np.ones((3, 1), np.float32)
        wide = np.ones((3, 2), np.float32)
        return Box(-wide, wide), MultiDiscrete(np.full((3, 1), LEVELS)) if self.choice else Box(-one, one)


def toy_team(budget: float = np.inf, *, choice: bool = False) -> Sim:
    """Build the Sim; `budget` limits what is spent on speaking up in an episode."""
    m = LEVELS if choice else 0
    dims = Dims(bus=0, branch=0, unit=3, agent=3, obs=2, act=1, choice=m, cost=2, term=1)
    params = TeamParams(horizon=jnp.asarray(STEPS, jnp.int32), masks=no_padding(dims))
    spec = TaskSpec(
        id="toy_team", version=0, family="toy", case="none", horizon=STEPS, dt_hours=1.0, split="train",
        agents=AGENTS, cost_names=("loudness", "barred"), cost_budget=(budget, np.inf), term_names=("match",),
        term_weights=(1.0,),
    )  # fmt: skip
    return Sim(params=params, env=Team(dims=dims, choice=choice), spec=spec)
