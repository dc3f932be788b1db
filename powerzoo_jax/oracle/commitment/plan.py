"""Unit commitment with the whole day known: SciPy's HiGHS on the host, and bounds that say how good the plan is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.oracle.commitment.problem import CommitmentDay, PlayedCommitment, play_commitment
from powerzoo_jax.oracle.commitment.program import MixedProgram, commitment_program, read_plan
from powerzoo_jax.oracle.transmission.dispatch import cheapest_output

GAP = 1e-4  # [-] relative, at which the search may stop
FEASIBILITY = 1e-9  # of the relaxation
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
    from scipy.optimize import Bounds, LinearConstraint, milp

    program = commitment_program(problem, commitment)
    if np.any(program.low > program.high):
        raise SolverError(_INFEASIBLE)
    found = milp(
        program.cost,
        integrality=program.whole.astype(np.int64),
        bounds=Bounds(program.low, program.high),
        constraints=LinearConstraint(program.rows, program.row_low, program.row_high),
        options={"mip_rel_gap": gap, "time_limit": seconds},
    )
    if found.x is None:
        reason = _INFEASIBLE if found.status == 2 else f"HiGHS stopped without a plan ({found.message})."
        raise SolverError(reason)
    on, p_mw = read_plan(problem, program, found.x)
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
        bound_usd=float(found.mip_dual_bound) - overstated,
        relaxed_usd=relaxation_bound(program, relaxation_duals(program)) - overstated,
        piecewise_usd=overstated,
    )


_INFEASIBLE = (
    "no plan obeys the rules. Look for a reserve beyond the capacity that can run, or for a commitment that the "
    "minimum times forbid."
)


def piecewise_error(problem: CommitmentDay, program: MixedProgram) -> float:
    """Most by which the segments overstate the cost of any plan, [USD]."""
    return float(program.segments.error.sum()) * len(problem.load_mw) * problem.dt_hours


def relaxation_duals(program: MixedProgram) -> np.ndarray:
    """Multipliers (R,) of the rows of the linear relaxation, by HiGHS; positive where a lower limit binds."""
    return solve_relaxation(program)[1]


def solve_relaxation(program: MixedProgram) -> tuple[np.ndarray, np.ndarray]:
    """Solution (n,) and multipliers (R,) of the linear relaxation; raises SolverError where HiGHS finds none."""
    from scipy import sparse
    from scipy.optimize import linprog

    equal = program.row_low == program.row_high
    upper, lower = ~equal & np.isfinite(program.row_high), ~equal & np.isfinite(program.row_low)
    rows = program.rows.tocsr()
    found: Any = linprog(
        program.cost,
        A_ub=sparse.vstack([rows[upper], -rows[lower]]),
        b_ub=np.concatenate([program.row_high[upper], -program.row_low[lower]]),
        A_eq=rows[equal],
        b_eq=program.row_low[equal],
        bounds=np.column_stack([program.low, program.high]),
        method="highs",
        options={"primal_feasibility_tolerance": FEASIBILITY, "dual_feasibility_tolerance": FEASIBILITY},
    )
    if found.status != 0:
        raise SolverError(f"HiGHS stopped on the relaxation with status {found.status} ({found.message}).")
    dual = np.zeros(len(program.row_low))
    dual[equal] = found.eqlin.marginals
    n_upper = int(upper.sum())
    dual[upper] += found.ineqlin.marginals[:n_upper]
    dual[lower] -= found.ineqlin.marginals[n_upper:]
    return np.asarray(found.x), dual


def relaxation_bound(program: MixedProgram, dual: np.ndarray) -> float:
    """Lower bound of the linear relaxation, from any multipliers of its rows (weak duality).

    sum_j min over the box of (c - A' y)_j x_j  +  sum_i y_i row_low_i or, for y_i < 0, y_i row_high_i
    """
    dual, at = _row_term(program, dual)
    reduced = program.cost - program.rows.T @ dual
    return float(np.minimum(reduced * program.low, reduced * program.high).sum() + at)


def quadratic_bound(problem: CommitmentDay, program: MixedProgram, dual: np.ndarray) -> float:
    """Lower bound of the true costs of any plan, from any multipliers of the rows; needs no fine segments.

    As `relaxation_bound`, but every unit decides step by step, with its true costs and running whole or not at all:
    min over u in {0, 1} and 0 <= y <= room u of  r_u u + C(y) - pi y
    """
    dual, at = _row_term(program, np.where(program.piece_rows, 0.0, dual))
    reduced = program.cost - program.rows.T @ dual
    first = np.searchsorted(program.segments.unit, np.arange(len(program.running)))
    first = np.minimum(first, len(program.segments.unit) - 1)  # a unit of one output has no segment, nor any use for it
    dt = problem.dt_hours
    price = program.segments.price[first, None] - reduced[program.above[first]] / dt
    _, least = cheapest_output(problem.costs, price.T)
    output = dt * (least.T - problem.costs.base_cost[:, None] + price * problem.costs.base_mw[:, None])
    runs = reduced[program.running] + output
    low, high = program.low[program.running], program.high[program.running]
    units = np.where(low > 0.5, runs, np.where(high < 0.5, 0.0, np.minimum(runs, 0.0)))
    rest = np.minimum(reduced * program.low, reduced * program.high)
    rest[program.running], rest[program.above] = 0.0, 0.0
    return float(units.sum() + rest.sum() + at)


def _row_term(program: MixedProgram, dual: np.ndarray) -> tuple[np.ndarray, float]:
    """Multipliers without those of open sides, and the term of the rows in the dual objective."""
    open_side = (dual > 0) & ~np.isfinite(program.row_low) | (dual < 0) & ~np.isfinite(program.row_high)
    dual = np.where(open_side, 0.0, dual)
    at = np.where(dual > 0, program.row_low, np.where(dual < 0, program.row_high, 0.0))
    return dual, float(dual @ at)
