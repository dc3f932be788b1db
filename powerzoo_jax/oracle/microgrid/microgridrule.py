"""Rules that run a data-centre microgrid step by step, seeing the load of the step: the baseline and its variants."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.base.numerics import TINY
from powerzoo_jax.devices import DataCenterState, datacenter
from powerzoo_jax.devices.jobs import Pool
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.draw import Draw
from powerzoo_jax.envs.microgrid.env import ACTIONS
from powerzoo_jax.envs.microgrid.microgrid_state import OUTDOOR, SUN, MicrogridState

BATTERY = [name for name, _, _ in ACTIONS].index("battery")


class Habit(NamedTuple):
    """What distinguishes the rules; numbers, so that all of them share one program.

    cooling:    share of the set-point's range, 0 the coldest
    reserve_mw: jobs start while the load stays below sun + diesel + this; inf starts whatever fits
    urgent_train_min, urgent_fine_min: a job with less slack than this starts in any case; -inf never, inf always
    hold_min:   fine-tuning waits while the first training job does not fit and has less slack than this; 0 never
    """

    cooling: float = 0.6
    reserve_mw: float = float("inf")
    urgent_train_min: float = 30.0
    urgent_fine_min: float = 30.0
    hold_min: float = 0.0


RULE = Habit()
SAFE_RULE = Habit(reserve_mw=0.05, urgent_train_min=60.0, urgent_fine_min=60.0)


class Trail(NamedTuple):
    """A rule played: actions (B, T, A, U); per step it_mw, missed jobs; per episode the return and the backlog."""

    action: Array
    it_mw: Array
    missed: Array
    total: Array
    backlog_gpu_h: Array


def play_habit(sim: Sim, draws: Draw, habit: Habit) -> Trail:
    """Play a rule in drawn episodes (leading axis B), every job as early as the habit allows, by deadline.

    Sun first, then diesel, then the battery; diesel to spare refills the battery, or the first peak would empty it.
    """
    return _play(sim, draws, jax.tree.map(lambda x: jnp.asarray(x, sim.params.voll.dtype), habit))


@jax.jit
def _play(sim: Sim, draws: Draw, habit: Habit) -> Trail:
    return jax.vmap(lambda drawn: _episode(sim, drawn, habit))(draws)


def _episode(sim: Sim, drawn: Draw, habit: Habit) -> Trail:
    # nothing random is left once an episode is drawn
    state, _ = sim.env.begin(jax.random.key(0), drawn, sim.params)

    def advance(state: MicrogridState, _: None) -> tuple[MicrogridState, Any]:
        action = _act(sim, state, habit)
        out = sim.step(state, action)
        info = out.info
        seen = action, jnp.sum(out.state.site.it_mw), info.step_sla_violations, out.reward[0], info.backlog_gpu_h
        return out.state, seen

    _, (action, it_mw, missed, reward, backlog) = lax.scan(advance, state, None, length=sim.spec.horizon)
    return Trail(action, it_mw, missed, jnp.sum(reward), backlog[-1])


def _act(sim: Sim, state: MicrogridState, habit: Habit) -> Array:
    """One action (1, 5): jobs by what the plant can carry, then power by the load that these give."""
    params, site = sim.params, sim.params.site
    row = params.bank.weather_rows[state.weather_row + jnp.minimum(state.t, params.horizon - 1)]
    sun = row[SUN] * params.pv.capacity_mw[0]
    # what a megawatt of servers draws in the long run, with auxiliaries and the cooling that follows it
    per_it = 1 + site.aux_share[0] + site.air_share[0] / datacenter.chiller_cop(site, row[OUTDOOR, None])[0]
    span = (site.active_w[0] - site.idle_w[0]) / 1e6 * per_it
    order = jnp.zeros(5, state.soc_start.dtype).at[2].set(habit.cooling)
    idle = _probe(sim, state, order)[0]
    room_mw = params.diesel.p_max_mw[0] + sun + habit.reserve_mw - idle.it_mw[0] * per_it
    free = site.n_gpus[0] - idle.infer_gpus[0] - idle.job_gpus[0]
    train = _share(room_mw, span * site.train.eta[0], free, _slack(idle.train, state, sim) < habit.urgent_train_min)
    begun = _probe(sim, state, order.at[0].set(train))[0]
    taken = begun.job_gpus[0] - idle.job_gpus[0]
    room_mw = room_mw - taken * span * site.train.eta[0]
    urgent = _slack(begun.finetune, state, sim) < habit.urgent_fine_min
    fine = _share(room_mw, span * site.finetune.eta[0], free - taken, urgent)
    fine = jnp.where(_slack(begun.train, state, sim) < habit.hold_min, 0, fine)
    order = order.at[0].set(train).at[1].set(fine)
    load_mw = _probe(sim, state, order)[1]
    lacking = (load_mw - sun - params.diesel.p_max_mw[0]) / params.storage.power_mw[0]
    order = order.at[3].set(jnp.clip(lacking, -1, 1)).at[4].set(1)
    return jnp.where(jnp.arange(5) == BATTERY, order, 2 * order - 1)[None]


def _probe(sim: Sim, state: MicrogridState, order: Array) -> tuple[DataCenterState, Array]:
    """The site after the step that an order (5,) would make, and the load of that step, () [MW]."""
    command = sim.env.decode(2 * order[None] - 1, sim.params)
    plant, delivered = sim.env.limit(state, command, sim.params)
    return plant.site, -jnp.sum(delivered.site.p_mw)


def _share(room_mw: Array, mw_per_gpu: Array, free: Array, urgent: Array) -> Array:
    """Share of the free GPUs whose power fits, () in [0, 1]; all of them when a job cannot wait."""
    fits = jnp.clip(room_mw / jnp.maximum(mw_per_gpu * free, TINY), 0, 1)
    return jnp.where(urgent, jnp.ones_like(fits), fits)


def _slack(pool: Pool, state: MicrogridState, sim: Sim) -> Array:
    """Least time that a queued job can still wait, () [min]; inf without jobs."""
    now = state.t.astype(pool.gpus.dtype) * (sim.spec.dt_hours * 60)
    return jnp.min(jnp.where(pool.gpus > 0, pool.deadline_min - now - pool.duration_min, jnp.inf))
