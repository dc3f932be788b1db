"""Diesel: rounding to off or minimum load, fuel, carbon and start cost, ramps, and what the builder refuses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.devices import thermal
from powerzoo_jax.devices.thermal import ThermalState, thermal_params

ROUNDING = 1e-12


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


def run(params, before, command, dt_hours=0.5):
    state = ThermalState(p_mw=jnp.asarray(before))
    return jax.tree.map(np.asarray, thermal.step(params, state, jnp.asarray(command), dt_hours)[1])


def test_a_diesel_burns_three_hundred_dollars_and_emits_eight_hundred_kilograms_per_mwh():
    out = run(thermal_params(1, "float64"), [0.0], [0.4])
    assert out.cost_usd[0] == pytest.approx(300 * 0.4 * 0.5, abs=1e-10)
    assert out.carbon_kg[0] == pytest.approx(800 * 0.4 * 0.5, abs=1e-10)
    assert out.q_mvar[0] == 0.0 and out.undelivered_mw[0] == 0.0


def test_below_half_the_minimum_it_is_off_and_above_it_runs_at_the_minimum_at_least():
    params = thermal_params(4, "float64", p_max_mw=1.0, p_min_norm=0.4)
    out = run(params, [0.0] * 4, [0.19, 0.2, 0.3, 0.7])
    np.testing.assert_allclose(out.p_mw, [0.0, 0.4, 0.4, 0.7], atol=ROUNDING)
    assert (out.undelivered_mw == 0).all()


def test_a_start_is_paid_when_a_unit_that_was_off_runs():
    params = thermal_params(4, "float64", start_usd=7.0)
    out = run(params, [0.0, 0.0, 0.3, 0.3], [0.1, 0.0, 0.1, 0.0])
    np.testing.assert_array_equal(out.start_usd, [7.0, 0.0, 0.0, 0.0])


def test_running_cost_is_the_integral_of_the_marginal_cost():
    params = thermal_params(1, "float64", mc_a=3.0, mc_b=4.0, fuel_usd_per_mwh=5.0, no_load_usd_per_h=6.0)
    p = jnp.asarray([0.5])
    assert float(thermal.fuel_usd_per_h(params, p)[0]) == pytest.approx(0.125 + 0.5 + 2.5 + 6, abs=ROUNDING)
    assert float(thermal.fuel_usd_per_h(params, jnp.zeros(1))[0]) == 0.0
    slope = jax.grad(lambda x: jnp.sum(thermal.fuel_usd_per_h(params, x)))(p)
    assert float(slope[0]) == pytest.approx(3 * 0.25 + 4 * 0.5 + 5, abs=ROUNDING)


def test_a_ramp_limits_both_directions_and_reports_what_it_took():
    params = thermal_params(2, "float64", p_max_mw=1.0, ramp_mw_per_h=0.4)
    out = run(params, [0.5, 0.5], [1.0, 0.1])
    np.testing.assert_allclose(out.p_mw, [0.7, 0.3], atol=ROUNDING)
    np.testing.assert_allclose(out.undelivered_mw, [0.3, 0.2], atol=ROUNDING)


def test_a_unit_starts_to_and_stops_from_its_minimum_whatever_the_ramp():
    params = thermal_params(2, "float64", p_max_mw=1.0, p_min_norm=0.5, ramp_mw_per_h=0.2)
    out = run(params, [0.0, 0.55], [1.0, 0.0])
    np.testing.assert_allclose(out.p_mw, [0.6, 0.0], atol=ROUNDING)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_ramp_that_ends_at_the_minimum_lets_the_unit_stop(dtype):
    """0.37 less 0.25 MW is 0.12 MW, the minimum, but for a rounding that must not decide."""
    with jax.enable_x64(dtype == "float64"):
        params = thermal_params(1, dtype, p_min_norm=0.2, ramp_mw_per_h=0.5)
        state = ThermalState(p_mw=jnp.asarray([0.37], dtype))
        out = thermal.step(params, state, jnp.zeros(1, dtype), 0.5)[1].p_mw
    assert np.asarray(out)[0] == 0.0


def test_a_unit_never_exceeds_its_rating():
    out = run(thermal_params(2, "float64"), [0.0, 0.0], [9.0, -9.0])
    np.testing.assert_allclose(out.p_mw, [0.6, 0.0], atol=ROUNDING)


def test_a_padded_unit_is_inert():
    params = thermal_params(2, "float64", start_usd=5.0, no_load_usd_per_h=3.0).replace(mask=jnp.asarray([True, False]))
    out = run(params, [0.0, 0.0], [0.3, 0.3])
    assert all(column[1] == 0.0 for column in out)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"p_max_mw": 0.0}, "p_max_mw = 0.0 must be positive"),
        ({"p_min_norm": 1.5}, r"p_min_norm = 1.5 must lie in \[0, 1\]"),
        ({"ramp_mw_per_h": 0.0}, "ramp_mw_per_h = 0.0 must be positive"),
        ({"start_usd": -1.0}, "start_usd = -1.0 must not be negative"),
    ],
)
def test_impossible_units_are_refused_by_name(keywords, words):
    with pytest.raises(ValueError, match=words):
        thermal_params(1, "float64", **keywords)
