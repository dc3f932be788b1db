"""Plan an episode on a feeder: solve a linear programme, run the exact power flow, add tangents where it was wrong.

The network enters as tangent planes of loss and voltage that hold at all injections (`network`), so every programme
relaxes the task: its optimum bounds what any policy can reach, while the played plan is a policy. Both meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.oracle.feeder.feedercuts import Cuts
from powerzoo_jax.oracle.feeder.feederrun import FREE, Outcome, Prices, limit_prices, run
from powerzoo_jax.oracle.feeder.network import Reach, reach_of
from powerzoo_jax.oracle.feeder.problem import FeederProblem, SetPoints, largest_injection
from powerzoo_jax.oracle.feeder.program import FeederProgram, Linear, idle_points

ROUNDS = 40
CLOSE = 1e-3  # of the money at stake: where a plan is good enough
FEASIBILITY = 1e-9


@dataclass(frozen=True, eq=False)
class FeederPlan:
    """A plan that the environment can execute, and how good it is; returns in the unit of the task's reward.

    points:       set-points as delivered
    objective:    return of the plan, with the exact power flow
    violation_pu, overload_mva, missed_mwh: what the plan breaks, summed over the episode
    broken:       the same at the planner's prices
    bound:        no policy whatsoever returns more
    kept_bound:   no policy that breaks voltage band, ratings and departure levels by as little as the plan (in sum, at
                  the planner's prices) returns more; where the plan breaks nothing, no policy that keeps them all
    rounds:       linear programmes solved
    """

    points: SetPoints
    objective: float
    violation_pu: float
    overload_mva: float
    missed_mwh: float
    broken: float
    bound: float
    kept_bound: float
    rounds: int

    @property
    def gap(self) -> float:
        """How far the plan can be from the best one at the planner's prices; >= 0 up to rounding."""
        return self.kept_bound - self.objective


def plan_feeder(problem: FeederProblem, *, rounds: int = ROUNDS) -> FeederPlan:
    """Plan an episode with everything known.

    Raises SolverError when HiGHS or the power flow of a plan fails.
    """
    kept = _improve(problem, limit_prices(problem), rounds)
    free = _improve(problem, FREE, rounds) if kept.limited else kept
    out, scale = kept.best, problem.scale
    return FeederPlan(
        points=out.points,
        objective=scale * out.money_usd,
        violation_pu=out.violation_pu,
        overload_mva=out.overload_mva,
        missed_mwh=out.missed_mwh,
        broken=scale * out.broken_usd,
        bound=scale * free.bound_usd,
        kept_bound=scale * (kept.bound_usd + out.broken_usd),
        rounds=kept.rounds + free.rounds * (free is not kept),
    )


class _Improved(NamedTuple):
    """The best plan found and a bound on every plan, money less broken limits [$]; `limited`: some limit has a row."""

    best: Outcome
    bound_usd: float
    rounds: int
    limited: bool


def _improve(problem: FeederProblem, prices: Prices, rounds: int) -> _Improved:
    """Solve, play, add tangents, until no plan can be much better than the best one played."""
    reach = reach_of(problem.network, largest_injection(problem) / problem.network.base_mva)
    most_loss = _most_loss(problem, reach)
    windfall = problem.dt_hours * np.maximum(-problem.loss_per_mwh, 0)
    program = FeederProgram(problem, prices=prices, most_loss=most_loss)
    cuts, bound, best, count = Cuts(program, reach), np.inf, None, 0
    free = prices == FREE

    def worth(out: Outcome) -> float:
        return out.money_usd - (0.0 if free else out.broken_usd)

    out, outside = run(problem, idle_points(problem)), False
    while count < rounds:
        count += 1
        known = len(cuts.rows)
        cuts.add(out, keep_limits=not free)
        if count > 1 and len(cuts.rows) == known and not outside:
            break  # the same programme again
        linear = program.linear(*cuts.matrix())
        result = solve_linear(linear)
        relaxed, dual = cuts.relaxed(linear, np.asarray(result.ineqlin.marginals))
        ceiling = -program.constant - linear_bound(relaxed, np.asarray(result.eqlin.marginals), dual)
        bound = min(bound, ceiling + float(windfall @ most_loss))
        out, outside = run(problem, program.set_points(result.x)), program.tighten(result.x)
        if best is None or worth(out) > worth(best):
            best = out
        # what the programme promises is with the planner's back-off, and without what losses are paid for
        promised = -program.constant - result.fun + windfall @ best.solved.loss_pu * problem.network.base_mva
        if promised - worth(best) <= CLOSE * max(1.0, abs(best.money_usd)):
            break
    assert best is not None
    limited = problem.vehicles is not None or bool(cuts.slack)
    return _Improved(best, bound, count, limited)


def _most_loss(problem: FeederProblem, reach: Reach) -> np.ndarray:
    """What no step can lose, (T,) [MW]; where the reach is infinite, the injections themselves."""
    most = problem.network.base_mva * (reach.current**2 @ problem.network.r)
    return np.minimum(most, largest_injection(problem).sum(axis=1))


def solve_linear(linear: Linear) -> Any:
    """Run HiGHS; raises SolverError when it does not reach the optimum."""
    from scipy.optimize import linprog

    options = {"primal_feasibility_tolerance": FEASIBILITY, "dual_feasibility_tolerance": FEASIBILITY}
    result = linprog(
        linear.cost,
        A_ub=linear.upper,
        b_ub=linear.most,
        A_eq=linear.equal,
        b_eq=linear.right,
        bounds=np.column_stack([linear.low, linear.high]),
        method="highs",
        options=options,
    )
    if result.status != 0:
        raise SolverError(f"HiGHS stopped with status {result.status} ({result.message}).")
    return result


def linear_bound(linear: Linear, equal_dual: np.ndarray, upper_dual: np.ndarray) -> float:
    """Lower bound of a programme from any multipliers, recomputed by hand: those of `upper` are made <= 0 first.

    min over the box of  cost @ x + y @ (right - equal @ x) + z @ (most - upper @ x),  z <= 0
    """
    z = np.minimum(upper_dual, 0.0)
    reduced = linear.cost - linear.equal.T @ equal_dual - linear.upper.T @ z
    box = np.minimum(reduced * linear.low, reduced * linear.high).sum()
    return float(equal_dual @ linear.right + z @ linear.most + box)
