"""Linear and mixed-integer linear programs: written in blocks of columns and rows, solved by HiGHS, bounded by hand.

    minimise  cost @ x   subject to   row_low <= matrix @ x <= row_high,   low <= x <= high,   some x whole

Any multipliers of the rows give a lower bound (weak duality), so that no oracle has to trust the solver.
Sources: Bertsimas and Tsitsiklis 1997, Introduction to Linear Optimization, section 4.3; Huangfu and Hall 2018,
doi:10.1007/s12532-017-0130-5.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from powerzoo_jax.base.errors import SolverError


class NoPointError(SolverError):
    """A program whose rows and bounds no point satisfies."""


INFEASIBLE = 2  # status of SciPy's interface to HiGHS
Term = tuple[np.ndarray, Any]
"""Columns and their coefficients."""


@dataclass(frozen=True, eq=False)
class LinearProgram:
    """Linear program in n columns and m rows, mixed-integer where columns are whole.

    cost, low, high:    (n,)
    whole:              (n,)  bool
    matrix:             (m, n)  sparse, by rows
    row_low, row_high:  (m,)  equal for an equation, -inf or inf for an open side
    """

    cost: np.ndarray
    low: np.ndarray
    high: np.ndarray
    whole: np.ndarray
    matrix: Any
    row_low: np.ndarray
    row_high: np.ndarray

    def relaxed(self) -> LinearProgram:
        """The same program without whole columns."""
        return replace(self, whole=np.zeros_like(self.whole))


class RowBlock:
    """Sparse rows under construction; a position stands for each row and each column."""

    def __init__(self) -> None:
        self.count = 0
        self._entries: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._low: list[np.ndarray] = []
        self._high: list[np.ndarray] = []

    def rows(self, shape: int | tuple[int, ...], low: Any, high: Any, *terms: Term) -> np.ndarray:
        """Add rows and return their positions, in `shape`; limits and terms broadcast against it, see `put`."""
        at = self.count + np.arange(np.prod(shape, dtype=int)).reshape(shape)
        self._low.append(_spread(low, at.shape))
        self._high.append(_spread(high, at.shape))
        self.count += at.size
        for columns, coefficient in terms:
            self.put(at, columns, coefficient)
        return at

    def put(self, rows: np.ndarray, columns: np.ndarray, coefficient: Any) -> None:
        """Add coefficient * column to rows; the three broadcast, and what meets in one row and column is summed."""
        parts = np.broadcast_arrays(rows, columns, np.asarray(coefficient, np.float64))
        self._entries.append((parts[0].ravel(), parts[1].ravel(), parts[2].ravel()))

    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper limits of the rows, (m,) each."""
        return np.concatenate([np.zeros(0), *self._low]), np.concatenate([np.zeros(0), *self._high])

    def matrix(self, n_column: int) -> Any:
        """The coefficients (m, n), without zeros."""
        from scipy import sparse

        if not self._entries:
            return sparse.csr_matrix((self.count, n_column))
        row, column, value = (np.concatenate(part) for part in zip(*self._entries, strict=True))
        written = sparse.csr_matrix((value, (row, column)), shape=(self.count, n_column))
        written.eliminate_zeros()
        return written


class ProgramWriter(RowBlock):
    """Linear program under construction.

    Example:
        writer = ProgramWriter()
        p = writer.columns(2, cost=[20.0, 30.0], low=0.0, high=[50.0, 80.0])  # output of two units [MW]
        writer.rows(1, 100.0, 100.0, (p[:, None], 1.0))  # serves a load of 100 MW
        cost_usd = solve(writer.program()).objective  # 50 MW * 20 + 50 MW * 30 = 2500
    """

    def __init__(self) -> None:
        super().__init__()
        self.width = 0
        self._columns: list[tuple[np.ndarray, ...]] = []

    def columns(
        self, shape: int | tuple[int, ...], cost: Any, low: Any, high: Any, *, whole: bool = False
    ) -> np.ndarray:
        """Add columns and return their positions, in `shape`; cost and bounds broadcast against it."""
        at = self.width + np.arange(np.prod(shape, dtype=int)).reshape(shape)
        self._columns.append((*(_spread(x, at.shape) for x in (cost, low, high)), np.full(at.size, whole)))
        self.width += at.size
        return at

    def part(self, program: LinearProgram, scale: float = 1.0) -> np.ndarray:
        """Add columns and rows of a linear program, its cost times `scale`, and return the columns, (n,)."""
        columns = self.columns(len(program.cost), scale * program.cost, program.low, program.high)
        rows, entries = self.rows(len(program.row_low), program.row_low, program.row_high), program.matrix.tocoo()
        self.put(rows[entries.row], columns[entries.col], entries.data)
        return columns

    def program(self, *more: RowBlock) -> LinearProgram:
        """The program written so far, and under its rows those of further blocks."""
        from scipy import sparse

        blocks = (self, *more)
        cost, low, high, whole = (np.concatenate(part) for part in zip(*self._columns, strict=True))
        limits = zip(*(block.limits() for block in blocks), strict=True)
        row_low, row_high = (np.concatenate(part) for part in limits)
        matrix = sparse.vstack([block.matrix(self.width) for block in blocks], format="csr")
        return LinearProgram(cost, low, high, whole, matrix, row_low, row_high)


def _spread(value: Any, shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(np.asarray(value, np.float64), shape).ravel()


class Optimum(NamedTuple):
    """Solution of a linear or mixed-integer program, as HiGHS found it.

    x:          (n,)  in the units of the columns
    objective:  cost @ x
    dual:       (m,)  derivatives of the optimum by the limits of the rows: positive where the lower one binds, negative
                where the upper one does; nan for a mixed-integer program, which has none
    bound:      no point costs less, by the solver's word; below `objective` where a search ended at its gap or its time
    """

    x: np.ndarray
    objective: float
    dual: np.ndarray
    bound: float


def solve(
    program: LinearProgram,
    *,
    method: Literal["highs", "highs-ds", "highs-ipm"] = "highs",
    feasibility: float | None = None,
    gap: float = 0.0,
    seconds: float = float("inf"),
    hint: str = "",
) -> Optimum:
    """Least cost by HiGHS.

    method:        of a program without whole columns: HiGHS chooses, dual simplex, or interior point with crossover
    feasibility:   tolerance of rows and reduced costs of such a program; None leaves the 1e-7 of HiGHS
    gap, seconds:  relative gap and time at which a search over whole columns stops
    hint:          what the caller knows about likely causes, for the message of an error

    Raises NoPointError where there is no point, SolverError where HiGHS finds no optimum for another reason.
    """
    empty = np.flatnonzero(program.low > program.high)
    if empty.size:
        raise NoPointError(f"the bounds of column {empty[0]} leave nothing between them. {hint}")
    return _search(program, gap, seconds, hint) if program.whole.any() else _optimum(program, method, feasibility, hint)


def _optimum(program: LinearProgram, method: str, feasibility: float | None, hint: str) -> Optimum:
    from scipy import sparse
    from scipy.optimize import linprog

    equal = program.row_low == program.row_high
    upper, lower = ~equal & np.isfinite(program.row_high), ~equal & np.isfinite(program.row_low)
    names = () if feasibility is None else ("primal_feasibility_tolerance", "dual_feasibility_tolerance")
    found: Any = linprog(
        program.cost,
        A_ub=sparse.vstack([program.matrix[upper], -program.matrix[lower]]),
        b_ub=np.concatenate([program.row_high[upper], -program.row_low[lower]]),
        A_eq=program.matrix[equal],
        b_eq=program.row_low[equal],
        bounds=np.column_stack([program.low, program.high]),
        method=method,
        options=dict.fromkeys(names, feasibility),
    )
    if found.status != 0:
        raise _stopped(found, hint)
    dual, n_upper = np.zeros(len(equal)), int(upper.sum())
    dual[equal] = found.eqlin.marginals
    dual[upper] += found.ineqlin.marginals[:n_upper]
    dual[lower] -= found.ineqlin.marginals[n_upper:]
    return Optimum(np.asarray(found.x), float(found.fun), dual, float(found.fun))


def _search(program: LinearProgram, gap: float, seconds: float, hint: str) -> Optimum:
    from scipy.optimize import Bounds, LinearConstraint, milp

    found = milp(
        program.cost,
        integrality=program.whole.astype(np.int64),
        bounds=Bounds(program.low, program.high),
        constraints=LinearConstraint(program.matrix, program.row_low, program.row_high),
        options={"mip_rel_gap": gap, "time_limit": seconds},
    )
    if found.x is None:
        raise _stopped(found, hint)
    return Optimum(found.x, float(found.fun), np.full(len(program.row_low), np.nan), float(found.mip_dual_bound))


def _stopped(found: Any, hint: str) -> SolverError:
    kind = NoPointError if found.status == INFEASIBLE else SolverError
    return kind(f"HiGHS stopped with status {found.status} ({found.message}). {hint}".rstrip())


def reduced_costs(program: LinearProgram, dual: np.ndarray) -> tuple[np.ndarray, float]:
    """Reduced costs (n,) and the rows' part of the dual objective, for any multipliers (m,) in any unit.

    reduced = cost - matrix' dual,   part = sum_i dual_i row_low_i  or, for dual_i < 0,  dual_i row_high_i

    Multipliers of open sides count as zero.
    """
    side = np.where(dual > 0, program.row_low, program.row_high)
    closed = np.isfinite(side)
    dual = np.where(closed, dual, 0.0)
    return program.cost - program.matrix.T @ dual, float(dual @ np.where(closed, side, 0.0))


def dual_bound(program: LinearProgram, dual: np.ndarray) -> float:
    """Lower bound of a program, whole columns or not, from any multipliers (m,) of its rows, in any unit.

    min over the box of  reduced @ x  +  the rows' part of the dual objective

    True for every `dual`, tight for the optimal one of a linear program: an error of the solver can only widen the gap.
    It is -inf where a column without bound would be worth having.
    """
    reduced, of_rows = reduced_costs(program, dual)
    # not the product with both bounds: 0 times an infinite one is not a number
    best = np.where(reduced > 0, program.low, np.where(reduced < 0, program.high, 0.0))
    return float((reduced * best).sum() + of_rows)
