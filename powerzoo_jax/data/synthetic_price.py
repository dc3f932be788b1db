"""Synthetic electricity prices: a log-price model with negative prices and spikes, fitted on Germany 2018."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base.random import normal, poisson
from powerzoo_jax.data.synthetic import filter_ar1, rescale_persistence

HOURS_PER_YEAR = 8766.0
NATIVE_MINUTES = 60.0


@dataclass(frozen=True)
class PriceModel:
    """log(price + shift) = hour profile + weekend + year + slope * residual load + x, x AR(1) with jumps.

    shift_per_mwh:     [EUR/MWh]  makes the logarithm's argument positive: prices stay above -shift
    hour_profile:      (24,)      level by local hour, middle of the hour
    weekend:           added on Saturdays and Sundays
    year_cos, year_sin:           annual wave, phase 0 at 1 January
    residual_slope:    per standard deviation of residual load
    residual_mean_mw, residual_std_mw:  [MW]  of generation minus wind and solar, where the slope was fitted
    phi:               lag-1 correlation of x at 60 min
    sigma:             stationary spread of x without jumps
    jumps_per_hour:    mean number of jumps
    jump_mean, jump_std:  of one jump of x
    """

    shift_per_mwh: float
    hour_profile: tuple[float, ...]
    weekend: float
    year_cos: float
    year_sin: float
    residual_slope: float
    residual_mean_mw: float
    residual_std_mw: float
    phi: float
    sigma: float
    jumps_per_hour: float
    jump_mean: float
    jump_std: float


# Day-ahead price and generation of Germany 2018 (bundled series), by `python -m tools.data.synthetic_fit`.
PRICE_DE_2018 = PriceModel(
    shift_per_mwh=200.0,
    hour_profile=(
        5.48379, 5.48009, 5.47663, 5.47544, 5.47617, 5.48689, 5.49784, 5.50581,
        5.50594, 5.50065, 5.49751, 5.49338, 5.48832, 5.48431, 5.48807, 5.49229,
        5.501, 5.51208, 5.5181, 5.51298, 5.50525, 5.49877, 5.49241, 5.48707,
    ),
    weekend=0.0074,
    year_cos=-0.02665,
    year_sin=-0.04393,
    residual_slope=0.05408,
    residual_mean_mw=44466.5,
    residual_std_mw=9194.3,
    phi=0.90618,
    sigma=0.02803,
    jumps_per_hour=0.02192,
    jump_mean=-0.00898,
    jump_std=0.06859,
)  # fmt: skip


def price_level(model: PriceModel, hour: Array, weekend: Array, hour_of_year: Array, residual_mw: Array) -> Array:
    """Deterministic part of log(price + shift), same shape as its arguments.

    hour: [h] local time of day; weekend: 0 or 1; hour_of_year: [h]; residual_mw: [MW].
    """
    centres = jnp.arange(24, dtype=hour.dtype) + 0.5
    profile = jnp.interp(hour, centres, jnp.asarray(model.hour_profile, hour.dtype), period=24.0)
    angle = 2.0 * jnp.pi * hour_of_year / HOURS_PER_YEAR
    wave = model.year_cos * jnp.cos(angle) + model.year_sin * jnp.sin(angle)
    residual = (residual_mw - model.residual_mean_mw) / model.residual_std_mw
    return profile + model.weekend * weekend + wave + model.residual_slope * residual


def draw_price_noise(key: Array, steps: int, model: PriceModel, step_minutes: float = 30.0) -> Array:
    """Noise x (steps,) of the log price: AR(1) with compound-Poisson jumps, mean 0.

    x[t] = phi x[t-1] + e[t] + J[t] - E J.  At another step phi is taken to the power of the ratio, and shocks and
    the rate of jumps are scaled so that the spread of x stays.
    """
    phi = rescale_persistence(model.phi, NATIVE_MINUTES, step_minutes)
    thinner = (1.0 - phi**2) / (1.0 - model.phi**2)
    rate = model.jumps_per_hour * thinner
    shock_key, count_key, size_key = jax.random.split(key, 3)
    eps = normal(shock_key, (steps,))
    count = poisson(count_key, (steps,), rate).astype(eps.dtype)
    sizes = normal(size_key, (steps,))
    jumps = count * model.jump_mean + jnp.sqrt(count) * model.jump_std * sizes - rate * model.jump_mean
    second_moment = rate * (model.jump_mean**2 + model.jump_std**2)
    first = eps[0] * (model.sigma**2 + second_moment / (1.0 - phi**2)) ** 0.5
    return filter_ar1(first, model.sigma * (1.0 - phi**2) ** 0.5 * eps + jumps, phi)


def draw_price(
    key: Array,
    hour: Array,
    weekend: Array,
    hour_of_year: Array,
    residual_mw: Array,
    model: PriceModel,
    step_minutes: float = 30.0,
) -> Array:
    """Prices (T,) [EUR/MWh]; arguments as in `price_level`, each (T,)."""
    level = price_level(model, hour, weekend, hour_of_year, residual_mw)
    noise = draw_price_noise(key, hour.shape[0], model, step_minutes).astype(hour.dtype)
    return jnp.exp(level + noise) - model.shift_per_mwh
