"""Sharing a load among units by rule instead of by optimisation: by scores, by merit order, or by schedule and slack.

Scores: what is left above the lower limits is shared in proportion to weights, and what a full unit cannot take goes
round again. The rounds end where every unit has the same share of its weight or is full,

    p_i = low_i + min(room_i, lam w_i),   sum p_i = load,

so lam is found at once: the breakpoints room_i / w_i tell who is full, and the rest is one division. Every breakpoint
is tried against every unit; for the tens of units of a network that is cheaper in a batch than sorting.
"""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.ranges import BOOL, FINITE, POSITIVE, axes, checks_ranges

SHARPNESS, LEAST_SCORE = 3.0, 0.01


@struct.dataclass(kw_only=True)
class Allocation:
    """A load shared among units without regard to the network.

    p_mw:         (G,)  [MW]  inside the limits
    unserved_mw:  ()    [MW]  load beyond all upper limits
    surplus_mw:   ()    [MW]  lower limits beyond the load
    """

    p_mw: Array
    unserved_mw: Array
    surplus_mw: Array


@checks_ranges("score_weights")
def score_weights(score: Annotated[Array, FINITE, axes("...")]) -> Array:
    """exp(3 clip(score, 0.01, 1)), (G,) [-]."""
    return jnp.exp(SHARPNESS * jnp.clip(score, LEAST_SCORE, 1))


@checks_ranges("allocate_by_weight")
def allocate_by_weight(
    weight: Annotated[Array, POSITIVE, axes("G")],
    low_mw: Annotated[Array, FINITE, axes("G")],
    high_mw: Annotated[Array, FINITE, axes("G")],
    load_mw: Annotated[Array, FINITE, axes()],
) -> Allocation:
    """Share a load in proportion to weights, inside limits; exact to rounding.

    weight:           (G,)  > 0
    low_mw, high_mw:  (G,)  [MW]  both 0 for a unit that is off
    load_mw:          ()    [MW]
    """
    room = high_mw - low_mw
    rest = load_mw - jnp.sum(low_mw)
    need = jnp.clip(rest, 0, jnp.sum(room))
    break_at = room / weight
    # supply at every breakpoint: units full by then with their room, the others with their share
    supply = jnp.sum(jnp.minimum(room[None, :], break_at[:, None] * weight[None, :]), axis=1)
    reached = jnp.max(jnp.where(supply <= need, break_at, -1), initial=-1)
    full = break_at <= reached
    open_weight = jnp.sum(jnp.where(full, 0, weight))
    left = need - jnp.sum(jnp.where(full, room, 0))
    level = left / jnp.where(open_weight > 0, open_weight, 1)
    added = jnp.where(full, room, jnp.clip(level * weight, 0, room))
    return _settled(low_mw + added, rest, room)


@checks_ranges("allocate_by_merit")
def allocate_by_merit(
    price: Annotated[Array, FINITE, axes("G")],
    low_mw: Annotated[Array, FINITE, axes("G")],
    high_mw: Annotated[Array, FINITE, axes("G")],
    load_mw: Annotated[Array, FINITE, axes()],
) -> Allocation:
    """Fill units one after the other, cheapest first; of equal prices the first in the row comes first.

    price:  (G,)  [USD/MWh] or any rank;  the rest as in `allocate_by_weight`
    """
    room = high_mw - low_mw
    rest = load_mw - jnp.sum(low_mw)
    order = jnp.arange(price.shape[0])
    tie = (price[None, :] == price[:, None]) & (order[None, :] < order[:, None])
    before = (price[None, :] < price[:, None]) | tie
    taken = jnp.sum(jnp.where(before, room[None, :], 0), axis=1)
    return _settled(low_mw + jnp.clip(rest - taken, 0, room), rest, room)


@checks_ranges("balance_by_slack")
def balance_by_slack(
    p_mw: Annotated[Array, FINITE, axes("G")],
    low_mw: Annotated[Array, FINITE, axes("G")],
    high_mw: Annotated[Array, FINITE, axes("G")],
    slack: Annotated[Array, axes("G", kind=BOOL)],
    load_mw: Annotated[Array, FINITE, axes()],
) -> Allocation:
    """Keep a schedule, and let the slack units cover what it misses or exceeds, in proportion to their headroom.

    p_mw:   (G,)  [MW]  schedule, brought inside the limits
    slack:  (G,)  bool  units that move
    """
    planned = jnp.clip(p_mw, low_mw, high_mw)
    short = load_mw - jnp.sum(planned)
    up = jnp.where(slack, high_mw - planned, 0)
    down = jnp.where(slack, planned - low_mw, 0)
    rises, falls = jnp.sum(up), jnp.sum(down)
    # a share of 1 at most, so that no unit leaves its limits
    raised = up * jnp.clip(short / jnp.where(rises > 0, rises, 1), 0, 1)
    lowered = down * jnp.clip(-short / jnp.where(falls > 0, falls, 1), 0, 1)
    return Allocation(
        p_mw=planned + raised - lowered,
        unserved_mw=jnp.maximum(short - rises, 0),
        surplus_mw=jnp.maximum(-short - falls, 0),
    )


@checks_ranges("shed_by_load")
def shed_by_load(load_mw: Annotated[Array, FINITE, axes("N")], unserved_mw: Annotated[Array, FINITE, axes()]) -> Array:
    """Take unserved load from the buses in proportion to their load, (N,) [MW]; buses that inject lose nothing."""
    taker = jnp.maximum(load_mw, 0)
    total = jnp.sum(taker)
    return taker * jnp.clip(unserved_mw / jnp.where(total > 0, total, 1), 0, 1)


def _settled(p_mw: Array, rest: Array, room: Array) -> Allocation:
    return Allocation(p_mw=p_mw, unserved_mw=jnp.maximum(rest - jnp.sum(room), 0), surplus_mw=jnp.maximum(-rest, 0))
