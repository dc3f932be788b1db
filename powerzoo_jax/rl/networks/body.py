"""Policy and value networks, and the normalisation of their observations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base import struct
from powerzoo_jax.base.numerics import matmul
from powerzoo_jax.rl.networks.split import SplitDense, SplitInput
from powerzoo_jax.rl.training.parallel import devices_in_force

CLIP_OBS = 10.0  # standard deviations; a field far outside what training saw must not saturate every unit
PRIOR_COUNT = 1.0  # weight of the declared bounds against the samples seen
LAST_LAYER = "Dense_0"  # of a policy, as Flax names it
LOG_STD_RANGE = (-5.0, 2.0)  # a width outside either freezes the policy or leaves the tanh no slope


def orthogonal(gain: float) -> Callable[..., Array]:
    """Initialiser of weights (F, U): gain times orthonormal columns, or rows where there are fewer of them.

    Gram-Schmidt on a Gaussian matrix, twice, which is enough (Giraud et al. 2005, doi:10.1007/s00211-005-0615-4). Flax
    takes a QR factorisation; two of a batch at once, as many seeds in one program ask for, can wait for each other
    for ever where a machine has two cores.
    """

    def init(key: Array, shape: tuple[int, int], dtype: Any) -> Array:
        wide = shape[1] > shape[0]
        a = jax.random.normal(key, (max(shape), min(shape)), dtype)

        def column(j: Array, q: Array) -> Array:
            v = a[:, j]
            for _ in range(2):
                v = v - matmul(q, matmul(q.T, v))  # rounded products would leave columns askew
            return q.at[:, j].set(v / jnp.sqrt(matmul(v, v)))

        q = lax.fori_loop(0, min(shape), column, jnp.zeros_like(a))
        return gain * (q.T if wide else q)

    return init


def last_layer(start: tuple[float, ...], dtype: Any) -> nn.Dense:
    """Last layer of a policy, whose outputs are about `start` at first."""
    small = orthogonal(0.01)  # a new policy then acts as `start` says, whatever it sees
    return nn.Dense(len(start), kernel_init=small, bias_init=lambda *_: jnp.asarray(start, dtype), param_dtype=dtype)


class Torso(nn.Module):
    """Hidden layers, orthogonal weights of gain sqrt(2): x (..., F), or in two parts -> (..., widths[-1])."""

    widths: tuple[int, ...]
    activation: str
    dtype: Any

    @nn.compact
    def __call__(self, x: Any) -> Array:
        lead = () if isinstance(x, SplitInput) else x.shape[:-1]
        x = as_rows(x) if len(lead) > 1 else x
        for i, width in enumerate(self.widths):
            layer = SplitDense if isinstance(x, SplitInput) else nn.Dense
            init, name = orthogonal(math.sqrt(2.0)), f"Dense_{i}"
            x = getattr(nn, self.activation)(layer(width, kernel_init=init, param_dtype=self.dtype, name=name)(x))
        return x.reshape(*lead, x.shape[-1]) if len(lead) > 1 else x


def as_rows(x: Array) -> Array:
    """Samples as the rows of one matrix: (..., F) -> (R, F), whose products a processor computes faster.

    On several devices only the last two axes are merged, because lanes that are merged with steps would have to travel.
    """
    kept = x.shape[:-3] if devices_in_force() > 1 else ()
    return x.reshape(*kept, -1, x.shape[-1])


class Actor(nn.Module):
    """Policy network before a head: x (..., F) -> outputs (..., n), log_std (free,) of the continuous ones among them.

    The small last layer starts every mean at `start`, the idle action, and every choice at even odds.

    streams:  values of a critic on the same hidden layers
    valued:   give them too, (..., streams), as a third result; acting needs none
    """

    start: tuple[float, ...]
    free: int
    widths: tuple[int, ...]
    activation: str
    log_std: float
    dtype: Any
    streams: int = 1

    @nn.compact
    def __call__(self, x: Array, valued: bool = False) -> tuple[Array, ...]:
        x = Torso(self.widths, self.activation, self.dtype)(x)
        out = last_layer(self.start, self.dtype)(x)
        log_std = self.param("log_std", nn.initializers.constant(self.log_std), (self.free,), self.dtype)
        if not valued:
            return out, log_std
        values = nn.Dense(self.streams, kernel_init=orthogonal(1.0), param_dtype=self.dtype, name="values")
        return out, log_std, values(x)


class SquashedActor(nn.Module):
    """Gaussian before a tanh, its width a function of the state: x (..., F) -> mean (..., U), log_std (..., U)."""

    start: tuple[float, ...]
    widths: tuple[int, ...]
    activation: str
    dtype: Any

    @nn.compact
    def __call__(self, x: Array) -> tuple[Array, Array]:
        x = Torso(self.widths, self.activation, self.dtype)(x)
        low, high = LOG_STD_RANGE
        width = nn.Dense(len(self.start), kernel_init=orthogonal(0.01), param_dtype=self.dtype)(x)
        return last_layer(self.start, self.dtype)(x), low + 0.5 * (high - low) * (1.0 + nn.tanh(width))


class Critic(nn.Module):
    """State value, one for each stream of reward: x (..., F) -> (..., streams)."""

    widths: tuple[int, ...]
    activation: str
    dtype: Any
    streams: int = 1

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = Torso(self.widths, self.activation, self.dtype)(x)
        return nn.Dense(self.streams, kernel_init=orthogonal(1.0), param_dtype=self.dtype)(x)


class Deterministic(nn.Module):
    """Actions in (-1, 1) by tanh: x (..., F) -> (..., U). The gradient never meets a hard clip.

    The small last layer starts at `start`, an action before the tanh; columns in `held` stay there.
    """

    start: tuple[float, ...]
    widths: tuple[int, ...]
    activation: str
    dtype: Any
    held: tuple[int, ...] = ()

    @nn.compact
    def __call__(self, x: Array) -> Array:
        return self.moved(last_layer(self.start, self.dtype)(Torso(self.widths, self.activation, self.dtype)(x)))

    def moved(self, out: Array) -> Array:
        """Actions of outputs before the tanh; held columns at `start`."""
        if self.held:
            moves = ~np.isin(np.arange(len(self.start)), self.held)
            out = jnp.where(moves, out, jnp.asarray(self.start, self.dtype))
        return nn.tanh(out)


def log_prob(mean: Array, log_std: Array, action: Array) -> Array:
    """Log density of a diagonal Gaussian, summed over the action axis: (..., U) -> (...)."""
    z = (action - mean) * jnp.exp(-log_std)
    return jnp.sum(-0.5 * z**2 - log_std - 0.5 * math.log(2.0 * math.pi), axis=-1)


def entropy(log_std: Array) -> Array:
    """Differential entropy of the diagonal Gaussian: (..., U) -> (...)."""
    return jnp.sum(log_std + 0.5 * math.log(2.0 * math.pi * math.e), axis=-1)


@struct.dataclass(kw_only=True)
class Scale:
    """Running mean and variance of an agent's observation; part of the policy, so evaluation uses the same.

    mean:   (F,)  mean of the samples seen, at first the middle of the declared bounds
    var:    (F,)  their variance, at first that of a uniform value in the bounds
    floor:  (F,)  least standard deviation; a field that hardly moves is not blown up into noise
    count:  ()    samples seen
    """

    mean: Array
    var: Array
    floor: Array
    count: Array


def scale_from_bounds(low: Array, high: Array, floor: float) -> Scale:
    """Moments from the declared bounds (F,), (F,) of an observation."""
    half = 0.5 * (high - low)
    least = jnp.where(half > 0, floor * half, jnp.ones_like(half))
    return Scale(mean=0.5 * (low + high), var=half**2 / 3.0, floor=least, count=jnp.asarray(PRIOR_COUNT, low.dtype))


def observe_batch(scale: Scale, x: Any) -> Scale:
    """Merge a batch x (..., F) into the running moments (Chan, Golub and LeVeque 1983, parallel variance)."""
    (mean, var), count = moments(x), jnp.asarray(math.prod(x.shape[:-1]), scale.count.dtype)
    total = scale.count + count
    share = count / total
    shift = mean - scale.mean
    merged = (1.0 - share) * scale.var + share * var + shift**2 * share * (1.0 - share)
    return scale.replace(mean=scale.mean + shift * share, var=merged, count=total)  # type: ignore[attr-defined]


def moments(x: Any) -> tuple[Array, Array]:
    """Mean and variance of every feature of x (..., F), or of an input in two parts: (F,), (F,)."""
    if isinstance(x, SplitInput):
        own = tuple(range(x.own.ndim - 2)) if x.joint else tuple(range(x.own.ndim - 1))
        common = tuple(range(x.shared.ndim - 1))
        return tuple(x.of_features(f(x.shared, axis=common), f(x.own, axis=own)) for f in (jnp.mean, jnp.var))  # type: ignore[return-value]
    # lanes on several devices stay there only where their axis is not merged with others
    x = x if devices_in_force() > 1 else x.reshape(-1, x.shape[-1])
    rows = tuple(range(x.ndim - 1))
    return jnp.mean(x, axis=rows), jnp.var(x, axis=rows)


def normalise(scale: Scale, x: Any) -> Any:
    """Standardise: (..., F) -> (..., F), part by part where there are two."""
    if isinstance(x, SplitInput):
        return x.map(_standard, scale.mean, spread(scale))
    return _standard(x, scale.mean, spread(scale))


def _standard(x: Array, mean: Array, size: Array) -> Array:
    return jnp.clip((x - mean) / size, -CLIP_OBS, CLIP_OBS)


def denormalise(scale: Scale, x: Any) -> Any:
    """Undo `normalise` up to its clip: (..., F) -> (..., F) in the units of the observation."""
    if isinstance(x, SplitInput):
        return x.map(lambda part, mean, size: part * size + mean, scale.mean, spread(scale))
    return x * spread(scale) + scale.mean


def spread(scale: Scale) -> Array:
    """Standard deviation to divide by, never below the floor: (F,)."""
    return jnp.maximum(jnp.sqrt(scale.var), scale.floor)
