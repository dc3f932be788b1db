"""Causal planner of units that always run: the least-cost dispatch that keeps the ratings, at the load that is seen.

No step of a dispatch without ramps depends on another, so that the load of the coming step, which is observed, is all
there is to know. Dispatches stand in a table over the load; between two of its loads a convex combination of them
serves the load, keeps the ratings, and costs no more than that combination of their costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from powerzoo_jax.base import struct
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.transmission.plan.dispatch import LEAST, MOST, host_system, reachable
from powerzoo_jax.families.transmission.plan.policies import FULL_MW, LEAST_LEVEL_MW
from powerzoo_jax.opf.allocate import SHARPNESS
from powerzoo_jax.oracle.forecast import day_values, train_days, train_sim
from powerzoo_jax.oracle.registry import Policy

GRID = 65  # loads of the table
BEYOND = 0.1  # of the largest load of the days of training, by which tables reach further at both ends
LOAD = "total_load_norm"  # field of the coming load over the peak


@struct.dataclass(kw_only=True)
class DispatchTable:
    """Dispatches over the load, and what an observation is a multiple of.

    load_mw:   (K,)    rising, shunts included
    p_mw:      (K, G)  dispatch;  level_mw: (K,) of the scores, as in `DispatchCurve`
    low_mw, high_mw:  (G,)  limits
    peak_mw, shunt_mw: ()
    """

    load_mw: Array
    p_mw: Array
    level_mw: Array
    low_mw: Array
    high_mw: Array
    peak_mw: Array
    shunt_mw: Array


@dataclass(frozen=True)
class DispatchSight:
    """Column of the load in an observation, and how actions look; static."""

    load: int
    schedule: bool
    single_agent: bool


def plan_dispatch(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Dispatch of the table at the load of the coming step; nothing is remembered.

    Raises ValueError for a task whose observations do not show the whole load.
    """
    del draws, keys
    params, fields = sim.params, sim.env.fields.names
    if LOAD not in fields:
        raise ValueError(f"observations of {sim.spec.id!r} lack {LOAD!r}. Build the task with obs_mode='global'.")
    system, dtype = host_system(sim), params.voll.dtype
    grid = load_range(sim, train_loads(train_sim(sim))[0], GRID)
    curve = reachable(system, np.asarray(params.rules.available), grid, scores=not sim.env.schedule)

    def real(values: Any) -> Array:
        return jnp.asarray(np.asarray(values, np.float64), dtype)

    table = DispatchTable(
        load_mw=real(grid),
        p_mw=real(curve.p_mw),
        level_mw=real(curve.level_mw),
        low_mw=real(system.low_mw),
        high_mw=real(system.high_mw),
        peak_mw=real(params.peak_load_mw),
        shunt_mw=real(params.shunt_mw),
    )
    sight = DispatchSight(fields.index(LOAD), sim.env.schedule, sim.env.single_agent)
    return Policy(Partial(partial(_act, sight), table))


def train_loads(train: Sim) -> tuple[np.ndarray, np.ndarray]:
    """Load factors of the days of training (D, n), and which days follow the one before, (D,)."""
    rows, joined = train_days(train, "load_row")
    return day_values(train.params.bank.load_rows[:, 0], rows, round(24 / train.spec.dt_hours)), joined


def load_range(sim: Sim, days: np.ndarray, count: int) -> np.ndarray:
    """Loads (count,) [MW] of a table, shunts included: those of days (D, n) of load factors, and BEYOND."""
    margin = BEYOND * days.max()
    factors = np.linspace(max(days.min() - margin, 0.0), days.max() + margin, count)
    return float(sim.params.peak_load_mw) * factors + float(sim.params.shunt_mw)


def _act(sight: DispatchSight, table: DispatchTable, carry: Any, obs: Array, key: Array) -> tuple[Any, Array]:
    del key
    load = table.peak_mw * obs[0, sight.load] + table.shunt_mw
    limits = table.low_mw, table.high_mw
    score = scores_at(load, table.load_mw, table.p_mw, table.level_mw, *limits, schedule=sight.schedule)
    return carry, jnp.concatenate([jnp.ones_like(score), score])[None] if sight.single_agent else score[:, None]


def scores_at(
    load_mw: Array,
    grid_mw: Array,
    p_mw: Array,
    level_mw: Array,
    low_mw: Array,
    high_mw: Array,
    *,
    schedule: bool,
) -> Array:
    """Scores (G,), or places in the range for a schedule, in [-1, 1], that give the dispatch of a table at a load ().

    Table and limits as in `DispatchTable`.
    """
    p = jax.vmap(lambda column: jnp.interp(load_mw, grid_mw, column))(p_mw.T)
    if schedule:
        room = high_mw - low_mw
        return jnp.clip(2 * (p - low_mw) / jnp.where(room > 0, room, 1) - 1, -1, 1)
    level = jnp.maximum(jnp.interp(load_mw, grid_mw, level_mw), LEAST_LEVEL_MW)
    weight = jnp.where(p >= high_mw - FULL_MW, MOST, jnp.clip((p - low_mw) / level, LEAST, MOST))
    return jnp.clip(2 * jnp.log(weight) / SHARPNESS - 1, -1, 1)
