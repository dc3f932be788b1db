"""Reference plans of the data-centre microgrid: baselines by rule, an oracle that plans ahead, and its bound."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from jax import Array

from powerzoo_jax.base.tree import take
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.draw import Draw
from powerzoo_jax.oracle.microgrid.microgridprogram import dispatch_program, relaxed_program, solve
from powerzoo_jax.oracle.microgrid.microgridrule import RULE, SAFE_RULE, Habit, Trail, play_habit
from powerzoo_jax.oracle.microgrid.problem import MicrogridProblem, build_microgrid_problem
from powerzoo_jax.oracle.registry import Foresight, Playbook, Policy, follow
from powerzoo_jax.oracle.storage.bounds import dual_bound
from powerzoo_jax.tasks.microgrid.build import STRESS

NO_CONTROL = (-1.0, -1.0, -1.0, 0.0, -1.0)  # starts nothing, coldest set-point, idle battery, diesel off
MARGIN_MW = 1e-5  # of diesel above the plan: what is not needed is never burnt, and rounding sheds no load
HABITS = (
    RULE,
    Habit(hold_min=60.0),
    Habit(hold_min=120.0),
    Habit(reserve_mw=0.2, hold_min=60.0),
    Habit(reserve_mw=0.1, urgent_train_min=60.0, urgent_fine_min=60.0, hold_min=60.0),
    Habit(reserve_mw=0.0, urgent_train_min=60.0, urgent_fine_min=60.0),
    Habit(reserve_mw=-0.1, urgent_train_min=120.0, urgent_fine_min=120.0, hold_min=60.0),
    # where power is so short that a job costs more than its miss
    Habit(reserve_mw=0.0, urgent_train_min=-inf, urgent_fine_min=inf),
    Habit(reserve_mw=-0.1, urgent_train_min=-inf, urgent_fine_min=inf),
    Habit(reserve_mw=-inf, urgent_train_min=-inf, urgent_fine_min=inf),
    Habit(reserve_mw=0.0, urgent_train_min=-inf, urgent_fine_min=-inf),
    Habit(reserve_mw=-inf, urgent_train_min=-inf, urgent_fine_min=-inf),
)
FINALISTS = 2  # different job plans of an episode that get a programme of their own
SAFE_PRICE_USD = 200.0  # of a miss in the bound of a task that does not price it: more than any job's energy costs


@dataclass(frozen=True, eq=False)
class MicrogridPlan:
    """A plan that the environment can execute.

    action:     (T, 1, 5)  actions of the kernel
    objective:  return of the plan by its programme, in units of the reward
    bound:      no policy returns more (weak duality)
    kept_bound: no policy returns more whose misses keep the sla budget; `bound` itself where misses have a price
    """

    action: np.ndarray
    objective: float
    bound: float
    kept_bound: float


def plan_episodes(sim: Sim, draws: Draw) -> list[MicrogridPlan]:
    """The oracle's plan of every drawn episode.

    Several ways to run the jobs by deadline are played in the environment; the best get a linear programme for
    battery, diesel and cooling with the whole episode known, and the cheapest of these is the plan.
    """
    trails = [_on_host(play_habit(sim, draws, habit)) for habit in HABITS]
    return [_plan(sim, take(draws, i), [take(t, i) for t in trails]) for i in range(draws.load_row.shape[0])]


def _on_host(trail: Trail) -> Trail:
    return Trail(*(np.asarray(x, np.float64) for x in trail))  # type: ignore[arg-type]


def _plan(sim: Sim, drawn: Draw, trails: list[Trail]) -> MicrogridPlan:
    problem = build_microgrid_problem(sim, drawn)
    price = float(sim.params.sla_usd)
    best_value, best_action = -inf, np.zeros(0)
    for trail in _different(sorted(trails, key=lambda t: -_judged(problem, t, price)))[:FINALISTS]:
        program, at = dispatch_program(problem, np.asarray(trail.it_mw))
        x, _ = solve(program)
        value = -float(program.cost @ x) - stored_value(problem) - _job_loss(problem, trail, price)
        if value > best_value:
            best_value, best_action = value, _action(problem, trail, {k: x[i] for k, i in at.items()})
            unpriced = (price - problem.missed_usd) * problem.weight * float(np.sum(trail.missed))
            objective = value + unpriced
    return MicrogridPlan(best_action, objective, *return_bounds(problem, sim.spec.cost_budget[0]))


def _judged(problem: MicrogridProblem, trail: Trail, price: float) -> float:
    """Return of a trail with misses priced, whether or not the task does."""
    return float(trail.total) - (price - problem.missed_usd) * problem.weight * float(np.sum(trail.missed))


def _job_loss(problem: MicrogridProblem, trail: Trail, price: float) -> float:
    backlog = problem.backlog_usd_per_gpu_h * float(trail.backlog_gpu_h)
    return problem.weight * (price * float(np.sum(trail.missed)) + backlog)


def _different(trails: list[Trail]) -> list[Trail]:
    """The first trail of every way to run the jobs: power of the servers tells them apart."""
    kept: list[Trail] = []
    for trail in trails:
        if not any(np.array_equal(trail.it_mw, other.it_mw) for other in kept):
            kept.append(trail)
    return kept


def _action(problem: MicrogridProblem, trail: Trail, plan: dict[str, np.ndarray]) -> np.ndarray:
    """Kernel actions (T, 1, 5): the jobs of the trail, power and set-points of the programme."""
    v = problem.values
    action = np.array(trail.action)
    action[:, 0, 2] = 2 * (plan["set"] - v["set_low_c"]) / (v["set_high_c"] - v["set_low_c"]) - 1
    action[:, 0, 3] = (plan["discharge"] - plan["charge"]) / v["power_mw"]
    action[:, 0, 4] = 2 * (plan["diesel"] + MARGIN_MW) / v["diesel_mw"] - 1
    return np.clip(action, -1, 1)


def return_bounds(problem: MicrogridProblem, budget: float) -> tuple[float, float]:
    """(bound, kept bound) of an episode, from the multipliers of a relaxation, recomputed by hand.

    Where misses have no price, dropping every job pays. For policies whose mean number of misses meets the budget b,
    R <= max(R - w p misses) + w p b  holds for any price p.
    """
    bound = _relaxed_return(problem, problem.missed_usd)
    if problem.missed_usd > 0:
        return bound, bound
    return bound, _relaxed_return(problem, SAFE_PRICE_USD) + problem.weight * SAFE_PRICE_USD * budget


def _relaxed_return(problem: MicrogridProblem, missed_usd: float) -> float:
    program = relaxed_program(problem, missed_usd)
    _, dual = solve(program)
    return -stored_value(problem) - dual_bound(program, dual)


def stored_value(problem: MicrogridProblem) -> float:
    """What the settlement takes off for the energy at the start, in reward; the programmes leave it out."""
    v = problem.values
    start_mwh = v["soc_start"] * v["capacity_mwh"]
    return problem.weight * problem.fuel_usd_per_mwh * start_mwh / v["eta_discharge"]


def _idle(sim: Sim, draws: Draw, keys: Array) -> Policy:
    del keys
    shape = draws.load_row.shape[0], sim.spec.horizon, 1, len(NO_CONTROL)
    return follow(sim, np.broadcast_to(np.asarray(NO_CONTROL), shape))


def _rule(sim: Sim, draws: Draw, keys: Array) -> Policy:
    del keys
    return follow(sim, np.asarray(play_habit(sim, draws, RULE).action))


def _safe_rule(sim: Sim, draws: Draw, keys: Array) -> Policy:
    del keys
    return follow(sim, np.asarray(play_habit(sim, draws, SAFE_RULE).action))


def _foresee(sim: Sim, draws: Draw, keys: Array) -> Foresight:
    del keys
    plans = plan_episodes(sim, draws)
    return Foresight(
        policy=follow(sim, np.stack([plan.action for plan in plans])),
        objective=np.array([plan.objective for plan in plans]),
        bound=np.array([plan.bound for plan in plans]),
        kept_bound=np.array([plan.kept_bound for plan in plans]),
    )


MICROGRID = Playbook(
    rules={"no_control": _idle, "rule": _rule, "safe_rule": _safe_rule},
    foresee=_foresee,
    splits=("train", "val", "test", *STRESS),
    violating="no_control",
    safe="safe_rule",
)
