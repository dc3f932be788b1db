"""Unit commitment of a day with units that are alike counted and not told apart, under line ratings, by HiGHS.

Dozens of equal units make a search try the same plan under many names. A fleet of them has one whole number a step, how
many run; where in the network they produce stays continuous, within their limits. Segments understate costs here, by
at most slope h^2 / 8 for each unit that runs and segments of h MW. Both can only lower the cost, so that the bound of
the search holds for every plan. Few ratings bind, and those that a pass breaks become rows of the next.
Source: Knueven, Ostrowski and Watson 2018, doi:10.1109/TPWRS.2017.2783850.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from powerzoo_jax.families.transmission.commitment.problem import CommitmentDay, NetworkCuts, host_rules
from powerzoo_jax.families.transmission.commitment.program import linear_segments, read_plan, write_commitment
from powerzoo_jax.families.transmission.commitment.secure import broken_ratings
from powerzoo_jax.families.transmission.plan.dispatch import DispatchSystem
from powerzoo_jax.oracle.linear_program import Optimum, ProgramWriter, solve

PIECES = 6  # of a unit's cost
RELAXATIONS, SEARCHES = 6, 2  # passes at most, each with the ratings that the one before broke
GAP, SECONDS = 1e-3, 30.0  # relative, and of one search


class FleetPlan(NamedTuple):
    """Plan of a day.

    on:         (T, G)  bool  units that no other is like; False for all others
    bound_usd:  [USD]   no plan costs less, excess over ratings priced, by the word of HiGHS
    """

    on: np.ndarray
    bound_usd: float


def fleet_rows(problem: CommitmentDay) -> tuple[CommitmentDay, np.ndarray]:
    """The day with a row for each fleet, and the row (G,) of each unit: rules, costs and state say who is alike."""
    rules, state = host_rules(problem.rules), problem.state
    told = [*rules.values(), *(getattr(problem.costs, k).T for k in problem.costs._fields), state.on, state.steps]
    facts = np.concatenate([np.atleast_2d(np.asarray(x, np.float64)) for x in told]).T
    _, first, row = np.unique(facts, axis=0, return_index=True, return_inverse=True)
    row = np.asarray(row).reshape(-1)
    count = np.bincount(row).astype(np.float64)
    before = np.bincount(row, np.asarray(state.p_mw, np.float64)) / count

    def pick(x: Any) -> np.ndarray:
        return np.asarray(x)[first]

    day = replace(
        problem,
        rules=jax.tree.map(pick, problem.rules),
        state=jax.tree.map(pick, state).replace(p_mw=before),
        costs=type(problem.costs)(*(pick(x) for x in problem.costs)),
        count=count,
        most_pieces=PIECES,
    )
    # a chord overstates a cost by its error at most: without it, it understates
    understated = day.costs._replace(base_cost=day.costs.base_cost - linear_segments(day).error)
    return replace(day, costs=understated), row


def plan_fleets(system: DispatchSystem, problem: CommitmentDay, excess_usd: float) -> FleetPlan:
    """Plan a day; excess over ratings costs `excess_usd` [USD/MW] in each step, missing reserve as the problem says.

    Raises SolverError where HiGHS finds nothing.
    """
    day, row = fleet_rows(problem)
    cuts = None
    for whole, passes in ((False, RELAXATIONS), (True, SEARCHES)):
        for _ in range(passes):
            found, running, output = _solved(system, day, row, excess_usd, cuts, whole=whole)
            more = broken_ratings(system, day, output, cuts)
            if more is None:
                break
            cuts = more
    alone = day.units[row] == 1
    return FleetPlan((running[:, row] > 0.5) & alone, found.bound)


def _solved(
    system: DispatchSystem,
    day: CommitmentDay,
    row: np.ndarray,
    excess_usd: float,
    cuts: NetworkCuts | None,
    *,
    whole: bool,
) -> tuple[Optimum, np.ndarray, np.ndarray]:
    """Optimum with some ratings, units of each row that run (T, F) and output of each unit (T, G) [MW]."""
    writer = ProgramWriter()
    at, segments, _ = write_commitment(writer, day)
    places, high = np.flatnonzero(day.units[row] > 1), host_rules(day.rules)["p_max_mw"]
    n_step = len(day.load_mw)
    place = writer.columns((len(places), n_step), 0.0, 0.0, high[row[places], None])
    for g in np.unique(row[places]):
        pieces = at.segment[segments.unit == g]
        total = writer.rows(n_step, 0.0, 0.0, (place[row[places] == g], 1.0), (at.u[g], -day.costs.base_mw[g]))
        writer.put(total, pieces, -1.0)
    excess = writer.columns(n_step, excess_usd, 0.0, np.inf)
    alone = day.units[row] == 1
    for t, push, of_shed, most in () if cuts is None else zip(*cuts, strict=True):
        of_row = np.zeros(len(day.units))
        of_row[row[alone]] = push[alone]
        writer.rows(
            1,
            -np.inf,
            most,
            (at.u[:, [t]], (of_row * day.costs.base_mw)[:, None]),
            (at.segment[:, [t]], of_row[segments.unit, None]),
            (place[:, [t]], push[places, None]),
            (at.shed[[t]], of_shed),
            (excess[[t]], -1.0),
        )
    program = writer.program()
    found = solve(program, gap=GAP, seconds=SECONDS) if whole else solve(program.relaxed())
    running, of_rows = read_plan(day, at, segments, found.x)
    output = of_rows[:, row]
    output[:, places] = found.x[place].T
    return found, running, output
