"""Presets: made by name, of the sizes of the contract, no tasks; fleets of any kind from rows."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.tasks import get_spec, list_presets, register

# spec 05: size of the flat observation, width of the action, steps and hours of one
ATOMIC = {
    "atomic_distribution_grid": (167, 0, 48, 0.5),
    "atomic_battery": (177, 1, 24, 1.0),
    "atomic_vehicle": (177, 1, 24, 1.0),
    "atomic_datacenter": (179, 3, 48, 1.0),
    "atomic_transmission_grid": (20, 0, 48, 0.5),
    "atomic_solar": (26, 1, 48, 0.5),
    "atomic_wind": (26, 1, 48, 0.5),
    "atomic_flexload": (29, 2, 48, 0.5),
}
FIRST_DAY = {"feeder": ("2016-01-01", "2016-01-26"), "transmission": ("2017-01-01", "2019-01-16")}


@pytest.mark.parametrize("preset", ATOMIC)
def test_a_preset_has_the_sizes_of_the_contract(preset):
    sim = powerzoo_jax.make(preset)
    obs, act, steps, hours = ATOMIC[preset]
    assert (sim.env.dims.obs, sim.env.dims.act, sim.spec.horizon, sim.spec.dt_hours) == (obs, act, steps, hours)
    assert len(set(sim.env.fields.names)) == obs and sim.spec.split == "test"
    data_from, test_from = (np.datetime64(day) for day in FIRST_DAY[sim.spec.family])
    days = data_from + np.asarray(sim.params.starts.load_row)[: int(sim.params.starts.n_start)] // (round(24 / hours))
    assert len(set(days.astype("datetime64[M]"))) == 1 and days.min() >= test_from
    state, first = jax.eval_shape(sim.init, jax.random.key(0))
    out = jax.eval_shape(sim.step, state, jax.ShapeDtypeStruct((1, act), first.dtype))
    assert first.shape == out.obs.shape == (1, obs)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), state) == jax.tree.map(lambda x: (x.shape, x.dtype), out.state)


def test_presets_are_no_tasks_and_keep_their_names():
    assert set(ATOMIC) | {"distribution_3phase"} <= set(list_presets())
    assert not set(list_presets()) & set(powerzoo_jax.list_tasks())
    with pytest.raises(ValueError, match="registered already"):
        register(get_spec("atomic_battery"), "somewhere:else")
    with pytest.raises(ValueError, match="atomic_batery"):
        powerzoo_jax.make("atomic_batery")


@pytest.mark.long
def test_the_reward_is_ten_times_what_breaks():
    """A band that no feeder keeps, and a battery asked for more than its store holds in an hour."""
    sim = powerzoo_jax.make("atomic_battery", v_min=1.02)
    state, _ = jax.jit(sim.init)(jax.random.key(0))
    out = jax.jit(sim.step)(state, jnp.ones((1, 1)))
    cost = np.asarray(out.cost, float)
    assert cost[0] > 0.5 and float(out.reward[0]) == pytest.approx(-10 * cost.sum(), rel=1e-6)


@pytest.mark.long
def test_units_serve_what_a_plant_and_a_flexible_load_leave_of_the_demand():
    """At noon a plant gives its share of 10 MW; a load that sheds and defers 10 MW each gets a quarter of that back."""
    step = jax.jit(lambda sim, state, action: sim.step(state, action))
    sims = {name: powerzoo_jax.make(f"atomic_{name}") for name in ("solar", "flexload")}
    left = {}
    for name, sim in sims.items():
        state = dataclasses.replace(jax.jit(sim.init)(jax.random.key(0))[0], t=jnp.asarray(24, jnp.int32))
        for k in range(2):
            out = step(sim, state, jnp.ones((1, sim.env.dims.act)) if k == 0 else -jnp.ones((1, sim.env.dims.act)))
            gross = float(sim.params.bank.load_rows[state.load_row + state.t, 0] * sim.params.full_load_mw)
            left[name, k] = gross - float(out.info.load_mw)
            assert float(jnp.sum(out.info.unit_power_mw)) == pytest.approx(gross - left[name, k], abs=1e-2)
            assert float(out.reward[0]) == pytest.approx(-10 * float(jnp.sum(out.cost)), abs=1e-6)
            state = out.state
    cf = np.asarray(sims["solar"].params.bank.load_rows)[:, 5]
    assert cf.min() >= 0 and cf.max() == pytest.approx(1.0) and 0 < left["solar", 0] < 10
    assert left["solar", 1] == pytest.approx(0.0, abs=1e-3)  # curtailed
    assert left["flexload", 0] == pytest.approx(20.0, abs=1e-2)
    assert left["flexload", 1] == pytest.approx(-2.5, abs=1e-2)


def test_a_device_that_no_transmission_grid_takes_is_refused_by_name():
    with pytest.raises(ValueError, match="Unknown device kind 'datacenter'"):
        powerzoo_jax.make("atomic_solar", devices=(("datacenter", 2, ()),))
    with pytest.raises(TypeError, match="Did you mean 'max_load_ratio'"):
        powerzoo_jax.make("atomic_solar", max_load_ration=0.5)


def test_a_mixed_fleet_shows_its_units_kind_after_kind():
    devices = (
        ("flexload", 18, {"curtail_cap_mw": 0.1, "shift_cap_mw": 0.1}),
        ("storage", 6, {"capacity_mwh": 0.5, "power_mw": 0.2}),
        ("flexload", 33, {"curtail_cap_mw": 0.2, "shift_cap_mw": 0.1}),
        ("renewable", 14, {"capacity_mw": 0.3}),
    )
    sim = powerzoo_jax.make("atomic_distribution_grid", devices=devices, q_control=("renewable",))
    names = sim.env.fields.names
    assert names[163:171] == (
        *("flexload_0_p_norm", "flexload_1_p_norm"),
        *(f"battery_0_{x}" for x in ("soc", "p_dis_max", "p_chg_max", "p_norm")),
        *("renewable_0_available_cf", "renewable_0_p_norm"),
    )
    assert sim.env.dims.act == 2 + 2 + 1 + 2
    np.testing.assert_allclose(sim.params.flexload.curtail_cap_mw, [0.1, 0.2])
    at = np.asarray(sim.params.place_bus).argmax(axis=1) + 1
    assert at.tolist() == [18, 33, 6, 14]


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ((("storag", 6, {}),), "storage"),
        ((("storage", 99, {}),), "no bus 99"),
        ((("storage", 6, {"power_mw": 0.1}), ("storage", 7, {})), "different ratings"),
    ],
)
def test_devices_that_cannot_be_built_are_refused_by_name(devices, words):
    with pytest.raises(ValueError, match=words):
        powerzoo_jax.make("atomic_distribution_grid", devices=devices)


@pytest.mark.full
def test_a_battery_on_a_transmission_grid_starts_with_the_charge_asked_for():
    """Energy law: 5 MW for half an hour take 2.5 MWh over the discharge efficiency out of a store of 10 MWh."""
    rows = (("storage", 2, (("capacity_mwh", 10.0), ("initial_soc", 0.6), ("power_mw", 5.0))),)
    sim = powerzoo_jax.make("atomic_transmission_grid", devices=rows)
    state, _ = jax.jit(sim.init)(jax.random.key(0))
    np.testing.assert_allclose(state.storage.soc, [0.6], rtol=1e-6)
    out = jax.jit(sim.step)(state, jnp.ones((1, 1)))
    np.testing.assert_allclose(out.info.p_mw, [5.0], rtol=1e-6)
    left = 0.6 - 2.5 / (10 * float(sim.params.storage.eta_discharge[0]))
    np.testing.assert_allclose(out.state.storage.soc, [left], rtol=1e-6)
