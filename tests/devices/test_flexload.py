"""Flexible load: overlapping returns, caps and the load itself as limits, money, and what the builder refuses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.devices import flexload
from powerzoo_jax.devices.flexload import flexload_params

ROUNDING = 1e-12


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


def load(n_unit=1, **keywords):
    return flexload_params(n_unit, "float64", **({"curtail_cap_mw": 2.0, "shift_cap_mw": 2.0} | keywords))


def play(params, orders, load_mw=10.0, load_mvar=0.0, horizon=4, dt_hours=0.5):
    """Steps with (shed, deferred) MW of one load: the last state and the outputs."""
    state, outs = flexload.init(params, horizon), []
    for shed, defer in orders:
        ordered = jnp.asarray([float(shed)]), jnp.asarray([float(defer)])
        at = jnp.asarray([load_mw]), jnp.asarray([load_mvar])
        state, out = flexload.step(params, state, ordered, dt_hours, *at)
        outs.append((float(state.return_mw[0]), jax.tree.map(lambda x: float(x[0]), out)))
    return state, outs


def test_two_deferrals_overlap_and_return_over_the_horizon():
    state, outs = play(load(), [(0, 1), (0, 1), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0)])
    assert [back for back, _ in outs] == [0.0, 0.25, 0.5, 0.5, 0.5, 0.25, 0.0]
    assert float(jnp.sum(state.due_mw)) == 0.0


def test_the_injection_is_what_is_shed_and_deferred_less_what_returns():
    _, outs = play(load(), [(0.5, 1.0), (0.0, 1.0), (0.25, 0.0)])
    assert [out.p_mw for _, out in outs] == pytest.approx([1.5, 0.75, -0.25], abs=ROUNDING)


def test_no_more_than_the_scheduled_load_is_shed_and_then_deferred():
    _, outs = play(load(), [(1.5, 2.0)], load_mw=1.8)
    (_, out), *_ = outs
    assert out.p_mw == pytest.approx(1.8, abs=ROUNDING)
    assert out.undelivered_mw == pytest.approx(1.7, abs=ROUNDING)
    assert out.comfort_usd == pytest.approx(50 * 1.5 * 0.5) and out.deferral_usd == pytest.approx(10 * 0.3 * 0.5)


def test_orders_beyond_the_caps_and_below_zero_are_those_of_the_caps():
    _, outs = play(load(), [(9.0, -3.0)])
    (_, out), *_ = outs
    assert out.p_mw == pytest.approx(2.0, abs=ROUNDING) and out.undelivered_mw == 0.0


def test_reactive_power_follows_at_the_power_factor_of_the_bus():
    _, outs = play(load(), [(1.0, 0.0)], load_mw=10.0, load_mvar=4.0)
    assert outs[0][1].q_mvar == pytest.approx(0.4, abs=ROUNDING)
    _, dark = play(load(), [(1.0, 0.0)], load_mw=0.0, load_mvar=0.0)
    assert dark[0][1].q_mvar == 0.0 and dark[0][1].p_mw == 0.0


def test_what_is_left_in_the_buffer_at_the_horizon_costs_like_shed_energy():
    params = load()
    state, _ = play(params, [(0, 1), (0, 1)])
    assert float(flexload.buffer_mwh(state, 0.5)[0]) == pytest.approx((2.0 - 0.25) * 0.5)
    assert float(flexload.terminal_usd(params, state, 0.5)[0]) == pytest.approx(50 * 1.75 * 0.5)


def test_shedding_and_deferring_at_once_pays_the_penalty_where_one_is_set():
    _, outs = play(load(both_usd_per_mwh=8.0), [(1.0, 0.25)])
    assert outs[0][1].deferral_usd == pytest.approx((10 * 0.25 + 8 * 0.25) * 0.5)


def test_bounds_are_what_the_extreme_orders_deliver():
    params = load(2)
    state = flexload.init(params, 4)
    at = jnp.asarray([10.0, 3.0]), jnp.zeros(2)
    state, _ = flexload.step(params, state, (jnp.zeros(2), jnp.ones(2)), 0.5, *at)
    low, high = flexload.power_bounds(params, state, 0.5, at[0])
    most = flexload.step(params, state, flexload.command(params, jnp.ones((2, 2))), 0.5, *at)[1]
    least = flexload.step(params, state, flexload.command(params, jnp.zeros((2, 2))), 0.5, *at)[1]
    np.testing.assert_allclose(most.p_mw, high, atol=ROUNDING)
    np.testing.assert_allclose(least.p_mw, low, atol=ROUNDING)


def test_a_padded_load_is_inert():
    params = load(2).replace(mask=jnp.asarray([True, False]))
    ordered = flexload.command(params, jnp.ones((2, 2)))
    state, out = flexload.step(params, flexload.init(params, 4), ordered, 0.5, jnp.ones(2), jnp.ones(2))
    assert all(float(column[1]) == 0.0 for column in out)
    assert float(jnp.sum(state.due_mw[1])) == 0.0


@pytest.mark.parametrize(
    ("keywords", "words"),
    [({"shift_cap_mw": 0.0}, "shift_cap_mw = 0.0 must be positive"), ({"shift_usd_per_mwh": -1.0}, "not be negative")],
)
def test_impossible_loads_are_refused_by_name(keywords, words):
    with pytest.raises(ValueError, match=words):
        load(**keywords)
