"""Least-cost dispatch as a function of the load alone: dispatches that scores can reach, and lower bounds of any.

Loads keep their shares of the buses, so that everything about a step is one number. Programs are solved by HiGHS on a
grid of loads; between two of them a convex combination of their dispatches is feasible, and costs no more than that
combination of their costs. Bounds come from multipliers by weak duality on the true, not the segmented, costs: for
fixed multipliers they are straight lines over the load, and the highest line counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp
from typing import NamedTuple

import numpy as np

from powerzoo_jax.envs.core import Sim
from powerzoo_jax.families.transmission.commitment.problem import running_cost
from powerzoo_jax.opf.allocate import LEAST_SCORE, SHARPNESS
from powerzoo_jax.opf.offers import UnitCosts
from powerzoo_jax.oracle.linear_program import LinearProgram, ProgramWriter, solve

LEAST, MOST = exp(SHARPNESS * LEAST_SCORE), exp(SHARPNESS)  # weights that scores can give
PIECES = 16  # linear pieces of a unit whose marginal cost rises, even: the output that is refined stays an edge
REFINED = 2  # times that they are laid anew around the outputs found, each time an eighth as wide
ROUNDED_MW = 1e-6  # excess over a rating that HiGHS's own tolerance explains
LEVEL_STEP = 1.1  # from one level of scores to the next, where bounds of what they reach are told apart by it
LEAST_STEP_MW = 1e-3  # of a load above the lower limits, for the lowest of these levels
OVERLOAD_USD = 10_000.0  # [USD/MWh] of the largest excess over a rating, where no dispatch keeps them all
BISECTIONS = 60  # of a price between -surplus_price and voll


@dataclass(frozen=True, eq=False)
class DispatchSystem:
    """Units and network of a task on the host, float64; fields as in `TransmissionParams`, limits 0 out of service."""

    low_mw: np.ndarray
    high_mw: np.ndarray
    costs: UnitCosts
    of_unit: np.ndarray
    of_load: np.ndarray
    fixed_mw: np.ndarray
    rate_mw: np.ndarray
    shunt_mw: float
    voll: float
    surplus_price: float

    def flow(self, p_mw: np.ndarray, load_mw: np.ndarray) -> np.ndarray:
        """Flows (..., L) [MW] of a dispatch (..., G) that serves the whole load (...), shunts included."""
        served = np.minimum(load_mw, p_mw.sum(-1)) - self.shunt_mw
        return p_mw @ self.of_unit.T - self.of_load * served[..., None] + self.fixed_mw

    def overload(self, p_mw: np.ndarray, load_mw: np.ndarray) -> np.ndarray:
        """Sum over branches beyond their ratings, (...) [MW]."""
        excess = np.maximum(np.abs(self.flow(p_mw, load_mw)) - self.rate_mw, 0)
        return np.where(self.rate_mw > 0, excess, 0).sum(-1)

    def cost(self, on: np.ndarray, p_mw: np.ndarray, load_mw: np.ndarray) -> np.ndarray:
        """Running units, load not served and surplus, (...) [USD/h]."""
        missing = load_mw - p_mw.sum(-1)
        money = np.where(on, running_cost(self.costs, p_mw), 0).sum(-1)
        return money + self.voll * np.maximum(missing, 0) + self.surplus_price * np.maximum(-missing, 0)


@dataclass(frozen=True, eq=False)
class DispatchCurve:
    """Dispatches that scores can reach, over a rising grid of loads.

    load_mw:   (K,)    [MW]
    p_mw:      (K, G)  [MW]
    level_mw:  (K,)    [MW]  p - low = min(room, level * weight)
    """

    load_mw: np.ndarray
    p_mw: np.ndarray
    level_mw: np.ndarray

    def at(self, load_mw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Dispatch (T, G) and level (T,) of loads (T,) within the grid."""
        k = np.clip(np.searchsorted(self.load_mw, load_mw) - 1, 0, len(self.load_mw) - 2)
        step = self.load_mw[k + 1] - self.load_mw[k]
        share = np.clip((load_mw - self.load_mw[k]) / np.where(step > 0, step, 1), 0, 1)
        p = (1 - share)[:, None] * self.p_mw[k] + share[:, None] * self.p_mw[k + 1]
        return p, (1 - share) * self.level_mw[k] + share * self.level_mw[k + 1]


def host_system(sim: Sim) -> DispatchSystem:
    """The units and the network of a transmission task."""
    params, wide = sim.params, np.float64
    on = np.asarray(params.rules.available)
    offers, factors = params.offers, params.factors
    return DispatchSystem(
        low_mw=np.where(on, np.asarray(params.rules.p_min_mw, wide), 0.0),
        high_mw=np.where(on, np.asarray(params.rules.p_max_mw, wide), 0.0),
        costs=UnitCosts(**{name: np.asarray(getattr(offers, name), wide) for name in UnitCosts._fields}),
        of_unit=np.asarray(factors.of_unit, wide),
        of_load=np.asarray(factors.of_load, wide),
        fixed_mw=np.asarray(factors.fixed, wide),
        rate_mw=np.asarray(params.rate_mw, wide),
        shunt_mw=float(params.shunt_mw),
        voll=float(params.voll),
        surplus_price=float(params.surplus_price),
    )


def reachable(
    system: DispatchSystem,
    on: np.ndarray,
    loads_mw: np.ndarray,
    *,
    scores: bool,
    overload_usd: float | None = None,
) -> DispatchCurve:
    """Least-cost dispatch of the units `on` (G,) bool that keeps the ratings, at loads (K,) [MW], rising.

    scores:        p - low = min(room, level * weight) with weights between LEAST and MOST; False allows every dispatch
    overload_usd:  [USD/MWh] at which each branch may exceed its rating; None keeps them all

    Levels beyond the one at which the first unit is full whatever its score are left out: they narrow the choice.
    Where the ratings cannot be kept the largest excess is least. Raises SolverError when HiGHS stops without a plan.
    """
    plans, levels, watched = [], [], _none(system)
    rules = DispatchRules(scores=scores, soft=True, overload_usd=overload_usd)
    for load in loads_mw:
        found = _solve(system, on, float(load), watched, rules)
        plans.append(found.p_mw)
        levels.append(found.level_mw if scores else 1.0)
        watched = found.watched
    return DispatchCurve(np.asarray(loads_mw, np.float64), np.array(plans), np.array(levels))


@dataclass(frozen=True, eq=False)
class Floor:
    """Lower bounds of the cost [USD/h] that are straight over the load: base (K,) + slope (K,) * load."""

    base: np.ndarray
    slope: np.ndarray

    def at(self, load_mw: np.ndarray) -> np.ndarray:
        """The highest of them at loads (T,), (T,) [USD/h]."""
        return (self.base + self.slope * np.asarray(load_mw)[..., None]).max(-1)


def rated_floor(
    system: DispatchSystem, on: np.ndarray, loads_mw: np.ndarray, overload_usd: float | None = None
) -> Floor:
    """Lower bounds of the cost of units `on` under the ratings, for any dispatch; touched at the loads (K,) [MW].

    overload_usd:  [USD/MWh] paid for what each branch carries beyond its rating; None for dispatches that keep them all
    """
    straight, watched = [], _none(system)
    for load in loads_mw:
        found = support(system, on, float(load), watched, overload_usd)
        straight.append(line_of(system, on, found))
        watched = found.watched
    return Floor(*(np.array(part) for part in zip(*straight, strict=True)))


def support(
    system: DispatchSystem, on: np.ndarray, load_mw: float, watched: np.ndarray, overload_usd: float | None
) -> SolvedLoad:
    """Dispatch of a load whose multipliers give the highest of all lower bounds there, see `line_of`.

    watched:       (L,) bool  branches whose ratings enter at once
    overload_usd:  as in `rated_floor`

    At a price pi the excess adds (pi - a - b) excess to the Lagrangian, a and b the multipliers of both sides of a
    rating: it is left out where a + b <= pi, which multipliers that are larger by rounding are scaled down to.
    """
    found = _solve(system, on, load_mw, watched, DispatchRules(scores=False, soft=False, overload_usd=overload_usd))
    both = found.upper + found.lower
    over = (overload_usd is not None) & (both > (overload_usd or 0.0))
    fits = np.where(over, (overload_usd or 0.0) / np.where(over, both, 1.0), 1.0)
    return found._replace(upper=fits * found.upper, lower=fits * found.lower)


@dataclass(frozen=True, eq=False)
class ReachedFloor:
    """Lower bounds of the cost of dispatches that scores reach: one `Floor` for each interval of their level.

    least_mw, most_mw: (I,)  [MW]  output of all units at the lower and at the upper limits of an interval
    """

    floors: tuple[Floor, ...]
    least_mw: np.ndarray
    most_mw: np.ndarray

    def at(self, load_mw: np.ndarray) -> np.ndarray:
        """The lowest over the intervals that can serve loads (T,), (T,) [USD/h]; -inf where none can."""
        able = (self.least_mw <= load_mw[:, None] + ROUNDED_MW) & (load_mw[:, None] - ROUNDED_MW <= self.most_mw)
        each = np.stack([floor.at(load_mw) for floor in self.floors], axis=1)
        return np.where(able.any(1), np.where(able, each, np.inf).min(1), -np.inf)


def reached_floor(system: DispatchSystem, on: np.ndarray, loads_mw: np.ndarray, overload_usd: float) -> ReachedFloor:
    """Lower bounds of the cost of what scores reach, p - low = min(room, level * weight), at loads (K,) [MW], rising.

    overload_usd:  [USD/MWh] paid for what each branch carries beyond its rating
    """
    floors, least, most = [], [], []
    for box in level_boxes(system, on, loads_mw[0], loads_mw[-1]):
        lightest, heaviest = np.clip([box.low_mw.sum(), box.high_mw.sum()], loads_mw[0], loads_mw[-1])
        touched = loads_mw[(lightest <= loads_mw) & (loads_mw <= heaviest)]
        touched = touched if touched.size else np.array([(lightest + heaviest) / 2])
        floors.append(rated_floor(box, on, touched, overload_usd))
        least.append(box.low_mw.sum())
        most.append(box.high_mw.sum())
    return ReachedFloor(tuple(floors), np.array(least), np.array(most))


def level_boxes(system: DispatchSystem, on: np.ndarray, least_mw: float, most_mw: float) -> Iterator[DispatchSystem]:
    """The system once for each interval of the level of scores that can serve a load between two [MW].

    Where the level lies between two values, outputs lie between the smallest weight of the lower one and the largest
    of the upper one: a box, whose bounds are those of free dispatch. The intervals cover all levels.
    """
    low = np.where(on, system.low_mw, 0.0)
    room = np.where(on, system.high_mw, 0.0) - low
    first = max(least_mw - low.sum(), LEAST_STEP_MW) / MOST / max(int((room > 0).sum()), 1)
    count = 2 + int(np.ceil(np.log(max(room.max() / LEAST / first, 1.0)) / np.log(LEVEL_STEP)))
    edges = np.concatenate([[0.0], first * LEVEL_STEP ** np.arange(count), [np.inf]])
    for lower, upper in pairwise(edges):
        box = low + np.minimum(room, LEAST * lower), low + np.minimum(room, MOST * upper)
        if box[0].sum() <= most_mw and least_mw <= box[1].sum():
            yield _within(system, *box)


def _within(system: DispatchSystem, low_mw: np.ndarray, high_mw: np.ndarray) -> DispatchSystem:
    """The system with narrower limits (G,) [MW] of its units; what they cost at the lower one is paid as a whole."""
    costs = system.costs
    start = costs.base_mw[:, None] + np.cumsum(costs.width_mw, 1) - costs.width_mw
    since, until = (np.clip(x[:, None] - start, 0, costs.width_mw) for x in (low_mw, high_mw))
    narrowed = UnitCosts(
        base_mw=low_mw,
        base_cost=running_cost(costs, low_mw),
        width_mw=until - since,
        price=costs.price + costs.slope * since,
        slope=costs.slope,
    )
    return replace(system, low_mw=low_mw, high_mw=high_mw, costs=narrowed)


def free_floor(system: DispatchSystem, on: np.ndarray, loads_mw: np.ndarray) -> np.ndarray:
    """Lower bound of the dispatch cost of the units `on` (C, G), ratings ignored, (C, T) [USD/h] at loads (T,) [MW].

    max over a price of  price * load + sum of min over each unit of (cost - price * output), by bisection
    """
    low = np.full((len(on), len(loads_mw)), -system.surplus_price)
    high = np.full_like(low, system.voll)
    for _ in range(BISECTIONS):
        price = 0.5 * (low + high)
        p, _ = cheapest_output(system.costs, price[..., None])
        short = np.where(on[:, None], p, 0).sum(-1) < loads_mw
        low, high = np.where(short, price, low), np.where(short, high, price)
    _, least = cheapest_output(system.costs, low[..., None])
    return low * loads_mw + np.where(on[:, None], least, 0).sum(-1)


def cheapest_output(costs: UnitCosts, price: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Output (..., G) [MW] that minimises cost less price (..., G) times output, and that minimum [USD/h]."""
    above = price[..., None] - costs.price
    rising = costs.slope > 0
    x = np.where(rising, above / np.where(rising, costs.slope, 1.0), np.where(above > 0, costs.width_mw, 0.0))
    x = np.clip(x, 0, costs.width_mw)
    least = costs.base_cost - price * costs.base_mw + ((0.5 * costs.slope * x - above) * x).sum(-1)
    return costs.base_mw + x.sum(-1), least


def _none(system: DispatchSystem) -> np.ndarray:
    return np.zeros(len(system.rate_mw), bool)


class SolvedLoad(NamedTuple):
    """Dispatch of a load under the ratings that it had to heed.

    p_mw:          (G,)  [MW]
    level_mw:      [MW]  as in `DispatchCurve`; 0 where scores do not bind
    price:         multiplier of the balance [USD/MWh]
    upper, lower:  (L,)  multipliers >= 0 of both sides of the ratings
    watched:       (L,)  bool  branches with such rows
    """

    p_mw: np.ndarray
    level_mw: float
    price: float
    upper: np.ndarray
    lower: np.ndarray
    watched: np.ndarray


class DispatchRules(NamedTuple):
    """Rules of a dispatch: what it may do.

    scores:        as in `reachable`
    soft:          no more is shed or spilled than must be, and where the ratings cannot be kept the largest excess is
                   least; False allows what bounds need
    overload_usd:  as in `reachable`; given, every branch pays for its own excess
    """

    scores: bool
    soft: bool
    overload_usd: float | None


def _solve(
    system: DispatchSystem, on: np.ndarray, load: float, watched: np.ndarray, rules: DispatchRules
) -> SolvedLoad:
    """Least-cost dispatch of a load; raises SolverError where HiGHS finds none.

    Few ratings bind: those of `watched` enter at once, others when a solution breaks them. Where marginal costs rise
    the pieces are refined around the solution, which never costs more for it: outputs found remain edges of pieces.
    """
    low, high = (np.where(on, x, 0.0) for x in (system.low_mw, system.high_mw))
    curved = system.costs.slope.any() or system.costs.width_mw.shape[1] > 1
    edges, width = np.linspace(low, high, 1 + (PIECES if curved else 1), axis=1), (high - low) / PIECES
    refined = REFINED if curved else 0
    while True:
        program, at = _program(system, on, load, edges, watched, rules)
        found = solve(program, method="highs-ds", hint=f"The load was {load:.1f} MW.")
        p = low + found.x[at.piece].sum(1)
        shed, _, excess, level = found.x[at.rest]
        flow = system.of_unit @ p - system.of_load * (load - system.shunt_mw - shed) + system.fixed_mw
        broken = (system.rate_mw > 0) & (np.abs(flow) > system.rate_mw + excess + ROUNDED_MW) & ~watched
        if not broken.any() and refined:
            edges, width, refined = _edges_around(p, width, low, high), 2 * width / PIECES, refined - 1
        elif not broken.any():
            upper, lower = np.zeros((2, len(watched)))
            upper[watched], lower[watched] = np.maximum(-found.dual[at.sides], 0.0)
            return SolvedLoad(p, float(level), float(found.dual[at.balance]), upper, lower, watched)
        watched = watched | broken


def _edges_around(p_mw: np.ndarray, reach_mw: np.ndarray, low_mw: np.ndarray, high_mw: np.ndarray) -> np.ndarray:
    """Edges (G, PIECES + 3) [MW]: narrow pieces within a reach (G,) of outputs (G,), a wide one on each side."""
    near = p_mw[:, None] + reach_mw[:, None] * np.linspace(-1, 1, PIECES + 1)
    return np.clip(np.column_stack([low_mw, near, high_mw]), low_mw[:, None], high_mw[:, None])


class _Places(NamedTuple):
    """Where things stand in the program of a load.

    piece:    (G, S)  columns of the pieces of units
    rest:     (4,)    columns of unserved load, surplus, excess over the ratings, level of the scores
    balance:  row
    sides:    (2, W)  rows of both sides of the ratings of watched branches
    """

    piece: np.ndarray
    rest: np.ndarray
    balance: int
    sides: np.ndarray


def _program(
    system: DispatchSystem, on: np.ndarray, load: float, edges: np.ndarray, watched: np.ndarray, rules: DispatchRules
) -> tuple[LinearProgram, _Places]:
    """Linear program of a load with costs straight between edges (G, S + 1) [MW], and where things stand in it."""
    low, high = (np.where(on, x, 0.0) for x in (system.low_mw, system.high_mw))
    room = high - low
    step = np.diff(edges, axis=1)
    rise = np.diff(np.stack([running_cost(system.costs, p) for p in edges.T], axis=1), axis=1)
    price = np.where(step > 0, rise / np.where(step > 0, step, 1), 0.0)
    served, least_room = load - system.shunt_mw, room[room > 0].min(initial=np.inf)
    # the rules of the environment shed and spill only what no output can mend
    most = (max(load - high.sum(), 0.0), max(low.sum() - load, 0.0)) if rules.soft else (max(served, 0.0), low.sum())
    priced = rules.overload_usd is not None
    excess_and_level = (
        np.inf if rules.soft and not priced else 0.0,
        least_room / LEAST if rules.scores and np.isfinite(least_room) else 0.0,
    )
    writer = ProgramWriter()
    piece = writer.columns(price.shape, price, 0.0, step)
    rest_usd = system.voll, system.surplus_price, OVERLOAD_USD, 0.0
    rest = writer.columns(4, rest_usd, 0.0, (*most, *excess_and_level))
    shed, spill, excess, level = rest
    flow = (system.of_unit @ low - system.of_load * served + system.fixed_mw)[watched]
    of_unit, of_load, rate = system.of_unit[watched], system.of_load[watched], system.rate_mw[watched]
    own = writer.columns(len(rate), rules.overload_usd or 0.0, 0.0, np.inf if priced else 0.0)
    sides = np.zeros((2, len(rate)), np.int64)
    for k, sign in enumerate((1.0, -1.0)):
        terms = (shed, sign * of_load), (excess, -1.0), (own, -1.0)
        sides[k] = writer.rows(len(rate), -np.inf, rate - sign * flow, *terms)
        writer.put(sides[k][:, None, None], piece, sign * of_unit[..., None])
    if rules.scores:
        # least weight * level <= output above the lower limit <= most weight * level
        for sign, weight in ((1.0, -MOST), (-1.0, LEAST)):
            shared = writer.rows(int((room > 0).sum()), -np.inf, 0.0, (level, weight))
            writer.put(shared[:, None], piece[room > 0], sign)
    need = load - low.sum()
    balance = writer.rows(1, need, need, (piece.reshape(-1, 1), 1.0), (shed, 1.0), (spill, -1.0))
    return writer.program(), _Places(piece, rest, balance[0], sides)


def line_of(system: DispatchSystem, on: np.ndarray, found: SolvedLoad) -> tuple[float, float]:
    """Base [USD/h] and slope [USD/MWh] over the load of the bound that the multipliers of a dispatch give.

    L = sum min_p (C - (y - H' mu) p) + min (voll - y + mu h) shed + min (s + y) spill + y D
        + mu (f_0 - h (D - shunt)) - (a + b) rate,   mu = a - b, h the flow per MW of load
    """
    price, upper, lower = found.price, found.upper, found.lower
    mu = upper - lower
    _, least = cheapest_output(system.costs, price - system.of_unit.T @ mu)
    per_load = float(mu @ system.of_load)
    shed = min(system.voll - price + per_load, 0.0)
    spill = min(system.surplus_price + price, 0.0) * np.where(on, system.low_mw, 0).sum()
    base = float(np.where(on, least, 0).sum() + spill + mu @ system.fixed_mw - (upper + lower) @ system.rate_mw)
    return base + (per_load - shed) * system.shunt_mw, price - per_load + shed
