"""Battery in a wholesale market: its injection enters the clearing before the price of its bus is set."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base import EnvState, Info, Purpose, purpose_key, struct
from powerzoo_jax.base.random import normal
from powerzoo_jax.base.ranges import unchecked
from powerzoo_jax.devices import StorageParams, StorageState, storage
from powerzoo_jax.devices.protocol import Delivery
from powerzoo_jax.envs.constraint import energy_sales, settlement
from powerzoo_jax.envs.core import EnvParams, GridEnv, end_flags, unless_settled
from powerzoo_jax.envs.observe import Scene, block, name_values, observe, table
from powerzoo_jax.envs.series import (
    CLOCK,
    FACTOR,
    Draw,
    EpisodeStarts,
    current_row,
    remaining_load,
)
from powerzoo_jax.families.market.bidding import cleared_excess, cleared_status
from powerzoo_jax.opf.market import Clearing, clear_market
from powerzoo_jax.opf.offers import Offers
from powerzoo_jax.opf.result import OpfStatus


@struct.dataclass(kw_only=True)
class StorageMarketParams(EnvParams):
    """One market with one battery; `factors` is a DcOpfFactors whose offers are the true costs.

    bank:          GridBank
    storage:       StorageParams (1,)
    battery_bus:   ()     int32  position
    load_share:    (N,)   [-]
    offers:        Offers (G, K) what the units ask without a markup
    markup_std:    ()     [-]    spread of the markups, drawn once an episode; 0 = true costs
    full_load_mw:  ()     [MW]
    smoothing_usd_per_mw: () of a change of the battery's power
    voll:          ()     [USD/MWh] the price cap;  price_scale: () [USD/MWh] that observed prices are relative to
    starts:        Starts
    """

    storage: StorageParams
    battery_bus: Array
    load_share: Array
    offers: Offers
    markup_std: Array
    full_load_mw: Array
    smoothing_usd_per_mw: Array
    voll: Array
    price_scale: Array
    starts: EpisodeStarts


@struct.dataclass(kw_only=True)
class StorageMarketState(EnvState):
    """State of an episode.

    storage:    StorageState (1,);  soc_start: (1,) [-]
    markup:     (G, K)  [-]        of the episode
    price:      ()      [USD/MWh]  last cleared at the battery's bus;  price_sum: () over the episode
    load_row:   ()      int32      first row of the episode
    failed:     ()      bool       a clearing has failed: the episode is over
    """

    storage: StorageState
    soc_start: Array
    markup: Array
    price: Array
    price_sum: Array
    load_row: Array
    failed: Array


@struct.dataclass(kw_only=True)
class StorageMarketInfo(Info):
    """Info of a cleared step beside the base `Info`.

    lmp: (N,)  lmp_bus: () [USD/MWh]          requested_p_mw, realized_p_mw: () of the battery;  soc: () after the step
    revenue_usd: () of the battery's energy   offer_cost_usd, true_cost_usd: () of the step
    unit_power_mw: (G,)                       load_mw, unserved_mw, surplus_mw: ()
    opf_success: () bool
    """

    lmp: Array
    lmp_bus: Array
    requested_p_mw: Array
    realized_p_mw: Array
    soc: Array
    revenue_usd: Array
    offer_cost_usd: Array
    true_cost_usd: Array
    unit_power_mw: Array
    load_mw: Array
    unserved_mw: Array
    surplus_mw: Array
    opf_success: Array


@dataclass(frozen=True, eq=False)
class TradingScene(Scene):
    """Scene of the battery, with the mean price () [USD/MWh] of all that the units offer in the episode."""

    mean_offer: Array


SOC = block("soc", "1", 0, 1, lambda scene: scene.state.storage.soc)
PRICE = block("lmp_norm", "1", -5, 100, lambda scene: (scene.state.price / scene.params.price_scale)[None])
DEMAND = block(
    "demand_norm",
    "1",
    0,
    5,
    lambda scene: (scene.row[FACTOR] * scene.params.full_load_mw / jnp.sum(scene.params.factors.p_max_mw))[None],
)
OFFER = block("mean_offer_norm", "1", -5, 100, lambda scene: (scene.mean_offer / scene.params.price_scale)[None])
FIELDS = table([SOC, PRICE, CLOCK, DEMAND])
FIELDS_WITH_OFFER = table([*FIELDS.blocks, OFFER])
name_values(__name__)


class Bid(NamedTuple):
    """Power asked of the battery (1,) [MW] and its delivery."""

    asked_mw: Array
    out: Delivery


@dataclass(frozen=True)
class StorageMarketEnv(GridEnv):
    """One battery that moves the price it is paid.

    Observation: the blocks of `fields`. Action (1, 1) in [-1, 1] of the rating, + discharge.
    Reward terms [USD]: energy_sales at the price of the own bus, degradation, smoothing, settlement at the last step of
    what is left in store at the mean price of the episode.
    Cost channels: thermal_overload [MW], unserved_energy [MWh], resource [MW].
    Termination: a clearing does not reach its optimum; nothing is earned, and all load to the horizon is unserved.

    Example:
        from powerzoo_jax.families.market.tasks.storage import make_storage_market
        sim = make_storage_market("bid", markup_std=0.1)
        state, obs = sim.init(jax.random.key(0))
        state, obs, reward, cost, info = sim.step(state, jnp.ones((1, 1)))
    """

    def start(self, key: Array, drawn: Draw, params: StorageMarketParams) -> tuple[StorageMarketState, Array]:
        """Start a given episode; the first price is that of its first load with an idle battery."""
        shape = params.offers.price.shape
        noise = normal(purpose_key(key, Purpose.OFFERS), shape, params.voll.dtype)
        battery = storage.init(params.storage, drawn.soc)
        zero = jnp.zeros_like(params.voll)
        state = StorageMarketState(
            t=jnp.zeros((), jnp.int32),
            key=key,
            storage=battery,
            soc_start=battery.soc,
            markup=jnp.abs(params.markup_std * noise),
            price=zero,
            price_sum=zero,
            load_row=drawn.load_row,
            failed=jnp.zeros((), bool),
        )
        price = self._clear(state, jnp.zeros_like(drawn.soc), params).dispatch.lmp[params.battery_bus]
        state = dataclasses.replace(state, price=price)
        return state, self._fields(state, params)

    def decode(self, action: Array, params: StorageMarketParams) -> Array:
        """(1, 1) in [-1, 1] -> power (1,) [MW]; a NaN counts as 0."""
        value = jnp.where(jnp.isfinite(action), jnp.clip(action, -1, 1), 0)
        return storage.command(params.storage, value)[0]

    def limit(self, state: StorageMarketState, command: Array, params: StorageMarketParams) -> tuple[StorageState, Bid]:
        """Feasible power of the battery."""
        new, out = storage.step(params.storage, state.storage, command, self.dt_hours)
        return new, Bid(command, out)

    def dispatch(self, state: StorageMarketState, delivery: Bid, params: StorageMarketParams) -> Clearing:
        """Clear the offers against the load of row t less what the battery injects."""
        return self._clear(state, delivery.out.p_mw, params)

    def flow(self, injection: Clearing, params: StorageMarketParams) -> Clearing:
        """The clearing has solved the DC flow already."""
        del params
        return injection

    def account(
        self,
        state: StorageMarketState,
        devices: StorageState,
        delivery: Bid,
        flow: Clearing,
        params: StorageMarketParams,
    ) -> tuple[StorageMarketState, Array, Array, StorageMarketInfo]:
        """Money of the battery, cost channels, clock and flags."""
        dt, out, fleet = self.dt_hours, flow.dispatch, params.storage
        fine = out.status == OpfStatus.OPTIMAL
        failed = state.failed | ~fine
        price = jnp.where(failed, state.price, out.lmp[params.battery_bus])
        total = state.price_sum + price
        new = dataclasses.replace(state, t=state.t + 1, storage=devices, price=price, price_sum=total, failed=failed)
        power = delivery.out.p_mw
        mean = total / params.horizon.astype(total.dtype)
        left = settlement(devices.soc, state.soc_start, fleet.capacity_mwh, mean, fleet.eta_charge, fleet.eta_discharge)
        sales = jnp.sum(energy_sales(price, power, dt))
        money = [
            sales,
            -jnp.sum(delivery.out.cost_usd),
            -params.smoothing_usd_per_mw * jnp.sum(jnp.abs(power - state.storage.p_mw)),
            jnp.where(new.t == params.horizon, jnp.sum(left), 0),
        ]
        terms = jnp.where(failed, 0, jnp.stack(money))
        overload = jnp.where(failed, 0, cleared_excess(out.line_flow_mw, params.factors.rate_mva))
        unserved = jnp.sum(out.shed_mw)
        energy = jnp.where(failed, remaining_load(state, params) * params.full_load_mw * dt, unserved * dt)
        info = StorageMarketInfo(
            **end_flags(new.t, params.horizon, failed),
            pf_status=cleared_status(fine),
            pf_residual=out.primal_residual,
            legal=jnp.ones((1, 0), bool),
            terms=terms[None, :],
            lmp=out.lmp,
            lmp_bus=price,
            requested_p_mw=jnp.sum(delivery.asked_mw),
            realized_p_mw=jnp.sum(power),
            soc=jnp.sum(devices.soc),
            revenue_usd=jnp.where(failed, 0, sales),
            offer_cost_usd=out.generation_cost * dt,
            true_cost_usd=flow.true_cost * dt,
            unit_power_mw=out.unit_power_mw,
            load_mw=current_row(state, params)[FACTOR] * params.full_load_mw,
            unserved_mw=unserved,
            surplus_mw=jnp.sum(out.spill_mw),
            opf_success=fine,
        )
        cost = unless_settled(state.failed, jnp.stack([overload, energy, jnp.sum(delivery.out.undelivered_mw)]))
        return new, self.weighted(terms)[None], cost, info

    def storage_mw(self, info: StorageMarketInfo) -> Array:
        """Terminal power of the battery in a step, both directions, () [MW]."""
        return jnp.abs(info.realized_p_mw)

    def _offers(self, state: StorageMarketState, params: StorageMarketParams) -> Offers:
        price = jnp.sort(params.offers.price * (1 + state.markup), axis=1)
        return dataclasses.replace(params.offers, price=price)

    def _clear(self, state: StorageMarketState, battery_mw: Array, params: StorageMarketParams) -> Clearing:
        load = params.load_share * (current_row(state, params)[FACTOR] * params.full_load_mw)
        net = load.at[params.battery_bus].add(-jnp.sum(battery_mw))
        return unchecked(clear_market)(
            params.factors, self._offers(state, params), net, voll=params.voll, vertex=False, solver=self.solver
        )

    def _fields(self, state: StorageMarketState, params: StorageMarketParams) -> Array:
        row, offers = current_row(state, params), self._offers(state, params)
        width = jnp.sum(offers.width_mw)
        mean = jnp.sum(offers.price * offers.width_mw) / jnp.where(width > 0, width, 1)
        return observe(self.fields, TradingScene(self.dt_hours, params, state, row, mean), 1)
