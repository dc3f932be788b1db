"""PV and wind: availability, curtailment, the inverter's circle, and what the builder refuses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.devices import renewable
from powerzoo_jax.devices.renewable import renewable_params

ROUNDING = 1e-12


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


def plant(n_unit=1, **keywords):
    """The PV plant of the DER benchmark: 0.20 MW behind an inverter of 0.22 MVA."""
    return renewable_params(n_unit, "float64", **({"capacity_mw": 0.2, "s_mva": 0.22} | keywords))


def deliver(params, action, cf, dt_hours=0.5):
    action, cf = jnp.asarray(action), jnp.asarray(cf)
    ordered = renewable.command(params, action)
    return jax.tree.map(np.asarray, renewable.step(params, renewable.init(params), ordered, dt_hours, cf))


def test_plus_one_curtails_nothing_and_minus_one_everything():
    _, out = deliver(plant(3), [[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]], [0.5, 0.5, 0.5])
    np.testing.assert_allclose(out.p_mw, [0.1, 0.05, 0.0], atol=ROUNDING)
    np.testing.assert_allclose(out.curtailed_mwh, [0.0, 0.025, 0.05], atol=ROUNDING)


def test_delivered_and_curtailed_energy_add_up_to_what_was_available():
    rng = np.random.default_rng(5)
    action, cf = rng.uniform(-1, 1, (500, 2)), rng.uniform(0, 1, 500)
    _, out = deliver(plant(500), action, cf)
    np.testing.assert_allclose(out.p_mw * 0.5 + out.curtailed_mwh, cf * 0.2 * 0.5, atol=ROUNDING)


def test_active_power_has_priority_on_the_inverter():
    """At full sun 0.2 of 0.22 MVA is taken: sqrt(0.22^2 - 0.2^2) is left, in both directions."""
    _, out = deliver(plant(2), [[1.0, 1.0], [1.0, -1.0]], [1.0, 1.0])
    np.testing.assert_allclose(out.q_mvar, [0.0916515139, -0.0916515139], atol=5e-11)


def test_without_sun_the_whole_rating_is_there_for_reactive_power():
    _, out = deliver(plant(), [[1.0, 0.5]], [0.0])
    assert out.q_mvar[0] == pytest.approx(0.11, abs=ROUNDING) and out.p_mw[0] == 0.0


def test_without_a_reactive_entry_the_plant_runs_at_unity_power_factor():
    _, out = deliver(plant(), [[0.3]], [0.7])
    assert out.q_mvar[0] == 0.0


def test_no_plant_delivers_more_than_its_capacity():
    state, out = deliver(plant(2), [[1.0, 0.0], [5.0, 0.0]], [1.7, 1.0])
    np.testing.assert_allclose(out.p_mw, [0.2, 0.2], atol=ROUNDING)
    assert (state.curtail == 0).all()


def test_curtailed_energy_is_priced():
    _, out = deliver(plant(curtail_usd_per_mwh=40.0), [[-1.0, 0.0]], [1.0])
    assert out.cost_usd[0] == pytest.approx(40 * 0.2 * 0.5, abs=ROUNDING)


def test_bounds_are_what_an_uncurtailed_step_delivers():
    params, cf = plant(), jnp.asarray([0.37])
    low, high = renewable.power_bounds(params, renewable.init(params), 0.5, cf)
    _, out = deliver(params, [[1.0, 0.0]], cf)
    assert low[0] == 0.0 and high[0] == out.p_mw[0]


def test_a_padded_plant_is_inert_and_has_finite_gradients():
    params = plant(2).replace(mask=jnp.asarray([True, False]))

    def reactive(q):
        ordered = jnp.zeros(2), q
        return jnp.sum(renewable.step(params, renewable.init(params), ordered, 0.5, jnp.ones(2))[1].q_mvar)

    _, out = deliver(params, [[0.0, 1.0], [0.0, 1.0]], [1.0, 1.0])
    assert all(column[1] == 0.0 for column in out)
    np.testing.assert_array_equal(jax.grad(reactive)(jnp.asarray([0.05, 0.05])), [1.0, 0.0])


def test_the_gradient_is_finite_where_active_power_fills_the_rating():
    params = plant(s_mva=0.2)

    def reactive(cf):
        ordered = jnp.zeros(1), jnp.ones(1)
        return jnp.sum(renewable.step(params, renewable.init(params), ordered, 0.5, cf)[1].q_mvar)

    assert np.isfinite(jax.grad(reactive)(jnp.ones(1))).all()


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"capacity_mw": 0.0}, "capacity_mw = 0.0 must be positive"),
        ({"s_mva": 0.1}, "s_mva = 0.1 is below capacity_mw = 0.2"),
        ({"curtail_usd_per_mwh": -1.0}, "must not be negative"),
        ({"capacity_mw": [0.1, 0.1]}, "2 values for 1 units"),
    ],
)
def test_impossible_ratings_are_refused_by_name(keywords, words):
    with pytest.raises(ValueError, match=words):
        plant(**keywords)
