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
from powerzoo_jax.oracle.baselines import idle_act as idle_act
from powerzoo_jax.oracle.baselines import random_act as random_act
from powerzoo_jax.rl.crew import Crew, by_kind, make_crew
from powerzoo_jax.rl.networks.body import Actor, Deterministic, SquashedActor, normalise
from powerzoo_jax.rl.networks.heads import Dist
from powerzoo_jax.rl.training.config import APGConfig, PPOConfig, SACConfig


@struct.dataclass(kw_only=True)
class Policy:
    """What acting needs of a trained state: the actor's weights and the scaling they were trained with, by kind."""

    actor: Any
    scale: Any


def action_box(sim: Sim) -> Box:
    """The kernel's action space, (A, U) in [-1, 1]; raises ValueError where the task has discrete actions."""
    space = sim.spaces()[1]
    if not isinstance(space, Box):
        raise ValueError(f"task {sim.spec.id!r} has discrete actions; this learner needs a Box.")
    return space


def crew_of(cfg: PPOConfig, sim: Sim) -> Crew:
    """Who acts under these settings: all agents as one, or each for itself."""
    return make_crew(sim, joint=cfg.joint, share=getattr(cfg, "share", True), squash=cfg.squash, start=cfg.start)


def apg_crew(cfg: APGConfig, sim: Sim) -> Crew:
    """Who acts on the gradient of the environment; raises ValueError where an action chooses, which has no slope."""
    action_box(sim)
    crew = make_crew(sim, joint=cfg.joint, squash=True, start=cfg.start)
    if crew.head.picks:
        raise ValueError(f"task {sim.spec.id!r} switches units, which has no gradient. Train it with ppo or ippo.")
    return crew


def distribution(crew: Crew, actor: Actor, params: Any, x: Array) -> Dist:
    """What the agents draw from, given x (..., N, F) [-], standardised."""

    def outputs(params: Any, x: Array) -> tuple[Array, Array]:
        both: Any = actor.apply(params, x)
        out, log_std = both
        return out, jnp.broadcast_to(log_std, (x.shape[-2], log_std.size))

    return crew.head.dist(*by_kind(crew, outputs, params, x))


def ppo_act(cfg: PPOConfig, sim: Sim, policy: Policy, *, greedy: bool = True) -> Act:
    """Act with a policy that PPO or a relative has trained: its most likely action when greedy, else a sample.

    An `Act` sees no legality: the environment overrides an illegal choice, by the one that the mask would have left.
    """
    crew = crew_of(cfg, sim)
    return Partial(_draw, _Head(make_actor(cfg, crew), crew, greedy), policy)


def sac_act(cfg: SACConfig, sim: Sim, policy: Policy, *, greedy: bool = True) -> Act:
    """Act with a policy that SAC has trained."""
    crew = make_crew(sim, joint=True, squash=True, start=cfg.start)
    return Partial(_draw_squashed, _Head(make_squashed(cfg, crew), crew, greedy), policy)


def apg_act(cfg: APGConfig, sim: Sim, policy: Policy) -> Act:
    """Act with a trained deterministic policy."""
    crew = apg_crew(cfg, sim)
    return Partial(_tanh, _Head(make_deterministic(cfg, crew), crew), policy)


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["network", "crew", "greedy"])
@dataclass(frozen=True)
class _Head:
    """The static half of a policy: a pytree without leaves, so that policies that differ in weights share a compile."""

    network: Any
    crew: Crew
    greedy: bool = True


def _draw(head: _Head, policy: Policy, carry: Any, obs: Array, key: Array) -> tuple[Any, Array]:
    crew = head.crew
    dist = distribution(crew, head.network, policy.actor, by_kind(crew, normalise, policy.scale, crew.view(obs)))
    anything = jnp.ones((crew.size, 0), bool)
    raw = crew.head.mode(dist, anything) if head.greedy else crew.head.sample(key, dist, anything)
    return carry, _within(crew, raw)


def _draw_squashed(head: _Head, policy: Policy, carry: Any, obs: Array, key: Array) -> tuple[Any, Array]:
    x = by_kind(head.crew, normalise, policy.scale, head.crew.view(obs))
    mean, log_std = head.network.apply(policy.actor, x)
    noise = jnp.zeros_like(mean) if head.greedy else jax.random.normal(key, mean.shape, mean.dtype)
    return carry, head.crew.action(mean + jnp.exp(log_std) * noise)


def _within(crew: Crew, raw: Array) -> Array:
    """What the environment would make of a raw action, so that records show what was played."""
    action = crew.action(raw)
    return action if crew.head.whole else jnp.clip(action, -1.0, 1.0)


def _tanh(head: _Head, policy: Policy, carry: Any, obs: Array, key: Array) -> tuple[Any, Array]:
    del key
    x = by_kind(head.crew, normalise, policy.scale, head.crew.view(obs))
    return carry, by_kind(head.crew, head.network.apply, policy.actor, x).reshape(head.crew.shape)


def make_actor(cfg: PPOConfig, crew: Crew) -> Actor:
    """The stochastic policy network of the first kind of agent; the others differ in `start` alone."""
    return Actor(crew.start[0], len(crew.head.free), cfg.widths, cfg.activation, cfg.log_std, crew.dtype)


def make_squashed(cfg: SACConfig, crew: Crew) -> SquashedActor:
    """The policy network of SAC, all agents' actions in one vector."""
    return SquashedActor(crew.start[0], cfg.widths, cfg.activation, crew.dtype)


def make_deterministic(cfg: APGConfig, crew: Crew) -> Deterministic:
    """The deterministic policy network of the first kind of agent; the others differ in `start` alone."""
    width = crew.shape[-1]
    held = tuple(i for i in range(len(crew.start[0])) if i % width in cfg.held)
    return Deterministic(crew.start[0], cfg.widths, cfg.activation, crew.dtype, held)
