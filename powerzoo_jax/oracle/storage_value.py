"""Marginal value of stored energy of a price taker by backward induction, and the command that follows from it.

In a step with price p and wear c, energy is bought at a = (p + c) / eta_c and sold at b = (p - c) eta_d per MWh in
store. The value of a store under such steps is concave, and its slope follows from that of the next step by shifts and
clips alone: V'(s) = min(l(s - D), max(b, max(l(s + C), min(a, l(s))))), with l the slope after the step and C, D the
most that a step stores and takes. Source: Bertsekas, Dynamic Programming and Optimal Control, vol. 1, section 3.2; the
two thresholds are those of Cruise et al. 2019, doi:10.1287/moor.2018.0915.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.base import struct

CELLS = 400  # of the energy band: with 200 of them battery_arbitrage earns 0.2 % less
DEAR = 1e6  # [$/MWh] slope below an empty store, and minus that of a full one


@struct.dataclass(kw_only=True)
class TradedStore:
    """One battery; () each.

    low_mwh, high_mwh:  [MWh]    energy band
    power_mw:           [MW]     rating in both directions
    eta_charge, eta_discharge: [-]
    wear_per_mwh:       [$/MWh]  of terminal throughput
    """

    low_mwh: Array
    high_mwh: Array
    power_mw: Array
    eta_charge: Array
    eta_discharge: Array
    wear_per_mwh: Array


class Outlook(NamedTuple):
    """Steps ahead, (W,) each.

    price_per_mwh:  [$/MWh]
    may_charge:     [-]  share of the rating at which the battery may charge
    may_discharge:  [-]
    must_discharge: [-]  share that the network needs
    """

    price_per_mwh: Array
    may_charge: Array
    may_discharge: Array
    must_discharge: Array


def settled_slope(store: TradedStore, start_mwh: Array, mean_per_mwh: Array, cells: int = CELLS) -> Array:
    """Slope (cells,) [$/MWh] of a settlement at the mean price: what is missing costs more than what is left earns."""
    missing = cell_energy(store, cells) < start_mwh
    return mean_per_mwh * jnp.where(missing, 1 / store.eta_charge, store.eta_discharge)


def value_slope(store: TradedStore, last: Array, ahead: Outlook, dt_hours: float, need_per_mwh: float) -> Array:
    """Slope (cells,) [$/MWh] of the value of energy in store before the steps ahead, from that after them.

    need_per_mwh:  [$/MWh] of what the network needs and an empty store cannot give
    """

    def earlier(slope: Array, step: Outlook) -> tuple[Array, None]:
        return earlier_slope(store, slope, step, dt_hours, need_per_mwh), None

    slope, _ = lax.scan(earlier, last, ahead, reverse=True)
    return slope


def earlier_slope(store: TradedStore, slope: Array, step: Outlook, dt_hours: float, need_per_mwh: float) -> Array:
    """Slope (cells,) before one step () of trade, from that after it."""
    per_cell = slope.shape[0] / (store.high_mwh - store.low_mwh)
    buy, sell = _limits(store, step.price_per_mwh)
    stored = step.may_charge * store.power_mw * store.eta_charge * dt_hours
    needed = step.must_discharge * store.power_mw / store.eta_discharge * dt_hours
    taken = step.may_discharge * store.power_mw / store.eta_discharge * dt_hours
    base = shifted(slope, -needed * per_cell, need_per_mwh)
    fuller = shifted(slope, (stored - needed) * per_cell, need_per_mwh)
    emptier = shifted(slope, -jnp.maximum(taken, needed) * per_cell, DEAR)
    after_buying = jnp.maximum(fuller, jnp.minimum(base, buy))
    return jnp.minimum(emptier, jnp.maximum(after_buying, sell))


def command_mw(store: TradedStore, energy_mwh: Array, after: Array, now: Outlook, dt_hours: float) -> Array:
    """Power () [MW] of the coming step, positive = discharge, for a slope `after` it (cells,).

    Buy up to where energy is worth less than it costs, sell down to where it is worth more than it earns.
    """
    buy, sell = _limits(store, now.price_per_mwh)
    cell = (store.high_mwh - store.low_mwh) / after.shape[0]
    fill_to = store.low_mwh + cell * jnp.sum(after >= buy, dtype=cell.dtype)
    keep = store.low_mwh + cell * jnp.sum(after >= sell, dtype=cell.dtype)
    goal = jnp.clip(energy_mwh, fill_to, jnp.maximum(keep, fill_to))
    change = goal - energy_mwh
    power = -jnp.where(change > 0, change / store.eta_charge, change * store.eta_discharge) / dt_hours
    most = jnp.maximum(energy_mwh - store.low_mwh, 0) * store.eta_discharge / dt_hours
    room = jnp.maximum(store.high_mwh - energy_mwh, 0) / (store.eta_charge * dt_hours)
    power = jnp.clip(power, -now.may_charge * store.power_mw, now.may_discharge * store.power_mw)
    needed = now.must_discharge * store.power_mw
    power = jnp.where(needed > 0, jnp.maximum(power, needed), power)
    return jnp.clip(power, -jnp.minimum(room, store.power_mw), jnp.minimum(most, store.power_mw))


def _limits(store: TradedStore, price: Array) -> tuple[Array, Array]:
    """Price of a MWh in store when it is bought, and when it is sold.

    Below a price of zero a battery would earn by doing both at once, which it cannot: it then sells at what it buys.
    """
    buy = (price + store.wear_per_mwh) / store.eta_charge
    return buy, jnp.minimum((price - store.wear_per_mwh) * store.eta_discharge, buy)


def cell_energy(store: TradedStore, cells: int) -> Array:
    """Energy in the middle of each cell of the band, (cells,) [MWh]."""
    share = (jnp.arange(cells, dtype=store.low_mwh.dtype) + 0.5) / cells
    return store.low_mwh + share * (store.high_mwh - store.low_mwh)


def shifted(slope: Array, cells: Array, below: float) -> Array:
    """The slope as many cells further up; `below` an empty store, and worth nothing above a full one."""
    size = slope.shape[0]
    at = jnp.arange(size, dtype=jnp.int32) + jnp.round(cells).astype(jnp.int32)
    inside = slope[jnp.clip(at, 0, size - 1)]
    return jnp.where(at < 0, below, jnp.where(at >= size, -DEAR, inside))
