"""A priority list that an operator could follow: who may start, who must run on, and what ramps allow are looked at.

Units that may not start yet give no capacity; the list goes on to those that may. Where lines stay overloaded, the
units that relieve the worst line most are started beyond the list: a line that feeds a pocket needs a unit inside it,
and the next ones of the list may all stand outside.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from powerzoo_jax.oracle.commitment.lagrangian import priority_list
from powerzoo_jax.oracle.commitment.problem import CommitmentProblem, host_rules
from powerzoo_jax.oracle.transmission.dispatch import System
from powerzoo_jax.oracle.transmission.policies import shared_scores
from powerzoo_jax.oracle.transmission.scoretracking import nearest, output_limits

MORE, KEPT_MW = 20, 1e-2  # units started beyond the list against an overload, and what counts as none
RAMP_MARGIN = 0.02  # [-] of the load, that the outputs reachable in a step must exceed it by

Wanted = Callable[[float, np.ndarray, np.ndarray], np.ndarray]
"""(load, lower, upper limits (G,)) -> outputs (G,) [MW] that the rule would like"""


def operate(
    problem: CommitmentProblem, margin: float, wanted: Wanted, system: System | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Commit by the list with a margin [-] over the load, step after step: who runs and scores in [-1, 1], (T, G) each.

    system:  at most MORE units are started beyond the list while lines are overloaded; None ignores the network
    """
    rules, (order, _) = host_rules(problem.rules), priority_list(problem)
    on, p = np.asarray(problem.state.on), np.asarray(problem.state.p_mw, np.float64)
    steps = np.asarray(problem.state.steps).astype(np.int64)
    path, scores = np.zeros((len(problem.load_mw), len(on)), bool), np.zeros((len(problem.load_mw), len(on)))
    for t, load in enumerate(problem.load_mw):
        may = (on | (steps >= rules["min_down"])) & rules["available"]
        _, reach = output_limits(rules, on, p, may)
        run = on & (steps < rules["min_up"])
        for g in order[may[order] & ~run[order]]:
            if rules["p_max_mw"][run].sum() >= (1 + margin) * load and reach[run].sum() >= (1 + RAMP_MARGIN) * load:
                break
            run[g] = True
        wider, least = run.copy(), np.inf
        for _ in range(MORE + 1):
            low, high = output_limits(rules, on, p, wider)
            level, output = nearest(wanted(float(load), low, high), low, high, float(load))
            excess = float(system.overload(output, load)) if system else 0.0
            if excess < least:
                least, chosen = excess, (wider.copy(), level, output, low, high)
            spare = np.flatnonzero(may & ~wider)
            if excess < KEPT_MW or system is None or not len(spare):
                break
            _, startable = output_limits(rules, on, p, may)
            wider[spare[relief(system, output - low, output, float(load), startable)[spare].argmax()]] = True
        run, level, p, low, high = chosen
        scores[t] = shared_scores(np.array([level]), p[None], low, high)[0]
        steps, on = np.where(run == on, steps + 1, 1), run
        path[t] = run
    return path, scores


def relief(system: System, room_mw: np.ndarray, p_mw: np.ndarray, load: float, startable_mw: np.ndarray) -> np.ndarray:
    """Flow (G,) [MW] that each unit takes off the line with the largest excess when it gives all that it can.

    room_mw, p_mw:  (G,) [MW]  that running units may go down, and their output: they make room in proportion
    """
    flow = system.flow(p_mw, np.asarray(load))
    worst = int(np.where(system.rate_mw > 0, np.abs(flow) - system.rate_mw, -np.inf).argmax())
    push = np.sign(flow[worst]) * system.of_unit[worst]
    return (push @ room_mw / max(room_mw.sum(), 1e-9) - push) * startable_mw


def by_list(problem: CommitmentProblem) -> Wanted:
    """Merit order: the units of the list are filled one after the other, blind to the network."""
    order, _ = priority_list(problem)

    def wanted(load: float, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        room = (high - low)[order]
        taken = np.clip(load - low.sum() - (np.cumsum(room) - room), 0, room)
        out = low.copy()
        out[order] += taken
        return out

    return wanted
