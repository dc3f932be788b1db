"""Figures of episodes beside returns: hand numbers for what a step adds, and laws for what a record says."""

from __future__ import annotations

import dataclasses
from functools import cache
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.base import Step
from powerzoo_jax.base.tree import take
from powerzoo_jax.devices.datacenter import DataCenterDelivery
from powerzoo_jax.devices.flexload import FlexLoadState
from powerzoo_jax.devices.renewable import RenewableDelivery
from powerzoo_jax.envs.episode import tally
from powerzoo_jax.families.feeder.types import DistributionInfo
from powerzoo_jax.families.microgrid.env import MicrogridInfo
from powerzoo_jax.families.transmission.units_types import TransmissionInfo
from powerzoo_jax.tasks.score import Figure, all_starts, bootstrap_intervals, evaluate

SUM = 1e-5  # relative: steps of single precision added up in another order
DT = 0.5


def info_of(kind, **fields):
    """An info of which only these fields are read."""
    names = (f.name for f in dataclasses.fields(kind))
    given = {name: jnp.asarray(x) if isinstance(x, float | list | bool) else x for name, x in fields.items()}
    return kind(
        **{name: given.get(name) for name in names} | {"terminated": given.get("terminated", jnp.zeros((), bool))}
    )


FAMILIES = {DistributionInfo: "feeder", MicrogridInfo: "microgrid", TransmissionInfo: "transmission"}


def added(info, state=None, new=None):
    spec = SimpleNamespace(family=FAMILIES[type(info)], dt_hours=DT)
    values = tally(SimpleNamespace(spec=spec, env=None, params=None), state, Step(new, None, None, None, info))
    return {name: float(x) for name, x in values.items()}


def test_a_feeder_adds_its_losses_and_what_each_kind_of_device_did():
    plant = RenewableDelivery(*[None] * 4, curtailed_mwh=jnp.array([0.25, 0.5]))
    site = DataCenterDelivery(jnp.array([-0.6, -0.2]), *[None] * 5)
    units = FlexLoadState(
        due_mw=None, curtail_mw=jnp.array([0.5]), shift_mw=jnp.array([0.25]), return_mw=jnp.array([0.125])
    )
    new = SimpleNamespace(flexload=units, datacenter=SimpleNamespace(it_mw=jnp.array([0.375, 0.125])))
    info = info_of(DistributionInfo, p_loss_mw=0.25, renewable=plant, flexload=(), datacenter=site)
    assert added(info, new=new) == pytest.approx(
        {
            "loss_mwh": 0.125,
            "curtailed_mwh": 0.75,
            "shed_mwh": 0.25,
            "deferred_mwh": 0.125,
            "returned_mwh": 0.0625,
            "site_mwh": 0.4,
            "it_mwh": 0.25,
        }
    )


def test_a_failed_step_adds_nothing():
    assert added(info_of(DistributionInfo, p_loss_mw=99.0, terminated=True)) == {"loss_mwh": 0.0}


def test_a_microgrid_adds_deficit_carbon_and_diesel_energy():
    new = SimpleNamespace(site=SimpleNamespace(it_mw=jnp.array([0.5])))
    info = info_of(MicrogridInfo, p_load_mw=0.75, power_deficit_mw=0.25, carbon_kg=80.0, p_dg_mw=0.5)
    found = {"site_mwh": 0.375, "it_mwh": 0.25, "deficit_mwh": 0.125, "hours": 0.5}
    assert added(info, new=new) == found | {"mean_carbon_kg": 80.0, "fuel_mwh": 0.25}


def test_a_transmission_grid_adds_what_its_units_cost_and_how_often_limits_were_broken():
    state = SimpleNamespace(units=SimpleNamespace(on=jnp.array([True, False, False])))
    costs = {"gen_cost_usd": 100.0, "no_load_cost_usd": 10.0, "startup_cost_usd": 500.0, "shutdown_cost_usd": 200.0}
    limits = {"overload_mw": 7.0, "reserve_shortfall_mw": 0.0}
    info = info_of(TransmissionInfo, committed=[False, True, True], **costs, **limits)
    assert added(info, state) == {
        "operating_cost_usd": 810.0,
        "total_startup_cost": 500.0,
        "startups": 2.0,
        "committed_units": 2.0,
        "units": 3.0,
        "overload_mw": 7.0,
        "overload_steps": 1.0,
        "reserve_shortfall_steps": 0.0,
    }


IDLE, SELL = slice(0, 2), slice(2, 4)


@cache
def vehicles():
    """Two days of idle vehicles, then the same two with all that they hold sold as soon as they are at home."""
    sim = powerzoo_jax.make("marl_ev_v2g_1d", split="test", soc_departure_min=0.599)
    draws = take(all_starts(sim), np.array([0, 1, 0, 1]))
    orders = jnp.zeros((4, 5, 1)).at[SELL].set(1.0)
    return evaluate(sim, lambda order, obs, key: (order, order), draws=draws, carry=orders, ends=(-10.0, 2.0))


def of_day(name, days):
    return np.array(vehicles().episode_metrics[name][days])


@pytest.mark.long
def test_idle_vehicles_are_ready_for_the_first_trip_of_a_day_and_for_no_other():
    """All five start at 0.6 and are asked for 0.599; every trip takes at least 1.5 of 60 kWh."""
    np.testing.assert_allclose(of_day("departure_success_rate", IDLE), 5 / 11)
    assert not of_day("v2g_mwh", IDLE).any() and not of_day("energy_cost_usd", IDLE).any()


@pytest.mark.long
def test_vehicles_that_sell_all_they_have_deliver_it_as_their_account_says():
    # the team's account is the mean of five
    np.testing.assert_allclose(of_day("energy_cost_usd", SELL), -5 * of_day("energy_sales", SELL), rtol=SUM)
    # degradation costs 10 a MWh, and a fleet that never charges only discharges
    sold = of_day("v2g_mwh", SELL)
    np.testing.assert_allclose(sold, -5 * of_day("degradation", SELL) / 10, rtol=SUM)
    # from 0.6 to 0.1 of 60 kWh each, driving included
    assert (sold > 0).all() and (sold <= 5 * 0.5 * 0.060).all()
    assert not of_day("departure_success_rate", SELL).any()


@pytest.mark.full
def test_values_by_episode_make_the_mean_and_the_interval_covers_it():
    record = vehicles()
    assert record.metrics["share_of_oracle_profit"] == pytest.approx(record.mean_reward / 2)
    assert record.metrics["profit_usd"] == pytest.approx(record.mean_reward, rel=SUM)
    assert record.metrics["departure_success_rate"] == pytest.approx(5 / 22)
    for name, values in record.episode_metrics.items():
        if name == "min_voltage_pu":
            assert record.metrics[name] == min(values)
        else:
            low, high = record.metrics_ci95[name]
            assert record.metrics[name] == pytest.approx(np.mean(values))
            assert low - 1e-12 <= record.metrics[name] <= high + 1e-12


def test_a_rate_is_of_all_events_and_none_where_there_is_none():
    some, none = Figure(np.array([1.0, 0.0]), np.array([2.0, 6.0])), Figure(np.zeros(2), np.zeros(2))
    assert some.value() == 0.125 and some.by_episode() == [0.5, 0.0]
    assert none.value() is None and none.by_episode() == [None, None]
    assert bootstrap_intervals(np.zeros((1, 2)), np.zeros((1, 2)), 0) == [None]


def test_the_bootstrap_of_a_mean_is_that_of_the_normal_distribution():
    values = np.random.default_rng(1).normal(3.0, 2.0, 400)
    ((low, high),) = bootstrap_intervals(values[None], np.ones((1, 400)), 0)
    half = 1.96 * values.std() / 20
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.1 * half)
