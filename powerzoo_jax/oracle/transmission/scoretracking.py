"""Scores that follow a dispatch as nearly as the sharing of the load allows, step after step under ramps."""

from __future__ import annotations

import numpy as np

from powerzoo_jax.oracle.commitment.problem import CommitmentProblem, host_rules
from powerzoo_jax.oracle.transmission.dispatch import LEAST, MOST, System
from powerzoo_jax.oracle.transmission.policies import shared_scores

LEVELS = 32  # that a step tries
BISECTIONS = 40


def track(
    system: System, problem: CommitmentProblem, on: np.ndarray, wanted_mw: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Follow outputs wanted (T, G) [MW] of the units `on` (T, G): scores (T, G) in [-1, 1] and what they give (T, G).

    Each step takes, of all dispatches that scores reach within its ramps, the nearest one (least squares).
    """
    rules = host_rules(problem.rules)
    was, before = np.asarray(problem.state.on), np.asarray(problem.state.p_mw, np.float64)
    scores, outputs = np.zeros(wanted_mw.shape), np.zeros(wanted_mw.shape)
    for t, running in enumerate(on):
        low, high = output_limits(rules, was, before, running)
        level, p = nearest(wanted_mw[t], low, high, float(problem.load_mw[t]))
        scores[t] = shared_scores(np.array([level]), p[None], low, high)[0]
        outputs[t], was, before = p, running, p
    return scores, outputs


def output_limits(
    rules: dict[str, np.ndarray], was: np.ndarray, before: np.ndarray, on: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Limits (G,) [MW] of a step, see `opf.commit.output_window`."""
    least, most, stays = rules["p_min_mw"], rules["p_max_mw"], was & on
    low = np.where(stays, np.clip(before - rules["ramp_mw"], least, most), least)
    climbed = np.clip(before + rules["ramp_mw"], least, most)
    high = np.where(stays, climbed, np.minimum(rules["start_mw"], most))
    return np.where(on, low, 0.0), np.where(on, high, 0.0)


def nearest(wanted: np.ndarray, low: np.ndarray, high: np.ndarray, load: float) -> tuple[float, np.ndarray]:
    """Level [MW] and dispatch (G,) [MW] nearest to the one wanted."""
    room = high - low
    need = load - low.sum()
    if need <= 0 or need >= room.sum():
        return 1.0, low if need <= 0 else high
    each = need / np.sum(room > 0)
    level = np.geomspace(each / MOST, max(4 * each, room.max()) / LEAST, LEVELS)
    least, most = (low + np.minimum(room, weight * level[:, None]) for weight in (LEAST, MOST))
    able = (least.sum(1) <= load) & (most.sum(1) >= load)
    level, least, most = level[able], least[able], most[able]
    down, up = np.full((2, len(level)), float(np.abs(wanted).max() + high.max()))
    down = -down
    for _ in range(BISECTIONS):
        shift = 0.5 * (down + up)
        below = np.clip(wanted + shift[:, None], least, most).sum(1) < load
        down, up = np.where(below, shift, down), np.where(below, up, shift)
    p = np.clip(wanted + (0.5 * (down + up))[:, None], least, most)
    best = int(np.square(p - wanted).sum(1).argmin())
    return float(level[best]), p[best]
