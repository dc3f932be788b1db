"""The float64 Newton driver against roots known in closed form, and its verdict on lanes without one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from powerzoo_jax.powerflow import Status
from powerzoo_jax.powerflow.newton import NEWTON_STEPS, damping, newton_raphson, verdict

SQUARES = np.array([4.0, 2.0, 1e-4, 0.0, np.nan])  # x^2 = s, from x = 1


def solve(squares: Array, *, axis: int) -> tuple[Array, Array, Array]:
    s = squares[:, None] if axis == 0 else squares[None]

    def step(x: Array) -> tuple[Array, Array]:
        move = (s - x * x) / (2 * x)
        return x + move, jnp.max(jnp.abs(move), 1 - axis)

    with jax.enable_x64(True):
        return newton_raphson(step, jnp.ones_like(s), axis=axis)


@pytest.mark.parametrize("axis", [0, 1])
def test_lanes_find_their_roots_and_keep_them_beside_others(axis: int) -> None:
    with jax.enable_x64(True):
        squares = jnp.asarray(SQUARES)
        x, move, steps = solve(squares, axis=axis)
        status = verdict(move, jnp.abs(x.reshape(-1) ** 2 - squares), jnp.isfinite(squares))
    np.testing.assert_allclose(np.asarray(x).reshape(-1)[:3], [2.0, 2**0.5, 1e-2], rtol=1e-15)
    # the root of a double zero is found at half a digit a step, too slow for the budget; one of nothing is not
    assert np.asarray(status).tolist() == [0, 0, 0, int(Status.OUT_OF_STEPS), int(Status.BAD_INPUT)]
    assert np.asarray(steps)[3] == NEWTON_STEPS and np.asarray(steps)[:3].max() < NEWTON_STEPS


def test_a_move_is_shortened_to_the_longest_and_a_short_one_left_alone() -> None:
    sizes = jnp.asarray([0.01, 0.3, 3.0, 1e9])
    np.testing.assert_allclose(damping(sizes, 0.3) * sizes, [0.01, 0.3, 0.3, 0.3], rtol=1e-6)
