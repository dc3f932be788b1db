"""Perfect-foresight storage plans with SciPy's HiGHS: a linear programme, exclusive steps only where it needs them.

Bounds that need no trust in the solver: weak duality recomputed in NumPy from the multipliers it returned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import SolverError, listing
from powerzoo_jax.oracle.storage.problem import Branch, Program, StorageEpisode, branches, play, storage_program

Duals = Mapping[Branch, np.ndarray]
"""Multipliers (T + 1,) of the equations of each branch."""


@dataclass(frozen=True)
class Certificate:
    """Profit of a plan and an upper bound of any plan's profit, both recomputed by hand.

    profit_usd:  [$]  the plan played forward
    bound_usd:   [$]  no feasible plan earns more
    """

    profit_usd: float
    bound_usd: float

    @property
    def gap_usd(self) -> float:
        return self.bound_usd - self.profit_usd


def dual_bound(program: Program, dual: np.ndarray) -> float:
    """Lower bound [$] of a programme from any multipliers (m,) of its equations.

    min over the box of  cost @ x + dual @ (right - equal @ x)
      = dual @ right + sum_j min(r_j low_j, r_j high_j),   r = cost - equal' dual

    True for every `dual`, tight for the optimal one: an error of the solver can only widen the gap.
    """
    reduced = program.cost - program.equal.T @ dual
    return float(dual @ program.right + np.minimum(reduced * program.low, reduced * program.high).sum())


def profit_bound(problem: StorageEpisode, unit: int, duals: Duals) -> float:
    """Largest profit [$] that one battery could reach: the best branch, each bounded by its multipliers.

    Raises ValueError when a branch has no multipliers: the bound would miss the plans that end on that side.
    """
    missing = [b for b in branches(problem) if b not in duals]
    if missing:
        raise ValueError(f"battery {unit} has no multipliers for branch {missing[0]!r}. Solve every branch first.")
    return max(-dual_bound(storage_program(problem, unit, b), duals[b]) for b in branches(problem))


def certify(problem: StorageEpisode, plan_mw: np.ndarray, duals: Sequence[Duals]) -> Certificate:
    """Audit a plan (T, G) [MW] against the multipliers of every battery; padded batteries are skipped."""
    real = [unit for unit, yes in enumerate(problem.mask) if yes]
    return Certificate(
        profit_usd=float(play(problem, plan_mw).profit_usd.sum()),
        bound_usd=float(sum(profit_bound(problem, unit, duals[unit]) for unit in real)),
    )


FEASIBILITY = 1e-10  # of HiGHS; its default 1e-7 MWh would show as energy that the battery does not have
EXECUTABLE_USD = 1e-6  # a netted plan that earns this much less than its programme has lost something to overlap


@dataclass(frozen=True, eq=False)
class Solution:
    """A plan that the environment can execute, and how good it is.

    plan_mw:    (T, G)  [MW]  power into the bus, 0 where masked
    objective:  [$]  profit of the plan, recomputed from it
    bound:      [$]  no plan earns more (weak duality, see `bounds`)
    status:     "optimal"
    integer:    True where a linear programme would have charged and discharged in one step
    duals:      one mapping a battery, branch -> multipliers; empty for padding
    """

    plan_mw: np.ndarray
    objective: float
    bound: float
    status: str
    integer: bool
    duals: tuple[Duals, ...]

    @property
    def gap(self) -> float:
        """Bound less objective [$]: 0 up to rounding for a linear programme."""
        return self.bound - self.objective


def solve_storage(problem: StorageEpisode) -> Solution:
    """Plan that earns most with the whole episode known; batteries take prices and are independent.

    Raises SolverError when an input is not finite or HiGHS does not reach the optimum.
    """
    _check_finite(problem)
    plan = np.zeros((len(problem.price_per_mwh), len(problem.mask)))
    duals: list[Duals] = [{} for _ in problem.mask]
    integer = False
    for unit in np.flatnonzero(problem.mask):
        plan[:, unit], duals[unit], exclusive = _solve_unit(problem, int(unit))
        integer |= exclusive
    # rounding is removed by playing the plan, so that the env clips nothing of it
    plan = play(problem, plan).p_mw
    certificate = certify(problem, plan, duals)
    return Solution(plan, certificate.profit_usd, certificate.bound_usd, "optimal", integer, tuple(duals))


def _solve_unit(problem: StorageEpisode, unit: int) -> tuple[np.ndarray, Duals, bool]:
    """Best plan (T,) of one battery, multipliers of every branch, and whether exclusive steps were needed."""
    plans, duals, integer = [], {}, False
    for branch in branches(problem):
        program = storage_program(problem, unit, branch)
        relaxed = _highs(program)
        duals[branch] = np.asarray(relaxed.eqlin.marginals)
        net = _net(relaxed.x, program)
        if _profit(problem, unit, net) < -relaxed.fun - EXECUTABLE_USD:
            net, integer = _net(_highs(_exclusive(program), whole=True).x, program), True
        plans.append(net)
    return max(plans, key=lambda net: _profit(problem, unit, net)), duals, integer


def _net(x: np.ndarray, program: Program) -> np.ndarray:
    horizon = len(program.right) - 1
    return x[horizon : 2 * horizon] - x[:horizon]


def _profit(problem: StorageEpisode, unit: int, net: np.ndarray) -> float:
    command = np.zeros((len(net), len(problem.mask)))
    command[:, unit] = net
    return float(play(problem, command).profit_usd[unit])


def _exclusive(program: Program) -> dict[str, Any]:
    """The programme with one binary z a step: charge <= P z, discharge <= P (1 - z)."""
    from scipy import sparse

    horizon, n = len(program.right) - 1, len(program.cost)
    eye, rating = sparse.eye(horizon), sparse.diags(program.high[:horizon])
    rest = sparse.csr_matrix((horizon, n - 2 * horizon))
    none = sparse.csr_matrix((horizon, horizon))
    upper = sparse.vstack(
        [sparse.hstack([eye, none, rest, -rating]), sparse.hstack([none, eye, rest, rating])], format="csc"
    )
    return {
        "c": np.concatenate([program.cost, np.zeros(horizon)]),
        "A_ub": upper,
        "b_ub": np.concatenate([np.zeros(horizon), program.high[:horizon]]),
        "A_eq": sparse.hstack([program.equal, sparse.csr_matrix((horizon + 1, horizon))], format="csc"),
        "b_eq": program.right,
        "bounds": np.column_stack(
            [np.concatenate([program.low, np.zeros(horizon)]), np.concatenate([program.high, np.ones(horizon)])]
        ),
        "integrality": np.concatenate([np.zeros(n), np.ones(horizon)]),
    }


def _highs(program: Program | dict[str, Any], *, whole: bool = False) -> Any:
    """Run HiGHS: the dual simplex, or branch and bound down to a zero gap."""
    from scipy.optimize import linprog

    if isinstance(program, Program):
        arguments: dict[str, Any] = {
            "c": program.cost,
            "A_eq": program.equal,
            "b_eq": program.right,
            "bounds": np.column_stack([program.low, program.high]),
        }
    else:
        arguments = program
    options: dict[str, Any] = {
        "primal_feasibility_tolerance": FEASIBILITY,
        "dual_feasibility_tolerance": FEASIBILITY,
    }
    if whole:
        options = {"mip_rel_gap": 0.0}
    result = linprog(method="highs" if whole else "highs-ds", options=options, **arguments)
    if result.status != 0:
        raise SolverError(
            f"HiGHS stopped with status {result.status} ({result.message}). A battery can always stay idle, so look "
            "for a start outside the band or for prices many orders of magnitude apart."
        )
    return result


def _check_finite(problem: StorageEpisode) -> None:
    bad = np.flatnonzero(~np.isfinite(problem.price_per_mwh))
    if len(bad):
        raise SolverError(f"the price is not finite at step {listing(bad)}. Repair the series before planning on it.")
    outside = (problem.soc_start < problem.soc_min) | (problem.soc_start > problem.soc_max)
    if (outside & problem.mask).any() or not np.isfinite(problem.mean_price_per_mwh):
        raise SolverError("the start lies outside the operating band, or the mean price is not finite.")
