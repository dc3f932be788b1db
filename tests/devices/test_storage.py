"""Batteries: hand numbers, the energy balance, and what the builder refuses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.devices import storage
from powerzoo_jax.devices.storage import StorageState, storage_params

PRINTED = 5e-8  # half a unit in the seventh printed decimal
ROUNDING = 1e-12  # 200 float64 steps of numbers near one


def battery(n_unit=1, **keywords):
    """One MWh, half a MW, 0.95 each way: the battery of the golden table, in float64."""
    keywords = {"capacity_mwh": 1.0, "power_mw": 0.5, "eta_roundtrip": 0.95**2} | keywords
    return storage_params(n_unit, "float64", **keywords)


def advance(params, soc, command_mw, dt_hours):
    state = storage.init(params, jnp.asarray(soc, params.power_mw.dtype))
    done = storage.step(params, state, jnp.asarray(command_mw, params.power_mw.dtype), dt_hours)
    return jax.tree.map(np.asarray, done)


def test_discharging_draws_more_from_the_store_than_reaches_the_terminal():
    with jax.enable_x64(True):
        state, delivery = advance(battery(), [0.5], [0.5], 0.25)
    assert state.soc[0] == pytest.approx(0.3684211, abs=PRINTED)
    assert delivery.p_mw[0] == 0.5 and delivery.undelivered_mw[0] == 0.0


def test_an_almost_empty_battery_delivers_what_is_left_and_reports_the_rest():
    with jax.enable_x64(True):
        state, delivery = advance(battery(soc_min=0.1), [0.12], [0.5], 0.5)
    assert delivery.p_mw[0] == pytest.approx(0.038, abs=ROUNDING)
    assert delivery.undelivered_mw[0] == pytest.approx(0.462, abs=ROUNDING)
    assert state.soc[0] == pytest.approx(0.1, abs=ROUNDING)


def test_a_round_trip_efficiency_splits_evenly():
    with jax.enable_x64(True):
        params = battery(eta_roundtrip=0.95)
    assert params.eta_charge[0] == pytest.approx(0.9746794, abs=PRINTED)
    assert params.eta_discharge[0] == params.eta_charge[0]


def test_charging_stops_at_the_upper_end_of_the_band():
    with jax.enable_x64(True):
        state, delivery = advance(battery(), [0.88], [-0.5], 0.5)
    assert delivery.p_mw[0] == pytest.approx(-0.02 / (0.95 * 0.5), abs=ROUNDING)
    assert state.soc[0] == pytest.approx(0.9, abs=ROUNDING)


def test_stored_energy_is_the_sum_of_terminal_energy_times_efficiency():
    dt, rng = 0.5, np.random.default_rng(7)
    with jax.enable_x64(True):
        params = battery(3, eta_roundtrip=0.8)
        state = first = storage.init(params, jnp.asarray([0.2, 0.5, 0.85]))
        stored = np.zeros(3)
        for command in rng.uniform(-0.6, 0.6, (200, 3)):
            state, delivery = storage.step(params, state, jnp.asarray(command), dt)
            p = np.asarray(delivery.p_mw)
            stored -= dt * np.where(p > 0, p / np.sqrt(0.8), p * np.sqrt(0.8))
            assert (np.asarray(state.soc) >= 0.1).all() and (np.asarray(state.soc) <= 0.9).all()
    np.testing.assert_allclose(np.asarray(state.soc - first.soc), stored, atol=ROUNDING)


def test_power_bounds_are_what_a_step_delivers():
    with jax.enable_x64(True):
        params = battery(2)
        state = storage.init(params, jnp.asarray([0.12, 0.89]))
        low, high = storage.power_bounds(params, state, 0.5)
        full = storage.step(params, state, params.power_mw, 0.5)[1].p_mw
        empty = storage.step(params, state, -params.power_mw, 0.5)[1].p_mw
    np.testing.assert_array_equal(full, high)
    np.testing.assert_array_equal(empty, low)


def test_a_padded_battery_delivers_nothing_and_has_finite_gradients():
    with jax.enable_x64(True):
        params = battery(2).replace(mask=jnp.asarray([True, False]))
        state = StorageState(
            soc=jnp.asarray([0.5, 0.0]), p_mw=jnp.zeros(2), q_mvar=jnp.zeros(2), throughput_mwh=jnp.zeros(2)
        )

        def delivered(command):
            return jnp.sum(storage.step(params, state, command, 0.5)[1].p_mw)

        p = storage.step(params, state, jnp.asarray([0.3, 0.3]), 0.5)[1]
        slope = jax.grad(delivered)(jnp.asarray([0.3, 0.3]))
        p, slope = jax.tree.map(np.asarray, (p, slope))
    np.testing.assert_allclose(p.p_mw, [0.3, 0.0])
    assert p.undelivered_mw[1] == 0.0
    np.testing.assert_allclose(slope, [1.0, 0.0])


def test_degradation_is_paid_on_terminal_throughput_in_both_directions():
    with jax.enable_x64(True):
        params = battery(2, degradation_per_mwh=5.0)
        cost = storage.degradation_usd(params, jnp.asarray([0.2, -0.4]), 0.5)
    np.testing.assert_allclose(cost, [0.5, 1.0])


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"capacity_mwh": 0.0}, "capacity_mwh = 0.0 must be positive"),
        ({"power_mw": -1.0}, "power_mw = -1.0 must be positive"),
        ({"eta_roundtrip": 1.2}, r"eta_roundtrip = 1.2 must lie in \(0, 1\]"),
        ({"soc_min": 0.9, "soc_max": 0.1}, "soc_min < soc_max"),
        ({"initial_soc": 0.95}, "initial_soc = 0.95 must lie inside"),
        ({"degradation_per_mwh": -1.0}, "must not be negative"),
    ],
)
def test_impossible_ratings_are_refused_by_name(keywords, words):
    with pytest.raises(ValueError, match=words):
        storage_params(1, None, **keywords)


def test_reactive_power_takes_what_active_power_leaves_of_the_inverter():
    """0.09 MW delivered of 0.15 MVA leaves 0.12 MVAr in either direction."""
    with jax.enable_x64(True):
        params = battery(2, power_mw=0.1, s_mva=0.15)
        state = storage.init(params, jnp.full(2, 0.5))
        command = jnp.full(2, 0.09), jnp.asarray([0.2, -0.2])
        new, out = storage.step(params, state, command[0], 0.5, command[1])
    np.testing.assert_allclose(out.q_mvar, [0.12, -0.12], atol=ROUNDING)
    np.testing.assert_array_equal(new.q_mvar, out.q_mvar)
    np.testing.assert_array_equal(out.undelivered_mw, [0.0, 0.0])


def test_the_limit_of_reactive_power_is_that_of_delivered_not_commanded_power():
    with jax.enable_x64(True):
        params = battery(power_mw=0.1, s_mva=0.1)
        empty = storage.init(params, jnp.asarray([0.1]))
        _, out = storage.step(params, empty, jnp.asarray([0.1]), 0.5, jnp.asarray([0.1]))
        out = jax.tree.map(np.asarray, out)
    assert out.p_mw[0] == 0.0 and out.q_mvar[0] == pytest.approx(0.1, abs=ROUNDING)


def test_without_a_reactive_command_a_battery_injects_active_power_only():
    with jax.enable_x64(True):
        _, out = advance(battery(), [0.5], [0.2], 0.5)
    assert out.q_mvar[0] == 0.0


def test_throughput_counts_terminal_energy_in_both_directions():
    with jax.enable_x64(True):
        params = battery(degradation_per_mwh=5.0)
        state = storage.init(params, jnp.asarray([0.5]))
        state, first = storage.step(params, state, jnp.asarray([0.4]), 0.5)
        state, second = storage.step(params, state, jnp.asarray([-0.2]), 0.5)
    assert state.throughput_mwh[0] == pytest.approx(0.3, abs=ROUNDING)
    assert float(first.cost_usd[0] + second.cost_usd[0]) == pytest.approx(5 * 0.3, abs=ROUNDING)


def test_an_inverter_below_the_power_of_its_battery_is_refused():
    with pytest.raises(ValueError, match=r"s_mva = 0\.4 is below power_mw"):
        battery(s_mva=0.4)


def test_ratings_may_differ_from_unit_to_unit():
    with jax.enable_x64(True):
        params = battery(2, capacity_mwh=[1.0, 2.0])
    np.testing.assert_array_equal(params.capacity_mwh, [1.0, 2.0])
    with pytest.raises(ValueError, match="capacity_mwh has 3 values for 2 units"):
        storage_params(2, None, capacity_mwh=[1.0, 2.0, 3.0])
