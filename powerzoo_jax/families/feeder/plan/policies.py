"""Baselines of the feeder tasks: their rules, and the planner executed in the environment.

Rules of the feeder tasks: what an operator would do who looks at the observation, or at the day-ahead prices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.feeder.arbitrage.policies import quantile_signal
from powerzoo_jax.families.feeder.plan.episode import action_batch, build_feeder_problems
from powerzoo_jax.families.feeder.plan.plan import plan_feeder
from powerzoo_jax.families.feeder.plan.problem import FeederEpisode, SetPoints, play_devices, run
from powerzoo_jax.families.feeder.plan.program import idle_points
from powerzoo_jax.oracle.baselines import idle_action
from powerzoo_jax.oracle.registry import (
    Baselines,
    EpisodePlan,
    OraclePlan,
    Policy,
    follow,
    follow_plans,
    repeat_action,
)

V_LOW = 0.96  # [pu] where flexible load of the dso starts to help
CURTAIL_SLOPE, DEFER_SLOPE, DEFER_MOST = 0.008, 0.06, 0.5  # [pu] below V_LOW for all of it; share of the cap
PEAK_START, PEAK_END = 16.0, 21.0  # clock hours of the time-of-use rule
TOU_CURTAIL, TOU_DEFER = 0.8, 0.5
V_SUPPORT, Q_SLOPE = 0.99, 0.03  # [pu] below which inverters inject reactive power, and over which they reach all
FLEX_LOW, FLEX_SLOPE = 0.945, 0.02  # [pu] the same for flexible loads beside inverters
READY_MARGIN_H = 1.0  # how early a price-aware vehicle starts to charge for its departure


def droop(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Shed and defer in proportion to the voltage below 0.96 pu at each flexible load's bus."""
    del draws, keys
    # positions of the fields that show the voltage at each unit's bus
    names = sim.env.fields.names
    first = next(k for k, name in enumerate(names) if name.endswith("_v_norm"))
    at = first + np.argmax(np.asarray(sim.params.place_bus), axis=1)
    return Policy(Partial(_droop, jnp.asarray(at)))


def _droop(at: Array, carry: Any, obs: Array, key: Array) -> tuple[Any, Array]:
    del key
    depth = V_LOW - (1 + obs[0, at] / 10)
    shed = jnp.clip(depth / CURTAIL_SLOPE, 0, 1)
    defer = jnp.clip(depth / DEFER_SLOPE, 0, DEFER_MOST)
    return carry, _flat_shares(shed, defer)


def time_of_use(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Shed and defer fixed shares of the caps in the evening hours."""
    del draws, keys
    names = sim.env.fields.names
    at = jnp.asarray([names.index("time_sin"), names.index("time_cos")])
    return Policy(Partial(_time_of_use, at, jnp.zeros(sim.env.dims.unit, sim.params.load_ratio.dtype)))


def _time_of_use(at: Array, units: Array, carry: Any, obs: Array, key: Array) -> tuple[Any, Array]:
    del key
    sin, cos = obs[0, at]
    # a little later, or rounding would move 16:00 to 15:59
    hour = jnp.mod(jnp.arctan2(sin, cos) * (12 / np.pi) + 1e-3, 24)
    on = ((hour >= PEAK_START) & (hour < PEAK_END)).astype(units.dtype)
    return carry, _flat_shares(units + TOU_CURTAIL * on, units + TOU_DEFER * on)


def _flat_shares(shed: Array, defer: Array) -> Array:
    """Shares of the caps (F,) -> the action (1, 2 F) of one agent."""
    return (2 * jnp.stack([shed, defer], axis=1) - 1).reshape(1, -1)


def volt_support(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Inverters inject reactive power below 0.99 pu, flexible loads shed and defer below 0.945 pu; all PV is used."""
    del draws, keys
    kinds = np.empty(sim.env.dims.unit, int)
    for block in sim.env.layout.table.blocks:
        kinds[list(block.units)] = ("storage", "renewable", "flexload").index(block.kind)
    at = sim.env.fields.names.index("local_bus_voltage")
    return Policy(Partial(partial(_volt_support, at), jnp.asarray(kinds)))


def _volt_support(at: int, kinds: Array, carry: Any, obs: Array, key: Array) -> tuple[Any, Array]:
    del key
    v = obs[:, at]
    q = jnp.clip((V_SUPPORT - v) / Q_SLOPE, -1, 1)
    help_ = 2 * jnp.clip((FLEX_LOW - v) / FLEX_SLOPE, 0, 1) - 1
    # by kind: battery [0, q], PV [1 = curtail nothing, q], flexible load [curtail, defer]
    first = jnp.where(kinds == 0, 0, jnp.where(kinds == 1, 1, help_))
    return carry, jnp.stack([first, jnp.where(kinds == 2, help_, q)], axis=1)


def charge_at_once(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Charge to the departure level whenever plugged in, as fast as the charger allows."""
    del draws, keys
    return Policy(Partial(partial(_charge_at_once, _at(sim, ("soc", "is_home"))), _missing_power(sim)))


def _charge_at_once(at: tuple[int, ...], fleet: tuple[Array, Array], carry: Any, obs: Array, key: Array) -> Any:
    del key
    soc, home = (obs[:, k] for k in at)
    return carry, (-home * _to_fill(fleet, soc))[:, None]


def price_aware(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Charge in the cheapest hour in sight, or when no more time is left; sell in the dearest what is spare."""
    del draws, keys
    names = sim.env.fields.names
    ahead = jnp.asarray([k for k, name in enumerate(names) if name.startswith("price_forecast")])
    at = _at(sim, ("soc", "is_home", "price_signal", "time_to_departure"))
    return Policy(Partial(partial(_price_aware, at, sim.spec.dt_hours), ahead, _missing_power(sim)))


def _price_aware(
    at: tuple[int, ...], dt_hours: float, ahead: Array, fleet: tuple[Array, Array], carry: Any, obs: Array, key: Array
) -> Any:
    del key
    soc, home, price, until = (obs[:, k] for k in at)
    forecast = obs[:, ahead]
    need, per_step = fleet
    steps_missing = jnp.maximum(need - soc, 0) / per_step
    urgent = until * (24 / dt_hours) <= steps_missing + READY_MARGIN_H / dt_hours
    cheap = price <= jnp.min(forecast, axis=1)
    # two steps of reserve above the level of departure may be sold and bought back
    dear = (price >= jnp.max(forecast, axis=1)) & (price > jnp.min(forecast, axis=1) + 0.2)
    spare = jnp.clip((soc - need) / per_step - 1, 0, 1)
    fill = jnp.clip((need + 3 * per_step - soc) / per_step, 0, 1)
    action = jnp.where(urgent, -_to_fill(fleet, soc), jnp.where(cheap, -fill, jnp.where(dear, spare, 0)))
    return carry, (home * action)[:, None]


def _at(sim: Sim, names: Sequence[str]) -> tuple[int, ...]:
    return tuple(sim.env.fields.names.index(name) for name in names)


def _missing_power(sim: Sim) -> tuple[Array, Array]:
    """Level of departure (V,) and what a step of full charging adds to it (V,)."""
    fleet = sim.params.vehicle
    return fleet.soc_departure_min, fleet.charge_mw * fleet.eta_charge * sim.spec.dt_hours / fleet.capacity_mwh


def _to_fill(fleet: tuple[Array, Array], soc: Array) -> Array:
    """Share of the charger that reaches the level of departure in this step, (V,) in [0, 1]."""
    need, per_step = fleet
    # rounding must not leave the level short by the last digit
    return jnp.where(soc < need, jnp.clip((need - soc) / per_step + 1e-4, 0, 1), 0)


GUARD_PU = 0.025  # what charging takes from the lowest voltage at most: so far above the limit the rule charges
GUARDED_MW = 0.6  # batteries of which it takes as much; more of them take more
FULL_PU = 0.01  # [pu] below the limit, without control, at which the rule discharges all batteries in full


def oracle(sim: Sim, draws: Draw, keys: Array) -> OraclePlan:
    """Plan every drawn episode and follow the plans."""
    problems = build_feeder_problems(sim, draws, keys)
    found = [plan_feeder(problem) for problem in problems]
    actions = action_batch(sim, problems, [plan.points for plan in found])
    figures = ((plan.objective, plan.bound, plan.kept_bound) for plan in found)
    return follow_plans(sim, [EpisodePlan(action, *each) for action, each in zip(actions, figures, strict=True)])


def no_control(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Every device left alone, as a plan: one compiled program then plays it and all other plans."""
    del keys
    return repeat_action(sim, draws, idle_action(sim))


def price_quantiles(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Trade by the day-ahead prices alone: charge in a day's cheapest quarter of hours, discharge in its dearest."""
    problems = build_feeder_problems(sim, draws, keys)
    return follow(
        sim, action_batch(sim, problems, [_traded(p, quantile_signal(p.price_per_mwh, p.dt_hours)) for p in problems])
    )


def guarded_quantiles(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """The same with a guard on the scheduled voltage: see `guarded_signal`."""
    problems = build_feeder_problems(sim, draws, keys)
    return follow(sim, action_batch(sim, problems, [_traded(p, guarded_signal(p)) for p in problems]))


def guarded_signal(problem: FeederEpisode) -> np.ndarray:
    """Charge and discharge by price, but support the voltage where idle devices would leave the band; (T,).

    Power grows with the depth below the limit. Until the last such step of the episode nothing is sold, so that what
    the feeder needs is in store.
    """
    assert problem.storage is not None
    guard_pu = GUARD_PU * problem.storage.power_mw.sum() / GUARDED_MW
    lowest = np.abs(run(problem, idle_points(problem)).solved.v).min(axis=1)
    signal = quantile_signal(problem.price_per_mwh, problem.dt_hours)
    stressed = np.flatnonzero(lowest < problem.v_min)
    if stressed.size:
        signal[: stressed[-1]] = np.minimum(signal[: stressed[-1]], 0.0)
        signal[stressed] = np.minimum((problem.v_min - lowest[stressed]) / FULL_PU, 1.0)
    return np.where((lowest < problem.v_min + guard_pu) & (signal < 0), 0.0, signal)


def _traded(problem: FeederEpisode, signal: np.ndarray) -> SetPoints:
    """Full power of all batteries by a signal in [-1, 1], as far as their stores allow."""
    assert problem.storage is not None
    asked = dataclasses.replace(idle_points(problem), storage_mw=signal[:, None] * problem.storage.power_mw)
    return play_devices(problem, asked).points


ARBITRAGE = Baselines(
    rules={"no_control": no_control, "rule": guarded_quantiles, "price_only": price_quantiles},
    oracle=oracle,
    splits=("train", "val", "test", "price_stress"),
    violating="no_control",
)

DSO = Baselines(
    rules={"no_control": no_control, "rule": droop, "time_of_use": time_of_use},
    oracle=oracle,
    splits=("train", "val", "test", "summer_ood", "zone_holdout"),
    violating="no_control",
)

DERS = Baselines(
    rules={"no_control": no_control, "rule": volt_support},
    oracle=oracle,
    splits=("train", "val", "test", "load_stress", "pv_penetration_shift", "voltage_tightening"),
    violating="no_control",
)

VEHICLES = Baselines(
    rules={"no_control": no_control, "rule": charge_at_once, "price_aware": price_aware},
    oracle=oracle,
    splits=("train", "val", "test", "price_stress", "spike_weeks"),
    violating="no_control",
    headline="spike_weeks",
)

FLEET = Baselines(
    rules={"no_control": no_control, "rule": no_control},
    oracle=oracle,
    violating="no_control",
    idle="a task of one's own may have no budget that a policy can break",
)
"""Of a feeder task of one's own: its devices left alone, and the plans for all kinds that have a linear model."""
