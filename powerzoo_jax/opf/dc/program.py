"""Quadratic programme of a network, its offers and its loads, for `qp.py`: variables and constraints."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax.numpy as jnp
from flax import struct
from jax import Array

from powerzoo_jax.base.numerics import matmul
from powerzoo_jax.opf.dc.factors import DcOpfFactors
from powerzoo_jax.opf.offers import Offers
from powerzoo_jax.opf.qp import Qp


@struct.dataclass(kw_only=True)
class Bids:
    """Elastic demand: K blocks a bidder, bought as long as the price is below their value.

    bus:       (D,)    int32      position
    width_mw:  (D, K)  [MW]       0 = no such block
    price:     (D, K)  [USD/MWh]  value of the block; must not rise from block to block
    """

    bus: Array
    width_mw: Array
    price: Array


class UnitData(Protocol):
    """Data of the units in factors of either kind, (G,) each."""

    @property
    def committed(self) -> Array: ...

    @property
    def unit_bus(self) -> Array: ...

    @property
    def p_min_mw(self) -> Array: ...

    @property
    def p_max_mw(self) -> Array: ...


class DispatchVariables(NamedTuple):
    """Variables of the dispatch in MW, (n,) each: their buses, limits and costs."""

    bus: Array  # int32
    sign: Array  # +1 injects, -1 withdraws
    lo: Array
    hi: Array
    price: Array  # [USD/MWh]
    slope: Array  # [USD/MWh per MW]


class Running(NamedTuple):
    """Status and limits of the units as they run: (G,) each."""

    on: Array  # 1 or 0
    low: Array  # [MW] limits while on
    high: Array
    must_run: Array  # [MW] part below the blocks, 0 when off


def running_units(
    factors: UnitData, offers: Offers, commitment: Array | None, p_min_mw: Array | None, p_max_mw: Array | None
) -> Running:
    """Combine the limits of the case with those of the moment; an upper one below the lower one gives way."""
    on = factors.committed if commitment is None else factors.committed * commitment.astype(factors.committed.dtype)
    low = factors.p_min_mw if p_min_mw is None else jnp.maximum(factors.p_min_mw, p_min_mw)
    high = factors.p_max_mw if p_max_mw is None else jnp.minimum(factors.p_max_mw, p_max_mw)
    return Running(on, low, jnp.maximum(low, high), on * offers.base_mw)


def unit_columns(factors: UnitData, offers: Offers, units: Running) -> DispatchVariables:
    """Blocks (G K,) between the limits: those below the lower one are sold, those above the upper one are not."""
    end = offers.base_mw[:, None] + jnp.cumsum(offers.width_mw, axis=1)
    start = end - offers.width_mw
    on = units.on[:, None]
    return DispatchVariables(
        bus=jnp.repeat(factors.unit_bus, offers.width_mw.shape[1]),
        sign=jnp.ones(offers.width_mw.size, units.on.dtype),
        lo=(on * (jnp.clip(units.low[:, None], start, end) - start)).reshape(-1),
        hi=(on * (jnp.clip(units.high[:, None], start, end) - start)).reshape(-1),
        price=offers.price.reshape(-1),
        slope=offers.slope.reshape(-1),
    )


def bid_columns(bids: Bids) -> DispatchVariables:
    """Demand withdraws, and its value is a negative cost."""
    width = bids.width_mw.reshape(-1)
    zero = jnp.zeros_like(width)
    bus = jnp.repeat(bids.bus, bids.width_mw.shape[1])
    return DispatchVariables(bus, zero - 1, zero, width, -bids.price.reshape(-1), zero)


def shed_columns(factors: DcOpfFactors, load_mw: Array, voll: Array) -> DispatchVariables:
    """Unserved load of every bus, up to its load."""
    zero = jnp.zeros_like(load_mw)
    bus = jnp.arange(factors.n_bus, dtype=jnp.int32)
    return DispatchVariables(bus, zero + 1, zero, jnp.maximum(load_mw, 0), jnp.broadcast_to(voll, zero.shape), zero)


def spill_columns(factors: DcOpfFactors, load_mw: Array, units: Running, price: Array) -> DispatchVariables:
    """Surplus, up to the must-run output and the negative load of a bus."""
    must_run = sum_at_buses(factors, factors.unit_bus, units.on * units.low)
    most = (jnp.maximum(must_run, 0) + jnp.maximum(-load_mw, 0))[factors.spill_bus]
    zero = jnp.zeros_like(most)
    return DispatchVariables(factors.spill_bus, zero - 1, zero, most, jnp.broadcast_to(price, zero.shape), zero)


def join_columns(parts: list[DispatchVariables]) -> DispatchVariables:
    """All variables in one row, in the order given."""
    return DispatchVariables(*(jnp.concatenate(columns) for columns in zip(*parts, strict=True)))


def sum_at_buses(factors: DcOpfFactors, bus: Array, value: Array) -> Array:
    """Sum over what stands at each bus, (N,)."""
    return jnp.zeros_like(factors.shunt_mw).at[bus].add(value)


def network_programme(factors: DcOpfFactors, columns: DispatchVariables, fixed_mw: Array, rate_mva: Array) -> Qp:
    """Balance and flow limits in per unit; `fixed_mw` (N,) is what is injected whatever the variables do."""
    base = factors.base_mva
    ptdf = factors.ptdf[factors.rows]
    flow = (matmul(ptdf, fixed_mw) + factors.flow_0[factors.rows]) / base
    rate = rate_mva[factors.rows]
    limit = jnp.where(rate > 0, rate / base, jnp.inf)
    need = (jnp.sum(factors.shunt_mw) - jnp.sum(fixed_mw))[None] / base
    return Qp(
        a=jnp.concatenate([columns.sign[None, :], ptdf[:, columns.bus] * columns.sign[None, :]]),
        q=columns.slope * base * base,
        c=columns.price * base,
        lo=columns.lo / base,
        hi=columns.hi / base,
        row_lo=jnp.concatenate([need, -limit - flow]),
        row_hi=jnp.concatenate([need, limit - flow]),
    )


def add_reserve(qp: Qp, n_unit_columns: int, spare: Array, need: Array, price: Array) -> Qp:
    """One more row, sum of blocks - missing <= spare, and one more column, the missing reserve; all per unit."""
    n = qp.c.shape[0]
    zero = jnp.zeros((), qp.c.dtype)
    row = (jnp.arange(n) < n_unit_columns).astype(qp.c.dtype)
    a = jnp.concatenate([qp.a, row[None]])
    column = jnp.zeros(a.shape[0], qp.c.dtype).at[-1].set(-1)
    return Qp(
        a=jnp.concatenate([a, column[:, None]], axis=1),
        q=jnp.append(qp.q, zero),
        c=jnp.append(qp.c, price),
        lo=jnp.append(qp.lo, zero),
        hi=jnp.append(qp.hi, jnp.maximum(need, 0)),
        row_lo=jnp.append(qp.row_lo, jnp.full((), -jnp.inf, qp.c.dtype)),
        row_hi=jnp.append(qp.row_hi, spare),
    )
