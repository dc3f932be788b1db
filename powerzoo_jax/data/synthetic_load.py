"""Synthetic data centres: processor use, batch jobs, server power and cooling.

Processor use follows published descriptions of the Google 2019, Alibaba 2018 and Azure traces in round numbers
(Tirmazi et al., Borg: the next generation, EuroSys 2020; Jiang et al., IEEE TPDS 31, 2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.stats import norm

from powerzoo_jax.base.random import bernoulli, normal, poisson
from powerzoo_jax.base.struct import brief
from powerzoo_jax.data.synthetic import draw_ar1, draw_from_quantiles, rescale_persistence

NATIVE_MINUTES = 5.0  # step that the correlations below are given at
HALF_CORE, WHOLE_CORE = 0.5, 1.0


@dataclass(frozen=True)
class UtilisationModel:
    """Utilisation of processors over a week with noise x, an AR(1) process.

    u = clip(mean (1 + swing cos(2 pi (h - peak_hour) / 24) + weekend) + x, 0, 1)

    mean:       [-]  mean share of processors in use
    swing:      [-]  relative amplitude over the day
    sigma:      [-]  spread of x
    phi:        [-]  lag-1 correlation of x at 5 min
    peak_hour:  [h]  local hour of the maximum
    weekend:    [-]  relative change on Saturdays and Sundays
    """

    mean: float
    swing: float
    sigma: float
    phi: float
    peak_hour: float = 14.0
    weekend: float = -0.05


UTILISATION: dict[str, UtilisationModel] = {
    "hyperscale": UtilisationModel(mean=0.47, swing=0.09, sigma=0.036, phi=0.91),
    "online_batch": UtilisationModel(mean=0.40, swing=0.37, sigma=0.077, phi=0.73),
    "vm_cloud": UtilisationModel(mean=0.79, swing=0.08, sigma=0.046, phi=0.984),
}


def daily_curve(hour: Array, weekend: Array, model: UtilisationModel) -> Array:
    """1 + swing cos(2 pi (h - peak) / 24) + weekend, same shape as hour [h]; weekend is 0 or 1."""
    return 1.0 + model.swing * jnp.cos(2.0 * jnp.pi * (hour - model.peak_hour) / 24.0) + model.weekend * weekend


def draw_utilisation(
    key: Array, hour: Array, weekend: Array, model: UtilisationModel, step_minutes: float = NATIVE_MINUTES
) -> Array:
    """Share of processors in use (T,), 0 to 1, at local hours (T,) [h] and weekend flags (T,)."""
    phi = rescale_persistence(model.phi, NATIVE_MINUTES, step_minutes)
    x = draw_ar1(key, hour.shape, phi, model.sigma).astype(hour.dtype)
    return jnp.clip(model.mean * daily_curve(hour, weekend, model) + x, 0.0, 1.0)


@dataclass(frozen=True)
class BatchJobs:
    """Batch tasks: quantiles at `JOB_LEVELS`, fitted by `tools.data.synthetic_fit`.

    duration_s:        (20,)  [s]
    instances:         (20,)  [-]
    half_core_share:   [-]    share of tasks whose instances take half a core; the others take one
    rank_correlation:  [-]    between duration and instances
    jobs_per_hour:     [1/h]  mean number of arrivals at curve 1
    """

    duration_s: tuple[float, ...]
    instances: tuple[float, ...]
    half_core_share: float
    rank_correlation: float
    jobs_per_hour: float = 60.0


JOB_LEVELS = (
    0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99, 0.995, 0.999, 0.9999, 1.0,
)  # fmt: skip
# Of 67,634 tasks in the sample of spar 0.0.7 (MIT), by `python -m tools.data.synthetic_fit`.
JOBS = BatchJobs(
    duration_s=(
        0.0, 1.0, 1.0, 3.0, 4.0, 6.0, 10.0, 16.0, 27.0, 37.0,
        52.0, 79.0, 148.0, 320.0, 457.175, 741.0, 947.175, 2527.488, 13730.215, 24954.0,
    ),
    instances=(
        1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0, 5.0,
        8.0, 16.0, 48.0, 233.0, 368.0, 877.0, 1189.0, 3635.791, 10776.614, 25152.0,
    ),
    half_core_share=0.473,
    rank_correlation=0.363,
)  # fmt: skip


class JobTable(NamedTuple):
    """Arrivals of each step in fixed slots.

    duration_s:  (T, K)  [s]     0 where no job is
    instances:   (T, K)  [-]     whole numbers
    cores:       (T, K)  [-]     per instance, 0.5 or 1
    valid:       (T, K)  bool    slots that hold a job
    lost:        (T,)    int32   arrivals beyond the K slots
    """

    duration_s: Array
    instances: Array
    cores: Array
    valid: Array
    lost: Array

    def __repr__(self) -> str:
        return brief(self)


def draw_jobs(key: Array, curve: Array, slots: int, jobs: BatchJobs, step_minutes: float = NATIVE_MINUTES) -> JobTable:
    """Batch tasks that arrive in each step: Poisson in number, following a curve (T,) with mean about 1."""
    keys = jax.random.split(key, 3)
    mean = jobs.jobs_per_hour * step_minutes / 60.0 * jnp.maximum(curve, 0.0)
    count = poisson(keys[0], mean.shape, mean)
    valid = jnp.arange(slots, dtype=jnp.int32)[None, :] < count[:, None]
    drawn = normal(keys[1], (2, *valid.shape), curve.dtype)
    # a Gaussian copula: Pearson's correlation of the normals gives the rank correlation asked for
    rho = 2.0 * jnp.sin(jnp.pi * jobs.rank_correlation / 6.0).astype(curve.dtype)
    other = rho * drawn[0] + jnp.sqrt(1.0 - rho**2) * drawn[1]
    levels = jnp.asarray(JOB_LEVELS, curve.dtype)
    duration, instances = (
        draw_from_quantiles(norm.cdf(z), levels, jnp.asarray(values, curve.dtype))
        for z, values in ((drawn[0], jobs.duration_s), (other, jobs.instances))
    )
    half = bernoulli(keys[2], valid.shape, jobs.half_core_share)
    blank = jnp.zeros((), curve.dtype)
    return JobTable(
        duration_s=jnp.where(valid, duration, blank),
        instances=jnp.where(valid, jnp.maximum(jnp.round(instances), 1.0), blank),
        cores=jnp.where(valid, jnp.where(half, HALF_CORE, WHOLE_CORE).astype(curve.dtype), blank),
        valid=valid,
        lost=jnp.maximum(count - slots, 0),
    )


@dataclass(frozen=True)
class ServerModel:
    """Electric power of servers and their cooling.

    idle_share:      [-]      power at rest over power at full load
    exponent:        [-]      of the power curve
    cop:             [-]      coefficient of performance up to cop_from_c
    cop_loss_per_c:  [1/degC] relative loss above it
    cop_from_c:      [degC]
    cop_low:         [-]      least factor on cop
    """

    idle_share: float = 0.4
    exponent: float = 1.4
    cop: float = 5.0
    cop_loss_per_c: float = 0.04
    cop_from_c: float = 20.0
    cop_low: float = 0.4


def server_power(use: Array, model: ServerModel) -> Array:
    """Power over power at full load: idle + (1 - idle) (2 u - u^exponent), after Fan, Weber and Barroso, ISCA 2007."""
    return model.idle_share + (1.0 - model.idle_share) * (2.0 * use - use**model.exponent)


def cooling_power(heat_mw: Array, outdoor_c: Array, model: ServerModel) -> Array:
    """Power [MW] that removes heat [MW]: heat / COP, COP = cop max(1 - loss [T - T_from]+, low)."""
    factor = 1.0 - model.cop_loss_per_c * jnp.maximum(outdoor_c - model.cop_from_c, 0.0)
    return heat_mw / (model.cop * jnp.maximum(factor, model.cop_low))
