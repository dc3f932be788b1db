"""Elimination in array operations against LAPACK: random, badly scaled, permuted and singular systems."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base import double_single as ds
from powerzoo_jax.base import elimination

UNIT = {"float32": 2.0**-24, "pairs": 2.0**-48, "float64": 2.0**-53}
GROWTH = 64  # times the rounding unit and the condition number that a solution may be off, for systems of this size


def systems(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Eight systems: random ones, one of rows of very different size, one whose pivots all lie off the diagonal."""
    rng = np.random.default_rng(n)
    matrix = rng.normal(size=(8, n, n)) + np.eye(n)
    matrix[1] *= 10.0 ** rng.uniform(-3, 3, (n, 1))
    matrix[2] = np.roll(np.eye(n), 1, axis=0) + 1e-3 * matrix[2]
    return matrix, rng.normal(size=(8, n))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 2, 7, 64])
def test_solutions_are_those_of_lapack(n, dtype):
    matrix, right = (x.astype(dtype) for x in systems(n))
    with jax.enable_x64(dtype == "float64"):
        found = np.asarray(jax.jit(elimination.solve)(matrix, right))
    assert found.dtype == np.dtype(dtype)
    for a, b, x in zip(matrix.astype(float), right.astype(float), found, strict=True):
        # rows are scaled as pivoting does not mind them, and the condition number does
        scale = np.abs(a).max(1, keepdims=True)
        expected = np.linalg.solve(a, b)
        allowed = GROWTH * UNIT[dtype] * np.linalg.cond(a / scale) * np.abs(expected).max()
        assert np.abs(x - expected).max() <= allowed


@pytest.mark.parametrize("n", [1, 7, 64])
def test_inverses_are_those_of_lapack(n):
    matrix = systems(n)[0]
    with jax.enable_x64(True):
        found = np.asarray(jax.jit(elimination.inverse)(matrix))
    for a, x in zip(matrix, found, strict=True):
        expected, condition = np.linalg.inv(a), np.linalg.cond(a / np.abs(a).max(1, keepdims=True))
        allowed = GROWTH * UNIT["float64"] * condition * np.abs(expected).max(0)
        assert (np.abs(x - expected) <= allowed).all()


def test_inverses_in_pairs_of_floats_have_twice_their_digits():
    parts = ds.Pair(*map(jnp.asarray, ds.split_constant(systems(7)[0])))
    found = jax.jit(elimination.inverse_pairs)(parts)
    for a, b, *x in zip(*parts, *found, strict=True):
        matrix = np.float64(a) + np.float64(b)
        expected, condition = np.linalg.inv(matrix), np.linalg.cond(matrix / np.abs(matrix).max(1, keepdims=True))
        allowed = GROWTH * UNIT["pairs"] * condition * np.abs(expected).max(0)
        assert (np.abs(np.float64(x[0]) + np.float64(x[1]) - expected) <= allowed).all()


def test_a_singular_system_gives_no_finite_answer_and_spoils_no_neighbour():
    matrix, right = (x.astype(np.float32) for x in systems(7))
    alone = np.asarray(jax.jit(elimination.solve)(matrix, right))
    matrix[3, 5] = 0
    found = np.asarray(jax.jit(elimination.solve)(matrix, right))
    assert not np.isfinite(found[3]).all()
    rest = np.arange(8) != 3
    assert found[rest].tobytes() == alone[rest].tobytes()


def test_one_system_needs_no_axis_of_lanes():
    matrix, right = systems(7)
    found = elimination.solve(matrix[0].astype(np.float32), right[0].astype(np.float32))
    np.testing.assert_allclose(found, np.linalg.solve(matrix[0], right[0]), rtol=1e-4, atol=1e-5)
