"""Feeder tasks as specified: agents, sizes, fields of every mode, budgets, and what is refused by name."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.envs import Sim
from powerzoo_jax.envs.series import SHAPE
from powerzoo_jax.families.feeder.tasks.vehicles import trip_factors

DER, DSO, DERS, EV = "marl_der_arbitrage", "dso", "marl_ders_benchmark", "marl_ev_v2g"


@cache
def make(task: str, **keywords: Any) -> Sim:
    return powerzoo_jax.make(task, **keywords)


@pytest.mark.parametrize(
    ("task", "mode", "size"),
    [
        (DER, "local_plus_forecast", 20),
        (DER, "local", 12),
        (DER, "local_plus_voltage", 13),
        (DER, "global", 15),
        (DERS, "ders_local", 12),
        (DERS, "local", 11),
        (DERS, "local_plus_voltage", 12),
        (DERS, "global", 14),
        (EV, "local_plus_forecast", 32),
        (EV, "local", 14),
        (EV, "global", 17),
    ],
)
def test_a_mode_shows_as_many_fields_as_the_contract_says(task, mode, size):
    sim = make(task, obs_mode=mode)
    names = sim.env.fields.names
    assert len(names) == sim.env.dims.obs == size == len(set(names))
    box = sim.spaces()[0]
    assert box.shape == (sim.env.dims.agent, size) and np.isfinite(box.low).all() and (box.low < box.high).all()


@pytest.mark.parametrize(
    ("task", "agents", "act", "horizon", "hours"),
    [
        (DER, 3, 1, 48, 0.5),
        (DSO, 1, 12, 48, 0.5),
        (DERS, 12, 2, 48, 0.5),
        (EV, 5, 1, 168, 1.0),
        ("marl_der_arbitrage_7d", 3, 1, 336, 0.5),
        ("marl_der_arbitrage_5bat", 5, 1, 48, 0.5),
        ("marl_ev_v2g_1d", 5, 1, 24, 1.0),
        ("marl_ev_v2g_10ev", 10, 1, 168, 1.0),
    ],
)
def test_agents_actions_and_clock_are_those_of_the_contract(task, agents, act, horizon, hours):
    sim = make(task)
    assert (sim.env.dims.agent, sim.env.dims.act) == (agents, act) == sim.spaces()[1].shape
    assert (sim.spec.horizon, sim.spec.dt_hours, len(sim.spec.agents)) == (horizon, hours, agents)


def test_the_operator_sees_grid_devices_clock_and_prices_in_order():
    names = make(DSO).env.fields.names
    assert len(names) == 246 and len(make(DSO, price_forecast=False).env.fields.names) == 221
    assert names[163:169] == tuple(f"fl_{x}_p_norm" for x in ("a1", "a2", "a3", "b1", "c1", "c2"))
    assert names[169:171] == ("time_sin", "time_cos")
    keys = ("buffer_energy_norm", "buffer_fill_ratio", "curtail_norm", "price_norm", "shift_in_norm", "shift_out_norm")
    assert names[171:179] == tuple(f"fl_a1/{key}" for key in (*keys, "time_cos", "time_sin"))
    assert names[219:223] == ("time/time_sin", "time/time_cos", "price_signal", "price_forecast_1")


@pytest.mark.parametrize(
    ("task", "channel", "budgets"),
    [
        ("battery_arbitrage", "resource", (1.0, 0.5, 0.25)),
        (DER, "voltage_violation", (0.06, 0.045, 0.02)),
        (DER, "resource", (2.0, 1.0, 0.5)),
        (DSO, "voltage_violation", (0.2, 0.1, 0.05)),
        (DERS, "voltage_violation", (0.05, 0.03, 0.015)),
        (DERS, "thermal_overload", (math.inf,) * 3),
        (DERS, "resource", (0.25, 0.125, 0.06)),
        (EV, "departure_shortfall", (0.05, 0.02, 0.01)),
        (EV, "unmet_energy", (0.01, 0.005, 0.002)),
    ],
)
def test_budgets_follow_the_tightness(task, channel, budgets):
    found = []
    for tightness in ("loose", "standard", "strict"):
        spec = make(task, constraint_tightness=tightness).spec
        found.append(spec.cost_budget[spec.cost_names.index(channel)])
    assert tuple(found) == budgets
    assert make(task).spec.cost_budget == make(task, constraint_tightness="standard").spec.cost_budget


def test_tightness_moves_limits_and_explicit_keywords_win():
    strict = make(DER, constraint_tightness="strict").params
    assert float(strict.storage.soc_min[0]) == pytest.approx(0.15) and float(strict.load_ratio) == pytest.approx(1.0)
    mine = make(DER, constraint_tightness="strict", max_load_ratio=0.7, soc_min=0.2).params
    assert float(mine.load_ratio) == pytest.approx(0.7) and float(mine.storage.soc_min[0]) == pytest.approx(0.2)
    ready = [float(make(EV, constraint_tightness=t).params.vehicle.soc_departure_min[0]) for t in ("loose", "strict")]
    assert ready == pytest.approx([0.6, 0.9])


def test_shifted_splits_change_what_they_say_and_nothing_else():
    plain, stress = make(DERS, split="test").params, make(DERS, split="load_stress").params
    assert float(stress.load_ratio / plain.load_ratio) == pytest.approx(1.15)
    sunny = make(DERS, split="pv_penetration_shift").params
    np.testing.assert_allclose(sunny.renewable.capacity_mw, 2 * plain.renewable.capacity_mw)
    tight = make(DERS, split="voltage_tightening").params.grid
    assert (float(tight.v_min[0]), float(tight.v_max[0])) == pytest.approx((0.96, 1.04))
    for other in (stress, sunny):
        np.testing.assert_array_equal(other.starts.load_row, plain.starts.load_row)
        np.testing.assert_array_equal(other.grid.v_min, plain.grid.v_min)


def test_summer_starts_on_test_days_of_three_months():
    plain, summer = make(DSO, split="test").params.starts, make(DSO, split="summer_ood").params.starts
    days = np.datetime64("2016-01-01") + np.asarray(summer.load_row)[: int(summer.n_start)] // 48
    assert set(days.astype("datetime64[M]").astype(int) % 12 + 1) == {6, 7, 8}
    assert set(np.asarray(summer.load_row).tolist()) <= set(np.asarray(plain.load_row)[: int(plain.n_start)].tolist())


def test_zones_follow_three_shapes_and_those_held_out_are_others():
    params = make(DSO).params
    assert params.shape_bus.shape == (3, 33) and float(params.shape_bus[:, 1:].sum()) == 32
    np.testing.assert_allclose(params.shape_mw.sum(), 3.715, rtol=1e-6)
    at = [k for k, n in enumerate(make(DSO).env.columns.names) if n == "load_factor" or n.rpartition("_")[0] == SHAPE]
    ours, apart = (np.asarray(make(DSO, split=s).params.bank.load_rows)[:, at] for s in ("test", "zone_holdout"))
    assert np.abs(ours - apart).max(axis=0).min() > 0.1
    assert 0.95 < ours.max() <= 1.0 and 0.95 < apart.max() <= 1.0


def test_scaled_buses_keep_the_sum_of_their_zone_when_asked():
    base = make(DSO).params
    scaled = make(DSO, bus_load_scale_overrides=((6, 3.0),)).params
    assert float(scaled.load_mw - base.load_mw) == pytest.approx(2 * 0.06, abs=1e-5)
    kept = make(DSO, bus_load_scale_overrides=((6, 3.0),), preserve_feeder_totals=True).params
    np.testing.assert_allclose(kept.shape_mw, base.shape_mw, rtol=1e-6)


def test_prices_of_losses_are_not_negative_and_the_shown_signal_is_the_market():
    prices, market = (np.asarray(make(task).params.bank.price_rows) for task in (DSO, "battery_arbitrage"))
    assert prices[:, 0].min() == 0 and market[:, 0].min() < 0
    np.testing.assert_array_equal(prices[:, 1], market[:, 1])
    assert set(np.asarray(make(DSO, loss_price=30.0).params.bank.price_rows)[:, 0].tolist()) == {30.0}


def test_recorded_sessions_scale_trips_around_one_within_limits():
    for split in ("train", "val", "test", "price_stress"):
        factor = trip_factors(split)
        assert factor.min() >= 0.5 and factor.max() <= 2.0 and factor.mean() == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    ("task", "keywords", "error", "words"),
    [
        (DER, {"num_bateries": 2}, TypeError, "Did you mean 'num_batteries'"),
        (DER, {"num_batteries": 6}, ValueError, "6 devices at 5 buses"),
        (DER, {"obs_mode": "globall"}, ValueError, "Did you mean 'global'"),
        (DER, {"obs_mode": "ders_local"}, ValueError, "Unknown observation mode 'ders_local'"),
        (DER, {"reward_type": "team"}, ValueError, "Valid: individual, shared"),
        (DER, {"constraint_tightness": "strikt"}, ValueError, "Did you mean 'strict'"),
        (DER, {"split": "summer_ood"}, ValueError, "Unknown split 'summer_ood'"),
        (DER, {"forecast_horizon_steps": 0}, ValueError, "forecast_horizon_steps = 0 must be a whole number"),
        (DSO, {"split": "sumer_ood"}, ValueError, "Did you mean 'summer_ood'"),
        (DSO, {"feeder_shapes": ("mv_rural",)}, ValueError, "1 feeder_shapes for 3 zones"),
        (DSO, {"flexload_config": ()}, ValueError, "flexload_config is empty"),
        (DSO, {"flexload_config": (("a", 6, 0.1, 0.1), ("b", 6, 0.1, 0.1))}, ValueError, "two flexible loads share"),
        (DSO, {"feeder_bus_map": ((2, 3), (4,), (5,))}, ValueError, "belongs to no zone"),
        (DSO, {"bus_load_scale_overrides": {99: 2.0}}, ValueError, "bus_load_scale_overrides: case33bw has no bus 99"),
        (DSO, {"shift_horizon": 0}, ValueError, "shift_horizon = 0 must be a whole number"),
        (DERS, {"pv_bus_ids": ()}, ValueError, "pv_bus_ids is empty"),
        (DERS, {"substation_mva": 0.0}, ValueError, "substation_mva = 0.0 must be positive"),
        (DERS, {"battery_s_mva": 0.05}, ValueError, "s_mva = 0.05 is below power_mw"),
        (EV, {"jitter_steps": -1}, ValueError, "jitter_steps = -1 must be a whole number"),
        (EV, {"commute_schedules": [[(8, 8.5, 5)]]}, ValueError, "lasts 30 min, a step 60 min"),
    ],
)
def test_an_unusable_keyword_is_refused_by_name(task, keywords, error, words):
    with pytest.raises(error, match=words):
        powerzoo_jax.make(task, **keywords)


def test_given_trips_are_played_as_they_are():
    sim = make(EV, commute_schedules=(((8, 9, 5.0),),), num_evs=2)
    assert sim.env.layout.jitter_steps == 0 and sim.spec.agents == ("ev_0", "ev_1")
    np.testing.assert_array_equal(sim.params.trip_factor, np.ones(256))
