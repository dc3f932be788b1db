"""Policy networks that remember: a gated recurrent unit (Cho et al. 2014) behind the hidden layers.

    r = sigmoid(W_r x + U_r h),  z = sigmoid(W_z x + U_z h),  n = tanh(W_n x + r (U_n h)),  h' = (1 - z) n + z h

The memory h stands behind the features of an observation, so that kinds of agents are told apart in both at once.
"""

from __future__ import annotations

import flax.linen as nn
import jax.numpy as jnp
from jax import Array

from powerzoo_jax.rl.networks.body import Actor, Deterministic, Torso, last_layer, orthogonal


class GruActor(Actor):
    """As `Actor`, of x and what is remembered side by side, (..., F + M): outputs, log_std, values, memory (..., M)."""

    memory: int = 0

    @nn.compact
    def __call__(self, x: Array, valued: bool = True) -> tuple[Array, ...]:
        del valued  # of one more layer each, which is not worth a second form
        after = _remembered(self, x)
        log_std = self.param("log_std", nn.initializers.constant(self.log_std), (self.free,), self.dtype)
        values = nn.Dense(self.streams, kernel_init=orthogonal(1.0), param_dtype=self.dtype, name="values")
        return last_layer(self.start, self.dtype)(after), log_std, values(after), after


class GruDeterministic(Deterministic):
    """As `Deterministic`, of x and what is remembered side by side: actions (..., U) and memory (..., M), likewise."""

    memory: int = 0

    @nn.compact
    def __call__(self, x: Array) -> Array:
        after = _remembered(self, x)
        return jnp.concatenate([self.moved(last_layer(self.start, self.dtype)(after)), after], axis=-1)


def _remembered(network: GruActor | GruDeterministic, x: Array) -> Array:
    """Memory (..., M) after x and the memory before it, (..., F + M)."""
    size, dtype = network.memory, network.dtype
    seen = Torso(network.widths, network.activation, dtype)(x[..., :-size])
    # Flax would draw orthogonal weights by a QR factorisation, see `orthogonal`
    cell = nn.GRUCell(
        size, param_dtype=dtype, kernel_init=orthogonal(1.0), recurrent_kernel_init=orthogonal(1.0), name="cell"
    )
    after: Array = cell(x[..., -size:], seen)[0]
    return after


def beside(x: Array, memory: Array) -> Array:
    """Input of these networks: observations (..., N, F) and memory (..., N, M) side by side."""
    return jnp.concatenate([x, memory], axis=-1)
