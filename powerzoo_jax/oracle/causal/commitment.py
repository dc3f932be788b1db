"""Causal planner of a few units that may be switched at will: the cheapest path through combinations, rolled forward.

    V_t(c) = min over c' of  switching(c, c') + stage(c', forecast load of t) + V_(t+1)(c')

The load of the coming step is seen, later ones are forecast from the days of training. What a combination costs at a
load, and the dispatch that scores can reach, stand in tables over the load.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax
from jax.tree_util import Partial

from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.opf.commit import RESERVE_SHARE
from powerzoo_jax.oracle.causal.dispatch import LOAD, load_range, scores_at, train_loads
from powerzoo_jax.oracle.causal.forecast import DailyForecast, fit_forecast, train_sim
from powerzoo_jax.oracle.commitment.policies import SHORTFALL_USD, combinations, switching_costs
from powerzoo_jax.oracle.commitment.problem import host_rules
from powerzoo_jax.oracle.registry import Policy
from powerzoo_jax.oracle.transmission.dispatch import host_system, reachable

GRID = 49  # loads of the tables


class UnitsMemory(NamedTuple):
    """Memory of an episode. t: ();  load: (T,) load factors seen;  running: () combination of the step before"""

    t: Array
    load: Array
    running: Array


@struct.dataclass(kw_only=True)
class UnitsModel:
    """Constants of a planner; C combinations, K loads, G units.

    load_mw:   (K,)        rising
    stage:     (C, K)      [USD] of a step, with missing reserve and overloads at high prices
    p_mw:      (C, K, G)   dispatch;  level_mw: (C, K) of the scores, as in `DispatchCurve`
    on:        (C, G)      bool
    low_mw, high_mw: (G,)  limits
    switching: (C, C)      [USD] from one combination to another
    per_load:  ()          [MW] at a load that is observed as 1;  shunt_mw: ()
    forecast:  DailyForecast of the load factor
    """

    load_mw: Array
    stage: Array
    p_mw: Array
    level_mw: Array
    on: Array
    low_mw: Array
    high_mw: Array
    switching: Array
    per_load: Array
    shunt_mw: Array
    forecast: DailyForecast


@dataclass(frozen=True)
class UnitsSight:
    """Column of the load factor in an observation, and how actions look; static."""

    load: int
    schedule: bool
    single_agent: bool


def plan_units(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Rolling plan of who runs, and the cheapest dispatch that scores can reach.

    Raises ValueError for units with minimum times or ramps, and for more than eight of them.
    """
    del keys
    model, sight = _model(sim)
    count, dtype = draws.load_row.shape[0], model.stage.dtype
    first = len(model.stage) - 1  # all units run before an episode
    memory = UnitsMemory(
        jnp.zeros(count, jnp.int32),
        jnp.zeros((count, sim.spec.horizon), dtype),
        jnp.full(count, first, jnp.int32),
    )
    return Policy(Partial(partial(_act, sight), model), memory)


def _act(
    sight: UnitsSight, model: UnitsModel, memory: UnitsMemory, obs: Array, key: Array
) -> tuple[UnitsMemory, Array]:
    del key
    t = memory.t
    seen = memory.load.at[t].set(obs[0, sight.load])
    path = model.per_load * model.forecast.path(seen, t + 1) + model.shunt_mw
    stage = jax.vmap(lambda row: jnp.interp(path, model.load_mw, row))(model.stage).T  # (T, C)
    alive = jnp.arange(path.shape[0]) > t

    def earlier(value: Array, step: tuple[Array, Array]) -> tuple[Array, None]:
        cost, counts = step
        before = jnp.min(model.switching + (cost + value)[None], axis=1)
        return jnp.where(counts, before, value), None

    later, _ = lax.scan(earlier, jnp.zeros_like(stage[0]), (stage, alive), reverse=True)
    chosen = jnp.argmin(model.switching[memory.running] + stage[t] + later).astype(jnp.int32)
    return UnitsMemory(t + 1, seen, chosen), _action(sight, model, chosen, path[t])


def _action(sight: UnitsSight, model: UnitsModel, chosen: Array, load_mw: Array) -> Array:
    """Kernel action that runs a combination and dispatches it."""
    on = model.on[chosen]
    limits = (jnp.where(on, x, 0) for x in (model.low_mw, model.high_mw))
    table = model.load_mw, model.p_mw[chosen], model.level_mw[chosen]
    score = scores_at(load_mw, *table, *limits, schedule=sight.schedule)
    intent = jnp.where(on, 1, -1).astype(score.dtype)
    return jnp.concatenate([intent, score])[None] if sight.single_agent else jnp.stack([score, intent], axis=-1)


def _model(sim: Sim) -> tuple[UnitsModel, UnitsSight]:
    params, dt = sim.params, sim.env.dt_hours
    system, rules, dtype = host_system(sim), host_rules(params.rules), params.voll.dtype
    sets = combinations(params.rules)
    days, joined = train_loads(train_sim(sim))
    grid = load_range(sim, days, GRID)
    # as in the oracle: a combination that cannot carry the least load of all is never a plan
    able = (sets @ system.high_mw >= grid[0]) & sets.any(axis=1)
    sets = sets[able]
    stage, p_mw, level = [], [], []
    for on in sets:
        curve = reachable(system, on, grid, scores=not sim.env.schedule)
        short = np.maximum((1 + RESERVE_SHARE) * (grid - system.shunt_mw) - on @ system.high_mw, 0)
        money = system.cost(on, curve.p_mw, grid) + on @ rules["no_load_usd_per_hour"]
        stage.append(dt * (money + SHORTFALL_USD * (system.overload(curve.p_mw, grid) + short)))
        p_mw.append(curve.p_mw)
        level.append(curve.level_mw)

    def real(values: Any) -> Array:
        return jnp.asarray(np.asarray(values, np.float64), dtype)

    model = UnitsModel(
        load_mw=real(grid),
        stage=real(stage),
        p_mw=real(p_mw),
        level_mw=real(level),
        on=jnp.asarray(sets),
        low_mw=real(system.low_mw),
        high_mw=real(system.high_mw),
        switching=real(switching_costs(params.rules, sets)),
        per_load=real(params.peak_load_mw),
        shunt_mw=real(params.shunt_mw),
        forecast=fit_forecast(days, joined, 0, 0, dtype),
    )
    return model, UnitsSight(sim.env.fields.names.index(LOAD), sim.env.schedule, sim.env.single_agent)
