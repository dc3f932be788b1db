"""Energy offers of units: a must-run part and blocks of rising price, from a case or from a bidder."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.errors import CaseError, listing
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.ranges import FINITE, NOT_NEGATIVE, Count, axes, checks_ranges, stored
from powerzoo_jax.cases import Case

PIECEWISE, POLYNOMIAL = 1, 2  # cost models of `UnitTable`
ROUNDED = 1e-3  # a marginal cost that falls by no more than this share comes from cost points with few digits


@struct.dataclass(kw_only=True)
class Offers:
    """K blocks a unit above its minimum output. A quadratic cost is one block whose price rises inside it.

    base_mw:    (G,)    [MW]       minimum output, sold as a whole
    base_cost:  (G,)    [USD/h]    its price as a whole
    width_mw:   (G, K)  [MW]       0 = no such block
    price:      (G, K)  [USD/MWh]  at the start of the block; must not fall from block to block
    slope:      (G, K)  [USD/MWh per MW]  rise inside the block, >= 0
    """

    base_mw: Annotated[Array, FINITE, axes("G")]
    base_cost: Annotated[Array, FINITE, axes("G")]
    width_mw: Annotated[Array, NOT_NEGATIVE, axes("G", "K")]
    price: Annotated[Array, FINITE, axes("G", "K")]
    slope: Annotated[Array, NOT_NEGATIVE, axes("G", "K")]


class UnitCosts(NamedTuple):
    """Convex cost of every unit on the host; fields as in `Offers`."""

    base_mw: np.ndarray
    base_cost: np.ndarray
    width_mw: np.ndarray
    price: np.ndarray
    slope: np.ndarray


def case_offers(case: Case, dtype: Any = None) -> Offers:
    """True costs of a case as offers: one block a unit for a polynomial, one a segment where it is piecewise linear.

    Raises CaseError naming units whose cost is cubic, concave, or not given on [Pmin, Pmax].
    """
    return to_offers(unit_costs(case), dtype)


@checks_ranges("make_cost_segments")
def make_cost_segments(case: Case, n: Count = 5, dtype: Any = None) -> Offers:
    """Offers of n equal blocks on [Pmin, Pmax], each at the marginal cost of its midpoint; Pmin at its true cost.

    Prices that fall from block to block are pooled with their neighbours. Errors as in `case_offers`.
    """
    costs = unit_costs(case)
    width = np.repeat(costs.width_mw.sum(1, keepdims=True) / n, n, 1)
    middle = (np.arange(n) + 0.5) * width
    price = np.array([_pooled(*row) for row in zip(_marginal(costs, middle), width, strict=True)]).reshape(width.shape)
    return to_offers(UnitCosts(costs.base_mw, costs.base_cost, width, price, np.zeros_like(width)), dtype)


def to_offers(costs: UnitCosts, dtype: Any = None) -> Offers:
    """Move host costs to the device."""
    dtype = resolve_dtype(dtype)
    return Offers(**{name: stored(f"offers {name}", value, dtype) for name, value in costs._asdict().items()})


def unit_costs(case: Case) -> UnitCosts:
    """Costs of a case above minimum output; a unit without cost model is free. Errors as in `case_offers`."""
    unit = case.unit
    bad = np.flatnonzero(~np.isfinite(case.unit.p_min_mw) | ~np.isfinite(case.unit.p_max_mw))
    if bad.size:
        raise CaseError(f"{case.name}: {_names(case, bad)} without finite limits. Give Pmin and Pmax in MW.")
    blocks = max([1, *(unit.cost_terms[unit.cost_model == PIECEWISE] - 1).tolist()])
    shape = (case.n_unit, blocks)
    width, price, slope = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    base_cost = np.zeros(case.n_unit)
    quadratic, linear, constant = _polynomial(case)
    for g in range(case.n_unit):
        low, high = _range(case, g)
        if unit.cost_model[g] == PIECEWISE:
            base_cost[g], width[g], price[g] = _segments(case, g, blocks)
        else:
            base_cost[g] = (quadratic[g] * low + linear[g]) * low + constant[g]
            width[g, 0], price[g, 0], slope[g, 0] = high - low, linear[g] + 2 * quadratic[g] * low, 2 * quadratic[g]
    return UnitCosts(unit.p_min_mw.copy(), base_cost, width, price, slope)


class ReactiveCosts(NamedTuple):
    """Convex costs of reactive output on the host: J blocks a unit, the first from the lower limit, the others from 0.

    low, high:  (G, J)  [Mvar]  infinite where the limit is
    price:      (G, J)  [USD/Mvarh]  at 0
    slope:      (G, J)  [USD/Mvarh per Mvar]
    base_cost:  (G,)    [USD/h]  while on
    """

    low: np.ndarray
    high: np.ndarray
    price: np.ndarray
    slope: np.ndarray
    base_cost: np.ndarray


def reactive_costs(case: Case) -> ReactiveCosts | None:
    """Costs of reactive output of a case, None where it has none. Errors as in `case_offers`."""
    unit = case.unit
    if not (unit.q_cost_model.any() and unit.q_cost.any()):
        return None
    points = np.where(unit.q_cost_model == PIECEWISE, unit.q_cost_terms, 0)
    ends = unit.q_cost[:, : max(2 * int(points.max(initial=0)), 1) : 2]
    far = 1 + np.abs(ends).max(initial=0)  # beyond all points, where a limit is infinite
    seen = replace(
        unit,
        p_min_mw=np.where(np.isfinite(unit.q_min_mvar), unit.q_min_mvar, np.minimum(-far, unit.q_max_mvar)),
        p_max_mw=np.where(np.isfinite(unit.q_max_mvar), unit.q_max_mvar, np.maximum(far, unit.q_min_mvar)),
        cost_model=unit.q_cost_model,
        cost_terms=unit.q_cost_terms,
        cost=unit.q_cost,
    )
    twin = replace(case, name=f"{case.name}, reactive power", unit=seen)
    costs = unit_costs(twin)
    price = costs.price - np.where(np.arange(costs.price.shape[1]) == 0, costs.slope * seen.p_min_mw[:, None], 0)
    low, high = np.zeros_like(costs.width_mw), costs.width_mw.copy()
    low[:, 0], high[:, 0] = unit.q_min_mvar, seen.p_min_mw + costs.width_mw[:, 0]
    last = np.where(unit.q_cost_model == PIECEWISE, points - 2, 0)
    high[np.arange(len(unit)), last] = np.where(np.isposinf(unit.q_max_mvar), np.inf, high[np.arange(len(unit)), last])
    first = (price[:, 0] + 0.5 * costs.slope[:, 0] * seen.p_min_mw) * seen.p_min_mw
    return ReactiveCosts(low, high, price, costs.slope, costs.base_cost - first)


@checks_ranges("cost_of")
def cost_of(offers: Offers, p_mw: Annotated[Array, FINITE, axes("G")]) -> Array:
    """Cost of output p (G,) [MW] of running units, (G,) [USD/h]: blocks fill in order, the last one without end."""
    start = jnp.cumsum(offers.width_mw, axis=1) - offers.width_mw
    last = jnp.arange(offers.width_mw.shape[1]) == offers.width_mw.shape[1] - 1
    room = jnp.where(last[None, :], jnp.inf, offers.width_mw)
    filled = jnp.clip((p_mw - offers.base_mw)[:, None] - start, 0, room)
    return offers.base_cost + jnp.sum((offers.price + 0.5 * offers.slope * filled) * filled, axis=1)


def _range(case: Case, g: int) -> tuple[float, float]:
    """Pmin and Pmax of a unit; published cases have units out of service with Pmin above Pmax."""
    low = float(case.unit.p_min_mw[g])
    return low, max(low, float(case.unit.p_max_mw[g]))


def _polynomial(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Quadratic, linear and constant coefficient (G,) of the polynomial units, 0 for the others."""
    unit = case.unit
    polynomial = unit.cost_model == POLYNOMIAL
    by_power = np.zeros((case.n_unit, max(unit.cost.shape[1], 3)))
    for g in np.flatnonzero(polynomial):
        terms = int(unit.cost_terms[g])
        by_power[g, :terms] = unit.cost[g, :terms][::-1]
    cubic = np.flatnonzero((by_power[:, 3:] != 0).any(1))
    if cubic.size:
        raise CaseError(
            f"{case.name}: {_names(case, cubic)} with a cost of third or higher degree, which is not solved exactly. "
            "Give a quadratic or a piecewise linear cost."
        )
    concave = np.flatnonzero(by_power[:, 2] < 0)
    if concave.size:
        raise CaseError(
            f"{case.name}: {_names(case, concave)} with a falling marginal cost. Give a quadratic coefficient >= 0."
        )
    return by_power[:, 2], by_power[:, 1], by_power[:, 0]


def _segments(case: Case, g: int, blocks: int) -> tuple[float, np.ndarray, np.ndarray]:
    """Cost at Pmin, widths and prices (blocks,) of one piecewise linear unit, cut to [Pmin, Pmax]."""
    unit = case.unit
    points = unit.cost[g, : 2 * int(unit.cost_terms[g])].reshape(-1, 2)
    low, high = _range(case, g)
    rise = np.diff(points[:, 1]) / np.diff(points[:, 0]) if len(points) > 1 else np.zeros(0)
    if rise.size == 0 or not np.isfinite(rise).all() or (np.diff(points[:, 0]) <= 0).any():
        raise CaseError(f"{case.name}: {_names(case, [g])} whose cost points do not rise in MW. Sort them.")
    if (np.diff(rise) < -ROUNDED * np.abs(rise).max()).any():
        raise CaseError(f"{case.name}: {_names(case, [g])} with a falling marginal cost. Give convex cost points.")
    # the outer segments go on beyond their last point, as in MATPOWER
    edges = points[:, 0].copy()
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)
    cut = np.clip(edges, low, high)
    width, price = np.zeros(blocks), np.full(blocks, rise[-1])
    width[: rise.size], price[: rise.size] = np.diff(cut), _pooled(rise, np.diff(points[:, 0]))
    k = min(max(int(np.searchsorted(points[:, 0], low, side="right")) - 1, 0), rise.size - 1)
    return float(points[k, 1] + rise[k] * (low - points[k, 0])), width, price


def _marginal(costs: UnitCosts, above_mw: np.ndarray) -> np.ndarray:
    """Marginal cost (G, n) at outputs above_mw (G, n) over the minimum."""
    end = np.cumsum(costs.width_mw, 1)
    block = np.minimum((above_mw[:, :, None] > end[:, None, :]).sum(2), costs.width_mw.shape[1] - 1)
    start = np.take_along_axis(end - costs.width_mw, block, 1)
    price, slope = (np.take_along_axis(x, block, 1) for x in (costs.price, costs.slope))
    return price + slope * (above_mw - start)


def _pooled(price: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The closest non-decreasing sequence: adjacent violators take their weighted mean."""
    pools: list[list[float]] = []  # [mean, weight, count]
    for value, share in zip(price.tolist(), weight.tolist(), strict=True):
        pools.append([value, share, 1.0])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            mean, size, count = pools.pop()
            before = pools[-1]
            total = before[1] + size
            before[0] = (before[0] * before[1] + mean * size) / total if total > 0 else mean
            before[1:] = [total, before[2] + count]
    return np.concatenate([np.full(int(count), mean) for mean, _, count in pools])


def _names(case: Case, rows: Any) -> str:
    return "unit " + listing(f"{int(g) + 1} (bus {case.unit.bus_id[g]})" for g in rows)
