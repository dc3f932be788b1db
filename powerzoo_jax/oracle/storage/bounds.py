"""Bounds that need no trust in the solver: weak duality recomputed in NumPy from the multipliers it returned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from powerzoo_jax.oracle.storage.problem import Problem, play
from powerzoo_jax.oracle.storage.program import Branch, Program, branches, storage_program

Duals = Mapping[Branch, np.ndarray]
"""Multipliers (T + 1,) of the equations of each branch."""


@dataclass(frozen=True)
class Certificate:
    """A plan's profit and what no plan can exceed, both recomputed by hand.

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


def profit_bound(problem: Problem, unit: int, duals: Duals) -> float:
    """Largest profit [$] that one battery could reach: the best branch, each bounded by its multipliers.

    Raises ValueError when a branch has no multipliers: the bound would miss the plans that end on that side.
    """
    missing = [b for b in branches(problem) if b not in duals]
    if missing:
        raise ValueError(f"battery {unit} has no multipliers for branch {missing[0]!r}. Solve every branch first.")
    return max(-dual_bound(storage_program(problem, unit, b), duals[b]) for b in branches(problem))


def certify(problem: Problem, plan_mw: np.ndarray, duals: Sequence[Duals]) -> Certificate:
    """Audit a plan (T, G) [MW] against the multipliers of every battery; padded batteries are skipped."""
    real = [unit for unit, yes in enumerate(problem.mask) if yes]
    return Certificate(
        profit_usd=float(play(problem, plan_mw).profit_usd.sum()),
        bound_usd=float(sum(profit_bound(problem, unit, duals[unit]) for unit in real)),
    )
