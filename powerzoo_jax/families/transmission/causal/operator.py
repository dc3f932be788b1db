"""Causal planner of many units with minimum times: unit decommitment over a rolling horizon of loads not yet known.

Each step the load to come is forecast, with paths above and below by its spread. The plan of the step before is mended
by one slow unit at a time, which runs when that is cheapest beside all others:

    V(on, load) = max over prices of  price * load + sum_i on_i min over p of (cost_i(p) - price * p)

Units with the shortest minimum times serve what the others leave, in a plan as if they could be divided; in the coming
step they are started by a list, as far as load, reserve, ramps and line ratings ask for.
Source: Tseng, Li and Oren 2000, doi:10.1023/A:1004676812536.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.tree_util import Partial

from powerzoo_jax.base import struct
from powerzoo_jax.base.numerics import matmul
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.transmission.causal.dispatch import train_loads
from powerzoo_jax.families.transmission.commitment.problem import host_rules, running_cost
from powerzoo_jax.families.transmission.commitment.secure_step import (
    SecureModel,
    UnitColumns,
    average_cost,
    secure_action,
    secure_model,
    units_at_first,
    units_now,
)
from powerzoo_jax.families.transmission.plan.dispatch import cheapest_output, host_system
from powerzoo_jax.opf.commit import CommitmentRules, CommitmentState
from powerzoo_jax.oracle.forecast import DailyForecast, fit_forecast, train_sim
from powerzoo_jax.oracle.registry import Policy

PRICES = 24  # of energy, at which the cost of a step is bounded from below
# gains named here are of merit order, beside the plans of then
# over the slow units, in the first step and in every other; on val 4 and 1 gain 0.66 where 8 and 3 gain 0.75
FIRST_SWEEPS, SWEEPS = 8, 4
# standard deviations of the forecast by which the paths differ from it: on val 1.2 gains 0.79 and 1.5 0.73
SPREADS = (-1.2, 0.0, 1.2)
SHARES = (0.25, 0.5, 0.25)  # weights of the paths; on val more or less on the middle one gains less
QUICK_STEPS = 6  # that a quick unit is thought to run for after a start


class OperatorMemory(NamedTuple):
    """Memory of an episode. t: ();  load: (T,) factors seen;  plan: (T, G) bool;  units: of the step before"""

    t: Array
    load: Array
    plan: Array
    units: CommitmentState


@struct.dataclass(kw_only=True)
class OperatorModel:
    """Constants of a planner.

    secure:    SecureModel of the coming step
    dearest:   (S,) int  slow units by falling average cost at full load
    price:     (M,)  [USD/MWh]  of energy
    worth:     (G, M)  [USD/h]  least cost less sales of a slow unit that runs, 0 for the others
    quick:     (M,)  [USD/h]  the same of all quick units
    forecast:  DailyForecast of the load factor
    spread:    (T + 1, T)  [-]  standard deviation of its errors, by how many periods are known
    """

    secure: SecureModel
    dearest: Array
    price: Array
    worth: Array
    quick: Array
    forecast: DailyForecast
    spread: Array


@dataclass(frozen=True)
class OperatorSight:
    """Columns of an observation, steps of an episode and the length of one; static."""

    columns: UnitColumns
    horizon: int
    dt_hours: float


def plan_operator(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Rolling plan of one operator who commits all units and shares the load by scores.

    Raises ValueError for a task of several agents or in direct mode, and for observations without the whole load.
    """
    del keys
    secure, columns = secure_model(sim)
    dtype = sim.params.voll.dtype
    days, joined = train_loads(train_sim(sim))
    average, slow = average_cost(sim), np.asarray(secure.slow)
    forecast = fit_forecast(days, joined, 0, 0, dtype)
    price, worth, quick = energy_prices(sim, slow, average)
    dearest = np.flatnonzero(slow)[np.argsort(-average[slow], kind="stable")]

    def real(values: Any) -> Array:
        return jnp.asarray(np.asarray(values, np.float64), dtype)

    model = OperatorModel(
        secure=secure,
        dearest=jnp.asarray(dearest, jnp.int32),
        price=real(price),
        worth=real(worth),
        quick=real(quick),
        forecast=forecast,
        spread=real(forecast_spread(forecast, days)),
    )
    sight = OperatorSight(columns, sim.spec.horizon, sim.env.dt_hours)
    units = units_at_first(sim.params.rules)
    plan = jnp.broadcast_to(units.on & secure.slow, (sim.spec.horizon, sim.env.dims.unit))
    memory = OperatorMemory(jnp.zeros((), jnp.int32), jnp.zeros(sim.spec.horizon, dtype), plan, units)
    count = draws.load_row.shape[0]
    return Policy(
        Partial(partial(_act, sight), model), jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), memory)
    )


def energy_prices(sim: Sim, slow: np.ndarray, average: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Prices and worths of `OperatorModel`, for slow units (G,) bool and average costs at full load (G,) [USD/MWh]."""
    params, costs, rules = sim.params, host_system(sim).costs, host_rules(sim.params.rules)
    ends = [costs.price[:, 0] + costs.slope[:, 0] * (rules[x] - costs.base_mw) for x in ("p_min_mw", "p_max_mw")]
    quick = rules["available"] & ~slow
    dear = average + rules["startup_usd"] / np.maximum(rules["p_max_mw"], 1e-3) / (QUICK_STEPS * sim.env.dt_hours)
    marginal = np.quantile(np.concatenate([x[slow] for x in ends]), np.linspace(0, 1, PRICES))
    price = np.unique(np.concatenate([marginal, dear[quick], [-float(params.surplus_price), float(params.voll)]]))
    at = np.broadcast_to(price[:, None], (len(price), len(slow)))
    p = np.clip(cheapest_output(costs, at)[0], rules["p_min_mw"], rules["p_max_mw"])
    worth = running_cost(costs, p) + rules["no_load_usd_per_hour"] - at * p
    idle = np.minimum(dear - at, 0) * rules["p_max_mw"]
    return price, np.where(slow, worth, 0.0).T, np.where(quick, idle, 0.0).sum(1)


def forecast_spread(forecast: DailyForecast, days: np.ndarray) -> np.ndarray:
    """Standard deviation (n + 1, n) of the errors of a forecast on days (D, n), by how many periods are known."""
    off = days - np.asarray(forecast.mean, np.float64)
    errors = [off - off @ np.asarray(gain, np.float64).T for gain in forecast.gain[0]]
    spread = np.sqrt(np.mean(np.square(errors), axis=1))
    known = np.arange(days.shape[1]) < np.arange(len(spread))[:, None]
    return np.where(known, 0.0, spread)


def _act(
    sight: OperatorSight, model: OperatorModel, memory: OperatorMemory, obs: Array, key: Array
) -> tuple[OperatorMemory, Array]:
    del key
    t, secure, at = memory.t, model.secure, sight.columns
    params = secure.params
    seen = memory.load.at[t].set(obs[0, at.load])
    factor = model.forecast.path(seen, t + 1)
    load = params.peak_load_mw * factor + params.shunt_mw
    shown, before = (obs[0, at.committed], obs[0, at.flow]), load[jnp.maximum(t - 1, 0)]
    units = units_now(params, secure.find, memory.units, *shown, before, first=t == 0)
    away = params.peak_load_mw * jnp.outer(jnp.asarray(SPREADS, load.dtype), model.spread[t + 1])
    paths = jnp.maximum(load[None] + away, 0)
    plan = mend_plan(sight, model, units, paths, memory.plan, t)
    action, p = secure_action(secure, units, plan[t], load[t])
    return OperatorMemory(t + 1, seen, plan, CommitmentState(on=units.on, steps=units.steps, p_mw=p)), action


def mend_plan(
    sight: OperatorSight, model: OperatorModel, units: CommitmentState, load_mw: Array, plan: Array, t: Array
) -> Array:
    """Plan (T, G) bool of the slow units from step t () on, no dearer than the one before.

    load_mw:  (K, T)  paths of the load, those of SHARES
    """
    shares = jnp.asarray(SHARES, load_mw.dtype)
    ahead = jnp.arange(sight.horizon, dtype=jnp.int32) >= t
    sales = load_mw[..., None] * model.price[None, None]  # (K, T, M)

    def mend(k: Array, plan: Array) -> Array:
        g = model.dearest[k % len(model.dearest)]
        others = plan.at[:, g].set(False).astype(load_mw.dtype)
        without = sales + (matmul(others, model.worth) + model.quick[None])[None]
        more = jnp.max(without + model.worth[g][None, None], axis=-1) - jnp.max(without, axis=-1)
        run = jnp.where(ahead, sight.dt_hours * (shares @ more), 0)
        return plan.at[:, g].set(best_path(model.secure.params.rules, units, g, run, t))

    sweeps = jnp.where(t == 0, FIRST_SWEEPS, SWEEPS)
    return lax.fori_loop(0, sweeps * len(model.dearest), mend, plan)


def best_path(rules: CommitmentRules, units: CommitmentState, unit: Array, run_usd: Array, t: Array) -> Array:
    """Cheapest path (T,) bool of one unit from step t () on, among those that switch at most twice.

    run_usd:  (T,) [USD] of the steps in which it runs, 0 before t
    """
    steps = run_usd.shape[0]
    on = units.on[unit]
    least = jnp.where(on, rules.min_up[unit], rules.min_down[unit])
    back = jnp.where(on, rules.min_down[unit], rules.min_up[unit])
    first, second = jnp.arange(steps + 1, dtype=jnp.int32)[:, None], jnp.arange(steps + 1, dtype=jnp.int32)[None, :]
    sums = jnp.concatenate([jnp.zeros(1, run_usd.dtype), jnp.cumsum(run_usd)])
    inside = sums[None, :] - sums[:, None]
    start, stop = rules.startup_usd[unit], rules.shutdown_usd[unit]
    leave, come = jnp.where(on, stop, start), jnp.where(on, start, stop)
    cost = jnp.where(on, sums[-1] - inside, inside)
    cost = cost + jnp.where(first < steps, leave, 0) + jnp.where(second < steps, come, 0)
    free = t + jnp.maximum(least - units.steps[unit], 0)
    may = (first >= jnp.minimum(free, steps)) & (second >= jnp.minimum(first + back, steps))
    chosen = jnp.argmin(jnp.where(may, cost, jnp.inf)).astype(jnp.int32)
    a, b = chosen // (steps + 1), chosen % (steps + 1)
    at = jnp.arange(steps, dtype=jnp.int32)
    return jnp.where((at >= a) & (at < b), ~on, on)
