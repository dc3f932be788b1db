"""Signals by name: sources, windows, steps, scaling constants."""

import numpy as np
import pytest

from powerzoo_jax.base import DataError
from powerzoo_jax.data import build_bank, find_sources, load_dataset, load_signals, make_series
from powerzoo_jax.data.clock import local_days


def test_a_signal_of_one_source_needs_no_source():
    demand = load_signals("load.actual_mw")
    np.testing.assert_array_equal(demand.column("load.actual_mw"), load_dataset("fr_2017_2019").column("demand_mw"))


def test_a_signal_of_several_sources_lists_them():
    assert find_sources("solar.available_mw") == ("de_2018", "fr_2017_2019")
    with pytest.raises(ValueError, match=r"Pass source=.*de_2018, fr_2017_2019"):
        load_signals("solar.available_mw")


def test_the_region_or_a_second_signal_settles_the_source():
    assert load_signals("solar.available_mw", region="DE").meta.name == "de_2018"
    both = load_signals(["load.actual_mw", "solar.available_mw"])
    assert both.meta.name == "fr_2017_2019" and tuple(both.columns) == ("load.actual_mw", "solar.available_mw")


def test_signals_without_a_common_source_are_refused():
    with pytest.raises(ValueError, match="one source at a time"):
        load_signals(["load.actual_mw", "carbon.marginal_kg_per_kwh"])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"signals": "load.actual"}, KeyError, "load.actual_mw"),
        ({"signals": []}, ValueError, "at least one"),
        ({"signals": "load.actual_mw", "region": "FRA"}, ValueError, "'FR'"),
        ({"signals": "load.actual_mw", "source": "de_2018"}, KeyError, "signal of de_2018"),
        ({"signals": "load.actual_mw", "start_date": "2019-01-01"}, ValueError, "both dates"),
        (
            {"signals": "load.actual_mw", "start_date": "2016-12-31", "end_date": "2017-01-01"},
            ValueError,
            "leaves fr_2017_2019",
        ),
        ({"signals": "load.actual_mw", "step_minutes": 45}, ValueError, "does not divide|cannot bring"),
        ({"signals": "ev.delivered_kwh", "step_minutes": 60}, DataError, "table of events"),
    ],
)
def test_unusable_requests_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        load_signals(**arguments)


def test_a_window_holds_whole_days_of_the_local_standard_clock():
    data = load_signals("load.actual_mw", start_date="2019-03-30", end_date="2019-04-01")  # the clock changes between
    assert len(data.time_utc) == 72
    assert data.time_utc[0] == np.datetime64("2019-03-29T23:00", "ns").astype(np.int64)
    assert set(local_days(data.time_utc, 60).astype(str)) == {"2019-03-30", "2019-03-31", "2019-04-01"}


def test_a_gap_outside_the_window_does_no_harm_and_one_inside_is_refused():
    values = np.arange(96.0)
    values[30] = np.nan
    hours = np.arange(96) * 3600 * 10**9
    mine = make_series("mine", hours, {"load.actual_mw": values}, {"load.actual_mw": "MW"}, offset_minutes=0)
    for minutes in (30, None):
        cut = load_signals(
            "load.actual_mw", source=mine, start_date="1970-01-03", end_date="1970-01-04", step_minutes=minutes
        )
        assert cut.column("load.actual_mw")[0] == 48 and cut.d_ref("load.actual_mw") == 95
    with pytest.raises(DataError, match=r"lacks 1 of 48 values \(1970-01-02 06:00 UTC\)"):
        load_signals("load.actual_mw", source=mine, start_date="1970-01-02", end_date="1970-01-03")


@pytest.mark.parametrize("minutes", [5, 15, 30, 60])
def test_every_step_gives_the_same_energy_to_a_mean(minutes):
    whole = load_signals("solar.available_mw", source="de_2018")
    data = load_signals("solar.available_mw", source="de_2018", step_minutes=minutes)
    assert data.meta.step_minutes == minutes
    assert len(data.time_utc) == 365 * 1440 // minutes
    assert data.column("solar.available_mw").mean() == pytest.approx(
        whole.column("solar.available_mw").mean(), rel=1e-3
    )


def test_finer_steps_interpolate_power_and_hold_prices():
    power = load_signals("load.actual_mw", step_minutes=30).column("load.actual_mw")
    hourly = load_dataset("fr_2017_2019").column("load.actual_mw")
    np.testing.assert_array_equal(power[::2], hourly)
    np.testing.assert_allclose(power[1:-1:2], (hourly[:-1] + hourly[1:]) / 2, rtol=1e-6)
    price = load_signals("price.day_ahead_per_mwh", step_minutes=15).column("price.day_ahead_per_mwh").reshape(-1, 4)
    assert np.all(price == price[:, :1])


def test_scaling_constants_do_not_follow_the_window():
    july = load_signals("load.actual_mw", start_date="2019-07-01", end_date="2019-07-31", step_minutes=30)
    assert july.column("load.actual_mw").max() < 80_000
    assert (july.d_ref("load.actual_mw"), july.d_min("load.actual_mw")) == (95_400, 29_600)
    wind = load_signals("wind.available_mw", source="fr_2017_2019", start_date="2019-07-01", end_date="2019-07-31")
    assert wind.d_ref("wind.available_mw") == load_dataset("fr_2017_2019").column("wind.available_mw").max()


def test_repaired_rows_follow_the_window_and_the_step():
    whole = load_dataset("gb_2018_2020")
    days = {"start_date": "2018-11-17", "end_date": "2018-11-17"}
    day = load_signals("generation.total_mw", source="gb_2018_2020", **days)
    np.testing.assert_array_equal(
        day.time_utc[day.repaired], np.intersect1d(day.time_utc, whole.time_utc[whole.repaired])
    )
    hours = load_signals("generation.total_mw", source="gb_2018_2020", step_minutes=60, **days)
    assert 23 in hours.repaired  # the gap at 23:30


def test_a_window_of_a_bundled_set_keeps_its_calendar():
    window = load_signals("load.actual_mw", start_date="2019-01-01", end_date="2019-02-28")
    bank = build_bank(window, "load.actual_mw", "de_smard_2018", "price_eur_per_mwh", 30, "val", 48)
    assert bank.n_start == 30 and bank.start_day[-1] == "2019-02-15"
    assert bank.d_ref == 95_400


def test_the_floor_maps_the_smallest_load_and_keeps_the_reference():
    arguments = ("fr_2017_2019", "load.actual_mw", "de_smard_2018", "price_eur_per_mwh", 60, "train", 24)
    plain, raised = build_bank(*arguments), build_bank(*arguments, load_floor=0.5)
    factor, mapped = plain.load_rows[:-1, 0].astype(np.float64), raised.load_rows[:-1, 0]
    assert (factor.max(), mapped.max(), mapped.min()) == (1.0, 1.0, 0.5)
    low = 29_600 / 95_400
    np.testing.assert_allclose(mapped, 0.5 + 0.5 * (factor - low) / (1 - low), rtol=1e-6)


@pytest.mark.parametrize("floor", [-0.1, 1.0, 1.2])
def test_a_floor_outside_its_range_is_refused(floor):
    with pytest.raises(DataError, match="min_load_ratio below max_load_ratio"):
        build_bank(
            "fr_2017_2019", "load.actual_mw", "de_smard_2018", "price_eur_per_mwh", 60, "train", 24, load_floor=floor
        )
