"""Perfect-foresight storage plans: a linear program by HiGHS, with exclusive steps only where it needs them.

Bounds that need no trust in the solver: weak duality recomputed in NumPy from the multipliers it returned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from powerzoo_jax.base.errors import SolverError, listing
from powerzoo_jax.families.feeder.arbitrage.problem import Branch, StorageEpisode, branches, play, storage_program
from powerzoo_jax.oracle.linear_program import Optimum, dual_bound, solve

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


def profit_bound(problem: StorageEpisode, unit: int, duals: Duals) -> float:
    """Largest profit [$] that one battery could reach: the best branch, each bounded by its multipliers.

    Raises ValueError when a branch has no multipliers: the bound would miss the plans that end on that side.
    """
    missing = [b for b in branches(problem) if b not in duals]
    if missing:
        raise ValueError(f"battery {unit} has no multipliers for branch {missing[0]!r}. Solve every branch first.")
    return max(-dual_bound(storage_program(problem, unit, b)[0], duals[b]) for b in branches(problem))


def certify(problem: StorageEpisode, plan_mw: np.ndarray, duals: Sequence[Duals]) -> Certificate:
    """Profit of a plan (T, G) [MW], and the most that any could earn by the multipliers, without padded batteries."""
    real = [unit for unit, yes in enumerate(problem.mask) if yes]
    return Certificate(
        profit_usd=float(play(problem, plan_mw).profit_usd.sum()),
        bound_usd=float(sum(profit_bound(problem, unit, duals[unit]) for unit in real)),
    )


FEASIBILITY = 1e-10  # of HiGHS; its default 1e-7 MWh would show as energy that the battery does not have
EXECUTABLE_USD = 1e-6  # a netted plan that earns this much less than its program has lost something to overlap
ALWAYS_IDLE = (
    "A battery can always stay idle, so look for a start outside the band or for prices many orders of magnitude apart."
)


@dataclass(frozen=True, eq=False)
class Solution:
    """A plan that the environment can execute, and how good it is.

    plan_mw:    (T, G)  [MW]  power into the bus, 0 where masked
    objective:  [$]  profit of the plan, recomputed from it
    bound:      [$]  no plan earns more (weak duality)
    status:     "optimal"
    integer:    True where a linear program would have charged and discharged in one step
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
        """Bound less objective [$]: 0 up to rounding for a linear program."""
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
        net, found = _solve_branch(problem, unit, branch)
        duals[branch] = found.dual
        if _profit(problem, unit, net) < -found.objective - EXECUTABLE_USD:
            net, integer = _solve_branch(problem, unit, branch, exclusive=True)[0], True
        plans.append(net)
    return max(plans, key=lambda net: _profit(problem, unit, net)), duals, integer


def _solve_branch(
    problem: StorageEpisode, unit: int, branch: Branch, *, exclusive: bool = False
) -> tuple[np.ndarray, Optimum]:
    """Net power (T,) of the best plan of a branch, and the optimum that it is read from."""
    program, (charge, discharge) = storage_program(problem, unit, branch, exclusive=exclusive)
    found = solve(program, method="highs-ds", feasibility=FEASIBILITY, hint=ALWAYS_IDLE)
    return found.x[discharge] - found.x[charge], found


def _profit(problem: StorageEpisode, unit: int, net: np.ndarray) -> float:
    command = np.zeros((len(net), len(problem.mask)))
    command[:, unit] = net
    return float(play(problem, command).profit_usd[unit])


def _check_finite(problem: StorageEpisode) -> None:
    bad = np.flatnonzero(~np.isfinite(problem.price_per_mwh))
    if len(bad):
        raise SolverError(f"the price is not finite at step {listing(bad)}. Repair the series before planning on it.")
    outside = (problem.soc_start < problem.soc_min) | (problem.soc_start > problem.soc_max)
    if (outside & problem.mask).any() or not np.isfinite(problem.mean_price_per_mwh):
        raise SolverError("the start lies outside the operating band, or the mean price is not finite.")
