"""The redispatch of Grid2Op for the tests: the path of a sequential quadratic programme, not its optimum.

minimise sum over ordered units of w (x - target)^2, subject to sum x = total, low <= x <= high.

Units that nobody ordered weigh nothing, so the optimum is not unique, and SLSQP, which Grid2Op calls, stops early:
what it returns depends on its start and on its steps. Those are carried out here: B starts as the identity, the
quadratic programme of a step has a box and one equality, the step is cut back on the l1 merit function, B follows by
Powell's damped BFGS (D. Kraft, A software package for sequential quadratic programming, DFVLR-FB 88-28, 1988).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

MAX_ITERATIONS = 100
RESET_AFTER = 5  # iterations in which an ascent direction only resets B
MAX_CUTS = 10
BISECTIONS = 100
STILL, PULL = 1e-13, 1e-11  # a step, and a multiplier of the wrong sign, that count


class Programme(NamedTuple):
    """Change of dispatch of the units that take part, scaled.

    weight, target, low, high, start: (G,)   ordered: (G,) bool   total: sum of the changes
    objective: divisor of the objective      accuracy: where it stops
    """

    weight: np.ndarray
    ordered: np.ndarray
    target: np.ndarray
    low: np.ndarray
    high: np.ndarray
    total: float
    start: np.ndarray
    objective: float
    accuracy: float


def level(low: np.ndarray, high: np.ndarray, total: float) -> np.ndarray:
    """Point of a box whose entries are one number, clipped, and sum to `total`."""
    a, b = -1e6, 1e6
    for _ in range(BISECTIONS):
        mean = (a + b) / 2
        a, b = (mean, b) if np.clip(mean, low, high).sum() < total else (a, mean)
    return np.clip((a + b) / 2, low, high)


def quadratic_step(
    b: np.ndarray, g: np.ndarray, low: np.ndarray, high: np.ndarray, total: float
) -> tuple[np.ndarray, float, np.ndarray] | None:
    """Solution d of min d'Bd/2 + g'd in a box with sum d = total, its multiplier of the sum and those of the bounds.

    Those of the bounds are positive at the lower and negative at the upper one. None where the box has no such point.
    """
    if low.sum() > total + 1e-12 or high.sum() < total - 1e-12:
        return None
    n, d = len(g), level(low, high, total)
    side = np.where(d <= low, -1, np.where(d >= high, 1, 0))
    price = 0.0
    for _ in range(10 * n + 20):
        free = np.flatnonzero(side == 0)
        slope, move = b @ d + g, np.zeros(n)
        if len(free):
            one = np.ones((len(free), 1))
            system = np.block([[b[np.ix_(free, free)], one], [one.T, np.zeros((1, 1))]])
            found = np.linalg.lstsq(system, np.append(-slope[free], 0.0), rcond=None)[0]
            move[free], price = found[:-1], -found[-1]
        if np.abs(move).max() < STILL:
            if not len(free):
                ends = (slope[side == -1].min(initial=np.inf), slope[side == 1].max(initial=-np.inf))
                price = float(np.mean([x for x in ends if np.isfinite(x)]))
            pull = slope - price
            wrong = np.where(side * pull > PULL, np.abs(pull), 0.0)
            if not wrong.any():
                break
            side[wrong.argmax()] = 0
            continue
        reach = np.full(n, np.inf)
        up, down = (side == 0) & (move > 1e-15), (side == 0) & (move < -1e-15)
        reach[up], reach[down] = ((high - d) / np.where(up, move, 1))[up], ((low - d) / np.where(down, move, 1))[down]
        first = reach.argmin()
        d = d + min(1.0, reach[first]) * move
        if reach[first] < 1:
            side[first] = 1 if move[first] > 0 else -1
            d[first] = high[first] if side[first] > 0 else low[first]
    return d, float(price), np.where(side != 0, b @ d + g - price, 0.0)


def follow(given: Programme) -> np.ndarray | None:
    """Change of dispatch where the path ends, None where a step has no solution."""
    low, high, accuracy = given.low, given.high, given.accuracy
    curvature = np.where(given.ordered, 2 * given.weight / given.objective, 0.0)

    def cost(x: np.ndarray) -> float:
        return float((curvature * (x - given.target) ** 2).sum() / 2)

    def violated(x: np.ndarray) -> np.ndarray:
        return np.concatenate([[abs(x.sum() - given.total)], np.maximum(low - x, 0.0), np.maximum(x - high, 0.0)])

    n, x, b = len(given.start), given.start.copy(), np.eye(len(given.start))
    penalty, f, g = np.zeros(1 + 2 * n), cost(x), curvature * (x - given.target)
    for iteration in range(MAX_ITERATIONS):
        found = quadratic_step(b, g, low - x, high - x, given.total - x.sum())
        if found is None:
            return None
        step, price, bound = found
        dual = np.concatenate([[abs(price)], np.maximum(bound, 0.0), np.maximum(-bound, 0.0)])
        slope, before, f_before = g @ step, x, f
        penalty = np.maximum(dual, (penalty + dual) / 2)
        gap = abs(slope) + dual @ np.concatenate([violated(x)[:1], np.abs(x - low), np.abs(high - x)])
        if gap < accuracy and violated(x).sum() < accuracy:
            break
        merit = f + penalty @ violated(x)
        descent = slope - penalty @ violated(x)
        if descent >= 0:
            b = np.eye(n)
            if iteration > RESET_AFTER:
                break
            continue
        cut = 1.0
        for count in range(MAX_CUTS + 1):
            descent, step = descent * cut, step * cut
            x = before + step
            f = cost(x)
            gain = f + penalty @ violated(x) - merit
            if gain <= descent / 10 or count == MAX_CUTS:
                break
            cut = max(descent / (2 * (descent - gain)), 0.1)
        small = abs(f - f_before) < accuracy or np.linalg.norm(step) < accuracy
        if small and violated(x).sum() < accuracy:
            break
        fresh = curvature * (x - given.target)
        b = damped_update(b, step, fresh - g)
        g = fresh
    return x


def damped_update(b: np.ndarray, step: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Powell's damped BFGS update of B by the change of the Lagrangian's gradient along a step."""
    ahead = b @ step
    along, curved = step @ change, step @ ahead
    if along < 0.2 * curved:
        share = 0.8 * curved / (curved - along)
        change = share * change + (1 - share) * ahead
        along = 0.2 * curved
    return b + np.outer(change, change) / along - np.outer(ahead, ahead) / curved
