"""The data centre on a feeder as specified: fields, budgets, keywords, use and weather."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.data import day_matrix, load_dataset
from powerzoo_jax.data.manifest import TMY_SITES
from powerzoo_jax.devices.facility import FINETUNE, TRAIN
from powerzoo_jax.envs.series import INFER, OUTDOOR
from powerzoo_jax.tasks.site import Surroundings

TASK = "dc_scheduling"
F32 = 1e-6  # relative: a table stored in float32


@cache
def make(**keywords):
    return powerzoo_jax.make(TASK, **keywords)


def column(sim, name):
    return np.asarray(sim.params.bank.load_rows, np.float64)[:, sim.env.columns.at(name)]


def test_the_observation_shows_grid_site_clock_and_prices_in_order():
    names = make().env.fields.names
    assert len(names) == 205 and len(make(price_forecast=False).env.fields.names) == 180
    assert names[-1] == "settlement_price"
    assert names[163:166] == ("datacenter_0_p_norm", "time_sin", "time_cos")
    assert names[166] == "datacenter_0/cool_ratio" and names[176] == "datacenter_0/zone_temp_norm"
    assert names[177:180] == ("time/time_sin", "time/time_cos", "price_signal")
    assert make().spaces()[1].shape == (1, 3) and make().spec.horizon == 48


def test_a_week_has_the_budgets_of_seven_days_and_one_miss_more():
    day, week = make().spec, powerzoo_jax.make("dc_scheduling_7d").spec
    assert week.horizon == 7 * day.horizon and week.cost_names == day.cost_names
    more = [int(name == "sla") for name in day.cost_names]
    assert week.cost_budget == pytest.approx(
        [7 * budget + one for budget, one in zip(day.cost_budget, more, strict=True)]
    )


@pytest.mark.parametrize(
    ("tightness", "missed", "heat", "hot"), [("loose", 10, 1, 32), ("standard", 5, 0.5, 30), ("strict", 2, 0.2, 28)]
)
def test_budgets_and_the_critical_temperature_follow_the_tightness(tightness, missed, heat, hot):
    sim = make(constraint_tightness=tightness)
    assert sim.spec.cost_names[4:] == ("sla", "overtemp") and sim.spec.cost_budget[4:] == (missed, heat)
    assert float(sim.params.datacenter.t_critical_c[0]) == hot
    assert float(make(constraint_tightness=tightness, t_critical_c=29.0).params.datacenter.t_critical_c[0]) == 29


def test_weights_scale_the_terms_that_they_name():
    weights = dict(zip(make().spec.term_names, make().spec.term_weights, strict=True))
    assert weights == dict.fromkeys(("site_energy", "job_misses", "backlog", "unserved_energy", "zone_heat"), 0.01) | {
        "pue_bonus": 0
    }
    sim = make(power_weight=2.0, pue_bonus_weight=3.0, sla_weight=100.0, reward_scale=0.1)
    weights = dict(zip(sim.spec.term_names, sim.spec.term_weights, strict=True))
    assert weights["site_energy"] == pytest.approx(0.2) and weights["pue_bonus"] == pytest.approx(0.3)
    assert weights["job_misses"] == 0.1 and float(sim.params.miss_usd) == 100.0
    assert sim.env.term_weights == sim.spec.term_weights


def test_a_hot_summer_is_eight_degrees_warmer_and_nothing_else():
    plain, hot = make(split="test"), make(split="cooling_stress")
    np.testing.assert_allclose(column(hot, OUTDOOR) - column(plain, OUTDOOR), 8, rtol=1e-5)
    np.testing.assert_array_equal(column(hot, INFER), column(plain, INFER))
    np.testing.assert_array_equal(hot.params.starts.load_row, plain.params.starts.load_row)
    np.testing.assert_array_equal(hot.params.bank.price_rows, plain.params.bank.price_rows)


def test_the_weather_is_that_of_the_same_month_and_day_of_the_typical_year():
    days, typical = day_matrix(load_dataset("tmy"), f"weather.{TMY_SITES[0]}_temperature_c", 30)
    ours = column(make(), OUTDOOR)[:-1].reshape(366, 48)
    first = np.datetime64("2016-01-01")
    for day in ("2016-01-01", "2016-02-28", "2016-02-29", "2016-03-01", "2016-12-31"):
        twin = np.datetime64(day.replace("2016-02-29", "2016-02-28").replace("2016", "2018"))
        np.testing.assert_allclose(ours[(np.datetime64(day) - first).astype(int)], typical[days == twin][0], rtol=F32)


def test_the_use_has_the_mean_swing_and_spread_of_its_preset():
    """Spec 09: hyperscale, mean 0.47, +-9 % with a peak at 14 h, -5 % at weekends, noise of 0.036."""
    days = np.arange(np.datetime64("2016-01-01"), np.datetime64("2017-01-01"))
    use = Surroundings("hyperscale", TMY_SITES[0]).rows(days, 30)[:, 0].reshape(366, 48)
    weekend = np.isin((days.astype(int) - 4) % 7, (5, 6))  # 1 January 1970 was a Thursday
    workday = use[~weekend].mean(axis=0)
    assert workday.mean() == pytest.approx(0.47, rel=0.02)
    assert workday[28] / workday.mean() == pytest.approx(1.09, abs=0.02)
    assert use[weekend].mean() / use[~weekend].mean() == pytest.approx(0.95, abs=0.01)
    assert (use[~weekend] - workday).std() == pytest.approx(0.036, rel=0.1)
    assert use.min() >= 0 and use.max() <= 1


@pytest.mark.parametrize(
    ("keywords", "error", "words"),
    [
        (dict(bus_id=99), ValueError, "no bus 99"),
        (dict(sla_price=-1.0), ValueError, "sla_price"),
        (dict(sla_price=1.0, sla_weight=1.0), ValueError, "name the same thing"),
        (dict(weather_site="tamper"), ValueError, "tampa"),
        (dict(workload_preset="hyperscal"), ValueError, "hyperscale"),
        (dict(queue=0), ValueError, "queue"),
        (dict(n_gpu=5), TypeError, "n_gpus"),
        (dict(split="cooling_stres"), ValueError, "cooling_stress"),
        (dict(t_set_min_c=28.0), ValueError, "set_low_c < set_high_c"),
    ],
)
def test_bad_keywords_are_refused_by_name(keywords, error, words):
    with pytest.raises(error, match=words):
        make(**keywords)


def test_job_classes_and_slack_reach_the_device():
    rare = dataclasses.replace(TRAIN, rate_per_h=0.0)
    site = make(train_cfg=rare, slack_factor=0.5, n_gpus=500, infer_gpu_peak=100).params.datacenter
    assert float(site.train.rate_per_h[0]) == 0 and float(site.finetune.rate_per_h[0]) == FINETUNE.rate_per_h
    assert (float(site.slack_factor[0]), float(site.n_gpus[0]), float(site.infer_gpu_peak[0])) == (0.5, 500, 100)
