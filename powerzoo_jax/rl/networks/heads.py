"""Action distributions of a policy: Gaussians, Gaussians behind a tanh, choices among a few options, or a mix of them.

An action is kept as drawn (`raw`): what the environment makes of it by clipping, or the tanh, cancels out of every
ratio of probabilities and needs no density of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import Box
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.rl.networks.body import entropy, log_prob

SUREST = 0.98  # of a choice at its start: one in a hundred goes the other way, or nothing would be explored
AT_BOUND = 1 - 1e-3  # of an action that a rounding keeps from its bound
REFUSED = -1e9  # logit of an illegal option: its probability is exactly 0 in either precision


class Dist(NamedTuple):
    """Parameters of a head: mean and log_std (..., F) of the continuous columns, logits (..., M) of the choices."""

    mean: Array
    log_std: Array
    logits: Array


@dataclass(frozen=True)
class Head:
    """The action of one agent, column by column; hashable.

    options:  (U,)  number of options of a column, 0 = continuous
    squash:   continuous columns pass through tanh instead of being clipped by the environment
    whole:    choices are sent as integers; else option i of n as the point of [-1, 1] it stands for
    """

    options: tuple[int, ...]
    squash: bool = False
    whole: bool = False

    @cached_property
    def free(self) -> tuple[int, ...]:
        """Continuous columns."""
        return tuple(i for i, n in enumerate(self.options) if n == 0)

    @cached_property
    def picks(self) -> tuple[int, ...]:
        """Discrete columns."""
        return tuple(i for i, n in enumerate(self.options) if n > 0)

    @property
    def outputs(self) -> int:
        """Number of network outputs: one mean per continuous column, one logit per option."""
        return len(self.free) + sum(self.options)

    def dist(self, out: Array, log_std: Array) -> Dist:
        """Read the outputs (..., outputs) of a network."""
        n = len(self.free)
        return Dist(out[..., :n], log_std, out[..., n:])

    def sample(self, key: Array, dist: Dist, legal: Array) -> Array:
        """Draw raw actions (..., U); legal (..., M), or (..., 0) where everything is."""
        if not self.picks:
            return dist.mean + jnp.exp(dist.log_std) * jax.random.normal(key, dist.mean.shape, dist.mean.dtype)
        noise, choice = jax.random.split(key)
        free = dist.mean + jnp.exp(dist.log_std) * jax.random.normal(noise, dist.mean.shape, dist.mean.dtype)
        return self._join(free, jax.random.categorical(choice, self._logits(dist, legal)))

    def mode(self, dist: Dist, legal: Array) -> Array:
        """The most likely raw action (..., U)."""
        return self._join(dist.mean, jnp.argmax(self._logits(dist, legal), axis=-1)) if self.picks else dist.mean

    def log_prob(self, dist: Dist, raw: Array, legal: Array) -> Array:
        """Log probability of raw actions: (..., U) -> (...); that of a forced choice is 0."""
        if not self.picks:
            return log_prob(dist.mean, dist.log_std, raw)
        chosen = _columns(raw, self.picks).astype(jnp.int32)
        logp = jax.nn.log_softmax(self._logits(dist, legal))
        picked = jnp.sum(jnp.take_along_axis(logp, chosen[..., None], axis=-1)[..., 0], axis=-1)
        return log_prob(dist.mean, dist.log_std, _columns(raw, self.free)) + picked

    def entropy(self, dist: Dist, legal: Array) -> Array:
        """Entropy of the raw action, (...): differential for the continuous columns."""
        spread = entropy(dist.log_std)
        if not self.picks:
            return spread
        logp = jax.nn.log_softmax(self._logits(dist, legal))
        return spread - jnp.sum(jnp.exp(logp) * logp, axis=(-2, -1))

    def distance(self, dist: Dist, action: Array, lean: float | Array = 1.0, counts: np.ndarray | None = None) -> Array:
        """Distance of the policy from actions (..., U) as `emit` sends them, (...): to be made small by imitation.

        Half the squared error of the continuous columns, as the environment takes them, and the cross-entropy of the
        choices. A mean beyond the bound that an action lies at is no error: the environment clips it to that action.

        lean:    weight of a choice of the last option, beside 1 for any other; above 1 a policy in doubt takes it
        counts:  (..., U) bool, the columns that matter; None: all
        """
        every = np.ones(len(self.options), bool) if counts is None else counts
        wanted = _columns(action, self.free)
        mean = jnp.tanh(dist.mean) if self.squash else dist.mean
        error = mean - wanted
        beyond = (jnp.abs(wanted) >= AT_BOUND) & (error * wanted > 0)
        heard = ~beyond & _columns(every, self.free)
        far = 0.5 * jnp.sum(jnp.where(heard, error, 0.0) ** 2, axis=-1)
        if not self.picks:
            return far
        chosen = _columns(action, self.picks)
        last = np.array([self.options[i] - 1 for i in self.picks], np.int32)
        if not self.whole:
            chosen = jnp.round(0.5 * (chosen + 1.0) * last.astype(action.dtype))
        chosen = chosen.astype(jnp.int32)
        weight = jnp.where(chosen == last, jnp.asarray(lean, far.dtype), jnp.ones((), far.dtype))
        weight = jnp.where(_columns(every, self.picks), weight, 0)
        logp = jax.nn.log_softmax(self._logits(dist, jnp.ones((*action.shape[:-1], 0), bool)))
        picked = jnp.take_along_axis(logp, chosen[..., None], axis=-1)
        return far - jnp.sum(weight * picked[..., 0], axis=-1)

    def emit(self, raw: Array) -> Array:
        """Actions sent to the environment for raw actions (..., U)."""
        if self.whole:
            return raw.astype(jnp.int32)
        if self.squash and self.free:
            raw = raw.at[..., np.array(self.free)].set(jnp.tanh(_columns(raw, self.free)))
        if self.picks:
            last = np.array([self.options[i] - 1 for i in self.picks], raw.dtype)
            raw = raw.at[..., np.array(self.picks)].set(2.0 * _columns(raw, self.picks) / last - 1.0)
        return raw

    def start(self, idle: np.ndarray) -> tuple[float, ...]:
        """Biases (outputs,) of a network that starts at an action (U,): its means, and the odds of its choices.

        A point v of [-1, 1] stands for (1 + v) / 2 on the second of two options; among more, odds are even.
        """
        rest = _columns(idle, self.free)
        # arctanh of 1 is infinite; at 0.95 the tanh still has a tenth of its slope, and learning can leave the bound
        means = np.arctanh(np.clip(rest, -0.95, 0.95)) if self.squash else rest
        odds = [_odds(idle[i], self.options[i]) for i in self.picks]
        return (*means.tolist(), *(x for pair in odds for x in pair))

    def _logits(self, dist: Dist, legal: Array) -> Array:
        """Masked logits (..., picks, options); an agent whose options are all illegal may take any."""
        counts = np.array([self.options[i] for i in self.picks])
        slot = np.cumsum(counts)[:, None] - counts[:, None] + np.arange(counts.max())
        exists = np.arange(counts.max()) < counts[:, None]
        slot = np.where(exists, slot, 0)
        allowed = jnp.asarray(exists)
        if legal.shape[-1]:
            may = legal[..., slot] & exists
            allowed = jnp.where(jnp.any(may, axis=-1, keepdims=True), may, allowed)
        return jnp.where(allowed, dist.logits[..., slot], REFUSED)

    def _join(self, free: Array, index: Array) -> Array:
        """Put continuous values (..., free) and chosen options (..., picks) into their columns."""
        both = jnp.concatenate([free, index.astype(free.dtype)], axis=-1)
        return both[..., np.argsort(self.free + self.picks)]


def _odds(v: float, options: int) -> tuple[float, ...]:
    """Initial logits of a discrete choice."""
    if options != 2 or v == 0:
        return (0.0,) * options
    return (0.0, float(2 * np.arctanh(np.clip(v, -SUREST, SUREST))))


def _columns(x: Any, columns: tuple[int, ...]) -> Any:
    return x[..., np.array(columns, int)]


def head_of(sim: Sim, squash: bool = False) -> Head:
    """Head of one agent of a task; its discrete columns are those with a mask in `info.legal`.

    Transmission tasks with unit commitment send whether a unit runs as the sign of a column of their Box: the last
    one of an agent that is a unit, the first half of the columns of an agent that is all of them.
    """
    dims, space = sim.env.dims, sim.spaces()[1]
    if not isinstance(space, Box):
        counts = getattr(space, "nvec", np.full((1, 1), getattr(space, "n", 0)))
        rows = np.asarray(counts).reshape(dims.agent, -1)
        if (rows != rows[0]).any():
            raise ValueError(
                f"task {sim.spec.id!r}: agents choose among different numbers of options, {rows.tolist()}."
            )
        return Head(tuple(rows[0].tolist()), squash, whole=True)
    switches = dims.choice // 2
    choose, go_on = (2,) * switches, (0,) * (dims.act - switches)
    first = switches > 1
    return Head(choose + go_on if first else go_on + choose, squash)
