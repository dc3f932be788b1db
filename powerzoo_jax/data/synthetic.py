"""Synthetic series from a key: noise on wind and solar plants, electricity prices, charging sessions.

Noise is a first-order autoregression. Prices follow a log-price model with negative prices and spikes, fitted on
Germany 2018. Charging sessions are resampled at work and drawn from published distributions at home. All generators are
pure functions of a key, work under jit and vmap, and take their parameters from frozen dataclasses. Data-centre load
is in `synthetic_load`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base.random import integers, normal, poisson, uniform, uniform_between
from powerzoo_jax.base.struct import brief


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


HOURS_PER_YEAR = 8766.0  # 365.25 days, for leap years and others alike
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


MINUTES_PER_DAY = 1440.0
HOME_LEVELS = (*(0.05 * k for k in range(20)), 0.98, 0.99, 1.0)  # every 5 %, and the long tail


class Sessions(NamedTuple):
    """Charging sessions.

    arrival_min:  (S,)  [min]  after local midnight, 0 to 1440
    stay_min:     (S,)  [min]  from arrival to departure, which may be on the next day
    energy_kwh:   (S,)  [kWh]  wanted
    """

    arrival_min: Array
    stay_min: Array
    energy_kwh: Array

    def __repr__(self) -> str:
        return brief(self)


def resample_sessions(key: Array, sessions: Sessions, count: int, jitter_min: float = 0.0) -> Sessions:
    """Draw `count` recorded sessions with replacement, each whole: stay and energy belong to their arrival.

    Arrivals move by up to jitter_min either way, within the day.
    """
    row_key, jitter_key = jax.random.split(key)
    row = integers(row_key, (count,), 0, sessions.arrival_min.shape[0])
    drawn = Sessions(*(column[row] for column in sessions))
    jitter = uniform_between(jitter_key, (count,), -jitter_min, jitter_min, drawn.arrival_min.dtype)
    return drawn._replace(arrival_min=jnp.clip(drawn.arrival_min + jitter, 0.0, MINUTES_PER_DAY))


@dataclass(frozen=True)
class HomeCharging:
    """Distributions of charging at private points; arrival, stay and energy are drawn independently.

    arrival_weekday, arrival_weekend:  (24,)  [%]    share of arrivals by hour
    stay_h:                            (23,)  [h]    quantiles at `HOME_LEVELS`
    energy_kwh:                        (23,)  [kWh]  quantiles at `HOME_LEVELS`
    charger_kw:                        [kW]   energies are cut to what it delivers during the stay
    """

    arrival_weekday: tuple[float, ...]
    arrival_weekend: tuple[float, ...]
    stay_h: tuple[float, ...]
    energy_kwh: tuple[float, ...]
    charger_kw: float = 11.0


# Round numbers typed from the open statistics of ElaadNL (Netherlands, private charge points): share of arrivals by
# hour, and the share of sessions that exceed a stay and an energy.
HOME_ELAAD = HomeCharging(
    arrival_weekday=(
        2.1, 0.5, 0.2, 0.1, 0.1, 0.1, 0.2, 0.6, 1.4, 1.1, 1.1, 1.5,
        2.2, 2.2, 2.7, 3.7, 5.7, 12.1, 17.0, 11.5, 9.1, 8.9, 9.1, 6.6,
    ),
    arrival_weekend=(
        4.1, 2.0, 0.8, 0.3, 0.2, 0.1, 0.1, 0.4, 0.9, 1.7, 3.0, 4.8,
        6.0, 6.2, 6.2, 6.9, 8.8, 10.2, 7.9, 6.5, 6.8, 6.2, 5.8, 4.1,
    ),
    stay_h=(
        0.0, 1.0, 1.5, 2.2, 3.1, 4.2, 6.5, 8.5, 9.5, 10.3, 11.0,
        11.8, 12.5, 13.2, 13.8, 14.6, 15.7, 17.4, 20.3, 29.3, 43.0, 56.5, 72.0,
    ),
    energy_kwh=(
        0.0, 1.8, 3.3, 5.0, 6.6, 8.2, 10.1, 12.3, 14.6, 17.1, 19.4,
        22.1, 24.9, 28.2, 31.9, 35.8, 40.4, 45.6, 51.4, 59.6, 68.1, 73.4, 99.9,
    ),
)  # fmt: skip


def draw_home_sessions(key: Array, weekend: Array, model: HomeCharging = HOME_ELAAD) -> Sessions:
    """One session for each weekend flag (S,), 0 or 1, in its dtype."""
    dtype = weekend.dtype
    drawn = uniform(key, (3, *weekend.shape), dtype)
    edges = jnp.linspace(0.0, MINUTES_PER_DAY, 25, dtype=dtype)
    weekday, holiday = (
        jnp.interp(drawn[0], _cumulative(shares, dtype), edges)
        for shares in (model.arrival_weekday, model.arrival_weekend)
    )
    levels = jnp.asarray(HOME_LEVELS, dtype)
    stay_h = draw_from_quantiles(drawn[1], levels, jnp.asarray(model.stay_h, dtype))
    energy = draw_from_quantiles(drawn[2], levels, jnp.asarray(model.energy_kwh, dtype))
    return Sessions(
        arrival_min=jnp.where(weekend > 0, holiday, weekday),
        stay_min=60.0 * stay_h,
        energy_kwh=jnp.minimum(energy, model.charger_kw * stay_h),
    )


def _cumulative(shares: tuple[float, ...], dtype: jnp.dtype) -> Array:
    total = jnp.cumsum(jnp.asarray((0.0, *shares), dtype))
    return total / total[-1]
