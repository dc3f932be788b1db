"""Scalarization of several rewards, as pure functions of arrays: for training loops that never leave the device.

Every function takes rewards (A, K), and a mask (A, K) of those that are present, and gives (A,): one number an agent.
An absent reward counts as if it were not in the list; an agent with none gets 0. All are jit-, vmap- and
differentiable, and keep the dtype of the rewards.

Example:
    state, obs = sim.init(key)
    info = sim.step(state, jnp.zeros((1, 1))).info
    scalar = weighted_sum(info.terms, sim.params.masks.term, jnp.asarray(sim.spec.term_weights))
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array


def weighted_sum(rewards: Array, present: Array, weights: Array | None = None) -> Array:
    """Weighted sum of rewards, sum_k w_k r_k.

    weights:  (K,); None weighs all by 1 / K, absent ones included
    """
    width = rewards.shape[-1]
    share = jnp.full(width, 1 / width, rewards.dtype) if weights is None else jnp.asarray(weights, rewards.dtype)
    return jnp.sum(jnp.where(present, rewards * share, 0), axis=-1)


def single(rewards: Array, present: Array) -> Array:
    """First reward that is present."""
    first = jnp.argmax(present, axis=-1)[..., None]
    return _or_zero(jnp.take_along_axis(rewards, first, axis=-1)[..., 0], present)


def minimum(rewards: Array, present: Array) -> Array:
    """Egalitarian welfare min_k r_k: the reward of the worst objective (Rawls)."""
    return _or_zero(jnp.min(jnp.where(present, rewards, jnp.inf), axis=-1), present)


def maximum(rewards: Array, present: Array) -> Array:
    """Largest reward, max_k r_k."""
    return _or_zero(jnp.max(jnp.where(present, rewards, -jnp.inf), axis=-1), present)


def product(rewards: Array, present: Array) -> Array:
    """Product of rewards, prod_k r_k; signs multiply as well, so it orders outcomes only where rewards are positive."""
    return _or_zero(jnp.prod(jnp.where(present, rewards, 1), axis=-1), present)


def nash_welfare(rewards: Array, present: Array, disagreement: float = 0.0, floor: float = 1e-6) -> Array:
    """Nash welfare sum_k log(max(r_k - d, floor)), the logarithm of Nash's product (Econometrica 18, 1950).

    disagreement:  d, what an objective earns without an agreement
    floor:         gain below which an objective counts as ruined; keeps the logarithm finite
    """
    gain = jnp.maximum(jnp.where(present, rewards - disagreement, 1), floor)
    return jnp.sum(jnp.where(present, jnp.log(gain), 0), axis=-1)


def geometric_mean(rewards: Array, present: Array, floor: float = 1e-6) -> Array:
    """Geometric mean (prod_k max(r_k, floor))^(1/n) of the n rewards that are present."""
    mean_log = nash_welfare(rewards, present, 0.0, floor) / jnp.maximum(_count(present, rewards), 1)
    return _or_zero(jnp.exp(mean_log), present)


def gini_welfare(rewards: Array, present: Array) -> Array:
    """Gini welfare sum_i (2 (n - i) + 1) / n^2 r_(i), r_(1) the smallest: the mean times 1 - Gini (Sen, 1976).

    The form with ordered weights also holds for rewards of any sign, where the Gini coefficient does not.
    """
    ordered = jnp.sort(jnp.where(present, rewards, jnp.inf), axis=-1)  # absent ones go last
    n = jnp.maximum(_count(present, rewards), 1)[..., None]
    rank = jnp.arange(1, rewards.shape[-1] + 1, dtype=rewards.dtype)
    weight = (2 * (n - rank) + 1) / n**2
    return jnp.sum(jnp.where(rank <= n, jnp.where(jnp.isfinite(ordered), ordered, 0) * weight, 0), axis=-1)


def lexicographic(rewards: Array, present: Array, resolution: float = 0.1, levels: int = 20) -> Array:
    """Lexicographic order: objectives by priority as digits of one number, whose first difference decides.

    digit_k = clip(round(r_k / resolution), -levels, levels),  value = sum_k digit_k (2 levels + 1)^-k

    Differences below `resolution`, and beyond levels x resolution, are not seen. float32 holds four objectives of the
    default digits apart.
    """
    digits = jnp.clip(jnp.round(rewards / resolution), -levels, levels)
    place = (2 * levels + 1) ** -jnp.arange(rewards.shape[-1], dtype=rewards.dtype)
    return jnp.sum(jnp.where(present, digits * place, 0), axis=-1)


def _count(present: Array, rewards: Array) -> Array:
    return jnp.sum(present, axis=-1, dtype=rewards.dtype)


def _or_zero(values: Array, present: Array) -> Array:
    return jnp.where(jnp.any(present, axis=-1), values, 0)
