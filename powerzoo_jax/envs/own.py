"""Rewards and observation fields of one's own around a task: its physics, costs and action stay, its spaces follow."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base import Step
from powerzoo_jax.envs.core import EnvAround, Sim, in_range
from powerzoo_jax.envs.observe import FieldBlock, FieldTable, table

Reward = Callable[[Any, Array, Step, Any], Array]
"""(state before the step, action, what the step gave, params) -> reward (A,), or () for every agent alike

The action (A, U) lies in [-1, 1], and is 0 where it was no number.
"""


@dataclass(frozen=True)
class RewardEnv(EnvAround):
    """An environment with another reward; terms, costs and all else are as there."""

    reward: Reward

    def step(self, state: Any, action: Array, params: Any) -> Step:
        """Advance one step."""
        out: Step = self.env.step(state, action, params)
        if jnp.issubdtype(action.dtype, jnp.floating):  # as the task takes it: a NaN must not reach the reward
            action = in_range(action, params.masks.act)
        own = jnp.asarray(self.reward(state, action, out, params), out.reward.dtype)
        return out._replace(reward=jnp.broadcast_to(own, out.reward.shape))


def with_reward(sim: Sim, reward: Reward) -> Sim:
    """The same task paid by a function of one's own, see `Reward`; no gain is known for what it returns.

    reward:  at the top level of a module: a new function is a new program

    Example:
        def smooth(state, action, out, params):
            return out.reward - 0.1 * jnp.sum(action**2)

        sim = with_reward(powerzoo_jax.make("battery_arbitrage"), smooth)
        out = jax.jit(sim.step)(sim.init(key)[0], jnp.ones((1, 1)))
    """
    return dataclasses.replace(sim, env=RewardEnv(sim.env, reward))


def with_fields(sim: Sim, *blocks: FieldBlock) -> Sim:
    """The same task with further fields at the end of its observation, see `observe.block`; names and spaces follow.

    Raises ValueError for a stacked Sim, an environment without a table of fields, and a field that is there already.

    Example:
        from powerzoo_jax.envs import block
        charge = block("soc_percent", "%", 0, 100, lambda scene: 100 * scene.state.storage.soc)
        sim = with_fields(powerzoo_jax.make("battery_arbitrage"), charge)
    """
    fields = sim.env.fields
    if not isinstance(fields, FieldTable) or dataclasses.is_dataclass(getattr(sim.env, "env", None)):
        raise ValueError(f"{sim.spec.id}: fields are added to the task itself, before a reward or a history.")
    if jnp.ndim(sim.params.horizon):
        raise ValueError(f"{sim.spec.id}: a stacked Sim. Add fields to each task, then stack them.")
    if twice := [name for one in blocks for name in one.names if name in fields.names]:
        raise ValueError(f"{sim.spec.id}: the observation has a field {twice[0]!r}. Choose another name.")
    longer = table((*fields.blocks, *blocks))._replace(split=fields.split)
    dims = dataclasses.replace(sim.env.dims, obs=longer.size)
    real = jnp.pad(sim.params.masks.obs, ((0, 0), (0, longer.size - fields.size)), constant_values=True)
    masks = dataclasses.replace(sim.params.masks, obs=real)
    env = dataclasses.replace(sim.env, fields=longer, dims=dims)
    return dataclasses.replace(sim, env=env, params=dataclasses.replace(sim.params, masks=masks))
