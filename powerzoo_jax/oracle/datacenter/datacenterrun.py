"""Play a data centre on a feeder alone, with as many GPUs for new jobs in each step as a plan says."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.base import Purpose, purpose_key
from powerzoo_jax.devices import datacenter, jobs
from powerzoo_jax.devices.datacenter import Order, Weather
from powerzoo_jax.devices.jobs import Jobs
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import INFER, OUTDOOR, PRICE

HALF_GPU = 0.5  # above what is to start: rounding then starts no job more and no job less


class Trail(NamedTuple):
    """An episode played: actions (T, 3) of the kernel, IT power (T,) [MW], misses and backlog [GPU h], () each."""

    action: Array
    it_mw: Array
    missed: Array
    backlog_gpu_h: Array


class Episode(NamedTuple):
    """What an episode brings: jobs (T, 1, M) of both classes, use and temperature and price (T,)."""

    arrivals: tuple[Jobs, Jobs]
    infer_util: Array
    t_outdoor_c: Array
    price_per_mwh: Array


@jax.jit
def read_episodes(sim: Sim, keys: Array, load_row: Array, price_row: Array) -> Episode:
    """What drawn episodes bring, leading axis B: the keys are those that the episodes start with."""
    env, params = sim.env, sim.params
    minutes, t = round(env.dt_hours * 60), jnp.arange(sim.spec.horizon, dtype=jnp.int32)

    def one(key: Array, load: Array, price: Array) -> Episode:
        source = purpose_key(key, Purpose.JOBS)

        def arriving(t: Array) -> tuple[Jobs, Jobs]:
            at = jax.random.fold_in(source, t)
            return datacenter.draw_arrivals(at, params.datacenter, env.layout.sizes, env.dt_hours, t * minutes)

        rows = params.bank.load_rows[load + t]
        return Episode(
            arrivals=jax.vmap(arriving)(t),
            infer_util=rows[:, env.columns.at(INFER)],
            t_outdoor_c=rows[:, env.columns.at(OUTDOOR)],
            price_per_mwh=params.bank.price_rows[price + t, PRICE],
        )

    return jax.vmap(one)(keys, load_row, price_row)


@jax.jit
def play_starts(sim: Sim, episodes: Episode, gpus: Array, cooling: Array) -> Trail:
    """Play B episodes, leading axis B.

    gpus:     (B, T, 2)  of the training and fine-tuning jobs that start in each step
    cooling:  ()         share of the set-point's range, 0 the coldest
    """
    return jax.vmap(lambda episode, some: _play(sim, episode, some, cooling))(episodes, gpus)


def _play(sim: Sim, episode: Episode, gpus: Array, cooling: Array) -> Trail:
    site, dt = sim.params.datacenter, sim.env.dt_hours
    t_set = site.set_low_c + cooling * (site.set_high_c - site.set_low_c)

    def advance(state: Any, row: Any) -> tuple[Any, Any]:
        t, some, now = row
        minute = t * round(dt * 60)
        asked = jnp.round(site.infer_gpu_peak * jnp.clip(now.infer_util, 0, 1))
        free = jnp.maximum(site.n_gpus - _running(state) - asked, 0)
        train, fine = _share(some[0], free), _share(some[1], free - some[0])
        weather = Weather(now.infer_util[None], now.t_outdoor_c[None])
        state, out = datacenter.step(site, state, Order(train, fine, t_set), dt, minute, now.arrivals, weather)
        action = jnp.stack([2 * train[0] - 1, 2 * fine[0] - 1, 2 * cooling - 1])
        return state, (action, state.it_mw[0], out.missed_jobs[0])

    steps, first = jnp.arange(sim.spec.horizon, dtype=jnp.int32), datacenter.init(site, sim.env.layout.sizes)
    last, (action, it_mw, missed) = lax.scan(advance, first, (steps, gpus, episode))
    return Trail(action, it_mw, jnp.sum(missed), datacenter.backlog_gpu_h(site, last, dt)[0])


def _running(state: Any) -> Array:
    """GPUs that running jobs hold in the step that begins, (1,)."""
    return jobs.row_sum(state.train.held_gpus) + jobs.row_sum(state.finetune.held_gpus)


def _share(gpus: Array, free: Array) -> Array:
    """Share of the free GPUs (1,) that starts jobs of so many GPUs and no more."""
    return jnp.clip((gpus + HALF_GPU) / jnp.maximum(free, 1), 0, 1)
