"""Who acts: all agents as one, or every agent for itself, those of a kind with the same weights.

A kind is what the agents of one name (`bat_0`, `bat_1`), action mask and observation mask have in common. A tree with
one part a kind (weights, moments of observations) is a dict; `by_kind` applies it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import Box
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.oracle.baselines import idle_action
from powerzoo_jax.rl.networks.body import Scale, denormalise, observe_batch, scale_from_bounds
from powerzoo_jax.rl.networks.heads import Head, head_of

ALL = "all"


@dataclass(frozen=True)
class Crew:
    """The agents that policies see; hashable.

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

    def view(self, x: Array) -> Array:
        """What each of these agents sees of an agent axis: (..., A, O) -> (..., N, F)."""
        return x.reshape(*x.shape[:-2], self.size, x.shape[-2] * x.shape[-1] // self.size)

    def action(self, raw: Array) -> Array:
        """Action of the environment for raw actions (..., N, U)."""
        return self.head.emit(raw).reshape(*raw.shape[:-2], *self.shape)


def make_crew(
    sim: Sim, *, joint: bool, share: bool = True, squash: bool = False, start: tuple[float, ...] = ()
) -> Crew:
    """The crew of a task.

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
        return Crew(((ALL, (0,)),), whole, (whole.start(idle.reshape(-1)),), shape, dtype)
    kinds = kinds_of(sim) if share else tuple((name, (i,)) for i, name in enumerate(sim.spec.agents))
    return Crew(kinds, head, tuple(head.start(idle[agents[0]]) for _, agents in kinds), shape, dtype)


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


def by_kind(crew: Crew, apply: Callable[[Any, Array], Any], tree: Mapping[str, Any], x: Array) -> Any:
    """Apply each kind's part of `tree` to its agents: x (..., N, F) -> pytree of (..., N, f)."""
    if len(crew.kinds) == 1:
        return apply(tree[crew.kinds[0][0]], x)
    parts = [apply(tree[name], x[..., list(agents), :]) for name, agents in crew.kinds]
    order = np.concatenate([agents for _, agents in crew.kinds])
    back = None if (np.diff(order) == 1).all() else np.argsort(order)

    def join(*pieces: Array) -> Array:
        whole = jnp.concatenate(pieces, axis=-2)
        return whole if back is None else whole[..., back, :]

    return jax.tree.map(join, *parts)


def map_kinds(crew: Crew, make: Callable[..., Any], x: Array, *trees: Mapping[str, Any]) -> dict[str, Any]:
    """A tree with one part a kind: make(part of each tree, x of its agents (..., n, F))."""
    return {name: make(*(t[name] for t in trees), x[..., list(agents), :]) for name, agents in crew.kinds}


def keys_by_kind(crew: Crew, key: Array) -> dict[str, Array]:
    """A key a kind; the key itself where there is only one."""
    names = [name for name, _ in crew.kinds]
    return {names[0]: key} if len(names) == 1 else dict(zip(names, jax.random.split(key, len(names)), strict=True))


def start_scales(crew: Crew, sim: Sim, floor: float) -> dict[str, Scale]:
    """Moments of observations from the declared bounds, those of the first agent of each kind."""
    space = sim.spaces()[0]
    low, high = crew.view(jnp.asarray(space.low)), crew.view(jnp.asarray(space.high))
    return {name: scale_from_bounds(low[agents[0]], high[agents[0]], floor) for name, agents in crew.kinds}


def move_scales(crew: Crew, scale: dict[str, Scale], x: Array) -> dict[str, Scale]:
    """Add standardised observations x (..., N, F) to the moments."""
    return map_kinds(crew, lambda s, x: observe_batch(s, denormalise(s, x)), x, scale)
