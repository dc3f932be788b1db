"""Unit commitment of a few units that may be switched at will: exact, by dynamic programming over who runs."""

from __future__ import annotations

import itertools

import numpy as np

from powerzoo_jax.opf.commit import CommitmentRules
from powerzoo_jax.oracle.commitment.problem import host_rules

MOST_UNITS = 8  # 2^8 combinations, and as many squared to switch between


def combinations(rules: CommitmentRules) -> np.ndarray:
    """Every choice of units that run (C, G) bool; the last one is all that are available.

    Raises ValueError for more than eight units, and for rules under which a step depends on more than who ran before.
    """
    wide = host_rules(rules)
    on = wide["available"]
    held = np.maximum(wide["min_up"], wide["min_down"]) > 1
    ramped = np.minimum(wide["ramp_mw"], wide["start_mw"]) < wide["p_max_mw"]
    if on.sum() > MOST_UNITS or (on & (held | ramped | np.isfinite(wide["stop_mw"]))).any():
        raise ValueError(
            f"{int(on.sum())} units, or units with minimum times or ramps, are too much for paths. "
            "Use solve_commitment or relax_commitment."
        )
    every = np.array(list(itertools.product([False, True], repeat=len(on))))
    return every[(every <= on).all(1)]


def switching_costs(rules: CommitmentRules, sets: np.ndarray) -> np.ndarray:
    """Cost [USD] of going from each combination to each other, (C, C)."""
    wide = host_rules(rules)
    before, after = sets[:, None, :], sets[None, :, :]
    return (after & ~before) @ wide["startup_usd"] + (before & ~after) @ wide["shutdown_usd"]


def cheapest_path(stage: np.ndarray, switching: np.ndarray, first: int) -> tuple[np.ndarray, float]:
    """Combinations (T,) of least total cost, and that cost; stage (C, T) [USD] of a step, `first` ran before it."""
    cost = switching[first] + stage[:, 0]
    came = []
    for step in stage.T[1:]:
        total = cost[:, None] + switching
        came.append(total.argmin(0))
        cost = total.min(0) + step
    path = [int(cost.argmin())]
    for back in reversed(came):
        path.append(int(back[path[-1]]))
    return np.array(path[::-1]), float(cost.min())
