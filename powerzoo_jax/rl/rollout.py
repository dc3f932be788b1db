"""Run a policy: one lane for a number of steps, or a batch of whole episodes."""

from __future__ import annotations

from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.base import Step, struct
from powerzoo_jax.envs.batch import autoreset
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import Act, first_carry
from powerzoo_jax.envs.trace.readings import TracedSteps, read_step


@overload
def rollout(
    sim: Sim, act: Act, carry: Any, key: Array, length: int, *, reset: bool = True, trace: Literal[False] = False
) -> tuple[Any, Step]: ...


@overload
def rollout(
    sim: Sim, act: Act, carry: Any, key: Array, length: int, *, reset: bool = True, trace: Literal[True]
) -> tuple[Any, TracedSteps]: ...


def rollout(
    sim: Sim, act: Act, carry: Any, key: Array, length: int, *, reset: bool = True, trace: bool = False
) -> tuple[Any, Step | TracedSteps]:
    """Run one lane for `length` steps from a fresh episode: (carry, Step with a leading time axis).

    act:    (carry, obs (A, O), key) -> (carry, action (A, U) in [-1, 1])
    carry:  of the policy before the first step; () where it has none, or brings its own
    key:    () PRNG key of the episodes and of the policy
    reset:  begin a new episode after each one that ends; False runs on past the end, which the kernel defines.
    trace:  return TracedSteps(steps, readings) instead: beside every step its voltages, flows, powers and action, which
            `envs.build_trace` gives names and units; False computes none of them
    `Step.obs` is always the true observation after the step, also where an episode ends. vmap over keys for lanes.

    Example:
        from powerzoo_jax.oracle import random_act
        carry, steps = jax.jit(lambda sim: rollout(sim, random_act(sim), (), key, 48))(sim)
    """
    carry = first_carry(act, carry)
    key, start = jax.random.split(key)
    state, obs = sim.init(start)

    def advance(loop: tuple[Any, Any, Array], key: Array) -> tuple[tuple[Any, Any, Array], Step | TracedSteps]:
        state, carry, obs = loop
        carry, action = act(carry, obs, key)
        out = sim.step(state, action)
        told = TracedSteps(out, read_step(sim, state, action, out)) if trace else out
        state, obs = autoreset(sim, out) if reset else (out.state, out.obs)
        return (state, carry, obs), told

    (_, carry, _), steps = lax.scan(advance, (state, carry, obs), jax.random.split(key, length))
    return carry, steps


def batch_rollout(sim: Sim, act: Act, carry: Any, keys: Array, length: int) -> tuple[Any, Step]:
    """Run one episode per PRNG key (B,) side by side: (carry, Step with leading axes (B, T)), no restarts."""
    return jax.vmap(lambda key: rollout(sim, act, carry, key, length, reset=False))(keys)


@struct.dataclass(kw_only=True)
class Episodes:
    """Totals of a batch of episodes (B).

    total:   (B,)       return: sum of the team-mean reward
    cost:    (B, C)     sum of each cost channel [unit of the channel]
    terms:   (B, A, K)  sum of each reward term before weighting
    length:  (B,)       steps until the first end
    failed:  (B,)       ended by termination rather than by the time limit
    """

    total: Array
    cost: Array
    terms: Array
    length: Array
    failed: Array


def summarise(steps: Step) -> Episodes:
    """Add up steps (B, T) until the first end of each lane; what follows an end does not count."""
    ended = steps.info.terminated | steps.info.truncated
    alive = jnp.cumsum(ended, axis=1) - ended == 0

    def total(x: Array) -> Array:
        mask = alive.reshape(alive.shape + (1,) * (x.ndim - 2))
        return jnp.sum(jnp.where(mask, x, jnp.zeros_like(x)), axis=1)

    return Episodes(
        total=total(jnp.mean(steps.reward, axis=-1)),
        cost=total(steps.cost),
        terms=total(steps.info.terms),
        length=jnp.sum(alive, axis=1, dtype=jnp.int32),
        failed=jnp.any(alive & steps.info.terminated, axis=1),
    )


def mean_metrics(episodes: Episodes, dtype: Any) -> dict[str, Array]:
    """Means over episodes: return (), cost (C,), terms (K,), a mean over agents too, and length () [steps].

    All but the length are in the units of the task.
    """
    team = {"return": episodes.total, "cost": episodes.cost, "terms": jnp.mean(episodes.terms, axis=1)}
    return {k: jnp.mean(v, axis=0, dtype=dtype) for k, v in {**team, "length": episodes.length}.items()}


def evaluate_policy(sim: Sim, act: Act, keys: Array, carry: Any = ()) -> Episodes:
    """Run one whole episode per PRNG key (B,) in parallel and return its totals, (B,) each.

    The program is pure: jit it once per policy, or vmap it over policies.

    Example:
        from powerzoo_jax.oracle import idle_act
        totals = jax.jit(lambda sim, keys: evaluate_policy(sim, idle_act(sim), keys))(sim, jax.random.split(key, 100))
    """
    return summarise(batch_rollout(sim, act, carry, keys, sim.spec.horizon)[1])
