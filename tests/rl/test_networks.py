"""Initial weights: those of the textbook, without a factorisation that seeds in one program could wait for."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.rl.networks.body import orthogonal


@pytest.mark.parametrize("shape", [(202, 64), (64, 202), (33, 33), (7, 1)])
def test_weights_are_orthonormal_and_those_of_flax(shape):
    weights = np.asarray(orthogonal(1.5)(jax.random.key(3), shape, jnp.float32), float)
    small = weights if shape[0] >= shape[1] else weights.T
    np.testing.assert_allclose(small.T @ small, 1.5**2 * np.eye(min(shape)), atol=1e-5)
    known = nn.initializers.orthogonal(1.5)(jax.random.key(3), shape, jnp.float32)
    np.testing.assert_allclose(weights, known, atol=1e-4)


def test_the_program_of_many_seeds_calls_no_factorisation():
    seeds = jax.vmap(lambda key: orthogonal(1.0)(key, (16, 8), jnp.float32))
    text = jax.jit(seeds).lower(jax.random.split(jax.random.key(0), 5)).as_text()
    assert "custom_call" not in text.replace("@Sharding", "")
