"""Derivatives of an episode by its actions against central differences in float64, away from the kinks of limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from powerzoo_jax.devices import datacenter, flexload, renewable, storage, thermal, vehicle
from powerzoo_jax.devices.datacenter import DataCenterExogenous
from powerzoo_jax.devices.facility import QueueSizes, datacenter_params
from powerzoo_jax.devices.flexload import flexload_params
from powerzoo_jax.devices.jobs import Jobs
from powerzoo_jax.devices.renewable import renewable_params
from powerzoo_jax.devices.storage import storage_params
from powerzoo_jax.devices.thermal import thermal_params
from powerzoo_jax.devices.trips import CommuteTrip, daily_trips
from powerzoo_jax.devices.vehicle import vehicle_params
from tests.tolerances import tolerance

pytestmark = pytest.mark.property

STEPS, DT, H = 8, 0.5, 1e-5


@pytest.fixture(autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def money(out: object, t: Array) -> Array:
    """A price that changes from step to step on both powers, less what the device costs."""
    price = 20.0 + 5.0 * jnp.cos(t.astype("float64"))
    return jnp.sum(price * out.p_mw + 0.3 * price * out.q_mvar - out.cost_usd)  # type: ignore[attr-defined]


def rollout(first: object, step: Callable[..., tuple[object, Array]], actions: Array) -> Array:
    def body(state: object, at: tuple[Array, Array]) -> tuple[object, Array]:
        return step(state, *at)

    return jnp.sum(jax.lax.scan(body, first, (actions, jnp.arange(STEPS)))[1])


def battery(actions: Array) -> Array:
    params = storage_params(2, "float64", capacity_mwh=0.5, power_mw=0.2, s_mva=0.25, degradation_per_mwh=5.0)

    def step(state: object, action: Array, t: Array) -> tuple[object, Array]:
        p, q = storage.command(params, action)
        new, out = storage.step(params, state, p, DT, q)
        return new, money(out, t) + jnp.sum(new.soc * new.soc)

    return rollout(storage.init(params, jnp.asarray([0.3, 0.6])), step, actions)


def plant(actions: Array) -> Array:
    params = renewable_params(2, "float64", capacity_mw=0.2, s_mva=0.22, curtail_usd_per_mwh=7.0)

    def step(state: object, action: Array, t: Array) -> tuple[object, Array]:
        cf = jnp.asarray([0.9, 0.4])
        new, out = renewable.step(params, state, renewable.command(params, action), DT, cf)
        return new, money(out, t)

    return rollout(renewable.init(params), step, actions)


def load(actions: Array) -> Array:
    params = flexload_params(2, "float64", curtail_cap_mw=0.1, shift_cap_mw=0.1, both_usd_per_mwh=2.0)

    def step(state: object, action: Array, t: Array) -> tuple[object, Array]:
        at = jnp.asarray([0.12, 1.0]), jnp.asarray([0.05, 0.3])
        new, out = flexload.step(params, state, flexload.command(params, (action + 1) / 2), DT, *at)
        return new, money(out, t) - jnp.sum(flexload.terminal_usd(params, new, DT))

    return rollout(flexload.init(params, 4), step, actions)


def car(actions: Array) -> Array:
    trips = daily_trips([[CommuteTrip(1.0, 2.0, 9.0)], [CommuteTrip(2.0, 3.0, 40.0)]], 30, "float64")
    params = vehicle_params(trips, "float64", degradation_per_mwh=10.0)

    def step(state: object, action: Array, t: Array) -> tuple[object, Array]:
        minute = (30 * t).astype(jnp.int32)
        new, out = vehicle.step(params, state, vehicle.command(params, action), DT, minute)
        return new, money(out, t) - 100 * jnp.sum(out.shortfall_mwh) + jnp.sum(new.soc * new.soc)

    return rollout(vehicle.init(params, jnp.asarray([0.5, 0.5]), trips), step, actions)


def diesel(actions: Array) -> Array:
    params = thermal_params(2, "float64", mc_a=30.0, mc_b=40.0, p_min_norm=0.2, ramp_mw_per_h=0.5)

    def step(state: object, action: Array, t: Array) -> tuple[object, Array]:
        new, out = thermal.step(params, state, thermal.command(params, (action + 1) / 2), DT)
        return new, money(out, t)

    return rollout(thermal.init(params), step, actions)


def site(actions: Array) -> Array:
    """Cooling only: whether a job starts is a jump, and its derivative is 0 on both sides."""
    params = datacenter_params(2, "float64")
    none = Jobs(*(jnp.zeros((2, 1)) for _ in range(3)))

    def step(state: object, action: Array, t: Array) -> tuple[object, Array]:
        weather = DataCenterExogenous(jnp.asarray([0.4, 0.8]), jnp.asarray([15.0, 33.0]))
        order, minute = datacenter.command(params, action), 30 * t
        new, out = datacenter.step(params, state, order, DT, minute, (none, none), weather)
        return new, money(out, t) - 0.01 * jnp.sum(new.t_zone_c**2)

    return rollout(datacenter.init(params, QueueSizes(queue=2, arrivals=(1, 1), bins=(2, 2))), step, actions)


@pytest.mark.tiers(full=["diesel-1"], long=["car-1", "site-3"])
@pytest.mark.parametrize(
    ("episode", "entries"), [(battery, 2), (plant, 2), (load, 2), (car, 1), (diesel, 1), (site, 3)], ids=lambda x: x
)
def test_the_gradient_of_an_episode_matches_central_differences(episode, entries):
    rng = np.random.default_rng(12)
    actions = jnp.asarray(rng.uniform(-0.9, 0.9, (STEPS, 2, entries)))
    gradient = jax.jit(jax.grad(episode))(actions)
    value = jax.jit(episode)
    assert float(jnp.max(jnp.abs(gradient))) > 1e-3
    for _ in range(8):
        way = jnp.asarray(rng.normal(size=actions.shape))
        numeric = (value(actions + H * way) - value(actions - H * way)) / (2 * H)
        exact = jnp.sum(gradient * way)
        scale = float(jnp.sum(jnp.abs(gradient * way)))
        assert abs(float(exact - numeric)) <= tolerance("gradient_relative", "float64") * scale


@pytest.mark.tiers(
    full=["-1.0-diesel-1", "0.0-car-1", "0.0-diesel-1", "1.0-car-1", "1.0-diesel-1", "1.0-site-3"],
    long=["-1.0-car-1", "-1.0-site-3", "0.0-site-3"],
)
@pytest.mark.parametrize(
    ("episode", "entries"), [(battery, 2), (plant, 2), (load, 2), (car, 1), (diesel, 1), (site, 3)], ids=lambda x: x
)
@pytest.mark.parametrize("extreme", [-1.0, 0.0, 1.0])
def test_the_gradient_is_finite_at_every_limit(episode, entries, extreme):
    gradient = jax.jit(jax.grad(episode))(jnp.full((STEPS, 2, entries), extreme))
    assert np.isfinite(np.asarray(gradient)).all()
