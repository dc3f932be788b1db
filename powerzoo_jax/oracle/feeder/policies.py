"""Playbooks of the feeder tasks: their rules, and the planner executed in the environment."""

from __future__ import annotations

import dataclasses

import numpy as np
from jax import Array

from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.draw import Draw
from powerzoo_jax.oracle.baselines import idle_action, quantile_signal
from powerzoo_jax.oracle.feeder import rules
from powerzoo_jax.oracle.feeder.episode import action_batch, build_feeder_problems
from powerzoo_jax.oracle.feeder.feederrun import run
from powerzoo_jax.oracle.feeder.plan import FeederPlan, plan_feeder
from powerzoo_jax.oracle.feeder.problem import FeederProblem, SetPoints, play_devices
from powerzoo_jax.oracle.feeder.program import idle_points
from powerzoo_jax.oracle.registry import Foresight, Playbook, Policy, follow

GUARD_PU = 0.025  # what charging takes from the lowest voltage at most: so far above the limit the rule charges
GUARDED_MW = 0.6  # batteries of which it takes as much; more of them take more
FULL_PU = 0.01  # [pu] below the limit, without control, at which the rule discharges all batteries in full


def foresee(sim: Sim, draws: Draw, keys: Array) -> Foresight:
    """Plan every drawn episode and follow the plans."""
    problems = build_feeder_problems(sim, draws, keys)
    plans: list[FeederPlan] = [plan_feeder(problem) for problem in problems]
    return Foresight(
        policy=follow(sim, action_batch(sim, problems, [plan.points for plan in plans])),
        objective=np.array([plan.objective for plan in plans]),
        bound=np.array([plan.bound for plan in plans]),
        kept_bound=np.array([plan.kept_bound for plan in plans]),
    )


def no_control(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Every device left alone, as a plan: one compiled program then plays it and all other plans."""
    del keys
    action = idle_action(sim)
    return follow(sim, np.broadcast_to(action, (draws.load_row.shape[0], sim.spec.horizon, *action.shape)))


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


def guarded_signal(problem: FeederProblem) -> np.ndarray:
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


def _traded(problem: FeederProblem, signal: np.ndarray) -> SetPoints:
    """Full power of all batteries by a signal in [-1, 1], as far as their stores allow."""
    assert problem.storage is not None
    asked = dataclasses.replace(idle_points(problem), storage_mw=signal[:, None] * problem.storage.power_mw)
    return play_devices(problem, asked).points


ARBITRAGE = Playbook(
    rules={"no_control": no_control, "rule": guarded_quantiles, "price_only": price_quantiles},
    foresee=foresee,
    splits=("train", "val", "test", "price_stress"),
    violating="no_control",
)

DSO = Playbook(
    rules={"no_control": no_control, "rule": rules.droop, "time_of_use": rules.time_of_use},
    foresee=foresee,
    splits=("train", "val", "test", "summer_ood", "zone_holdout"),
    violating="no_control",
)

DERS = Playbook(
    rules={"no_control": no_control, "rule": rules.volt_support},
    foresee=foresee,
    splits=("train", "val", "test", "load_stress", "pv_penetration_shift", "voltage_tightening"),
    violating="no_control",
)

VEHICLES = Playbook(
    rules={"no_control": no_control, "rule": rules.charge_at_once, "price_aware": rules.price_aware},
    foresee=foresee,
    splits=("train", "val", "test", "price_stress"),
    violating="no_control",
)
