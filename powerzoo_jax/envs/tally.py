"""What an episode adds up to beside money and costs: energy, carbon, departures, switching, by family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base import Step
from powerzoo_jax.devices.trips import events
from powerzoo_jax.devices.vehicle import episode_trips
from powerzoo_jax.envs.feeder.types import DistributionInfo
from powerzoo_jax.envs.microgrid.microgrid_state import MicrogridInfo
from powerzoo_jax.envs.transmission.units_types import TransmissionInfo

READY = 1e-5  # of a vehicle's capacity, that rounding may leave missing at a departure
ROUNDED_MW = 1e-3  # what rounding makes of a branch at its rating, or of a reserve that is just met

Tally = dict[str, Array]
"""name -> what one step adds, () each; the names say the unit"""


def tally(state: Any, out: Step, params: Any, dt_hours: float) -> Tally:
    """What a step adds to each figure of its episode, from the state before it; empty for families without any.

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
    """Departures, and those with what the driver expects; energy bought less energy sold, and the latter."""
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
