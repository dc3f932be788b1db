"""Policies as `Act`s: random, idle, and the networks that the learners train."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.tree_util import Partial

from powerzoo_jax.base import Box
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import Act
from powerzoo_jax.oracle.policies import idle_act as idle_act
from powerzoo_jax.oracle.policies import random_act as random_act
from powerzoo_jax.rl.config import APGConfig, PPOConfig
from powerzoo_jax.rl.networks import Actor, Deterministic, Scale, normalise


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


def ppo_act(cfg: PPOConfig, sim: Sim, policy: Policy, *, greedy: bool = True) -> Act:
    """Act with a trained Gaussian: its mean when greedy, else a sample; clipped to the action space."""
    return Partial(_gaussian, _Head(make_actor(cfg, sim), action_box(sim).shape, greedy), policy)


def apg_act(cfg: APGConfig, sim: Sim, policy: Policy) -> Act:
    """Act with a trained deterministic policy."""
    return Partial(_tanh, _Head(make_deterministic(cfg, sim), action_box(sim).shape), policy)


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["network", "shape", "greedy"])
@dataclass(frozen=True)
class _Head:
    """The static half of a policy: a pytree without leaves, so that policies that differ in weights share a compile."""

    network: Any
    shape: tuple[int, ...]
    greedy: bool = True


def _gaussian(head: _Head, policy: Policy, carry: Any, obs: Array, key: Array) -> tuple[Any, Array]:
    mean, log_std = head.network.apply(policy.actor, normalise(policy.scale, obs))
    noise = jnp.zeros_like(mean) if head.greedy else jax.random.normal(key, mean.shape, mean.dtype)
    return carry, jnp.clip(mean + jnp.exp(log_std) * noise, -1.0, 1.0).reshape(head.shape)


def _tanh(head: _Head, policy: Policy, carry: Any, obs: Array, key: Array) -> tuple[Any, Array]:
    del key
    return carry, head.network.apply(policy.actor, normalise(policy.scale, obs)).reshape(head.shape)


def make_actor(cfg: PPOConfig, sim: Sim) -> Actor:
    """The stochastic policy network of a task, all agents' actions in one vector."""
    space = action_box(sim)
    return Actor(space.low.size, cfg.widths, cfg.activation, cfg.log_std, space.low.dtype)


def make_deterministic(cfg: APGConfig, sim: Sim) -> Deterministic:
    """The deterministic policy network of a task, all agents' actions in one vector."""
    space = action_box(sim)
    return Deterministic(space.low.size, cfg.widths, cfg.activation, space.low.dtype)
