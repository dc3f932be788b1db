"""Play a data centre on a feeder alone, many ways at once: its jobs by deadline, some of them held back."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.base import Purpose, purpose_key
from powerzoo_jax.devices import datacenter, jobs
from powerzoo_jax.devices.datacenter import Order, Weather
from powerzoo_jax.devices.jobs import Jobs, Pool
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.money import BACKLOG_USD_PER_GPU_H
from powerzoo_jax.envs.series import INFER, OUTDOOR, PRICE

HALF_GPU = 0.5  # above what is to start: rounding then starts no job more and no job less


class Habit(NamedTuple):
    """One way to run an episode.

    held:        (T, 2) bool  training and fine-tuning jobs that can wait do wait
    cooling:     ()     share of the set-point's range, 0 the coldest
    urgent_min:  ()     [min] a job with less slack than this cannot wait
    fine_first:  ()     share of the GPUs of queued fine-tuning jobs that training leaves free: these jobs are small and
                        short, and a miss costs the same whatever the job
    """

    held: Array
    cooling: Array
    urgent_min: Array
    fine_first: Array


class Trail(NamedTuple):
    """An episode played: actions (T, 3) of the kernel, IT power (T,), misses, backlog [GPU h] and return [$], () each.

    The return is that of the data centre: the feeder's power flow has no part in it.
    """

    action: Array
    it_mw: Array
    missed: Array
    backlog_gpu_h: Array
    total_usd: Array


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
def play_habits(sim: Sim, episodes: Episode, habits: Habit) -> Trail:
    """Play K habits on each of B episodes: habits and trails have the leading axes (B, K)."""
    return jax.vmap(lambda episode, some: jax.vmap(lambda habit: _play(sim, episode, habit))(some))(episodes, habits)


def _play(sim: Sim, episode: Episode, habit: Habit) -> Trail:
    site, dt = sim.params.datacenter, sim.env.dt_hours
    weight = dict(zip(sim.spec.term_names, sim.spec.term_weights, strict=True))
    scale = weight["unserved_energy"]
    t_set = site.set_low_c + habit.cooling * (site.set_high_c - site.set_low_c)
    first = datacenter.init(site, sim.env.layout.sizes)

    def advance(state: Any, row: Any) -> tuple[Any, Any]:
        t, held, now = row
        minute = t * round(dt * 60)
        weather = Weather(now.infer_util[None], now.t_outdoor_c[None])
        train, fine = _shares(site, state, now.arrivals, weather, minute, held, habit)
        order = Order(train, fine, t_set)
        state, out = datacenter.step(site, state, order, dt, minute, now.arrivals, weather)
        bill = weight["site_energy"] / scale * now.price_per_mwh * out.p_mw[0] * dt
        action = jnp.stack([2 * train[0] - 1, 2 * fine[0] - 1, 2 * habit.cooling - 1])
        return state, (action, state.it_mw[0], out.missed_jobs[0], bill)

    steps = jnp.arange(sim.spec.horizon, dtype=jnp.int32)
    last, (action, it_mw, missed, bill) = lax.scan(advance, first, (steps, habit.held, episode))
    backlog = datacenter.backlog_gpu_h(site, last, dt)[0]
    lost = weight["job_misses"] / scale * sim.params.miss_usd * jnp.sum(missed)
    lost = lost + weight["backlog"] / scale * BACKLOG_USD_PER_GPU_H * backlog
    return Trail(action, it_mw, jnp.sum(missed), backlog, jnp.sum(bill) - lost)


def _shares(
    site: Any, state: Any, arrivals: tuple[Jobs, Jobs], weather: Weather, minute: Array, held: Array, habit: Habit
) -> tuple[Array, Array]:
    """Shares of the free GPUs for training (1,) and fine-tuning (1,) in a step that starts with these arrivals."""
    train, fine = (
        jobs.enqueue(pool, new)[0] for pool, new in zip((state.train, state.finetune), arrivals, strict=True)
    )
    running = jobs.row_sum(train.held_gpus) + jobs.row_sum(fine.held_gpus)
    asked = jnp.round(site.infer_gpu_peak * jnp.clip(weather.infer_util, 0, 1))
    free = site.n_gpus - running - jnp.minimum(asked, site.n_gpus - running)
    left = free - habit.fine_first * jobs.row_sum(fine.gpus)
    most = jnp.clip((left + HALF_GPU) / jnp.maximum(free, 1), 0, 1)
    train_share = jnp.minimum(_share(train, minute, held[0], free, habit.urgent_min), most)
    started = jobs.choose(train, train_share * free)
    taken = jobs.row_sum(jnp.where(started, train.gpus, 0))
    return train_share, _share(fine, minute, held[1], free - taken, habit.urgent_min)


def _share(pool: Pool, minute: Array, held: Array, free: Array, urgent_min: Array) -> Array:
    """Share of the free GPUs (1,) for all jobs, or where they are held for the queue up to the last urgent one."""
    urgent = jnp.where(_slack(pool, minute) < urgent_min, jobs.running_sum(pool.gpus), 0)
    need = jnp.max(urgent, axis=1)
    least = jnp.where(need > 0, jnp.clip((need + HALF_GPU) / jnp.maximum(free, 1), 0, 1), 0)
    return jnp.where(held, least, jnp.ones_like(least))


def _slack(pool: Pool, minute: Array) -> Array:
    """Time that each queued job can still wait, (1, Q) [min]; inf in free slots."""
    left = pool.deadline_min - minute.astype(pool.gpus.dtype) - pool.duration_min
    return jnp.where(pool.gpus > 0, left, jnp.inf)
