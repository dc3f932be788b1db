"""Wholesale market with nodal prices: generators offer blocks of energy, the clearing keeps line limits."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base import EnvState, Info, struct
from powerzoo_jax.base.ranges import unchecked
from powerzoo_jax.base.spaces import Field
from powerzoo_jax.envs.core import EnvParams, GridEnv, end_flags, in_range, unless_settled
from powerzoo_jax.envs.observe import FieldBlock, FieldTable, Scene, field_block, name_values, observe, table
from powerzoo_jax.envs.series import (
    COS,
    FACTOR,
    SIN,
    Draw,
    EpisodeStarts,
    current_row,
    remaining_load,
)
from powerzoo_jax.opf.dispatch import ramp_window
from powerzoo_jax.opf.market import Clearing, capped_offers, clear_market
from powerzoo_jax.opf.offers import Offers
from powerzoo_jax.opf.result import OpfStatus
from powerzoo_jax.powerflow import Status

HISTORY = 4  # past prices that an agent sees, unless the task says otherwise
LOAD, CLIPPED = FACTOR, 5  # columns of load_rows: the clock and the running sums stand where they do elsewhere
ROUNDED_MW = {"float32": 2e-2, "float64": 1e-3}  # excess over a rating that the clearing's own tolerance explains


@struct.dataclass(kw_only=True)
class MarketBank:
    """Exogenous series shared by all lanes.

    load_rows:  (R, 6)  total load [MW], time_sin, time_cos, its running sum as two floats, 1 where it was clipped
    """

    load_rows: Array


@struct.dataclass(kw_only=True)
class MarketParams(EnvParams):
    """One market; `factors` is a DcOpfFactors whose offers are the true costs.

    load_share:   (N,)    [-]
    offers:       Offers (G, K)  true costs as the blocks that are bid
    ramp_up_mw, ramp_down_mw: (G,) [MW] in a step
    max_markup:   ()      [-]    of an offer at action 1
    price_cap:    ()      [USD/MWh] of offers, and what unserved load is worth
    price_scale:  ()      [USD/MWh] that observed prices are relative to
    starts:       Starts
    """

    load_share: Array
    offers: Offers
    ramp_up_mw: Array
    ramp_down_mw: Array
    max_markup: Array
    price_cap: Array
    price_scale: Array
    starts: EpisodeStarts


@struct.dataclass(kw_only=True)
class MarketState(EnvState):
    """State of an episode.

    p_mw:        (G,)  [MW]       output of the last step
    profit_usd:  (G,)  [USD]      of the last step
    prices:      (H,)  [USD/MWh]  last load-weighted mean prices, oldest first
    load_row:    ()    int32      first row of the episode
    failed:      ()    bool       a clearing has failed: the episode is over
    """

    p_mw: Array
    profit_usd: Array
    prices: Array
    load_row: Array
    failed: Array


@struct.dataclass(kw_only=True)
class MarketInfo(Info):
    """Info of a cleared step beside the base `Info`.

    lmp: (N,)  own_lmp: (G,) [USD/MWh]      unit_power_mw: (G,)      profit_usd, gen_cost_usd: (G,) [USD] of the step
    offer_cost_usd, consumer_cost_usd: () [USD] of the step           mean_price: () [USD/MWh] load-weighted
    ramp_binding: () share of units held by their ramp                load_mw, unserved_mw, surplus_mw: ()
    load_clipped: () bool                                             opf_status: () int32 `OpfStatus`
    """

    lmp: Array
    own_lmp: Array
    unit_power_mw: Array
    profit_usd: Array
    gen_cost_usd: Array
    offer_cost_usd: Array
    consumer_cost_usd: Array
    mean_price: Array
    ramp_binding: Array
    load_mw: Array
    unserved_mw: Array
    surplus_mw: Array
    load_clipped: Array
    opf_status: Array


@dataclass(frozen=True, eq=False)
class BidderScene(Scene):
    """Quantities that bidders observe: ratings (G,) [MW], and how far each may rise in the coming step (G,) [MW]."""

    p_max_mw: Array
    headroom_mw: Array


LOW, HIGH = -5, 10  # bounds of all fields
OWN = (
    Field("base_price", "1", LOW, HIGH, lambda scene: scene.params.offers.price[:, 0] / scene.params.price_scale),
    Field("p_max_norm", "1", LOW, HIGH, lambda scene: scene.p_max_mw / jnp.max(scene.p_max_mw)),
    Field("p_prev_norm", "1", LOW, HIGH, lambda scene: scene.state.p_mw / scene.p_max_mw),
    Field(
        "profit_prev_norm",
        "1",
        LOW,
        HIGH,
        lambda scene: scene.state.profit_usd / (scene.params.price_scale * scene.p_max_mw * scene.dt_hours),
    ),
    Field("ramp_headroom", "1", LOW, HIGH, lambda scene: scene.headroom_mw / scene.p_max_mw),
    Field(
        "total_load_norm",
        "1",
        LOW,
        HIGH,
        lambda scene: jnp.broadcast_to(scene.row[LOAD] / jnp.sum(scene.p_max_mw), scene.p_max_mw.shape),
    ),
)
CLOCK = FieldBlock("clock", ("time_sin", "time_cos"), LOW, HIGH, "1", lambda scene: scene.row[SIN : COS + 1])
PAST_PRICES = FieldBlock("prices", (), LOW, HIGH, "1", lambda scene: scene.state.prices / scene.params.price_scale)
name_values(__name__)


def market_fields(history: int = HISTORY) -> FieldTable:
    """Observation of a bidder: its unit, the clock, and the last mean prices over the reference price."""
    past = PAST_PRICES.named(f"mean_lmp_{k}" for k in range(history))
    return table([field_block("unit", OWN), CLOCK, past])


class Bidding(NamedTuple):
    """Offers of a step and the window (G,) [MW] that ramps leave each unit."""

    offers: Offers
    low_mw: Array
    high_mw: Array


def cleared_excess(flow_mw: Array, rate_mva: Array) -> Array:
    """Total excess of the flows (L,) of a clearing over their ratings, beyond its own tolerance, () [MW]."""
    excess = jnp.abs(flow_mw) - rate_mva - ROUNDED_MW[flow_mw.dtype.name]
    return jnp.sum(jnp.where(rate_mva > 0, jnp.maximum(excess, 0), 0))


def cleared_status(optimal: Array) -> Array:
    """Status () int32 of the flow of a clearing."""
    return jnp.where(optimal, jnp.int32(Status.CONVERGED), jnp.int32(Status.OUT_OF_STEPS))


@dataclass(frozen=True)
class MarketEnv(GridEnv):
    """Generators that bid, one agent each; the settlement is at the price of the own bus.

    Observation (8 + H): `market_fields`. Action (G, K) in [-1, 1]: markups of the K blocks from none to `max_markup`,
    sorted.
    Reward terms [USD]: revenue, generation_cost; the reward of an agent is its own profit.
    Cost channels: thermal_overload [MW], unserved_energy [MWh].
    Termination: a clearing does not reach its optimum; nobody earns, and all load to the horizon is unserved.

    Example:
        sim = powerzoo_jax.make("gencos_bidding")
        state, obs = sim.init(jax.random.key(0))
        state, obs, reward, cost, info = sim.step(state, jnp.full((5, 3), -1.0))
    """

    def start(self, key: Array, drawn: Draw, params: MarketParams) -> tuple[MarketState, Array]:
        """Start a given episode with the truthful clearing of its first load."""
        load = params.bank.load_rows[drawn.load_row, LOAD] * params.load_share
        cleared = unchecked(clear_market)(
            params.factors, params.offers, load, voll=params.price_cap, vertex=False, solver=self.solver
        )
        state = MarketState(
            t=jnp.zeros((), jnp.int32),
            key=key,
            p_mw=cleared.dispatch.unit_power_mw,
            profit_usd=jnp.zeros_like(params.ramp_up_mw),
            prices=jnp.broadcast_to(cleared.mean_price, len(self.fields.blocks[-1].names)),
            load_row=drawn.load_row,
            failed=jnp.zeros((), bool),
        )
        return state, self._fields(state, params)

    def decode(self, action: Array, params: MarketParams) -> Array:
        """(G, K) in [-1, 1] -> markups (G, K), rising from block to block; a NaN counts as 0."""
        return params.max_markup * jnp.sort(0.5 * (in_range(action, params.masks.act) + 1), axis=1)

    def limit(self, state: MarketState, command: Array, params: MarketParams) -> tuple[MarketState, Bidding]:
        """Offers at or above the true costs, and the window that ramps allow."""
        factors = params.factors
        low, high = unchecked(ramp_window)(
            state.p_mw, params.ramp_up_mw, params.ramp_down_mw, factors.p_min_mw, factors.p_max_mw
        )
        return state, Bidding(unchecked(capped_offers)(params.offers, command, params.price_cap), low, high)

    def dispatch(self, state: MarketState, delivery: Bidding, params: MarketParams) -> Clearing:
        """Clear the offers against the load of row t."""
        load = current_row(state, params)[LOAD] * params.load_share
        return unchecked(clear_market)(
            params.factors,
            delivery.offers,
            load,
            p_min_mw=delivery.low_mw,
            p_max_mw=delivery.high_mw,
            voll=params.price_cap,
            vertex=False,
            solver=self.solver,
        )

    def flow(self, injection: Clearing, params: MarketParams) -> Clearing:
        """The clearing has solved the DC flow already."""
        del params
        return injection

    def account(
        self, state: MarketState, devices: MarketState, delivery: Bidding, flow: Clearing, params: MarketParams
    ) -> tuple[MarketState, Array, Array, MarketInfo]:
        """Profits, cost channels, clock and flags."""
        del delivery
        dt, out, money, row = self.dt_hours, flow.dispatch, flow.settlement, current_row(state, params)
        fine = out.status == OpfStatus.OPTIMAL
        failed = devices.failed | ~fine
        terms = jnp.where(failed, 0, jnp.stack([money.unit_revenue, -money.unit_cost], axis=-1) * dt)
        profit = jnp.sum(terms, axis=-1)
        new = dataclasses.replace(
            state,
            t=state.t + 1,
            p_mw=jnp.where(failed, state.p_mw, out.unit_power_mw),
            profit_usd=profit,
            prices=jnp.where(failed, state.prices, jnp.append(state.prices[1:], flow.mean_price)),
            failed=failed,
        )
        overload = jnp.where(failed, 0, cleared_excess(out.line_flow_mw, params.factors.rate_mva))
        unserved = jnp.sum(out.shed_mw)
        energy = jnp.where(failed, remaining_load(state, params) * dt, unserved * dt)
        info = MarketInfo(
            **end_flags(new.t, params.horizon, failed),
            pf_status=cleared_status(fine),
            pf_residual=out.primal_residual,
            legal=jnp.ones((self.dims.agent, 0), bool),
            terms=terms,
            lmp=out.lmp,
            own_lmp=out.lmp[params.factors.unit_bus],
            unit_power_mw=new.p_mw,
            profit_usd=profit,
            gen_cost_usd=-terms[:, 1],
            offer_cost_usd=out.generation_cost * dt,
            consumer_cost_usd=money.load_payment * dt,
            mean_price=flow.mean_price,
            ramp_binding=flow.ramp_binding,
            load_mw=row[LOAD],
            unserved_mw=unserved,
            surplus_mw=jnp.sum(out.spill_mw),
            load_clipped=row[CLIPPED] > 0,
            opf_status=out.status,
        )
        cost = unless_settled(state.failed, jnp.stack([overload, energy]))
        return new, self.weighted(terms), cost, info

    def _fields(self, state: MarketState, params: MarketParams) -> Array:
        row, p_max = current_row(state, params), params.factors.p_max_mw
        headroom = jnp.maximum(jnp.minimum(p_max - state.p_mw, params.ramp_up_mw), 0)
        scene = BidderScene(self.dt_hours, params, state, row, p_max, headroom)
        return observe(self.fields, scene, self.dims.agent)
