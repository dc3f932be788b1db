"""Policies as `Act`s: random, idle, and the networks that the learners train.

Who acts: all agents as one, or every agent for itself, those of a kind with the same weights.

A kind is what the agents of one name (`bat_0`, `bat_1`), action mask and observation mask have in common. A tree with
one part a kind (weights, moments of observations) is a dict; `by_kind` applies it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from powerzoo_jax.base import Box, struct
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import MEMORY, Act
from powerzoo_jax.envs.observe import SharedObs
from powerzoo_jax.oracle.baselines import idle_act as idle_act
from powerzoo_jax.oracle.baselines import idle_action
from powerzoo_jax.oracle.baselines import random_act as random_act
from powerzoo_jax.oracle.registry import Correct, get_column_rule, get_safety_filter
from powerzoo_jax.rl.history import with_window
from powerzoo_jax.rl.networks.body import (
    Actor,
    Deterministic,
    Scale,
    SquashedActor,
    denormalise,
    observe_batch,
    scale_from_bounds,
)
from powerzoo_jax.rl.networks.body import normalise as normalise
from powerzoo_jax.rl.networks.heads import Dist, Head, head_of
from powerzoo_jax.rl.networks.recurrent import GruActor, GruDeterministic, beside
from powerzoo_jax.rl.networks.split import SplitInput, split_input, worth_splitting
from powerzoo_jax.rl.training.config import APGConfig, CloneConfig, ESConfig, PPOConfig, PPOGRUConfig, SACConfig

ALL = "all"


@dataclass(frozen=True)
class AgentGroups:
    """Agents grouped for a policy, and the shapes of their observations and actions; hashable.

    kinds:   (name, agents) of each kind; one agent `all` where they act as one
    head:    action of one of these agents
    start:   idle action of each kind, one for a row of `kinds`
    shape:   action of the environment
    dtype:   of observations and weights
    """

    kinds: tuple[tuple[str, tuple[int, ...]], ...]
    head: Head
    start: tuple[tuple[float, ...], ...]
    shape: tuple[int, ...]
    dtype: Any

    @property
    def size(self) -> int:
        """Number of agents, N."""
        return sum(len(agents) for _, agents in self.kinds)

    def view(self, x: Any) -> Any:
        """Observation of each of these agents from an agent axis: (..., A, O), or in two parts -> (..., N, F)."""
        if isinstance(x, SharedObs):
            return split_input(x, joint=self.size == 1)
        return x.reshape(*x.shape[:-2], self.size, x.shape[-2] * x.shape[-1] // self.size)

    def action(self, raw: Array) -> Array:
        """Action of the environment for raw actions (..., N, U)."""
        return self.head.emit(raw).reshape(*raw.shape[:-2], *self.shape)


def group_agents(
    sim: Sim, *, joint: bool, share: bool = True, squash: bool = False, start: tuple[float, ...] = ()
) -> AgentGroups:
    """Agents of a task grouped by kind.

    joint:  one agent that sees and does everything
    share:  agents of a kind have the same weights; else each its own
    start:  action of every agent that policies start at; () = the idle one
    """
    dims, (observation, space) = sim.env.dims, sim.spaces()
    head = head_of(sim, squash)
    idle = idle_action(sim) if isinstance(space, Box) else np.zeros((dims.agent, len(head.options)))
    if start:
        if len(start) != idle.shape[-1]:
            raise ValueError(
                f"task {sim.spec.id!r}: an action has {idle.shape[-1]} numbers, but the setting start has "
                f"{len(start)}. Give one number in [-1, 1] for each, or none for the idle action."
            )
        idle = np.broadcast_to(np.asarray(start, idle.dtype), idle.shape)
    shape, dtype = getattr(space, "shape", getattr(getattr(space, "nvec", None), "shape", ())), observation.low.dtype
    if joint:
        whole = Head(head.options * dims.agent, squash, head.whole)
        return AgentGroups(((ALL, (0,)),), whole, (whole.start(idle.reshape(-1)),), shape, dtype)
    kinds = kinds_of(sim) if share else tuple((name, (i,)) for i, name in enumerate(sim.spec.agents))
    return AgentGroups(kinds, head, tuple(head.start(idle[agents[0]]) for _, agents in kinds), shape, dtype)


def kinds_of(sim: Sim) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Agents by kind, in the order of their first member: (("bat", (0, 1, 2, 3)), ("pv", (4, 5))).

    Raises ValueError for a Sim that is being traced, whose masks have no values yet.
    """
    masks = sim.params.masks if hasattr(sim.params, "masks") else None
    if masks is not None and isinstance(masks.act, jax.core.Tracer):
        raise ValueError(
            f"task {sim.spec.id!r}: kinds of agents are read from the masks of a Sim, which jit has made abstract. "
            "Build the learner or the policy outside jit, with the Sim itself."
        )
    # as NumPy first: under jit even the row of a constant is abstract
    real = [] if masks is None else [np.asarray(m) for m in (masks.act, masks.obs)]
    found: dict[tuple[str, bytes], list[int]] = {}
    for i, name in enumerate(sim.spec.agents):
        found.setdefault((re.sub(r"_?\d+$", "", name), b"".join(m[i].tobytes() for m in real)), []).append(i)
    stems = [stem for stem, _ in found]
    names = [s if stems.count(s) == 1 else f"{s}_{i}" for i, s in enumerate(stems)]
    return tuple((name, tuple(agents)) for name, agents in zip(names, found.values(), strict=True))


def by_kind(groups: AgentGroups, apply: Callable[[Any, Any], Any], tree: Mapping[str, Any], x: Any) -> Any:
    """Apply each kind's part of `tree` to its agents: x (..., N, F) [-] -> pytree of (..., N, f)."""
    if len(groups.kinds) == 1:
        return apply(tree[groups.kinds[0][0]], x)
    parts = [apply(tree[name], x[..., list(agents), :]) for name, agents in groups.kinds]
    order = np.concatenate([agents for _, agents in groups.kinds])
    back = None if (np.diff(order) == 1).all() else np.argsort(order)

    def join(*pieces: Array) -> Array:
        whole = jnp.concatenate(pieces, axis=-2)
        return whole if back is None else whole[..., back, :]

    return jax.tree.map(join, *parts)


def map_kinds(groups: AgentGroups, make: Callable[..., Any], x: Any, *trees: Mapping[str, Any]) -> dict[str, Any]:
    """A tree with one part a kind: make(part of each tree, x of its agents (..., n, F) [-])."""
    return {name: make(*(t[name] for t in trees), agents_of(x, agents)) for name, agents in groups.kinds}


def agents_of(x: Any, agents: tuple[int, ...]) -> Any:
    """Rows (..., n, F) of some agents of x (..., N, F); an input in two parts is of agents of one kind, all of them."""
    return x if isinstance(x, SplitInput) else x[..., list(agents), :]


def divisible(groups: AgentGroups, sim: Sim) -> bool:
    """Whether learners read the observation of a task in two parts: where that saves most of it, for one kind."""
    return len(groups.kinds) == 1 and worth_splitting(sim)


def keys_by_kind(groups: AgentGroups, key: Array) -> dict[str, Array]:
    """PRNG key () of each kind of agent; the key itself where there is only one."""
    names = [name for name, _ in groups.kinds]
    return {names[0]: key} if len(names) == 1 else dict(zip(names, jax.random.split(key, len(names)), strict=True))


def start_actor(groups: AgentGroups, network: Any, key: Array, x: Any, **options: Any) -> dict[str, Any]:
    """Weights of a policy network by kind of agent, each kind with its own draw and its own first action.

    x:  (..., N, F) [-], standardised observations
    """
    keys = keys_by_kind(groups, key)
    return {
        name: network.clone(start=start).init(keys[name], agents_of(x, agents), **options)
        for (name, agents), start in zip(groups.kinds, groups.start, strict=True)
    }


def start_scales(groups: AgentGroups, sim: Sim, floor: float) -> dict[str, Scale]:
    """Moments of observations from the declared bounds, those of the first agent of each kind."""
    space = sim.spaces()[0]
    low, high = groups.view(jnp.asarray(space.low)), groups.view(jnp.asarray(space.high))
    return {name: scale_from_bounds(low[agents[0]], high[agents[0]], floor) for name, agents in groups.kinds}


def move_scales(groups: AgentGroups, scale: dict[str, Scale], x: Any) -> dict[str, Scale]:
    """Add standardised observations x (..., N, F) [-] to the moments."""
    return map_kinds(groups, lambda s, x: observe_batch(s, denormalise(s, x)), x, scale)


@struct.dataclass(kw_only=True)
class ActorPolicy:
    """Weights and scaling of a trained policy: those of the actor and the one it was trained with, by kind."""

    actor: Any
    scale: Any


def action_box(sim: Sim) -> Box:
    """The kernel's action space, (A, U) in [-1, 1]; raises ValueError where the task has discrete actions."""
    space = sim.spaces()[1]
    if not isinstance(space, Box):
        raise ValueError(f"task {sim.spec.id!r} has discrete actions; this learner needs a Box.")
    return space


def crew_of(cfg: PPOConfig | CloneConfig | ESConfig, sim: Sim) -> AgentGroups:
    """Agents under the settings of a learner: one joint agent, or one per agent of the task."""
    return group_agents(sim, joint=cfg.joint, share=getattr(cfg, "share", True), squash=cfg.squash, start=cfg.start)


def apg_groups(cfg: APGConfig, sim: Sim) -> AgentGroups:
    """Agents for the analytic policy gradient; raises ValueError for discrete actions, which have no derivative."""
    action_box(sim)
    groups = group_agents(sim, joint=cfg.joint, squash=True, start=cfg.start)
    if groups.head.picks:
        raise ValueError(f"task {sim.spec.id!r} switches units, which has no gradient. Train it with ppo or ippo.")
    return groups


def distribution(groups: AgentGroups, actor: Actor, params: Any, x: Any) -> Dist:
    """Action distribution of the agents, given x (..., N, F) [-], standardised."""

    def outputs(params: Any, x: Any) -> tuple[Array, Array]:
        both: Any = actor.apply(params, x)
        out, log_std = both
        return out, jnp.broadcast_to(log_std, (x.shape[-2], log_std.size))

    return groups.head.dist(*by_kind(groups, outputs, params, x))


def distribution_and_values(groups: AgentGroups, actor: Actor, params: Any, x: Any) -> tuple[Dist, Array]:
    """Action distribution and values (..., N, S) [-] of agents whose policy and critic share hidden layers.

    x:  (..., N, F) [-], standardised observations
    """

    def outputs(params: Any, x: Any) -> tuple[Array, Array, Array]:
        out, log_std, values = actor.apply(params, x, valued=True)  # type: ignore[misc]
        return out, jnp.broadcast_to(log_std, (x.shape[-2], log_std.size)), values

    out, log_std, values = by_kind(groups, outputs, params, x)
    return groups.head.dist(out, log_std), values


def filter_of(cfg: Any, sim: Sim) -> tuple[Any, Correct, np.ndarray] | None:
    """Safety filter that settings name, as `oracle.registry.SafetyFilter.of` gives it; None where they name none.

    The columns of an action that it looks at are (A, U) bool [-].
    """
    name = getattr(cfg, "safety_filter", "")
    if not name:
        return None
    # acts are made while programs are traced, and a filter reads the task on the host
    with jax.ensure_compile_time_eval():
        return get_safety_filter(sim.spec.id, name).of(sim)


def through_filter(make_act: Callable[..., Act]) -> Callable[..., Act]:
    """`make_act(cfg, sim, policy)` whose actions go through the safety filter `cfg.safety_filter` of the task."""

    @wraps(make_act)
    def made(cfg: Any, sim: Sim, policy: ActorPolicy, **options: Any) -> Act:
        act, found = make_act(cfg, sim, policy, **options), filter_of(cfg, sim)
        if found is None:
            return act
        blank, correct, _ = found
        return Partial(_filtered, act, correct, memory=(getattr(act, "keywords", {}).get(MEMORY, ()), blank))

    return made


def _filtered(act: Act, correct: Correct, carry: Any, obs: Array, key: Array, *, memory: Any) -> tuple[Any, Array]:
    del memory  # the carry before an episode, see `envs.episode.first_carry`
    own, seen = carry
    own, action = act(own, obs, key)
    seen, action = correct(seen, obs, action)
    return (own, seen), action


@through_filter
@with_window
def ppo_act(cfg: PPOConfig | CloneConfig | ESConfig, sim: Sim, policy: ActorPolicy, *, greedy: bool = True) -> Act:
    """Act with a policy that PPO or a relative has trained: its most likely action when greedy, else a sample.

    An `Act` sees no legality: the environment overrides an illegal choice, by the one that the mask would have left.
    """
    groups = crew_of(cfg, sim)
    return Partial(_draw, _Head(make_actor(cfg, groups), groups, greedy), policy)


def ppo_choice(
    cfg: PPOConfig | CloneConfig, sim: Sim, policy: ActorPolicy, *, greedy: bool = True
) -> Callable[[Array, Array, Array], Array]:
    """Choice of a policy that PPO has trained: (obs (A, O), legal (A, M) bool, key) -> action (A, U), a legal one."""
    return Partial(_chosen, _Head(make_actor(cfg, crew_of(cfg, sim)), crew_of(cfg, sim), greedy), policy)


@with_window
def sac_act(cfg: SACConfig, sim: Sim, policy: ActorPolicy, *, greedy: bool = True) -> Act:
    """Act with a policy that SAC has trained."""
    groups = group_agents(sim, joint=True, squash=True, start=cfg.start)
    return Partial(_draw_squashed, _Head(make_squashed(cfg, groups), groups, greedy), policy)


def beside_rule(make_act: Callable[..., Act]) -> Callable[..., Act]:
    """`make_act(cfg, sim, policy)` whose columns of `cfg.column_rule` are those of the task's rule."""

    @wraps(make_act)
    def made(cfg: APGConfig, sim: Sim, policy: ActorPolicy) -> Act:
        act = make_act(cfg, sim, policy)
        if not cfg.column_rule:
            return act
        rule = get_column_rule(sim.spec.id, cfg.column_rule)
        ruled = np.isin(np.arange(action_box(sim).shape[-1]), rule.columns)
        return Partial(_by_rule, act, rule.of(sim), ruled, **getattr(act, "keywords", {}))

    return made


def _by_rule(
    act: Act, rule: Callable[[Array], Array], ruled: np.ndarray, carry: Any, obs: Array, key: Array, **memory: Any
) -> tuple[Any, Array]:
    del memory  # the carry before an episode, see `envs.episode.first_carry`
    carry, action = act(carry, obs, key)
    return carry, jnp.where(ruled, jax.lax.stop_gradient(rule(obs)), action)


@beside_rule
@with_window
def apg_act(cfg: APGConfig, sim: Sim, policy: ActorPolicy) -> Act:
    """Act with a trained deterministic policy."""
    groups = apg_groups(cfg, sim)
    head = _Head(make_deterministic(cfg, groups), groups)
    if cfg.memory:
        return Partial(_recurrent_tanh, head, policy, memory=no_memory(cfg, groups))
    return Partial(_tanh, head, policy)


def clone_act(cfg: CloneConfig, sim: Sim, policy: ActorPolicy, *, greedy: bool = True) -> Act:
    """Act with a policy that has learnt from a planner."""
    return (gru_act if cfg.memory else ppo_act)(cfg, sim, policy, greedy=greedy)


@through_filter
@with_window
def gru_act(cfg: PPOGRUConfig | CloneConfig, sim: Sim, policy: ActorPolicy, *, greedy: bool = True) -> Act:
    """Act with a policy that recurrent PPO has trained."""
    groups = crew_of(cfg, sim)
    return Partial(_recurrent_draw, _Head(make_gru(cfg, groups), groups, greedy), policy, memory=no_memory(cfg, groups))


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["network", "groups", "greedy"])
@dataclass(frozen=True)
class _Head:
    """Static part of a policy: a pytree without leaves, so that policies with other weights share one program."""

    network: Any
    groups: AgentGroups
    greedy: bool = True


def _draw(head: _Head, policy: ActorPolicy, carry: Any, obs: Array, key: Array) -> tuple[Any, Array]:
    return carry, _chosen(head, policy, obs, jnp.ones((head.groups.size, 0), bool), key)


def _chosen(head: _Head, policy: ActorPolicy, obs: Array, legal: Array, key: Array) -> Array:
    groups = head.groups
    dist = distribution(groups, head.network, policy.actor, by_kind(groups, normalise, policy.scale, groups.view(obs)))
    allowed = groups.view(legal) if legal.shape[-1] else legal
    raw = groups.head.mode(dist, allowed) if head.greedy else groups.head.sample(key, dist, allowed)
    return _within(groups, raw)


def _draw_squashed(head: _Head, policy: ActorPolicy, carry: Any, obs: Array, key: Array) -> tuple[Any, Array]:
    x = by_kind(head.groups, normalise, policy.scale, head.groups.view(obs))
    mean, log_std = head.network.apply(policy.actor, x)
    noise = jnp.zeros_like(mean) if head.greedy else jax.random.normal(key, mean.shape, mean.dtype)
    return carry, head.groups.action(mean + jnp.exp(log_std) * noise)


def _within(groups: AgentGroups, raw: Array) -> Array:
    """Raw action, clipped as the environment clips it, so that records show the action that was played."""
    action = groups.action(raw)
    return action if groups.head.whole else jnp.clip(action, -1.0, 1.0)


def _tanh(head: _Head, policy: ActorPolicy, carry: Any, obs: Array, key: Array) -> tuple[Any, Array]:
    del key
    x = by_kind(head.groups, normalise, policy.scale, head.groups.view(obs))
    return carry, by_kind(head.groups, head.network.apply, policy.actor, x).reshape(head.groups.shape)


def _recurrent_tanh(
    head: _Head, policy: ActorPolicy, carry: Array, obs: Array, key: Array, *, memory: Array
) -> tuple[Array, Array]:
    del key, memory  # the latter is the carry before an episode
    x = by_kind(head.groups, normalise, policy.scale, head.groups.view(obs))
    both = by_kind(head.groups, head.network.apply, policy.actor, beside(x, carry))
    size = carry.shape[-1]
    return both[..., -size:], both[..., :-size].reshape(head.groups.shape)


def _recurrent_draw(
    head: _Head, policy: ActorPolicy, carry: Array, obs: Array, key: Array, *, memory: Array
) -> tuple[Array, Array]:
    del memory
    groups = head.groups
    x = by_kind(groups, normalise, policy.scale, groups.view(obs))
    dist, _, carry = remembering(groups, head.network, policy.actor, x, carry)
    anything = jnp.ones((groups.size, 0), bool)
    raw = groups.head.mode(dist, anything) if head.greedy else groups.head.sample(key, dist, anything)
    return carry, _within(groups, raw)


def remembering(groups: AgentGroups, network: Actor, params: Any, x: Array, memory: Array) -> tuple[Dist, Array, Array]:
    """Action distribution, values (..., N, S) [-] and memory (..., N, M) of a recurrent network.

    x:  (..., N, F) [-], standardised observations
    """

    def outputs(params: Any, both: Array) -> tuple[Array, ...]:
        out, log_std, values, after = network.apply(params, both)  # type: ignore[misc]
        return out, jnp.broadcast_to(log_std, (both.shape[-2], log_std.size)), values, after

    out, log_std, values, after = by_kind(groups, outputs, params, beside(x, memory))
    return groups.head.dist(out, log_std), values, after


def no_memory(cfg: APGConfig | PPOGRUConfig | CloneConfig, groups: AgentGroups) -> Array:
    """Memory (N, M) [-] of the agents before an episode: zeros."""
    return jnp.zeros((groups.size, cfg.memory), groups.dtype)


def make_gru(cfg: PPOGRUConfig | CloneConfig, groups: AgentGroups) -> GruActor:
    """The recurrent policy and value network of the first kind of agent; the others differ in `start` alone."""
    free = len(groups.head.free)
    return GruActor(groups.start[0], free, cfg.widths, cfg.activation, cfg.log_std, groups.dtype, memory=cfg.memory)


def make_actor(cfg: PPOConfig | CloneConfig | ESConfig, groups: AgentGroups, streams: int = 1) -> Actor:
    """The stochastic policy network of the first kind of agent; the others differ in `start` alone.

    streams:  values of a critic that shares its hidden layers, if settings say so; acting needs none of them
    """
    return Actor(groups.start[0], len(groups.head.free), cfg.widths, cfg.activation, cfg.log_std, groups.dtype, streams)


def make_squashed(cfg: SACConfig, groups: AgentGroups) -> SquashedActor:
    """The policy network of SAC, all agents' actions in one vector."""
    return SquashedActor(groups.start[0], cfg.widths, cfg.activation, groups.dtype)


def make_deterministic(cfg: APGConfig, groups: AgentGroups) -> Deterministic:
    """The deterministic policy network of the first kind of agent; the others differ in `start` alone."""
    held = () if cfg.keeps_held else held_outputs(cfg, groups)
    settings = (groups.start[0], cfg.widths, cfg.activation, groups.dtype, held)
    return GruDeterministic(*settings, memory=cfg.memory) if cfg.memory else Deterministic(*settings)


def held_outputs(cfg: APGConfig, groups: AgentGroups) -> tuple[int, ...]:
    """Outputs of the deterministic network that are held columns of some agent."""
    width = groups.shape[-1]
    return tuple(i for i in range(len(groups.start[0])) if i % width in cfg.held)
