"""Policies as `Act`s: random, idle, and the networks that the learners train."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from powerzoo_jax.base import Box
from powerzoo_jax.base.spaces import sample
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.rl.config import APGConfig, PPOConfig
from powerzoo_jax.rl.networks import Actor, Deterministic, Scale, normalise
from powerzoo_jax.rl.rollout import Act


@struct.dataclass(kw_only=True)
class Policy:
    """What acting needs of a trained state: the actor's weights and the scaling they were trained with."""

    actor: Any
    scale: Scale


def action_box(sim: Sim) -> Box:
    """The kernel's action space, (A, U) in [-1, 1]; raises ValueError where the task has discrete actions."""
    space = sim.spaces()[1]
    if not isinstance(space, Box):
        raise ValueError(f"task {sim.spec.id!r} has discrete actions; this learner needs a Box.")
    return space


def random_act(sim: Sim) -> Act:
    """Uniform over the action space."""
    space = sim.spaces()[1]

    def act(carry: Any, obs: Array, key: Array) -> tuple[Any, Array]:
        del obs
        return carry, sample(space, key)

    return act


def idle_act(sim: Sim) -> Act:
    """Zero action: no power from a storage, the middle of every other range."""
    space = action_box(sim)

    def act(carry: Any, obs: Array, key: Array) -> tuple[Any, Array]:
        del key
        return carry, jnp.zeros(space.shape, obs.dtype)

    return act


def ppo_act(cfg: PPOConfig, sim: Sim, policy: Policy, *, greedy: bool = True) -> Act:
    """Act with a trained Gaussian: its mean when greedy, else a sample; clipped to the action space."""
    shape = action_box(sim).shape

    def act(carry: Any, obs: Array, key: Array) -> tuple[Any, Array]:
        mean, log_std = make_actor(cfg, sim).apply(policy.actor, normalise(policy.scale, obs))  # type: ignore[misc]
        noise = jnp.zeros_like(mean) if greedy else jax.random.normal(key, mean.shape, mean.dtype)
        return carry, jnp.clip(mean + jnp.exp(log_std) * noise, -1.0, 1.0).reshape(shape)

    return act


def apg_act(cfg: APGConfig, sim: Sim, policy: Policy) -> Act:
    """Act with a trained deterministic policy."""
    network = make_deterministic(cfg, sim)
    shape = action_box(sim).shape

    def act(carry: Any, obs: Array, key: Array) -> tuple[Any, Array]:
        del key
        action: Any = network.apply(policy.actor, normalise(policy.scale, obs))
        return carry, action.reshape(shape)

    return act


def make_actor(cfg: PPOConfig, sim: Sim) -> Actor:
    """The stochastic policy network of a task, all agents' actions in one vector."""
    space = action_box(sim)
    return Actor(space.low.size, cfg.widths, cfg.log_std, space.low.dtype)


def make_deterministic(cfg: APGConfig, sim: Sim) -> Deterministic:
    """The deterministic policy network of a task, all agents' actions in one vector."""
    space = action_box(sim)
    return Deterministic(space.low.size, cfg.widths, space.low.dtype)
