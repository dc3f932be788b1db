"""Causal planner of a data centre on a feeder: GPUs kept for the small jobs that wait, and a room that is cooled ahead.

A missed job costs as much whether it holds ten GPUs or two hundred, so that training starts in what fine-tuning leaves.
The set-point comes from backward induction over the temperature of the room, at the prices shown so far and forecasts
of price, weather and use from days of training. Running jobs tend to their long-run mean, as an M/G/infinity queue
does. Source: Bertsekas, Dynamic Programming and Optimal Control, vol. 1, section 1.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.tree_util import Partial

from powerzoo_jax.base import struct
from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.base.numerics import TINY
from powerzoo_jax.devices.datacenter import SUBSTEP_MIN
from powerzoo_jax.devices.facility import DataCenterParams
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import INFER, OUTDOOR, Draw
from powerzoo_jax.families.feeder.causal.storage import (
    known_periods,
    price_fields,
    price_forecast,
    seen_fields,
    signal_scale,
)
from powerzoo_jax.oracle.datacenter.room import Ahead, set_point_place, usual_jobs
from powerzoo_jax.oracle.forecast import DailyForecast, day_values, fit_forecast, train_days, train_sim
from powerzoo_jax.oracle.registry import Policy

# share of a waiting job's mean GPUs that are kept for it, and share of the running GPUs that the coming step frees:
# least cost of misses and backlog on 80 days of training, of 12 and 8 values tried
KEPT, ENDING = 2 / 3, 0.45
AHEAD_H = 24  # of a plan at most: the room forgets in a few hours
ZONE_C, ZONE_SPAN_C = 15.0, 30.0  # (temperature observed as 0, span to 1)
OUTDOOR_C, OUTDOOR_SPAN_C = 10.0, 20.0


class SiteMemory(NamedTuple):
    """Memory of an episode. t: ();  price: (P,) signals seen;  use, outdoor_c: (T,) seen"""

    t: Array
    price: Array
    use: Array
    outdoor_c: Array


@struct.dataclass(kw_only=True)
class SiteModel:
    """Constants of a planner.

    site:            DataCenterParams (1,)
    price, use, outdoor: DailyForecast;  low, span: () [$/MWh] price = low + span * signal
    usual_gpus:      ()  that jobs hold in the long run;  stay: () share of a deviation from it that a step leaves
    job_w:           ()  [W] of a GPU that runs a job, mean of both classes
    small_gpus:      ()  of a fine-tuning job, mean;  queue: () jobs of a full queue
    heat_weight:     ()  of the heat left at the end, over that of energy
    """

    site: DataCenterParams
    price: DailyForecast
    use: DailyForecast
    outdoor: DailyForecast
    low: Array
    span: Array
    usual_gpus: Array
    stay: Array
    job_w: Array
    small_gpus: Array
    queue: Array
    heat_weight: Array


@dataclass(frozen=True)
class SiteSight:
    """Columns of an observation; static."""

    use: int
    outdoor: int
    zone: int
    busy: int
    small: int
    price: tuple[tuple[int, int], ...]
    price_steps: int
    horizon: int
    dt_hours: float
    substeps: int


def plan_site(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Starts of jobs by what waits, and the set-point of a rolling plan.

    Raises SolverError for a task that pays for its power usage effectiveness, which the plan does not know.
    """
    del keys
    weights = dict(zip(sim.spec.term_names, sim.spec.term_weights, strict=True))
    if weights["pue_bonus"]:
        raise SolverError(f"{sim.spec.id}: this planner knows no pue_bonus_weight. Leave it at 0.")
    model, sight = _model(sim, weights.get("zone_heat", 0.0) / weights["site_energy"])
    count, dtype = draws.load_row.shape[0], model.low.dtype
    memory = SiteMemory(
        jnp.zeros(count, jnp.int32),
        jnp.zeros((count, sight.horizon // sight.price_steps), dtype),
        jnp.zeros((count, sight.horizon), dtype),
        jnp.zeros((count, sight.horizon), dtype),
    )
    return Policy(Partial(partial(_act, sight), model), memory)


def _act(sight: SiteSight, model: SiteModel, memory: SiteMemory, obs: Array, key: Array) -> tuple[SiteMemory, Array]:
    del key
    t, site, seen = memory.t, model.site, obs[0]
    price_seen = seen_fields(memory.price, t, obs, sight.price, sight.price_steps)
    use = memory.use.at[t].set(seen[sight.use])
    outdoor = memory.outdoor_c.at[t].set(OUTDOOR_C + OUTDOOR_SPAN_C * seen[sight.outdoor])
    known = known_periods(t, sight.price, sight.price_steps)
    price = jnp.repeat(model.low + model.span * model.price.path(price_seen, known), sight.price_steps)
    serving = jnp.round(site.infer_gpu_peak * jnp.clip(model.use.path(use, t + 1), 0, 1))
    weather = model.outdoor.path(outdoor, t + 1)
    served_last = jnp.where(t > 0, serving[jnp.maximum(t - 1, 0)], 0)
    running = jnp.clip(seen[sight.busy] * site.n_gpus[0] - served_last, 0, site.n_gpus[0])
    share = _training_share(model, serving[t], running, seen[sight.small] * model.queue)
    ahead = _coming(sight, model, t, price, serving, weather, running)
    zone = ZONE_C + ZONE_SPAN_C * seen[sight.zone]
    left = model.heat_weight * jnp.mean(price[: sight.horizon])
    place = set_point_place(site, zone, ahead, left, sight.dt_hours, sight.substeps)
    action = jnp.stack([2 * share - 1, jnp.ones_like(share), 2 * place - 1])
    return SiteMemory(t + 1, price_seen, use, outdoor), action[None]


def _training_share(model: SiteModel, serving: Array, running: Array, waiting: Array) -> Array:
    """Share () of the free GPUs for training, what jobs that wait for fine-tuning need left out."""
    free = jnp.maximum(model.site.n_gpus[0] - serving - (1 - ENDING) * running, 1)
    return jnp.clip(1 - KEPT * model.small_gpus * waiting / free, 0, 1)


def _coming(
    sight: SiteSight, model: SiteModel, t: Array, price: Array, serving: Array, weather: Array, running: Array
) -> Ahead:
    site, width = model.site, min(sight.horizon, round(AHEAD_H / sight.dt_hours))

    def window(series: Array) -> Array:
        part: Array = lax.dynamic_slice(jnp.pad(series[: sight.horizon], (0, width), mode="edge"), (t,), (width,))
        return part

    served, step = window(serving), jnp.arange(width, dtype=serving.dtype)
    jobs = model.usual_gpus + (running - model.usual_gpus) * model.stay**step
    jobs = jnp.clip(jobs, 0, site.n_gpus - served)
    watts = served * site.active_w * site.infer_eta + (site.n_gpus - served - jobs) * site.idle_w + jobs * model.job_w
    alive = jnp.arange(width, dtype=jnp.int32) < sight.horizon - t
    return Ahead(window(price), watts / 1e6 + site.base_mw, window(weather), alive)


def _model(sim: Sim, heat_weight: float) -> tuple[SiteModel, SiteSight]:
    """Read what does not depend on the episode: ratings, columns, and the days of training."""
    site, names = sim.params.datacenter, sim.env.fields.names
    dtype, train, per_day = site.n_gpus.dtype, train_sim(sim), round(24 / sim.spec.dt_hours)
    back = int(sim.spec.horizon > per_day)
    rows, joined = train_days(train, "load_row")

    def fitted(column: str) -> DailyForecast:
        days = day_values(train.params.bank.load_rows[:, train.env.columns.at(column)], rows, per_day)
        return fit_forecast(days, joined, back, back, dtype)

    price, steps = price_forecast(sim)
    low, span = signal_scale(sim)
    rate, gpus, hours, eta = usual_jobs(site)
    held = np.maximum(rate, TINY) * gpus * hours

    def real(value: float) -> Array:
        return jnp.asarray(value, dtype)

    model = SiteModel(
        site=site,
        price=price,
        use=fitted(INFER),
        outdoor=fitted(OUTDOOR),
        low=real(low),
        span=real(span),
        usual_gpus=real(held.sum()),
        stay=real(np.exp(-sim.spec.dt_hours * held.sum() / (held @ hours))),
        job_w=real(float(site.idle_w[0]) + float((site.active_w - site.idle_w)[0]) * (held @ eta) / held.sum()),
        small_gpus=real(gpus[1]),
        queue=real(sim.env.layout.sizes.queue),
        heat_weight=real(heat_weight),
    )

    def own(name: str) -> int:
        return names.index(f"datacenter_0/{name}")

    sight = SiteSight(
        use=own("infer_util"),
        outdoor=own("outdoor_temp_norm"),
        zone=own("zone_temp_norm"),
        busy=own("gpu_util"),
        small=own("queue_ft_fill"),
        price=price_fields(sim),
        price_steps=steps,
        horizon=sim.spec.horizon,
        dt_hours=sim.spec.dt_hours,
        substeps=math.ceil(60 * sim.spec.dt_hours / SUBSTEP_MIN),
    )
    return model, sight
