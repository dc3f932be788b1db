"""A day of unit commitment under line ratings, planned by HiGHS in a few passes, and what no plan undercuts.

The linear relaxation settles most switchings; a search over the rest follows. Few ratings bind, so those that a pass
breaks become rows of the next. The plan is then followed as nearly as scores allow; where the sharing of the load
leaves too little room under the ramps or breaks ratings, the day is planned again with slower ramps and more units.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from powerzoo_jax.oracle.commitment.plan import CommitmentPlan, quadratic_bound, solve_commitment, solve_relaxation
from powerzoo_jax.oracle.commitment.problem import CommitmentProblem, Cuts, play_commitment
from powerzoo_jax.oracle.commitment.program import commitment_program
from powerzoo_jax.oracle.transmission.dispatch import System
from powerzoo_jax.oracle.transmission.scoretracking import track

PIECES = 3  # of a unit's cost in a plan; the bound takes the true costs
PASSES = 3  # of the relaxation, each with the ratings that the one before broke
SEARCHES = 8  # at most: a plan that still breaks ratings is no plan
RAMPS = (1.0, 0.9, 0.8, 0.7)  # shares of the ramps that plans are made with
FOLLOWED = 1.01  # [-] of its cost, that following a plan may cost
SPARE_MW = 1.0  # excess over ratings, summed over a day, that following a plan may cost
# relative, and of one search: from 1 % to 0.2 % it takes ten times as long and saves 0.2 % of the cost
GAP, SECONDS = 1e-2, 900.0  # a loaded machine must plan the same
WHOLE = 1e-6  # distance from 0 or 1 at which a switching of the relaxation is settled
KEPT_MW = 1e-2  # excess over a rating that counts as none


class DayPlan(NamedTuple):
    """on (T, G), scores (T, G) in [-1, 1], what they cost [USD], and what no plan undercuts that keeps the ratings."""

    on: np.ndarray
    scores: np.ndarray
    cost_usd: float
    bound_usd: float


def plan_day(system: System, problem: CommitmentProblem) -> DayPlan:
    """Plan a day with its reserve; raises SolverError where HiGHS finds nothing."""
    problem = replace(problem, most_pieces=PIECES)
    best, worth, floor = None, (np.inf, np.inf), -np.inf
    for share in RAMPS:
        more = problem.reserve_mw + (1 - share) * problem.load_mw
        slow = replace(problem, rules=replace(problem.rules, ramp_mw=problem.rules.ramp_mw * share), reserve_mw=more)
        bound, wish, cuts = _relaxed(system, slow)
        # slower ramps allow fewer plans: their bound does not hold for all
        floor = bound if share == 1.0 else floor
        plan = _searched(system, slow, wish, cuts)
        scores, p = track(system, problem, plan.on, plan.p_mw)
        played = play_commitment(problem, plan.on, p)
        excess = max(system.overload(p, problem.load_mw).sum() - SPARE_MW, 0.0)
        if (excess, played.cost_usd) < worth:
            best, worth = DayPlan(plan.on, scores, played.cost_usd, floor), (excess, played.cost_usd)
        if excess == 0.0 and played.cost_usd < FOLLOWED * plan.cost_usd:
            break
    assert best is not None
    return best


def _relaxed(system: System, problem: CommitmentProblem) -> tuple[float, np.ndarray, Cuts | None]:
    """Best bound [USD], switchings that are settled (T, G) as 0 and 1 or else -1, and the ratings that bind."""
    cuts, bound = None, -np.inf
    for _ in range(PASSES):
        program = commitment_program(replace(problem, cuts=cuts))
        x, dual = solve_relaxation(program)
        bound = max(bound, quadratic_bound(problem, program, dual))
        on = x[program.running]
        p = on * problem.costs.base_mw[:, None]
        np.add.at(p, program.segments.unit, x[program.above])
        more = _broken(system, problem, p.T, cuts)
        if more is None:
            break
        cuts = more
    wish = np.where(on < WHOLE, 0, np.where(on > 1 - WHOLE, 1, -1))
    # a unit that is open at one step is open all day: what is settled beside it may hold for the relaxation alone
    return bound, np.where((wish < 0).any(1, keepdims=True), -1, wish).T, cuts


def _searched(system: System, problem: CommitmentProblem, wish: np.ndarray, cuts: Cuts | None) -> CommitmentPlan:
    for _ in range(SEARCHES):
        plan = solve_commitment(replace(problem, cuts=cuts), commitment=wish, gap=GAP, seconds=SECONDS)
        more = _broken(system, problem, plan.p_mw, cuts)
        if more is None:
            break
        cuts = more
    return plan


def _broken(system: System, problem: CommitmentProblem, p_mw: np.ndarray, known: Cuts | None) -> Cuts | None:
    """The known cuts and those that a dispatch (T, G) breaks; None where it breaks no new one."""
    flow = system.flow(p_mw, problem.load_mw)
    step, line = np.nonzero((system.rate_mw > 0) & (np.abs(flow) > system.rate_mw + KEPT_MW))
    sign = np.sign(flow[step, line])
    served = system.of_load[line] * (problem.load_mw[step] - system.shunt_mw)
    new = Cuts(
        step=step,
        of_unit=sign[:, None] * system.of_unit[line],
        of_shed=sign * system.of_load[line],
        most=system.rate_mw[line] + sign * (served - system.fixed_mw[line]),
    )
    if known is None:
        return new if len(step) else None
    old = {(int(t), row.tobytes()) for t, row in zip(known.step, known.of_unit, strict=True)}
    fresh = np.array([(int(t), row.tobytes()) not in old for t, row in zip(step, new.of_unit, strict=True)], bool)
    if not fresh.any():
        return None
    return Cuts(*(np.concatenate([a, b[fresh]]) for a, b in zip(known, new, strict=True)))
