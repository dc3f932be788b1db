"""Unit decommitment: better and better commitments of a day, one unit replanned at a time beside all others.

Unit g costs V_on(t) - V_off(t) in a step, what the dispatch of all costs with it less what it costs without it; its
best path under minimum times and starts follows by dynamic programming. No step makes the day dearer. Ramps are left
out, and line ratings enter as tolls on outputs, from multipliers of a relaxation.
Source: Tseng, Li and Oren 2000, doi:10.1023/A:1004676812536.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import jax
import numpy as np

from powerzoo_jax.families.transmission.commitment.lagrangian import follow_alone, output_at, plan_alone, priority_list
from powerzoo_jax.families.transmission.commitment.problem import CommitmentDay, host_rules

SWEEPS = 6  # over all units at most
BISECTIONS = 24  # of a price between -surplus_price and voll: 6e-4 USD/MWh
MISSING_USD = 2_000.0  # [USD/MW] of reserve missing in a step


def running_costs(problem: CommitmentDay, on: np.ndarray, toll: np.ndarray) -> np.ndarray:
    """Cost (..., T) [USD] of the steps of commitments (..., T, G) at their cheapest dispatch, tolls and reserve priced.

    toll:  (T, G)  [USD/MWh]  on outputs

    The dual of a dispatch, whose value any price bounds from below and the best one reaches.
    """
    rules, load, dt = host_rules(problem.rules), problem.load_mw, problem.dt_hours
    low, high = np.full((2, *on.shape[:-1]), -problem.surplus_price)
    high = np.full(on.shape[:-1], problem.voll)
    for _ in range(BISECTIONS):
        price = 0.5 * (low + high)
        p, least = output_at(problem, rules, price[..., None] - toll)
        short = np.where(on, p, 0.0).sum(-1) < load
        low, high = np.where(short, price, low), np.where(short, high, price)
    dispatch = price * load + np.where(on, least, 0.0).sum(-1)
    idle = on @ rules["no_load_usd_per_hour"]
    missing = np.maximum(load + problem.reserve_mw - on @ rules["p_max_mw"], 0.0)
    cost: np.ndarray = dt * (dispatch + idle) + MISSING_USD * missing
    return cost


def descend(problem: CommitmentDay, on: np.ndarray, toll: np.ndarray, order: Iterable[int]) -> np.ndarray:
    """Commitment (T, G) no dearer than a legal one `on` (T, G), units replanned in an order until none changes.

    toll:  (T, G)  [USD/MWh]  as in `running_costs`
    """
    rules, on, order = host_rules(problem.rules), on.copy(), list(order)
    for _ in range(SWEEPS):
        changed = False
        for g in order:
            both = np.stack([on, on])
            both[0, :, g], both[1, :, g] = True, False
            with_it, without = running_costs(problem, both, toll)
            path = _path(problem, rules, g, with_it - without)
            changed |= not np.array_equal(path, on[:, g])
            on[:, g] = path
        if not changed:
            break
    return on


def _path(problem: CommitmentDay, rules: dict[str, np.ndarray], g: int, run_usd: np.ndarray) -> np.ndarray:
    """Best path (T,) of one unit that costs run_usd (T,) [USD] in the steps in which it runs."""
    alone = {name: value[g : g + 1] for name, value in rules.items()}
    _, stop, start = plan_alone(run_usd[:, None], alone)
    state = jax.tree.map(lambda leaf: np.asarray(leaf)[g : g + 1], problem.state)
    return follow_alone(replace(problem, state=state), alone, stop, start)[0][:, 0]


def dearest_first(problem: CommitmentDay) -> np.ndarray:
    """Units by falling average cost at full load."""
    return priority_list(problem)[0][::-1]
