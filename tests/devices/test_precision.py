"""Every device in float32 against float64, its leaves' dtypes, and a batch against single lanes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.devices import flexload, renewable, storage, thermal, vehicle
from powerzoo_jax.devices.flexload import flexload_params
from powerzoo_jax.devices.renewable import renewable_params
from powerzoo_jax.devices.storage import storage_params
from powerzoo_jax.devices.thermal import thermal_params
from powerzoo_jax.devices.trips import CommuteTrip, daily_trips
from powerzoo_jax.devices.vehicle import vehicle_params
from tests.tolerances import tolerance

pytestmark = pytest.mark.property

STEPS, DT = 96, 0.5


def battery(dtype: str) -> Any:
    params = storage_params(2, dtype, capacity_mwh=0.5, power_mw=0.2, s_mva=0.25, degradation_per_mwh=5.0)

    def step(state: Any, action: Any, t: Any) -> Any:
        p, q = storage.command(params, action)
        return storage.step(params, state, p, DT, q)

    return storage.init(params, jnp.full(2, 0.4, dtype)), step


def plant(dtype: str) -> Any:
    params = renewable_params(2, dtype, capacity_mw=0.2, s_mva=0.22, curtail_usd_per_mwh=7.0)

    def step(state: Any, action: Any, t: Any) -> Any:
        return renewable.step(params, state, renewable.command(params, action), DT, jnp.full(2, 0.7, dtype))

    return renewable.init(params), step


def load(dtype: str) -> Any:
    params = flexload_params(2, dtype, curtail_cap_mw=0.1, shift_cap_mw=0.1, both_usd_per_mwh=2.0)

    def step(state: Any, action: Any, t: Any) -> Any:
        at = jnp.full(2, 0.15, dtype), jnp.full(2, 0.05, dtype)
        return flexload.step(params, state, flexload.command(params, (action + 1) / 2), DT, *at)

    return flexload.init(params, 4), step


def car(dtype: str) -> Any:
    trips = daily_trips([[CommuteTrip(1.0, 2.0, 9.0)], [CommuteTrip(2.0, 3.0, 40.0)]], 30, dtype)
    params = vehicle_params(trips, dtype, degradation_per_mwh=10.0)

    def step(state: Any, action: Any, t: Any) -> Any:
        return vehicle.step(params, state, vehicle.command(params, action), DT, (30 * t) % 1440)

    return vehicle.init(params, jnp.full(2, 0.5, dtype), trips), step


def diesel(dtype: str) -> Any:
    params = thermal_params(2, dtype, mc_a=30.0, mc_b=40.0, p_min_norm=0.2, ramp_mw_per_h=0.5, start_usd=3.0)

    def step(state: Any, action: Any, t: Any) -> Any:
        return thermal.step(params, state, thermal.command(params, (action + 1) / 2), DT)

    return thermal.init(params), step


DEVICES = [battery, plant, load, car, diesel]


def play(device: Any, dtype: str, actions: np.ndarray, lanes: bool = False) -> Any:
    """Every state and output of an episode (STEPS, 2, 2), or of several at once."""

    def episode(actions: Any) -> Any:
        first, step = device(dtype)

        def body(state: Any, at: Any) -> Any:
            new, out = step(state, *at)
            return new, (new, out)

        return jax.lax.scan(body, first, (actions, jnp.arange(STEPS, dtype=jnp.int32)))[1]

    return jax.jit(jax.vmap(episode) if lanes else episode)(jnp.asarray(actions, dtype))


@pytest.mark.parametrize("device", DEVICES)
def test_float32_follows_float64_and_every_leaf_keeps_its_dtype(device):
    actions, runs = np.random.default_rng(6).uniform(-1, 1, (STEPS, 2, 2)).astype(np.float32), {}
    for dtype in ("float32", "float64"):
        with jax.enable_x64(dtype == "float64"):
            made = play(device, dtype, actions)
            kinds = {leaf.dtype.name for leaf in jax.tree.leaves(made)}
            assert not any(leaf.weak_type for leaf in jax.tree.leaves(made))
            assert dtype in kinds and kinds <= {dtype, "int32", "bool"}
            runs[dtype] = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(made)]
    for single, double in zip(runs["float32"], runs["float64"], strict=True):
        scale = max(1e-3, np.abs(double).max())
        assert np.abs(single - double).max() <= tolerance("device_balance", "float32") * scale


@pytest.mark.parametrize("device", DEVICES)
def test_a_lane_of_a_batch_equals_the_same_episode_alone(device):
    actions = np.random.default_rng(9).uniform(-1, 1, (5, STEPS, 2, 2)).astype(np.float32)
    batch = jax.tree.leaves(play(device, "float32", actions, lanes=True))
    alone = jax.tree.leaves(play(device, "float32", actions[3]))
    for many, one in zip(batch, alone, strict=True):
        np.testing.assert_allclose(many[3], one, rtol=tolerance("lane", "float32"), atol=1e-7)
