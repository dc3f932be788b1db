"""Reference policies as `Act`s: random, idle, and plans made for a known day."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from powerzoo_jax.base import Box
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.draw import Draw
from powerzoo_jax.envs.episode import Act
from powerzoo_jax.oracle.lp import Solution, solve_storage
from powerzoo_jax.oracle.problem import Problem, build_problems, play
from powerzoo_jax.tasks.score import SEED, Evaluation, all_starts, evaluate, seeded_starts

BASELINES = ("random", "no_control", "rule", "oracle")
HOURS_PER_DAY = 24
CHEAP, DEAR = 25, 75  # percentiles of the day's hourly prices


class PlanCarry(NamedTuple):
    """Carry of `plan_act`: the step and the actions (T, A, U) of the episode."""

    t: Array
    action: Array


def plan_act(carry: PlanCarry, obs: Array, key: Array) -> tuple[PlanCarry, Array]:
    """Follow a plan made before the episode; the observation is not looked at."""
    del obs, key
    return PlanCarry(carry.t + 1, carry.action), carry.action[carry.t]


def plan_carry(sim: Sim, plans_mw: np.ndarray) -> PlanCarry:
    """Carry of `plan_act` for plans (B, T, G) [MW]: power over rating as actions, leading axis B."""
    space = _box(sim)
    action = plans_mw / np.asarray(sim.params.storage.power_mw, np.float64)
    shaped = np.asarray(action, space.low.dtype).reshape(*plans_mw.shape[:2], *space.shape)
    return PlanCarry(jnp.zeros(len(plans_mw), jnp.int32), jnp.asarray(shaped))


def random_act(sim: Sim) -> Act:
    """Uniform over the action space."""
    space = _box(sim)
    return Partial(_uniform, jnp.asarray(space.low), jnp.asarray(space.high))


def _uniform(low: Array, high: Array, carry: Any, obs: Array, key: Array) -> tuple[Any, Array]:
    del obs
    return carry, jax.random.uniform(key, low.shape, low.dtype, low, high)


def idle_act(sim: Sim) -> Act:
    """No power from any storage."""
    return Partial(_constant, jnp.zeros(_box(sim).shape, _box(sim).low.dtype))


def _constant(action: Array, carry: Any, obs: Array, key: Array) -> tuple[Any, Array]:
    del obs, key
    return carry, action


def rule_plan(problem: Problem) -> np.ndarray:
    """Charge in the cheap hours of a day and discharge in the dear ones, as far as the store allows: (T, G) [MW].

    cheap = at or below the 25th percentile of that day's hourly prices, dear = at or above the 75th
    (linear interpolation); a day with one price stays idle. Days count from the start of the episode.
    """
    price = problem.price_per_mwh
    per_hour = max(1, round(1 / problem.dt_hours))
    per_day = max(1, round(HOURS_PER_DAY / problem.dt_hours))
    signal = np.zeros(len(price))
    for first in range(0, len(price), per_day):
        day = price[first : first + per_day]
        cuts = range(0, len(day), per_hour)
        hourly = np.array([day[k : k + per_hour].mean() for k in cuts])
        low, high = np.percentile(hourly, [CHEAP, DEAR])
        spread = np.repeat(hourly, per_hour)[: len(day)]
        signal[first : first + per_day] = np.where(low == high, 0, (spread >= high) * 1.0 - (spread <= low) * 1.0)
    return play(problem, signal[:, None] * problem.power_mw).p_mw


def solve_starts(sim: Sim, draws: Draw) -> list[Solution]:
    """The oracle's solution of every drawn episode."""
    return [solve_storage(problem) for problem in build_problems(sim, draws)]


def evaluate_plans(sim: Sim, plans_mw: np.ndarray, draws: Draw, **arguments: Any) -> Evaluation:
    """Execute plans (B, T, G) [MW] in the environment, one for each drawn episode; see `evaluate`."""
    return evaluate(sim, plan_act, draws=draws, carry=plan_carry(sim, plans_mw), **arguments)


def evaluate_baseline(
    sim: Sim, name: str, *, n_episodes: int | None = None, seed: int = SEED, draws: Draw | None = None, **arguments: Any
) -> Evaluation:
    """Evaluate "random", "no_control", "rule" or "oracle" on the episodes that `evaluate` would play.

    Raises ValueError for another name.

    Example:
        record = evaluate_baseline(powerzoo_jax.make("battery_arbitrage", split="test"), "oracle")
    """
    if name not in BASELINES:
        raise ValueError(unknown("baseline", name, BASELINES))
    if draws is None:
        draws = all_starts(sim) if n_episodes is None else seeded_starts(sim, n_episodes, seed)
    if name == "random":
        return evaluate(sim, random_act(sim), draws=draws, seed=seed, **arguments)
    return evaluate_plans(sim, _baseline_plans(sim, name, draws), draws, seed=seed, **arguments)


def _baseline_plans(sim: Sim, name: str, draws: Draw) -> np.ndarray:
    """Plans (B, T, G) [MW] of a baseline that does not look at observations: one program runs them all."""
    if name == "oracle":
        return np.stack([solution.plan_mw for solution in solve_starts(sim, draws)])
    if name == "rule":
        return np.stack([rule_plan(problem) for problem in build_problems(sim, draws)])
    return np.zeros((draws.load_row.shape[0], sim.spec.horizon, sim.env.dims.unit))


def _box(sim: Sim) -> Box:
    space = sim.spaces()[1]
    if not isinstance(space, Box):
        raise ValueError(f"task {sim.spec.id!r} has discrete actions; the storage baselines need a Box.")
    return space
