"""Keywords of the feeder tasks that change what is shown, shaped or driven, and those that every task takes."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.data import load_dataset
from powerzoo_jax.devices import storage
from powerzoo_jax.devices.trips import at_home, rotated
from powerzoo_jax.envs import Sim
from powerzoo_jax.families.feeder import env as money
from powerzoo_jax.families.feeder.tasks.vehicles import PERIOD_DAYS, SLOTS, recorded_trips

BATTERY, DER, DERS, EV = "battery_arbitrage", "marl_der_arbitrage", "marl_ders_benchmark", "marl_ev_v2g"
COMMON = {
    "start_date": "2016-03-01",
    "end_date": "2016-03-20",
    "delta_t_minutes": 60,
    "max_load_ratio": 0.7,
    "max_steps": 24,
    "constraint_tightness": "strict",
    "voll": 5000.0,
    "allow_static_load": False,
    "forecast_noise_std": 0.05,
}
DAY_MIN = 1440


@cache
def make(task: str, **keywords: Any) -> Sim:
    return powerzoo_jax.make(task, **keywords)


@pytest.mark.parametrize(
    ("task", "more"),
    [
        (BATTERY, {"obs_mode": "flattened", "soc_penalty_weight": 0.1, "target_soc": 0.4, "arbitrage_weight": 2.0}),
        ("dso", {"obs_mode": "flattened", "reward_scale": 0.2}),
        ("dc_scheduling", {"obs_mode": "flattened", "reward_scale": 0.2}),
        (DER, {"obs_mode": "global", "forecast_horizon_steps": 2, "reward_scale": 0.5}),
        (DERS, {"obs_mode": "local", "forecast_horizon_steps": 2, "voltage_penalty": 3.0}),
    ],
)
def test_a_task_takes_the_keywords_of_the_contract(task, more):
    sim = make(task, **COMMON, **more)
    assert (sim.spec.split, sim.spec.horizon, sim.spec.dt_hours) == ("custom", 24, 1.0)
    assert float(sim.params.voll) == 5000.0 and dict(sim.spec.overrides)["constraint_tightness"] == "strict"
    assert hash(sim.spec) and hash(sim.env)


def test_noise_moves_the_forecasts_by_its_deviation_and_nothing_else():
    plain, noisy = make(DER).params.bank, make(DER, forecast_noise_std=0.1).params.bank
    for name, shown in (("load_rows", slice(5, 9)), ("price_rows", slice(2, -1))):
        error = np.asarray(getattr(noisy, name), float) - np.asarray(getattr(plain, name), float)
        assert error[:, shown].std() == pytest.approx(0.1, rel=0.02) and abs(error[:, shown].mean()) < 0.002
        error[:, shown] = 0
        assert not error.any()


def test_shaping_is_a_term_of_its_own_and_only_when_asked_for():
    shaped = make(BATTERY, soc_penalty_weight=0.1, target_soc=0.4, arbitrage_weight=2.0)
    assert shaped.spec.term_names == (*make(BATTERY).spec.term_names, "soc_shaping")
    assert shaped.spec.term_weights == pytest.approx((2.0, 2.0, 2.0, 2.0, 0.1)) == shaped.env.term_weights
    unit = SimpleNamespace(
        after=SimpleNamespace(soc=jnp.array([0.1, 0.9])), task=SimpleNamespace(target_soc=jnp.asarray(0.4))
    )
    np.testing.assert_allclose(storage.KIND.terms["soc_shaping"](unit), [-0.3, -0.5], rtol=1e-6)
    voltage = make(DERS, voltage_penalty=3.0)
    assert voltage.spec.term_names[-1] == money.VOLTAGE and voltage.spec.term_weights[-1] == pytest.approx(0.03)
    terms = money.shaped(
        jnp.ones((2, 2)), ("comfort", money.VOLTAGE), jnp.array([0.5, 7.0]), ("resource", "voltage_violation")
    )
    np.testing.assert_array_equal(terms, [[1, -7], [1, -7]])


@pytest.mark.parametrize(
    ("task", "keywords", "words"),
    [
        (BATTERY, {"soc_penalty_weight": -1.0}, "soc_penalty_weight = -1.0 must not be negative"),
        (BATTERY, {"arbitrage_weight": 0.0}, "arbitrage_weight = 0.0 must be positive"),
        (BATTERY, {"arbitrage_weight": 2.0, "reward_scale": 2.0}, "Give one of them"),
        (BATTERY, {"obs_mode": "local"}, "Unknown observation mode 'local'"),
        (
            DER,
            {"forecast_noise_std": -0.1},
            "forecast_noise_std = -0.1 must not be negative",
        ),
        (EV, {"commute_schedules": "can"}, "Did you mean 'acn'"),
        (EV, {"commute_schedules": "acn", "ev_bus_ids": (6,) * 200, "num_evs": 200}, "200 vehicles are asked for"),
    ],
)
def test_an_unusable_keyword_is_refused_by_name(task, keywords, words):
    with pytest.raises(ValueError, match=words):
        powerzoo_jax.make(task, **keywords)


def test_recorded_vehicles_are_plugged_in_while_their_station_is_in_use():
    """Read from the file again: some station was in use in the steps in which the first vehicle is at home."""
    trips = recorded_trips("train", 5, 51.0, 5, np.float32)
    minutes = np.arange(0, DAY_MIN * (PERIOD_DAYS - 1), 35)
    home = np.asarray(jax.vmap(lambda minute: at_home(trips, minute, 5)[0])(jnp.asarray(minutes, jnp.int32)))
    data = load_dataset("acn_sessions")
    start = (data.time_utc.astype("datetime64[ns]") - np.datetime64("2019-05-01T08:00", "ns")) / np.timedelta64(1, "m")
    end = start + data.column("ev.stay_min")
    station = data.column("ev.station_code")
    # plugged in at the end of a step
    used = [
        ((start[of][:, None] < minutes + 5) & (end[of][:, None] >= minutes + 5)).any(axis=0)
        for of in (station == code for code in np.unique(station))
    ]
    agreement = np.mean(np.array(used) == home, axis=1)
    assert agreement.max() > 0.95 and np.sort(agreement)[-2] < 0.85  # stays in quick succession are left out
    assert 0.1 < home.mean() < 0.9


def test_recorded_episodes_begin_on_another_day_and_splits_share_one_shape():
    sims = {split: make(EV, commute_schedules="acn", split=split) for split in ("train", "val", "test")}
    for sim in sims.values():
        trips = sim.params.vehicle.trips
        assert trips.mask.shape == (5, SLOTS) and int(trips.period_min) == PERIOD_DAYS * DAY_MIN
        assert sim.env == sims["train"].env and sim.env.layout.trip_days == PERIOD_DAYS
    trips = sims["test"].params.vehicle.trips
    moved = [rotated(jax.random.key(seed), trips, PERIOD_DAYS) for seed in range(8)]
    by = {
        int(np.unique(np.asarray(trips.depart_min - m.depart_min)[np.asarray(trips.mask)] % (PERIOD_DAYS * DAY_MIN))[0])
        for m in moved
    }
    assert len(by) > 4 and all(shift % DAY_MIN == 0 for shift in by)
    assert float(np.asarray(trips.energy_mwh).max()) <= 0.06 * 0.85 + 1e-7


def test_batteries_of_two_sizes_each_deliver_their_own_rating():
    sim = make(BATTERY, battery_bus_ids=(6, 18), battery_power_mw=(0.3, 0.2), battery_capacity_mwh=(0.9, 0.4))
    state, _ = sim.init(jax.random.key(0))
    info = jax.jit(sim.step)(state, jnp.ones((1, 2))).info
    np.testing.assert_allclose(info.p_mw, [0.3, 0.2], rtol=1e-6)
    drawn = np.array([0.3 / 0.9, 0.2 / 0.4]) * 0.5 / np.sqrt(0.95)  # half an hour over the one-way efficiency
    np.testing.assert_allclose(info.soc, 0.5 - drawn, rtol=1e-5)


def test_batteries_wear_and_begin_each_at_its_own():
    """Wear by hand: half an hour at 0.2 MW and 50 $/MWh is 5 $ for one of them, nothing for the other."""
    own = {"initial_soc": ((0.2, 0.2), (0.4, 0.6)), "degradation_per_mwh": (0.0, 50.0)}
    sim = make(BATTERY, battery_bus_ids=(6, 18), battery_power_mw=0.2, battery_capacity_mwh=2.0, **own)
    socs = np.stack([sim.init(jax.random.key(seed))[0].storage.soc for seed in range(6)])
    np.testing.assert_allclose(socs[:, 0], 0.2, rtol=1e-6)
    assert 0.4 <= socs[:, 1].min() < socs[:, 1].max() <= 0.6
    out = jax.jit(sim.step)(sim.init(jax.random.key(0))[0], jnp.ones((1, 2)))
    wear = dict(zip(sim.spec.term_names, np.asarray(out.info.terms[0]).tolist(), strict=True))["degradation"]
    assert wear == pytest.approx(-5.0, rel=1e-6)


def test_rows_of_devices_begin_each_at_its_own():
    rows = (("storage", 6, {"initial_soc": 0.4}), ("storage", 7, {"initial_soc": (0.6, 0.7)}))
    storage = powerzoo_jax.make("atomic_distribution_grid", devices=rows).params.storage
    np.testing.assert_allclose((storage.soc_low, storage.soc_high), [(0.4, 0.6), (0.4, 0.7)], rtol=1e-6)


def test_vehicles_of_several_sizes_each_follow_their_own():
    """By hand: at home at midnight, full discharge is the rating, and an hour of it at the price of its wear."""
    own = {"ev_discharge_kw": (3.0, 7.0, 0.5), "ev_capacity_kwh": (40.0, 60.0, 80.0), "soc_min": (0.1, 0.1, 0.2)}
    own |= {"initial_soc": ((0.3, 0.3), (0.6, 0.6), (0.5, 0.5)), "degradation_per_mwh": (0.0, 10.0, 2000.0)}
    sim = make(EV, num_evs=3, **own)
    state, _ = sim.init(jax.random.key(0))
    np.testing.assert_allclose(state.vehicle.soc, [0.3, 0.6, 0.5], rtol=1e-6)
    out = jax.jit(sim.step)(state, jnp.ones((3, 1)))
    delivered = np.array([0.003, 0.007, 0.0005])
    np.testing.assert_allclose(out.info.p_mw, delivered, rtol=1e-5)
    np.testing.assert_allclose(out.info.soc, [0.3, 0.6, 0.5] - delivered * 1000 / 0.95 / [40, 60, 80], rtol=1e-5)
    wear = np.asarray(out.info.terms)[:, sim.spec.term_names.index("degradation")].sum()
    assert wear == pytest.approx(-(0.007 * 10 + 0.0005 * 2000), rel=1e-5)


def test_recorded_sessions_fill_the_battery_of_their_own_vehicle():
    energy = [
        np.asarray(make(EV, num_evs=2, commute_schedules="acn", ev_capacity_kwh=size).params.vehicle.trips.energy_mwh)
        for size in (60.0, (10.0, 60.0))
    ]
    np.testing.assert_allclose(energy[1][0], np.minimum(energy[0][0], 0.0085), rtol=1e-6)
    np.testing.assert_array_equal(energy[1][1], energy[0][1])
    assert energy[0][0].max() > 0.0085


@pytest.mark.parametrize(
    ("task", "keywords", "words"),
    [
        (BATTERY, {"initial_soc": ((0.2, 0.3), (0.4, 0.5))}, "initial_soc has 2 values for 1 batteries"),
        (EV, {"ev_charge_kw": (3.0, 7.0)}, "ev_charge_kw has 2 values for 5 vehicles"),
        (EV, {"initial_soc": ((0.3, 0.3),) * 4}, "initial_soc has 4 values for 5 vehicles"),
        (BATTERY, {"battery_bus_ids": [6, 18], "battery_power_mw": [0.3, 0.2, 0.1]}, "3 values for 2 batteries"),
        (BATTERY, {"battery_capacity_mwh": (0.3, 0.2)}, "battery_capacity_mwh has 2 values for 1 batteries"),
        (DER, {"soc_min": (0.1, 0.2)}, "soc_min has 2 values for"),
        (DERS, {"pv_capacity_mw": (0.1, 0.2)}, "pv_capacity_mw has 2 values for 4 plants"),
        (DERS, {"curtail_cap_mw": (0.1, 0.2)}, "curtail_cap_mw has 2 values for"),
        (BATTERY, {"battery_bus_ids": (6, 18), "battery_power_mw": (0.3, -0.2)}, r"battery_power_mw\[1\] = -0.2"),
    ],
)
def test_a_list_of_another_length_or_value_names_both_numbers(task, keywords, words):
    with pytest.raises(ValueError, match=words):
        powerzoo_jax.make(task, **keywords)


@pytest.mark.full
def test_plants_and_loads_of_several_sizes_are_those_of_the_fleet():
    sizes = {"pv_capacity_mw": (0.1, 0.2, 0.3, 0.4), "pv_s_mva": (0.2, 0.3, 0.4, 0.5)}
    devices = powerzoo_jax.make(DERS, **sizes).params
    np.testing.assert_allclose(devices.renewable.capacity_mw[devices.renewable.mask], sizes["pv_capacity_mw"])
    np.testing.assert_allclose(devices.renewable.s_mva[devices.renewable.mask], sizes["pv_s_mva"])
