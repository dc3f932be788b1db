"""Reference policies as `Act`s: random, idle, and plans made for a known day."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from powerzoo_jax.base import Box
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.random import uniform_between
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import Act
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.feeder.arbitrage.plan import Solution, solve_storage
from powerzoo_jax.families.feeder.arbitrage.problem import StorageEpisode, build_problems, play
from powerzoo_jax.oracle.clock_plan import trivial_policy
from powerzoo_jax.oracle.registry import (
    Baselines,
    OraclePlan,
    PlanCarry,
    Policy,
    follow,
    get_baselines,
    get_causal,
    plan_act,
)
from powerzoo_jax.tasks.score import SEED, Evaluation, all_starts, episode_keys, evaluate, seeded_starts

RANDOM, RULE, CAUSAL, TRIVIAL = "random", "rule", "causal", "trivial"
BASELINES = (RANDOM, "no_control", RULE, "oracle")
HOURS_PER_DAY = 24
CHEAP, DEAR = 25, 75  # percentiles of the day's hourly prices


def plan_carry(sim: Sim, plans_mw: np.ndarray) -> PlanCarry:
    """Carry of `plan_act` for plans (B, T, G) [MW]: power over rating as actions, leading axis B."""
    carry: PlanCarry = follow(sim, plan_actions(sim, plans_mw)).carry
    return carry


def plan_actions(sim: Sim, plans_mw: np.ndarray) -> np.ndarray:
    """Kernel actions (B, T, A, U) of plans (B, T, G) [MW]."""
    action = plans_mw / np.asarray(sim.params.storage.power_mw, np.float64)
    return action.reshape(*plans_mw.shape[:2], *_box(sim).shape)


def random_act(sim: Sim) -> Act:
    """Uniform over the action space."""
    space = _box(sim)
    return Partial(_uniform, jnp.asarray(space.low), jnp.asarray(space.high))


def _uniform(low: Array, high: Array, carry: Any, obs: Array, key: Array) -> tuple[Any, Array]:
    del obs
    return carry, uniform_between(key, low.shape, low, high, low.dtype)


def idle_act(sim: Sim) -> Act:
    """Leave every device alone: no power from storage, nothing curtailed, shed or deferred."""
    return Partial(_constant, jnp.asarray(idle_action(sim)))


def idle_action(sim: Sim) -> np.ndarray:
    """The action (A, U) that leaves every device alone."""
    space = _box(sim)
    action = np.zeros(space.shape, space.low.dtype)
    layout = getattr(sim.env, "layout", None)
    if layout is not None:
        for block in layout.table.blocks:
            low, high = np.asarray(block.low), np.asarray(block.high)
            kernel, width = (np.asarray(block.idle) - (high + low) / 2) / ((high - low) / 2), len(block.names)
            for unit, first in zip(block.units, block.first, strict=True):
                row, column = (unit, 0) if layout.per_device else (0, first)
                action[row, column : column + width] = kernel
    return action


def _constant(action: Array, carry: Any, obs: Array, key: Array) -> tuple[Any, Array]:
    del obs, key
    return carry, action


def rule_plan(problem: StorageEpisode) -> np.ndarray:
    """Charge in the cheap hours of a day and discharge in the dear ones, as far as the store allows: (T, G) [MW].

    cheap = at or below the 25th percentile of that day's hourly prices, dear = at or above the 75th
    (linear interpolation); a day with one price stays idle. Days count from the start of the episode.
    """
    signal = quantile_signal(problem.price_per_mwh, problem.dt_hours)
    return play(problem, signal[:, None] * problem.power_mw).p_mw


def quantile_signal(price: np.ndarray, dt_hours: float) -> np.ndarray:
    """+1 in the dear steps of each day, -1 in the cheap ones, 0 between; price and result (T,)."""
    per_hour = max(1, round(1 / dt_hours))
    per_day = max(1, round(HOURS_PER_DAY / dt_hours))
    signal = np.zeros(len(price))
    for first in range(0, len(price), per_day):
        day = price[first : first + per_day]
        cuts = range(0, len(day), per_hour)
        hourly = np.array([day[k : k + per_hour].mean() for k in cuts])
        low, high = np.percentile(hourly, [CHEAP, DEAR])
        spread = np.repeat(hourly, per_hour)[: len(day)]
        signal[first : first + per_day] = np.where(low == high, 0, (spread >= high) * 1.0 - (spread <= low) * 1.0)
    return signal


def solve_starts(sim: Sim, draws: Draw) -> list[Solution]:
    """The oracle's solution of every drawn episode."""
    return [solve_storage(problem) for problem in build_problems(sim, draws)]


def evaluate_plans(sim: Sim, plans_mw: np.ndarray, draws: Draw, **arguments: Any) -> Evaluation:
    """Execute plans (B, T, G) [MW] in the environment, one for each drawn episode; see `evaluate`."""
    return evaluate(sim, plan_act, draws=draws, carry=plan_carry(sim, plans_mw), **arguments)


def evaluate_baseline(
    sim: Sim, name: str, *, n_episodes: int | None = None, seed: int = SEED, draws: Draw | None = None, **arguments: Any
) -> Evaluation:
    """Evaluate "random", "no_control", "rule", "oracle" or another policy of the task's baselines.

    Beside them "causal" is its planner without foresight, see `get_causal`, and "trivial" the best policy that looks at
    no observation, see `oracle.trivial`.

    The episodes are those that `evaluate` would play with the same arguments.
    Raises ValueError for another name, or a task without baselines.

    Example:
        record = evaluate_baseline(powerzoo_jax.make("battery_arbitrage", split="test"), "oracle")
    """
    _require_baseline(sim, name)
    if draws is None:
        draws = all_starts(sim) if n_episodes is None else seeded_starts(sim, n_episodes, seed)
    policy = baseline_policy(sim, name, draws, episode_keys(seed, draws.load_row.shape[0]))
    return evaluate(sim, policy.act, draws=draws, seed=seed, carry=policy.carry, **arguments)


def baseline_policy(sim: Sim, name: str, draws: Draw, keys: Array) -> Policy:
    """Baseline of a task for drawn episodes: an Act, and its carry with leading axis B.

    name:   as in `evaluate_baseline`, which plays the policy; errors likewise
    draws:  Draw with leading axis B
    keys:   (B,) one PRNG key an episode [-]
    """
    book = _require_baseline(sim, name)
    if name == "random":
        return Policy(random_act(sim))
    if name == "oracle":
        return book.foresee(sim, draws, keys).policy
    if name == CAUSAL:
        return get_causal(sim.spec.id)(sim, draws, keys)
    if name == TRIVIAL:
        return trivial_policy(sim, draws)
    return book.rules[name](sim, draws, keys)


def _require_baseline(sim: Sim, name: str) -> Baselines:
    """Baselines of a task, where one of them has the name."""
    book = get_baselines(sim.spec.id)
    known = (*book.names, CAUSAL, TRIVIAL)
    if name not in known:
        raise ValueError(unknown("baseline", name, known))
    return book


def _idle_plans(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Idle as a plan: one program then runs all baselines that look at no observation."""
    del keys
    return Policy(plan_act, plan_carry(sim, np.zeros((draws.load_row.shape[0], sim.spec.horizon, sim.env.dims.unit))))


def _rule(sim: Sim, draws: Draw, keys: Array) -> Policy:
    del keys
    return Policy(plan_act, plan_carry(sim, np.stack([rule_plan(problem) for problem in build_problems(sim, draws)])))


def _foresee(sim: Sim, draws: Draw, keys: Array) -> OraclePlan:
    del keys
    solutions = solve_starts(sim, draws)
    bound = np.array([s.bound for s in solutions])
    return OraclePlan(
        policy=Policy(plan_act, plan_carry(sim, np.stack([s.plan_mw for s in solutions]))),
        objective=np.array([s.objective for s in solutions]),
        bound=bound,
        kept_bound=bound,
    )


BATTERY = Baselines(
    rules={"no_control": _idle_plans, "rule": _rule},
    foresee=_foresee,
    splits=("train", "val", "test", "price_stress"),
)


def _box(sim: Sim) -> Box:
    space = sim.spaces()[1]
    if not isinstance(space, Box):
        raise ValueError(f"task {sim.spec.id!r} has a discrete action space; these policies command powers.")
    return space
