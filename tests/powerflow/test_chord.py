"""Stopping rule of the chord against sequences whose limit and rate are known, and its loop over lanes."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from powerzoo_jax.powerflow.chord import Progress, error_ahead, iterate, ratio

RATES = np.array([0.1, 0.3, 0.5, 0.8], np.float32)
BOUNDS = (0.01, 0.9)


class Geometric(NamedTuple):
    """Lanes x_k = 1 - c^k, which converge to 1 at the rate c."""

    x: Array
    lanes: Progress


def start() -> Geometric:
    none = jnp.zeros(RATES.shape)
    return Geometric(none, Progress.begin(none + jnp.inf, none + 1, 0))


def advance(state: Geometric, tol: float) -> Geometric:
    x = jnp.where(state.lanes.stopped, state.x, state.x + (1 - state.x) * (1 - RATES))
    size = jnp.abs(x - state.x)
    pace = ratio(size, state.lanes.size)
    reached = error_ahead(size, jnp.maximum(pace, state.lanes.pace), BOUNDS) <= tol
    return Geometric(x, state.lanes.after(size, pace, reached, jnp.zeros(RATES.shape, bool)))


@pytest.mark.parametrize("tol", [1e-2, 1e-4])
def test_a_lane_stops_at_the_first_step_whose_error_is_within_the_tolerance(tol: float) -> None:
    end = iterate(lambda state: advance(state, tol), start(), taken=0, max_steps=100)
    first = np.ceil(np.log(tol) / np.log(RATES.astype(float)))
    # the rate is known once two changes are, and believed once two ratios agree
    assert np.asarray(end.lanes.settled).all()
    np.testing.assert_array_less(np.abs(1 - np.asarray(end.x)), 1.01 * tol)
    assert np.abs(np.asarray(end.lanes.steps) - np.maximum(first, 3)).max() <= 1


def test_a_batch_goes_on_to_the_share_of_lanes_that_is_asked_for() -> None:
    def run(**options: int) -> Geometric:
        return iterate(lambda state: advance(state, 1e-4), start(), taken=0, **options)

    assert not run(max_steps=5).lanes.settled.all()
    assert (run(max_steps=100, rest=4).lanes.stopped == np.array([True, True, True, False])).all()
    assert (run(max_steps=100, always=True).lanes.steps == run(max_steps=100).lanes.steps).all()
