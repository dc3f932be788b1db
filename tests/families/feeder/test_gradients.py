"""Gradients of whole episodes with respect to an open-loop action sequence against central differences, in float64."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from powerzoo_jax.base import Step
from powerzoo_jax.envs import Sim
from tests.families.feeder.storage_episodes import HORIZON, episode_keys, make, play, play_one
from tests.tolerances import tolerance

pytestmark = [pytest.mark.property, pytest.mark.full]

STEP = 2e-2  # of the action, for central differences: the episode is close to quadratic in it
RETURN, NETWORK = 0, 1
LANES = 8


def objectives(steps: Step) -> Array:
    """Of a batch of episodes: (return [$], network loss [MW] plus sum (v - 1)^2), stacked last."""
    deviation = steps.obs[..., 0, :33] / 10
    network = jnp.sum(steps.info.p_loss_mw, -1) + jnp.sum(deviation * deviation, (-2, -1))
    return jnp.stack([jnp.sum(steps.reward, (-2, -1)), network], -1)


def interior_actions() -> np.ndarray:
    """(T, 1, 1): charge and discharge by turns, far from every limit of power and energy and from idle."""
    size = np.random.default_rng(2).uniform(0.1, 0.3, HORIZON)
    return (size * np.where(np.arange(HORIZON) % 2, 1, -1))[:, None, None]


@cache
def differences() -> np.ndarray:
    """Central differences (2, T) of both objectives; batches of the size that other tests have compiled."""
    with jax.enable_x64(True):
        sim, base = make(dtype="float64"), interior_actions()
        shift = STEP * np.eye(HORIZON)[..., None, None]
        actions = np.concatenate([base + shift, base - shift])
        keys = jnp.repeat(episode_keys(1), LANES)
        parts = [play(sim, keys, jnp.asarray(part))[2] for part in np.split(actions, len(actions) // LANES)]
        up, down = np.split(np.concatenate([np.asarray(objectives(steps)) for steps in parts]), 2)
    return ((up - down) / (2 * STEP)).T


@jax.jit
def slopes(sim: Sim, key: Array, actions: Array) -> Any:
    """Reverse-mode gradients of both objectives, (2, T, 1, 1)."""
    return jax.jacrev(lambda chosen: objectives(play_one(sim, key, chosen)[2]))(actions)


@jax.jit
def slope_along(sim: Sim, key: Array, actions: Array, direction: Array) -> Any:
    """Forward-mode derivative of both objectives along a direction, (2,)."""
    return jax.jvp(lambda chosen: objectives(play_one(sim, key, chosen)[2]), (actions,), (direction,))[1]


@cache
def gradient() -> np.ndarray:
    with jax.enable_x64(True):
        found = slopes(make(dtype="float64"), episode_keys(1)[0], jnp.asarray(interior_actions()))
        return np.asarray(found).reshape(2, HORIZON)


@pytest.mark.long
@pytest.mark.parametrize("which", [RETURN, NETWORK], ids=["return", "network"])
def test_the_gradient_over_a_whole_day_equals_central_differences(which):
    found, expected = gradient()[which], differences()[which]
    assert np.max(np.abs(found - expected) / np.abs(expected)) <= tolerance("episode_gradient_relative", "float64")


def test_every_action_of_the_day_moves_both_objectives():
    assert (np.abs(gradient()) > 1e-4).all()


@pytest.mark.long
def test_the_forward_derivative_along_a_direction_equals_central_differences():
    direction = np.random.default_rng(4).uniform(0.5, 1.5, (HORIZON, 1, 1))
    with jax.enable_x64(True):
        actions = jnp.asarray(interior_actions())
        forward = slope_along(make(dtype="float64"), episode_keys(1)[0], actions, jnp.asarray(direction))
        forward = np.asarray(forward)
    expected = differences() @ direction[:, 0, 0]
    np.testing.assert_allclose(forward, expected, rtol=tolerance("episode_gradient_relative", "float64"))
