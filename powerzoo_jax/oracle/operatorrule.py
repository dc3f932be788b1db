"""A priority list that an operator could follow: who may start, who must run on, and what ramps allow are looked at.

Units that may not start yet give no capacity; the list goes on to those that may.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from powerzoo_jax.oracle.commitmentdual import priority_list
from powerzoo_jax.oracle.commitmentproblem import CommitmentProblem, host_rules
from powerzoo_jax.oracle.dispatchcurve import System
from powerzoo_jax.oracle.scoretracking import nearest, output_limits
from powerzoo_jax.oracle.transmissionbook import shared_scores

MORE, KEPT_MW = 10, 1e-2  # units tried beyond the list against an overload, and what counts as none
RAMP_MARGIN = 0.02  # [-] of the load, that the outputs reachable in a step must exceed it by

Wanted = Callable[[float, np.ndarray, np.ndarray], np.ndarray]
"""(load, lower, upper limits (G,)) -> outputs (G,) [MW] that the rule would like"""


def operate(
    problem: CommitmentProblem, margin: float, wanted: Wanted, system: System | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Commit by the list with a margin [-] over the load, step after step: who runs and scores in [-1, 1], (T, G) each.

    system:  the list goes on while lines are overloaded, for at most MORE units; None ignores the network
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
        spare = [g for g in order[may[order] & ~run[order]]][: MORE if system else 0]
        least = np.inf
        for extra in range(len(spare) + 1):
            wider = run.copy()
            wider[spare[:extra]] = True
            low, high = output_limits(rules, on, p, wider)
            level, output = nearest(wanted(float(load), low, high), low, high, float(load))
            excess = float(system.overload(output, load)) if system else 0.0
            if excess < least:
                least, chosen = excess, (wider, level, output, low, high)
            if excess < KEPT_MW:
                break
        run, level, p, low, high = chosen
        scores[t] = shared_scores(np.array([level]), p[None], low, high)[0]
        steps, on = np.where(run == on, steps + 1, 1), run
        path[t] = run
    return path, scores


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
