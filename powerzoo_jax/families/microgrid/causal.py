"""Causal planner of an islanded data centre: jobs that the plant can carry, a room kept warm, a battery kept full.

Diesel energy costs the same at any hour, so that what can be saved is cooling: the set-point comes from the backward
induction of `scheduling`, on forecasts of weather and use from days of training, which fall back from what is seen to
the mean of the hour. The battery covers what sun and diesel cannot, and is filled by diesel to spare, which the
settlement pays back. Source: Bertsekas, Dynamic Programming and Optimal Control, vol. 1, section 1.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from powerzoo_jax.base import struct
from powerzoo_jax.base.numerics import TINY
from powerzoo_jax.devices.datacenter import SUBSTEP_MIN, chiller_cop
from powerzoo_jax.devices.facility import DataCenterParams
from powerzoo_jax.devices.storage import StorageParams
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.microgrid.env import CURVE, OUTDOOR, OUTDOOR_C, SUN, ZONE_C
from powerzoo_jax.families.microgrid.names import DROPPED
from powerzoo_jax.oracle.datacenter.room import MARGIN_C, Ahead, set_point_place, usual_jobs
from powerzoo_jax.oracle.forecast import day_values, train_days, train_sim
from powerzoo_jax.oracle.registry import Policy

AHEAD_H, STAGE_H = 8.0, 0.5  # of the plan of the room, and a stage of it
LAG_H = 1.0  # over which the persistence of weather and use is fitted
# Least cost on 40 days of training within the budgets, of the values in brackets. Some others were tried on earlier
# forms of the planner alone.
COVER_H = 0.3  # for which the battery must carry what jobs draw beyond sun and diesel (0.3, 1)
SPARE_MW = 0.01  # of load that the coming step may add unseen
SAFE_SPARE_MW = 0.03  # the same where a miss has no price: on 40 days of training a deficit of 1e-6 MW, of 0.15
SCARCE = 4.0  # of the price of diesel, that energy is worth where sun and diesel are not expected to do (1, 2, 4)
TRIED_GPUS = 1.0  # by which the room must grow before jobs that did not fit are tried again


class IslandTuning(NamedTuple):
    """The constants above as they enter a plan."""

    cover_h: Array | float = COVER_H
    spare_mw: Array | float = SPARE_MW
    scarce: Array | float = SCARCE


class IslandMemory(NamedTuple):
    """Memory of an episode. t: ();  tried: () GPUs that the jobs waiting did not fit into;  waiting: () jobs and
    held: () GPUs that running jobs hold, both as seen last
    """

    t: Array
    tried: Array
    waiting: Array
    held: Array


@struct.dataclass(kw_only=True)
class IslandModel:
    """Constants of a planner.

    site:        DataCenterParams (1,);  storage: StorageParams (1,)
    sun_mw, diesel_mw: ()  ratings;  usd_per_mwh: () of diesel with its carbon
    usual:       (3, N)  means of sun, outdoor temperature [degC] and use by the step of the day;  stay: (3,) share of
                 a deviation from them that a step leaves
    usual_gpus:  ()  that jobs hold in the long run;  stay_gpus: ()
    job_w:       ()  [W] of a GPU that runs a job, mean of both classes
    queue:       ()  jobs of a full queue
    heat_weight: ()  of the heat left at the end, over that of energy
    """

    site: DataCenterParams
    storage: StorageParams
    sun_mw: Array
    diesel_mw: Array
    usd_per_mwh: Array
    usual: Array
    stay: Array
    usual_gpus: Array
    stay_gpus: Array
    job_w: Array
    queue: Array
    heat_weight: Array
    tuning: IslandTuning


@dataclass(frozen=True)
class IslandSight:
    """Columns of an observation by name; static."""

    columns: tuple[str, ...]
    horizon: int
    dt_hours: float

    def at(self, obs: Array, name: str) -> Array:
        return obs[0, self.columns.index(name)]


def plan_island(sim: Sim, draws: Draw, keys: Array, tuning: IslandTuning | None = None) -> Policy:
    """Starts of jobs, set-point, battery and diesel by what is observed."""
    del keys
    priced = DROPPED not in sim.spec.cost_names
    model, sight = _model(sim, tuning or IslandTuning(spare_mw=SPARE_MW if priced else SAFE_SPARE_MW))
    count, dtype = draws.load_row.shape[0], model.usual.dtype
    nothing = jnp.zeros(count, dtype)
    return Policy(
        Partial(partial(_act, sight), model), IslandMemory(jnp.zeros(count, jnp.int32), nothing, nothing, nothing)
    )


def _act(
    sight: IslandSight, model: IslandModel, memory: IslandMemory, obs: Array, key: Array
) -> tuple[IslandMemory, Array]:
    del key
    t, site, tuning = memory.t, model.site, model.tuning
    n = site.n_gpus[0]
    served = sight.at(obs, "infer_util") * site.infer_gpu_peak[0]
    held = jnp.clip(sight.at(obs, "gpu_util") * n - served, 0, n)
    serving = jnp.where(t > 0, served, site.infer_gpu_peak[0] * model.usual[2, 0])
    outdoor = OUTDOOR_C[0] + OUTDOOR_C[1] * sight.at(obs, "outdoor_norm")
    zone = ZONE_C[0] + ZONE_C[1] * sight.at(obs, "zone_norm")
    sun = sight.at(obs, "solar_cf")
    now = jnp.stack([sun, outdoor, serving / jnp.maximum(site.infer_gpu_peak[0], TINY)])
    ahead = _coming(sight, model, t, now, held)
    substeps = round(60 * STAGE_H / SUBSTEP_MIN)
    place = set_point_place(site, zone, ahead, model.heat_weight * model.usd_per_mwh, STAGE_H, substeps)
    firm_mw = model.diesel_mw + model.sun_mw * sun
    servers_mw = (1 + site.aux_share[0]) * _it_mw(model, serving, held)
    cover_mw = _cover_mw(model, sight.at(obs, "soc"))
    per_gpu = _mw_per_gpu(model, outdoor)
    usual_mw = servers_mw + tuning.spare_mw + _cooling_mw(model, zone, place, outdoor)
    # a job starts in the step after it arrived, when its power is ordered; one that does not fit waits for more room
    free = jnp.maximum(n - serving - held, 1)
    trains, smalls = (model.queue * sight.at(obs, f"queue_{name}_fill") for name in ("train", "ft"))
    waiting = trains + smalls
    stuck = (waiting > 0) & (waiting == memory.waiting) & (held <= memory.held)
    room = jnp.clip((firm_mw + cover_mw - usual_mw) / per_gpu, 0, free)
    large = trains * site.train.gpus_high[0]
    small = smalls * site.finetune.gpus_high[0]
    least = jnp.where(smalls > 0, site.finetune.gpus_low[0], site.train.gpus_low[0])
    covered = (waiting > 0) & (room >= least) & ~(stuck & (room <= memory.tried + TRIED_GPUS))
    for_small = jnp.where(covered, jnp.minimum(room, small), 0)
    for_large = jnp.where(covered, jnp.minimum(room, large), 0)
    train, fine = for_large / free, for_small / jnp.maximum(free - for_large, jnp.maximum(for_small, 1))
    begun = jnp.minimum(for_large + for_small, free)
    load_mw = servers_mw + tuning.spare_mw + begun * per_gpu
    # where all that there is does not carry the load, the room waits
    power = model.storage.power_mw[0]
    most_mw = jnp.minimum(cover_mw * tuning.cover_h / sight.dt_hours, power)
    place = jnp.maximum(place, _least_place(model, zone, firm_mw + most_mw - load_mw, outdoor))
    lacking = load_mw + _cooling_mw(model, zone, place, outdoor) - firm_mw
    action = jnp.stack([2 * train - 1, 2 * fine - 1, 2 * place - 1, lacking / power, jnp.ones_like(train)])
    tried = jnp.where(
        covered, jnp.where(stuck, jnp.maximum(memory.tried, room), room), jnp.where(stuck, memory.tried, 0)
    )
    return IslandMemory(t + 1, tried, waiting, held), jnp.clip(action, -1, 1)[None]


def _cover_mw(model: IslandModel, soc: Array) -> Array:
    """Power () that the battery holds for a while [MW]."""
    store = model.storage
    energy = jnp.maximum(soc - store.soc_min[0], 0) * store.capacity_mwh[0] * store.eta_discharge[0]
    return jnp.minimum(store.power_mw[0], energy / model.tuning.cover_h)


def _it_mw(model: IslandModel, serving: Array, held: Array) -> Array:
    """Power of servers [MW] by the GPUs that serve and that run jobs, of one shape."""
    site = model.site
    idle = site.n_gpus[0] - serving - held
    watts = serving * site.active_w[0] * site.infer_eta[0] + idle * site.idle_w[0] + held * model.job_w
    return watts / 1e6 + site.base_mw[0]


def _mw_per_gpu(model: IslandModel, outdoor: Array) -> Array:
    """Load of one more GPU at work, with its auxiliaries and the cooling that follows in the long run, () [MW]."""
    site = model.site
    drawn = 1 + site.aux_share[0] + site.air_share[0] / chiller_cop(site, outdoor[None])[0]
    return (model.job_w - site.idle_w[0]) / 1e6 * drawn


def _cooling_mw(model: IslandModel, zone: Array, place: Array, outdoor: Array) -> Array:
    """Power () of the chiller in the coming step [MW]."""
    site = model.site
    set_c = site.set_low_c[0] + place * (site.set_high_c[0] - site.set_low_c[0])
    heat = site.ua_kw_per_c[0] * jnp.maximum(zone - set_c, 0)
    return jnp.maximum(heat / (1000 * chiller_cop(site, outdoor[None])[0]), site.cool_min_mw[0])


def _least_place(model: IslandModel, zone: Array, most_mw: Array, outdoor: Array) -> Array:
    """Lowest place () of the set-point whose cooling stays within most_mw (); 0 where the room is too warm to wait."""
    site = model.site
    degrees = jnp.maximum(most_mw, 0) * 1000 * chiller_cop(site, outdoor[None])[0] / site.ua_kw_per_c[0]
    place = jnp.clip((zone - degrees - site.set_low_c[0]) / (site.set_high_c[0] - site.set_low_c[0]), 0, 1)
    return jnp.where(zone < site.t_critical_c[0] - MARGIN_C, place, 0)


def _coming(sight: IslandSight, model: IslandModel, t: Array, now: Array, held: Array) -> Ahead:
    """Stages of the plan: forecasts of weather, use and jobs, at the price of diesel."""
    site, steps = model.site, round(STAGE_H / sight.dt_hours)
    count, per_day = round(AHEAD_H / STAGE_H), model.usual.shape[1]
    lead = jnp.arange(count, dtype=jnp.int32) * steps
    usual = model.usual[:, (t + lead) % per_day]
    off = now - model.usual[:, t % per_day]
    later = lead.astype(now.dtype)
    path = usual + off[:, None] * model.stay[:, None] ** later[None]
    served = site.infer_gpu_peak * jnp.clip(path[2], 0, 1)
    jobs = model.usual_gpus + (held - model.usual_gpus) * model.stay_gpus**later
    jobs = jnp.clip(jobs, 0, site.n_gpus - served)
    it_mw = _it_mw(model, served, jobs)
    drawn = 1 + site.aux_share[0] + site.air_share[0] / chiller_cop(site, path[1])
    short = drawn * it_mw > model.diesel_mw + model.sun_mw * jnp.clip(path[0], 0, 1)
    price = model.usd_per_mwh * jnp.where(short, model.tuning.scarce, 1)
    return Ahead(price, it_mw, path[1], t + lead < sight.horizon)


def _model(sim: Sim, tuning: IslandTuning) -> tuple[IslandModel, IslandSight]:
    """Read what does not depend on the episode: ratings, columns, and the days of training."""
    params, spec, train = sim.params, sim.spec, train_sim(sim)
    site, dtype = params.site, params.voll.dtype
    rows, _ = train_days(train, "load_row")
    per_day, lag = round(24 / spec.dt_hours), round(LAG_H / spec.dt_hours)
    days = np.stack(
        [day_values(train.params.bank.weather_rows[:, column], rows, per_day) for column in (SUN, OUTDOOR, CURVE)]
    )
    usual = days.mean(axis=1)
    off = days - usual[:, None]
    stay = (off[..., lag:] * off[..., :-lag]).sum(axis=(1, 2)) / np.maximum((off**2).sum(axis=(1, 2)), TINY)
    weights = dict(zip(spec.term_names, spec.term_weights, strict=True))
    carbon = weights["carbon"] / weights["fuel"] * float(params.diesel.carbon_kg_per_mwh[0])
    rate, gpus, hours, eta = usual_jobs(site)
    held = np.maximum(rate, TINY) * gpus * hours

    def real(value: object) -> Array:
        return jnp.asarray(np.asarray(value, np.float64), dtype)

    model = IslandModel(
        site=site,
        storage=params.storage,
        sun_mw=params.pv.capacity_mw[0],
        diesel_mw=params.diesel.p_max_mw[0],
        usd_per_mwh=real(float(params.diesel.mc_c[0]) + carbon),
        usual=real(usual),
        stay=real(np.clip(stay, 0, 1) ** (1 / lag)),
        usual_gpus=real(held.sum()),
        stay_gpus=real(np.exp(-spec.dt_hours * held.sum() / (held @ hours))),
        job_w=real(float(site.idle_w[0]) + float((site.active_w - site.idle_w)[0]) * (held @ eta) / held.sum()),
        queue=params.queue,
        heat_weight=real(weights.get("zone_heat", 0.0) / weights["fuel"]),
        tuning=IslandTuning(*map(real, tuning)),
    )
    return model, IslandSight(sim.env.fields.names, spec.horizon, spec.dt_hours)
