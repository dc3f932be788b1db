"""Economic dispatch without a network: one price, by merit order; exact for linear, piecewise linear, quadratic cost.

At a price lam a unit sells every block that is cheaper, and of a block of rising price the part below lam. Bisection
finds which blocks are full, which are empty and which one or few set the price; the price itself and the output of
those follow in closed form, so the balance holds to rounding and derivatives are exact.

Losses enter as penalty factors f: a MW of unit g is worth 1 / f_g MW at the load, so it counts with p_g / f_g in the
balance, and its energy costs f_g times its price there.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.base import struct
from powerzoo_jax.base.ranges import BUDGET, FINITE, FLAG, NOT_NEGATIVE, POSITIVE, axes, checks_ranges
from powerzoo_jax.opf.dc.solve import SURPLUS_PRICE, VOLL
from powerzoo_jax.opf.offers import Offers
from powerzoo_jax.opf.result import OpfStatus

HALVINGS = {"float32": 32, "float64": 60}  # until the bracket is as narrow as the dtype resolves
SAME_PRICE = {"float32": 4e-7, "float64": 1e-15}  # of the largest price: blocks that near to lam set the price together


@struct.dataclass(kw_only=True)
class DispatchResult:
    """Least-cost dispatch of one system.

    unit_power_mw:   (G,)  [MW]
    price:           ()    [USD/MWh]  d(objective) / d(load) for more load
    shed_mw:         ()    [MW]
    spill_mw:        ()    [MW]
    generation_cost: ()    [USD/h]
    objective:       ()    [USD/h]    with unserved load and surplus
    status:          ()    int32      `OpfStatus`: OPTIMAL or BAD_INPUT
    """

    unit_power_mw: Array
    price: Array
    shed_mw: Array
    spill_mw: Array
    generation_cost: Array
    objective: Array
    status: Array


class _Blocks(NamedTuple):
    """Blocks still for sale above the lower limits, seen from the load, (G, K) each."""

    width: Array  # [MW] delivered when sold
    start: Array  # [USD/MWh] price of its first and of its last MW
    end: Array
    rise: Array  # [USD/MWh per MW]


@checks_ranges("economic_dispatch")
def economic_dispatch(
    offers: Offers,
    load_mw: Annotated[Array, FINITE, axes()],
    p_min_mw: Annotated[Array, FINITE, axes("G")],
    p_max_mw: Annotated[Array, FINITE, axes("G")],
    *,
    commitment: Annotated[Array, axes("G", kind=FLAG)] | None = None,
    penalty_factor: Annotated[Array, POSITIVE, axes("G")] | None = None,
    voll: Annotated[float | Array, NOT_NEGATIVE, axes()] = VOLL,
    surplus_price: Annotated[float | Array, FINITE, axes()] = SURPLUS_PRICE,
) -> DispatchResult:
    """Serve a total load at least cost; vmap it for many.

    offers:              from `case_offers` or a bidder
    load_mw:             () [MW]
    p_min_mw, p_max_mw:  (G,) [MW] limits, such as those of a `ramp_window` inside the units' own
    commitment:          (G,) bool or 0/1; None runs all units
    penalty_factor:      (G,) [-] 1 / (1 - d(loss) / d(p_g)), see the module; None is lossless
    voll, surplus_price: () [USD/MWh] load beyond what is offered below voll is shed, must-run output beyond the load
                         is spilled

    Exact up to rounding; units that ask the same price share what is left in proportion to their blocks.
    Compiled, nothing raises or is NaN. Differentiable in both modes; at a kink derivatives are those of more load.
    """
    dtype = load_mw.dtype
    fine = _all_finite(offers, load_mw, p_min_mw, p_max_mw)
    load, low, high = (jnp.where(fine, x, jnp.zeros_like(x)) for x in (load_mw, p_min_mw, p_max_mw))
    on = jnp.ones_like(low) if commitment is None else commitment.astype(dtype)
    factor = jnp.ones_like(low) if penalty_factor is None else penalty_factor
    sold, room = _cut(offers, on, low, jnp.maximum(low, high))
    must_run = on * offers.base_mw + jnp.sum(sold, axis=1)
    voll, surplus_price = (jnp.asarray(value, dtype) for value in (voll, surplus_price))
    blocks = _below(_seen_from_load(offers, sold, room, factor), voll)
    fixed, most = jnp.sum(must_run / factor), jnp.sum(blocks.width)
    need = jnp.clip(load - fixed, 0, most)
    level, taken = _clear(blocks, need)
    sold = sold + taken * factor[:, None]
    shed, spill = jnp.maximum(load - fixed - most, 0), jnp.maximum(fixed - load, 0)
    level = jnp.where(load - fixed >= most, voll, jnp.where(load < fixed, -surplus_price, level))
    cost = jnp.sum(on * offers.base_cost) + jnp.sum((offers.price + 0.5 * offers.slope * sold) * sold)
    return DispatchResult(
        unit_power_mw=on * offers.base_mw + jnp.sum(sold, axis=1),
        price=level,
        shed_mw=shed,
        spill_mw=spill,
        generation_cost=cost,
        objective=cost + voll * shed + surplus_price * spill,
        status=jnp.where(fine, jnp.int32(OpfStatus.OPTIMAL), jnp.int32(OpfStatus.BAD_INPUT)),
    )


@checks_ranges("ramp_window")
def ramp_window(
    p_previous_mw: Annotated[Array, FINITE, axes("G")],
    up_mw: Annotated[Array, BUDGET, axes("G")],
    down_mw: Annotated[Array, BUDGET, axes("G")],
    p_min_mw: Annotated[Array, FINITE, axes("G")],
    p_max_mw: Annotated[Array, FINITE, axes("G")],
) -> tuple[Array, Array]:
    """Lower and upper limit (G,) [MW] of running units that may move by `up_mw` and `down_mw` in the step."""
    low = jnp.clip(p_previous_mw - down_mw, p_min_mw, p_max_mw)
    return low, jnp.clip(p_previous_mw + up_mw, p_min_mw, p_max_mw)


def _all_finite(offers: Offers, *limits: Array) -> Array:
    parts = (offers.base_mw, offers.base_cost, offers.width_mw, offers.price, offers.slope, *limits)
    return jnp.all(jnp.stack([jnp.isfinite(part).all() for part in parts]))


def _cut(offers: Offers, on: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Part of every block (G, K) below the lower limit, and its room up to the upper one; 0 where off."""
    end = offers.base_mw[:, None] + jnp.cumsum(offers.width_mw, axis=1)
    start = end - offers.width_mw
    sold = jnp.clip(low[:, None], start, end) - start
    return on[:, None] * sold, on[:, None] * (jnp.clip(high[:, None], start, end) - start - sold)


def _seen_from_load(offers: Offers, sold: Array, room: Array, factor: Array) -> _Blocks:
    f = factor[:, None]
    first = offers.price + offers.slope * sold
    return _Blocks(room / f, f * first, f * (first + offers.slope * room), f * f * offers.slope)


def _below(blocks: _Blocks, voll: Array) -> _Blocks:
    """The part of the blocks that costs less than shedding."""
    rises = blocks.rise > 0
    most = jnp.where(rises, (voll - blocks.start) / jnp.where(rises, blocks.rise, 1), jnp.inf)
    width = jnp.where(blocks.start < voll, jnp.minimum(blocks.width, most), 0)
    return blocks._replace(width=width, end=jnp.minimum(blocks.end, voll))


def _clear(blocks: _Blocks, need: Array) -> tuple[Array, Array]:
    """Price () at which the blocks deliver `need`, and what each delivers (G, K)."""
    still = lax.stop_gradient(blocks)
    level, near = _bracket(still, lax.stop_gradient(need))
    sells = still.width > 0
    rises = still.rise > 0
    shared = sells & ~rises & (jnp.abs(still.start - level) <= near)
    partly = sells & rises & (still.start < level) & (level < still.end)
    full = sells & ~shared & jnp.where(rises, still.end <= level, still.start < level)

    rest = need - jnp.sum(jnp.where(full, blocks.width, 0))
    # rising blocks: lam solves sum of (lam - start) / rise = rest; a flat block sets lam by itself
    give = jnp.where(partly, 1 / jnp.where(partly, blocks.rise, 1), 0)
    total = jnp.sum(give)
    rising = (rest + jnp.sum(give * blocks.start)) / jnp.where(total > 0, total, 1)
    weight = jnp.where(shared, blocks.width, 0)
    flat = jnp.sum(weight * blocks.start) / jnp.where(shared.any(), jnp.sum(weight), 1)
    lam = jnp.where(shared.any(), flat, jnp.where(total > 0, rising, level))
    taken = jnp.where(full, blocks.width, give * (lam - blocks.start))
    left = rest - jnp.sum(jnp.where(full, 0, taken))
    return lam, taken + weight * (left / jnp.where(shared.any(), jnp.sum(weight), 1))


def _bracket(blocks: _Blocks, need: Array) -> tuple[Array, Array]:
    """Highest price at which no more than `need` is for sale, and how near a price counts as equal to it."""
    blocks = _Blocks(*(part.reshape(-1) for part in blocks))  # a last axis of one block would not vectorise
    asked = jnp.where(blocks.width > 0, jnp.maximum(jnp.abs(blocks.start), jnp.abs(blocks.end)), 0)
    span = jnp.max(asked, initial=0) + 1
    slack = SAME_PRICE[need.dtype.name] * span

    def supply(level: Array) -> Array:
        rises = blocks.rise > 0
        part = (level - blocks.start) / jnp.where(rises, blocks.rise, 1)
        return jnp.sum(
            jnp.where(rises, jnp.clip(part, 0, blocks.width), jnp.where(level >= blocks.start, blocks.width, 0))
        )

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        below, above = ends
        middle = 0.5 * (below + above)
        enough = supply(middle) > need
        return jnp.where(enough, below, middle), jnp.where(enough, middle, above)

    below, above = lax.fori_loop(0, HALVINGS[need.dtype.name], halve, (-span, span))
    return below, 2 * (above - below) + slack
