"""Synthetic series from a key: first-order noise, and noise on the output of wind and solar plants.

Data-centre load, prices and charging sessions are in `synthetic_load`, `synthetic_price` and
`synthetic_charging`.  All generators are pure functions of a key, work under jit and vmap, and take their
parameters from frozen dataclasses.  Random feeders are in `powerzoo_jax.cases.synthetic`.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base.random import normal


def rescale_persistence(phi: float, native_minutes: float, step_minutes: float) -> float:
    """Lag-1 correlation at another step of an exponentially forgetting process: phi^(step / native)."""
    return float(phi ** (step_minutes / native_minutes))


def filter_ar1(first: Array, shocks: Array, phi: float) -> Array:
    """x[0] = first, x[t] = phi x[t-1] + shocks[t]; time is the first axis, shocks[0] is not used."""

    def step(x: Array, shock: Array) -> tuple[Array, Array]:
        x = phi * x + shock
        return x, x

    _, rest = jax.lax.scan(step, first, shocks[1:])
    return jnp.concatenate([first[None], rest])


def draw_ar1(key: Array, shape: tuple[int, ...], phi: float, sigma: float) -> Array:
    """Stationary Gaussian AR(1) noise (T, ...) along the first axis.

    x[t] = phi x[t-1] + sigma sqrt(1 - phi^2) eps[t],  x[0] = sigma eps[0]: spread sigma at every step.
    """
    eps = normal(key, shape)
    return filter_ar1(sigma * eps[0], sigma * (1.0 - phi**2) ** 0.5 * eps, phi)


@dataclass(frozen=True)
class PlantNoise:
    """Noise on the output of wind or solar plants, for randomisation: magnitudes are choices, not fits.

    sigma:           [-]    standard deviation of the logarithm of the factor
    phi:             [-]    lag-1 correlation at native_minutes
    native_minutes:  [min]
    """

    sigma: float
    phi: float
    native_minutes: float = 30.0


WIND_NOISE = PlantNoise(sigma=0.15, phi=0.95)
SOLAR_NOISE = PlantNoise(sigma=0.20, phi=0.80)


def perturb_plants(key: Array, available_pu: Array, noise: PlantNoise, step_minutes: float = 30.0) -> Array:
    """Available output (T, S) [pu] of S sites, each with its own noise, between 0 and 1.

    y = min(a exp(x - sigma^2 / 2), 1) with x AR(1): the factor has mean 1, a calm or a night stays zero.
    """
    phi = rescale_persistence(noise.phi, noise.native_minutes, step_minutes)
    x = draw_ar1(key, available_pu.shape, phi, noise.sigma).astype(available_pu.dtype)
    return jnp.clip(available_pu * jnp.exp(x - 0.5 * noise.sigma**2), 0.0, 1.0)


def draw_from_quantiles(uniform: Array, levels: Array, values: Array) -> Array:
    """Inverse distribution: values interpolated at uniform numbers, in the logarithm of 1 + value."""
    return jnp.expm1(jnp.interp(uniform, levels, jnp.log1p(values)))
