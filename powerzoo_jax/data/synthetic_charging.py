"""Synthetic charging sessions: resampled at work, drawn from published distributions at home."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base.random import integers, uniform, uniform_between
from powerzoo_jax.data.synthetic import draw_from_quantiles

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
