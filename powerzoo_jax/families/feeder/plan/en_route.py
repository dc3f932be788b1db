"""Branch and bound over the trips of vehicles: none buys energy en route that its battery still has.

Each trip either ends with an empty battery, or nothing is bought on it. The linear program knows neither, and where
power is dearer than energy bought en route it sells what the trips need. Both cases are linear programs, whose
multipliers bound them.

Source: Land and Doig 1960, doi:10.2307/1910129.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

import numpy as np

from powerzoo_jax.families.feeder.plan.program import Arrivals
from powerzoo_jax.oracle.linear_program import LinearProgram, NoPointError, Optimum

MOST_CASES = 400
SMALL_MWH = 1e-7  # bought, and left above the least


class TripCase(NamedTuple):
    """Linear program in which some trips are settled, its optimum, and the most money by its multipliers [$]."""

    linear: LinearProgram
    found: Optimum
    bound: float


def settle_trips(
    whole: TripCase,
    arrivals: Arrivals,
    solve_case: Callable[[LinearProgram, float], TripCase],
    worth: Callable[[np.ndarray], float],
    close: float,
) -> TripCase:
    """The case whose plan, as played, is worth most, with a bound of all cases in place of its own.

    whole:       no trip settled
    solve_case:  of a linear program and the bound of the case it is part of, for it holds there too
    worth:       of the plan that a solution stands for, as played [$]
    close:       where the search may stop [$]

    Raises SolverError where HiGHS fails.
    """
    order = count()  # equal bounds: the older case first
    best, most = whole, worth(whole.found.x)
    waiting = [(-whole.bound, next(order), whole)]
    for _ in range(MOST_CASES):
        if not waiting or waiting[0][2].bound <= most + close:
            break
        trip = _sold(arrivals, waiting[0][2])
        if trip is None:
            break  # a plan for real, whose worth the bound misses by what else is relaxed
        parent = heapq.heappop(waiting)[2]
        for linear in _ways(parent.linear, arrivals, trip):
            try:
                case = solve_case(linear, parent.bound)
            except NoPointError:
                continue
            heapq.heappush(waiting, (-case.bound, next(order), case))
            if (value := worth(case.found.x)) > most:
                best, most = case, value
    return best._replace(bound=max([most, *(case.bound for _, _, case in waiting)]))


def _sold(arrivals: Arrivals, case: TripCase) -> int | None:
    """The trip that buys most energy en route of what its battery has; None where none does."""
    bought = case.found.x[arrivals.bought]
    spare = case.linear.matrix[arrivals.left] @ case.found.x - case.linear.row_low[arrivals.left]
    both = np.minimum(bought, spare)
    trip = int(np.argmax(both))
    return trip if both[trip] > SMALL_MWH else None


def _ways(linear: LinearProgram, arrivals: Arrivals, trip: int) -> tuple[LinearProgram, LinearProgram]:
    """The program with nothing bought on a trip, and with an empty battery at its end."""
    column, row = arrivals.bought[trip], arrivals.left[trip]
    high, row_high = linear.high.copy(), linear.row_high.copy()
    high[column], row_high[row] = linear.low[column], linear.row_low[row]
    return dataclasses.replace(linear, high=high), dataclasses.replace(linear, row_high=row_high)
