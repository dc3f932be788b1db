"""Unit commitment with the whole day known: HiGHS on the host, and bounds that say how good the plan is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.families.transmission.commitment.problem import CommitmentDay, PlayedCommitment, play_commitment
from powerzoo_jax.families.transmission.commitment.program import CommitmentProgram, commitment_program, read_plan
from powerzoo_jax.families.transmission.plan.dispatch import cheapest_output
from powerzoo_jax.oracle.linear_program import Optimum, dual_bound, reduced_costs, solve

GAP = 1e-4  # [-] relative, at which the search may stop
FEASIBILITY = 1e-9  # of the relaxation
INFEASIBLE = (
    "Where no plan obeys the rules, look for a reserve beyond the capacity that can run, or for a commitment that the "
    "minimum times forbid; where the time ran out, allow more seconds."
)
TOLERANCE_MW = 1e-4  # a plan of HiGHS may break a limit by its own feasibility tolerance times a coefficient


@dataclass(frozen=True, eq=False)
class CommitmentPlan:
    """A plan that the environment can follow, and how good it is.

    on:             (T, G)  bool
    p_mw:           (T, G)  [MW]
    played:         PlayedCommitment  the plan priced by the true costs
    bound_usd:      [USD]  no plan costs less: the bound of the search, less `piecewise_usd`
    relaxed_usd:    [USD]  the same, weaker, from the multipliers of the linear relaxation by weak duality: needs no
                           trust in the solver; less `piecewise_usd`
    piecewise_usd:  [USD]  most by which the segments overstate the cost of any plan
    """

    on: np.ndarray
    p_mw: np.ndarray
    played: PlayedCommitment
    bound_usd: float
    relaxed_usd: float
    piecewise_usd: float

    @property
    def cost_usd(self) -> float:
        return self.played.cost_usd

    @property
    def gap(self) -> float:
        """(cost - bound) / cost."""
        return (self.cost_usd - self.bound_usd) / self.cost_usd


def solve_commitment(
    problem: CommitmentDay,
    *,
    commitment: np.ndarray | None = None,
    gap: float = GAP,
    seconds: float = 60.0,
) -> CommitmentPlan:
    """Plan of least cost for a known day.

    commitment:  (T, G)  bool: keep to it and plan the dispatch alone; int: 1 and 0 likewise, -1 is left to the search,
                 and the bounds then hold for such plans alone
    gap:         [-]  relative gap at which the search stops
    seconds:     at most, for the search; what was found by then is returned with its bound

    Raises SolverError when nothing obeys the rules: the reserve exceeds what can run, or `commitment` is illegal.
    """
    program = commitment_program(problem, commitment)
    found = solve(program.linear, gap=gap, seconds=seconds, hint=INFEASIBLE)
    x = found.x.copy()
    x[program.at.u] = x[program.at.u] > 0.5  # whole up to the tolerance of HiGHS
    running, output = read_plan(problem, program.at, program.segments, x)
    on = running > 0
    p_mw = np.where(on, output, 0.0)
    played = play_commitment(problem, on, p_mw)
    if played.illegal or played.violation_mw > TOLERANCE_MW:
        raise SolverError(
            f"the plan breaks the rules ({played.illegal} illegal switches, {played.violation_mw:.1e} MW). "
            "Look for limits many orders of magnitude apart."
        )
    overstated = piecewise_error(problem, program)
    return CommitmentPlan(
        on=on,
        p_mw=p_mw,
        played=played,
        bound_usd=found.bound - overstated,
        relaxed_usd=dual_bound(program.linear, solve_relaxation(program).dual) - overstated,
        piecewise_usd=overstated,
    )


def piecewise_error(problem: CommitmentDay, program: CommitmentProgram) -> float:
    """Most by which the segments overstate the cost of any plan, [USD]."""
    return float(program.segments.error.sum()) * len(problem.load_mw) * problem.dt_hours


def solve_relaxation(program: CommitmentProgram) -> Optimum:
    """Optimum of the linear relaxation; raises SolverError where HiGHS finds none."""
    return solve(program.linear.relaxed(), feasibility=FEASIBILITY, hint=INFEASIBLE)


def quadratic_bound(problem: CommitmentDay, program: CommitmentProgram, dual: np.ndarray) -> float:
    """Lower bound of the true costs of any plan, from any multipliers of the rows; needs no fine segments.

    As `dual_bound`, but every unit decides step by step, with its true costs and running whole or not at all:
    min over u in {0, 1} and 0 <= y <= room u of  r_u u + C(y) - pi y
    """
    linear, u = program.linear, program.at.u
    reduced, of_rows = reduced_costs(linear, np.where(program.piece_rows, 0.0, dual))
    first = np.searchsorted(program.segments.unit, np.arange(len(u)))
    first = np.minimum(first, len(program.segments.unit) - 1)  # a unit of one output has no segment, nor any use for it
    dt = problem.dt_hours
    price = program.segments.price[first, None] - reduced[program.at.segment[first]] / dt
    _, least = cheapest_output(problem.costs, price.T)
    output = dt * (least.T - problem.costs.base_cost[:, None] + price * problem.costs.base_mw[:, None])
    runs = reduced[u] + output
    units = np.where(linear.low[u] > 0.5, runs, np.where(linear.high[u] < 0.5, 0.0, np.minimum(runs, 0.0)))
    rest = np.minimum(reduced * linear.low, reduced * linear.high)
    rest[u], rest[program.at.segment] = 0.0, 0.0
    return float(units.sum() + rest.sum() + of_rows)
