"""Gradients of the return by the actions, through whole feeder tasks with fleets, against central differences."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

import powerzoo_jax
from powerzoo_jax.envs import Sim
from tests.tolerances import tolerance

pytestmark = [pytest.mark.property, pytest.mark.long]

HORIZON = 6  # the last step settles stores and buffers
DIRECTIONS = 8
STEP = 5e-3  # of the action: the solver's stop at 8e-10 pu, divided by it, stays below the tolerance
TASKS = ("dso", "marl_ders_benchmark")


def interior(task: str, sim: Sim) -> np.ndarray:
    """Actions (T, A, U) away from every limit: small shares of flexible load, as little load stands at some buses."""
    rng = np.random.default_rng(5)
    flexible = (HORIZON, 1, 12) if task == "dso" else (HORIZON, 4, 2)
    shares = rng.uniform(-0.97, -0.95, flexible)
    if task == "dso":
        return shares
    batteries = rng.uniform(0.05, 0.12, (HORIZON, 4, 2)) * np.where(np.arange(HORIZON) % 2, 1, -1)[:, None, None]
    plants = rng.uniform(0.2, 0.4, (HORIZON, 4, 2))
    return np.concatenate([batteries, plants, shares], axis=1)


def value(sim: Sim, actions: Array) -> Array:
    """Return of one episode, () [unit of the reward]."""
    state, _ = sim.init(jax.random.key(2))

    def advance(state: object, action: Array) -> tuple[object, Array]:
        out = sim.step(state, action)
        return out.state, jnp.mean(out.reward)

    return jnp.sum(lax.scan(advance, state, actions)[1])


@jax.jit
def slope(sim: Sim, actions: Array) -> Array:
    return jax.grad(lambda chosen: value(sim, chosen))(actions)


@jax.jit
def values(sim: Sim, actions: Array) -> Array:
    return jax.vmap(lambda chosen: value(sim, chosen))(actions)


@cache
def found(task: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradient (T, A, U); slopes along directions (D,) by it and by central differences."""
    with jax.enable_x64(True):
        # six steps of four hours are a day, with sun and with load at the buses
        sim = powerzoo_jax.make(task, dtype="float64", max_steps=HORIZON, delta_t_minutes=240)
        base = interior(task, sim)
        rng = np.random.default_rng(6)
        directions = rng.uniform(-1, 1, (DIRECTIONS, *base.shape))
        gradient = np.asarray(slope(sim, jnp.asarray(base)))
        shifted = np.concatenate([base + STEP * directions, base - STEP * directions])
        up, down = np.split(np.asarray(values(sim, jnp.asarray(shifted))), 2)
    return gradient, np.einsum("dtau,tau->d", directions, gradient), (up - down) / (2 * STEP)


@pytest.mark.parametrize("task", TASKS)
def test_the_gradient_of_the_return_equals_central_differences(task):
    _, along, expected = found(task)
    assert (
        np.max(np.abs(along - expected)) <= tolerance("episode_gradient_relative", "float64") * np.abs(expected).max()
    )


@pytest.mark.parametrize("task", TASKS)
def test_every_device_that_can_act_moves_the_return(task):
    gradient = found(task)[0]
    moved = np.abs(gradient).max(axis=0) > 0
    assert np.isfinite(gradient).all() and moved.any(axis=-1).sum() >= (1 if task == "dso" else 10)
    assert moved.sum() >= (12 if task == "dso" else 20)
