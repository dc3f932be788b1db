"""Whole episodes from chosen starts, of which the totals are kept and not the steps.

Beside money and costs, `tally` adds up the figures of each family: energy, carbon, departures, switching.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array, lax
from jax.tree_util import Partial

from powerzoo_jax.base import Purpose, Step, purpose_key
from powerzoo_jax.devices.trips import events
from powerzoo_jax.devices.vehicle import episode_trips
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.feeder.types import DistributionInfo
from powerzoo_jax.families.microgrid.env import MicrogridInfo
from powerzoo_jax.families.transmission.units_types import TransmissionInfo

READY = 1e-5  # of a vehicle's capacity, that rounding may leave missing at a departure
ROUNDED_MW = 1e-3  # what rounding makes of a branch at its rating, or of a reserve that is just met

Tally = dict[str, Array]
"""name -> what one step adds, () each; the names say the unit"""


def tally(state: Any, out: Step, params: Any, dt_hours: float) -> Tally:
    """Contribution of a step to each figure of its episode, from the state before it; empty for families without any.

    A step whose power flow failed adds nothing: its flows are no flows.
    """
    rule = RULES.get(type(out.info))
    added = rule(state, out, params, dt_hours) if rule else {}
    return {name: jnp.where(out.info.terminated, 0, value) for name, value in added.items()}


def _feeder(state: Any, out: Step, params: Any, dt_hours: float) -> Tally:
    info: DistributionInfo = out.info
    found = {"loss_mwh": info.p_loss_mw * dt_hours}
    if info.renewable is not None:
        found["curtailed_mwh"] = jnp.sum(info.renewable.curtailed_mwh)
    if info.flexload is not None:
        units = out.state.flexload
        found["shed_mwh"] = jnp.sum(units.curtail_mw) * dt_hours
        found["deferred_mwh"] = jnp.sum(units.shift_mw) * dt_hours
        found["returned_mwh"] = jnp.sum(units.return_mw) * dt_hours
    if info.vehicle is not None:
        found |= _vehicles(state, info, params.vehicle, dt_hours)
    if info.datacenter is not None:
        found |= _site(-info.datacenter.p_mw, out.state.datacenter.it_mw, dt_hours)
    return found


def _vehicles(state: Any, info: DistributionInfo, fleet: Any, dt_hours: float) -> Tally:
    """Departures, those with the charge that the driver expects, net cost of energy [$], and energy sold [MWh]."""
    trips, minutes = episode_trips(fleet, state.vehicle), round(dt_hours * 60)
    leaves = fleet.mask & events(trips, state.t * minutes, minutes).departs
    report = info.vehicle
    assert report is not None
    ready = leaves & (report.shortfall_mwh <= READY * fleet.capacity_mwh)
    count = report.p_mw.dtype
    return {
        "departures": jnp.sum(leaves, dtype=count),
        "ready_departures": jnp.sum(ready, dtype=count),
        "energy_cost_usd": -info.price_per_mwh * jnp.sum(report.p_mw) * dt_hours,
        "v2g_mwh": jnp.sum(jnp.maximum(report.p_mw, 0)) * dt_hours,
    }


def _site(load_mw: Array, it_mw: Array, dt_hours: float) -> Tally:
    return {"site_mwh": jnp.sum(load_mw) * dt_hours, "it_mwh": jnp.sum(it_mw) * dt_hours}


def _microgrid(state: Any, out: Step, params: Any, dt_hours: float) -> Tally:
    del state, params
    info: MicrogridInfo = out.info
    return {
        **_site(info.p_load_mw, out.state.site.it_mw, dt_hours),
        "deficit_mwh": info.power_deficit_mw * dt_hours,
        "hours": jnp.full_like(info.power_deficit_mw, dt_hours),
        "mean_carbon_kg": info.carbon_kg,
        "fuel_mwh": info.p_dg_mw * dt_hours,
    }


def _transmission(state: Any, out: Step, params: Any, dt_hours: float) -> Tally:
    del params, dt_hours
    info: TransmissionInfo = out.info
    count = info.overload_mw.dtype
    switching = info.startup_cost_usd + info.shutdown_cost_usd
    return {
        "operating_cost_usd": info.gen_cost_usd + info.no_load_cost_usd + switching,
        "total_startup_cost": info.startup_cost_usd,
        "startups": jnp.sum(info.committed & ~state.units.on, dtype=count),
        "committed_units": jnp.sum(info.committed, dtype=count),
        "units": jnp.full((), info.committed.shape[0], count),
        "overload_mw": info.overload_mw,
        "overload_steps": (info.overload_mw > ROUNDED_MW).astype(count),
        "reserve_shortfall_steps": (info.reserve_shortfall_mw > ROUNDED_MW).astype(count),
    }


RULES: dict[type, Callable[[Any, Step, Any, float], Tally]] = {
    DistributionInfo: _feeder,
    MicrogridInfo: _microgrid,
    TransmissionInfo: _transmission,
}


Act = Callable[[Any, Array, Array], tuple[Any, Array]]
"""(carry, obs (A, O), key) -> (carry, action (A, U))

One that remembers may bring its carry before an episode, as the keyword MEMORY of a `jax.tree_util.Partial`.
"""
MEMORY = "memory"


def first_carry(act: Act, carry: Any, episodes: int | None = None) -> Any:
    """Carry of a policy before an episode: the one given, or where it is () the one that the policy brings.

    episodes:  how many run side by side, each with a row of the carry; None = one, without such an axis
    """
    if jax.tree.leaves(carry):
        return carry
    own = act.keywords.get(MEMORY, ()) if isinstance(act, Partial) else ()
    return own if episodes is None else jax.tree.map(lambda x: jnp.broadcast_to(x, (episodes, *jnp.shape(x))), own)


@struct.dataclass(kw_only=True)
class Totals:
    """Totals of an episode; a batch of episodes puts B in front of every shape.

    total:           ()      return: sum of the reward, averaged over agents
    cost:            (C,)    sum of each cost channel [unit of the channel]
    terms:           (A, K)  sum of each reward term before weighting
    length:          ()      int32  steps until the episode ended
    failed:          ()      bool   ended by termination rather than by the time limit
    pf_failures:     ()      int32  steps whose power flow did not converge
    v_min_pu:        ()      [pu]   lowest solved voltage; inf where the family reports none
    throughput_mwh:  ()      [MWh]  terminal throughput of all storage; 0 where the family has none
    consumer_usd:    ()      [USD]  what loads pay in a market; 0 where the family has none
    price_per_mwh:   ()      [USD/MWh]  sum over the steps of a market's mean price; 0 where the family has none
    tally:           () each        further figures of the family, see `envs.tally`
    """

    total: Array
    cost: Array
    terms: Array
    length: Array
    failed: Array
    pf_failures: Array
    v_min_pu: Array
    throughput_mwh: Array
    consumer_usd: Array
    price_per_mwh: Array
    tally: Tally


def run_episode(sim: Sim, act: Act, carry: Any, key: Array, drawn: Draw) -> Totals:
    """Play one episode from a chosen start; steps after its end do not count.

    key:  key of the episode, as `sim.init` would take it; the policy draws from its POLICY sub-stream
    """
    state, obs = sim.env.begin(key, drawn, sim.params)

    def advance(loop: tuple[Any, ...], key: Array) -> tuple[tuple[Any, ...], Tally]:
        state, obs, carry, totals, alive = loop
        carry, action = act(carry, obs, key)
        out = sim.step(state, action)
        totals = _add(totals, out, alive, _storage_mw(sim, out.info) * sim.spec.dt_hours)
        found = tally(state, out, sim.params, sim.spec.dt_hours)
        counted = {name: jnp.where(alive, value, 0) for name, value in found.items()}
        alive = alive & ~(out.info.terminated | out.info.truncated)
        return (out.state, out.obs, carry, totals, alive), counted

    keys = jax.random.split(purpose_key(key, Purpose.POLICY), sim.spec.horizon)
    start = (state, obs, carry, _zero(sim, obs.dtype), jnp.ones((), bool))
    (*_, totals, _), counted = lax.scan(advance, start, keys)
    return replace(totals, tally={name: jnp.sum(values) for name, values in counted.items()})


@jax.jit
def _run_batch(sim: Sim, act: Partial, carry: Any, keys: Array, draws: Draw) -> Totals:
    return jax.vmap(lambda c, key, drawn: run_episode(sim, act, c, key, drawn))(carry, keys, draws)


def run_episodes(sim: Sim, act: Act, keys: Array, draws: Draw, carry: Any = ()) -> Totals:
    """Play a batch of episodes side by side, compiled.

    act:    a function, or a `jax.tree_util.Partial` whose arrays are then arguments of the program:
            policies that differ in weights alone share one compile
    keys:   (B,)  one key an episode
    draws:  Draw with leading axis B
    carry:  initial carry of the policy with leading axis B; () where it has none, or brings its own
    """
    carry = first_carry(act, carry, keys.shape[0])
    return _run_batch(sim, act if isinstance(act, Partial) else Partial(act), carry, keys, draws)


def _zero(sim: Sim, dtype: Any) -> Totals:
    dims = sim.env.dims
    count, number = jnp.zeros((), jnp.int32), jnp.zeros((), dtype)
    return Totals(
        total=number,
        cost=jnp.zeros(dims.cost, dtype),
        terms=jnp.zeros((dims.agent, dims.term), dtype),
        length=count,
        failed=jnp.zeros((), bool),
        pf_failures=count,
        v_min_pu=jnp.asarray(jnp.inf, dtype),
        throughput_mwh=number,
        consumer_usd=number,
        price_per_mwh=number,
        tally={},  # summed after the scan, which knows its names
    )


def _storage_mw(sim: Sim, info: Any) -> Array:
    """Terminal power of all storage, both directions, () [MW]; 0 where the family has none."""
    measure = getattr(sim.env, "storage_mw", None)
    return jnp.zeros_like(info.pf_residual) if measure is None else measure(info)


def _add(totals: Totals, out: Step, alive: Array, throughput_mwh: Array) -> Totals:
    info = out.info
    v_min = getattr(info, "v_min_pu", totals.v_min_pu)
    none = jnp.zeros_like(totals.total)
    return Totals(
        total=totals.total + jnp.where(alive, jnp.mean(out.reward), 0),
        cost=totals.cost + jnp.where(alive, out.cost, 0),
        terms=totals.terms + jnp.where(alive, info.terms, 0),
        length=totals.length + alive.astype(jnp.int32),
        failed=totals.failed | (alive & info.terminated),
        pf_failures=totals.pf_failures + (alive & (info.pf_status != 0)).astype(jnp.int32),
        v_min_pu=jnp.minimum(totals.v_min_pu, jnp.where(alive, v_min, jnp.inf)),
        throughput_mwh=totals.throughput_mwh + jnp.where(alive, throughput_mwh, 0),
        consumer_usd=totals.consumer_usd + jnp.where(alive, getattr(info, "consumer_cost_usd", none), 0),
        price_per_mwh=totals.price_per_mwh + jnp.where(alive, getattr(info, "mean_price", none), 0),
        tally=totals.tally,
    )
