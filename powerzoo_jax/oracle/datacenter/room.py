"""Set-points of a machine room by backward induction over its temperature, and the jobs that are usual in a site."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.devices.datacenter import chiller_cop
from powerzoo_jax.devices.facility import DataCenterParams
from powerzoo_jax.devices.jobs import JobParams

LEVELS, SETTINGS = 91, 19  # temperatures of the room, and set-points, of the induction
ABOVE_C = 5.0  # of the critical temperature, that the induction reaches
MARGIN_C = 0.5  # below the critical temperature, that jobs not yet known may take up
HOT_USD_PER_C = 200.0  # of a step above that: more than any cooling costs


class Ahead(NamedTuple):
    """Steps ahead, (W,) each: price [$/MWh], servers' power [MW], weather [degC], whether it lies in the episode."""

    price_per_mwh: Array
    it_mw: Array
    outdoor_c: Array
    alive: Array


def set_point_place(
    site: DataCenterParams, zone_c: Array, ahead: Ahead, left_per_mwh: Array, dt_hours: float, substeps: int
) -> Array:
    """Set-point () of the coming step that costs least, as a place in its range in [0, 1], for a room at zone_c ().

    ahead:         Ahead, the coming step first
    left_per_mwh:  ()  [$/MWh] that heat left at the end costs, by the electricity which would remove it
    """
    top = site.t_critical_c[0] + ABOVE_C
    levels = site.set_low_c[0] + (top - site.set_low_c[0]) * jnp.linspace(0, 1, LEVELS, dtype=zone_c.dtype)
    place = jnp.linspace(0, 1, SETTINGS, dtype=zone_c.dtype)
    settings = site.set_low_c + (site.set_high_c - site.set_low_c) * place

    def costs(value: Array, now: Ahead, zone: Array) -> Array:
        after, cooling_mw = room_step(site, zone, settings, now.it_mw, now.outdoor_c, dt_hours, substeps)
        hot = HOT_USD_PER_C * jnp.maximum(after - (site.t_critical_c[0] - MARGIN_C), 0)
        return now.price_per_mwh * dt_hours * cooling_mw + hot + jnp.interp(after, levels, value)

    def earlier(value: Array, now: Ahead) -> tuple[Array, None]:
        best = jnp.min(jax.vmap(lambda zone: costs(value, now, zone))(levels), axis=1)
        return jnp.where(now.alive, best, value), None

    last_cop = chiller_cop(site, ahead.outdoor_c[-1:])[0]
    end = left_per_mwh * site.heat_kwh_per_c[0] / (1000 * last_cop) * levels
    value, _ = lax.scan(earlier, end, jax.tree.map(lambda x: x[1:], ahead), reverse=True)
    return place[jnp.argmin(costs(value, jax.tree.map(lambda x: x[0], ahead), zone_c))]


def room_step(
    site: DataCenterParams, zone_c: Array, set_c: Array, it_mw: Array, outdoor_c: Array, dt_hours: float, substeps: int
) -> tuple[Array, Array]:
    """Temperature after a step [degC] and mean cooling power [MW] by set-point, (S,) each.

    The explicit steps of the environment in closed form where the coil works throughout, one step where it rests.
    """
    pace = dt_hours / substeps / site.heat_kwh_per_c
    warming = 1000 * it_mw * site.air_share + site.wall_kw_per_c * outdoor_c
    conductance = site.ua_kw_per_c + site.wall_kw_per_c
    rate, rest = pace * conductance, (warming + site.ua_kw_per_c * set_c) / conductance
    kept = (1 - rate) ** substeps
    cooled, mean_c = rest + kept * (zone_c - rest), rest + (1 - kept) / (rate * substeps) * (zone_c - rest)
    free = zone_c + substeps * pace * (warming - site.wall_kw_per_c * zone_c)
    heat = site.ua_kw_per_c * (mean_c - set_c)
    power = jnp.maximum(heat / (1000 * chiller_cop(site, outdoor_c)), site.cool_min_mw)
    return jnp.where(heat > 0, cooled, free), jnp.where(heat > 0, power, site.cool_min_mw)


def usual_jobs(site: DataCenterParams) -> np.ndarray:
    """Arrivals [1/h], mean GPUs and hours of jobs, and their share of the span from idle to active power: (4, 2).

    Columns: training and fine-tuning.
    """
    return np.array([_usual(job) for job in (site.train, site.finetune)]).T


def _usual(job: JobParams) -> tuple[float, float, float, float]:
    """Arrivals [1/h], mean GPUs and hours of a class of jobs, and its share of the span from idle to active power."""
    gpus, minutes = (job.gpus_low + job.gpus_high) / 2, (job.duration_low_min + job.duration_high_min) / 2
    return float(job.rate_per_h[0]), float(gpus[0]), float(minutes[0]) / 60, float(job.eta[0])
