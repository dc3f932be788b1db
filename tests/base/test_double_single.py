"""Double-single arithmetic against exact rational numbers and float64."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base import double_single as ds

UNIT = 2.0**-44  # relative; a pair of float32 has 48 bits, and a few operations may each lose some


def exact(x: ds.Pair) -> list[Fraction]:
    return [Fraction(float(h)) + Fraction(float(t)) for h, t in zip(np.ravel(x.high), np.ravel(x.low), strict=True)]


def draw(seed: int, *shape: int) -> np.ndarray:
    """Numbers of very different size and either sign."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) * 10.0 ** rng.uniform(-4, 4, shape)).astype(np.float32)


@pytest.mark.parametrize("operation", ["sum", "product"])
def test_transformations_are_free_of_error_when_compiled(operation):
    a, b = draw(0, 5000), draw(1, 5000)
    found = jax.jit(ds.two_sum if operation == "sum" else ds.two_product)(a, b)
    truth = [
        Fraction(float(x)) + Fraction(float(y)) if operation == "sum" else Fraction(float(x)) * Fraction(float(y))
        for x, y in zip(a, b, strict=True)
    ]
    assert exact(found) == truth


def wide_pair(seed: int, *shape: int) -> tuple[np.ndarray, ds.Pair]:
    value = draw(seed, *shape).astype(np.float64) * (1 + 1e-5 * np.random.default_rng(seed).normal(size=shape))
    parts = ds.Pair(*map(jnp.asarray, ds.split_constant(value)))
    return np.asarray(parts.high, np.float64) + np.asarray(parts.low, np.float64), parts


@pytest.mark.parametrize(
    ("operation", "truth"),
    [(ds.add, np.add), (ds.subtract, np.subtract), (ds.multiply, np.multiply), (ds.divide, np.divide)],
    ids=["add", "subtract", "multiply", "divide"],
)
def test_operations_keep_twice_the_digits_of_a_float(operation, truth):
    (a, left), (b, right) = wide_pair(2, 4000), wide_pair(3, 4000)
    found = jax.jit(operation)(left, right)
    found = np.asarray(found.high, np.float64) + np.asarray(found.low, np.float64)
    scale = np.abs(a) + np.abs(b) if truth in (np.add, np.subtract) else np.abs(truth(a, b))
    assert np.max(np.abs(found - truth(a, b)) / scale) < UNIT


@pytest.mark.parametrize("n", [1, 2, 7, 64, 93])
def test_product_of_a_matrix_where_terms_cancel(n):
    (a, matrix), (x, vector) = wide_pair(4, 3, n), wide_pair(5, 6, n)
    found = jax.jit(ds.matvec)(matrix, vector)
    found = np.asarray(found.high, np.float64) + np.asarray(found.low, np.float64)
    assert found.shape == (6, 3)
    assert np.max(np.abs(found - x @ a.T) / (np.abs(x) @ np.abs(a).T)) < UNIT


def test_rounding_to_a_float_is_that_of_float64():
    a, parts = wide_pair(6, 1000)
    np.testing.assert_array_equal(ds.value(parts), a.astype(np.float32))


def whole(x: ds.Pair) -> np.ndarray:
    return np.asarray(x.high, np.float64) + np.asarray(x.low, np.float64)


def test_product_of_matrices_where_terms_cancel():
    (a, left), (b, right) = wide_pair(7, 2, 3, 9), wide_pair(8, 2, 9, 4)
    found = whole(jax.jit(ds.matmul)(left, right))
    assert np.max(np.abs(found - a @ b) / (np.abs(a) @ np.abs(b))) < UNIT


@pytest.mark.parametrize("n", [1, 600])
def test_sums_by_place_keep_the_digits_of_their_largest_entry_in_any_order(n):
    value, parts = wide_pair(9, n)
    place = np.random.default_rng(10).integers(0, 8, n)
    total = jax.jit(lambda place, x: ds.total_at(place, x, 7))  # place 7 is past the end
    found, order = total(place, parts), np.random.default_rng(11).permutation(n)
    for k in range(7):
        entries = value[place == k]
        assert abs(whole(found)[k] - entries.sum()) <= UNIT * np.abs(entries).max(initial=0)
    again = total(place[order], ds.Pair(*(x[order] for x in parts)))
    assert exact(again) == exact(found)


def test_cosine_and_sine_of_a_few_turns():
    angle = np.linspace(-7, 7, 2001, dtype=np.float32)
    found = whole(jax.jit(ds.cosine_sine)(angle))
    expected = np.stack([np.cos(angle.astype(float)), np.sin(angle.astype(float))], -1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=UNIT)
