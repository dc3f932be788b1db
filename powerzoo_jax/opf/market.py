"""Market clearing: piecewise offers and elastic demand under line limits, and the settlement at nodal prices.

Clearing is the DC-OPF of `opf.dc` on offered instead of true costs. Settlement is at the price of the own bus: loads
pay LMP_i d_i, units receive LMP_i p_i, and the difference is the congestion rent that the network collects.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.ranges import FINITE, FLAG, LOWER, NOT_NEGATIVE, UPPER, axes, checks_ranges, unchecked
from powerzoo_jax.opf.dc.factors import DcOpfFactors
from powerzoo_jax.opf.dc.solve import Bids, DcOpfResult, dc_opf, sum_at_buses
from powerzoo_jax.opf.offers import Offers, cost_of

PRICE_CAP = 1_000.0  # [USD/MWh] of offers, and what unserved load is worth in a market
BINDING_MW = 1e-3  # an output this near to a run-time limit counts as held there


@struct.dataclass(kw_only=True)
class Settlement:
    """Money of one cleared hour; multiply by the step in hours.

    unit_revenue:    (G,)  [USD/h]  LMP of the own bus times output
    unit_cost:       (G,)  [USD/h]  true cost of running units
    unit_profit:     (G,)  [USD/h]
    load_payment:    ()    [USD/h]  served load, elastic demand included, at the price of its bus
    congestion_rent: ()    [USD/h]  load payment less revenues, 0 without congestion
    """

    unit_revenue: Array
    unit_cost: Array
    unit_profit: Array
    load_payment: Array
    congestion_rent: Array


@struct.dataclass(kw_only=True)
class Clearing:
    """Result of a market clearing.

    dispatch:       DcOpfResult; its generation_cost is that of the offers
    settlement:     Settlement
    true_cost:      ()  [USD/h]  of the dispatch by the true costs of the case
    mean_price:     ()  [USD/MWh] load-weighted LMP, plain mean without load
    ramp_binding:   ()  [-]      share of running units held by a run-time limit inside their own
    """

    dispatch: DcOpfResult
    settlement: Settlement
    true_cost: Array
    mean_price: Array
    ramp_binding: Array


@checks_ranges("clear_market", options=dc_opf)
def clear_market(
    factors: DcOpfFactors,
    offers: Offers,
    load_mw: Annotated[Array, FINITE, axes("N")],
    *,
    bids: Bids | None = None,
    commitment: Annotated[Array, axes("G", kind=FLAG)] | None = None,
    p_min_mw: Annotated[Array, LOWER, axes("G")] | None = None,
    p_max_mw: Annotated[Array, UPPER, axes("G")] | None = None,
    voll: Annotated[float | Array, NOT_NEGATIVE, axes()] = PRICE_CAP,
    **options: Any,
) -> Clearing:
    """Clear offers against load (N,) [MW] and elastic demand at least cost, and settle at nodal prices [$/MWh].

    offers, load_mw, bids, commitment, p_min_mw, p_max_mw, voll, options: as in `dc_opf`; run-time limits cut the
    blocks from below and above in offer order. True costs are those of `factors.offers`.

    Infeasible demand is shed at `voll`, and the price is `voll` where it is shed.
    """
    out = unchecked(dc_opf)(
        factors,
        load_mw,
        offers=offers,
        bids=bids,
        commitment=commitment,
        p_min_mw=p_min_mw,
        p_max_mw=p_max_mw,
        voll=voll,
        **options,
    )
    on = factors.committed if commitment is None else factors.committed * commitment.astype(load_mw.dtype)
    bought = jnp.zeros_like(load_mw)
    if bids is not None:
        bought = sum_at_buses(factors, bids.bus, jnp.sum(out.bid_mw, axis=1))
    served = load_mw - out.shed_mw + bought
    settled = settle(factors, out, served, on)
    weight = jnp.maximum(served, 0)
    total = jnp.sum(weight)
    weighted = jnp.sum(weight * out.lmp) / jnp.where(total > 0, total, 1)
    return Clearing(
        dispatch=out,
        settlement=settled,
        true_cost=jnp.sum(settled.unit_cost),
        mean_price=jnp.where(total > 0, weighted, jnp.mean(out.lmp)),
        ramp_binding=_ramp_binding(factors, out.unit_power_mw, on, p_min_mw, p_max_mw),
    )


def settle(factors: DcOpfFactors, dispatch: DcOpfResult, served_mw: Array, on: Array) -> Settlement:
    """Pay every unit and charge every load (N,) [MW] the price of its bus; `on` (G,) is 1 for running units."""
    revenue = dispatch.lmp[factors.unit_bus] * dispatch.unit_power_mw
    cost = on * unchecked(cost_of)(factors.offers, dispatch.unit_power_mw)
    payment = jnp.sum(dispatch.lmp * served_mw)
    return Settlement(
        unit_revenue=revenue,
        unit_cost=cost,
        unit_profit=revenue - cost,
        load_payment=payment,
        congestion_rent=payment - jnp.sum(revenue),
    )


@checks_ranges("capped_offers")
def capped_offers(
    offers: Offers,
    markup: Annotated[Array, FINITE, axes("G", "K"), axes("G", 1), axes()],
    price_cap: Annotated[float | Array, UPPER, axes()] = PRICE_CAP,
) -> Offers:
    """Blocks (G, K) asked at (1 + markup) times their price, sorted by unit and not above the cap [$/MWh].

    markup:  (G, K) [-], or (G, 1) for all blocks of a unit
    """
    price = jnp.sort(offers.price * (1 + markup), axis=1)
    return replace(offers, price=jnp.minimum(price, jnp.asarray(price_cap, price.dtype)))


def _ramp_binding(
    factors: DcOpfFactors, p_mw: Array, on: Array, p_min_mw: Array | None, p_max_mw: Array | None
) -> Array:
    held = jnp.zeros(p_mw.shape, bool)
    if p_max_mw is not None:
        held |= (p_mw >= p_max_mw - BINDING_MW) & (p_max_mw < factors.p_max_mw)
    if p_min_mw is not None:
        held |= (p_mw <= p_min_mw + BINDING_MW) & (p_min_mw > factors.p_min_mw)
    return jnp.sum(on * held.astype(p_mw.dtype)) / jnp.maximum(jnp.sum(on), 1)
