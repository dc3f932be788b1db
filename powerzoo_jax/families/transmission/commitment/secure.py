"""Unit commitment of a day under line ratings, planned by HiGHS in a few passes, and a lower bound of any plan.

The linear relaxation settles most switchings; a search over the rest follows. Few ratings bind, so those that a pass
breaks become rows of the next. The plan is then followed as nearly as scores allow; where the sharing of the load
leaves too little room under the ramps or breaks ratings, the day is planned again with slower ramps and more units.

A priority list that an operator could follow: who may start, who must run on, and what ramps allow are looked at.

Units that may not start yet give no capacity; the list goes on to those that may. Where lines stay overloaded, the
units that relieve the worst line most are started beyond the list: a line that feeds a pocket needs a unit inside it,
and the next ones of the list may all stand outside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from powerzoo_jax.families.transmission.commitment.lagrangian import priority_list
from powerzoo_jax.families.transmission.commitment.plan import (
    CommitmentPlan,
    quadratic_bound,
    solve_commitment,
    solve_relaxation,
)
from powerzoo_jax.families.transmission.commitment.problem import (
    CommitmentDay,
    NetworkCuts,
    host_rules,
    play_commitment,
)
from powerzoo_jax.families.transmission.commitment.program import commitment_program, read_plan
from powerzoo_jax.families.transmission.plan.dispatch import DispatchSystem
from powerzoo_jax.families.transmission.plan.policies import nearest, output_limits, shared_scores, track

MORE = 20  # units started beyond the list against an overload
RAMP_MARGIN = 0.02

Wanted = Callable[[int, float, np.ndarray, np.ndarray], np.ndarray]
"""(step, load, lower, upper limits (G,)) -> outputs (G,) [MW] that the rule would like"""


class _Shared(NamedTuple):
    """A load shared by scores: level [MW], outputs and their limits (G,) [MW], excess over ratings [MW]."""

    level: float
    p: np.ndarray
    low: np.ndarray
    high: np.ndarray
    excess: float


def operate(
    problem: CommitmentDay,
    margin: float,
    wanted: Wanted,
    system: DispatchSystem | None = None,
    planned: np.ndarray | None = None,
    ramp_margin: float = RAMP_MARGIN,
) -> tuple[np.ndarray, np.ndarray]:
    """Commit by the list with a margin [-] over the load, step after step: units on and scores in [-1, 1], (T, G) each.

    system:       at most MORE units are started beyond the list while lines are overloaded; None ignores the network
    planned:      (T, G)  units that run wherever they may; the list adds to them, those that may soonest stop again
                  first, and of those started against an overload the ones that are not needed in the end stay off
    ramp_margin:  [-] of the load, that the outputs reachable in a step must exceed it by
    """
    rules, (order, _) = host_rules(problem.rules), priority_list(problem)
    added = np.ones(len(order), bool)
    if planned is not None:
        order = order[np.argsort(rules["min_up"][order], kind="stable")]
        added = rules["min_up"] == rules["min_up"].min()
    on, p = np.asarray(problem.state.on), np.asarray(problem.state.p_mw, np.float64)
    steps = np.asarray(problem.state.steps).astype(np.int64)
    path, scores = np.zeros((len(problem.load_mw), len(on)), bool), np.zeros((len(problem.load_mw), len(on)))

    def shared(t: int, load: float, on: np.ndarray, p: np.ndarray, run: np.ndarray) -> _Shared:
        low, high = output_limits(rules, on, p, run)
        level, output = nearest(wanted(t, load, low, high), low, high, load)
        return _Shared(level, output, low, high, float(system.overload(output, np.asarray(load))) if system else 0.0)

    for t, load in enumerate(problem.load_mw):
        may = (on | (steps >= rules["min_down"])) & rules["available"]
        _, reach = output_limits(rules, on, p, may)
        run = on & (steps < rules["min_up"])
        if planned is not None:
            run |= planned[t] & may
        for g in order[may[order] & ~run[order]]:
            if rules["p_max_mw"][run].sum() >= (1 + margin) * load and reach[run].sum() >= (1 + ramp_margin) * load:
                break
            run[g] = True
        listed, wider, least = run, run.copy(), np.inf
        for _ in range(MORE + 1):
            tried = shared(t, float(load), on, p, wider)
            excess, output, low = tried.excess, tried.p, tried.low
            if excess < least:
                least, chosen = excess, (wider.copy(), tried)
            spare = np.flatnonzero(may & ~wider & added)
            if excess < KEPT_MW or system is None or not len(spare):
                break
            _, startable = output_limits(rules, on, p, may)
            wider[spare[relief(system, output - low, output, float(load), startable)[spare].argmax()]] = True
        run, taken = chosen
        if planned is not None:
            # the search started whatever relieved the worst line of the moment: who is not needed stays off
            for g in np.flatnonzero(run & ~listed):
                fewer = run.copy()
                fewer[g] = False
                tried = shared(t, float(load), on, p, fewer)
                if tried.excess <= max(taken.excess, KEPT_MW):
                    run, taken = fewer, tried
        p = taken.p
        scores[t] = shared_scores(np.array([taken.level]), p[None], taken.low, taken.high)[0]
        steps, on = np.where(run == on, steps + 1, 1), run
        path[t] = run
    return path, scores


def relief(
    system: DispatchSystem, room_mw: np.ndarray, p_mw: np.ndarray, load: float, startable_mw: np.ndarray
) -> np.ndarray:
    """Flow (G,) [MW] that each unit takes off the line with the largest excess when it gives all that it can.

    room_mw, p_mw:  (G,) [MW]  that running units may go down, and their output: they make room in proportion
    """
    flow = system.flow(p_mw, np.asarray(load))
    worst = int(np.where(system.rate_mw > 0, np.abs(flow) - system.rate_mw, -np.inf).argmax())
    push = np.sign(flow[worst]) * system.of_unit[worst]
    return (push @ room_mw / max(room_mw.sum(), 1e-9) - push) * startable_mw


def by_list(problem: CommitmentDay) -> Wanted:
    """Merit order: the units of the list are filled one after the other, blind to the network."""
    order, _ = priority_list(problem)

    def wanted(_: int, load: float, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        room = (high - low)[order]
        taken = np.clip(load - low.sum() - (np.cumsum(room) - room), 0, room)
        out = low.copy()
        out[order] += taken
        return out

    return wanted


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
    """on (T, G), scores (T, G) in [-1, 1], their cost [USD], and a lower bound for plans that keep the ratings."""

    on: np.ndarray
    scores: np.ndarray
    cost_usd: float
    bound_usd: float


def plan_day(system: DispatchSystem, problem: CommitmentDay) -> DayPlan:
    """Plan a day with its reserve; raises SolverError where HiGHS finds nothing."""
    problem = replace(problem, most_pieces=PIECES)
    best, worth, floor = None, (np.inf, np.inf), -np.inf
    for share in RAMPS:
        more = problem.reserve_mw + (1 - share) * problem.load_mw
        slow = replace(problem, rules=replace(problem.rules, ramp_mw=problem.rules.ramp_mw * share), reserve_mw=more)
        bound, settled, cuts = _relaxed(system, slow)
        # slower ramps allow fewer plans: their bound does not hold for all
        floor = bound if share == 1.0 else floor
        plan = _searched(system, slow, settled, cuts)
        scores, p = track(system, problem, plan.on, plan.p_mw)
        played = play_commitment(problem, plan.on, p)
        excess = max(system.overload(p, problem.load_mw).sum() - SPARE_MW, 0.0)
        if (excess, played.cost_usd) < worth:
            best, worth = DayPlan(plan.on, scores, played.cost_usd, floor), (excess, played.cost_usd)
        if excess == 0.0 and played.cost_usd < FOLLOWED * plan.cost_usd:
            break
    assert best is not None
    return best


def _relaxed(system: DispatchSystem, problem: CommitmentDay) -> tuple[float, np.ndarray, NetworkCuts | None]:
    """Best bound [USD], switchings that are settled (T, G) as 0 and 1 or else -1, and the ratings that bind."""
    cuts, bound = None, -np.inf
    for _ in range(PASSES):
        program = commitment_program(replace(problem, cuts=cuts))
        found = solve_relaxation(program)
        bound = max(bound, quadratic_bound(problem, program, found.dual))
        on, p = read_plan(problem, program.at, program.segments, found.x)
        more = broken_ratings(system, problem, p, cuts)
        if more is None:
            break
        cuts = more
    settled = np.where(on < WHOLE, 0, np.where(on > 1 - WHOLE, 1, -1))
    # a unit that is open at one step is open all day: what is settled beside it may hold for the relaxation alone
    return bound, np.where((settled < 0).any(0), -1, settled), cuts


def _searched(
    system: DispatchSystem, problem: CommitmentDay, settled: np.ndarray, cuts: NetworkCuts | None
) -> CommitmentPlan:
    for _ in range(SEARCHES):
        plan = solve_commitment(replace(problem, cuts=cuts), commitment=settled, gap=GAP, seconds=SECONDS)
        more = broken_ratings(system, problem, plan.p_mw, cuts)
        if more is None:
            break
        cuts = more
    return plan


def broken_ratings(
    system: DispatchSystem, problem: CommitmentDay, p_mw: np.ndarray, known: NetworkCuts | None
) -> NetworkCuts | None:
    """The known cuts and those that a dispatch (T, G) breaks; None where it breaks no new one."""
    flow = system.flow(p_mw, problem.load_mw)
    step, line = np.nonzero((system.rate_mw > 0) & (np.abs(flow) > system.rate_mw + KEPT_MW))
    sign = np.sign(flow[step, line])
    served = system.of_load[line] * (problem.load_mw[step] - system.shunt_mw)
    new = NetworkCuts(
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
    return NetworkCuts(*(np.concatenate([a, b[fresh]]) for a, b in zip(known, new, strict=True)))
