"""What to act on next: a fresh episode where one has ended. `step` itself never resets."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.base.numerics import anywhere
from powerzoo_jax.base.random import Purpose, purpose_key
from powerzoo_jax.base.tree import where_done
from powerzoo_jax.base.types import Step
from powerzoo_jax.envs.batch import is_stacked, lanes
from powerzoo_jax.envs.core import Sim


def _ended(out: Step) -> Array:
    return out.info.terminated | out.info.truncated


def _fresh(sim: Sim, state: Any) -> tuple[Any, Array]:
    return sim.init(purpose_key(state.key, Purpose.NEXT_EPISODE))


def autoreset(sim: Sim, out: Step) -> tuple[Any, Array]:
    """Return (state, obs) to act on after `out`, one environment at a time; obs (A, O) in the units of `out.obs`.

    A fresh episode where `out` ended one, else (out.state, out.obs); `out` keeps the true last observation.
    Under vmap the choice is a select, so `init` is paid at every step: batches use `vstep`.

    Example:
        state, obs = jax.jit(sim.init)(key)
        out = jax.jit(sim.step)(state, jnp.zeros((1, 1)))
        state, obs = jax.jit(powerzoo_jax.autoreset)(sim, out)
    """
    fresh = _fresh(sim, out.state)
    return where_done(_ended(out), fresh, (out.state, out.obs))


def vstep(sims: Sim, states: Any, actions: Array) -> tuple[Step, Any, Array]:
    """Step a batch and restart the lanes that ended: (out, next states, next obs).

    sims:     one Sim shared by all lanes, or a stacked Sim (see `stack` and `lanes`)
    states:   batched EnvState, leading axis B
    actions:  (B, A, U) in [-1, 1], scaled to each device's rating [MW, Mvar]
    Returns a Step with leading axis B, batched states and observations (B, A, O).

    `init` runs under one batch-level `cond`, that is once per horizon when lanes end together,
    and stays a branch under further `vmap`s. Raises ValueError for actions without an axis of lanes.

    Example:
        states, obs = jax.jit(jax.vmap(sim.init))(jax.random.split(key, 1024))
        out, states, obs = jax.jit(powerzoo_jax.vstep)(sim, states, jnp.zeros((1024, 1, 1)))
    """
    if jnp.ndim(actions) != 3:
        raise ValueError(f"vstep takes a batch of actions (B, A, U), got {jnp.shape(actions)}. One lane: sim.step.")
    axes = batch_axes(sims)
    out = jax.vmap(lambda s, x, a: s.step(x, a), in_axes=(axes, 0, 0))(sims, states, actions)
    ended = _ended(out)

    def restart(operand: tuple[Any, Array]) -> tuple[Any, Array]:
        fresh = jax.vmap(_fresh, in_axes=(axes, 0))(sims, operand[0])
        return where_done(ended, fresh, operand)

    states, obs = lax.cond(anywhere(ended), restart, lambda operand: operand, (out.state, out.obs))
    return out, states, obs


def batch_axes(sims: Sim) -> Any:
    """in_axes of a Sim: None for one shared Sim, the prefix of `lanes` for a stacked one."""
    return lanes(sims) if is_stacked(sims) else None
